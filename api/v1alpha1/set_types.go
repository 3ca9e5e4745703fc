package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelClusterSet, on a Cluster, names the one exclusive ClusterSet that it belongs to. A token
// with --set adds it when a cluster joins.
const LabelClusterSet = "atoll.dev/set"

// DefaultClusterSet exists on every hub and holds all clusters. Its unboundNamespaces makes the
// hub permissive or strict.
const DefaultClusterSet = "default"

// ClusterSet names clusters on which namespaces may be allowed to place, by a
// ClusterSetBinding.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cset,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.clusterSelector.selectorType`
// +kubebuilder:printcolumn:name="Unbound Namespaces",type=string,JSONPath=`.spec.unboundNamespaces`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a ClusterSet is the value of a label, which has at most 63 characters"
type ClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec ClusterSetSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterSetStatus `json:"status,omitempty"`
}

// ClusterSetEmpty is the type of a ClusterSet's condition.
const ClusterSetEmpty = "ClusterSetEmpty"

// ClusterSetStatus is the observed state of a ClusterSet.
type ClusterSetStatus struct {
	// ObservedGeneration of the set that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Clusters is the number of clusters in the set, accepted or not. It is at most 10 seconds old.
	// +optional
	Clusters *int32 `json:"clusters,omitempty"`
	// Conditions: ClusterSetEmpty, true while no cluster is in the set.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterSetSpec selects the clusters of the set, and specifies which namespaces need no binding.
type ClusterSetSpec struct {
	// ClusterSelector selects the clusters. Default: exclusive membership by label.
	// +optional
	// +kubebuilder:default={}
	ClusterSelector ClusterSetSelector `json:"clusterSelector,omitempty"`
	// UnboundNamespaces: Allow lets namespaces that have no ClusterSetBinding at all
	// place on the set; Deny (default) does not. A fresh hub has the set "default" of
	// all clusters with Allow; Deny there makes the hub strict. Not in OCM.
	// +optional
	// +kubebuilder:default=Deny
	// +kubebuilder:validation:Enum=Allow;Deny
	UnboundNamespaces UnboundNamespaces `json:"unboundNamespaces,omitempty"`
}

// UnboundNamespaces specifies whether namespaces without bindings may place on a ClusterSet.
type UnboundNamespaces string

// The values of UnboundNamespaces.
const (
	UnboundAllow UnboundNamespaces = "Allow"
	UnboundDeny  UnboundNamespaces = "Deny"
)

// ClusterSetSelector selects the clusters of a set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.selectorType) && self.selectorType == 'LabelSelector') == has(self.labelSelector)",message="labelSelector is for selectorType LabelSelector, and needed there; an empty one chooses all clusters"
type ClusterSetSelector struct {
	// SelectorType: ExclusiveClusterSetLabel (default) holds the Clusters whose label
	// atoll.dev/set names the set, so that each is in at most one such set; LabelSelector holds
	// those that labelSelector matches, whatever their other sets.
	// +optional
	// +kubebuilder:default=ExclusiveClusterSetLabel
	// +kubebuilder:validation:Enum=ExclusiveClusterSetLabel;LabelSelector
	SelectorType ClusterSetSelectorType `json:"selectorType,omitempty"`
	// LabelSelector over the Clusters' labels; an empty one selects all clusters.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// ClusterSetSelectorType is how a ClusterSet selects its clusters.
type ClusterSetSelectorType string

// The ways to select the clusters of a set.
const (
	SelectExclusively ClusterSetSelectorType = "ExclusiveClusterSetLabel"
	SelectByLabels    ClusterSetSelectorType = "LabelSelector"
)

// ClusterSetBinding gives its namespace the right to place on a ClusterSet. Creating
// or deleting one needs the verb `bind` on that ClusterSet. It has the set's name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=csetb,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.clusterSet`
// +kubebuilder:printcolumn:name="Bound",type=string,JSONPath=`.status.conditions[?(@.type=="Bound")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.clusterSet",message="the name of a ClusterSetBinding must be that of its ClusterSet, spec.clusterSet"
type ClusterSetBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSetBindingSpec   `json:"spec"`
	Status ClusterSetBindingStatus `json:"status,omitempty"`
}

// ClusterSetBindingBound is the type of a ClusterSetBinding's condition.
const ClusterSetBindingBound = "Bound"

// ClusterSetBindingStatus is the observed state of a ClusterSetBinding.
type ClusterSetBindingStatus struct {
	// ObservedGeneration of the binding that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Bound, false while the ClusterSet does not exist.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterSetBindingSpec names the set.
type ClusterSetBindingSpec struct {
	// ClusterSet that the namespace may place on. It may be created later. It is also the name
	// of the binding.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClusterSet string `json:"clusterSet"`
}

// ClusterSetList is a list of ClusterSets.
//
// +kubebuilder:object:root=true
type ClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSet `json:"items"`
}

// ClusterSetBindingList is a list of ClusterSetBindings.
//
// +kubebuilder:object:root=true
type ClusterSetBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSetBinding `json:"items"`
}
