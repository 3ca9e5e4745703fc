package sources

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/state"
)

// setSourceCondition sets a condition of a Source.
func setSourceCondition(s *v1alpha1.Source, kind string, status metav1.ConditionStatus, reason atoll.Reason, message string) {
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: string(reason), Message: phrase.TruncateText(phrase.EscapeLine(message), 1024), ObservedGeneration: s.Generation,
	})
}

// lockSource returns the lock of writes of a Source's status.
func (r *Reconciler) lockSource(key types.NamespacedName) *sync.Mutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing[key] == nil {
		r.writing[key] = &sync.Mutex{}
	}
	return r.writing[key]
}

// updateSource changes the status of a Source, completes it by the state of its Bundles, and writes it when it
// has changed. A Source that was made again under the name is another one, and is not changed.
func (r *Reconciler) updateSource(ctx context.Context, s *v1alpha1.Source, change func(now *v1alpha1.Source)) error {
	key := client.ObjectKeyFromObject(s)
	lock := r.lockSource(key)
	lock.Lock()
	defer lock.Unlock()
	old, ok := r.Sources.Get(key)
	for range 3 {
		if !ok || old.UID != s.UID || old.DeletionTimestamp != nil {
			return nil
		}
		now := old.DeepCopy()
		change(now)
		atoll.AddUnknownConditions("Source", &now.Status.Conditions, now.Generation, metav1.Now())
		r.setReadiness(now)
		if apiequality.Semantic.DeepEqual(now.Status, old.Status) {
			return nil
		}
		err := r.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), client.FieldOwner(atoll.HubFieldManager))
		switch {
		case err == nil:
			r.Sources.Put(now)
			r.reports.SourceChanged(key)
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("write the status of a Source: %w", err)
		}
		// The table lags behind the store: the spec that this status is of may have changed.
		var fresh v1alpha1.Source
		if err := r.Client.Get(ctx, key, &fresh); err != nil {
			return client.IgnoreNotFound(err)
		}
		old = &fresh
	}
	return fmt.Errorf("write the status of the Source %s: it changes all the time", key)
}

// readiness is the state of the Bundles that hold the objects of a Source.
type readiness struct {
	desired, ready int32
	// unplaced objects are in no Bundle; placeable are all objects that can be in one.
	unplaced, placeable int
	waitsFor            string
}

// readReadiness sums up the Bundles that hold the objects of a Source, and subscribes to them.
func (r *Reconciler) readReadiness(s *v1alpha1.Source) readiness {
	var sum readiness
	bundles, unplaced := map[policymatch.BundleID]bool{}, map[string]bool{}
	for _, o := range s.Status.Inventory {
		key := changes.KeyOf(o).ItemKey()
		gk := schema.GroupKind{Group: key.Group, Kind: key.Kind}
		if o.Kept != "" || atoll.IsHubOwnedKind(gk) || gk == (schema.GroupKind{Kind: "Namespace"}) {
			continue
		}
		sum.placeable++
		holding := r.placed.BundlesHolding(key)
		if len(holding) == 0 {
			sum.unplaced++
			unplaced[key.Namespace] = true
		}
		for _, id := range holding {
			bundles[id] = true
		}
	}
	r.bundles.replaceSubscriptions(client.ObjectKeyFromObject(s), bundles, unplaced)
	for _, id := range slices.SortedFunc(maps.Keys(bundles), policymatch.BundleID.Compare) {
		b, ok := r.Bundles.GetByName(id.Namespace, id.Name)
		if !ok {
			continue
		}
		sum.desired += b.Status.Clusters.Desired
		sum.ready += b.Status.Clusters.Ready
		if sum.waitsFor == "" {
			sum.waitsFor = waitOfBundle(b)
		}
	}
	return sum
}

// waitOfBundle returns what a Bundle waits for; empty when it is complete.
func waitOfBundle(b state.Bundle) string {
	switch {
	case b.Status.WaitsFor != "":
		return b.Status.WaitsFor
	case b.Status.Revision == "":
		return "the first revision of Bundle " + b.Ref.Name
	case b.Status.Clusters.Ready < b.Status.Clusters.Desired-b.Status.Clusters.Away:
		return "the clusters of Bundle " + b.Ref.Name
	}
	return ""
}

