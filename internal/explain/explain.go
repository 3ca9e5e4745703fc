package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/render"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// Input is a snapshot of all that is known of one object.
type Input struct {
	// Object that was asked about. Of a Bundle, a policy or a Namespace whole Bundles
	// are explained: itself, those that the policy makes, that of its annotation.
	Object atoll.ItemKey
	// Version of the object's kind, such as "v1".
	Version string
	// Exists: the hub has such an object.
	Exists bool
	// DeletedAt is when somebody deleted it; nil: nobody did, or it is gone.
	DeletedAt *time.Time
	// Claim on the template; nil for what cannot be placed, or does not exist.
	Claim *Claim
	// Policy that was asked about; nil: it was another object, or there is none.
	Policy *Policy
	// Chosen is what the Placement that was asked about chooses; nil: it was another object.
	Chosen *Chosen
	// Barred: the object's namespace may place on no cluster.
	Barred bool
	// Bundles that hold the object, or are to hold it.
	Bundles []Bundle
	// MoreBundles that are not among them.
	MoreBundles int
	// Annotation of the object's namespace, or of the Namespace that was asked about.
	Annotation string
	// Skipped lists what that annotation leaves out.
	Skipped []Skipped
	// Holding is why the hub holds after a rewind; empty: it does not.
	Holding string
	// Interpreters of the hub; nil: none.
	Interpreters *script.Library
	// Failures of scripts that the hub asks about the object.
	Failures []Failure
	// Visible tells what the asker may read; nil: everything.
	Visible func(atoll.ItemKey) bool
	Now     time.Time
}

// Claim is who places a template, and why.
type Claim struct {
	// Winner; nil when nobody places it.
	Winner *Candidate `json:"winner,omitempty"`
	// Why the winner won, or why there is none.
	Why string `json:"why"`
	// Others that select the object too, best first.
	Others []Candidate `json:"others,omitempty"`
	// Waits says why the winner has made nothing of it yet, where that takes long.
	Waits string `json:"waits,omitempty"`
	// Skipped says why the namespace's annotation leaves the object out.
	Skipped string `json:"skipped,omitempty"`
	// NeededBy names the Bundles that take the object along as a dependency.
	NeededBy []string `json:"neededBy,omitempty"`
}

// Candidate is a policy or annotation that selects the object.
type Candidate struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Priority int32  `json:"priority,omitempty"`
	// Matched says by what it selects the object.
	Matched string `json:"matched,omitempty"`
	// Lost says why it did not win.
	Lost string `json:"lost,omitempty"`
}

// Policy that places objects.
type Policy struct {
	// Selects has a text for each resource selector, such as "Deployment web".
	Selects []string `json:"selects,omitempty"`
	// Problem why it does not place what it selects; empty: it does, or selects nothing.
	Problem string `json:"problem,omitempty"`
}

// Skipped is a template that its namespace's annotation leaves out.
type Skipped struct {
	Key atoll.ItemKey `json:"key"`
	Why string        `json:"why"`
}

// Bundle is what is known of one Bundle.
type Bundle struct {
	Ref     enginev1.BundleRef
	Spec    v1alpha1.BundleSpec
	Status  v1alpha1.BundleStatus
	Content *atoll.Content // of the latest Revision; nil before the first
	// Latest Revision's name, and the numbers of all that rows are at.
	Latest  string
	Numbers map[string]int64
	// Rebalance is when somebody last asked that it be placed from scratch; zero: never.
	Rebalance time.Time
	Rows      map[string]rollout.Row
	// Away is since when clusters that hold rows have been away, as far as known.
	Away map[string]time.Time
	// Kept is what keeps the agents that the hub runs itself, by cluster.
	Kept map[string]string
	// Created is when the Bundle was made; zero: not known.
	Created time.Time
	// Decision over the whole fleet, and the next step.
	Decision schedule.Decision
	Output   rollout.Output
	// Provenance of the items by cluster.
	Provenance map[string][]render.Provenance
}

