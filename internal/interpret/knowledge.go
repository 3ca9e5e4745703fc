package interpret

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// Knowledge answers what is known of objects, one question each. What stands before
// another answers what it knows and asks that one for the rest. No argument is changed or
// kept; an error tells that the question has an answer which could not be found.
type Knowledge interface {
	// Replicas as in the function Replicas.
	Replicas(obj *unstructured.Unstructured) (n int64, ok bool, err error)
	// Pods as in the function Pods.
	Pods(obj *unstructured.Unstructured) (n int64, each []PodSet, err error)
	// Revise as in the function Revise.
	Revise(obj *unstructured.Unstructured, n int64) (*unstructured.Unstructured, error)
	// Retain as in the function Retain.
	Retain(desired, observed *unstructured.Unstructured, left ...[]string) (*unstructured.Unstructured, error)
	// Health as in the function Health.
	Health(obj *unstructured.Unstructured) (h atoll.Health, reason, message string, err error)
	// Finished as in the function Finished.
	Finished(obj *unstructured.Unstructured) (bool, error)
	// Reflect as in the function Reflect.
	Reflect(obj *unstructured.Unstructured) (json.RawMessage, error)
	// Aggregate as in the function Aggregate.
	Aggregate(template *unstructured.Unstructured, divided bool, rows []RowItem, observed int64) (status map[string]any, ok bool, err error)
	// Dependencies as in the function Dependencies.
	Dependencies(obj *unstructured.Unstructured) ([]atoll.ItemKey, error)
}

// Builtin is what this package knows by itself.
type Builtin struct{}

var _ Knowledge = Builtin{}

// Replicas that the object states, if they can be shared out.
func (Builtin) Replicas(obj *unstructured.Unstructured) (n int64, ok bool, err error) {
	n, _, ok = Replicas(obj)
	return n, ok, nil
}

// Pods that the object asks for.
func (Builtin) Pods(obj *unstructured.Unstructured) (n int64, each []PodSet, err error) {
	n, each = Pods(obj)
	return n, each, nil
}

// Revise sets replicas.
func (Builtin) Revise(obj *unstructured.Unstructured, n int64) (*unstructured.Unstructured, error) {
	return Revise(obj, n)
}

// Retain keeps what is the member's.
func (Builtin) Retain(desired, observed *unstructured.Unstructured, left ...[]string) (*unstructured.Unstructured, error) {
	return Retain(desired, observed, left...), nil
}

// Health of the object.
func (Builtin) Health(obj *unstructured.Unstructured) (h atoll.Health, reason, message string, err error) {
	h, reason, message = Health(obj)
	return h, reason, message, nil
}

// Finished tells whether it ran to completion.
func (Builtin) Finished(obj *unstructured.Unstructured) (bool, error) { return Finished(obj), nil }

// Reflect gives what of its status is reported.
func (Builtin) Reflect(obj *unstructured.Unstructured) (json.RawMessage, error) {
	return Reflect(obj), nil
}

// Aggregate makes the template's status of the clusters'.
func (Builtin) Aggregate(template *unstructured.Unstructured, divided bool, rows []RowItem, observed int64) (status map[string]any, ok bool, err error) {
	status, ok = Aggregate(template, divided, rows, observed)
	return status, ok, nil
}

// Dependencies of the object.
func (Builtin) Dependencies(obj *unstructured.Unstructured) ([]atoll.ItemKey, error) {
	return Dependencies(obj), nil
}
