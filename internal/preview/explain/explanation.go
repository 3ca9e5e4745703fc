package explain

import (
	"fmt"
	"slices"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// ExplanationInput is a snapshot of all that is known of one object.
type ExplanationInput struct {
	// Object is the requested object. For a Bundle, a policy or a Namespace whole Bundles are
	// explained: itself, those of the policy, that of its annotation.
	Object atoll.ItemKey
	// Version of the object's kind, such as "v1".
	Version string
	// Exists: the hub has such an object.
	Exists bool
	// DeletedAt is when a user deleted it; nil: no user did, or it is gone.
	DeletedAt *time.Time
	// PolicyMatch on the template; nil for what cannot be placed, or does not exist.
	PolicyMatch *PolicyMatch
	// Policy of the request; nil: it was another object, or there is none.
	Policy *Policy
	// Chosen is what the requested Placement chooses; nil: it was another object.
	Chosen *Chosen
	// NamespaceBarred: the object's namespace may place on no cluster.
	NamespaceBarred bool
	// Bundles that hold the object, or are to hold it.
	Bundles []Bundle
	// MoreBundles that are not among them.
	MoreBundles int
	// Annotation of the object's namespace, or of the requested Namespace.
	Annotation string
	// Skipped lists what that annotation leaves out.
	Skipped []Skipped
	// LatestChange of the object that can be taken back; nil: there is none.
	LatestChange *KeptChange
	// Holding is why the hub holds after a rewind; empty: it does not.
	Holding string
	// Interpreters of the hub; nil: none.
	Interpreters *script.Library
	// Failures of scripts that the hub runs for the object.
	Failures []Failure
	// MayRead returns what the asker may read; nil: everything.
	MayRead func(atoll.ItemKey) bool
	Now     time.Time
}

// PolicyMatch is the policy that places a template, and the reason.
type PolicyMatch struct {
	// Winner; nil when no policy places it.
	Winner *Candidate `json:"winner,omitempty"`
	// Why the winner won, or why there is none, as a sentence and as an enumerated reason.
	Why        string       `json:"why"`
	ReasonCode atoll.Reason `json:"reasonCode,omitempty"`
	// Others that select the object too, best first.
	Others []Candidate `json:"others,omitempty"`
	// WaitsFor is why the winner has made nothing of it yet, where that takes long.
	WaitsFor    string       `json:"waits,omitempty"`
	WaitsReason atoll.Reason `json:"waitsReason,omitempty"`
	// Skipped is why the namespace's annotation leaves the object out.
	Skipped       string       `json:"skipped,omitempty"`
	SkippedReason atoll.Reason `json:"skippedReason,omitempty"`
	// NeededBy names the Bundles that take the object along as a dependency.
	NeededBy []string `json:"neededBy,omitempty"`
	// Parent is the object for which a controller made this one, such as "Shop/a".
	Parent string `json:"parent,omitempty"`
	// HubOnly is why the object stays on the hub wherever it is placed; empty: it does not.
	HubOnly string `json:"hubOnly,omitempty"`
}

// Candidate is a policy or annotation that selects the object.
type Candidate struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	Priority int32  `json:"priority,omitempty"`
	// Matched is by what it selects the object.
	Matched string `json:"matched,omitempty"`
	// Selects is the object that it selects, where that is a parent of the explained object.
	Selects string `json:"selects,omitempty"`
	// LostBecause is why it did not win.
	LostBecause string       `json:"lost,omitempty"`
	LostReason  atoll.Reason `json:"lostReason,omitempty"`
}

// Policy that places objects.
type Policy struct {
	// Selects has a text for each resource selector, such as "Deployment web".
	Selects []string `json:"selects,omitempty"`
	// Problem why it does not place what it selects; empty: it does, or selects nothing.
	Problem       string       `json:"problem,omitempty"`
	ProblemReason atoll.Reason `json:"problemReason,omitempty"`
}