// Explanation of one object.
type Explanation struct {
	Kind      string `json:"kind"`
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Verdict is all of it in a sentence.
	Verdict string `json:"verdict"`
	Exists  bool   `json:"exists"`
	// DeletedAt is when somebody deleted it; it goes when the clusters let go.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// Holding is why the whole hub issues nothing.
	Holding string              `json:"holding,omitempty"`
	Claim   *Claim              `json:"claim,omitempty"`
	Policy  *Policy             `json:"policy,omitempty"`
	Chosen  *ChosenExplanation  `json:"chosen,omitempty"`
	Bundles []BundleExplanation `json:"bundles,omitempty"`
	// Failures of scripts that the hub asks about the object.
	Failures []Failure `json:"failures,omitempty"`
	// MoreBundles of a policy are there and not explained.
	MoreBundles int `json:"moreBundles,omitempty"`
	// Annotation of the namespace, and what it leaves out, by key.
	Annotation string    `json:"annotation,omitempty"`
	Skipped    []Skipped `json:"skipped,omitempty"`

	now    time.Time
	barred bool
}

// BundleExplanation is about one Bundle.
type BundleExplanation struct {
	Namespace string                 `json:"namespace,omitempty"`
	Name      string                 `json:"name"`
	UID       string                 `json:"uid"`
	Source    v1alpha1.BundleSource  `json:"source"`
	Placement v1alpha1.PlacementSpec `json:"placement"`
	WhenUnfit v1alpha1.WhenUnfit     `json:"whenUnfit"`
	Removal   v1alpha1.Removal       `json:"removal"`
	// Revision that rows are to reach, and its number.
	Revision string `json:"revision,omitempty"`
	Number   int64  `json:"number,omitempty"`
	// Items of it that the asker may read.
	Items int `json:"items"`
	// Item says what the object is to the Bundle: empty for a whole Bundle.
	Item string `json:"item,omitempty"`
	// Interpreters that say something of the object, by name.
	Interpreters []Interpreter `json:"interpreters,omitempty"`
	// WaitsFor is what the Bundle waits for and who is to act, and since when, as far as
	// that is known.
	WaitsFor   string     `json:"waitsFor,omitempty"`
	WaitsSince *time.Time `json:"waitsSince,omitempty"`
	// NoFit: no cluster fits the placement, or Unmet says which minimum of its spread
	// cannot be had. Nowhere: it names none, on purpose.
	NoFit   bool   `json:"noFit,omitempty"`
	Unmet   string `json:"unmet,omitempty"`
	Nowhere bool   `json:"nowhere,omitempty"`
	// Choice among the clusters that fit; nil where all of them are taken.
	Choice *Choice `json:"choice,omitempty"`
	// Affinities are the groups of clusterAffinities, in order of preference.
	Affinities []schedule.AffinityGroup `json:"affinities,omitempty"`
	// Group of clusterAffinities that is in use, and the earlier one that is to be used
	// again, from when on if it stays well; without a time it is not well now.
	Group     string     `json:"group,omitempty"`
	FailsBack bool       `json:"failsBack,omitempty"`
	Better    string     `json:"better,omitempty"`
	BetterAt  *time.Time `json:"betterAt,omitempty"`
	// Rebalance that was asked for last; nil: none was.
	Rebalance *Rebalance `json:"rebalance,omitempty"`
	// Holders are the clusters that have yet to confirm that the object, which was
	// deleted or moved away, is gone there.
	Holders []string `json:"holders,omitempty"`
	// Plan that waits for a confirmation, and since when.
	Plan      *rollout.Plan `json:"plan,omitempty"`
	PlanSince *time.Time    `json:"planSince,omitempty"`
	// Short workloads: not all of their replicas have a place.
	Short []Short `json:"short,omitempty"`
	// Unweighed: no chosen cluster has a static weight, and each keeps the replicas it has.
	Unweighed bool `json:"unweighed,omitempty"`
	// Unknown clusters that the placement names: there are none that the asker may know of.
	Unknown []string `json:"unknown,omitempty"`
	// Clusters of the fleet, and rows of clusters that are gone, by name.
	Clusters []ClusterExplanation `json:"clusters"`
}

// Short is a divided workload of which not all replicas have a place.
type Short struct {
	Item     string `json:"item"`
	Replicas int64  `json:"replicas"`
	Unplaced int64  `json:"unplaced"`
}

