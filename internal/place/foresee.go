package place

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// Supposed is a Bundle as it would be, and the content that it would have.
type Supposed struct {
	Bundle state.Bundle
	// Revision names the content: the latest that there is, or one that nobody has cut.
	Revision string
	Content  *atoll.Content
}

// Foreseen is what a Bundle comes to when every cluster that can be reached does what it
// is told, and it is healthy there.
type Foreseen struct {
	Supposed
	// Before and After are the rows, by cluster.
	Before, After map[string]atoll.RowSpec
	// Decision over all of the fleet, by which After came about.
	Decision schedule.Decision
	// Held waits for a confirmation; nil: nothing does.
	Held *rollout.Plan
	// Waits of rows that are not done even so.
	Waits []rollout.Wait
	// Short lists workloads of which not all replicas have a place.
	Short []schedule.Shortage
	// Holding: the hub holds after a rewind, and nothing changes.
	Holding bool
}

// mostSteps are foreseen of one Bundle: a row comes, is healthy, lets another one go or
// shrink, and that one is gone.
const mostSteps = 12

// Foresee what the Bundles come to among the clusters, as given, by the same steps that
// Run takes. Nothing is written. A nil clusters stands for those that there are.
func (r *Reconciler) Foresee(ctx context.Context, clusters Clusters, list []Supposed) ([]Foreseen, error) {
	s := &supposition{Rows: r.Rows, Revisions: r.Revisions, contents: map[string]*atoll.Content{}, latest: map[string]string{}, rows: map[string]map[string]state.Row{}, pods: map[string]int64{}}
	f := &Reconciler{Config: r.Config, index: newIndex(), rooms: r.rooms, usage: newUsage()}
	f.usage.base, s.moved = r, f.usage.mark
	f.Rows, f.Revisions = supposedRows{s}, supposedRevisions{s}
	if clusters != nil {
		f.Clusters = clusters
	}
	if with, ok := clusters.(With); ok && with.SetsOf != nil {
		f.Views = supposedViews{f.Views, with}
	}
	f.remember(r, list)
	out := make([]Foreseen, len(list))
	for i, b := range list {
		uid := b.Bundle.Ref.UID
		f.usage.supposed = append(f.usage.supposed, uid)
		s.contents[b.Revision], s.latest[uid], s.rows[uid] = b.Content, b.Revision, map[string]state.Row{}
		out[i] = Foreseen{Supposed: b, Before: map[string]atoll.RowSpec{}}
		for _, row := range r.Rows.OfBundle(uid) {
			s.rows[uid][row.Cluster], out[i].Before[row.Cluster] = row, row.Spec
		}
	}
	for changed, n := true, 0; changed && n < mostSteps; n++ {
		changed = false
		for i := range out {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p, err := f.Preview(ctx, out[i].Bundle)
			if err != nil {
				return nil, err
			}
			out[i].Decision, out[i].Held, out[i].Waits, out[i].Short = p.Decision, p.Output.Plan, p.Output.Waits, p.Output.Short
			changed = s.obey(out[i].Bundle.Ref.UID, p, f.Clusters) || changed
		}
	}
	_, holding := r.Hub.Holding()
	for i := range out {
		out[i].After, out[i].Holding = map[string]atoll.RowSpec{}, holding
		for cluster, row := range s.rows[out[i].Bundle.Ref.UID] {
			out[i].After[cluster] = row.Spec
		}
	}
	return out, nil
}

// remember the removals of the last minutes that the other one knows of these Bundles.
func (r *Reconciler) remember(from *Reconciler, list []Supposed) {
	from.ledgerMu.Lock()
	defer from.ledgerMu.Unlock()
	now, known := time.Now(), map[string]bool{}
	for _, b := range list {
		ref := b.Bundle.Ref
		r.ledger.Out(ref.UID, now, from.ledger.Outs(ref.UID, now))
		if !known[ref.Namespace] {
			r.ledger.Delete(ref.Namespace, now, from.ledger.Deletes(ref.Namespace, now))
		}
		known[ref.Namespace] = true
	}
}

// supposition is the tables as they would be.
type supposition struct {
	Rows
	Revisions
	contents map[string]*atoll.Content
	latest   map[string]string               // by Bundle
	rows     map[string]map[string]state.Row // by Bundle and cluster
	pods     map[string]int64                // by cluster UID: how many more are asked for there
	moved    func(bundle, clusterUID string) // a row is ordered anew, or gone
}

// count the pods of a row that was, or is now, to stay.
func (s *supposition) count(row atoll.RowSpec, by int64) {
	if row.Phase == atoll.RowActive {
		s.pods[row.UID] += by * max(row.Pods, 1)
	}
}

