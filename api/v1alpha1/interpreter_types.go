package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceInterpreter adds to, or replaces, the built-in rules of kinds: how many replicas an
// object has and what they need, how healthy it is, which part of its status counts. Its
// answers replace Atoll's own; questions that it does not answer, Atoll answers. It takes
// effect at once, also on placed objects: the Bundles that have objects of these kinds get a
// new Revision.
//
// If several match a kind, each question goes to the first one by name that answers it and
// names the kind. If none names the kind, it goes to the first one that matches by a wildcard.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ri,categories=atoll
// +kubebuilder:printcolumn:name="Kinds",type=string,JSONPath=`.spec.target.kinds`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.target.apiVersion`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.target.group`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceInterpreter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ResourceInterpreterSpec `json:"spec"`
}

// ResourceInterpreterSpec selects kinds and answers questions about them.
//
// +kubebuilder:validation:XValidation:rule="has(self.replicas) || has(self.components) || has(self.revise) || has(self.retain) || has(self.health) || has(self.status) || has(self.aggregate) || has(self.dependencies)",message="answer at least one question"
type ResourceInterpreterSpec struct {
	Target InterpreterTarget `json:"target"`

	// Replicas of the object: a number, or with what a pod needs. In Lua GetReplicas(obj). It
	// is evaluated when the object is read. A placement divides replicas of a kind only where
	// they can also be set: by Revise, or by Atoll itself.
	// +optional
	Replicas *InterpreterRule `json:"replicas,omitempty"`
	// Components of the object, where it has several sorts of pods. It is evaluated where
	// Replicas is not answered. In Lua GetComponents(obj).
	// +optional
	Components *InterpreterRule `json:"components,omitempty"`
	// Revise the object to have another number of replicas. In Lua
	// ReviseReplica(obj, replicas).
	// +optional
	Revise *InterpreterRule `json:"revise,omitempty"`
	// Retain fields that the member has set, before the object is applied again. In Lua
	// Retain(desiredObj, observedObj).
	// +optional
	Retain *InterpreterRule `json:"retain,omitempty"`
	// Health of the object in a member. In Lua InterpretHealth(observedObj), or as Argo CD's
	// health scripts have it.
	// +optional
	Health *InterpreterRule `json:"health,omitempty"`
	// Status to report from a member. In Lua ReflectStatus(observedObj).
	// +optional
	Status *InterpreterRule `json:"status,omitempty"`
	// Aggregate the statuses of many members. In Lua AggregateStatus(desiredObj,
	// statusItems).
	// +optional
	Aggregate *InterpreterRule `json:"aggregate,omitempty"`
	// Dependencies of the object, which are placed with it. In Lua GetDependencies(desiredObj).
	// +optional
	Dependencies *InterpreterRule `json:"dependencies,omitempty"`
}

// InterpreterTarget selects the kinds.
//
// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || !has(self.group)",message="give apiVersion or group, not both"
type InterpreterTarget struct {
	// APIVersion such as apps/v1; it excludes other versions of the group.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// Group in any version; * stands for any characters, ? for one. Omitted, where apiVersion
	// is, too: the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// Kinds by name, with * and ? as in group.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	Kinds []string `json:"kinds"`
}

// InterpreterRule is one answer, in one of two languages.
//
// +kubebuilder:validation:XValidation:rule="has(self.cel) != has(self.lua)",message="give cel or lua, and one of them only"
type InterpreterRule struct {
	// CEL expression over object, and observed, items or replicas where the question has
	// them.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	CEL string `json:"cel,omitempty"`
	// Lua script that makes the function of the question.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	Lua string `json:"lua,omitempty"`
}

// ResourceInterpreterList is a list of ResourceInterpreters.
//
// +kubebuilder:object:root=true
type ResourceInterpreterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceInterpreter `json:"items"`
}
