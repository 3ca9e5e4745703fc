package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bundle is what goes together: the objects of one namespace that one policy, or
// one annotation, placed. Atoll makes Bundles; people look at them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=bdl,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Items",type=integer,JSONPath=`.status.items`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters.summary`
// +kubebuilder:printcolumn:name="Waits for",type=string,JSONPath=`.status.waitsFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
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
type ClusterBundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BundleSpec   `json:"spec"`
	Status BundleStatus `json:"status,omitempty"`
}

// BundleSpec is the intent that bind last saw. When the policy goes, it stays:
// what runs is not touched by a policy that vanished.
type BundleSpec struct {
	// Source of the intent.
	Source BundleSource `json:"source"`
	// Group is the value of groupBy that tells this Bundle from its siblings.
	// +optional
	Group string `json:"group,omitempty"`
	// Placement as in the source.
	// +optional
	Placement PlacementSpec `json:"placement,omitempty"`
	// ConflictResolution as in the source.
	ConflictResolution ConflictResolution `json:"conflictResolution"`
	// Removal as in the source.
	Removal Removal `json:"removal"`
	// WhenUnfit as in the source.
	WhenUnfit WhenUnfit `json:"whenUnfit"`
}

// BundleSource says who wants the Bundle.
type BundleSource struct {
	// Kind: PropagationPolicy, ClusterPropagationPolicy, Annotation (on the object
	// itself) or NamespaceAnnotation.
	Kind string `json:"kind"`
	// Name of the policy, of the annotated object, or of the namespace.
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
)

// Condition types of a Bundle.
const (
	// BundleBound is false while a kind of the Bundle's objects, or their namespace, cannot
	// be read on the hub, so that no Revision is cut. It is there once that has happened.
	BundleBound = "Bound"
	// BundleScheduled is false while no cluster fits.
	BundleScheduled = "Scheduled"
	// BundleReplicasPlaced is false while replicas of a divided workload have no place,
	// since clusters are at their bounds. It is there once that has happened.
	BundleReplicasPlaced = "ReplicasPlaced"
	// BundlePreferredGroup is false while a later group of clusterAffinities is used in place
	// of the first, and unknown while a better one could be used and failback waits for
	// holdTime; its message says since when. It is there once that has happened.
	BundlePreferredGroup = "PreferredGroup"
	// BundleApplied is true when every reachable row has applied its revision.
	BundleApplied = "Applied"
	// BundleReady is true when every item of every reachable row is healthy.
	BundleReady = "Ready"
	// BundleRemovalHeld is true while a removal over the budget waits for
	// `atoll confirm`; its message holds the plan's hash.
	BundleRemovalHeld = "RemovalHeld"
)

// BundleStatus is what people look at.
type BundleStatus struct {
	// Revision that rows are to reach.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Items of that revision.
	// +optional
	Items int32 `json:"items,omitempty"`
	// Clusters of the Bundle.
	// +optional
	Clusters BundleClusters `json:"clusters,omitempty"`
	// WaitsFor says, in a few words, what the Bundle waits for; empty when it is
	// done.
	// +optional
	WaitsFor string `json:"waitsFor,omitempty"`
	// Replicas over all clusters, of all items that have them.
	// +optional
	Replicas int64 `json:"replicas,omitempty"`
	// ReadyReplicas over all clusters.
	// +optional
	ReadyReplicas int64 `json:"readyReplicas,omitempty"`
	// Conditions: Bound, Scheduled, ReplicasPlaced, PreferredGroup, Applied, Ready,
	// RemovalHeld.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BundleClusters counts rows.
type BundleClusters struct {
	// Desired clusters, those that are away included.
	Desired int32 `json:"desired"`
	// Updated have applied the revision.
	Updated int32 `json:"updated"`
	// Ready are updated and healthy.
	Ready int32 `json:"ready"`
	// Away have no live stream; they block nobody.
	// +optional
	Away int32 `json:"away,omitempty"`
	// Removing are on their way out.
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
