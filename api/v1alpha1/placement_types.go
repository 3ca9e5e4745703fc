package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Placement chooses clusters on its own: policies of its namespace refer to it by
// placementRef, and what it chooses is published in PlacementDecisions, for whoever
// wants to know clusters and places nothing by Atoll.
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

	// Spec is what a policy's placement is. Without one, every cluster that no taint
	// repels.
	// +optional
	// +kubebuilder:default={}
	Spec   PlacementSpec   `json:"spec,omitempty"`
	Status PlacementStatus `json:"status,omitempty"`
}

// ClusterPlacement is a Placement that ClusterPropagationPolicies refer to: who may write
// in some namespace must not steer what goes everywhere.
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

	// Spec is what a policy's placement is. Without one, every cluster that no taint
	// repels.
	// +optional
	// +kubebuilder:default={}
	Spec   PlacementSpec   `json:"spec,omitempty"`
	Status PlacementStatus `json:"status,omitempty"`
}

// PlacementStatus says how much a Placement chose; it does not grow with the fleet.
type PlacementStatus struct {
	// NumberOfSelectedClusters that its PlacementDecisions list.
	// +optional
	NumberOfSelectedClusters int32 `json:"numberOfSelectedClusters"`
	// Conditions: Satisfied, false with reason NoClusterFits where no cluster fits; what
	// was chosen before then stays chosen.
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

// PlacementDecision lists up to 100 of the clusters that a Placement chose; only the hub
// writes it. A cluster stays in the PlacementDecision that it is in as long as it is
// chosen, so that a change is a write of the one that it is in.
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

// ClusterPlacementDecision is the same of a ClusterPlacement.
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
}

// ClusterDecision is one cluster that was chosen.
type ClusterDecision struct {
	// ClusterName of the cluster.
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`
	// ClusterUID of that cluster: another one that comes by the same name is chosen anew.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ClusterUID string `json:"clusterUID,omitempty"`
	// GroupName of the decision group that it is in; empty: in none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	GroupName string `json:"groupName,omitempty"`
	// Reason why it is kept although it does not fit any more; empty where it fits.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// PlacementRef names the Placement that a policy follows.
type PlacementRef struct {
	// Name of a Placement in the policy's namespace, or of a ClusterPlacement for a
	// ClusterPropagationPolicy. As long as it does not exist, nothing new is placed, and
	// what is placed stays as it is.
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
