package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OverridePolicy changes objects of its own namespace per cluster, at render.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=op,categories=atoll
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type OverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec OverrideSpec `json:"spec"`
}

// ClusterOverridePolicy changes objects of any namespace and cluster-scoped
// ones. It applies before every OverridePolicy, or after them when enforced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cop,categories=atoll
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Enforced",type=boolean,JSONPath=`.spec.enforced`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterOverridePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterOverrideSpec `json:"spec"`
}

// OverrideSpec is shared by both policies.
type OverrideSpec struct {
	// ResourceSelectors choose the objects. Empty: all that the policy may touch.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	ResourceSelectors []ResourceSelector `json:"resourceSelectors,omitempty"`
	// OverrideRules, applied in order.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	OverrideRules []RuleWithCluster `json:"overrideRules"`
	// Priority from 0 to 1000: low is applied first, so that high has the last
	// word; equal ones by name. Default 500. Not in Karmada.
	// +optional
	// +kubebuilder:default=500
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`
}

// ClusterOverrideSpec is an OverrideSpec that may be enforced.
type ClusterOverrideSpec struct {
	OverrideSpec `json:",inline"`
	// Enforced rules come after every namespace's own and so cannot be undone by
	// them. Default false. Not in Karmada.
	// +optional
	Enforced bool `json:"enforced,omitempty"`
}

// RuleWithCluster is what changes in which clusters.
type RuleWithCluster struct {
	// TargetCluster in which the rule applies. Without one: in all.
	// +optional
	TargetCluster *ClusterAffinity `json:"targetCluster,omitempty"`
	// Overriders of the rule: at least one.
	Overriders Overriders `json:"overriders"`
}

// Overriders are applied in this order: image, labels, annotations, replicas,
// plaintext.
//
// +kubebuilder:validation:MinProperties=1
type Overriders struct {
	// ImageOverrider changes parts of container images.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	ImageOverrider []ImageOverrider `json:"imageOverrider,omitempty"`
	// LabelsOverrider changes the object's own labels.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	LabelsOverrider []LabelAnnotationOverrider `json:"labelsOverrider,omitempty"`
	// AnnotationsOverrider changes the object's own annotations.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	AnnotationsOverrider []LabelAnnotationOverrider `json:"annotationsOverrider,omitempty"`
	// Replicas sets spec.replicas of Deployments, StatefulSets, ReplicaSets and
	// ReplicationControllers (spec.parallelism of Jobs). Refused on an object
	// whose replicas are Divided. Not in Karmada.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Plaintext are JSON Patch operations.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Plaintext []PlaintextOverrider `json:"plaintext,omitempty"`
}

// ImageOverrider changes one component of images.
type ImageOverrider struct {
	// Predicate narrows the change to one field. Without one: every container and
	// init container of the pod template.
	// +optional
	Predicate *ImagePredicate `json:"predicate,omitempty"`
	// Component of the image that changes.
	// +kubebuilder:validation:Enum=Registry;Repository;Tag
	Component ImageComponent `json:"component"`
	// Operator: add appends the value, remove empties the component, replace sets it.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value for add and replace.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Value string `json:"value,omitempty"`
}

// ImagePredicate names the field that holds the image.
type ImagePredicate struct {
	// Path as a JSON Pointer, such as /spec/template/spec/containers/0/image.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
}

// ImageComponent is a part of an image's name.
type ImageComponent string

// The components of an image's name.
const (
	ImageRegistry   ImageComponent = "Registry"
	ImageRepository ImageComponent = "Repository"
	ImageTag        ImageComponent = "Tag"
)

// OverriderOperator is what an overrider does.
type OverriderOperator string

// The operators.
const (
	OverrideAdd     OverriderOperator = "add"
	OverrideRemove  OverriderOperator = "remove"
	OverrideReplace OverriderOperator = "replace"
)

// LabelAnnotationOverrider changes labels or annotations.
type LabelAnnotationOverrider struct {
	// Operator: add sets keys that are absent, replace sets keys that are there,
	// remove takes keys away.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value holds the keys, and the values for add and replace.
	// +kubebuilder:validation:MinProperties=1
	Value map[string]string `json:"value"`
}

// PlaintextOverrider is one JSON Patch operation.
type PlaintextOverrider struct {
	// Path as a JSON Pointer.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
	// Operator of the patch.
	// +kubebuilder:validation:Enum=add;remove;replace
	Operator OverriderOperator `json:"operator"`
	// Value for add and replace.
	// +optional
	Value *apiextensionsv1.JSON `json:"value,omitempty"`
}

// OverridePolicyList is a list of OverridePolicies.
//
// +kubebuilder:object:root=true
type OverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OverridePolicy `json:"items"`
}

// ClusterOverridePolicyList is a list of ClusterOverridePolicies.
//
// +kubebuilder:object:root=true
type ClusterOverridePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterOverridePolicy `json:"items"`
}
