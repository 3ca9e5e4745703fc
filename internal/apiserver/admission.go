package apiserver

import (
	"context"
	"io"

	"k8s.io/apiserver/pkg/admission"
)

// AdmissionPlugin is an admission plugin of the hub that runs in this process.
// It sees every write, of custom resources too, after upstream's plugins have
// filled theirs in: Admit before Validate, in the order of Options.Admission.
// Objects are upstream's internal types for built-in kinds and unstructured for
// custom resources; a plugin changes them in place. It is called concurrently,
// from before Start returns; what it needs from the hub it takes from a Late.
type AdmissionPlugin struct {
	// Name is unique among all plugins and shows in errors and metrics.
	Name string
	// Handler implements admission.MutationInterface,
	// admission.ValidationInterface, or both.
	Handler admission.Interface
}

func (p AdmissionPlugin) register(plugins *admission.Plugins) {
	plugins.Register(p.Name, func(io.Reader) (admission.Interface, error) { return p.Handler, nil })
}

// Late holds a value that exists only once the hub has come up, for admission
// plugins and handlers that are made before. The zero value is not usable; all
// methods may be called concurrently.
type Late[T any] struct {
	ready chan struct{}
	value T
}

// NewLate returns a Late that has no value yet.
func NewLate[T any]() *Late[T] { return &Late[T]{ready: make(chan struct{})} }

// Set sets the value, once; a second Set panics.
func (l *Late[T]) Set(value T) {
	l.value = value
	close(l.ready)
}

// Get returns the value, or false while there is none.
func (l *Late[T]) Get() (value T, ok bool) {
	select {
	case <-l.ready:
		return l.value, true
	default:
		return value, false
	}
}

// Wait returns the value once it is set, or ctx's error.
func (l *Late[T]) Wait(ctx context.Context) (value T, err error) {
	select {
	case <-l.ready:
		return l.value, nil
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
}
