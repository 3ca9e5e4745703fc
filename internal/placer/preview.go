package placer

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

// SupposedBundle is a hypothetical Bundle with its content.
type SupposedBundle struct {
	Bundle state.Bundle
	// Revision names the content: the latest revision, or one that does not exist.
	Revision string
	Content  *atoll.Content
}

// PreviewedBundle is the outcome for a Bundle when every connected cluster applies its orders
// and is healthy.
type PreviewedBundle struct {
	SupposedBundle
	// Before and After are the rows, by cluster.
	Before, After map[string]atoll.RowSpec
	// Decision over the whole fleet that leads to After.
	Decision schedule.Decision
	// HeldPlan waits for a confirmation; nil: nothing waits.
	HeldPlan *rollout.PendingRemoval
	// Waits of rows that remain unfinished.
	Waits []rollout.RowWait
	// OldCopyWaits are of clusters that get the Bundle after an old copy has ended, by cluster name, also
	// where that ends before After.
	OldCopyWaits map[string]rollout.RowWait
	// DisruptionWaits are of copies that a budget would keep while the health of the other copies stays as it is now, by
	// cluster name.
	DisruptionWaits map[string]rollout.RowWait
	// Shortages lists the workloads whose replicas do not all fit.
	Shortages []schedule.Shortage
	// Rollout is what the Bundle states for its rollout, and its first turn; nil: all rows change at once. After
	// is the state after the last turn.
	Rollout *rollout.FirstTurn
	// IsHolding means that the hub holds after a restore, and nothing changes.
	IsHolding bool
}

// maxPreviewSteps bounds the steps of one Bundle: a row is added, is healthy, another row is
// removed or shrinks, and is gone.
const maxPreviewSteps = 12

// SupposedTables are hypothetical tables; nil: the real ones. Values are comparable.
type SupposedTables struct {
	Clusters Clusters
	Views    Views
	Sets     Sets
	Scores   Scores
	Settings Settings
}

// PreviewBundles returns the outcome for Bundles with hypothetical tables, by the steps that Run
// takes. It writes nothing and does not change the Reconciler. A nil t means the real tables.
func (r *PlacementReconciler) PreviewBundles(ctx context.Context, t *SupposedTables, list []SupposedBundle) ([]PreviewedBundle, error) {
	if t == nil {
		t = &SupposedTables{}
	}
	f, s := r.forkForPreview(*t, list)
	f.supposeDependencies(r)
	out := make([]PreviewedBundle, len(list))
	for i, b := range list {
		out[i] = s.addBundle(b, r.Rows.ListOfBundle(b.Bundle.Ref.UID))
	}
	if err := f.previewFirstTurns(ctx, out); err != nil {
		return nil, err
	}
	for i := range out {
		if err := f.previewDisruptions(ctx, s, &out[i]); err != nil {
			return nil, err
		}
	}
	if err := f.previewSteps(ctx, s, out); err != nil {
		return nil, err
	}
	_, holding := r.Hub.HoldReason()
	for i := range out {
		out[i].After, out[i].IsHolding = map[string]atoll.RowSpec{}, holding
		for cluster, row := range s.rows[out[i].Bundle.Ref.UID] {
			out[i].After[cluster] = row.Spec
		}
	}
	return out, nil
}

// previewSteps takes the steps of all Bundles until none changes a row. r is the fork.
func (r *PlacementReconciler) previewSteps(ctx context.Context, s *supposedState, out []PreviewedBundle) error {
	for changed, n := true, 0; changed && n < maxPreviewSteps; n++ {
		changed = false
		for i := range out {
			if err := ctx.Err(); err != nil {
				return err
			}
			p, snap, err := r.previewWithInput(ctx, withoutTurns(out[i].Bundle))
			if err != nil {
				return err
			}
			out[i].Decision, out[i].HeldPlan, out[i].Waits, out[i].Shortages = p.Decision, p.Output.PendingRemoval, p.Output.Waits, p.Output.Shortages
			out[i].recordOldCopyWaits(p.Output.Changes)
			r.capacity.promiseCapacity(&snap.rollout, p.Output.Changes)
			changed = s.applyStep(out[i].Bundle.Ref.UID, p, r.Clusters) || changed
			r.groups.readRows(out[i].Bundle.Ref.UID, r.Rows)
		}
	}
	return nil
}

