package preview

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// Input is what is, and what would be, of every Bundle that would be touched.
type Input struct {
	Bundles []BundleChange
	// Placements of which what they publish may change.
	Placements []PlacementPlan
	// Refused and Unchecked writes, which have no part in what would be.
	Refused, Unchecked []Refusal
	// MayReadItem returns what items the asker may read, and Known what Bundles; nil: all.
	MayReadItem   func(atoll.ItemKey) bool
	MayKnowBundle func(policymatch.BundleID) bool
	// Views of clusters as they are and as they would be, by name.
	ViewsBefore, ViewsAfter map[string]atoll.ClusterView
	// Unplaced templates among those that would be written, and why.
	Unplaced []UnplacedTemplate
	// MoreBundles Bundles that were not looked at.
	MoreBundles int
	// Holding is why the hub holds after a rewind; empty: it does not.
	Holding string
	// DroppedChanges counts changes that could no longer be undone.
	DroppedChanges int
}

// BundleChange of one Bundle.
type BundleChange struct {
	ID     policymatch.BundleID
	Source v1alpha1.BundleSource
	New    bool
	// NewRevision: the revision is none that the Bundle has.
	NewRevision bool
	// Placement that it would have, and whether it has another.
	Placement       v1alpha1.PlacementSpec
	PlacementEdited bool
	// Suspension that it would have, and whether it has another; nil: nothing would be suspended.
	Suspension       *v1alpha1.Suspension
	SuspensionEdited bool
	// DisruptionBudget that it would have, and whether it has another; nil: none.
	DisruptionBudget *v1alpha1.DisruptionBudget
	BudgetEdited     bool
	// UnplacedDependencies are policies that an edit of dependsOn would name and that would place nothing.
	UnplacedDependencies []string
	// Revision that rows are to reach, and its content.
	Revision string
	Content  *atoll.Content
	// Contents of the revisions that rows are at, by name.
	Contents      map[string]*atoll.Content
	Before, After map[string]atoll.RowSpec
	Decision      schedule.Decision
	Held          *rollout.PendingRemoval
	Waiting       []rollout.RowWait
	// OldCopyWaits are of clusters that get the Bundle after an old copy has ended, by cluster name.
	OldCopyWaits map[string]rollout.RowWait
	// DisruptionWaits are of copies that a budget would keep, by cluster name.
	DisruptionWaits map[string]rollout.RowWait
	// Rollout is its first turn; nil: all rows change at once.
	Rollout *rollout.FirstTurn
	// RolloutEdit is which rollout it would have; nil: it would keep its own.
	RolloutEdit *RolloutEdit
	Short       []schedule.Shortage
	Problems    []bundlecontent.TemplateProblem
	// Waits is why nothing more is known.
	Waits       string
	WaitsReason atoll.Reason
}

// Plan is what would change.
type Plan struct {
	// Changes: something would.
	Changes bool         `json:"changes"`
	Bundles []BundlePlan `json:"bundles"`
	// Placements that would publish other clusters.
	Placements []PlacementPlan `json:"placements,omitempty"`
	// Hidden counts Bundles that would change and that the requesting user may not see.
	Hidden int `json:"hidden,omitempty"`
	// More Bundles were not looked at, since there are too many.
	More     int                `json:"more,omitempty"`
	Unplaced []UnplacedTemplate `json:"unplaced,omitempty"`
	// Refused objects: the hub would not take them.
	Refused []Refusal `json:"refused,omitempty"`
	// Unchecked objects were not offered to the hub's admission, and why.
	Unchecked []Refusal `json:"unchecked,omitempty"`
	// Notes on policies that came from another system. The command adds them, from the files.
	Notes []PolicyNote `json:"notes,omitempty"`
	// DroppedChanges counts kept changes that `atoll undo` could no longer take back.
	DroppedChanges int `json:"droppedChanges,omitempty"`
	// Holding is why the hub would carry nothing out now.
	Holding       string       `json:"holding,omitempty"`
	HoldingReason atoll.Reason `json:"holdingReason,omitempty"`
}

// Refusal of an object.
type Refusal struct {
	Object string       `json:"object"`
	Why    string       `json:"why"`
	Reason atoll.Reason `json:"reason,omitempty"`
}

// UnplacedTemplate is a template without a policy.
type UnplacedTemplate struct {
	Key    atoll.ItemKey `json:"key"`
	Why    string        `json:"why"`
	Reason atoll.Reason  `json:"reason,omitempty"`
}

