package place

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// snapshot is all that one step is computed from.
type snapshot struct {
	bundle state.Bundle
	base   []state.Row
	in     rollout.Input
	// reserved pods of other steps, by cluster name, that the decision counted.
	reserved map[string]int64
	// pods that each row asks for beside its shares of what is divided.
	pods int64
	// promised: clusters have promised room that is not settled.
	promised bool
	stake    stake
}

// rowsAfter the step.
func (s *snapshot) rowsAfter(out rollout.Output) int {
	n := len(s.base)
	for c, spec := range out.Changes {
		_, had := s.in.Rows[c]
		switch {
		case spec == nil && had:
			n--
		case spec != nil && !had:
			n++
		}
	}
	return n
}

// placed counts the clusters that fit.
func (s *snapshot) placed() (n int) {
	for i := range s.in.Decision.Verdicts {
		if s.in.Decision.Verdicts[i].Outcome == schedule.Placed {
			n++
		}
	}
	return n
}

// stays tells whether every row of the snapshot is to stay, or is gone for good, and
// loses nothing, so that no other row has to do with it.
func (s *snapshot) stays() bool {
	for _, v := range s.in.Decision.Verdicts {
		row, has := s.in.Rows[v.Cluster]
		if v.Outcome == schedule.Leaves || has && (row.Spec.Recall != nil || row.Spec.Phase == atoll.RowLeaving || row.Spec.Phase == atoll.RowHeld ||
			len(row.Spec.NotYet)+len(s.in.Deletes[row.Spec.Revision])+len(s.in.MovesAway[v.Cluster]) > 0 || s.loses(v.Cluster)) {
			return false
		}
	}
	return !s.in.Deleting && !s.in.Decision.NoFit
}

// loses tells whether override rules keep something out of the cluster that its row has.
func (s *snapshot) loses(cluster string) bool {
	return slices.ContainsFunc(s.in.Unwanted[cluster], func(u rollout.Unwanted) bool { return u.UID != "" })
}

