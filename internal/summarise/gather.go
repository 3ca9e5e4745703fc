package summarise

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// snapshot is all that one look at a Bundle sees.
type snapshot struct {
	uid string
	// bundle; alive is false when its object is gone, and only rows are left.
	bundle state.Bundle
	alive  bool
	// doomed: its namespace is being deleted, which takes Pods first, and the Bundle
	// itself only when they are gone.
	doomed bool
	// rows of which each stands for all that say the same; total counts them all.
	rows  []Row
	total int
	// unused are the slices without rows, of so many slices.
	unused []*enginev1.TargetSlice
	slices int
	// revisions by number.
	revisions []*enginev1.Revision
	// content of the latest Revision; nil before the first.
	content *atoll.Content
	// contents of the Revisions that rows name: the hash of each item's content.
	contents map[string]map[atoll.ItemKey]version
}

// version of an item in a Revision.
type version struct{ uid, hash string }

// Row of a Bundle and what the hub knows of its cluster.
type Row struct {
	state.Row
	// Reachable: the cluster holds a stream, or lost it so shortly ago that it is
	// still Ready.
	Reachable bool
	// Waited: removals wait for the cluster.
	Waited bool
	// Known: the Cluster exists.
	Known bool
	// CheckIn is how often the cluster checks in; 0: it holds a stream.
	CheckIn time.Duration
	// More rows than this one say the same; this is the first of them by cluster name.
	More int
	// Names of their clusters, the first few in order; none where there are no more.
	Names []string
}

// removed tells whether the row's removal is confirmed.
func (r Row) removed() bool { return r.Spec.Removed(r.Status) }

// latest Revision's name; empty before the first.
func (s *snapshot) latest() string {
	if n := len(s.revisions); n > 0 {
		return s.revisions[n-1].Name
	}
	return ""
}

func (s *snapshot) empty() bool {
	return !s.alive && len(s.rows) == 0 && s.slices == 0 && len(s.revisions) == 0
}

// deleting tells whether the Bundle is going or gone.
func (s *snapshot) deleting() bool { return !s.alive || s.bundle.Meta.DeletionTimestamp != nil }

// gather reads the tables, and the contents that rows name.
func (r *Reconciler) gather(ctx context.Context, uid string) (*snapshot, error) {
	s := &snapshot{uid: uid, contents: map[string]map[atoll.ItemKey]version{}}
	s.bundle, s.alive = r.Bundles.Get(uid)
	s.doomed = s.alive && r.doomed(s.bundle.Ref.Namespace)
	s.rows, s.total = r.lookAtRows(uid)
	s.unused, s.slices = r.Rows.EmptySlices(uid)
	s.revisions = r.Revisions.OfBundle(uid)
	if n := len(s.revisions); n > 0 {
		latest := s.latest()
		content := r.index.content(uid, latest)
		if content == nil {
			var err error
			if content, err = r.Revisions.Content(ctx, latest); err != nil {
				return nil, fmt.Errorf("look at what clusters report of a bundle: %w", err)
			}
		}
		s.content = content
		s.contents[latest] = r.index.versions(latest, content)
	}
	known := map[string]bool{}
	for _, rev := range s.revisions {
		known[rev.Name] = true
	}
	for _, row := range s.rows {
		name := row.Spec.Revision
		if _, have := s.contents[name]; have || !known[name] {
			continue
		}
		content, err := r.Revisions.Content(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look at what clusters report of a bundle: %w", err)
		}
		s.contents[name] = r.index.versions(name, content)
	}
	r.lookAtUnheld(r.index.set(s))
	return s, nil
}

// lookAtUnheld looks at templates that are being deleted and that the last Bundle
// has dropped: nobody else would let them go.
func (r *Reconciler) lookAtUnheld(keys []atoll.ItemKey) {
	for _, key := range keys {
		if t, ok := r.Templates.Get(key); ok && leaving(t) {
			r.add(work{template: key}, priorityUser, settle)
		}
	}
}

func (r *Reconciler) view(row state.Row) Row {
	_, known := r.Clusters.ByUID(row.Spec.UID)
	return Row{
		Row: row, Known: known, Reachable: r.reachable(row.Spec.UID), Waited: r.waited(row.Spec.UID), CheckIn: r.checkIn(row.Spec.UID),
	}
}

// reachable is about what is shown: a stream that was lost a moment ago, or that is
// still to come after a start of the hub, changes nothing yet.
func (r *Reconciler) reachable(clusterUID string) bool {
	return r.Clusters.Online(clusterUID) || r.ready(clusterUID)
}

// looks like this, by its links alone.
func (r *Reconciler) looks(clusterUID string) seenCluster {
	return seenCluster{reachable: r.reachable(clusterUID), online: r.streams(clusterUID)}
}

// waited is about what waits for a cluster: one that has no stream is not waited
// for, nor one that only checks in, but after a start of the hub those that were Ready
// get time to come back.
func (r *Reconciler) waited(clusterUID string) bool {
	return r.streams(clusterUID) || r.starting() && r.ready(clusterUID) && r.checkIn(clusterUID) == 0
}

// streams tells whether the cluster holds a stream on which it can be waited for.
func (r *Reconciler) streams(clusterUID string) bool {
	return r.Clusters.Online(clusterUID) && r.checkIn(clusterUID) == 0
}

// checkIn is how often the cluster checks in; 0: it holds a stream.
func (r *Reconciler) checkIn(clusterUID string) time.Duration {
	c, ok := r.Clusters.ByUID(clusterUID)
	if !ok {
		return 0
	}
	return c.Spec.CheckIn()
}

func (r *Reconciler) starting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.started) < graceAtStart
}

func (r *Reconciler) ready(clusterUID string) bool {
	c, ok := r.Clusters.ByUID(clusterUID)
	if !ok || c.DeletionTimestamp != nil {
		return false
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	return ready != nil && ready.Status != metav1.ConditionUnknown
}
