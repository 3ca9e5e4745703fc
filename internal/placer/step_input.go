package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// stepInput is the whole input of one step.
type stepInput struct {
	bundle   state.Bundle
	baseRows []state.Row
	rollout  rollout.Input
	// reserved holds other steps' pods by cluster name, that the decision counted.
	reserved map[string]int64
	// podsPerRow is how many pods each row requests, without its shares of divided workloads.
	podsPerRow int64
	// hasPromises means that clusters have promises that are not settled.
	hasPromises bool
	// unreplacedCopies is rollout.Output.UnreplacedCopies of the last step over all rows.
	unreplacedCopies int
	demand           capacityDemand
	groups           groupView
	failover         failoverStep
}

// countRowsAfter counts the rows after the step.
func (s *stepInput) countRowsAfter(out rollout.Output) int {
	n := len(s.baseRows)
	for c, spec := range out.Changes {
		_, had := s.rollout.Rows[c]
		switch {
		case spec == nil && had:
			n--
		case spec != nil && !had:
			n++
		}
	}
	return n
}

// countPlacedClusters counts the clusters that fit.
func (s *stepInput) countPlacedClusters() (n int) {
	for i := range s.rollout.Decision.Verdicts {
		if s.rollout.Decision.Verdicts[i].Outcome == schedule.OutcomePlaced {
			n++
		}
	}
	return n
}

// keepsAllRows reports whether every row stays, or is gone for good, and loses nothing, so that
// no other row depends on it.
func (s *stepInput) keepsAllRows() bool {
	for _, v := range s.rollout.Decision.Verdicts {
		row, has := s.rollout.Rows[v.Cluster]
		if s.mayWaitForOldCopy(v, row, has) {
			return false
		}
		if v.Outcome == schedule.OutcomeLeaves || has && (row.Spec.Recall != nil || row.Spec.Phase == atoll.RowLeaving || row.Spec.Phase == atoll.RowHeld ||
			len(row.Spec.ExcludedPending)+len(s.rollout.DeletedItems[row.Spec.Revision])+len(s.rollout.MovedItems[v.Cluster]) > 0 || s.overridesExcludeHeldItems(v.Cluster)) {
			return false
		}
	}
	return !s.rollout.Deleting && !s.rollout.Decision.NoFit
}

// mayWaitForOldCopy reports whether a copy that starts in the cluster may have to wait for the end of another.
func (s *stepInput) mayWaitForOldCopy(v schedule.Verdict, row rollout.Row, has bool) bool {
	switch {
	case has && row.Spec.Phase == atoll.RowPending:
		return true
	case s.rollout.MoveOrder == rollout.ReplacementFirst, !v.IsHolder():
		return false
	case has && row.Spec.Phase != atoll.RowRemoving && row.Spec.UID == v.UID:
		return false
	}
	return has || s.unreplacedCopies > 0
}

// overridesExcludeHeldItems reports whether override rules exclude items that the cluster's row has.
func (s *stepInput) overridesExcludeHeldItems(cluster string) bool {
	return slices.ContainsFunc(s.rollout.ExcludedItems[cluster], func(u rollout.ExcludedItem) bool { return u.UID != "" })
}

