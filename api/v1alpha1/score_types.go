package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterScore rates one cluster by measures that people or add-ons define. Placements read a
// measure by the score ClusterScore. A ClusterScore in a namespace counts for the
// PropagationPolicies of that namespace only, so that no team steers another team's placements.
// Those in atoll-system count for every namespace that has none of its own for that cluster and
// measure. ClusterPropagationPolicies read only those in atoll-system.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=cls,categories=atoll
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Valid until",type=string,JSONPath=`.spec.validUntil`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterScore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterScoreSpec `json:"spec"`
}

// ClusterScoreSpec rates a cluster.
type ClusterScoreSpec struct {
	// ClusterName of the rated cluster. The cluster may join later.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`
	// Scores by measure. If several objects of a namespace rate a cluster by one measure, the
	// first by name counts.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Scores []NamedScore `json:"scores"`
	// ValidUntil is when the scores expire. Running workloads stay where they are. Omitted:
	// never.
	// +optional
	ValidUntil *metav1.Time `json:"validUntil,omitempty"`
}

// NamedScore is one measure.
type NamedScore struct {
	// Name of the measure, such as price.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Value from 0, the worst, to 1000, the best.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Value int32 `json:"value"`
}

// ClusterScoreList is a list of ClusterScores.
//
// +kubebuilder:object:root=true
type ClusterScoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterScore `json:"items"`
}
