package binder

import (
	"context"
	"maps"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// canHandOver reports whether Bundle from may release items that Bundle to has taken over. It
// may at once when to is placed nowhere on purpose, or covers all clusters of from. Otherwise to
// must be healthy in every cluster that can be reached, as in every move.
func (b *Binder) canHandOver(from, to policymatch.BundleID) bool {
	old, ok := b.Bundles.GetByName(from.Namespace, from.Name)
	if !ok {
		return true
	}
	next, ok := b.Bundles.GetByName(to.Namespace, to.Name)
	if !ok {
		return false
	}
	latest, ok := b.Revisions.LatestOfBundle(next.Ref.UID)
	if !ok {
		return false
	}
	nextRows := b.Rows.ListOfBundle(next.Ref.UID)
	return coversOldRows(b.Rows.ListOfBundle(old.Ref.UID), nextRows, successor{
		latestRevision: latest.Name, minRevision: latest.Spec.Base, isPlacedNowhere: atoll.IsNowhere(next.Spec.Placement), isOnline: b.Clusters.IsOnline,
		hasTurns: next.Spec.Rollout != nil || next.Spec.Pause != nil || next.Spec.Suspension != nil || len(next.Spec.DependsOn) > 0 || next.Spec.DisruptionBudget != nil || b.Settings != nil && b.Settings.Freeze() != nil || len(nextRows) > v1alpha1.DefaultFreeClusters,
	})
}

// successor is a Bundle that takes items over, without its rows.
type successor struct {
	latestRevision  string
	minRevision     int64 // of latestRevision
	isPlacedNowhere bool
	isOnline        func(clusterUID string) bool
	// hasTurns: its rows may keep a revision without the items for long, until their turn in a rollout.
	hasTurns bool
}

// coversCluster reports whether the successor's row brings the items to its cluster.
func (s successor) coversCluster(r state.Row) bool {
	return r.Spec.Phase == atoll.RowActive && (!s.hasTurns || atoll.IsAcceptableRevision(r.Spec.Revision, s.latestRevision, s.minRevision))
}

// isReady reports whether a row of the successor has a revision with the items, and is healthy at it.
func (s successor) isReady(r state.Row) bool {
	return atoll.IsAcceptableRevision(r.Spec.Revision, s.latestRevision, s.minRevision) && r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowReady
}

// waitsForConnection reports whether the successor's row is for a disconnected cluster that waits for its turn. Such
// a cluster blocks no handover unless the old Bundle has something there.
func (s successor) waitsForConnection(r state.Row) bool {
	return s.hasTurns && r.Spec.Phase == atoll.RowPending && !s.isOnline(r.Spec.UID)
}

// coversOldRows reports whether the successor's rows have replaced the old rows that its release
// would remove.
func coversOldRows(old, next []state.Row, s successor) bool {
	if s.isPlacedNowhere {
		return true
	}
	there, held := map[string]bool{}, holdingClusters(old)
	ready, unready := 0, 0
	for _, r := range next {
		there[r.Spec.UID] = s.coversCluster(r)
		switch {
		case !held[r.Spec.UID] && s.waitsForConnection(r):
		case r.Spec.Phase == atoll.RowPending:
			unready++
		case r.Spec.Phase != atoll.RowActive, !s.isOnline(r.Spec.UID):
		case s.isReady(r):
			ready++
		default:
			unready++
		}
	}
	for uid := range held {
		if !there[uid] {
			return ready > 0 && unready == 0
		}
	}
	return true
}

// holdingClusters returns the UIDs of the clusters whose rows are not about to be removed.
func holdingClusters(rows []state.Row) map[string]bool {
	out := make(map[string]bool, len(rows))
	for _, r := range rows {
		if r.Spec.Phase != atoll.RowRemoving {
			out[r.Spec.UID] = true
		}
	}
	return out
}

// recordPendingHandovers records which Bundles have not yet taken items over from a Bundle.
func (c *ownershipIndex) recordPendingHandovers(id policymatch.BundleID, keys []atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.handoverTargets, id)
	for _, key := range keys {
		to, ok := c.placedBy[key]
		if !ok {
			continue
		}
		addToSet(c.handoverTargets, id, to)
	}
}

// bundlesHandingOverTo lists the Bundles that wait for Bundle to to take items over; zero: for any
// Bundle.
func (c *ownershipIndex) bundlesHandingOverTo(to policymatch.BundleID) []policymatch.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := map[policymatch.BundleID]bool{}
	for id, awaited := range c.handoverTargets {
		if to == (policymatch.BundleID{}) || awaited[to] {
			out[id] = true
		}
	}
	return slices.SortedFunc(maps.Keys(out), policymatch.BundleID.Compare)
}

// itemsTakenOver returns the interpreted items that other Bundles hold and that are new to this
// Bundle.
func (b *Binder) itemsTakenOver(ctx context.Context, id policymatch.BundleID, claimed []atoll.ItemKey, previous *atoll.Content) (map[atoll.ItemKey]*atoll.Item, error) {
	var out map[atoll.ItemKey]*atoll.Item
	for _, key := range claimed {
		if findItem(previous, key) != nil {
			continue
		}
		for _, uid := range b.ownership.otherHolders(id, key) {
			content, _, err := b.latestContent(ctx, uid)
			if err != nil {
				return nil, err
			}
			item := findItem(content, key)
			if item == nil || item.Interpreted == nil || out[key] != nil && out[key].Divided {
				continue
			}
			if out == nil {
				out = map[atoll.ItemKey]*atoll.Item{}
			}
			out[key] = item
		}
	}
	return out, nil
}

// findItem finds an item in a content, whose items are sorted by key; nil: there is none.
func findItem(content *atoll.Content, key atoll.ItemKey) *atoll.Item {
	if content == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(content.Items, key, func(it atoll.Item, key atoll.ItemKey) int { return it.Key.Compare(key) })
	if !ok {
		return nil
	}
	return &content.Items[i]
}
