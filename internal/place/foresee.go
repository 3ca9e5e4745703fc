package place

import (
	"cmp"
	"context"
	"maps"
	"reflect"
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

// Tables that decide, as they would be; nil ones are as they are. They can be compared.
type Tables struct {
	Clusters Clusters
	Views    Views
	Sets     Sets
	Scores   Scores
}

// Foresee what the Bundles come to with the tables, by the same steps that Run takes.
// Nothing is written, and what the Reconciler remembers stays as it is. Nil tables are all
// as they are.
func (r *Reconciler) Foresee(ctx context.Context, t *Tables, list []Supposed) ([]Foreseen, error) {
	if t == nil {
		t = &Tables{}
	}
	f, s := r.fork(*t, list)
	out := make([]Foreseen, len(list))
	for i, b := range list {
		uid := b.Bundle.Ref.UID
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
			p, snap, err := f.preview(ctx, out[i].Bundle)
			if err != nil {
				return nil, err
			}
			out[i].Decision, out[i].Held, out[i].Waits, out[i].Short = p.Decision, p.Output.Plan, p.Output.Waits, p.Output.Short
			f.rooms.promise(&snap.in, p.Output.Changes)
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

// fork a Reconciler over the tables as they would be, that knows what r knows of these
// Bundles and changes nothing of it.
func (r *Reconciler) fork(t Tables, list []Supposed) (*Reconciler, *supposition) {
	s := &supposition{
		Rows: r.Rows, Revisions: r.Revisions, contents: map[string]*atoll.Content{}, latest: map[string]string{},
		rows: map[string]map[string]state.Row{}, pods: map[string]int64{},
	}
	f := &Reconciler{Config: r.Config, index: newIndex(), rooms: newRooms(), usage: newUsage()}
	f.usage.base, s.moved = r, f.usage.mark
	f.begun.Store(r.begun.Load())
	f.Rows, f.Revisions, f.Bundles = supposedRows{s}, supposedRevisions{s}, supposedBundles{r.Bundles, list}
	if t.Clusters != nil {
		f.Clusters = t.Clusters
	}
	if t.Views != nil {
		f.Views = t.Views
	}
	if t.Sets != nil {
		f.Sets = t.Sets
	}
	if t.Scores != nil {
		f.Scores = t.Scores
	}
	divides := slices.ContainsFunc(list, func(b Supposed) bool {
		return b.Bundle.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided
	})
	if divides {
		f.rooms = r.rooms.clone()
	}
	for _, c := range f.Clusters.List() {
		one := f.Views.Of(c)
		f.fleet, f.index.known[c.Name] = append(f.fleet, one), one
		if was, ok := r.Clusters.Get(c.Name); divides && (!ok || was != c) {
			f.rooms.report(c, f.Rows, time.Now())
		}
	}
	slices.SortFunc(f.fleet, func(a, b schedule.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, b := range list {
		uid := b.Bundle.Ref.UID
		f.usage.supposed = append(f.usage.supposed, uid)
		f.index.entry(uid).failback = r.index.failback(b.Bundle)
	}
	f.remember(r, list)
	return f, s
}

// Feeding is Feed with the tables as they would be.
func (r *Reconciler) Feeding(t Tables) func(in *schedule.Input, namespace string) {
	f, _ := r.fork(t, nil)
	return f.Feed
}

// Touched lists by namespace and name, of the Bundles that there are, those that may come
// to something else with the tables: by the comparisons that Run makes when a cluster, the
// sets of a namespace or scores change. It costs Bundles times clusters that differ.
func (r *Reconciler) Touched(ctx context.Context, t Tables) ([]state.Bundle, error) {
	f, _ := r.fork(t, nil)
	changes := r.changes(f)
	now := time.Now()
	var out []state.Bundle
	for _, b := range r.Bundles.List() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		terms, err := r.terms(ctx, b)
		if err != nil {
			return nil, err
		}
		after := terms
		after.Bound = f.bound(b)
		e := entry{uid: b.Ref.UID, filter: f.index.compile(terms).filter, whenUnfit: b.Spec.WhenUnfit}
		rated := slices.ContainsFunc(b.Spec.Placement.Scores, func(s v1alpha1.Score) bool { return s.Name == v1alpha1.ScoreCluster })
		if t.Scores != nil && rated || !sameTerms(terms, after) ||
			slices.ContainsFunc(changes, func(c change) bool { return r.matters(&e, c, now) }) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b state.Bundle) int {
		return cmp.Or(strings.Compare(a.Ref.Namespace, b.Ref.Namespace), strings.Compare(a.Ref.Name, b.Ref.Name))
	})
	return out, nil
}

// change of a cluster that is supposed: as it was and is seen; one that is not there has
// only its name.
type change struct{ was, is schedule.Cluster }

func (r *Reconciler) changes(f *Reconciler) (out []change) {
	for _, c := range r.Clusters.List() {
		was := r.Views.Of(c)
		if is, ok := f.index.known[c.Name]; !ok {
			out = append(out, change{was, schedule.Cluster{ClusterView: atoll.ClusterView{Name: c.Name}}})
		} else if !reflect.DeepEqual(was, is) {
			out = append(out, change{was, is})
		}
	}
	for i := range f.fleet {
		if is := f.fleet[i]; is.Name != "" {
			if _, ok := r.Clusters.Get(is.Name); !ok {
				out = append(out, change{schedule.Cluster{ClusterView: atoll.ClusterView{Name: is.Name}}, is})
			}
		}
	}
	return out
}

// matters tells whether a cluster's change may matter to a Bundle.
func (r *Reconciler) matters(e *entry, c change, now time.Time) bool {
	row, has := r.Rows.Get(e.uid, c.is.Name)
	if !has {
		return e.filter.Admits(&c.is) || e.filter.Chooses() && e.filter.Admits(&c.was)
	}
	return e.filter.Chooses() || !reflect.DeepEqual(c.was.ClusterView, c.is.ClusterView) || e.verdict(c.was, &row.Spec, now) != e.verdict(c.is, &row.Spec, now)
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

// supposedBundles are those that there are, and those of the list as they would be.
type supposedBundles struct {
	Bundles
	list []Supposed
}

func (s supposedBundles) InNamespace(ns string) (out []state.Bundle) {
	mine := map[string]bool{}
	for _, b := range s.list {
		if b.Bundle.Ref.Namespace == ns {
			mine[b.Bundle.Ref.UID] = true
			out = append(out, b.Bundle)
		}
	}
	for _, b := range s.Bundles.InNamespace(ns) {
		if !mine[b.Ref.UID] {
			out = append(out, b)
		}
	}
	return out
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
