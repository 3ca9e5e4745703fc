package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bundle is the unit of placement: the objects of one namespace that one policy, or one
// annotation, places together. Atoll creates Bundles; people read them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=bdl,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Items",type=integer,JSONPath=`.status.items`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters.summary`
// +kubebuilder:printcolumn:name="Waits for",type=string,JSONPath=`.status.waitsFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Feedback",type=string,JSONPath=`.status.feedbackSummary`,priority=1
type Bundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BundleSpec   `json:"spec"`
	Status BundleStatus `json:"status,omitempty"`
}

// ClusterBundle is a Bundle of cluster-scoped objects.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cbdl,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Items",type=integer,JSONPath=`.status.items`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters.summary`
// +kubebuilder:printcolumn:name="Waits for",type=string,JSONPath=`.status.waitsFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Feedback",type=string,JSONPath=`.status.feedbackSummary`,priority=1
type ClusterBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BundleSpec   `json:"spec"`
	Status BundleStatus `json:"status,omitempty"`
}

// BundleSpec is the intent that the binder read last. It stays when its policy is deleted: a
// policy that disappears changes no running workload.
type BundleSpec struct {
	// Source of the intent.
	Source BundleSource `json:"source"`
	// Group is the value of groupBy that distinguishes this Bundle from the other Bundles of
	// its policy.
	// +optional
	Group string `json:"group,omitempty"`
	// Placement as in the source.
	// +optional
	Placement PlacementSpec `json:"placement,omitempty"`
	// WeightRule is how the static weights of the placement count. Largest: of several entries
	// that match a cluster, the largest counts. Absent, for placements of v0.1.0 that were not
	// edited since: the entries add up.
	// +optional
	// +kubebuilder:validation:Enum=Largest
	WeightRule WeightRule `json:"weightRule,omitempty"`
	// ConflictResolution as in the source.
	ConflictResolution ConflictResolution `json:"conflictResolution"`
	// Removal as in the source.
	Removal Removal `json:"removal"`
	// WhenUnfit as in the source.
	WhenUnfit WhenUnfit `json:"whenUnfit"`
	// MoveOrder as in the source. Absent: the kinds of the objects decide.
	// +optional
	MoveOrder MoveOrder `json:"moveOrder,omitempty"`
	// Rollout as in the source. Absent: a change keeps maxUnavailable 25% of more than 4 clusters.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`
	// RolloutStrategy is the strategy that the rollout comes from. Absent: the source states the rollout itself, or states none.
	// +optional
	RolloutStrategy *AppliedStrategy `json:"rolloutStrategy,omitempty"`
	// Suspension as in the source. Absent: nothing is suspended.
	// +optional
	Suspension *Suspension `json:"suspension,omitempty"`
	// Failover as in the source. Absent: health moves nothing.
	// +optional
	Failover *Failover `json:"failover,omitempty"`
	// DependsOn as in the source. Absent: the Bundle waits for no other.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	DependsOn []PolicyDependency `json:"dependsOn,omitempty"`
	// DisruptionBudget as in the source. Absent: no copy is kept for other copies.
	// +optional
	DisruptionBudget *DisruptionBudget `json:"disruptionBudget,omitempty"`
	// Pause stops the rollout until a person removes it. People write it; no policy has it.
	// +optional
	Pause *RolloutPause `json:"pause,omitempty"`
	// Resume is the last time that a person resumed the rollout.
	// +optional
	Resume *RolloutResume `json:"resume,omitempty"`
	// FreezeExemption lets the Bundle change in the freeze of HubSettings. People write it in an emergency, with the verb exempt on the
	// Bundle. It has no effect on a freeze that begins later.
	// +optional
	FreezeExemption *FreezeExemption `json:"freezeExemption,omitempty"`
	// Approvals of stages. People write them, with the verb approve on the Bundle.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Approvals []RolloutApproval `json:"approvals,omitempty"`
}

// WeightRule is how static weights count.
type WeightRule string

// WeightLargest counts the largest of the entries that match a cluster.
const WeightLargest WeightRule = "Largest"

// BundleSource is the policy or annotation that placed the objects.
type BundleSource struct {
	// Kind: PropagationPolicy, ClusterPropagationPolicy, Annotation (on the object
	// itself), NamespaceAnnotation, or HubSettings (its default placement).
	Kind string `json:"kind"`
	// Name of the policy, of the annotated object, of the namespace, or of the HubSettings.
	Name string `json:"name"`
	// UID of the policy or annotated object.
	// +optional
	UID string `json:"uid,omitempty"`
}

// The kinds of a BundleSource.
const (
	SourcePropagationPolicy        = "PropagationPolicy"
	SourceClusterPropagationPolicy = "ClusterPropagationPolicy"
	SourceAnnotation               = "Annotation"
	SourceNamespaceAnnotation      = "NamespaceAnnotation"
	SourceHubSettings              = "HubSettings"
)

