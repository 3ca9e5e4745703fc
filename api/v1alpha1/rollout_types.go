package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rollout bounds how fast a change of templates or override rules reaches the clusters.
//
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Staged') == (has(self.stages) && size(self.stages) > 0)",message="stages need type: Staged, and type: Staged needs stages"
type Rollout struct {
	// Type: All (default) changes all clusters at once, within maxUnavailable. Staged changes the
	// clusters of one stage after those of the stage before are healthy.
	// +optional
	// +kubebuilder:default=All
	// +kubebuilder:validation:Enum=All;Staged
	Type RolloutType `json:"type,omitempty"`
	// MaxUnavailable is how many connected clusters may be unhealthy, over all stages, when a healthy
	// cluster changes: a number, or a percentage of the connected clusters, rounded down, at least 1.
	// Clusters that are unhealthy for other reasons count. It also bounds the first installation.
	// Absent: no bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Stages in their order. A cluster is in the first stage that chooses it. A last stage named rest
	// has the clusters that no stage chooses.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Stages []RolloutStage `json:"stages,omitempty"`
}

// RolloutType is how a change reaches the clusters.
type RolloutType string

// The types of rollouts.
const (
	RolloutAll    RolloutType = "All"
	RolloutStaged RolloutType = "Staged"
)

// RestStage is the name of the stage of the clusters that no stated stage chooses.
const RestStage = "rest"

// RolloutStage is a part of the clusters that change together.
type RolloutStage struct {
	// Name of the stage. The name rest is not allowed.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Clusters of the stage.
	Clusters StageClusters `json:"clusters"`
	// MaxConcurrency is how many clusters of the stage change at one time: a number, or a percentage
	// of the stage's connected clusters, rounded up. Absent: all of them.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`
	// MaxFailures is how many clusters of the stage may fail: a number, or a percentage of the stage's
	// connected clusters, rounded down. One more holds the rollout until the template changes or a
	// person resumes. Default 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
	// MinSuccessTime is how long the clusters of the stage must be healthy without a break before the
	// next stage begins, from 0s to 168h. Default 0s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('168h')",message="minSuccessTime must be a duration from 0s to 168h, such as 10m"
	MinSuccessTime *metav1.Duration `json:"minSuccessTime,omitempty"`
}

// StageClusters chooses the clusters of a stage, by one of its fields.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.labelSelector)",message="give names or labelSelector, and not both"
type StageClusters struct {
	// Names of clusters.
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Names []string `json:"names,omitempty"`
	// LabelSelector over the Clusters' labels. The last stage may have an empty one: it has the clusters
	// that are in no other stage.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// RolloutPause stops a Bundle's rollout. A person writes it, and Atoll keeps it.
type RolloutPause struct {
	// Reason in one CamelCase word.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// Message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// By is the user that paused, or that last edited the pause. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// Since is when the pause began. The hub sets it.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// RolloutResume is the last time that a person resumed a Bundle's rollout.
type RolloutResume struct {
	// By is the user that resumed. The hub sets it from the request.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	By string `json:"by,omitempty"`
	// At is the time. Failures of clusters that changed before it hold no stage. The hub sets it.
	// +optional
	At metav1.Time `json:"at,omitzero"`
}

// RolloutStatus is the progress of a Bundle's rollout.
type RolloutStatus struct {
	// Stages in their order, the one of the other clusters last.
	// +optional
	// +kubebuilder:validation:MaxItems=33
	// +listType=map
	// +listMapKey=name
	Stages []StageStatus `json:"stages,omitempty"`
	// CurrentStage is the stage that changes, or that holds the rollout. Empty: the rollout is complete.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CurrentStage string `json:"currentStage,omitempty"`
	// Reason for which clusters wait, in the words of docs/reasons.md. Empty: no cluster waits for its turn.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// Actor is the person or component that must act before the wait ends.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Actor string `json:"actor,omitempty"`
	// Message describes the wait.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Since is when the reason began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// PausedBy is the user that paused the rollout.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PausedBy string `json:"pausedBy,omitempty"`
	// PausedSince is when the user paused the rollout.
	// +optional
	PausedSince *metav1.Time `json:"pausedSince,omitempty"`
}

// StageStatus counts the clusters of a stage. Disconnected clusters are only in Disconnected.
type StageStatus struct {
	// Name of the stage.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Clusters that are connected.
	Clusters int32 `json:"clusters"`
	// Updated clusters have the wanted revision, and are healthy.
	Updated int32 `json:"updated"`
	// Changing clusters have the wanted revision, and are not healthy yet.
	Changing int32 `json:"changing"`
	// Failed clusters have the wanted revision, and could not apply it or are unhealthy.
	Failed int32 `json:"failed"`
	// Waiting clusters keep their earlier revision.
	Waiting int32 `json:"waiting"`
	// Disconnected clusters are outside all bounds, and catch up when they return.
	Disconnected int32 `json:"disconnected"`
}