// PlacementPlan of which the decisions that it publishes would change.
type PlacementPlan struct {
	// Namespace is empty for a ClusterPlacement.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Chosen counts the clusters that it would choose.
	Chosen  int      `json:"chosen"`
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// NoFit: no cluster would fit; what is chosen stays. Unmet is the minimum of the spread that could
	// not be had.
	NoFit bool   `json:"noFit,omitempty"`
	Unmet string `json:"unmet,omitempty"`
}

// BundlePlan that would change.
type BundlePlan struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Source such as "PropagationPolicy web".
	Source string `json:"source"`
	New    bool   `json:"new,omitempty"`
	// Rows that would change, those that change alike together, and how many would not.
	Rows      []RowGroup `json:"rows,omitempty"`
	Unchanged int        `json:"unchanged,omitempty"`
	// NoFit: no cluster would fit; what runs is kept. Unmet is the minimum of the spread that could
	// not be had.
	NoFit bool   `json:"noFit,omitempty"`
	Unmet string `json:"unmet,omitempty"`
	// Unfit clusters would get pods that do not fit in them now.
	Unfit []UnfitCluster `json:"unfit,omitempty"`
	// Full clusters: the capacity that they state would keep the Bundle out, or its row at
	// the revision that it is at.
	Full []FullCluster `json:"full,omitempty"`
	// Short workloads: not all of their replicas would have a place.
	Short []Shortage `json:"short,omitempty"`
	// Stays are the clusters that are drained, and would keep the Bundle from then on.
	Stays []StayingRow `json:"staysDrained,omitempty"`
	// OldCopies are what clusters would wait for before the Bundle starts there.
	OldCopies []OldCopyWait `json:"oldCopies,omitempty"`
	// KeptByBudget are copies that a budget would keep while the health of the other copies stays as it is now.
	KeptByBudget []BudgetWait `json:"keptByBudget,omitempty"`
	// StrictBudget describes an edited disruptionBudget that would let no copy go, even while all are available.
	StrictBudget string `json:"strictBudget,omitempty"`
	// Rollout is in which stages rows would change. Absent: all at once.
	Rollout *RolloutPlan `json:"rollout,omitempty"`
	// RolloutEdit is which rollout the Bundle would have. Absent: it would keep its own.
	RolloutEdit *RolloutEdit `json:"rolloutEdit,omitempty"`
	// Unweighed: no cluster that would be chosen has a static weight, and each would keep
	// the replicas that it has.
	Unweighed bool `json:"unweighed,omitempty"`
	// EvenDivision: no cluster that would be chosen has a static weight, and replicas would be
	// divided evenly.
	EvenDivision bool `json:"evenDivision,omitempty"`
	// Unknown clusters that the placement would name: there are none.
	Unknown []string `json:"unknown,omitempty"`
	// UnknownSuspended clusters that an edit of the suspension would name: there are none.
	UnknownSuspended []string `json:"unknownSuspended,omitempty"`
	// UnplacedDependencies are policies that an edit of dependsOn would name and that would place nothing.
	UnplacedDependencies []string `json:"unplacedDependencies,omitempty"`
	// OverridesLater lists clusters that would get other overrides with the next change of what is
	// sent, and not now.
	OverridesLater []string `json:"later,omitempty"`
	// Frozen items would have no policy any more, and stay at their last content.
	Frozen []string `json:"frozen,omitempty"`
	// Held removals would wait for a confirmation.
	Held []string `json:"held,omitempty"`
	// Problems with items that could not be sent.
	Problems []Refusal `json:"problems,omitempty"`
	// WorkloadAffinity has the terms of workloadAffinity that do nothing, and what the terms refuse.
	WorkloadAffinity []string     `json:"workloadAffinity,omitempty"`
	Waits            string       `json:"waits,omitempty"`
	WaitsReason      atoll.Reason `json:"waitsReason,omitempty"`
}

// FullCluster is a cluster whose stated capacity is used up.
type FullCluster struct {
	Cluster string `json:"cluster"`
	// RowStays: the Bundle has a row there, which would stay as it is.
	RowStays bool         `json:"stays,omitempty"`
	Reason   atoll.Reason `json:"reason"`
	Why      string       `json:"why"`
}

// StayingRow is a cluster that is drained and keeps its row.
type StayingRow struct {
	Cluster string       `json:"cluster"`
	Reason  atoll.Reason `json:"reason"`
	Why     string       `json:"why"`
}

