package script

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ResourceInterpreter is knowledge of kinds in Atoll's own words, as the kind of the same
// name in atoll.dev/v1alpha1 will hold it. It is not served yet.
type ResourceInterpreter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ResourceInterpreterSpec `json:"spec"`
}

// ResourceInterpreterSpec says which kinds are meant, and answers questions about them.
// What it does not answer, Atoll does.
type ResourceInterpreterSpec struct {
	Target Target `json:"target"`

	// Replicas of the object: a number, or with what a pod needs. In Lua GetReplicas(obj).
	Replicas *Rule `json:"replicas,omitempty"`
	// Components of the object, where it has several sorts of pods. GetComponents(obj).
	Components *Rule `json:"components,omitempty"`
	// Revise the object to have another number of replicas. ReviseReplica(obj, replicas).
	Revise *Rule `json:"revise,omitempty"`
	// Retain what the member has set. Retain(desiredObj, observedObj).
	Retain *Rule `json:"retain,omitempty"`
	// Health of the object in a member. InterpretHealth(observedObj), or as Argo CD has it.
	Health *Rule `json:"health,omitempty"`
	// Status to report from a member. ReflectStatus(observedObj).
	Status *Rule `json:"status,omitempty"`
	// Aggregate the statuses of many members. AggregateStatus(desiredObj, statusItems).
	Aggregate *Rule `json:"aggregate,omitempty"`
	// Dependencies of the object, which go where it goes. GetDependencies(desiredObj).
	Dependencies *Rule `json:"dependencies,omitempty"`
}

// Target kinds. Either apiVersion or group is given.
type Target struct {
	// APIVersion such as apps/v1.
	APIVersion string `json:"apiVersion,omitempty"`
	// Group in any version; * stands for any characters, ? for one.
	Group string `json:"group,omitempty"`
	// Kinds by name, with * and ? as in group. At least one.
	Kinds []string `json:"kinds"`
}

// Rule is one answer, in one of two languages.
type Rule struct {
	// CEL expression over object, and observed, items or replicas where the question has
	// them.
	CEL string `json:"cel,omitempty"`
	// Lua script that makes the function of the question.
	Lua string `json:"lua,omitempty"`
}

// karmadaCustomization is config.karmada.io/v1alpha1.
type karmadaCustomization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Target struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		} `json:"target"`
		Customizations struct {
			Retention                *luaScript `json:"retention,omitempty"`
			ReplicaResource          *luaScript `json:"replicaResource,omitempty"`
			ReplicaRevision          *luaScript `json:"replicaRevision,omitempty"`
			StatusReflection         *luaScript `json:"statusReflection,omitempty"`
			StatusAggregation        *luaScript `json:"statusAggregation,omitempty"`
			HealthInterpretation     *luaScript `json:"healthInterpretation,omitempty"`
			DependencyInterpretation *luaScript `json:"dependencyInterpretation,omitempty"`
			ComponentResource        *luaScript `json:"componentResource,omitempty"`
		} `json:"customizations"`
	} `json:"spec"`
}

type luaScript struct {
	LuaScript string `json:"luaScript"`
}