// gather the input of a step. With a view that is complete only the clusters that
// hold a row or were touched are looked at: no other can have a part in it.
func (r *Reconciler) gather(ctx context.Context, b state.Bundle, v view) (snapshot, error) {
	snap := snapshot{bundle: b, base: r.rows(b.Ref.UID, v), reserved: r.index.reservations()}
	specs := make(map[string]atoll.RowSpec, len(snap.base))
	rows := make(map[string]rollout.Row, len(snap.base))
	for _, row := range snap.base {
		specs[row.Cluster] = row.Spec
		one := rollout.Row{Spec: row.Spec, Status: row.Status, Online: r.Clusters.Online(row.Spec.UID)}
		if c, ok := r.Clusters.Get(row.Cluster); ok {
			one.CheckIn = c.Spec.CheckIn()
		}
		rows[row.Cluster] = one
	}
	target, content, err := r.target(ctx, b)
	if err != nil {
		return snapshot{}, err
	}
	now := time.Now()
	workloads, err := r.index.workloads(target, content)
	if err != nil {
		return snapshot{}, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	snap.pods = r.index.fixedPods(target, content)
	clusters := r.candidates(v, snap.base)
	if snap.stake, err = r.stakeOf(ctx, clusters, snap.base, target); err != nil {
		return snapshot{}, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	used, failed := r.asker(ctx, &snap.stake, b.Ref.UID)
	d := schedule.Schedule(schedule.Input{
		Bundle: b.Ref.UID, Placement: b.Spec.Placement, Filter: v.filter, WhenUnfit: b.Spec.WhenUnfit,
		Clusters: clusters, Admitted: v.admitted(clusters), Elsewhere: v.elsewhere, Terse: !v.explain, Workloads: workloads, Rows: specs, Now: now,
		Load: r.podsOf(snap.reserved), Loads: r.loads.of(&v, clusters, r.Rows, snap.reserved), Near: r.near(b), Rated: r.rated(b.Ref.Namespace, b.Spec.Source.Kind),
		Handed: handed(content, clusters), Better: v.failback.better, NotBackBefore: r.notBackBefore(v.failback), Healthy: r.healthy,
		Demand: snap.stake.demands[target], Used: used,
		Fits: func(c *schedule.Cluster) (int64, bool) {
			return r.rooms.fits(c.Name, workloads, specs[c.Name].Assigned)
		},
	})
	if err := failed(); err != nil {
		return snapshot{}, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	deletes, err := r.deletes(ctx, target, content, specs)
	if err != nil {
		return snapshot{}, err
	}
	moves, err := r.movesAway(ctx, target, content, specs)
	if err != nil {
		return snapshot{}, err
	}
	unwanted, err := r.unwanted(ctx, content, clusters, specs)
	if err != nil {
		return snapshot{}, err
	}
	own, err := r.ownVariants(ctx, clusters, specs, func(c string) bool {
		return len(deletes[specs[c].Revision])+len(moves[c]) > 0 ||
			specs[c].Revision != target && mayStay(specs[c], target, content) && (!v.complete || v.touched[c])
	})
	if err != nil {
		return snapshot{}, err
	}
	_, holding := r.Hub.Holding()
	snap.in = rollout.Input{
		Bundle: b.Ref.UID, Rows: rows, Decision: d, Revision: target, Base: baseOf(content),
		Variants: variants(content, target, parts{clusters, specs, d}, v), OwnVariants: own,
		Removal: b.Spec.Removal.Mode, Budget: b.Spec.Removal.Budget,
		Confirm: b.Meta.Annotations[atoll.AnnotationConfirm], Keep: b.Meta.Annotations[atoll.AnnotationKeep],
		Placement: v.placement, Recalled: recalled(b.Ref.UID, content),
		Deleting: r.deleting(b), Deletes: deletes, MovesAway: moves, Unwanted: unwanted,
		Holding: holding, Floor: r.Hub.GenerationFloor(), Now: now,
	}
	return snap, nil
}

// handed are the shares that overrides set, by cluster and item.
func handed(content *atoll.Content, clusters []schedule.Cluster) map[string]map[string]int64 {
	return render.HandedIn(content, func(yield func(atoll.ClusterView) bool) {
		for i := range clusters {
			if !yield(clusters[i].ClusterView) {
				return
			}
		}
	})
}

// recalled deletions that the content holds back.
func recalled(bundle string, content *atoll.Content) rollout.Recalled {
	plan, items := atoll.RecallPlan(bundle, content)
	names := make([]string, 0, len(items))
	for _, item := range items {
		name := item.Key.Kind + " " + item.Key.Name
		if item.Key.IsSecret() {
			name = "a Secret"
		}
		names = append(names, name+" "+item.Recalled)
	}
	return rollout.Recalled{Plan: plan, Text: strings.Join(names, "; ")}
}

// target revision of the Bundle, and its content; empty and nil before the first.
func (r *Reconciler) target(ctx context.Context, b state.Bundle) (string, *atoll.Content, error) {
	latest, ok := r.Revisions.Latest(b.Ref.UID)
	if !ok {
		return "", nil, nil
	}
	content, err := r.Revisions.Content(ctx, latest.Name)
	if err != nil {
		return "", nil, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	return latest.Name, content, nil
}

func (r *Reconciler) deleting(b state.Bundle) bool {
	if b.Meta.DeletionTimestamp != nil {
		return true
	}
	ns, ok := r.Namespaces.Get(b.Ref.Namespace)
	return ok && ns.DeletionTimestamp != nil
}

// rows of the Bundle, or those of them that have to be looked at.
func (r *Reconciler) rows(uid string, v view) []state.Row {
	if !v.part {
		return r.Rows.OfBundle(uid)
	}
	out := make([]state.Row, 0, len(v.touched))
	for c := range v.touched {
		if row, ok := r.Rows.Get(uid, c); ok {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// candidates are the clusters that can have a part in the Bundle, by name.
func (r *Reconciler) candidates(v view, rows []state.Row) []schedule.Cluster {
	named := v.filter.Names()
	switch {
	case v.complete:
		named = slices.Collect(maps.Keys(v.touched))
	case v.reserve != nil:
		named = slices.AppendSeq(slices.Clone(v.reserve), maps.Keys(v.touched))
	case named == nil || v.explain:
		return v.fleet
	}
	for _, row := range rows {
		named = append(named, row.Cluster)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	return r.index.clusters(named)
}

// parts that clusters have in a Bundle.
type parts struct {
	clusters []schedule.Cluster
	rows     map[string]atoll.RowSpec
	decision schedule.Decision
}

// variants of the clusters whose rows may render differently from now on: those that
// are not at the target yet, those that were touched, and those that come.
func variants(content *atoll.Content, target string, p parts, v view) map[string]string {
	out := map[string]string{}
	if content == nil {
		return out
	}
	targets, verdicts := render.TargetsOf(content), p.decision.Verdicts
	for i := range p.clusters {
		c := &p.clusters[i]
		// Both are by name, and there are verdicts on others too.
		for len(verdicts) > 0 && verdicts[0].Cluster < c.Name {
			verdicts = verdicts[1:]
		}
		row, has := p.rows[c.Name]
		if v.complete && has && mayStay(row, target, content) && row.UID == c.UID && !v.touched[c.Name] &&
			!strings.HasPrefix(row.Reason, atoll.RowRemovalHeld) {
			continue
		}
		if !has && (len(verdicts) == 0 || verdicts[0].Cluster != c.Name || verdicts[0].Outcome == schedule.Out) {
			continue
		}
		out[c.Name] = targets.Variant(c.ClusterView)
	}
	return out
}

// mayStay tells whether the row need not move to the target revision.
func mayStay(row atoll.RowSpec, target string, content *atoll.Content) bool {
	return atoll.MayStay(row.Revision, target, baseOf(content))
}

func baseOf(content *atoll.Content) int64 {
	if content == nil {
		return 0
	}
	return content.Base
}

// ownVariants of rows that may have to stay at the revision that they are at.
func (r *Reconciler) ownVariants(ctx context.Context, clusters []schedule.Cluster, rows map[string]atoll.RowSpec, mayStay func(cluster string) bool) (map[string]string, error) {
	out := map[string]string{}
	for _, c := range clusters {
		row, has := rows[c.Name]
		if !has || !mayStay(c.Name) {
			continue
		}
		content, err := r.Revisions.Content(ctx, row.Revision)
		if err != nil {
			return nil, err
		}
		_, out[c.Name] = render.Rules(content, c.ClusterView)
	}
	return out, nil
}

// deletes lists, by the revisions that rows are at, what users deleted between
// those and the target. What is orphaned is not taken out of anything.
func (r *Reconciler) deletes(ctx context.Context, target string, content *atoll.Content, rows map[string]atoll.RowSpec) (map[string][]string, error) {
	if content == nil || !slices.ContainsFunc(content.Tombstones, removes) {
		return nil, nil
	}
	out := map[string][]string{}
	for _, row := range rows {
		if _, done := out[row.Revision]; done || row.Revision == target {
			continue
		}
		old, err := r.Revisions.Content(ctx, row.Revision)
		if err != nil {
			return nil, err
		}
		known := map[string]bool{}
		for _, t := range old.Tombstones {
			known[t.Key.String()+" "+t.UID] = true
		}
		list := []string{}
		for _, t := range content.Tombstones {
			if id := t.Key.String() + " " + t.UID; removes(t) && !known[id] {
				list = append(list, id)
			}
		}
		slices.Sort(list)
		out[row.Revision] = list
	}
	return out, nil
}

func removes(t atoll.Tombstone) bool { return t.Cause == atoll.CauseDeleted && !t.Orphan }

// Preview is what would be done about a Bundle now.
type Preview struct {
	Bundle   state.Bundle
	Rows     []state.Row
	Decision schedule.Decision
	Output   rollout.Output
}

// Preview what a Bundle, as given, would come to: the Bundle of the table, or one
// with another placement, removal or whenUnfit. Verdicts are on all of the fleet.
// Nothing is written.
func (r *Reconciler) Preview(ctx context.Context, b state.Bundle) (Preview, error) {
	p, _, err := r.preview(ctx, b)
	return p, err
}

func (r *Reconciler) preview(ctx context.Context, b state.Bundle) (Preview, *snapshot, error) {
	terms, err := r.terms(ctx, b)
	if err != nil {
		return Preview{}, nil, err
	}
	c := r.index.compile(terms)
	v := view{filter: c.filter, placement: c.placement, failback: r.index.failback(b), explain: true, fleet: r.fleet}
	if v.fleet == nil {
		for _, c := range r.Clusters.List() {
			v.fleet = append(v.fleet, r.Views.Of(c))
		}
		slices.SortFunc(v.fleet, func(a, b schedule.Cluster) int { return strings.Compare(a.Name, b.Name) })
	}
	snap, err := r.gather(ctx, b, v)
	if err != nil {
		return Preview{}, nil, err
	}
	r.ledgerMu.Lock()
	defer r.ledgerMu.Unlock()
	snap.in.Explain = true
	snap.in.Decision, _ = r.withRoom(snap.in.Decision, snap.in.Now)
	snap.in.RecentDeletes = r.ledger.Deletes(b.Ref.Namespace, snap.in.Now)
	snap.in.RecentOuts = r.ledger.Outs(b.Ref.UID, snap.in.Now)
	out := rollout.Advance(snap.in)
	snap.weigh(out.Changes)
	return Preview{Bundle: b, Rows: snap.base, Decision: snap.in.Decision, Output: out}, &snap, nil
}