// addBundle adds a Bundle and its rows to the hypothetical state.
func (s *supposedState) addBundle(b SupposedBundle, rows []state.Row) PreviewedBundle {
	uid := b.Bundle.Ref.UID
	s.contents[b.Revision], s.latestRevisions[uid], s.rows[uid] = b.Content, b.Revision, map[string]state.Row{}
	out := PreviewedBundle{SupposedBundle: b, Before: map[string]atoll.RowSpec{}}
	for _, row := range rows {
		s.rows[uid][row.Cluster], out.Before[row.Cluster] = row, row.Spec
	}
	if b.Bundle.Spec.DisruptionBudget != nil {
		s.reported[uid] = maps.Clone(s.rows[uid])
	}
	return out
}

// recordOldCopyWaits keeps the waits of rows that this step makes Pending.
func (b *PreviewedBundle) recordOldCopyWaits(changes map[string]*atoll.RowSpec) {
	for _, w := range b.Waits {
		if spec := changes[w.Cluster]; spec != nil && spec.Phase == atoll.RowPending {
			if b.OldCopyWaits == nil {
				b.OldCopyWaits = map[string]rollout.RowWait{}
			}
			b.OldCopyWaits[w.Cluster] = w
		}
	}
}

// forkForPreview makes a Reconciler over hypothetical tables, with a copy of the state of these
// Bundles in r.
func (r *PlacementReconciler) forkForPreview(t SupposedTables, list []SupposedBundle) (*PlacementReconciler, *supposedState) {
	s := &supposedState{
		Rows: r.Rows, Revisions: r.Revisions, contents: map[string]*atoll.Content{}, latestRevisions: map[string]string{},
		rows: map[string]map[string]state.Row{}, reported: map[string]map[string]state.Row{}, podChanges: map[string]int64{},
	}
	f := &PlacementReconciler{Config: r.Config, index: newBundleIndex(), capacity: newCapacityLedger(), usage: newCapacityUsage(), groups: newGroupIndex(), dependencies: newDependencyIndex()}
	f.bundleLoop, f.clusterLoop, f.scoreLoop = idleLoop, idleLoop, idleLoop
	f.usage.base, s.rowMoved = r, f.usage.markRowStale
	f.startedAt.Store(r.startedAt.Load())
	f.previewed = r
	f.Rows, f.Revisions, f.Bundles = readOnlySupposedRows{s}, supposedRevisions{s}, supposedBundles{r.Bundles, list}
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
	if t.Settings != nil {
		f.Settings = t.Settings
	}
	divides := slices.ContainsFunc(list, func(b SupposedBundle) bool {
		return b.Bundle.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided
	})
	if divides {
		f.capacity = r.capacity.clone()
	}
	for _, c := range f.Clusters.List() {
		one := f.Views.ViewOf(c)
		f.fleet, f.index.knownClusters[c.Name] = append(f.fleet, one), one
		f.index.recordUnschedulable(&one)
		if was, ok := r.Clusters.Get(c.Name); divides && (!ok || was != c) {
			f.capacity.setReportedCapacity(c, f.Rows, time.Now())
		}
	}
	slices.SortFunc(f.fleet, func(a, b schedule.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, b := range list {
		uid := b.Bundle.Ref.UID
		f.usage.supposedBundles = append(f.usage.supposedBundles, uid)
		f.index.ensureEntry(uid).failback = r.index.failbackOfBundle(b.Bundle)
	}
	f.copyRemovalLedger(r, list)
	return f, s
}

// ScoreInputsWith is SetScoreInputs with hypothetical tables.
func (r *PlacementReconciler) ScoreInputsWith(t SupposedTables) func(in *schedule.Input, namespace string) {
	f, _ := r.forkForPreview(t, nil)
	return f.SetScoreInputs
}

// BundlesTouchedBy lists the Bundles, by namespace and name, whose placement hypothetical tables
// may change. It uses the comparisons of Run, and costs the Bundles times the changed clusters.
func (r *PlacementReconciler) BundlesTouchedBy(ctx context.Context, t SupposedTables) ([]state.Bundle, error) {
	f, _ := r.forkForPreview(t, nil)
	changes := r.clusterChangesInPreview(f)
	now := time.Now()
	var out []state.Bundle
	for _, b := range r.Bundles.List() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		terms, err := r.termsOf(ctx, b)
		if err != nil {
			return nil, err
		}
		after := terms
		after.BoundSets = f.boundClusterSets(b)
		e := bundleEntry{uid: b.Ref.UID, filter: f.index.compileTerms(terms).filter, whenUnfit: b.Spec.WhenUnfit}
		rated := slices.ContainsFunc(b.Spec.Placement.Scores, func(s v1alpha1.Score) bool { return s.Name == v1alpha1.ScoreCluster })
		if t.Scores != nil && rated || !equalTerms(terms, after) ||
			slices.ContainsFunc(changes, func(c clusterChange) bool { return r.changeMattersToBundle(&e, c, now) }) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b state.Bundle) int {
		return cmp.Or(strings.Compare(a.Ref.Namespace, b.Ref.Namespace), strings.Compare(a.Ref.Name, b.Ref.Name))
	})
	return out, nil
}

