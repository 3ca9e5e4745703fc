// Package v1alpha1 holds the kinds of Karmada's group config.karmada.io that a hub honours,
// under Karmada's names. The hub translates each object to one of Atoll's own; no other code
// reads it.
//
// +kubebuilder:object:generate=true
// +groupName=config.karmada.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of Karmada's customizations.
var GroupVersion = schema.GroupVersion{Group: "config.karmada.io", Version: "v1alpha1"}

// The kind of a ResourceInterpreterCustomization, and the resource that serves it.
const (
	CustomizationKind     = "ResourceInterpreterCustomization"
	CustomizationResource = "resourceinterpretercustomizations"
)

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ResourceInterpreterCustomization{}, &ResourceInterpreterCustomizationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ResourceInterpreterCustomization is Karmada's interpreter of a kind. A hub translates it to a
// ResourceInterpreter of the same name, updates that on each change, and deletes it with the
// customization.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ric,categories=karmada-io
// +kubebuilder:printcolumn:name="Target-API-Version",type=string,JSONPath=`.spec.target.apiVersion`
// +kubebuilder:printcolumn:name="Target-Kind",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceInterpreterCustomization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ResourceInterpreterCustomizationSpec `json:"spec"`
}

// ResourceInterpreterCustomizationSpec names a kind and answers questions about it.
type ResourceInterpreterCustomizationSpec struct {
	Target         CustomizationTarget `json:"target"`
	Customizations CustomizationRules  `json:"customizations"`
}

// CustomizationTarget is the kind, in one version.
type CustomizationTarget struct {
	// APIVersion such as apps/v1; it excludes other versions of the group.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind by its name; there are no wildcards.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$`
	Kind string `json:"kind"`
}

// CustomizationRules are the answers; Atoll answers the questions that are left out.
type CustomizationRules struct {
	// Retention of fields that the member has set, before the object is applied again.
	// +optional
	Retention *LocalValueRetention `json:"retention,omitempty"`
	// ReplicaResource is how many replicas the object states and what each needs.
	// +optional
	ReplicaResource *ReplicaResourceRequirement `json:"replicaResource,omitempty"`
	// ReplicaRevision gives the object another number of replicas.
	// +optional
	ReplicaRevision *ReplicaRevision `json:"replicaRevision,omitempty"`
	// StatusReflection is the status to report from a member.
	// +optional
	StatusReflection *StatusReflection `json:"statusReflection,omitempty"`
	// StatusAggregation joins the statuses of many members.
	// +optional
	StatusAggregation *StatusAggregation `json:"statusAggregation,omitempty"`
	// HealthInterpretation is the health of the object in a member.
	// +optional
	HealthInterpretation *HealthInterpretation `json:"healthInterpretation,omitempty"`
	// DependencyInterpretation names the objects that are placed with this one.
	// +optional
	DependencyInterpretation *DependencyInterpretation `json:"dependencyInterpretation,omitempty"`
	// ComponentResource is the components of the object, where it has several sorts of pods. It
	// is evaluated where replicaResource is not answered.
	// +optional
	ComponentResource *ComponentResourceRequirement `json:"componentResource,omitempty"`
}

// LocalValueRetention is the answer to Retain.
type LocalValueRetention struct {
	// LuaScript that makes the function Retain(desiredObj, observedObj).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// ReplicaResourceRequirement is the answer to GetReplicas.
type ReplicaResourceRequirement struct {
	// LuaScript that makes the function GetReplicas(obj).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// ReplicaRevision is the answer to ReviseReplica.
type ReplicaRevision struct {
	// LuaScript that makes the function ReviseReplica(obj, desiredReplica).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// StatusReflection is the answer to ReflectStatus.
type StatusReflection struct {
	// LuaScript that makes the function ReflectStatus(observedObj).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// StatusAggregation is the answer to AggregateStatus.
type StatusAggregation struct {
	// LuaScript that makes the function AggregateStatus(desiredObj, statusItems).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// HealthInterpretation is the answer to InterpretHealth.
type HealthInterpretation struct {
	// LuaScript that makes the function InterpretHealth(observedObj).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// DependencyInterpretation is the answer to GetDependencies.
type DependencyInterpretation struct {
	// LuaScript that makes the function GetDependencies(desiredObj).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// ComponentResourceRequirement is the answer to GetComponents.
type ComponentResourceRequirement struct {
	// LuaScript that makes the function GetComponents(desiredObj).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	LuaScript string `json:"luaScript"`
}

// ResourceInterpreterCustomizationList is a list of ResourceInterpreterCustomizations.
//
// +kubebuilder:object:root=true
type ResourceInterpreterCustomizationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceInterpreterCustomization `json:"items"`
}
