package place

import (
	"context"
	"slices"

	"atoll.dev/atoll/internal/atoll"
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

func moved(t atoll.Tombstone) bool { return t.Cause == atoll.CauseMoved && !t.Orphan }

// here tells whether the Bundle has a row in the cluster that stays.
func (r *Reconciler) here(bundle, cluster string) bool {
	row, ok := r.Rows.Get(bundle, cluster)
	return ok && row.Spec.Phase != atoll.RowRemoving
}
