package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceInterpreter is knowledge of kinds that Atoll does not have, or has otherwise: how
// many replicas an object has and what they need, how healthy it is, what of its status
// counts. What it answers stands in place of what Atoll knows; what it does not answer,
// Atoll does. It takes effect at once, also on what already runs: the Bundles that have
// objects of these kinds get a new Revision.
//
// Where several mean a kind, each question goes to the first by name of those that answer
// it and name the kind, and where none does, to the first of those that mean it by a
// wildcard.
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

// ResourceInterpreterSpec says which kinds are meant, and answers questions about them.
//
// +kubebuilder:validation:XValidation:rule="has(self.replicas) || has(self.components) || has(self.revise) || has(self.retain) || has(self.health) || has(self.status) || has(self.aggregate) || has(self.dependencies)",message="answer at least one question"
type ResourceInterpreterSpec struct {
	Target InterpreterTarget `json:"target"`

	// Replicas of the object: a number, or with what a pod needs. In Lua GetReplicas(obj).
	// Asked when the object is read; a placement divides replicas of a kind only where they
	// can be set, too: by Revise, or because Atoll knows where.
	// +optional
	Replicas *InterpreterRule `json:"replicas,omitempty"`
	// Components of the object, where it has several sorts of pods; asked where nobody
	// answers Replicas. In Lua GetComponents(obj).
	// +optional
	Components *InterpreterRule `json:"components,omitempty"`
	// Revise the object to have another number of replicas. In Lua
	// ReviseReplica(obj, replicas).
	// +optional
	Revise *InterpreterRule `json:"revise,omitempty"`
	// Retain what the member has set, before the object is applied there anew. In Lua
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
	// Dependencies of the object, which go where it goes. In Lua
	// GetDependencies(desiredObj).
	// +optional
	Dependencies *InterpreterRule `json:"dependencies,omitempty"`
}

// InterpreterTarget is the kinds that are meant.
//
// +kubebuilder:validation:XValidation:rule="!has(self.apiVersion) || !has(self.group)",message="give apiVersion or group, not both"
type InterpreterTarget struct {
	// APIVersion such as apps/v1; other versions of the group are not meant.
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