// Shortage is a divided workload.
type Shortage struct {
	Item     string `json:"item"`
	Replicas int64  `json:"replicas"`
	Unplaced int64  `json:"unplaced"`
	// Fit is when the others fit, where this is known.
	Fit string `json:"fit,omitempty"`
}

// ChangeKind is what would become of a row.
type ChangeKind string

// The changes.
const (
	ChangeAdded   ChangeKind = "Added"
	ChangeRemoved ChangeKind = "Removed"
	ChangeChanged ChangeKind = "Changed"
)

// RowGroup of a Bundle in each of some clusters in which the same would become of it.
type RowGroup struct {
	// Clusters by name; at least one.
	Clusters []string   `json:"clusters"`
	Change   ChangeKind `json:"change"`
	// Why the cluster is chosen or left.
	Why    string       `json:"why,omitempty"`
	Reason atoll.Reason `json:"reason,omitempty"`
	// Orphaned: what is removed is only forgotten.
	Orphaned bool `json:"orphaned,omitempty"`
	// Stays lists what is only forgotten of a row whose other objects are deleted, and Hooks the hooks that its removal runs.
	Stays []string `json:"stays,omitempty"`
	Hooks []string `json:"hooks,omitempty"`
	// Waits is true when something waits even if all connected clusters follow their orders.
	Waits       string       `json:"waits,omitempty"`
	WaitsReason atoll.Reason `json:"waitsReason,omitempty"`
	// Replicas assigned, by item, where they would change.
	Replicas map[string]ReplicaChange `json:"replicas,omitempty"`
	// Items that would come, change or go in a cluster that stays.
	Items []ItemChange `json:"items,omitempty"`
}

// ReplicaChange before and after; nil: there is no such share.
type ReplicaChange struct {
	Before *int64 `json:"before,omitempty"`
	After  *int64 `json:"after,omitempty"`
}

// ItemChange that would change in one cluster.
type ItemChange struct {
	Key    atoll.ItemKey `json:"key"`
	Change ChangeKind    `json:"change"`
	Fields []FieldChange `json:"fields,omitempty"`
	// Released lists fields that would be left to the member, and Corrected those that would no longer
	// be, as JSON Pointers.
	Released  []string `json:"released,omitempty"`
	Corrected []string `json:"corrected,omitempty"`
	// Observe is what the cluster would report of the object instead of writing it. Written: it would
	// write an object that it only observes now.
	Observe atoll.Observation `json:"observe,omitempty"`
	Written bool              `json:"written,omitempty"`
	// ConflictBefore and ConflictAfter are the item's own resolutions of conflicts, where they differ; empty: that
	// of the policy.
	ConflictBefore v1alpha1.ConflictResolution `json:"conflictBefore,omitempty"`
	ConflictAfter  v1alpha1.ConflictResolution `json:"conflictAfter,omitempty"`
	// ServiceAccountBefore and ServiceAccountAfter are the ServiceAccounts of the member whose rights count for the
	// object, where they differ, and After also for a new object; empty: the agent's rights alone.
	ServiceAccountBefore string `json:"serviceAccountBefore,omitempty"`
	ServiceAccountAfter  string `json:"serviceAccountAfter,omitempty"`
	// Reassessed: other rules of feedback, health or completion would judge the object.
	Reassessed bool `json:"reassessed,omitempty"`
	// Recreate: a cluster that refuses the edit deletes the object and creates it again.
	Recreate bool `json:"recreate,omitempty"`
	// WaveBefore and WaveAfter are the waves of the object, where they differ, and After also for a new object.
	WaveBefore int32 `json:"waveBefore,omitempty"`
	WaveAfter  int32 `json:"waveAfter,omitempty"`
	// HookBefore and HookAfter are the events in which clusters run the object, where they differ, and After also for a
	// new object.
	HookBefore string `json:"hookBefore,omitempty"`
	HookAfter  string `json:"hookAfter,omitempty"`
	// HookRuns: the object is a hook that the changed content of the Bundle runs again.
	HookRuns bool `json:"hookRuns,omitempty"`
	// Error is why it could not be rendered: the cluster would keep what it has.
	Error       string       `json:"error,omitempty"`
	ErrorReason atoll.Reason `json:"errorReason,omitempty"`
}