// Skipped is a template that its namespace's annotation leaves out.
type Skipped struct {
	Key    atoll.ItemKey `json:"key"`
	Why    string        `json:"why"`
	Reason atoll.Reason  `json:"reason,omitempty"`
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
	// Rebalance is the last request to place it from scratch; zero: never.
	Rebalance time.Time
	Rows      map[string]rollout.Row
	// DisconnectedSince is since when clusters that hold rows have been away, as far as known.
	DisconnectedSince map[string]time.Time
	// AgentProblems is what keeps the agents that the hub runs itself, by cluster.
	AgentProblems map[string]string
	// Created is when the Bundle was made; zero: not known.
	Created time.Time
	// Decision over the whole fleet, and the next step.
	Decision schedule.Decision
	Output   rollout.Output
	// Provenance of the items by cluster.
	Provenance map[string][]overrides.Provenance
	// Rollout is the choice of the rollout now.
	Rollout rollout.StrategyChoice
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
	// DeletedAt is when a user deleted it; it goes when the clusters release it.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// Holding is why the whole hub issues nothing.
	Holding       string                `json:"holding,omitempty"`
	HoldingReason atoll.Reason          `json:"holdingReason,omitempty"`
	PolicyMatch   *PolicyMatch          `json:"claim,omitempty"`
	Policy        *Policy               `json:"policy,omitempty"`
	Chosen        *PlacementExplanation `json:"chosen,omitempty"`
	Bundles       []BundleExplanation   `json:"bundles,omitempty"`
	// Failures of scripts that the hub runs for the object.
	Failures []Failure `json:"failures,omitempty"`
	// MoreBundles of a policy are there and not explained.
	MoreBundles int `json:"moreBundles,omitempty"`
	// Annotation of the namespace, and what it leaves out, by key.
	Annotation string    `json:"annotation,omitempty"`
	Skipped    []Skipped `json:"skipped,omitempty"`

	// LatestChange of the object that `atoll undo` can take back.
	LatestChange *KeptChange `json:"latestChange,omitempty"`

	now             time.Time
	namespaceBarred bool
}

// KeptChange is a change of the object by a user.
type KeptChange struct {
	Operation string    `json:"operation"`
	By        string    `json:"by"`
	At        time.Time `json:"at"`
	// Until is when the change can no longer be taken back.
	Until time.Time `json:"until"`
}

// BundleExplanation is about one Bundle.
type BundleExplanation struct {
	Namespace string                 `json:"namespace,omitempty"`
	Name      string                 `json:"name"`
	UID       string                 `json:"uid"`
	Source    v1alpha1.BundleSource  `json:"source"`
	Placement v1alpha1.PlacementSpec `json:"placement"`
	WhenUnfit v1alpha1.WhenUnfit     `json:"whenUnfit"`
	Failover  *FailoverExplanation   `json:"failover,omitempty"`
	Removal   v1alpha1.Removal       `json:"removal"`
	StrategyExplanation
	// Revision that rows are to reach, and its number.
	Revision string `json:"revision,omitempty"`
	Number   int64  `json:"number,omitempty"`
	// Items of it that the asker may read.
	Items int `json:"items"`
	// Item is what the object is to the Bundle: empty for a whole Bundle.
	Item string `json:"item,omitempty"`
	// Treatment of the object in members; nil: as all others.
	Treatment *atoll.Treatment `json:"treatment,omitempty"`
	// Interpreters with answers for the object, by name.
	Interpreters []Interpreter `json:"interpreters,omitempty"`
	// WaitsFor is the Bundle's wait with the person or component that must act, and the time since
	// then, as far as known.
	WaitsFor    string       `json:"waitsFor,omitempty"`
	WaitsReason atoll.Reason `json:"waitsReason,omitempty"`
	WaitsSince  *time.Time   `json:"waitsSince,omitempty"`
	// Quarantined is why the hub renders the Bundle for no cluster, and what to do; empty: it renders.
	Quarantined string `json:"quarantined,omitempty"`
	// NoFit: no cluster fits the placement, or Unmet is the minimum of its spread that cannot be had.
	// Nowhere: it names none, on purpose.
	NoFit   bool   `json:"noFit,omitempty"`
	Unmet   string `json:"unmet,omitempty"`
	Nowhere bool   `json:"nowhere,omitempty"`
	// Choice among the clusters that fit; nil where all of them are taken.
	Choice *Choice `json:"choice,omitempty"`
	// WorkloadAffinity is nil where the placement has none.
	WorkloadAffinity *WorkloadAffinity `json:"workloadAffinity,omitempty"`
	// Affinities are the groups of clusterAffinities, in order of preference.
	Affinities []schedule.AffinityGroup `json:"affinities,omitempty"`
	// Group of clusterAffinities that is in use, and the earlier one that is to be used
	// again, from when on if it stays well; without a time it is not well now.
	Group     string     `json:"group,omitempty"`
	FailsBack bool       `json:"failsBack,omitempty"`
	Better    string     `json:"better,omitempty"`
	BetterAt  *time.Time `json:"betterAt,omitempty"`
	// Rebalance that was requested last; nil: none was.
	Rebalance *Rebalance `json:"rebalance,omitempty"`
	// Holders are the clusters that have yet to confirm that the object, which was
	// deleted or moved away, is gone there.
	Holders []string `json:"holders,omitempty"`
	// Plan that waits for a confirmation, and since when.
	Plan      *rollout.PendingRemoval `json:"plan,omitempty"`
	PlanSince *time.Time              `json:"planSince,omitempty"`
	// Short workloads: not all of their replicas have a place.
	Short []Shortage `json:"short,omitempty"`
	// Unweighed: no chosen cluster has a static weight, and each keeps the replicas it has.
	Unweighed bool `json:"unweighed,omitempty"`
	// EvenDivision: no chosen cluster has a static weight, and replicas are divided evenly.
	EvenDivision bool `json:"evenDivision,omitempty"`
	// SummedWeights: weights of several entries add up for a chosen cluster, as in earlier versions.
	// The largest counts after the next edit of the placement.
	SummedWeights bool `json:"summedWeights,omitempty"`
	// Unknown clusters that the placement names: there are none that the requesting user may see.
	Unknown []string `json:"unknown,omitempty"`
	// Clusters of the fleet, and rows of clusters that are gone, by name.
	Clusters []ClusterExplanation `json:"clusters"`
}

