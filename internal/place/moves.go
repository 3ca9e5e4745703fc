package place

import (
	"context"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
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

// keptOut adds to moves, by cluster, what override rules of the target keep out of a
// cluster whose row has it.
func (r *Reconciler) keptOut(ctx context.Context, content *atoll.Content, clusters []schedule.Cluster, rows map[string]atoll.RowSpec, moves map[string][]string) (map[string][]string, error) {
	if content == nil || content.Removal == v1alpha1.RemoveOrphan || !slices.ContainsFunc(content.Rules, func(r atoll.Rule) bool { return r.Overriders.NotHere != nil }) {
		return moves, nil
	}
	for i := range clusters {
		c := &clusters[i]
		row, has := rows[c.Name]
		if !has || row.UID != c.UID {
			continue
		}
		rules, _ := render.Rules(content, c.ClusterView)
		out := render.NotHere(content, rules)
		if len(out) == 0 {
			continue
		}
		old, err := r.Revisions.Content(ctx, row.Revision)
		if err != nil {
			return nil, err
		}
		var before []atoll.ItemKey
		if rules, was := render.Rules(old, c.ClusterView); was == row.Variant {
			before = render.NotHere(old, rules)
		}
		var lost []string
		for _, item := range old.Items {
			if slices.Contains(out, item.Key) && !slices.Contains(before, item.Key) {
				lost = append(lost, atoll.Tombstone{Key: item.Key, UID: item.UID}.ID())
			}
		}
		if moves == nil && len(lost) > 0 {
			moves = map[string][]string{}
		}
		if len(lost) > 0 {
			moves[c.Name] = slices.Sorted(slices.Values(slices.Concat(moves[c.Name], lost)))
		}
	}
	return moves, nil
}

func moved(t atoll.Tombstone) bool { return t.Cause == atoll.CauseMoved && !t.Orphan }

// here tells whether the Bundle has a row in the cluster that stays.
func (r *Reconciler) here(bundle, cluster string) bool {
	row, ok := r.Rows.Get(bundle, cluster)
	return ok && row.Spec.Phase != atoll.RowRemoving
}
