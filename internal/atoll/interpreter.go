package atoll

import (
	"cmp"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Interpreter is what a ResourceInterpreter answers of objects after they became items.
type Interpreter struct {
	// Name of the ResourceInterpreter.
	Name string `json:"name"`
	// Hash of Spec.
	Hash string `json:"hash"`
	// Spec is JSON of a v1alpha1.ResourceInterpreterSpec that has only the operations that are still
	// called.
	Spec json.RawMessage `json:"spec"`
	// ReportsWholeStatus, in a manifest: statuses are reported as they are, since the hub joins them by
	// a script.
	ReportsWholeStatus bool `json:"whole,omitempty"`
}

// InterpreterAnswers is what ResourceInterpreters answered of a template when it became an
// item. Questions without an answer are absent; Atoll answers them itself.
type InterpreterAnswers struct {
	// AnsweredBy is a hash of what answered. It is no part of the content's identity.
	AnsweredBy string `json:"by,omitempty"`
	// Replicas of the object.
	Replicas *int64 `json:"replicas,omitempty"`
	// Pods of each replica, or of the whole object where Replicas is absent; nil where neither
	// replicas nor components were answered, which differs from none.
	Pods []PodSet `json:"pods"`
	// Dependencies of the object by name, and Selections by labels. With DependenciesComplete
	// these are all. Otherwise they come from an interpreter that is deleted or no longer
	// answers, and are added to those that Atoll finds.
	Dependencies         []ItemKey   `json:"dependencies,omitempty"`
	Selections           []Selection `json:"selections,omitempty"`
	DependenciesComplete bool        `json:"depends,omitempty"`
	// KeptDependencies are dependencies that came along and that another answer does not mean any more,
	// although no user has edited the template since.
	KeptDependencies []ItemKey `json:"kept,omitempty"`
}

// Selection is all objects of a kind, in a namespace or among what is in none, that have
// labels.
type Selection struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// Labels in the form that labels.Parse reads and the String of a labels.Selector
	// writes; empty means all.
	Labels string `json:"labels,omitempty"`
}

// SelectsKey reports whether the key is of the kind, where the selection looks for objects.
func (s Selection) SelectsKey(key ItemKey) bool {
	return s.Kind == key.Kind && s.Group == key.Group && s.Namespace == key.Namespace
}

// Compare orders by kind, namespace and labels.
func (s Selection) Compare(o Selection) int {
	return cmp.Or(strings.Compare(s.Group, o.Group), strings.Compare(s.Kind, o.Kind), strings.Compare(s.Namespace, o.Namespace), strings.Compare(s.Labels, o.Labels))
}

// PodSet is a number of pods that are equal, as far as the object states.
type PodSet struct {
	// Name of the component; empty where an object has but one kind of pods.
	Name  string `json:"name,omitempty"`
	Count int64  `json:"count"`
	// Requests of each pod, by resource: CPU in thousandths, everything else in units.
	Requests map[corev1.ResourceName]int64 `json:"requests,omitempty"`
	// Tolerations of each pod.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}