// Shortage is a divided workload of which not all replicas have a place.
type Shortage struct {
	Item     string `json:"item"`
	Replicas int64  `json:"replicas"`
	Unplaced int64  `json:"unplaced"`
	// Fit is when the others fit, where this is known.
	Fit string `json:"fit,omitempty"`
}

// ClusterExplanation is about the Bundle in one cluster.
type ClusterExplanation struct {
	Cluster string           `json:"cluster"`
	Verdict schedule.Outcome `json:"verdict"`
	// Filter that refuses the cluster, and why: as an enumerated reason, and as a sentence.
	Filter     string       `json:"filter,omitempty"`
	ReasonCode atoll.Reason `json:"reasonCode,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	// EvictAt is when a NoExecute taint takes it out.
	EvictAt *time.Time `json:"evictAt,omitempty"`
	// KeptLost is why it keeps its copy although the hub tainted it as lost.
	KeptLost string `json:"keptLost,omitempty"`
	// DrainReason is why it keeps its copy although it is drained, and DrainText explains it.
	DrainReason atoll.Reason `json:"drainReason,omitempty"`
	DrainText   string       `json:"drainText,omitempty"`
	FailureNote
	// Weight in divisions.
	Weight int64 `json:"weight,omitempty"`
	// Bounds of its share of each divided workload.
	MinReplicas int64 `json:"minReplicas,omitempty"`
	MaxReplicas int64 `json:"maxReplicas,omitempty"`
	// PodFit is when the pods of undivided items fit in a cluster that is new to the Bundle: Now, AfterScaleUp
	// or Never. PodFitReason has the reason where they do not fit now.
	PodFit       schedule.FitTime `json:"podFit,omitempty"`
	PodFitReason string           `json:"podFitReason,omitempty"`
	// Room for more replicas, by item, where that matters and is known.
	Room map[string]int64 `json:"room,omitempty"`
	// RoomUnknown: it matters and is unknown.
	RoomUnknown bool `json:"roomUnknown,omitempty"`
	// GetsNothingNew: it is disconnected, and its share of replicas does not grow.
	GetsNothingNew bool `json:"getsNothingNew,omitempty"`
	// Capacity that the cluster states, and what of it Bundles use, this one among them;
	// of clusters that hold it or are to.
	Capacity []schedule.CapacityBound `json:"capacity,omitempty"`
	// Score among the clusters that were chosen from, and Group among the decision groups;
	// nil and empty where none was chosen, or it is in none.
	Score *Score `json:"score,omitempty"`
	Group string `json:"group,omitempty"`
	// OverflowStep is the step of overflow by which it takes replicas that have no place in the
	// chosen clusters; 0: it is chosen.
	OverflowStep int32 `json:"overflowStep,omitempty"`
	// Row; nil where there is none.
	Row *RowExplanation `json:"row,omitempty"`
	// Overrides that set fields of the object (of all items, for a whole Bundle).
	Overrides []Override `json:"overrides,omitempty"`
}

// RowExplanation is about one row.
type RowExplanation struct {
	Phase atoll.RowPhase `json:"phase"`
	// ReasonCode is the enumerated reason that Reason begins with.
	ReasonCode atoll.Reason `json:"reasonCode,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	Revision   string       `json:"revision"`
	Number     int64        `json:"number,omitempty"`
	Generation int64        `json:"generation"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// Replicas assigned, by item.
	Assigned map[string]int64 `json:"assigned,omitempty"`
	// Ordinals are where the ranges of StatefulSets begin, by item.
	Ordinals map[string]int64 `json:"ordinals,omitempty"`
	Orphan   bool             `json:"orphan,omitempty"`
	Online   bool             `json:"online"`
	// DisconnectedSince is since when the cluster is not online, as far as known.
	DisconnectedSince *time.Time `json:"awaySince,omitempty"`
	// AgentProblem is what keeps the cluster's agent, where the hub runs it.
	AgentProblem string `json:"agentKept,omitempty"`
	// CheckIn is how often the cluster checks in, and when it will; empty for one
	// that holds a stream, or is not online.
	CheckIn string `json:"checkIn,omitempty"`
	// State that the agent reported, of which generation, since when.
	State      atoll.RowState `json:"state,omitempty"`
	Reported   int64          `json:"reported,omitempty"`
	StateSince *time.Time     `json:"stateSince,omitempty"`
	// Health of the object there, and its problem. A Healthy object with a problem is at its last
	// good content.
	Health  atoll.Health `json:"health,omitempty"`
	Problem string       `json:"problem,omitempty"`
	// ProblemReason is the reason of the problem.
	ProblemReason atoll.Reason `json:"problemReason,omitempty"`
	// Feedback has the values of the object that the cluster reported last.
	Feedback []FeedbackValue `json:"feedback,omitempty"`
	// Completed: the object ran to completion there, as a rule defines it.
	Completed bool `json:"completed,omitempty"`
	// Approval of a correction of the object, which the cluster has not answered; nil without one.
	Approval *atoll.ApprovalOrigin `json:"approval,omitempty"`
	// Next is what the next step does with the row; empty: nothing.
	Next string `json:"next,omitempty"`
	// OverridesWait: there are newer overrides, which the row gets with the next change.
	OverridesWait bool `json:"overridesWait,omitempty"`
	// WaitsFor, the person or component that must act, and the time since then; empty when it is
	// done.
	WaitsFor    string       `json:"waitsFor,omitempty"`
	WaitsReason atoll.Reason `json:"waitsReason,omitempty"`
	Who         atoll.Actor  `json:"who,omitempty"`
	WaitsSince  *time.Time   `json:"waitsSince,omitempty"`
}

// FeedbackValue is a value of the object in a cluster, or why there is none.
type FeedbackValue struct {
	Name    string `json:"name"`
	Value   string `json:"value,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// Explain joins what is known.
func Explain(in ExplanationInput) Explanation {
	e := Explanation{
		Kind: in.Object.Kind, Group: in.Object.Group, Version: in.Version, Namespace: in.Object.Namespace, Name: in.Object.Name,
		MoreBundles: in.MoreBundles, Exists: in.Exists, DeletedAt: in.DeletedAt, Holding: in.Holding, PolicyMatch: in.PolicyMatch, Policy: in.Policy, Chosen: in.explainPlacement(), Annotation: in.Annotation,
		Failures: in.Failures, LatestChange: in.LatestChange, now: in.Now, namespaceBarred: in.NamespaceBarred,
	}
	if e.Holding != "" {
		e.HoldingReason = atoll.ReasonHubHolds
	}
	for _, s := range in.Skipped {
		if in.mayRead(s.Key) {
			e.Skipped = append(e.Skipped, s)
		}
	}
	slices.SortFunc(e.Skipped, func(a, b Skipped) int { return a.Key.Compare(b.Key) })
	for _, b := range in.Bundles {
		e.Bundles = append(e.Bundles, in.explainBundle(b))
	}
	e.Verdict = e.verdictSentence()
	return e
}

// FilterCluster keeps only the cluster; false when it has no part in anything.
func (e Explanation) FilterCluster(cluster string) (Explanation, bool) {
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

func (in ExplanationInput) mayRead(key atoll.ItemKey) bool {
	return in.MayRead == nil || in.MayRead(key)
}

// mayReadAll reports whether the asker may read all that the Bundle holds or removes.
func (in ExplanationInput) mayReadAll(b Bundle) bool {
	if b.Content == nil {
		return true
	}
	hidden := slices.ContainsFunc(b.Content.Items, func(i atoll.Item) bool { return !in.mayRead(i.Key) }) ||
		slices.ContainsFunc(b.Content.Tombstones, func(t atoll.Tombstone) bool { return !in.mayRead(t.Key) })
	return !hidden
}

// isAboutWholeBundles reports whether the request is about whole Bundles.
func (in ExplanationInput) isAboutWholeBundles() bool {
	return in.Object.Group == v1alpha1.GroupVersion.Group || in.isAboutNamespace()
}

func (in ExplanationInput) explainBundle(b Bundle) BundleExplanation {
	out := BundleExplanation{
		Namespace: b.Ref.Namespace, Name: b.Ref.Name, UID: b.Ref.UID, Source: b.Spec.Source,
		Placement: b.Spec.Placement, WhenUnfit: b.Spec.WhenUnfit, Removal: b.Spec.Removal,
		Revision: b.Latest, Number: b.Numbers[b.Latest], NoFit: b.Decision.NoFit, Item: in.describeItem(b),
		Rebalance: explainRebalance(b), Interpreters: in.itemInterpreters(b), Treatment: in.itemTreatment(b),
	}
	out.Nowhere, out.StrategyExplanation = atoll.IsNowhere(b.Spec.Placement), in.explainStrategy(b)
	out.Group, out.FailsBack, out.Better = b.Decision.Group, b.Decision.AwaitsFailback, b.Decision.PendingFailback.Group
	if out.Better != "" && !b.Decision.FailbackAt.IsZero() {
		out.BetterAt = &b.Decision.FailbackAt
	}
	if b.Content != nil {
		for _, i := range b.Content.Items {
			if in.mayRead(i.Key) {
				out.Items++
			}
		}
		out.Holders = in.clustersPendingObjectDeletion(b)
	}
	all := in.mayReadAll(b)
	if out.Plan = b.Output.PendingRemoval; out.Plan != nil && !all {
		out.Plan = &rollout.PendingRemoval{Hash: out.Plan.Hash, Lines: []string{fmt.Sprintf("%d removals, of items that you may not all read", len(out.Plan.Lines))}}
	}
	if all {
		out.WaitsFor = b.Status.WaitsFor
	}
	out.Unweighed, out.Unknown = b.Decision.KeepsReplicasWithoutWeights(), unknownClusters(b)
	out.EvenDivision, out.SummedWeights = b.Decision.FallsBackToEvenDivision(), b.Decision.SumsWeights()
	out.WaitsReason, out.WaitsSince = b.waitStart()
	if c := b.findQuarantine(); c != nil {
		out.Quarantined = c.Message
	}
	out.PlanSince, out.Failover = b.planSince(), b.explainFailover(in.Now)
	out.Unmet, out.Choice, out.Affinities, out.WorkloadAffinity = b.Decision.UnmetSpread, explainChoice(b.Decision.Choice), b.Decision.Groups, in.explainWorkloadAffinity(&b.Decision)
	out.Short = in.visibleShortages(b)
	waits := map[string]rollout.RowWait{}
	for _, w := range b.Output.Waits {
		waits[w.Cluster] = w
	}
	for _, v := range b.Decision.Verdicts {
		out.Clusters = append(out.Clusters, in.explainCluster(b, v, waits[v.Cluster], all))
	}
	return out
}

// visibleShortages returns the replicas without a place of the items that are explained and that
// the user may read.
func (in ExplanationInput) visibleShortages(b Bundle) (out []Shortage) {
	for _, s := range b.Output.Shortages {
		if in.mayRead(s.Key) && (in.isAboutBundle(b) || s.Key == in.Object) {
			out = append(out, Shortage{Item: s.Key.Kind + "/" + s.Key.Name, Replicas: s.Replicas, Unplaced: s.Unplaced, Fit: s.Fit})
		}
	}
	return out
}

// explainCluster explains the verdict on a cluster, and its row. all: the user may read the whole Bundle.
func (in ExplanationInput) explainCluster(b Bundle, v schedule.Verdict, w rollout.RowWait, all bool) ClusterExplanation {
	notes := v.Notes()
	c := ClusterExplanation{
		Cluster: v.Cluster, Verdict: v.Outcome, Filter: v.Filter, ReasonCode: v.ReasonCode(), Reason: b.Decision.HideMembers(v.Reason, in.MayRead), Score: explainScore(v), Group: v.Group, OverflowStep: v.OverflowStep,
		Weight: v.Weight, MinReplicas: v.Bounds.Min, MaxReplicas: v.Bounds.Max, Capacity: b.Decision.CapacityBounds(v.Cluster),
		FailureNote:    FailureNote{notes.FailureReason, b.Decision.HideMembers(notes.FailureText, in.MayRead)},
		GetsNothingNew: v.GetsNothingNew, KeptLost: notes.KeptLost, DrainReason: notes.DrainReason, DrainText: b.Decision.HideMembers(notes.DrainText, in.MayRead), Overrides: in.visibleOverrides(b, b.Provenance[v.Cluster]),
	}
	in.explainPodFit(&c, v.PodFit())
	if !notes.EvictAt.IsZero() {
		c.EvictAt = &notes.EvictAt
	}
	if v.Outcome == schedule.OutcomePlaced && b.Decision.UsesFreeCapacity() {
		c.Room, c.RoomUnknown = in.freeReplicas(b, v.Cluster)
	}
	row, ok := b.Rows[v.Cluster]
	if !ok {
		return c
	}
	c.Row = in.explainRow(b, v.Cluster, row, all)
	if w.For != "" {
		c.Row.WaitsFor, c.Row.WaitsReason, c.Row.Who, c.Row.WaitsSince = w.For, w.Reason, w.Actor, &w.Since
		if !all {
			c.Row.WaitsFor = in.visibleWait(row, w)
		}
	}
	return c
}

// freeReplicas returns the free capacity for more of the requested items.
func (in ExplanationInput) freeReplicas(b Bundle, cluster string) (out map[string]int64, unknown bool) {
	fit, known := b.Decision.FreeReplicasOf(cluster)
	for item, n := range fit {
		if key, err := atoll.ParseItemKey(item); err == nil && in.mayRead(key) && (in.isAboutBundle(b) || key == in.Object) {
			if out == nil {
				out = map[string]int64{}
			}
			out[item] = n
		}
	}
	return out, !known
}

const (
	plainItem      = "an item" // of which there is nothing to show
	unsentItem     = "not in the latest revision yet"
	dividedItem    = "an item whose replicas are divided"
	dependencyItem = "a dependency of other items"
)

// itemStateTexts has what an item is to its Bundle that does not simply follow its template.
var itemStateTexts = map[atoll.ItemState]string{
	atoll.ItemUnclaimed:    "Unclaimed: nothing places it any more; it stays at its last content, and deleting its template removes it",
	atoll.ItemUnreferenced: "Unnamed: nothing names it as a dependency any more, although no template that did was edited; it stays at its last content, and deleting its template removes it",
	atoll.ItemUnaccounted:  "Unaccounted: its template is gone without a recorded deletion; it is kept",
	atoll.ItemUnconfirmed:  "Unconfirmed: it is to be removed, and stays at its last content until a person confirms it with `atoll confirm`",
	atoll.ItemRemovalHeld:  "held back: members recorded that it was removed before the hub was restored; `atoll restore status` lists what waits for a decision",
}

// itemOf returns the item of the Bundle's content that the object is; nil where it is none.
func (in ExplanationInput) itemOf(b Bundle) *atoll.Item {
	if in.isAboutBundle(b) || b.Content == nil {
		return nil
	}
	at := slices.IndexFunc(b.Content.Items, func(i atoll.Item) bool { return i.Key == in.Object })
	if at < 0 {
		return nil
	}
	return &b.Content.Items[at]
}

// describeItem returns what the object is to the Bundle.
func (in ExplanationInput) describeItem(b Bundle) string {
	if in.isAboutBundle(b) || b.Content == nil {
		return ""
	}
	if i := in.itemOf(b); i != nil {
		text, inState := itemStateTexts[i.State]
		switch {
		case inState:
			return text
		case i.Dependency:
			return dependencyItem
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
			return fmt.Sprintf("on its way out (%s): the clusters release it and leave it running", t.Cause)
		}
		return fmt.Sprintf("on its way out (%s): it goes where a cluster has not confirmed that yet", t.Cause)
	}
	return unsentItem
}
