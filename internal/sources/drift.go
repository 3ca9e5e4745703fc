package sources

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/sources/changes"
)

const (
	// driftDebounce joins changes of many objects of a Source. It is longer than a write takes to reach the watches, so that what the
	// Source applies by itself is not taken for drift.
	driftDebounce, maxDriftDebounce = time.Second, 5 * time.Second
	// correctionPause is the least time between two corrections of a Source, so that a client that writes back costs little.
	correctionPause = time.Minute
)

// driftWatch follows the objects that Sources applied. It is safe for concurrent use.
type driftWatch struct {
	loop    *reconcile.Loop[types.NamespacedName]
	applied *referenceIndex

	mu sync.Mutex
	// found are objects that changed, which the next check compares.
	found map[types.NamespacedName]map[changes.Key]bool
	// corrected is when a Source corrected an object last.
	corrected map[types.NamespacedName]time.Time
}

func (r *Reconciler) newDriftWatch() *driftWatch {
	w := &driftWatch{applied: newReferenceIndex(), found: map[types.NamespacedName]map[changes.Key]bool{}, corrected: map[types.NamespacedName]time.Time{}}
	w.loop = reconcile.New(reconcile.Options[types.NamespacedName]{
		Name: "drift-of-sources", Debounce: driftDebounce, MaxDebounce: maxDriftDebounce, Backoff: newBackoff(),
		Reconcile: r.findDrift,
		Failed:    r.logFailure("objects of a Source could not be read to find drift, trying again"),
	})
	return w
}

// dropSource removes what is known of a Source.
func (w *driftWatch) dropSource(source types.NamespacedName) {
	w.applied.replaceReferences(source, func() []atoll.ItemKey { return nil })
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.found, source)
	delete(w.corrected, source)
}

// addFound adds objects that changed.
func (w *driftWatch) addFound(source types.NamespacedName, keys []changes.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		addToSet(w.found, source, key)
	}
}

// listFoundOf returns the objects that changed, by Source.
func (w *driftWatch) listFoundOf(sources []*v1alpha1.Source) map[string]map[changes.Key]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]map[changes.Key]bool{}
	for _, s := range sources {
		if found := w.found[client.ObjectKeyFromObject(s)]; len(found) > 0 {
			out[s.Name] = maps.Clone(found)
		}
	}
	return out
}

// dropFound removes objects that were compared.
func (w *driftWatch) dropFound(source types.NamespacedName, compared map[changes.Key]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range compared {
		removeFromSet(w.found, source, key)
	}
}

// noteCorrection notes that a Source corrected an object now.
func (w *driftWatch) noteCorrection(source types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corrected[source] = time.Now()
}

// pauseLeft returns how long a Source must wait before its next correction.
func (w *driftWatch) pauseLeft(source types.NamespacedName) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, time.Until(w.corrected[source].Add(correctionPause)))
}

// finishComparison follows the objects of a Source after a check that compared those that had changed. It finds changes that others made
// during the check.
func (r *Reconciler) finishComparison(s *v1alpha1.Source, compared map[changes.Key]bool) {
	key := client.ObjectKeyFromObject(s)
	r.drift.dropFound(key, compared)
	r.indexApplied(key)
	r.drift.loop.EnqueueDebounced(key)
}

// indexApplied notes the objects that a Source applied, by its present status.
func (r *Reconciler) indexApplied(source types.NamespacedName) {
	r.drift.applied.replaceReferences(source, func() (out []atoll.ItemKey) {
		s, ok := r.Sources.Get(source)
		if !ok || s.Spec.DriftMode() == v1alpha1.SourceDriftIgnore {
			return nil
		}
		for _, o := range s.Status.Inventory {
			if o.Fields != "" && o.Kept == "" {
				out = append(out, changes.KeyOf(o).ItemKey())
			}
		}
		return out
	})
}

// followApplied follows the objects of each Source, and looks for what changed while no hub led.
func (r *Reconciler) followApplied() {
	for _, s := range r.Sources.InNamespace("") {
		key := client.ObjectKeyFromObject(s)
		r.indexApplied(key)
		r.drift.loop.EnqueueRecheck(key, driftDebounce)
	}
}

// objectChanged looks soon for drift of the Sources that applied an object, unless its fields are still theirs. Most changes are of its
// status.
func (r *Reconciler) objectChanged(key atoll.ItemKey) {
	for _, source := range r.drift.applied.sourcesOf(key) {
		if s, ok := r.Sources.Get(source); ok && r.mayHaveDrifted(s, key) {
			r.drift.loop.EnqueueDebounced(source)
		}
	}
}

