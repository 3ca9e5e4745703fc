package bundlestatus

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// bundleSnapshot is all that one look at a Bundle sees.
type bundleSnapshot struct {
	uid string
	// bundle; alive is false when its object is gone, and only rows are left.
	bundle state.Bundle
	alive  bool
	// doomed: its namespace is being deleted, which takes Pods first, and the Bundle
	// itself only when they are gone.
	doomed bool
	// rows of which each stands for all equal ones; total counts them all.
	rows  []Row
	total int
	// terms of its rollout; nil: it states no bound.
	terms *rollout.Terms
	// halt of its rollout.
	halt rollout.Halt
	// unused are the slices without rows, of so many slices.
	unused []*enginev1.TargetSlice
	slices int
	// revisions by number.
	revisions []*enginev1.Revision
	// content of the latest Revision; nil before the first.
	content *atoll.Content
	// feedback that the rows report, of the names that content states.
	feedback []v1alpha1.BundleFeedback
	// contents of the Revisions that rows name: the hash of each item's content.
	contents map[string]map[atoll.ItemKey]version
}

// version of an item in a Revision.
type version struct{ uid, hash string }

// Row of a Bundle and the hub's state of its cluster.
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
	// Stage of the Bundle's rollout, and the change windows that concern the cluster. LostAt is when the cluster was lost, and CountsUntil is until when the rollout
	// counts the row all the same; zero: it does not.
	Stage   int
	Windows changewindow.Mask
	// Suspended: the policy suspends changes of the cluster by its name.
	Suspended   bool
	LostAt      time.Time
	CountsUntil time.Time
	// ConnectedAt is when the cluster connected, in Unix seconds. Deadline is when the row counts as failed unless it is
	// healthy; zero: never.
	ConnectedAt int64
	Deadline    time.Time
	// isExcused: a resume took the row out of the default maxUnavailable.
	isExcused bool
	// More is the number of further equal rows; this is the first of them by cluster name.
	More int
	// Names of their clusters, the first few in order; none where there are no more.
	Names []string
}

// isRemoved reports whether the row's removal is confirmed.
func (r Row) isRemoved() bool { return r.Spec.IsRemovalDone(r.Status) }

// latestRevision returns the name of the latest Revision; empty before the first.
func (s *bundleSnapshot) latestRevision() string {
	if n := len(s.revisions); n > 0 {
		return s.revisions[n-1].Name
	}
	return ""
}

func (s *bundleSnapshot) isFullyDeleted() bool {
	return !s.alive && len(s.rows) == 0 && s.slices == 0 && len(s.revisions) == 0
}

// isDeleting reports whether the Bundle is going or gone.
func (s *bundleSnapshot) isDeleting() bool { return !s.alive || s.bundle.Meta.DeletionTimestamp != nil }

// gatherSnapshot reads the tables, and the contents that rows name.
func (r *BundleReconciler) gatherSnapshot(ctx context.Context, uid string) (*bundleSnapshot, error) {
	s := &bundleSnapshot{uid: uid, contents: map[string]map[atoll.ItemKey]version{}}
	s.bundle, s.alive = r.Bundles.Get(uid)
	s.doomed = s.alive && r.isNamespaceDeleting(s.bundle.Ref.Namespace)
	if s.alive {
		s.terms = rollout.CompileTerms(s.bundle.Spec.Rollout).WithStageCut(s.bundle.Ref.Namespace, s.bundle.Ref.Name, s.bundle.Status.Rollout.GetStageCut()).WithBudget(s.bundle.Spec.DisruptionBudget)
		s.halt = rollout.NewHalt(&s.bundle.Spec, r.currentFreeze(), time.Now())
	}
	s.rows, s.total = r.readGroupedRows(uid, s.rolloutView())
	s.unused, s.slices = r.RowSlices.EmptySlices(uid)
	s.revisions = r.Revisions.OfBundle(uid)
	if n := len(s.revisions); n > 0 {
		latest := s.latestRevision()
		content := r.index.contentOf(uid, latest)
		if content == nil {
			var err error
			if content, err = r.Revisions.GetContent(ctx, latest); err != nil {
				return nil, fmt.Errorf("look at what clusters report of a bundle: %w", err)
			}
		}
		s.content = content
		s.contents[latest] = r.index.itemVersions(latest, content)
		s.feedback = r.rowGroupsOf(uid, true).listFeedback(content)
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
		content, err := r.Revisions.GetContent(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look at what clusters report of a bundle: %w", err)
		}
		s.contents[name] = r.index.itemVersions(name, content)
	}
	r.enqueueUnheldTemplates(r.index.setBundle(s))
	return s, nil
}

// enqueueUnheldTemplates reconciles templates that are being deleted and that the last Bundle has dropped:
// nothing else would release them.
func (r *BundleReconciler) enqueueUnheldTemplates(keys []atoll.ItemKey) {
	for _, key := range keys {
		if t, ok := r.Templates.Get(key); ok && isDeletionHeldByAtoll(t) {
			r.enqueueTemplate(key)
		}
	}
}

func (r *BundleReconciler) rowView(row state.Row) Row {
	_, known := r.Clusters.GetByUID(row.Spec.UID)
	return Row{
		Row: row, Known: known, Reachable: r.isShownReachable(row.Spec.UID), Waited: r.isAwaitedForRemoval(row.Spec.UID), CheckIn: r.checkInInterval(row.Spec.UID),
	}
}

// isShownReachable is about what is shown: a stream that was lost a moment ago, or that is
// still to come after a start of the hub, changes nothing yet.
func (r *BundleReconciler) isShownReachable(clusterUID string) bool {
	return r.Clusters.IsOnline(clusterUID) || r.isReadinessKnown(clusterUID)
}

// clusterLinks returns the state of a cluster like this, by its links alone.
func (r *BundleReconciler) clusterLinks(clusterUID string) seenCluster {
	out := seenCluster{reachable: r.isShownReachable(clusterUID), online: r.holdsStream(clusterUID)}
	if c, ok := r.Clusters.GetByUID(clusterUID); ok {
		out.labels, out.timeZone = c.Labels, c.Spec.TimeZone
	}
	return out
}

// isAwaitedForRemoval is about what waits for a cluster: one that has no stream is not waited
// for, nor one that only checks in, but after a start of the hub those that were Ready
// get time to come back.
func (r *BundleReconciler) isAwaitedForRemoval(clusterUID string) bool {
	return r.holdsStream(clusterUID) || r.isStarting() && r.isReadinessKnown(clusterUID) && r.checkInInterval(clusterUID) == 0
}

// holdsStream reports whether the cluster holds a stream on which it can be waited for.
func (r *BundleReconciler) holdsStream(clusterUID string) bool {
	return r.Clusters.IsOnline(clusterUID) && r.checkInInterval(clusterUID) == 0
}

// checkInInterval is how often the cluster checks in; 0: it holds a stream.
func (r *BundleReconciler) checkInInterval(clusterUID string) time.Duration {
	c, ok := r.Clusters.GetByUID(clusterUID)
	if !ok {
		return 0
	}
	return c.Spec.CheckInInterval()
}

func (r *BundleReconciler) isStarting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.started) < graceAtStart
}

func (r *BundleReconciler) isReadinessKnown(clusterUID string) bool {
	c, ok := r.Clusters.GetByUID(clusterUID)
	if !ok || c.DeletionTimestamp != nil {
		return false
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	return ready != nil && ready.Status != metav1.ConditionUnknown
}
