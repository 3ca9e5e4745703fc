// Package karmada translates each ResourceInterpreterCustomization of Karmada's to a
// ResourceInterpreter of the same meaning. No other part of the hub handles Karmada's kind.
//
// Contract: one Reconciler per hub writes, while its hub leads. script.FromKarmada computes what
// is written, as for a preview. An object is created or updated, fenced by the resource version
// that it was computed from. A ResourceInterpreter that was not made from the customization is
// never touched; an Event at the customization reports it. Nothing is deleted, whatever the
// tables lack: the garbage collector follows the controller reference of a deleted
// customization. Run is called once, when the tables are synced.
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
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/reconcile"
)

// Customizations is the table of ResourceInterpreterCustomizations.
type Customizations interface {
	Get(name string) (*karmada.ResourceInterpreterCustomization, bool)
	List() (names []string)
	Subscribe(fn func(name string))
}

// Interpreters is the table of ResourceInterpreters, among policies.
type Interpreters interface {
	GetInterpreter(name string) (*v1alpha1.ResourceInterpreter, bool)
	Subscribe(fn func(kind, namespace, name string))
}

// Events records Events. It must not block.
type Events interface {
	RecordEvent(about corev1.ObjectReference, reason atoll.Reason, message string)
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

// fieldOwner is the field manager of the ResourceInterpreters.
const fieldOwner = client.FieldOwner(atoll.HubFieldManager)

// errConflict means that the tables lag behind the store; their next event enqueues the object
// again.
var errConflict = errors.New("it changed since it was read")

// Reconciler translates customizations. Make it with New.
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
	r.loop = reconcile.New(reconcile.Options[string]{
		Name: "karmada", Reconcile: r.reconcileCustomization,
		Failed: func(name string, err error) {
			if !errors.Is(err, errConflict) {
				r.Log.Warn("a customization of Karmada's could not be translated, trying again", "customization", name, "err", err)
			}
		},
	})
	cfg.Customizations.Subscribe(r.loop.EnqueueNow)
	cfg.Interpreters.Subscribe(func(kind, _, name string) {
		if kind == script.Kind {
			r.loop.EnqueueNow(name)
		}
	})
	return r
}

// Run translates customizations until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	r.loop.Run(ctx, func() {
		for _, name := range r.Customizations.List() {
			r.loop.EnqueueNow(name)
		}
	})
	return nil
}

// reconcileCustomization writes the ResourceInterpreter of a customization.
func (r *Reconciler) reconcileCustomization(ctx context.Context, name string) (again time.Duration, err error) {
	c, ok := r.Customizations.Get(name)
	now, there := r.Interpreters.GetInterpreter(name)
	if !ok || c.DeletionTimestamp != nil || there && now.DeletionTimestamp != nil {
		return 0, nil
	}
	want, err := script.FromKarmada(c, now)
	if err != nil {
		r.Events.RecordEvent(corev1.ObjectReference{
			APIVersion: karmada.GroupVersion.String(), Kind: karmada.CustomizationKind, Name: name, UID: c.UID,
		}, atoll.ReasonNameTaken, err.Error())
		return 0, nil
	}
	switch {
	case !there:
		err = r.Client.Create(ctx, want, fieldOwner)
	case !apiequality.Semantic.DeepEqual(now, want):
		err = r.Client.Update(ctx, want, fieldOwner)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return 0, errConflict
	case err != nil:
		return 0, fmt.Errorf("write the ResourceInterpreter %s: %w", name, err)
	}
	return 0, nil
}
