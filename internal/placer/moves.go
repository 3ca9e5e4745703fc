package placer

import (
	"cmp"
	"context"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// movedItemsRemovedByCluster lists, by cluster, the items that a row's step to the target removes because
// the Bundles that took them over have no row there. Orphaned items stay.
func (r *PlacementReconciler) movedItemsRemovedByCluster(ctx context.Context, target string, content *atoll.Content, rows map[string]atoll.RowSpec) (map[string][]string, error) {
	if content == nil || !slices.ContainsFunc(content.Tombstones, isMove) {
		return nil, nil
	}
	out, news := map[string][]string{}, map[string][]atoll.Tombstone{}
	for cluster, row := range rows {
		if row.Revision == target {
			continue
		}
		if _, looked := news[row.Revision]; !looked {
			old, err := r.Revisions.GetContent(ctx, row.Revision)
			if err != nil {
				return nil, err
			}
			for _, t := range content.Tombstones {
				known := slices.ContainsFunc(old.Tombstones, func(o atoll.Tombstone) bool { return o.ID() == t.ID() })
				if isMove(t) && !known {
					news[row.Revision] = append(news[row.Revision], t)
				}
			}
		}
		for _, t := range news[row.Revision] {
			if !slices.ContainsFunc(t.MovedTo, func(bundle string) bool { return r.hasStayingRow(bundle, cluster) }) {
				out[cluster] = append(out[cluster], t.ID())
			}
		}
		slices.Sort(out[cluster])
	}
	return out, nil
}

// excludedItemsByCluster lists, by cluster, the items that override rules of the target exclude, and
// which of them the row has and loses. An item that stays as an orphan is not lost.
func (r *PlacementReconciler) excludedItemsByCluster(ctx context.Context, content *atoll.Content, clusters []schedule.Cluster, rows map[string]atoll.RowSpec) (map[string][]rollout.ExcludedItem, error) {
	if content == nil || !slices.ContainsFunc(content.Rules, func(r atoll.Rule) bool { return r.Overriders.NotHere != nil }) {
		return nil, nil
	}
	targets, out := manifest.NewVariantCache(content), map[string][]rollout.ExcludedItem{}
	items := map[atoll.ItemKey]*atoll.Item{}
	for i := range content.Items {
		items[content.Items[i].Key] = &content.Items[i]
	}
	isLost := func(key atoll.ItemKey) bool { return !cmp.Or(items[key], &atoll.Item{}).StaysAsOrphan(content) }
	for i := range clusters {
		c := &clusters[i]
		keys := targets.ExcludedItems(c.ClusterView)
		var uids map[atoll.ItemKey]string
		if row := rows[c.Name]; row.UID == c.UID && ordersObjects(row) && slices.ContainsFunc(keys, isLost) {
			var err error
			if uids, err = r.itemUIDsOf(ctx, row, c.ClusterView); err != nil {
				return nil, err
			}
		}
		for _, key := range keys {
			one := rollout.ExcludedItem{Key: key.String()}
			if isLost(key) {
				one.UID, one.MustConfirm = uids[key], cmp.Or(items[key], &atoll.Item{}).Treatment.MustConfirmRemoval()
			}
			out[c.Name] = append(out[c.Name], one)
		}
	}
	return out, nil
}

// itemUIDsOf returns the UIDs of a row's items, without those that rules exclude, by the hub's own
// records.
func (r *PlacementReconciler) itemUIDsOf(ctx context.Context, row atoll.RowSpec, c atoll.ClusterView) (map[atoll.ItemKey]string, error) {
	old, err := r.Revisions.GetContent(ctx, row.Revision)
	if err != nil {
		return nil, err
	}
	out := make(map[atoll.ItemKey]string, len(old.Items))
	for i := range old.Items {
		item := &old.Items[i]
		if !slices.Contains(row.Absent, item.Key.String()) {
			out[item.Key] = item.UID
		}
	}
	if len(row.Absent)+len(row.ExcludedPending) > 0 {
		return out, nil
	}
	// Rows of an older hub do not list excluded items.
	if rules, variant := manifest.MatchRules(old, c); variant == row.Variant {
		for _, key := range manifest.AbsentItems(old, manifest.RenderInputOf(row, rules, nil)) {
			delete(out, key)
		}
	}
	return out, nil
}

func isMove(t atoll.Tombstone) bool { return t.Cause == atoll.CauseMoved && !t.Orphan }

// hasStayingRow reports whether the Bundle has a row in the cluster that has its objects, and is not being
// removed.
func (r *PlacementReconciler) hasStayingRow(bundle, cluster string) bool {
	row, ok := r.Rows.Get(bundle, cluster)
	return ok && ordersObjects(row.Spec)
}

// ordersObjects reports whether the cluster of the row is to have objects.
func ordersObjects(row atoll.RowSpec) bool {
	return row.Phase != atoll.RowRemoving && !row.Phase.OrdersNothing()
}
