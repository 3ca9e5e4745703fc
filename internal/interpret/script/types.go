package script

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