// obey writes the step's changes, and what the clusters that can be reached report then.
func (s *supposition) obey(uid string, p Preview, clusters Clusters) (changed bool) {
	rows := s.rows[uid]
	for cluster, spec := range p.Output.Changes {
		row := rows[cluster]
		s.count(row.Spec, -1)
		if s.moved(uid, row.Spec.UID); spec != nil {
			s.moved(uid, spec.UID)
		}
		if spec == nil {
			delete(rows, cluster)
			changed = true
			continue
		}
		s.count(*spec, 1)
		changed = changed || !row.Spec.Equal(*spec)
		row.Bundle, row.Cluster, row.Spec = p.Bundle.Ref, cluster, *spec
		rows[cluster] = row
	}
	for cluster, row := range rows {
		done := row.Status != nil && row.Status.Generation == row.Spec.Generation && row.Status.State == atoll.RowReady
		switch {
		case !clusters.Online(row.Spec.UID) || done:
		case row.Spec.Phase == atoll.RowRemoving && row.Spec.Recall == nil:
			delete(rows, cluster)
			s.moved(uid, row.Spec.UID)
			changed = true
		case row.Spec.Phase != atoll.RowRemoving:
			row.Status = &atoll.RowStatus{UID: row.Spec.UID, Generation: row.Spec.Generation, State: atoll.RowReady, Applied: true, AllGone: true, Since: row.Spec.Since}
			rows[cluster], changed = row, true
		}
	}
	return changed
}

type supposedRows struct{ *supposition }

func (s supposedRows) Get(uid, cluster string) (state.Row, bool) {
	rows, ok := s.rows[uid]
	if !ok {
		return s.Rows.Get(uid, cluster)
	}
	row, ok := rows[cluster]
	return row, ok
}

func (s supposedRows) OfBundle(uid string) []state.Row {
	rows, ok := s.rows[uid]
	if !ok {
		return s.Rows.OfBundle(uid)
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
}

func (s supposedRows) OfCluster(uid string) []state.Row { return s.Rows.OfCluster(uid) }
func (s supposedRows) Subscribe(func(string, []string)) {}
func (s supposedRows) PodsOf(uid string) int64          { return s.Rows.PodsOf(uid) + s.pods[uid] }

func (s supposedRows) WriteSpecs(context.Context, enginev1.BundleRef, []state.Row, map[string]*atoll.RowSpec) error {
	panic("place: what is foreseen is never written")
}

type supposedRevisions struct{ *supposition }

func (s supposedRevisions) Latest(uid string) (*enginev1.Revision, bool) {
	name, ok := s.latest[uid]
	if !ok {
		return s.Revisions.Latest(uid)
	}
	r := &enginev1.Revision{}
	r.Name, r.Spec.Number = name, atoll.RevisionNumber(name)
	if c := s.contents[name]; c != nil {
		r.Spec.Base = c.Base
	}
	return r, name != ""
}

func (s supposedRevisions) Content(ctx context.Context, name string) (*atoll.Content, error) {
	if c, ok := s.contents[name]; ok {
		return c, nil
	}
	return s.Revisions.Content(ctx, name)
}

func (s supposedRevisions) Subscribe(func(string)) {}

// With the clusters as they would be: those named in changed are that, or gone when nil.
type With struct {
	Clusters
	Changed map[string]*v1alpha1.Cluster
	// SetsOf a cluster with these labels; nil: as Views have them.
	SetsOf func(labels map[string]string) []string
}

// supposedViews of clusters as they would be.
type supposedViews struct {
	Views
	with With
}

func (v supposedViews) Of(c *v1alpha1.Cluster) schedule.Cluster {
	out := v.Views.Of(c)
	if _, changed := v.with.Changed[c.Name]; changed {
		out.Sets = v.with.SetsOf(c.Labels)
	}
	return out
}

// Get a cluster as it would be.
func (w With) Get(name string) (*v1alpha1.Cluster, bool) {
	if c, ok := w.Changed[name]; ok {
		return c, c != nil
	}
	return w.Clusters.Get(name)
}

// List the clusters as they would be.
func (w With) List() []*v1alpha1.Cluster {
	out := slices.DeleteFunc(slices.Clone(w.Clusters.List()), func(c *v1alpha1.Cluster) bool { _, ok := w.Changed[c.Name]; return ok })
	for _, name := range slices.Sorted(maps.Keys(w.Changed)) {
		if c := w.Changed[name]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

// Online tells whether a cluster can be counted on; one that is not there yet can.
func (w With) Online(uid string) bool {
	for name, c := range w.Changed {
		if c != nil && string(c.UID) == uid {
			if was, ok := w.Clusters.Get(name); !ok || string(was.UID) != uid {
				return true
			}
		}
	}
	return w.Clusters.Online(uid)
}