// Condition types of a Bundle. The first write of the status has all of them but Quarantined.
const (
	// BundleBound is false while a kind of the Bundle's objects, or their namespace, cannot be
	// read on the hub. No Revision is created then.
	BundleBound = "Bound"
	// BundleScheduled is false while no cluster fits.
	BundleScheduled = "Scheduled"
	// BundleReplicasPlaced is false while replicas of a divided workload are assigned to no
	// cluster, since clusters are at their bounds.
	BundleReplicasPlaced = "ReplicasPlaced"
	// BundleAffinityMet is false while workloadAffinity refuses all clusters that fit the Bundle otherwise. It is there
	// only where it was false once.
	BundleAffinityMet = "WorkloadAffinityMet"
	// BundlePreferredGroup is false while a later group of clusterAffinities is used in place
	// of the first. It is unknown while an earlier group could be used and failback waits for
	// holdTime; its message has the start time.
	BundlePreferredGroup = "PreferredGroup"
	// BundleApplied is true when every reachable row has applied its revision.
	BundleApplied = "Applied"
	// BundleReady is true when every item of every reachable row is healthy.
	BundleReady = "Ready"
	// BundleRemovalHeld is true while a removal over the budget waits for
	// `atoll confirm`; its message holds the plan's hash.
	BundleRemovalHeld = "RemovalHeld"
	// BundleQuarantined is true while the hub renders the Bundle for no cluster, because its
	// renderings cost too much. Clusters keep what they have. It is absent otherwise.
	BundleQuarantined = "Quarantined"
)

// BundleStatus is the observed state of a Bundle.
type BundleStatus struct {
	// Revision that the rows must reach.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Items of that revision.
	// +optional
	Items int32 `json:"items,omitempty"`
	// Clusters of the Bundle.
	// +optional
	Clusters BundleClusters `json:"clusters,omitempty"`
	// WaitsFor is what the Bundle waits for, in a few words; empty when it is complete.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// Wait has the reason of waitsFor, the actor and the time as values. Absent when the Bundle is
	// complete.
	// +optional
	Wait *BundleWait `json:"wait,omitempty"`
	// Replicas over all clusters, of all items that have replicas.
	// +optional
	Replicas int64 `json:"replicas,omitempty"`
	// ReadyReplicas over all clusters.
	// +optional
	ReadyReplicas int64 `json:"readyReplicas,omitempty"`
	// Feedback sums up the values that feedback of itemRules names, over all clusters: at most 16 names, those of the
	// most clusters, by object and name.
	// +optional
	// +listType=atomic
	Feedback []BundleFeedback `json:"feedback,omitempty"`
	// FeedbackSummary is feedback in a line, for the table that kubectl prints.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	FeedbackSummary string `json:"feedbackSummary,omitempty"`
	// Rollout has the progress of the rollout. Absent: the Bundle states no bound, or no
	// rollout and no cluster waits, and is not paused.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Failover is what the hub stores about the health of the application. Absent: its policy states no failover of applications, or nothing
	// happened yet.
	// +optional
	Failover *ApplicationFailoverStatus `json:"failover,omitempty"`
	// Conditions: Bound, Scheduled, ReplicasPlaced, PreferredGroup, Applied, Ready,
	// RemovalHeld.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BundleWait is what a Bundle waits for.
type BundleWait struct {
	// Reason of the wait. docs/reasons.md lists all reasons.
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// Actor is the person or component that must act before the wait ends, by the table of
	// reasons; "none" where nothing has to be done.
	// +kubebuilder:validation:MaxLength=128
	Actor string `json:"actor"`
	// Cluster that the Bundle waits for; empty when the wait is not about one cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`
	// Since is when the wait began.
	Since metav1.Time `json:"since"`
}

// BundleFeedback is what clusters report under one name of feedback.
type BundleFeedback struct {
	// Object as Kind/name.
	// +kubebuilder:validation:MaxLength=512
	Object string `json:"object"`
	// Name of the feedback rule.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Values that most clusters report, at most 4.
	// +optional
	// +listType=atomic
	Values []BundleFeedbackValue `json:"values,omitempty"`
	// OtherClusters counts the clusters with other values than those.
	// +optional
	OtherClusters int32 `json:"otherClusters,omitempty"`
	// ProblemClusters counts the clusters in which there is no value of the type.
	// +optional
	ProblemClusters int32 `json:"problemClusters,omitempty"`
}

// BundleFeedbackValue is a value with the number of clusters that report it.
type BundleFeedbackValue struct {
	// Value as text, at most 64 bytes.
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value"`
	// Clusters that report it.
	Clusters int32 `json:"clusters"`
}

// BundleClusters counts rows.
type BundleClusters struct {
	// Desired clusters, disconnected clusters included.
	Desired int32 `json:"desired"`
	// Updated have applied the revision.
	Updated int32 `json:"updated"`
	// Ready are updated and healthy.
	Ready int32 `json:"ready"`
	// Away clusters are disconnected; they block no other cluster.
	// +optional
	Away int32 `json:"away,omitempty"`
	// Removing clusters are losing the Bundle.
	// +optional
	Removing int32 `json:"removing,omitempty"`
	// Summary is "ready/desired", for the table that kubectl prints.
	// +optional
	Summary string `json:"summary,omitempty"`
}

// BundleList is a list of Bundles.
//
// +kubebuilder:object:root=true
type BundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Bundle `json:"items"`
}

// ClusterBundleList is a list of ClusterBundles.
//
// +kubebuilder:object:root=true
type ClusterBundleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterBundle `json:"items"`
}
