package binder

import (
	"maps"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// dropTakenDriftOrders returns the annotations of a Bundle with the orders alone to correct drift that the placer has not
// taken. rows returns the Bundle's. It is for a Bundle that is written anyway: no write is made for it. Without such orders, and
// with a malformed value, it returns the argument.
func dropTakenDriftOrders(annotations map[string]string, rows func() []state.Row) map[string]string {
	value, ordered := annotations[atoll.AnnotationCorrectDrift]
	if !ordered {
		return annotations
	}
	orders, err := atoll.ParseDriftOrders(value)
	if err != nil {
		return annotations
	}
	left := atoll.FormatDriftOrders(state.UntakenDriftOrders(orders, rows()))
	if left == value {
		return annotations
	}
	annotations = maps.Clone(annotations)
	if annotations[atoll.AnnotationCorrectDrift] = left; left == "" {
		delete(annotations, atoll.AnnotationCorrectDrift)
	}
	return annotations
}