// clusterChange is a hypothetical change of a cluster. A cluster that does not exist has only a
// name.
type clusterChange struct{ was, is schedule.Cluster }

func (r *PlacementReconciler) clusterChangesInPreview(f *PlacementReconciler) (out []clusterChange) {
	for _, c := range r.Clusters.List() {
		was := r.Views.ViewOf(c)
		if is, ok := f.index.knownClusters[c.Name]; !ok {
			out = append(out, clusterChange{was, schedule.Cluster{ClusterView: atoll.ClusterView{Name: c.Name}}})
		} else if !reflect.DeepEqual(was, is) {
			out = append(out, clusterChange{was, is})
		}
	}
	for i := range f.fleet {
		if is := f.fleet[i]; is.Name != "" {
			if _, ok := r.Clusters.Get(is.Name); !ok {
				out = append(out, clusterChange{schedule.Cluster{ClusterView: atoll.ClusterView{Name: is.Name}}, is})
			}
		}
	}
	return out
}

// changeMattersToBundle reports whether a cluster's change may matter to a Bundle.
func (r *PlacementReconciler) changeMattersToBundle(e *bundleEntry, c clusterChange, now time.Time) bool {
	row, has := r.Rows.Get(e.uid, c.is.Name)
	if !has {
		return e.changeMayAffectChoice(c.was, c.is)
	}
	return e.filter.LimitsClusters() || !reflect.DeepEqual(c.was.ClusterView, c.is.ClusterView) || e.verdictOn(c.was, &row.Spec, now) != e.verdictOn(c.is, &row.Spec, now)
}

// copyRemovalLedger copies the recent removals of these Bundles.
func (r *PlacementReconciler) copyRemovalLedger(from *PlacementReconciler, list []SupposedBundle) {
	from.ledgerMu.Lock()
	defer from.ledgerMu.Unlock()
	now, known := time.Now(), map[string]bool{}
	for _, b := range list {
		ref := b.Bundle.Ref
		r.ledger.RecordRemovedClusters(ref.UID, now, from.ledger.RemovedClusters(ref.UID, now))
		if !known[ref.Namespace] {
			r.ledger.RecordDeletes(ref.Namespace, now, from.ledger.CountDeletes(ref.Namespace, now))
		}
		known[ref.Namespace] = true
	}
}

// supposedState is the hypothetical state of rows and revisions.
type supposedState struct {
	Rows
	Revisions
	contents        map[string]*atoll.Content
	latestRevisions map[string]string               // by Bundle UID
	rows            map[string]map[string]state.Row // by Bundle UID and cluster
	reported        map[string]map[string]state.Row // as rows, before the preview, while a budget is previewed
	podChanges      map[string]int64                // pods added, by cluster UID
	rowMoved        func(bundle, clusterUID string) // called when a row is ordered again or removed
}

// addPods adds the pods of an active row, by times.
func (s *supposedState) addPods(row atoll.RowSpec, by int64) {
	if row.Phase == atoll.RowActive || row.Phase == atoll.RowPending {
		s.podChanges[row.UID] += by * max(row.RequestedPods, 1)
	}
}

