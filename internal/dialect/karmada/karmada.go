// Package karmada keeps in effect what users bring unchanged who taught Karmada their kinds:
// for each ResourceInterpreterCustomization it keeps the ResourceInterpreter that says the
// same, and nothing else of the hub knows of it.
//
// Contract: one Reconciler per hub writes, while its hub leads. What is to be written is
// said by script.FromKarmada, as for a preview; an object is created where there is none and
// updated where it differs, fenced by the resource version that it was computed from, so that
// a ResourceInterpreter that is not made of the customization is never touched: an Event at
// the customization says that. Nothing is ever deleted here, whatever the tables lack: the
// garbage collector follows the controller reference when a user deletes the customization.
// Run is called once, when the tables are synced.
package karmada

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/reconcile"
)

// ReasonNameTaken is the reason of the Event at a customization whose name another
// ResourceInterpreter has.
const ReasonNameTaken = "NameTaken"

// Customizations is the table of ResourceInterpreterCustomizations.
type Customizations interface {
	Get(name string) (*karmada.ResourceInterpreterCustomization, bool)
	List() (names []string)
	Subscribe(fn func(name string))
}

// Interpreters is the table of ResourceInterpreters, among policies.
type Interpreters interface {
	Interpreter(name string) (*v1alpha1.ResourceInterpreter, bool)
	Subscribe(fn func(kind, namespace, name string))
}

// Events is told what people should know. It must not block.
type Events interface {
	Tell(about corev1.ObjectReference, reason, message string)
}

// Config of a Reconciler. All but Log must be set.
type Config struct {
	Customizations Customizations
	Interpreters   Interpreters
	Client         client.Client
	Events         Events
	// Log; nil: slog's default.
	Log *slog.Logger
}

// owner is the field manager of what is made.
const owner = client.FieldOwner("atoll-hub")

// errMoved: the tables are behind what is stored; they will tell.
var errMoved = errors.New("it changed since it was read")

// Reconciler of customizations. Make it with New.
type Reconciler struct {
	Config
	loop *reconcile.Loop[string]
}

// New makes a Reconciler and subscribes it to the tables.
func New(cfg Config) *Reconciler {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Reconciler{Config: cfg}
	r.loop = reconcile.New("karmada", r.keep, func(name string, err error) {
		if !errors.Is(err, errMoved) {
			r.Log.Warn("a customization of Karmada's could not be put into effect, trying again", "customization", name, "err", err)
		}
	})
	cfg.Customizations.Subscribe(r.loop.Look)
	cfg.Interpreters.Subscribe(func(kind, _, name string) {
		if kind == script.Kind {
			r.loop.Look(name)
		}
	})
	return r
}

// Run until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	r.loop.Run(ctx, func() {
		for _, name := range r.Customizations.List() {
			r.loop.Look(name)
		}
	})
	return nil
}

// keep the interpreter of a customization as that says.
func (r *Reconciler) keep(ctx context.Context, name string) (again time.Duration, err error) {
	c, ok := r.Customizations.Get(name)
	now, there := r.Interpreters.Interpreter(name)
	if !ok || c.DeletionTimestamp != nil || there && now.DeletionTimestamp != nil {
		return 0, nil
	}
	want, err := script.FromKarmada(c, now)
	if err != nil {
		r.Events.Tell(corev1.ObjectReference{
			APIVersion: karmada.GroupVersion.String(), Kind: karmada.CustomizationKind, Name: name, UID: c.UID,
		}, ReasonNameTaken, err.Error())
		return 0, nil
	}
	switch {
	case !there:
		err = r.Client.Create(ctx, want, owner)
	case !apiequality.Semantic.DeepEqual(now, want):
		err = r.Client.Update(ctx, want, owner)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return 0, errMoved
	case err != nil:
		return 0, fmt.Errorf("write the ResourceInterpreter %s: %w", name, err)
	}
	return 0, nil
}
