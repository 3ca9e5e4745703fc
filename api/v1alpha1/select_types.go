package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// SpreadConstraint spreads the chosen clusters over groups: clusters that share a
// field or the value of a label. All constraints of a placement hold together.
//
// A cluster without the field or label is in no group: DoNotSchedule refuses it,
// with that reason; ScheduleAnyway may choose it, and counts it in no group. A
// cluster that runs the Bundle is never taken out because it lost its label.
//
// +kubebuilder:validation:XValidation:rule="has(self.spreadByField) != has(self.spreadByLabel)",message="give spreadByField or spreadByLabel, one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.minGroups) || !has(self.maxGroups) || self.minGroups <= self.maxGroups",message="minGroups is more than maxGroups"
// +kubebuilder:validation:XValidation:rule="!has(self.maxSkew) || !has(self.spreadByField) || self.spreadByField != 'cluster'",message="maxSkew says nothing about clusters, each of which is a group of its own"
type SpreadConstraint struct {
	// SpreadByField: cluster (each is a group of its own), region, zone or provider,
	// as the Cluster's spec has them; a zone is told by its name alone.
	// +optional
	// +kubebuilder:validation:Enum=cluster;region;zone;provider
	SpreadByField SpreadField `json:"spreadByField,omitempty"`
	// SpreadByLabel is the key of a label of Clusters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	SpreadByLabel string `json:"spreadByLabel,omitempty"`
	// MinGroups that have a chosen cluster, from 1 to 10000. Default 1. Where there
	// are not that many, whenUnsatisfiable says what happens.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinGroups int32 `json:"minGroups,omitempty"`
	// MaxGroups that have a chosen cluster, from 1 to 10000. Omitted: any number. It
	// always holds for what comes new.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxGroups int32 `json:"maxGroups,omitempty"`
	// MaxSkew is by how many chosen clusters the groups may differ, from 1 to 10000.
	// Omitted: by any number. Groups without a chosen cluster count, as 0, if
	// maxGroups leaves room for them. Not for spreadByField cluster.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxSkew int32 `json:"maxSkew,omitempty"`
	// WhenUnsatisfiable: DoNotSchedule (default) keeps to maxSkew by choosing fewer
	// clusters, and where minGroups cannot be had changes nothing: nothing comes, and
	// what runs stays as it is and says so. ScheduleAnyway comes as near to minGroups
	// and maxSkew as it can.
	// +optional
	// +kubebuilder:validation:Enum=DoNotSchedule;ScheduleAnyway
	WhenUnsatisfiable UnsatisfiableAction `json:"whenUnsatisfiable,omitempty"`
}

// SpreadField is a field of Clusters that groups them.
type SpreadField string

// The fields.
const (
	SpreadByCluster  SpreadField = "cluster"
	SpreadByRegion   SpreadField = "region"
	SpreadByZone     SpreadField = "zone"
	SpreadByProvider SpreadField = "provider"
)

// UnsatisfiableAction is what happens where a spread constraint cannot be met; the
// words of pods' topologySpreadConstraints.
type UnsatisfiableAction string

// The actions.
const (
	DoNotSchedule  UnsatisfiableAction = "DoNotSchedule"
	ScheduleAnyway UnsatisfiableAction = "ScheduleAnyway"
)

// Score rates clusters from 0 to 1000, on a scale of its own that does not depend on
// which other clusters there are.
//
// +kubebuilder:validation:XValidation:rule="(self.name == 'ResourceAvailable') == has(self.resource)",message="resource is for the score ResourceAvailable, and needed there"
// +kubebuilder:validation:XValidation:rule="self.name == 'ResourceAvailable' || !has(self.full)",message="full is for the score ResourceAvailable"
type Score struct {
	// Name: Balance prefers clusters with few Bundles for their size, which is the
	// pods that they can hold (110 where that is not reported): 1000 for none, 500
	// for one Bundle per pod. ResourceAvailable prefers clusters with much of a
	// resource free.
	// +kubebuilder:validation:Enum=Balance;ResourceAvailable
	Name ScoreName `json:"name"`
	// Weight of this score among the others, from 1 to 100. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
	// Resource for ResourceAvailable: cpu, memory, or any other that nodes offer,
	// such as nvidia.com/gpu. A cluster that reports nothing of it scores 0.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Resource string `json:"resource,omitempty"`
	// Full is how much has to be free for 1000, such as "64" or "256Gi"; less scores
	// in proportion. Omitted: all that the cluster's ready nodes can hold.
	// +optional
	Full *resource.Quantity `json:"full,omitempty"`
}

// ScoreName is the name of a score.
type ScoreName string

// The scores.
const (
	ScoreBalance           ScoreName = "Balance"
	ScoreResourceAvailable ScoreName = "ResourceAvailable"
)
