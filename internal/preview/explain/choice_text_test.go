package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// Each group of clusterAffinities shows whether it is in use, its clusters, and what refuses the others.
func TestTextsAboutAffinityGroups(t *testing.T) {
	again := time.Date(2026, 1, 2, 12, 5, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		group schedule.AffinityGroup
		want  string
	}{
		"in use":           {schedule.AffinityGroup{InUse: true, Fit: 1, Healthy: 1}, "in use; 1 cluster fits"},
		"with room":        {schedule.AffinityGroup{InUse: true, Fit: 2, Healthy: 2, Needs: 9, Room: 4}, "in use; 2 clusters fit, known room for 4 of 9 replicas"},
		"of no replicas":   {schedule.AffinityGroup{InUse: true, Fit: 2, Healthy: 2, Room: 4}, "in use; 2 clusters fit"},
		"of another group": {schedule.AffinityGroup{Why: "it is later", Fit: 3, Healthy: 1, Needs: 9}, "not in use: it is later; 3 clusters fit, 2 of them not in touch"},
		"overflow":         {schedule.AffinityGroup{TakesOverflow: true, Why: "a is full", Fit: 1}, "takes overflow: a is full; 1 cluster fits, and is not in touch"},
		"to come back":     {schedule.AffinityGroup{Why: "it is later", Since: &testTime, Again: &again}, "not in use: it is later; it could be since 2026-01-02T12:00:00Z, and is used again from 2026-01-02T12:05:00Z on if that lasts"},
		"refused":          {schedule.AffinityGroup{Why: "none", Refused: []schedule.RefusalCount{{Filter: "a", Clusters: 2}, {Filter: "b", Clusters: 1}}}, "not in use: none; refused: 2 by a, 1 by b"},
	} {
		c.group.Name = "g"
		if got := writtenBy(func(b *strings.Builder) { writeAffinities(b, []schedule.AffinityGroup{c.group}) }); got != "  Groups of clusterAffinities, the most preferred first:\n    g: "+c.want+"\n" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := writtenBy(func(b *strings.Builder) { writeAffinities(b, nil) }); got != "" {
		t.Errorf("no groups: %q", got)
	}
}

// Groups of a spread in which clusters are chosen come first, those with the most of them before the others.
func TestTextsAboutSpreads(t *testing.T) {
	groups := []schedule.SpreadGroup{{Name: "a", Fit: 2, Why: "none is near"}, {Name: "b", Fit: 3, Chosen: 1}, {Name: "c", Fit: 4, Chosen: 2}, {Name: "d", Why: "unmet"}}
	spread := func(of ...schedule.SpreadGroup) *Choice {
		return &Choice{Spread: []Spread{{Over: "zone", Constraint: v1alpha1.SpreadConstraint{MaxGroups: 4, MaxSkew: 1}, Groups: of}, {Over: "rack", Constraint: v1alpha1.SpreadConstraint{MinGroups: 2}}}}
	}
	const first, second = "  spreadConstraints[0] over zone, maxGroups 4, maxSkew 1\n", "  spreadConstraints[1] over rack, minGroups 2\n"
	for name, c := range map[string]struct {
		x      BundleExplanation
		folded int
		want   string
	}{
		"no choice": {BundleExplanation{}, 20, ""},
		"all":       {BundleExplanation{Unmet: "unmet", Choice: spread(groups...)}, 20, first + "    c: 2 chosen of 4 that fit\n    b: 1 chosen of 3 that fit\n    a: none chosen of 2 that fit: none is near\n    d: 0 fit\n" + second},
		"folded": {BundleExplanation{Choice: spread(append(groups, groups...)...)}, 1, first + "    c: 2 chosen of 4 that fit\n    a: none chosen of 2 that fit: none is near\n" +
			"    and 3 groups more with chosen clusters; " + showAllHint + "\n    and 3 groups more without; " + showAllHint + "\n" + second},
		"unfolded": {BundleExplanation{Choice: spread(groups[0], groups[1])}, 1, first + "    b: 1 chosen of 3 that fit\n    a: none chosen of 2 that fit: none is near\n" + second},
	} {
		if got := writtenBy(func(b *strings.Builder) { c.x.writeSpread(b, c.folded) }); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}

// Scores list the chosen clusters before the others, the best first and equal ones by name.
func TestTextsAboutScores(t *testing.T) {
	cluster := func(name string, outcome schedule.Outcome, total float64) ClusterExplanation {
		return ClusterExplanation{Cluster: name, Verdict: outcome, Reason: "it is late", Score: &Score{Total: total, Parts: []ScorePart{{Points: total, Of: "so much"}, {Points: 12.5}}}}
	}
	clusters := []ClusterExplanation{
		cluster("e", schedule.OutcomeOut, 100), cluster("d", schedule.OutcomeOut, 300), cluster("c", schedule.OutcomePlaced, 500),
		cluster("b", schedule.OutcomeKept, 500), cluster("a", schedule.OutcomePlaced, 900), {Cluster: "f", Verdict: schedule.OutcomeOut},
	}
	clusters[1].Score.Avoided = 2
	choice := &Choice{Fit: 5, Chosen: 3, Scores: []schedule.WeightedScore{{Name: "Balance", Weight: 3}, {Name: "Steady", Weight: 1}}}
	const all = `  Chosen: 3 of 5 candidates. Scores are of 1000, their mean by weight:
    CLUSTER  SCORE                                         BALANCE x3     STEADY x1  CHOSEN
    a        900                                           900 (so much)  13         yes
    b        500                                           500 (so much)  13         kept
    c        500                                           500 (so much)  13         yes
    d        300 (less 400 for 2 PreferNoSchedule taints)  300 (so much)  13         no: it is late
    e        100                                           100 (so much)  13         no: it is late
`
	const folded = `  Chosen: 3 of 5 candidates. Scores are of 1000, their mean by weight:
    CLUSTER  SCORE                                         BALANCE x3     STEADY x1  CHOSEN
    a        900                                           900 (so much)  13         yes
    d        300 (less 400 for 2 PreferNoSchedule taints)  300 (so much)  13         no: it is late
    and 2 more that were chosen; ` + showAllHint + `
    and 1 more that fit and were not; ` + showAllHint + "\n"
	x := BundleExplanation{Choice: choice, Clusters: clusters}
	for n, want := range map[int]string{3: all, 20: all, 1: folded} {
		if got := writtenBy(func(b *strings.Builder) { x.writeScores(b, n) }); got != want {
			t.Errorf("folded to %d: got\n%swant\n%s", n, got, want)
		}
	}
	if got := writtenBy(func(b *strings.Builder) { BundleExplanation{Choice: &Choice{}}.writeScores(b, 20) }); got != "  Chosen: 0 of 0 candidates.\n" {
		t.Errorf("%q", got)
	}
	if got := writtenBy(func(b *strings.Builder) { BundleExplanation{Clusters: clusters}.writeScores(b, 20) }); got != "" {
		t.Errorf("without a choice: %q", got)
	}
	if got := (BundleExplanation{Unmet: "it is late"}).chosenCell(clusters[0]); got != "no" {
		t.Errorf("%q", got)
	}
	whole := Choice{Most: 2, Fit: 1, Chosen: 1, Lowest: "a", LowestScore: 775, RoomFor: 9}
	if got, want := whole.String(), "Chosen: 1 of 1 candidate, at most 2; the lowest score among them is 775 (a); room for 9 replicas counts beside the scores, since those that score best have not enough. Scores are of 1000, their mean by weight:"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The waits of a Bundle as a whole say since when, and the actor.
func TestTextsAboutWaits(t *testing.T) {
	since := testTime.Add(-5 * time.Minute)
	held := ClusterExplanation{Cluster: "a", Row: newDoneRow()}
	waiting := ClusterExplanation{Cluster: "b", Row: &RowExplanation{WaitsFor: "pods"}}
	lost := ClusterExplanation{Cluster: "l", Row: newDoneRow(), KeptLost: "no other cluster can take its place"}
	failed := ClusterExplanation{Cluster: "f", Row: newDoneRow(), FailureNote: FailureNote{FailureReason: atoll.ReasonFailoverUnreplaced, FailureText: "no other cluster can take its place"}}
	full := ClusterExplanation{Cluster: "c", Capacity: []schedule.CapacityBound{{Path: "replicas"}}}
	const owner, labels = "; to act: the policy's owner", ", or a person that labels and taints clusters.\n"
	for name, c := range map[string]struct {
		x    BundleExplanation
		want string
	}{
		"nothing":         {BundleExplanation{Clusters: []ClusterExplanation{held}}, ""},
		"unmet":           {BundleExplanation{Unmet: "too few zones", NoFit: true, WaitsSince: &since}, "  Nothing comes and what runs is kept as it is for 5m: too few zones" + owner + labels},
		"no clusters":     {BundleExplanation{NoFit: true}, "  No cluster fits the placement; there is no cluster that you may see" + owner + labels},
		"no fit":          {BundleExplanation{NoFit: true, Clusters: []ClusterExplanation{full}}, "  No cluster fits the placement" + owner + labels},
		"all lost":        {BundleExplanation{NoFit: true, WaitsSince: &since, Clusters: []ClusterExplanation{lost, {Cluster: "d"}}}, "  All clusters that hold it are lost for 5m, and no other can take their place; what runs is kept; to act: the member's administrator.\n"},
		"all failed":      {BundleExplanation{NoFit: true, WaitsSince: &since, Clusters: []ClusterExplanation{failed, {Cluster: "d"}, {Cluster: "e", Verdict: schedule.OutcomeLeaves, Row: newDoneRow()}}}, "  The application is unhealthy for 5m in all clusters that hold it, and no other can take their place; what runs is kept; to act: the application's owner.\n"},
		"some failed":     {BundleExplanation{NoFit: true, Clusters: []ClusterExplanation{failed, held}}, "  No cluster fits the placement; what runs is kept" + owner + labels},
		"some lost":       {BundleExplanation{NoFit: true, Clusters: []ClusterExplanation{lost, held}}, "  No cluster fits the placement; what runs is kept" + owner + labels},
		"no fit any more": {BundleExplanation{NoFit: true, WaitsFor: "x", Clusters: []ClusterExplanation{full, held}}, "  No cluster fits the placement; what runs is kept" + owner + labels},
		"unweighed": {BundleExplanation{Unweighed: true, Short: []Shortage{{"Deployment/web", 5, 2, ""}}, WaitsSince: &since},
			"  No entry of staticWeightList matches a cluster that is chosen, so that each keeps the replicas that it has" + owner + ".\n  2 of 5 replicas of Deployment/web have no place for 5m.\n"},
		"even":   {BundleExplanation{EvenDivision: true}, "  No entry of staticWeightList matches a cluster that is chosen, so that replicas are divided evenly" + owner + ".\n"},
		"summed": {BundleExplanation{SummedWeights: true}, "  Weights of several entries of staticWeightList add up for a cluster, as in v0.1.0. The next edit of the placement makes the largest count.\n"},
		"short":  {BundleExplanation{Short: []Shortage{{"Deployment/web", 5, 2, ""}}, WaitsFor: "x", Clusters: []ClusterExplanation{held}}, "  2 of 5 replicas of Deployment/web have no place: every cluster that fits is at its bounds" + owner + ".\n"},
		"short, and why": {BundleExplanation{Short: []Shortage{{"Deployment/web", 5, 2, "they fit after scale-up of nodes with pool=gpu in a"}}, Clusters: []ClusterExplanation{held}},
			"  2 of 5 replicas of Deployment/web have no place: every cluster that fits is at its bounds" + owner + ".\n    they fit after scale-up of nodes with pool=gpu in a.\n"},
		"short by capacity":   {BundleExplanation{Short: []Shortage{{"Deployment/web", 5, 2, ""}}, Clusters: []ClusterExplanation{held, full}}, "  2 of 5 replicas of Deployment/web have no place: every cluster that fits is at its bounds or its capacity" + owner + ", or a person that states the capacity of clusters.\n"},
		"its own wait":        {BundleExplanation{WaitsFor: "its revision", WaitsSince: &since, Clusters: []ClusterExplanation{held, full}}, "  Waits for 5m for its revision.\n"},
		"the wait of a row":   {BundleExplanation{WaitsFor: "pods", Clusters: []ClusterExplanation{held, waiting}}, ""},
		"it is in quarantine": {BundleExplanation{Quarantined: "it costs too much"}, "  Quarantined: it costs too much; to act: the application's owner.\n"},
	} {
		c.x.Source = v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy}
		if got := writtenBy(func(b *strings.Builder) { Explanation{now: testTime}.writeWaits(b, c.x) }); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}

// A Bundle begins with its name and its revision. The plan of its removals is confirmed by a command.
func TestTextsAboutBundles(t *testing.T) {
	since := testTime.Add(-5 * time.Minute)
	plan := &rollout.PendingRemoval{Hash: "HASH", Lines: []string{"remove from a"}}
	for name, c := range map[string]struct {
		x    BundleExplanation
		want string
	}{
		"new":          {BundleExplanation{Name: "b"}, "\nBundle b, no revision yet.\n"},
		"one item":     {BundleExplanation{Namespace: "shop", Name: "b", Number: 1, Items: 1}, "\nBundle shop/b, revision 1, 1 item.\n"},
		"plain item":   {BundleExplanation{Name: "b", Number: 3, Items: 2, Item: plainItem}, "\nBundle b, revision 3, 2 items.\n"},
		"another item": {BundleExplanation{Name: "b", Number: 3, Items: 2, Item: dividedItem}, "\nBundle b, revision 3, 2 items; this is an item whose replicas are divided.\n"},
		"a plan": {BundleExplanation{Namespace: "shop", Name: "b", Number: 3, Plan: plan, PlanSince: &since}, "\nBundle shop/b, revision 3, 0 items.\n  Removals wait for a confirmation for 5m: remove from a; to act: " + string(atoll.ActorConfirmer) +
			".\n  `atoll confirm bundle/b -n shop --plan HASH` releases exactly these.\n"},
		"a plan of the cluster": {BundleExplanation{Name: "b", Number: 3, Plan: plan}, "\nBundle b, revision 3, 0 items.\n  Removals wait for a confirmation: remove from a; to act: " + string(atoll.ActorConfirmer) +
			".\n  `atoll confirm clusterbundle/b --plan HASH` releases exactly these.\n"},
	} {
		if got := writtenBy(func(b *strings.Builder) { Explanation{now: testTime}.writeBundle(b, c.x, false) }); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, c.want)
		}
	}
}

// The explanation of a Bundle follows its decision, its status and its output.
func TestABundleIsExplainedByItsDecision(t *testing.T) {
	at := testTime.Add(time.Minute)
	quarantine := metav1.Condition{Type: v1alpha1.BundleQuarantined, Status: metav1.ConditionTrue, Reason: "Quarantined", Message: "it costs too much", LastTransitionTime: metav1.NewTime(testTime)}
	b := shopBundle()
	b.Status.Conditions = []metav1.Condition{quarantine}
	b.Decision.Group, b.Decision.AwaitsFailback, b.Decision.PendingFailback, b.Decision.FailbackAt = "cloud", true, schedule.PendingFailback{Group: "own"}, at
	in := ExplanationInput{Object: webKey, Exists: true, Now: testTime, Holding: "it was restored", Bundles: []Bundle{b}}
	e := Explain(in)
	x := e.Bundles[0]
	if x.Group != "cloud" || !x.FailsBack || x.Better != "own" || x.BetterAt == nil || !x.BetterAt.Equal(at) || x.Quarantined != "it costs too much" || x.WaitsReason != atoll.ReasonQuarantined || !x.WaitsSince.Equal(testTime) {
		t.Errorf("%+v", x)
	}
	if e.HoldingReason != atoll.ReasonHubHolds || e.Holding != "it was restored" {
		t.Errorf("holding: %s, %s", e.Holding, e.HoldingReason)
	}
	in.Bundles[0].Decision.FailbackAt, in.Holding = time.Time{}, ""
	if e := Explain(in); e.Bundles[0].BetterAt != nil || e.HoldingReason != "" {
		t.Errorf("without times: %+v", e.Bundles[0])
	}
	in.Bundles[0].Decision.PendingFailback, in.Bundles[0].Decision.FailbackAt = schedule.PendingFailback{}, at
	if e := Explain(in); e.Bundles[0].BetterAt != nil {
		t.Errorf("without a better group: %+v", e.Bundles[0])
	}
	for name, c := range map[string]struct {
		key   atoll.ItemKey
		space string
		whole bool
	}{
		"a Deployment": {webKey, "shop", false}, "a policy": {atoll.ItemKey{Group: "atoll.dev", Kind: "PropagationPolicy"}, "", true},
		"a Namespace": {atoll.ItemKey{Kind: "Namespace", Name: "shop"}, "shop", true}, "the Bundle of a Namespace": {atoll.ItemKey{Kind: "Namespace", Name: "shop"}, "", false},
		"a Namespace of another group": {atoll.ItemKey{Group: "example.com", Kind: "Namespace", Name: "shop"}, "shop", false},
		"a kind of the core group":     {atoll.ItemKey{Kind: "Secret", Name: "shop"}, "shop", false},
	} {
		b := Bundle{}
		b.Ref.Namespace = c.space
		if got := (ExplanationInput{Object: c.key}).isAboutBundle(b); got != c.whole {
			t.Errorf("%s: whole Bundles %t", name, got)
		}
	}
}

// A plan waits since the first of its rows does. Rows of another plan, or of none, do not count.
func TestAPlanWaitsSinceItsFirstRow(t *testing.T) {
	row := func(plan string, at int64) rollout.Row {
		reason := atoll.RowReason{Reason: atoll.ReasonPlacementEdited, Plan: plan}
		return rollout.Row{Spec: atoll.RowSpec{Reason: reason.String(), Since: at}}
	}
	rows := map[string]rollout.Row{"a": row("p", 300), "b": row("p", 200), "c": row("q", 100), "d": row("", 50)}
	b := Bundle{Rows: rows, Output: rollout.Output{PendingRemoval: &rollout.PendingRemoval{Hash: "p"}}}
	if at := b.planSince(); at == nil || at.Unix() != 200 {
		t.Errorf("since %v", at)
	}
	b.Output.PendingRemoval.Hash = ""
	if at := b.planSince(); at != nil {
		t.Errorf("of no plan: since %v", at)
	}
	b.Output.PendingRemoval = nil
	if at := b.planSince(); at != nil {
		t.Errorf("without a plan: since %v", at)
	}
}

// A Bundle waits since the first condition that is not true, in the order in which work is done.
func TestABundleWaitsSinceItsFirstCondition(t *testing.T) {
	at := func(n int64) metav1.Time { return metav1.NewTime(time.Unix(n, 0)) }
	is := func(of string, status metav1.ConditionStatus, reason atoll.Reason, n int64) metav1.Condition {
		return metav1.Condition{Type: of, Status: status, Reason: string(reason), LastTransitionTime: at(n)}
	}
	created := time.Unix(9, 0)
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		created    time.Time
		reason     atoll.Reason
		since      int64
	}{
		"nothing is reported":      {nil, created, atoll.ReasonNotScheduled, 9},
		"nothing is known":         {nil, time.Time{}, "", 0},
		"it is scheduled":          {[]metav1.Condition{is(v1alpha1.BundleScheduled, metav1.ConditionTrue, "", 1)}, created, "", 0},
		"it is not ready":          {[]metav1.Condition{is(v1alpha1.BundleScheduled, metav1.ConditionTrue, "", 1), is(v1alpha1.BundleReady, metav1.ConditionFalse, atoll.ReasonProgressing, 2)}, created, atoll.ReasonProgressing, 2},
		"it is not scheduled":      {[]metav1.Condition{is(v1alpha1.BundleReady, metav1.ConditionFalse, atoll.ReasonProgressing, 2), is(v1alpha1.BundleScheduled, metav1.ConditionFalse, "NoFit", 3)}, created, "NoFit", 3},
		"it is not bound":          {[]metav1.Condition{is(v1alpha1.BundleBound, metav1.ConditionUnknown, "Waits", 4), is(v1alpha1.BundleReady, metav1.ConditionFalse, atoll.ReasonProgressing, 2)}, created, "Waits", 4},
		"replicas have no place":   {[]metav1.Condition{is(v1alpha1.BundleReplicasPlaced, metav1.ConditionFalse, "Short", 5), is(v1alpha1.BundleReady, metav1.ConditionFalse, atoll.ReasonProgressing, 2)}, created, "Short", 5},
		"it is not determined yet": {[]metav1.Condition{is(v1alpha1.BundleScheduled, metav1.ConditionUnknown, atoll.ReasonNotDetermined, 6)}, created, atoll.ReasonNotScheduled, 9},
	} {
		b := Bundle{Created: c.created}
		b.Status.Conditions = c.conditions
		if reason, since := b.waitStart(); reason != c.reason || (since == nil) != (c.since == 0) || since != nil && since.Unix() != c.since {
			t.Errorf("%s: %s since %v, want %s since %d", name, reason, since, c.reason, c.since)
		}
	}
}