// applyStep writes the changes of a step, and the reports of connected clusters.
func (s *supposedState) applyStep(uid string, p BundlePreview, clusters Clusters) (changed bool) {
	rows := s.rows[uid]
	for cluster, spec := range p.Output.Changes {
		row := rows[cluster]
		s.addPods(row.Spec, -1)
		if s.rowMoved(uid, row.Spec.UID); spec != nil {
			s.rowMoved(uid, spec.UID)
		}
		if spec == nil {
			delete(rows, cluster)
			changed = true
			continue
		}
		s.addPods(*spec, 1)
		changed = changed || !row.Spec.Equal(*spec)
		row.Bundle, row.Cluster, row.Spec = p.Bundle.Ref, cluster, *spec
		rows[cluster] = row
	}
	return s.simulateReports(uid, clusters) || changed
}

// simulateReports writes what connected clusters report: removed rows are gone, other rows ready.
func (s *supposedState) simulateReports(uid string, clusters Clusters) (changed bool) {
	rows := s.rows[uid]
	for cluster, row := range rows {
		switch {
		case !clusters.IsOnline(row.Spec.UID), row.Status.IsReportOf(row.Spec.Generation, atoll.RowReady):
		case row.Spec.Phase == atoll.RowRemoving && row.Spec.Recall == nil:
			delete(rows, cluster)
			s.rowMoved(uid, row.Spec.UID)
			changed = true
		case row.Spec.Phase != atoll.RowRemoving && !row.Spec.Phase.OrdersNothing():
			next := s.reportOf(uid, cluster, &row)
			changed = changed || !row.Status.IsReportOf(next.Generation, next.State)
			row.Status = next
			rows[cluster] = row
		}
	}
	return changed
}

// supposedBundles overlays the real Bundles with hypothetical ones.
type supposedBundles struct {
	Bundles
	list []SupposedBundle
}

func (s supposedBundles) Get(uid string) (state.Bundle, bool) {
	for _, b := range s.list {
		if b.Bundle.Ref.UID == uid {
			return b.Bundle, true
		}
	}
	return s.Bundles.Get(uid)
}

func (s supposedBundles) List() []state.Bundle {
	supposed := map[string]bool{}
	out := make([]state.Bundle, 0, len(s.list))
	for _, b := range s.list {
		supposed[b.Bundle.Ref.UID] = true
		out = append(out, b.Bundle)
	}
	for _, b := range s.Bundles.List() {
		if !supposed[b.Ref.UID] {
			out = append(out, b)
		}
	}
	return out
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

type readOnlySupposedRows struct{ *supposedState }

func (s readOnlySupposedRows) Get(uid, cluster string) (state.Row, bool) {
	rows, ok := s.rows[uid]
	if !ok {
		return s.Rows.Get(uid, cluster)
	}
	row, ok := rows[cluster]
	return row, ok
}

func (s readOnlySupposedRows) ListOfBundle(uid string) []state.Row {
	rows, ok := s.rows[uid]
	if !ok {
		return s.Rows.ListOfBundle(uid)
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
}

// ListOfCluster returns the rows as they are stored: no caller of a preview needs the supposed ones.
func (s readOnlySupposedRows) ListOfCluster(uid string) []state.Row {
	return s.Rows.ListOfCluster(uid)
}
func (s readOnlySupposedRows) RequestedPodsOf(uid string) int64 {
	return s.Rows.RequestedPodsOf(uid) + s.podChanges[uid]
}

func (s readOnlySupposedRows) WriteSpecs(context.Context, enginev1.BundleRef, []state.Row, map[string]*atoll.RowSpec) error {
	panic("place: what is foreseen is never written")
}

type supposedRevisions struct{ *supposedState }

func (s supposedRevisions) LatestOfBundle(uid string) (*enginev1.Revision, bool) {
	name, ok := s.latestRevisions[uid]
	if !ok {
		return s.Revisions.LatestOfBundle(uid)
	}
	r := &enginev1.Revision{}
	r.Name, r.Spec.Number = name, atoll.RevisionNumber(name)
	if c := s.contents[name]; c != nil {
		r.Spec.Base, r.Spec.Items = c.MinRevision, int32(len(c.Items))
	}
	return r, name != ""
}

func (s supposedRevisions) GetContent(ctx context.Context, name string) (*atoll.Content, error) {
	if c, ok := s.contents[name]; ok {
		return c, nil
	}
	return s.Revisions.GetContent(ctx, name)
}

func (s supposedRevisions) Subscribe(func(string)) {}