// setReadiness sets the counts of clusters, the condition Ready, and what the Source waits for.
func (r *Reconciler) setReadiness(s *v1alpha1.Source) {
	sum := r.readReadiness(s)
	s.Status.Clusters = v1alpha1.SourceClusters{Desired: sum.desired, Ready: sum.ready, Summary: fmt.Sprintf("%d/%d", sum.ready, sum.desired)}
	s.Status.WaitsFor = unmetReason(s)
	states := s.Spec.Placement != nil || s.Spec.PlacementRef != nil
	switch {
	case s.Status.Digest == "":
		setSourceCondition(s, v1alpha1.SourceReady, metav1.ConditionFalse, atoll.ReasonNotRendered, "nothing is applied yet")
		return
	case sum.placeable > 0 && sum.unplaced == sum.placeable && !states:
		setSourceCondition(s, v1alpha1.SourceReady, metav1.ConditionFalse, atoll.ReasonNowhere, "no policy or annotation places the objects, and the Source states no placement")
	case sum.unplaced > 0 && states:
		setSourceCondition(s, v1alpha1.SourceReady, metav1.ConditionFalse, atoll.ReasonProgressing, phrase.CountNoun(sum.unplaced, "object")+" in no Bundle yet")
	case sum.waitsFor != "":
		setSourceCondition(s, v1alpha1.SourceReady, metav1.ConditionFalse, atoll.ReasonProgressing, "waits for "+sum.waitsFor)
	default:
		setSourceCondition(s, v1alpha1.SourceReady, metav1.ConditionTrue, atoll.ReasonReady, fmt.Sprintf("%d of %d clusters are ready", sum.ready, sum.desired))
		return
	}
	s.Status.WaitsFor = cmp.Or(s.Status.WaitsFor, sum.waitsFor, meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceReady).Message)
}

// unmetReason returns why the content is not applied, or no longer is; empty when it is.
func unmetReason(s *v1alpha1.Source) string {
	for _, kind := range []string{v1alpha1.SourceRendered, v1alpha1.SourceApplied} {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c.Status != metav1.ConditionTrue {
			return c.Reason
		}
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceInSync); c.Status == metav1.ConditionFalse {
		return c.Reason
	}
	return ""
}

// bundleSubscriptions is which Sources wait for changes of which Bundles.
type bundleSubscriptions struct {
	mu       sync.Mutex
	byBundle map[policymatch.BundleID]map[types.NamespacedName]bool
	bySource map[types.NamespacedName]subscription
	// incomplete are Sources with objects in no Bundle, by the namespace of these objects.
	incomplete map[string]map[types.NamespacedName]bool
	// ids are the names of Bundles that a Source subscribed to, by their UIDs.
	ids map[string]policymatch.BundleID
}

// subscription is what one Source waits for.
type subscription struct {
	bundles    map[policymatch.BundleID]bool
	namespaces map[string]bool
}

func newBundleSubscriptions() *bundleSubscriptions {
	return &bundleSubscriptions{
		byBundle: map[policymatch.BundleID]map[types.NamespacedName]bool{}, bySource: map[types.NamespacedName]subscription{},
		incomplete: map[string]map[types.NamespacedName]bool{}, ids: map[string]policymatch.BundleID{},
	}
}

// replaceSubscriptions replaces the subscriptions of a Source: to Bundles, and to all of namespaces.
func (b *bundleSubscriptions) replaceSubscriptions(source types.NamespacedName, bundles map[policymatch.BundleID]bool, namespaces map[string]bool) {
	b.dropSource(source)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(bundles)+len(namespaces) == 0 {
		return
	}
	b.bySource[source] = subscription{bundles, namespaces}
	for id := range bundles {
		addToSet(b.byBundle, id, source)
	}
	for namespace := range namespaces {
		addToSet(b.incomplete, namespace, source)
	}
}

// dropSource removes the subscriptions of a Source.
func (b *bundleSubscriptions) dropSource(source types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.bySource[source].bundles {
		removeFromSet(b.byBundle, id, source)
	}
	for namespace := range b.bySource[source].namespaces {
		removeFromSet(b.incomplete, namespace, source)
	}
	delete(b.bySource, source)
}

func addToSet[K, V comparable](sets map[K]map[V]bool, key K, value V) {
	if sets[key] == nil {
		sets[key] = map[V]bool{}
	}
	sets[key][value] = true
}

func removeFromSet[K, V comparable](sets map[K]map[V]bool, key K, value V) {
	if delete(sets[key], value); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// sourcesOf lists the Sources that a change of a Bundle concerns. A Bundle that is gone is known by its UID alone.
func (b *bundleSubscriptions) sourcesOf(uid string, id policymatch.BundleID) (out []types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := id == policymatch.BundleID{}
	if gone {
		id = b.ids[uid]
		delete(b.ids, uid)
	}
	for source := range b.byBundle[id] {
		out = append(out, source)
	}
	if gone {
		return out
	}
	if len(out) > 0 {
		b.ids[uid] = id
	}
	for source := range b.incomplete[id.Namespace] {
		if !b.byBundle[id][source] {
			out = append(out, source)
		}
	}
	return out
}

// bundleChanged updates the status of the Sources that a Bundle concerns.
func (r *Reconciler) bundleChanged(uid string) {
	var id policymatch.BundleID
	if bundle, ok := r.Bundles.Get(uid); ok {
		id = policymatch.BundleID{Namespace: bundle.Ref.Namespace, Name: bundle.Ref.Name}
	}
	for _, source := range r.bundles.sourcesOf(uid, id) {
		r.readiness.EnqueueDebounced(source)
	}
}
