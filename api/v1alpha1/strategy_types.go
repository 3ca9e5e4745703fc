package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RolloutStrategy is a rollout that is written once. Policies of its namespace refer to it by rolloutRef.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=rst,path=rolloutstrategies,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Policies",type=integer,JSONPath=`.status.policies`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RolloutStrategy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields of a policy's rollout.
	Spec   Rollout               `json:"spec"`
	Status RolloutStrategyStatus `json:"status,omitempty"`
}

// ClusterRolloutStrategy is a RolloutStrategy for policies of all namespaces and for ClusterPropagationPolicies. It can be
// enforced for namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=crst,path=clusterrolloutstrategies,categories=atoll
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Policies",type=integer,JSONPath=`.status.policies`
// +kubebuilder:printcolumn:name="Enforced in",type=integer,JSONPath=`.status.enforcedNamespaces`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterRolloutStrategy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields of a policy's rollout, and the namespaces for which they are enforced.
	Spec   ClusterRolloutStrategySpec   `json:"spec"`
	Status ClusterRolloutStrategyStatus `json:"status,omitempty"`
}

// ClusterRolloutStrategySpec is a rollout with the namespaces for which it is enforced.
type ClusterRolloutStrategySpec struct {
	Rollout `json:",inline"`
	// EnforcedFor are the namespaces in which this rollout replaces what policies state, and applies where nothing is stated.
	// If several strategies match a namespace, the first one by name is enforced. Absent: it is enforced nowhere.
	// +optional
	EnforcedFor *StrategyEnforcement `json:"enforcedFor,omitempty"`
}

// StrategyEnforcement selects namespaces. All Bundles in such a namespace have the rollout, also those of cluster
// policies and annotations.
type StrategyEnforcement struct {
	// NamespaceSelector selects namespaces by their labels. An empty one selects all namespaces.
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
}

// RolloutStrategyStatus summarises the use of a strategy. Its size does not grow with the number of policies.
type RolloutStrategyStatus struct {
	// ObservedGeneration of the strategy that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Policies that name the strategy in rolloutRef.
	// +optional
	Policies int32 `json:"policies"`
	// Conditions: InUse, false while no policy names the strategy and it is enforced in no namespace.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterRolloutStrategyStatus is the status of a RolloutStrategy, with the extent of the enforcement.
type ClusterRolloutStrategyStatus struct {
	RolloutStrategyStatus `json:",inline"`
	// EnforcedNamespaces is the number of namespaces in which the strategy is enforced.
	// +optional
	EnforcedNamespaces int32 `json:"enforcedNamespaces,omitempty"`
}

// Condition types of strategies.
const (
	// StrategyInUse is false while no policy names the strategy and it is enforced in no namespace.
	StrategyInUse = "InUse"
	// StrategyEnforced is false while the strategy is enforced in less than the namespaces that it selects. It is absent
	// without enforcedFor.
	StrategyEnforced = "Enforced"
)

// The kinds of strategies.
const (
	KindRolloutStrategy        = "RolloutStrategy"
	KindClusterRolloutStrategy = "ClusterRolloutStrategy"
)

// RolloutRef names the strategy whose rollout a policy uses.
type RolloutRef struct {
	// Kind is RolloutStrategy, of the policy's namespace, or ClusterRolloutStrategy. Absent: RolloutStrategy for a
	// PropagationPolicy, and ClusterRolloutStrategy for a ClusterPropagationPolicy, which has no other.
	// +optional
	// +kubebuilder:validation:Enum=RolloutStrategy;ClusterRolloutStrategy
	Kind string `json:"kind,omitempty"`
	// Name of the strategy. While it does not exist, new Bundles wait, and the others keep the rollout that they have.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// AppliedStrategy is the strategy that the rollout of a Bundle comes from.
type AppliedStrategy struct {
	// Kind is RolloutStrategy or ClusterRolloutStrategy.
	// +kubebuilder:validation:Enum=RolloutStrategy;ClusterRolloutStrategy
	Kind string `json:"kind"`
	// Name of the strategy.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Enforced is true where the strategy is enforced for the namespace, and replaces what the source states.
	// +optional
	Enforced bool `json:"enforced,omitempty"`
}

// String returns text such as "ClusterRolloutStrategy staged".
func (s AppliedStrategy) String() string { return s.Kind + " " + s.Name }

// RolloutStrategyList is a list of RolloutStrategies.
//
// +kubebuilder:object:root=true
type RolloutStrategyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutStrategy `json:"items"`
}

// ClusterRolloutStrategyList is a list of ClusterRolloutStrategies.
//
// +kubebuilder:object:root=true
type ClusterRolloutStrategyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterRolloutStrategy `json:"items"`
}
