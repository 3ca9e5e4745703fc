package place

import (
	"context"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// movesAway lists, by cluster, what a row's step to the target takes out of it because
// the Bundles that hold it now have no row there. What is orphaned stays where it is.
func (r *Reconciler) movesAway(ctx context.Context, target string, content *atoll.Content, rows map[string]atoll.RowSpec) (map[string][]string, error) {
	if content == nil || !slices.ContainsFunc(content.Tombstones, moved) {
		return nil, nil
	}
	out, news := map[string][]string{}, map[string][]atoll.Tombstone{}
	for cluster, row := range rows {
		if row.Revision == target {
			continue
		}
		if _, looked := news[row.Revision]; !looked {
			old, err := r.Revisions.Content(ctx, row.Revision)
			if err != nil {
				return nil, err
			}
			for _, t := range content.Tombstones {
				known := slices.ContainsFunc(old.Tombstones, func(o atoll.Tombstone) bool { return o.ID() == t.ID() })
				if moved(t) && !known {
					news[row.Revision] = append(news[row.Revision], t)
				}
			}
		}
		for _, t := range news[row.Revision] {
			if !slices.ContainsFunc(t.MovedTo, func(bundle string) bool { return r.here(bundle, cluster) }) {
				out[cluster] = append(out[cluster], t.ID())
			}
		}
		slices.Sort(out[cluster])
	}
	return out, nil
}

// unwanted lists, by cluster, what override rules of the target keep out of it, and which
// of that the row there has.
func (r *Reconciler) unwanted(ctx context.Context, content *atoll.Content, clusters []schedule.Cluster, rows map[string]atoll.RowSpec) (map[string][]rollout.Unwanted, error) {
	if content == nil || !slices.ContainsFunc(content.Rules, func(r atoll.Rule) bool { return r.Overriders.NotHere != nil }) {
		return nil, nil
	}
	targets, out := render.TargetsOf(content), map[string][]rollout.Unwanted{}
	for i := range clusters {
		c := &clusters[i]
		keys := targets.Unwanted(c.ClusterView)
		if len(keys) == 0 {
			continue
		}
		var uids map[atoll.ItemKey]string
		if row, has := rows[c.Name]; has && row.UID == c.UID && row.Phase != atoll.RowRemoving && content.Removal != v1alpha1.RemoveOrphan {
			var err error
			if uids, err = r.hasOf(ctx, row, c.ClusterView); err != nil {
				return nil, err
			}
		}
		for _, key := range keys {
			out[c.Name] = append(out[c.Name], rollout.Unwanted{Key: key.String(), UID: uids[key]})
		}
	}
	return out, nil
}

// hasOf gives what a row has, as far as that is known: the UIDs of its items. What rules
// have kept out is not in it.
func (r *Reconciler) hasOf(ctx context.Context, row atoll.RowSpec, c atoll.ClusterView) (map[atoll.ItemKey]string, error) {
	old, err := r.Revisions.Content(ctx, row.Revision)
	if err != nil {
		return nil, err
	}
	out := make(map[atoll.ItemKey]string, len(old.Items))
	for i := range old.Items {
		item := &old.Items[i]
		if !slices.Contains(row.NotHere, item.Key.String()) {
			out[item.Key] = item.UID
		}
	}
	if len(row.NotHere)+len(row.NotYet) > 0 {
		return out, nil
	}
	// An older hub did not write down what was kept out.
	if rules, variant := render.Rules(old, c); variant == row.Variant {
		for _, key := range render.NotHere(old, render.InputOf(row, rules, nil)) {
			delete(out, key)
		}
	}
	return out, nil
}

func moved(t atoll.Tombstone) bool { return t.Cause == atoll.CauseMoved && !t.Orphan }

// here tells whether the Bundle has a row in the cluster that stays.
func (r *Reconciler) here(bundle, cluster string) bool {
	row, ok := r.Rows.Get(bundle, cluster)
	return ok && row.Spec.Phase != atoll.RowRemoving
}