// BuildPlan compares what is with what would be, what changes.
func BuildPlan(in Input) Plan {
	p := Plan{Bundles: []BundlePlan{}, More: in.MoreBundles, Holding: in.Holding, DroppedChanges: in.DroppedChanges, Refused: in.Refused, Unchecked: in.Unchecked}
	if p.Holding != "" {
		p.HoldingReason = atoll.ReasonHubHolds
	}
	for _, u := range in.Unplaced {
		if in.mayReadItem(u.Key) {
			p.Unplaced = append(p.Unplaced, u)
		}
	}
	slices.SortFunc(p.Unplaced, func(a, b UnplacedTemplate) int { return a.Key.Compare(b.Key) })
	for i := range in.Bundles {
		p.addBundle(&in, &in.Bundles[i])
	}
	slices.SortFunc(p.Bundles, func(a, b BundlePlan) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, pl := range in.Placements {
		if changes := len(pl.Added)+len(pl.Removed) > 0; changes || pl.NoFit {
			p.Placements, p.Changes = append(p.Placements, pl), p.Changes || changes
		}
	}
	slices.SortFunc(p.Placements, func(a, b PlacementPlan) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return p
}

// isShown reports whether the plan of the Bundle has something to show.
func (b *BundlePlan) isShown(placementEdited bool) bool {
	return len(b.Rows)+len(b.StrictBudget)+len(b.UnknownSuspended)+len(b.UnplacedDependencies)+len(b.Stays)+len(b.Held)+len(b.Problems)+len(b.OverridesLater)+len(b.Frozen) > 0 ||
		placementEdited && (b.Unweighed || b.EvenDivision || len(b.Unknown) > 0) || b.Waits != "" || b.NoFit || b.RolloutEdit != nil || b.hasBlockedRow()
}

// addBundle adds the plan of one Bundle, if it has something to show. A Bundle that the user must not
// see is only counted.
func (p *Plan) addBundle(in *Input, c *BundleChange) {
	b := (&bundleComparison{in: in, BundleChange: c, itemsByHashes: map[string][]ItemChange{}, renderers: map[*atoll.Content]*manifest.Renderer{}, rendered: map[string]renderedRow{}}).compareBundle()
	switch {
	case !b.isShown(c.PlacementEdited):
	case in.MayKnowBundle != nil && !in.MayKnowBundle(c.ID):
		p.Hidden++
		p.Changes = p.Changes || len(b.Rows) > 0
	default:
		p.Bundles = append(p.Bundles, b)
		p.Changes = p.Changes || len(b.Rows) > 0
	}
}

func (in *Input) mayReadItem(key atoll.ItemKey) bool {
	return in.MayReadItem == nil || in.MayReadItem(key)
}

// bundleComparison of one Bundle.
type bundleComparison struct {
	*BundleChange
	in *Input
	// itemsByHashes comparisons of rows, by what is rendered on both sides.
	itemsByHashes map[string][]ItemChange
	// renderers of contents, and rendered rows, by what they are rendered from.
	renderers map[*atoll.Content]*manifest.Renderer
	rendered  map[string]renderedRow
}

// renderedRow of a comparison: what a row renders, and a hash of it; empty where there is none.
type renderedRow struct {
	items []atoll.RenderedItem
	hash  string
}

func (c *bundleComparison) compareBundle() BundlePlan {
	b := BundlePlan{
		Namespace: c.ID.Namespace, Name: c.ID.Name, Source: c.Source.Kind + " " + c.Source.Name, New: c.New,
		NoFit: c.Decision.NoFit && c.Content != nil && len(c.Content.Items) > 0, Unmet: c.Decision.UnmetSpread, Waits: c.Waits, WaitsReason: c.WaitsReason,
	}
	for _, p := range c.Problems {
		shown := Refusal{"an object", "cannot be sent; an Event on it would have the reason", atoll.ReasonCannotSend}
		switch {
		case p.Key.Kind == "":
			shown.Object, shown.Why = "its content", p.Err.Error()
		case c.in.mayReadItem(p.Key) && !p.Key.IsSecret():
			shown.Object, shown.Why = p.Key.Kind+"/"+p.Key.Name, p.Err.Error()
		}
		b.Problems = append(b.Problems, shown)
	}
	b.WorkloadAffinity = explainWorkloadAffinity(&c.Decision, c.in.MayReadItem)
	b.Held = c.visibleHeldRemovals()
	c.addShortages(&b)
	b.Unweighed, b.Unknown, b.Frozen = c.Decision.KeepsReplicasWithoutWeights(), c.unknownClusters(), c.itemsLosingPlacement()
	b.UnknownSuspended, b.UnplacedDependencies = c.unknownSuspendedClusters(), c.UnplacedDependencies
	b.EvenDivision, b.RolloutEdit = c.Decision.FallsBackToEvenDivision(), c.RolloutEdit
	c.addRows(&b)
	b.OldCopies, b.KeptByBudget, b.StrictBudget = c.oldCopyWaits(), c.budgetWaits(), c.describeStrictBudget()
	if len(b.Rows) > 0 {
		b.Rollout = newRolloutPlan(c.Rollout)
	}
	return b
}

// addRows compares the rows, and lists those that change alike together.
func (c *bundleComparison) addRows(b *BundlePlan) {
	waits := map[string]rollout.RowWait{}
	for _, w := range c.Waiting {
		if w.Actor == atoll.ActorConfirmer && len(b.Held) > 0 {
			w.For = "a confirmation" // of a plan that is none yet: Held has its objects
		}
		waits[w.Cluster] = w
	}
	clusters := map[string]atoll.RowSpec{}
	maps.Copy(clusters, c.Before)
	maps.Copy(clusters, c.After)
	alike, seesAll := map[string]int{}, c.mayReadAll()
	for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
		row, items, changes := c.compareRow(cluster)
		if !changes {
			b.Unchanged++
			if c.lacksNewerOverrides(cluster) {
				b.OverridesLater = append(b.OverridesLater, cluster)
			}
			continue
		}
		if seesAll {
			row.Waits, row.WaitsReason = waits[cluster].For, waits[cluster].Reason
		}
		short := row
		short.Items = nil // items has their keys
		key := atoll.HashJSON(short) + items
		at, known := alike[key]
		if !known {
			at = len(b.Rows)
			alike[key], b.Rows = at, append(b.Rows, row)
		}
		b.Rows[at].Clusters = append(b.Rows[at].Clusters, cluster)
	}
}

// addShortages lists what has no place.
func (c *bundleComparison) addShortages(b *BundlePlan) {
	for _, v := range c.Decision.Verdicts {
		n := v.Notes()
		switch {
		case n.CapacityReason != "":
			b.Full = append(b.Full, FullCluster{v.Cluster, true, atoll.ReasonNoCapacity, n.CapacityReason})
		case v.Outcome == schedule.OutcomeOut && v.Filter == schedule.FilterCapacity:
			b.Full = append(b.Full, FullCluster{v.Cluster, false, v.ReasonCode(), v.Reason})
		}
		c.addUnfitCluster(b, &v)
		if n.DrainReason != "" && atoll.ParseRowReason(c.Before[v.Cluster].Reason).Reason != n.DrainReason {
			b.Stays = append(b.Stays, StayingRow{v.Cluster, n.DrainReason, c.Decision.HideMembers(n.DrainText, c.in.MayReadItem)})
		}
	}
	for _, s := range c.Short {
		if c.in.mayReadItem(s.Key) {
			b.Short = append(b.Short, Shortage{s.Key.Kind + "/" + s.Key.Name, s.Replicas, s.Unplaced, s.Fit})
		}
	}
}

// hasBlockedRow reports whether a row would not follow, because capacity is missing.
func (b *BundlePlan) hasBlockedRow() bool {
	return slices.ContainsFunc(b.Full, func(f FullCluster) bool { return f.RowStays })
}

// mayReadAll reports whether the asker may read all that the Bundle would hold or remove.
func (c *bundleComparison) mayReadAll() bool {
	if c.Content == nil {
		return true
	}
	return !slices.ContainsFunc(c.Content.Items, func(i atoll.Item) bool { return !c.in.mayReadItem(i.Key) }) &&
		!slices.ContainsFunc(c.Content.Tombstones, func(t atoll.Tombstone) bool { return !c.in.mayReadItem(t.Key) })
}

// isAbsentHeldOrLeaving reports whether a row is on its way out, or out already.
func isAbsentHeldOrLeaving(row atoll.RowSpec, has bool) bool {
	return !has || row.Phase == atoll.RowRemoving || row.Phase == atoll.RowLeaving || row.Phase == atoll.RowHeld
}

// changeRemovesCluster reports whether the Cluster is there and would not be.
func (c *bundleComparison) changeRemovesCluster(cluster string) bool {
	_, was := c.in.ViewsBefore[cluster]
	_, is := c.in.ViewsAfter[cluster]
	return was && !is
}

// compareRow compares a row of a cluster, without its name; items compares Items.
func (c *bundleComparison) compareRow(cluster string) (out RowGroup, items string, changes bool) {
	was, had := c.Before[cluster]
	had = had && was.Phase != atoll.RowPending // nothing of it is in the cluster
	is, has := c.After[cluster]
	if v, ok := c.Decision.FindVerdict(cluster); ok && v.Reason != "" {
		out.Why, out.Reason = c.Decision.HideMembers(v.Reason, c.in.MayReadItem), v.ReasonCode()
	}
	if c.changeRemovesCluster(cluster) {
		out.Why, out.Reason = "its Cluster would be gone; what runs there is given up", atoll.ReasonClusterDeleted
	}
	switch gone, goes := isAbsentHeldOrLeaving(was, had), isAbsentHeldOrLeaving(is, has); {
	case gone && goes:
		return out, "", false
	case goes:
		c.addRemoval(&out, was)
		return out, "", true
	case gone:
		out.Change, out.Why, out.Reason, out.Replicas = ChangeAdded, "", "", c.replicaChanges(atoll.RowSpec{}, is)
		if v, _ := c.Decision.FindVerdict(cluster); v.OverflowStep > 0 {
			out.Why, out.Reason = "it takes replicas that have no place in the chosen clusters", v.ReasonCode()
		}
		out.Items, items = c.itemChanges(cluster, nil, &is)
		return out, items, true
	}
	out.Change, out.Replicas = ChangeChanged, c.replicaChanges(was, is)
	out.Items, items = c.itemChanges(cluster, &was, &is)
	return out, items, len(out.Replicas)+len(out.Items) > 0
}

func (c *bundleComparison) replicaChanges(was, is atoll.RowSpec) (out map[string]ReplicaChange) {
	for item := range was.Assigned {
		c.addReplicaChange(&out, item, was, is)
	}
	for item := range is.Assigned {
		c.addReplicaChange(&out, item, was, is)
	}
	return out
}

func (c *bundleComparison) addReplicaChange(out *map[string]ReplicaChange, item string, was, is atoll.RowSpec) {
	key, err := atoll.ParseItemKey(item)
	before, had := was.Assigned[item]
	after, has := is.Assigned[item]
	if err != nil || !c.in.mayReadItem(key) || had && has && before == after {
		return
	}
	var r ReplicaChange
	if had {
		r.Before = &before
	}
	if has {
		r.After = &after
	}
	if *out == nil {
		*out = map[string]ReplicaChange{}
	}
	(*out)[item] = r
}

// itemChanges returns the changes that a row would change in its cluster, and what they follow from. Rows that render
// the same on both sides share the result.
func (c *bundleComparison) itemChanges(cluster string, was, is *atoll.RowSpec) ([]ItemChange, string) {
	before := c.renderRow(was, c.in.ViewsBefore[cluster])
	after := c.renderRow(is, c.in.ViewsAfter[cluster])
	key := before.hash + " " + after.hash
	out, ok := c.itemsByHashes[key]
	if !ok {
		out = c.compareItems(before.items, after.items)
		c.itemsByHashes[key] = out
	}
	return out, key
}

// renderRow renders a row as it is rendered for its cluster.
func (c *bundleComparison) renderRow(row *atoll.RowSpec, view atoll.ClusterView) renderedRow {
	if row == nil {
		return renderedRow{}
	}
	content := c.contentOf(row)
	if content == nil {
		return renderedRow{}
	}
	renderer := c.renderers[content]
	if renderer == nil {
		renderer = manifest.NewRenderer(content)
		c.renderers[content] = renderer
	}
	rules, variant := renderer.MatchRules(&view)
	key := row.RenderKey(variant) + atoll.HashJSON(rules)
	if known, ok := c.rendered[key]; ok {
		return known
	}
	items, _ := renderer.RenderItems(manifest.RenderInputOf(*row, rules, &view))
	hashes := make([]string, 0, 4*len(items))
	for i := range items {
		hashes = append(hashes, items[i].Key.String(), items[i].Hash, items[i].Error, string(items[i].ConflictResolution), items[i].Assessment.ID(), strconv.Itoa(int(items[i].Wave)), items[i].Hook.ID())
	}
	out := renderedRow{items, atoll.HashJSON(append(hashes, manifest.NameHookRun(items)))}
	c.rendered[key] = out
	return out
}
