package bind

import (
	"context"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// handsOver tells whether a Bundle whose items another one has taken up may let go of
// them: at once where the other is in all of its clusters, since then nothing goes
// anywhere, or is placed nowhere on purpose; otherwise, as in every move, when the
// other one is healthy wherever it can be reached.
func (b *Binder) handsOver(from, to claim.BundleID) bool {
	old, ok := b.Bundles.ByName(from.Namespace, from.Name)
	if !ok {
		return true
	}
	next, ok := b.Bundles.ByName(to.Namespace, to.Name)
	if !ok {
		return false
	}
	latest, ok := b.Revisions.Latest(next.Ref.UID)
	if !ok {
		return false
	}
	return makes(b.Rows.OfBundle(old.Ref.UID), b.Rows.OfBundle(next.Ref.UID), successor{
		latest: latest.Name, base: latest.Spec.Base, nowhere: atoll.IsNowhere(next.Spec.Placement), online: b.Clusters.Online,
	})
}

// successor is what is known of a Bundle that takes items over, besides its rows.
type successor struct {
	latest  string
	base    int64 // of that Revision
	nowhere bool
	online  func(clusterUID string) bool
}

// makes tells whether the successor's rows have made what would break in the old ones.
func makes(old, next []state.Row, s successor) bool {
	if s.nowhere {
		return true
	}
	there := map[string]bool{}
	ready, unready := 0, 0
	for _, r := range next {
		if r.Spec.Phase != atoll.RowActive {
			continue
		}
		there[r.Spec.UID] = true
		switch {
		case !s.online(r.Spec.UID):
		case atoll.MayStay(r.Spec.Revision, s.latest, s.base) && r.Status != nil && r.Status.Generation == r.Spec.Generation && r.Status.State == atoll.RowReady:
			ready++
		default:
			unready++
		}
	}
	breaks := slices.ContainsFunc(old, func(r state.Row) bool { return r.Spec.Phase != atoll.RowRemoving && !there[r.Spec.UID] })
	return !breaks || ready > 0 && unready == 0
}

// await notes which Bundles are to take items over from the Bundle and have not yet.
func (c *claims) await(id claim.BundleID, keys []atoll.ItemKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.awaits, id)
	for _, key := range keys {
		to, ok := c.placed[key]
		if !ok {
			continue
		}
		if c.awaits[id] == nil {
			c.awaits[id] = map[claim.BundleID]bool{}
		}
		c.awaits[id][to] = true
	}
}

// awaiting lists the Bundles that wait for the Bundle to take something over; for any
// at all when to is zero.
func (c *claims) awaiting(to claim.BundleID) []claim.BundleID {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := map[claim.BundleID]bool{}
	for id, awaited := range c.awaits {
		if to == (claim.BundleID{}) || awaited[to] {
			out[id] = true
		}
	}
	return slices.SortedFunc(maps.Keys(out), claim.BundleID.Compare)
}

// handed gives what other Bundles have of the claimed items that previous has not, where
// interpreters said something of them.
func (b *Binder) handed(ctx context.Context, id claim.BundleID, claimed []atoll.ItemKey, previous *atoll.Content) (map[atoll.ItemKey]*atoll.Item, error) {
	var out map[atoll.ItemKey]*atoll.Item
	for _, key := range claimed {
		if itemOf(previous, key) != nil {
			continue
		}
		for _, uid := range b.claims.holders(id, key) {
			content, _, err := b.previous(ctx, uid)
			if err != nil {
				return nil, err
			}
			item := itemOf(content, key)
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

// itemOf a content, which lists its items by key; nil: it has none of that key.
func itemOf(content *atoll.Content, key atoll.ItemKey) *atoll.Item {
	if content == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(content.Items, key, func(it atoll.Item, key atoll.ItemKey) int { return it.Key.Compare(key) })
	if !ok {
		return nil
	}
	return &content.Items[i]
}
