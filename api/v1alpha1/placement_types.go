package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement chooses clusters without a policy. Policies of its namespace refer to it by
// placementRef. The chosen clusters are published in PlacementDecisions, for tools that need a
// list of clusters and place nothing by Atoll.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=plc,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.numberOfSelectedClusters`
// +kubebuilder:printcolumn:name="Satisfied",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields of a policy's placement. Without one: every cluster that no
	// taint repels.
	// +optional
	// +kubebuilder:default={}
	Spec   PlacementSpec   `json:"spec,omitempty"`
	Status PlacementStatus `json:"status,omitempty"`
}

// ClusterPlacement is a Placement for ClusterPropagationPolicies: a person that may write in
// one namespace must not steer cluster-wide policies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cplc,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.numberOfSelectedClusters`
// +kubebuilder:printcolumn:name="Satisfied",type=string,JSONPath=`.status.conditions[?(@.type=="Satisfied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPlacement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields of a policy's placement. Without one: every cluster that no
	// taint repels.
	// +optional
	// +kubebuilder:default={}
	Spec   PlacementSpec   `json:"spec,omitempty"`
	Status PlacementStatus `json:"status,omitempty"`
}

// PlacementStatus summarises the choice of a Placement; its size does not grow with the fleet.
type PlacementStatus struct {
	// ObservedGeneration of the Placement that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// NumberOfSelectedClusters that its PlacementDecisions list.
	// +optional
	NumberOfSelectedClusters int32 `json:"numberOfSelectedClusters"`
	// Conditions: Satisfied, false with reason NoClusterFits where no cluster fits; clusters
	// that were chosen before stay chosen.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlacementSatisfied is the type of a Placement's condition.
const PlacementSatisfied = "Satisfied"

// The labels of a decision, by which those of one Placement are listed.
const (
	// LabelPlacement names the Placement.
	LabelPlacement = "atoll.dev/placement"
	// LabelDecision is the number of the PlacementDecision among those of its Placement,
	// from 1.
	LabelDecision = "atoll.dev/decision"
)

// MaxDecisions is how many clusters one PlacementDecision lists at most.
const MaxDecisions = 100

// PlacementDecision lists up to 100 of the clusters that a Placement chose; only the hub writes
// it. A cluster stays in its PlacementDecision as long as it is chosen, so that a change writes
// one object.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=plcd,categories=atoll
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.metadata.labels.atoll\.dev/placement`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementDecision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status PlacementDecisionStatus `json:"status,omitempty"`
}

// ClusterPlacementDecision is the PlacementDecision of a ClusterPlacement.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cplcd,categories=atoll
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.metadata.labels.atoll\.dev/placement`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPlacementDecision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status PlacementDecisionStatus `json:"status,omitempty"`
}

// PlacementDecisionStatus lists clusters.
type PlacementDecisionStatus struct {
	// Decisions by the names of the clusters.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=clusterName
	Decisions []ClusterDecision `json:"decisions,omitempty"`
	// ChosenSince is when the list last changed: since then the clusters are the same.
	// +optional
	ChosenSince *metav1.Time `json:"chosenSince,omitempty"`
	// PlacementFingerprint is the hash of the selectors under which the clusters were last found
	// to fit. It distinguishes a cluster that drifted from a placement that was edited.
	// +optional
	PlacementFingerprint string `json:"placementFingerprint,omitempty"`
}

// ClusterDecision is one cluster that was chosen.
type ClusterDecision struct {
	// ClusterName of the cluster.
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`
	// ClusterUID of that cluster. Another cluster that joins under the same name is a new
	// choice.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClusterUID string `json:"clusterUID,omitempty"`
	// GroupName of the decision group that it is in; empty: in none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	GroupName string `json:"groupName,omitempty"`
	// Reason why the cluster stays chosen although it no longer fits; empty where it fits.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// PlacementRef names the Placement that a policy follows.
type PlacementRef struct {
	// Name of a Placement in the policy's namespace, or of a ClusterPlacement for a
	// ClusterPropagationPolicy. While it does not exist, nothing new is placed, and placed
	// workloads stay unchanged.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PlacementList is a list of Placements.
//
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Placement `json:"items"`
}

// ClusterPlacementList is a list of ClusterPlacements.
//
// +kubebuilder:object:root=true
type ClusterPlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPlacement `json:"items"`
}

// PlacementDecisionList is a list of PlacementDecisions.
//
// +kubebuilder:object:root=true
type PlacementDecisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PlacementDecision `json:"items"`
}

// ClusterPlacementDecisionList is a list of ClusterPlacementDecisions.
//
// +kubebuilder:object:root=true
type ClusterPlacementDecisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPlacementDecision `json:"items"`
}