// gatherStepInput gathers the input of a step. A complete view limits it to clusters that hold a
// row or were touched, because no other cluster can gain a part.
func (r *PlacementReconciler) gatherStepInput(ctx context.Context, b state.Bundle, v bundleView) (stepInput, error) {
	snap := stepInput{bundle: b, baseRows: r.rowsInView(b.Ref.UID, v), reserved: r.index.copyReservations(), unreplacedCopies: v.unreplacedCopies}
	turns := r.turnTermsOf(b)
	rows, specs := r.rolloutRows(snap.baseRows)
	target, content, err := r.latestContent(ctx, b)
	if err != nil {
		return stepInput{}, err
	}
	now := time.Now()
	workloads, err := r.index.workloadsOf(target, content)
	if err != nil {
		return stepInput{}, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	undivided := r.index.undividedPodsOf(target, content)
	snap.podsPerRow = schedule.CountUndividedPods(undivided)
	clusters := r.candidateClusters(v, snap.baseRows)
	if snap.demand, err = r.capacityDemandOf(ctx, clusters, snap.baseRows, target); err != nil {
		return stepInput{}, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	if snap.groups, err = r.viewGroups(ctx, b, snap.baseRows); err != nil {
		return stepInput{}, err
	}
	_, holding := r.Hub.HoldReason()
	snap.failover = r.judgeFailover(&b, &v, rollout.FailoverInput{
		Rows: rows, Revision: target, MinRevision: minRevisionOf(content), Now: now,
		Holds: holding || turns.halt.IsHalted() || b.Spec.Suspension.SuspendsScheduling(), HoldEndsAt: turns.halt.EndsAt(),
	}, len(workloads) > 0)
	facts := r.factsFor(b, snap.reserved)
	facts.usage = usageReader{r: r, ctx: ctx, demand: &snap.demand, bundle: b.Ref.UID}
	facts.freeReplicas = func(c *schedule.Cluster) (int64, bool) {
		return r.capacity.totalFittingReplicas(c.Name, workloads, runningShares(specs[c.Name]))
	}
	d := schedule.DecidePlacement(schedule.Input{
		BundleUID: b.Ref.UID, Placement: b.Spec.Placement, Filter: v.filter, WhenUnfit: b.Spec.WhenUnfit,
		Clusters: clusters, AdmittedClusters: v.admittedClusters(clusters), UnlistedHolders: v.placedElsewhere, SkipExplanations: !v.explainAll, Workloads: workloads, Rows: specs, Now: now,
		UnschedulableClusters: r.index.listUnschedulableClusters,
		PodFitOf:              r.capacity.judgeFitOf(undivided),
		Facts:                 facts, UseFreeCapacity: true, AvoidDisconnected: true, KeepsLost: moveOrderOf(&b.Spec, content) != rollout.ReplacementFirst, PodLoads: r.fleetLoads.loadsOf(&v, clusters, r.Rows, snap.reserved), NearbyBundles: r.nearbyBundles(b, b.Spec.Placement.Scores),
		OverriddenShares: overriddenReplicas(content, clusters), PendingFailback: v.failback.better, FailbackNotBefore: r.earliestFailback(v.failback), Demand: snap.demand.demands[target],
		KeepsDecision:  b.Spec.Suspension.SuspendsScheduling(),
		WorkloadGroups: snap.groups.groups, FailedClusters: snap.failover.failed,
	})
	if err := facts.usage.err; err != nil {
		return stepInput{}, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	items, err := r.leavingItemsOf(ctx, target, content, stepParts{clusters, specs, d, turns.isBounded(len(specs))}, v)
	if err != nil {
		return stepInput{}, err
	}
	isDeleting := r.isBundleOrNamespaceDeleting(b)
	snap.rollout = rollout.Input{
		BundleUID: b.Ref.UID, Rows: rows, Decision: d, Revision: target, MinRevision: minRevisionOf(content),
		Variants: variantsOfAffectedClusters(content, target, stepParts{clusters, specs, d, turns.isBounded(len(specs))}, v), CurrentVariants: items.variants,
		RemovalMode: b.Spec.Removal.Mode, RemovalHooks: removalHooksOf(b), RemovalBudget: b.Spec.Removal.Budget, MoveOrder: moveOrderOf(&b.Spec, content), ApplicationFailover: snap.failover.terms,
		ConfirmedPlan: b.Meta.Annotations[atoll.AnnotationConfirm], KeptPlan: b.Meta.Annotations[atoll.AnnotationKeep],
		DriftOrders: driftOrdersOf(b, snap.baseRows), PlacementHash: v.placementHash, Recalled: heldBackDeletions(b.Ref.UID, content), Unconfirmed: unconfirmedRemovals(b.Ref.UID, content), MustConfirmRemovals: content.MustConfirmRemovals(),
		Deleting: isDeleting || content.IsRemovedWithHooks(), ObjectsDeleted: !isDeleting && content.IsRemovedWithHooks(), DeletedItems: items.deleted, MovedItems: items.moved, ExcludedItems: items.excluded,
		PausedByRestore: holding, GenerationFloor: r.Hub.GenerationFloor(), Now: now,
	}
	r.addRolloutTerms(&snap, turns, clusters)
	return snap, errors.Join(r.addOrder(ctx, &snap, content), r.addRollback(ctx, &snap, clusters, content), r.addDisruptionBudget(ctx, &snap, content))
}

// driftOrdersOf returns the orders of users to correct drift; nil while none of the rows reports drift. Admission refuses
// malformed ones.
func driftOrdersOf(b state.Bundle, rows []state.Row) []atoll.DriftOrder {
	value, ordered := b.Meta.Annotations[atoll.AnnotationCorrectDrift]
	if !ordered || !slices.ContainsFunc(rows, func(row state.Row) bool { return row.Status != nil && row.Status.Drifted > 0 }) {
		return nil
	}
	orders, err := atoll.ParseDriftOrders(value)
	if err != nil {
		return nil
	}
	return orders
}

// moveOrderOf returns the order in which a Bundle moves between clusters.
func moveOrderOf(spec *v1alpha1.BundleSpec, content *atoll.Content) rollout.MoveOrder {
	return rollout.OrderOfMove(spec.MoveOrder, schedule.HasExclusiveCopies(content, spec.Placement.ReplicaScheduling.Ordinals != nil))
}

// runningShares returns the shares that may run in the row's cluster.
func runningShares(row atoll.RowSpec) map[string]int64 {
	if row.Phase.OrdersNothing() {
		return nil
	}
	return row.Assigned
}

// rolloutRows returns the rows with what is known of their clusters, and their specs, by cluster.
func (r *PlacementReconciler) rolloutRows(base []state.Row) (rows map[string]rollout.Row, specs map[string]atoll.RowSpec) {
	specs = make(map[string]atoll.RowSpec, len(base))
	rows = make(map[string]rollout.Row, len(base))
	for _, row := range base {
		specs[row.Cluster] = row.Spec
		rows[row.Cluster] = r.rolloutRow(row)
	}
	return rows, specs
}

// rolloutRow returns a row with what is known of its cluster.
func (r *PlacementReconciler) rolloutRow(row state.Row) rollout.Row {
	out := rollout.Row{Spec: row.Spec, Status: row.Status, Online: r.Clusters.IsOnline(row.Spec.UID)}
	if c, ok := r.Clusters.Get(row.Cluster); ok {
		out.CheckIn, out.UncertainUntil = c.Spec.CheckInInterval(), r.uncertainUntil(c)
		if out.Online {
			out.ConnectedAt = rollout.ConnectionTime(c, time.Now())
		} else {
			out.LostAt = rollout.LossTime(c, time.Now())
		}
	}
	return out
}

// leavingItems are the items that a step to the target removes from members, and the variants
// of rows that may have to stay because of them.
type leavingItems struct {
	deleted  map[string][]string // by revision
	moved    map[string][]string // by cluster
	excluded map[string][]rollout.ExcludedItem
	variants map[string]string
}

func (r *PlacementReconciler) leavingItemsOf(ctx context.Context, target string, content *atoll.Content, p stepParts, v bundleView) (out leavingItems, err error) {
	if out.deleted, err = r.deletionsByRevision(ctx, target, content, p.rows); err != nil {
		return out, err
	}
	if out.moved, err = r.movedItemsRemovedByCluster(ctx, target, content, p.rows); err != nil {
		return out, err
	}
	if out.excluded, err = r.excludedItemsByCluster(ctx, content, p.clusters, p.rows); err != nil {
		return out, err
	}
	out.variants, err = r.variantsOfStayingRows(ctx, p.clusters, p.rows, func(c string) bool {
		row := p.rows[c]
		return len(out.deleted[row.Revision])+len(out.moved[c]) > 0 ||
			row.Revision != target && (p.hasTurns || rowMayStay(row, target, content)) && (!v.isComplete || v.touchedClusters[c])
	})
	return out, err
}

// overriddenReplicas returns the shares that overrides set, by cluster and item.
func overriddenReplicas(content *atoll.Content, clusters []schedule.Cluster) map[string]map[string]int64 {
	return manifest.OverriddenReplicasByCluster(content, func(yield func(atoll.ClusterView) bool) {
		for i := range clusters {
			if !yield(clusters[i].ClusterView) {
				return
			}
		}
	})
}

// heldBackDeletions returns the deletions that the content holds back.
func heldBackDeletions(bundle string, content *atoll.Content) rollout.HeldBackDeletions {
	plan, items := atoll.PlanDeletionsRememberedByMembers(bundle, content)
	names := make([]string, 0, len(items))
	for _, item := range items {
		names = append(names, publicItemName(item)+" "+item.RecallNote)
	}
	return rollout.HeldBackDeletions{PlanHash: plan, Text: strings.Join(names, "; ")}
}

// maxUnconfirmedNames is how many removals the text of a plan names.
const maxUnconfirmedNames = 5

// unconfirmedRemovals returns the removals of single items that wait for a confirmation.
func unconfirmedRemovals(bundle string, content *atoll.Content) rollout.HeldBackDeletions {
	plan, items := atoll.PlanUnconfirmedRemovals(bundle, content)
	var names []string
	for _, item := range items[:min(len(items), maxUnconfirmedNames)] {
		names = append(names, "remove "+publicItemName(item))
	}
	if more := len(items) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return rollout.HeldBackDeletions{PlanHash: plan, Text: strings.Join(names, "; ")}
}

// publicItemName returns the name of an item, but for a Secret: readers may lack the right to list Secrets.
func publicItemName(item *atoll.Item) string {
	if item.Key.IsSecret() {
		return "a Secret"
	}
	return item.Key.Kind + " " + item.Key.Name
}

// latestContent returns the latest revision of the Bundle and its content; empty and nil before
// the first.
func (r *PlacementReconciler) latestContent(ctx context.Context, b state.Bundle) (string, *atoll.Content, error) {
	latest, ok := r.Revisions.LatestOfBundle(b.Ref.UID)
	if !ok {
		return "", nil, nil
	}
	content, err := r.Revisions.GetContent(ctx, latest.Name)
	if err != nil {
		return "", nil, fmt.Errorf("bundle %s/%s: %w", b.Ref.Namespace, b.Ref.Name, err)
	}
	return latest.Name, content, nil
}

func (r *PlacementReconciler) isBundleOrNamespaceDeleting(b state.Bundle) bool {
	if b.Meta.DeletionTimestamp != nil {
		return true
	}
	ns, ok := r.Namespaces.Get(b.Ref.Namespace)
	return ok && ns.DeletionTimestamp != nil
}

// rowsInView returns the rows of the Bundle, or the touched rows of a partial view.
func (r *PlacementReconciler) rowsInView(uid string, v bundleView) []state.Row {
	if !v.isPartial {
		return r.Rows.ListOfBundle(uid)
	}
	out := make([]state.Row, 0, len(v.touchedClusters))
	for c := range v.touchedClusters {
		if row, ok := r.Rows.Get(uid, c); ok {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b state.Row) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// candidateClusters returns the clusters that can have a part in the Bundle, by name.
func (r *PlacementReconciler) candidateClusters(v bundleView, rows []state.Row) []schedule.Cluster {
	named := v.filter.NamedClusters()
	switch {
	case v.isComplete:
		named = slices.Collect(maps.Keys(v.touchedClusters))
	case v.reserve != nil:
		named = slices.AppendSeq(slices.Clone(v.reserve), maps.Keys(v.touchedClusters))
	case named == nil || v.explainAll:
		return v.fleet
	}
	for _, row := range rows {
		named = append(named, row.Cluster)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	return r.index.clustersNamed(named)
}

// stepParts are the clusters, rows and verdicts of a step.
type stepParts struct {
	clusters []schedule.Cluster
	rows     map[string]atoll.RowSpec
	decision schedule.Decision
	// hasTurns: rows may keep their revision until their turn in a rollout.
	hasTurns bool
}

// variantsOfAffectedClusters returns the variants of clusters whose rows may render differently: those below the
// target, touched clusters and new ones.
func variantsOfAffectedClusters(content *atoll.Content, target string, p stepParts, v bundleView) map[string]string {
	out := map[string]string{}
	if content == nil {
		return out
	}
	targets, verdicts := manifest.NewVariantCache(content), p.decision.Verdicts
	for i := range p.clusters {
		c := &p.clusters[i]
		// Both are sorted by name, and verdicts covers more clusters.
		for len(verdicts) > 0 && verdicts[0].Cluster < c.Name {
			verdicts = verdicts[1:]
		}
		row, has := p.rows[c.Name]
		if has && v.isUntouched(c, row) && rowMayStay(row, target, content) {
			continue
		}
		if !has && (len(verdicts) == 0 || verdicts[0].Cluster != c.Name || verdicts[0].Outcome == schedule.OutcomeOut) {
			continue
		}
		out[c.Name] = targets.VariantOf(c.ClusterView)
	}
	return out
}

// isUntouched reports whether a complete view has no reason to render the cluster's row again.
func (v *bundleView) isUntouched(c *schedule.Cluster, row atoll.RowSpec) bool {
	return v.isComplete && row.UID == c.UID && !v.touchedClusters[c.Name] && !strings.HasPrefix(row.Reason, string(atoll.ReasonRemovalHeld))
}

// rowMayStay reports whether the row need not move to the target revision.
func rowMayStay(row atoll.RowSpec, target string, content *atoll.Content) bool {
	return atoll.IsAcceptableRevision(row.Revision, target, minRevisionOf(content))
}

func minRevisionOf(content *atoll.Content) int64 {
	if content == nil {
		return 0
	}
	return content.MinRevision
}

// variantsOfStayingRows returns the variants of rows that may have to stay at their revision.
func (r *PlacementReconciler) variantsOfStayingRows(ctx context.Context, clusters []schedule.Cluster, rows map[string]atoll.RowSpec, mayStay func(cluster string) bool) (map[string]string, error) {
	out := map[string]string{}
	for _, c := range clusters {
		row, has := rows[c.Name]
		if !has || !mayStay(c.Name) {
			continue
		}
		content, err := r.Revisions.GetContent(ctx, row.Revision)
		if err != nil {
			return nil, err
		}
		_, out[c.Name] = manifest.MatchRules(content, c.ClusterView)
	}
	return out, nil
}

// deletionsByRevision lists, by the revisions of rows, what users deleted, or took back to the hub,
// between them and the target. Orphaned items stay in members.
func (r *PlacementReconciler) deletionsByRevision(ctx context.Context, target string, content *atoll.Content, rows map[string]atoll.RowSpec) (map[string][]string, error) {
	if content == nil || !slices.ContainsFunc(content.Tombstones, isRemoval) {
		return nil, nil
	}
	out := map[string][]string{}
	for _, row := range rows {
		if _, done := out[row.Revision]; done || row.Revision == target {
			continue
		}
		old, err := r.Revisions.GetContent(ctx, row.Revision)
		if err != nil {
			return nil, err
		}
		known := map[string]bool{}
		for _, t := range old.Tombstones {
			known[t.Key.String()+" "+t.UID] = true
		}
		list := []string{}
		for _, t := range content.Tombstones {
			if id := t.Key.String() + " " + t.UID; isRemoval(t) && !known[id] {
				list = append(list, id)
			}
		}
		slices.Sort(list)
		out[row.Revision] = list
	}
	return out, nil
}

func isRemoval(t atoll.Tombstone) bool {
	return (t.Cause == atoll.CauseDeleted || t.Cause == atoll.CauseHubOnly) && !t.Orphan
}

// BundlePreview is the outcome of a step that is not written.
type BundlePreview struct {
	Bundle   state.Bundle
	Rows     []state.Row
	Decision schedule.Decision
	Output   rollout.Output
}

// PreviewBundle returns the outcome for a Bundle as given: the table's, or one with another
// placement, removal or whenUnfit. It has a verdict on every cluster. Nothing is written.
func (r *PlacementReconciler) PreviewBundle(ctx context.Context, b state.Bundle) (BundlePreview, error) {
	p, _, err := r.previewWithInput(ctx, b)
	return p, err
}

func (r *PlacementReconciler) previewWithInput(ctx context.Context, b state.Bundle) (BundlePreview, *stepInput, error) {
	terms, err := r.termsOf(ctx, b)
	if err != nil {
		return BundlePreview{}, nil, err
	}
	c := r.index.compileTerms(terms)
	v := bundleView{filter: c.filter, placementHash: c.placementHash, failback: r.index.failbackOfBundle(b), explainAll: true, fleet: r.fleet}
	if v.fleet == nil {
		for _, c := range r.Clusters.List() {
			v.fleet = append(v.fleet, r.Views.ViewOf(c))
		}
		slices.SortFunc(v.fleet, func(a, b schedule.Cluster) int { return strings.Compare(a.Name, b.Name) })
	}
	snap, err := r.gatherStepInput(ctx, b, v)
	if err != nil {
		return BundlePreview{}, nil, err
	}
	r.ledgerMu.Lock()
	defer r.ledgerMu.Unlock()
	snap.rollout.ExplainWaits = true
	snap.rollout.Decision, _ = r.withFreeCapacity(snap.rollout.Decision, snap.rollout.Now)
	snap.rollout.RecentDeletes = r.ledger.CountDeletes(b.Ref.Namespace, snap.rollout.Now)
	snap.rollout.RecentlyRemoved = r.ledger.RemovedClusters(b.Ref.UID, snap.rollout.Now)
	out := rollout.AdvanceRows(snap.rollout)
	snap.setRequestedPods(out.Changes)
	return BundlePreview{Bundle: b, Rows: snap.baseRows, Decision: snap.rollout.Decision, Output: out}, &snap, nil
}