// mayHaveDrifted reports whether an object that a Source applied has changed, as the watches have it.
func (r *Reconciler) mayHaveDrifted(s *v1alpha1.Source, key atoll.ItemKey) bool {
	i := slices.IndexFunc(s.Status.Inventory, func(o v1alpha1.SourceObject) bool {
		return o.Name == key.Name && o.Kind == key.Kind && changes.KeyOf(o).ItemKey() == key
	})
	if i < 0 {
		return false
	}
	o := s.Status.Inventory[i]
	object, known := r.findObject(o)
	return known && changes.HasDriftChanged(o, object, changes.FieldManagerOf(s))
}

// findDrift lets the next check of a Repository compare the objects of a Source that changed since the Source applied them. It
// reads them from the API, because the watches may lag behind what the Source applied.
func (r *Reconciler) findDrift(ctx context.Context, source types.NamespacedName) (time.Duration, error) {
	s, ok := r.Sources.Get(source)
	if !ok || !canFindDrift(s) {
		return 0, nil
	}
	repo := types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.Repository}
	if r.isChecking(repo) {
		return driftDebounce, nil // what it applies is in the status at its end
	}
	found, err := r.listChanged(ctx, s)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if wait := r.drift.pauseLeft(source); wait > 0 {
		return wait, nil
	}
	r.drift.addFound(source, found)
	r.enqueueChange(repo)
	return 0, nil
}

// canFindDrift reports whether the objects of a Source are compared now. A check that applies content looks for drift afterwards.
func canFindDrift(s *v1alpha1.Source) bool {
	return s.DeletionTimestamp == nil && !s.Spec.Suspend && s.Spec.DriftMode() != v1alpha1.SourceDriftIgnore && isSettled(s) && !isContentBad(s)
}

// listChanged returns the objects of a Source that changed in a way that was not considered yet.
func (r *Reconciler) listChanged(ctx context.Context, s *v1alpha1.Source) (out []changes.Key, err error) {
	manager := changes.FieldManagerOf(s)
	for _, o := range s.Status.Inventory {
		object, known := r.findObject(o)
		if !known || !changes.HasDriftChanged(o, object, manager) {
			continue
		}
		if object, known, err = r.readObject(ctx, s, o); err != nil {
			return nil, err
		}
		if known && changes.HasDriftChanged(o, object, manager) {
			out = append(out, changes.KeyOf(o))
		}
	}
	return out, nil
}

// findObject returns an object of an inventory as the watches have it; nil when it does not exist. It is not known while the watches do not
// have its kind.
func (r *Reconciler) findObject(o v1alpha1.SourceObject) (object *unstructured.Unstructured, known bool) {
	key := changes.KeyOf(o).ItemKey()
	if object, ok := r.Objects.Get(key); ok {
		return object, true
	}
	return nil, r.Objects.IsSynced(key.Group, key.Kind)
}

// readObject reads an object of an inventory from the API, by the rights of the Source; nil when it does not exist. It is not known
// without the right to read it, and while the hub does not serve its kind.
func (r *Reconciler) readObject(ctx context.Context, s *v1alpha1.Source, o v1alpha1.SourceObject) (object *unstructured.Unstructured, known bool, err error) {
	m, err := r.Client.RESTMapper().RESTMapping(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind())
	if meta.IsNoMatchError(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("find the kind %s of a Source: %w", o.Kind, err)
	}
	object, err = r.objectsOf(m.Resource, o.Namespace).Get(r.withAccountOf(ctx, s), o.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read %s %s of a Source: %w", o.Kind, o.Name, err)
	}
	return object, true, nil
}

// setInSync sets the condition of the objects on the hub, as the last comparison found them.
func setInSync(now *v1alpha1.Source) {
	switch {
	case now.Spec.DriftMode() == v1alpha1.SourceDriftIgnore:
		setSourceCondition(now, v1alpha1.SourceInSync, metav1.ConditionUnknown, atoll.ReasonDriftIgnored, "spec.drift.mode is Ignore, so that objects on the hub are not compared")
	case now.Status.Objects.Drifted > 0:
		setSourceCondition(now, v1alpha1.SourceInSync, metav1.ConditionFalse, atoll.ReasonChangedOnHub, describeDrift(now.Status.Drift, int(now.Status.Objects.Drifted)))
	default:
		setSourceCondition(now, v1alpha1.SourceInSync, metav1.ConditionTrue, atoll.ReasonInSync, "the objects on the hub are as the Source applied them")
	}
}