// ClusterExplanation is about the Bundle in one cluster.
type ClusterExplanation struct {
	Cluster string           `json:"cluster"`
	Verdict schedule.Outcome `json:"verdict"`
	// Filter that refuses the cluster, and why.
	Filter string `json:"filter,omitempty"`
	Reason string `json:"reason,omitempty"`
	// EvictAt is when a NoExecute taint takes it out.
	EvictAt *time.Time `json:"evictAt,omitempty"`
	// Weight in divisions.
	Weight int64 `json:"weight,omitempty"`
	// Bounds of its share of each divided workload.
	MinReplicas int64 `json:"minReplicas,omitempty"`
	MaxReplicas int64 `json:"maxReplicas,omitempty"`
	// Room for more replicas, by item, where that matters and is known.
	Room map[string]int64 `json:"room,omitempty"`
	// RoomUnknown: it matters and nobody knows it.
	RoomUnknown bool `json:"roomUnknown,omitempty"`
	// Capacity that the cluster states, and what of it Bundles use, this one among them;
	// of clusters that hold it or are to.
	Capacity []schedule.Bound `json:"capacity,omitempty"`
	// Score among the clusters that were chosen from, and Group among the decision groups;
	// nil and empty where none was chosen, or it is in none.
	Score *Score `json:"score,omitempty"`
	Group string `json:"group,omitempty"`
	// Row; nil where there is none.
	Row *RowExplanation `json:"row,omitempty"`
	// Overrides that set fields of the object (of all items, for a whole Bundle).
	Overrides []Override `json:"overrides,omitempty"`
}

