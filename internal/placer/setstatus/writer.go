// Package setstatus writes the status of ClusterSets and ClusterSetBindings.
//
// Contract: one StatusWriter for each hub writes, while its hub leads. The status of a binding follows from the
// binding and the existence of its ClusterSet (bindingStatus, a pure function). The status of a set follows from
// the set and the number of its clusters (setStatus, a pure function). An object is written when its status
// changes. A binding is written once when it is created, and once when its ClusterSet is created or deleted. A
// set is written when it is edited, and at most once in countInterval for changes of the number. Run is called
// once, when the tables are synced.
package setstatus

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/reconcile"
)

// Bindings is the table of ClusterSetBindings.
type Bindings interface {
	GetBinding(key types.NamespacedName) (*v1alpha1.ClusterSetBinding, bool)
	ListBindings() []types.NamespacedName
	SubscribeBindings(fn func(key types.NamespacedName))
}

// Sets is the table of ClusterSets.
type Sets interface {
	Get(set string) (*v1alpha1.ClusterSet, bool)
	CountClusters(set string) int
	ListSets() []string
	SubscribeSets(fn func(set string))
}

// fieldOwner is the field manager of the status.
const fieldOwner = client.FieldOwner("atoll-hub")

// StatusWriter writes the status of ClusterSets and ClusterSetBindings. Make it with New.
type StatusWriter struct {
	bindings    Bindings
	sets        Sets
	client      client.Client
	bindingLoop *reconcile.Loop[types.NamespacedName]
	setLoop     *reconcile.Loop[string]
	// lastWrites of sets, which only the one worker of setLoop uses.
	lastWrites map[string]time.Time
}

// New makes a StatusWriter and subscribes it to the tables.
func New(bindings Bindings, sets Sets, c client.Client, log *slog.Logger) *StatusWriter {
	w := &StatusWriter{bindings: bindings, sets: sets, client: c, lastWrites: map[string]time.Time{}}
	w.bindingLoop = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "setbindings",
		Reconcile: func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			return 0, w.writeBindingStatus(ctx, key)
		},
		Failed: func(key types.NamespacedName, err error) {
			logFailure(log, "could not write the status of a ClusterSetBinding; trying again", err, "namespace", key.Namespace, "name", key.Name)
		},
	})
	w.setLoop = reconcile.New(reconcile.Options[string]{
		Name: "clustersets", Reconcile: w.writeSetStatus,
		Failed: func(set string, err error) {
			logFailure(log, "could not write the status of a ClusterSet; trying again", err, "name", set)
		},
	})
	bindings.SubscribeBindings(w.bindingLoop.EnqueueNow)
	sets.SubscribeSets(w.setLoop.EnqueueNow)
	return w
}

// logFailure logs an error. A conflict is not logged, because the newer object is written next.
func logFailure(log *slog.Logger, message string, err error, object ...any) {
	if !apierrors.IsConflict(err) {
		log.Warn(message, append(object, "err", err)...)
	}
}

// Run writes until ctx ends.
func (w *StatusWriter) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() {
		w.bindingLoop.Run(ctx, func() {
			for _, key := range w.bindings.ListBindings() {
				w.bindingLoop.EnqueueRecheck(key, 0)
			}
		})
	})
	loops.Go(func() {
		w.setLoop.Run(ctx, func() {
			for _, set := range w.sets.ListSets() {
				w.setLoop.EnqueueRecheck(set, 0)
			}
		})
	})
	loops.Wait()
	return nil
}

// patchStatus writes the status of an object, if the object is still the old one.
func (w *StatusWriter) patchStatus(ctx context.Context, kind string, old, now client.Object) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if err := w.client.Status().Patch(ctx, now, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %s %s: %w", kind, client.ObjectKeyFromObject(old), err)
	}
	return nil
}