// RowExplanation is about one row.
type RowExplanation struct {
	Phase      atoll.RowPhase `json:"phase"`
	Reason     string         `json:"reason,omitempty"`
	Revision   string         `json:"revision"`
	Number     int64          `json:"number,omitempty"`
	Generation int64          `json:"generation"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// Replicas assigned, by item.
	Assigned map[string]int64 `json:"assigned,omitempty"`
	// Ordinals are where the ranges of StatefulSets begin, by item.
	Ordinals map[string]int64 `json:"ordinals,omitempty"`
	Orphan   bool             `json:"orphan,omitempty"`
	Online   bool             `json:"online"`
	// AwaySince is since when the cluster is not online, as far as known.
	AwaySince *time.Time `json:"awaySince,omitempty"`
	// AgentKept is what keeps the cluster's agent, where the hub runs it.
	AgentKept string `json:"agentKept,omitempty"`
	// CheckIn says how often the cluster checks in, and when it will; empty for one
	// that holds a stream, or is not online.
	CheckIn string `json:"checkIn,omitempty"`
	// State that the agent reported, of which generation, since when.
	State      atoll.RowState `json:"state,omitempty"`
	Reported   int64          `json:"reported,omitempty"`
	StateSince *time.Time     `json:"stateSince,omitempty"`
	// Health of the object there, and what is wrong with it. What is Healthy with a
	// problem is at its last good content.
	Health  atoll.Health `json:"health,omitempty"`
	Problem string       `json:"problem,omitempty"`
	// Next is what the next step does with the row; empty: nothing.
	Next string `json:"next,omitempty"`
	// OverridesWait: there are newer overrides, which the row gets with the next change.
	OverridesWait bool `json:"overridesWait,omitempty"`
	// WaitsFor, who is to act, and since when; empty when it is done.
	WaitsFor   string     `json:"waitsFor,omitempty"`
	Who        string     `json:"who,omitempty"`
	WaitsSince *time.Time `json:"waitsSince,omitempty"`
}

// Explain joins what is known.
func Explain(in Input) Explanation {
	e := Explanation{
		Kind: in.Object.Kind, Group: in.Object.Group, Version: in.Version, Namespace: in.Object.Namespace, Name: in.Object.Name,
		MoreBundles: in.MoreBundles, Exists: in.Exists, DeletedAt: in.DeletedAt, Holding: in.Holding, Claim: in.Claim, Policy: in.Policy, Chosen: in.chosen(), Annotation: in.Annotation,
		Failures: in.Failures, now: in.Now, barred: in.Barred,
	}
	for _, s := range in.Skipped {
		if in.sees(s.Key) {
			e.Skipped = append(e.Skipped, s)
		}
	}
	slices.SortFunc(e.Skipped, func(a, b Skipped) int { return a.Key.Compare(b.Key) })
	for _, b := range in.Bundles {
		e.Bundles = append(e.Bundles, in.bundle(b))
	}
	e.Verdict = e.verdict()
	return e
}

// Only the cluster; false when it has no part in anything.
func (e Explanation) Only(cluster string) (Explanation, bool) {
	found := false
	bundles := slices.Clone(e.Bundles)
	for i := range bundles {
		bundles[i].Clusters = slices.DeleteFunc(slices.Clone(bundles[i].Clusters), func(c ClusterExplanation) bool { return c.Cluster != cluster })
		found = found || len(bundles[i].Clusters) > 0
	}
	e.Bundles = bundles
	if e.Chosen != nil {
		one := *e.Chosen
		one.Decision.Clusters = slices.DeleteFunc(slices.Clone(one.Decision.Clusters), func(c ClusterExplanation) bool { return c.Cluster != cluster })
		found = found || len(one.Decision.Clusters) > 0
		e.Chosen = &one
	}
	return e, found
}

func (in Input) sees(key atoll.ItemKey) bool { return in.Visible == nil || in.Visible(key) }

// seesAll tells whether the asker may read all that the Bundle holds or removes.
func (in Input) seesAll(b Bundle) bool {
	if b.Content == nil {
		return true
	}
	hidden := slices.ContainsFunc(b.Content.Items, func(i atoll.Item) bool { return !in.sees(i.Key) }) ||
		slices.ContainsFunc(b.Content.Tombstones, func(t atoll.Tombstone) bool { return !in.sees(t.Key) })
	return !hidden
}

// whole tells whether whole Bundles were asked about.
func (in Input) whole() bool {
	return in.Object.Group == v1alpha1.GroupVersion.Group || in.space()
}

// space tells whether a Namespace was asked about.
func (in Input) space() bool { return in.Object.Group == "" && in.Object.Kind == "Namespace" }

// about tells whether the Bundle is one of those that were asked about, rather than
// one that merely holds the object.
func (in Input) about(b Bundle) bool { return in.whole() && (!in.space() || b.Ref.Namespace != "") }

func (in Input) bundle(b Bundle) BundleExplanation {
	out := BundleExplanation{
		Namespace: b.Ref.Namespace, Name: b.Ref.Name, UID: b.Ref.UID, Source: b.Spec.Source,
		Placement: b.Spec.Placement, WhenUnfit: b.Spec.WhenUnfit, Removal: b.Spec.Removal,
		Revision: b.Latest, Number: b.Numbers[b.Latest], NoFit: b.Decision.NoFit, Item: in.item(b),
		Rebalance: rebalance(b), Interpreters: in.interpreters(b),
	}
	out.Nowhere = atoll.IsNowhere(b.Spec.Placement)
	out.Group, out.FailsBack, out.Better = b.Decision.Group, b.Decision.FailsBack, b.Decision.Better.Group
	if out.Better != "" && !b.Decision.BetterAt.IsZero() {
		out.BetterAt = &b.Decision.BetterAt
	}
	if b.Content != nil {
		for _, i := range b.Content.Items {
			if in.sees(i.Key) {
				out.Items++
			}
		}
		out.Holders = in.holders(b)
	}
	all := in.seesAll(b)
	if out.Plan = b.Output.Plan; out.Plan != nil && !all {
		out.Plan = &rollout.Plan{Hash: out.Plan.Hash, Lines: []string{fmt.Sprintf("%d removals, of items that you may not all read", len(out.Plan.Lines))}}
	}
	if all {
		out.WaitsFor = b.Status.WaitsFor
	}
	out.Unweighed, out.Unknown = b.Decision.Unweighed(), unknown(b)
	out.WaitsSince, out.PlanSince = b.waitsSince(), b.planSince()
	out.Unmet, out.Choice, out.Affinities = b.Decision.Unmet, choiceOf(b.Decision.Choice), b.Decision.Groups
	for _, s := range b.Output.Short {
		if in.sees(s.Key) && (in.about(b) || s.Key == in.Object) {
			out.Short = append(out.Short, Short{Item: s.Key.Kind + "/" + s.Key.Name, Replicas: s.Replicas, Unplaced: s.Unplaced})
		}
	}
	waits := map[string]rollout.Wait{}
	for _, w := range b.Output.Waits {
		waits[w.Cluster] = w
	}
	for _, v := range b.Decision.Verdicts {
		c := ClusterExplanation{
			Cluster: v.Cluster, Verdict: v.Outcome, Filter: v.Filter, Reason: v.Reason, Score: scoreOf(v), Group: v.Group,
			Weight: v.Weight, MinReplicas: v.Bounds.Min, MaxReplicas: v.Bounds.Max, Capacity: b.Decision.Bounds(v.Cluster),
		}
		if !v.EvictAt.IsZero() {
			c.EvictAt = &v.EvictAt
		}
		if v.Outcome == schedule.Placed && b.Decision.UsesRoom() {
			c.Room, c.RoomUnknown = in.room(b, v.Cluster)
		}
		if row, ok := b.Rows[v.Cluster]; ok {
			c.Row = in.row(b, v.Cluster, row, all)
			if w := waits[v.Cluster]; w.For != "" {
				c.Row.WaitsFor, c.Row.Who, c.Row.WaitsSince = w.For, w.Who, &w.Since
				if !all {
					c.Row.WaitsFor = in.discreet(row, w)
				}
			}
		}
		c.Overrides = in.overrides(b, b.Provenance[v.Cluster])
		out.Clusters = append(out.Clusters, c)
	}
	return out
}

// room for more of the items that were asked about.
func (in Input) room(b Bundle, cluster string) (out map[string]int64, unknown bool) {
	fit, known := b.Decision.Room(cluster)
	for item, n := range fit {
		if key, err := atoll.ParseItemKey(item); err == nil && in.sees(key) && (in.about(b) || key == in.Object) {
			if out == nil {
				out = map[string]int64{}
			}
			out[item] = n
		}
	}
	return out, !known
}

// holders of an object that is on its way out.
func (in Input) holders(b Bundle) (out []string) {
	for _, t := range b.Content.Tombstones {
		if t.Key != in.Object {
			continue
		}
		for cluster, row := range b.Rows {
			if !t.Confirmed(b.Latest, row.Spec, row.Status) && !slices.Contains(out, cluster) {
				out = append(out, cluster)
			}
		}
	}
	slices.Sort(out)
	return out
}

const (
	plainItem   = "an item" // of which there is nothing to say
	unsentItem  = "not in the latest revision yet"
	dividedItem = "an item whose replicas are divided"
	dependency  = "a dependency of other items"
)

// item says what the object is to the Bundle.
func (in Input) item(b Bundle) string {
	if in.about(b) || b.Content == nil {
		return ""
	}
	for _, i := range b.Content.Items {
		if i.Key != in.Object {
			continue
		}
		switch {
		case i.State == atoll.ItemUnclaimed:
			return "Unclaimed: nothing places it any more; it stays at its last content, and deleting its template removes it"
		case i.State == atoll.ItemUnnamed:
			return "Unnamed: nothing names it as a dependency any more, although nobody edited what did; it stays at its last content, and deleting its template removes it"
		case i.State == atoll.ItemUnaccounted:
			return "Unaccounted: its template is gone and nobody was seen to delete it; it is kept"
		case i.State == atoll.ItemRemovalHeld:
			return "held back: members remember that it was removed before the hub was restored; `atoll restore status` lists what waits for a decision"
		case i.Dependency:
			return dependency
		case i.Divided:
			return dividedItem
		}
		return plainItem
	}
	for _, t := range b.Content.Tombstones {
		if t.Key != in.Object {
			continue
		}
		if t.Orphan {
			return fmt.Sprintf("on its way out (%s): the clusters forget it and leave it running", t.Cause)
		}
		return fmt.Sprintf("on its way out (%s): it goes where a cluster has not confirmed that yet", t.Cause)
	}
	return unsentItem
}

func (in Input) row(b Bundle, cluster string, row rollout.Row, all bool) *RowExplanation {
	r := &RowExplanation{
		Phase: row.Spec.Phase, Reason: row.Spec.Reason, Revision: row.Spec.Revision, Number: b.Numbers[row.Spec.Revision],
		Generation: row.Spec.Generation, Since: time.Unix(row.Spec.Since, 0).UTC(), Orphan: row.Spec.Orphan, Online: row.Online,
	}
	if reason := atoll.ParseRowReason(r.Reason); (reason.Word == atoll.RowRemovalHeld || reason.Word == atoll.RowRemovedBefore) && !all {
		reason.Text = ""
		r.Reason = reason.String()
	}
	for item, n := range row.Spec.Assigned {
		key, err := atoll.ParseItemKey(item)
		if err == nil && in.sees(key) && (in.about(b) || key == in.Object) {
			if r.Assigned == nil {
				r.Assigned = map[string]int64{}
			}
			r.Assigned[item] = n
			if start, ranged := row.Spec.Ordinals[item]; ranged {
				if r.Ordinals == nil {
					r.Ordinals = map[string]int64{}
				}
				r.Ordinals[item] = start
			}
		}
	}
	if at, away := b.Away[cluster]; away && !row.Online {
		r.AwaySince = &at
	}
	r.AgentKept = b.Kept[cluster]
	if row.CheckIn > 0 && row.Online {
		r.CheckIn = atoll.NewTurn(row.CheckIn, row.Spec.UID).Words(in.Now)
	}
	if st := row.Status; st != nil {
		since := time.Unix(st.Since, 0).UTC()
		r.State, r.Reported, r.StateSince = st.State, st.Generation, &since
		if !in.about(b) {
			r.Health, r.Problem = in.health(st)
		}
	}
	if next, changes := b.Output.Changes[cluster]; changes {
		r.Next = nextStep(row.Spec, next)
	} else if b.Content != nil && row.Spec.Phase == atoll.RowActive && row.Spec.Revision != b.Latest {
		r.OverridesWait = atoll.MayStay(row.Spec.Revision, b.Latest, b.Content.Base)
	}
	return r
}

// health of the object as last reported. A report lists what is not healthy, and
// what has a status to reflect; what it leaves out is healthy once it is applied.
func (in Input) health(st *atoll.RowStatus) (h atoll.Health, problem string) {
	if st.State == atoll.RowRemoved {
		return "", ""
	}
	for _, i := range st.Items {
		if i.Key == in.Object {
			if i.Health == atoll.Healthy && !i.Error && i.Reason != atoll.DeniedByPolicy {
				return i.Health, ""
			}
			return i.Health, strings.TrimSuffix(i.Reason+": "+i.Message, ": ")
		}
	}
	if st.Applied || st.State == atoll.RowReady {
		return atoll.Healthy, ""
	}
	return "", ""
}

// discreet words a wait for somebody who may not read all of the Bundle's items.
func (in Input) discreet(row rollout.Row, w rollout.Wait) string {
	if row.Spec.Phase != atoll.RowActive || atoll.ParseRowReason(row.Spec.Reason).Plan != "" {
		if plan := atoll.ParseRowReason(row.Spec.Reason).Plan; plan != "" {
			return "a confirmation of plan " + plan
		}
		return w.For
	}
	st := row.Status
	if st == nil || st.Generation < row.Spec.Generation || !row.Online {
		return w.For
	}
	for _, i := range st.Items {
		if i.Health != atoll.Healthy && in.sees(i.Key) {
			return i.Key.Kind + "/" + i.Key.Name + " " + strings.TrimSuffix(i.Reason+": "+i.Message, ": ")
		}
	}
	return "items that you may not read"
}

// nextStep words what changes in a row.
func nextStep(is atoll.RowSpec, next *atoll.RowSpec) string {
	switch {
	case next == nil:
		return "given up, since its Cluster is gone"
	case next.UID != is.UID:
		return "made anew for the Cluster that has the name now"
	case next.Phase != is.Phase:
		return fmt.Sprintf("becomes %s", next.Phase)
	case next.Revision != is.Revision:
		return "moves to the latest revision"
	case next.Variant != is.Variant:
		return "gets other overrides"
	case len(next.NotYet) < len(is.NotYet):
		return "loses what is not wanted there"
	case next.Generation != is.Generation:
		return "gets another share"
	}
	return ""
}
