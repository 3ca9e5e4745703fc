package explain

import (
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// writtenBy returns what a function writes.
func writtenBy(write func(*strings.Builder)) string {
	var b strings.Builder
	write(&b)
	return b.String()
}

func TestTextsAboutPolicies(t *testing.T) {
	bundles := []BundleExplanation{{Name: "b"}}
	for name, c := range map[string]struct {
		e    Explanation
		want string
	}{
		"another object":              {Explanation{Bundles: bundles}, ""},
		"no selectors":                {Explanation{Policy: &Policy{}}, ""},
		"two selectors":               {Explanation{Policy: &Policy{Selects: []string{"Deployment web", "Secrets"}}}, "\nIt selects Deployment web, Secrets.\n"},
		"many selectors":              {Explanation{Policy: &Policy{Selects: nameClusters(12)}}, "\nIt selects c00, c01, c02, c03, c04, c05, c06, c07, c08, c09 and 2 more.\n"},
		"a problem of all":            {Explanation{Policy: &Policy{Selects: []string{"Secrets"}, Problem: "no."}}, "\nIt selects Secrets.\n"},
		"a problem of a part of that": {Explanation{Policy: &Policy{Problem: "its group is bound."}, Bundles: bundles}, "  Not all of that is placed as it states: its group is bound.\n"},
	} {
		if got := writtenBy(c.e.writePolicy); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if text := (Explanation{Verdict: "V.", MoreBundles: 3}).FormatText(false); text != "V.\n\nand 3 more Bundles of it; `atoll get bundles -A` lists them\n" {
		t.Errorf("%q", text)
	}
	if text := (Explanation{Verdict: "V."}).FormatText(false); text != "V.\n" {
		t.Errorf("%q", text)
	}
}

// The text on an object says what places it, what else selects it, and how to place it where nothing does.
func TestTextsAboutWhatPlacesAnObject(t *testing.T) {
	winner := &Candidate{Kind: "PropagationPolicy", Name: "p"}
	held := []BundleExplanation{{Namespace: "shop", Name: "b", Item: plainItem}}
	along := []BundleExplanation{{Namespace: "shop", Name: "b", Item: dependencyItem}, {Name: "c", Item: dependencyItem}}
	for name, c := range map[string]struct {
		e    Explanation
		want string
	}{
		"no match":             {Explanation{}, ""},
		"a policy":             {Explanation{PolicyMatch: &PolicyMatch{Winner: winner, Why: "it is first"}}, "\nPlaced by PropagationPolicy p: it is first.\n"},
		"with a parent":        {Explanation{PolicyMatch: &PolicyMatch{Winner: winner, Parent: "Shop/a", Why: "it is first"}}, "\nPlaced with its parent Shop/a, by PropagationPolicy p: it is first.\n"},
		"a parent that stays":  {Explanation{PolicyMatch: &PolicyMatch{Winner: winner, HubOnly: "it says so", Why: "it is first"}}, "\nIt stays on the hub: it says so.\nWhat controllers on the hub make of it is placed by PropagationPolicy p: it is first.\n"},
		"others":               {Explanation{PolicyMatch: &PolicyMatch{Winner: winner, Why: "so", Others: []Candidate{{Kind: "PropagationPolicy", Name: "q"}, {Kind: "PropagationPolicy", Name: "r", LostBecause: "it is later"}}}}, "\nPlaced by PropagationPolicy p: so.\n  Also selected by PropagationPolicy q.\n  Also selected by PropagationPolicy r, which lost: it is later.\n"},
		"in a Bundle still":    {Explanation{Bundles: held, PolicyMatch: &PolicyMatch{Why: "nothing selects it"}}, "\nPlaced by no policy: nothing selects it.\n"},
		"a namespace":          {Explanation{Kind: "Namespace", Bundles: held, PolicyMatch: &PolicyMatch{Why: "nothing selects it"}}, ""},
		"a namespace in none":  {Explanation{Kind: "Namespace", Name: "shop", PolicyMatch: &PolicyMatch{Why: "nothing selects it"}}, ""},
		"it is being deleted":  {Explanation{DeletedAt: &testTime, PolicyMatch: &PolicyMatch{Why: "nothing selects it"}}, ""},
		"along with others":    {Explanation{Bundles: along, PolicyMatch: &PolicyMatch{Why: "nothing selects it", NeededBy: []string{"c"}}}, "\nPlaced along with what needs it, in c, shop/b; by no policy itself: nothing selects it.\n"},
		"skipped, in a Bundle": {Explanation{Bundles: held, PolicyMatch: &PolicyMatch{Winner: winner, Why: "so", Skipped: "a token"}}, "\nPlaced by PropagationPolicy p: so.\n  The annotation of its namespace leaves it out: a token.\n"},
		"its namespace is barred": {Explanation{Kind: "Secret", Namespace: "shop", Name: "s", namespaceBarred: true, PolicyMatch: &PolicyMatch{Why: "no"}}, `
Namespace shop may place on no cluster. A user that may bind cluster sets, which kubectl get clustersets
lists, has to bind it to one first:
  apiVersion: atoll.dev/v1alpha1
  kind: ClusterSetBinding
  metadata: {name: SET, namespace: shop}
  spec: {clusterSet: SET}
`},
		"nothing places it": {Explanation{Kind: "ClusterRole", Group: "rbac.authorization.k8s.io", Version: "v1beta1", Name: "r", PolicyMatch: &PolicyMatch{Why: "no"}}, `
To place it, annotate it with the clusters that it is for, * for all:
  kubectl annotate clusterrole.rbac.authorization.k8s.io/r atoll.dev/clusters='*'
or write a policy:
  apiVersion: atoll.dev/v1alpha1
  kind: ClusterPropagationPolicy
  metadata: {name: r}
  spec:
    resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1beta1, kind: ClusterRole, name: r}]
    placement: {clusterAffinity: {clusterNames: [CLUSTER]}}
`},
	} {
		if got := writtenBy(c.e.writePolicyMatch); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	secret := Explanation{Kind: "Secret", Namespace: "shop", Name: "s"}
	if got := writtenBy(secret.writePlacingHelp); !strings.Contains(got, "kubectl annotate secret/s -n shop") || !strings.Contains(got, "metadata: {name: s, namespace: shop}") || !strings.Contains(got, "{apiVersion: v1, kind: Secret, name: s}") {
		t.Errorf("of the core group: %s", got)
	}
}

// The objects that a namespace's annotation leaves out are listed for the namespace, and counted for an object
// that the annotation places.
func TestTextsAboutWhatAnAnnotationLeavesOut(t *testing.T) {
	skipped := []Skipped{{Key: atoll.ItemKey{Kind: "Secret", Name: "s"}, Why: "a token"}, {Key: atoll.ItemKey{Kind: "ConfigMap", Name: "c"}, Why: "of the hub"}}
	many := make([]Skipped, maxRows+2)
	for i := range many {
		many[i] = skipped[0]
	}
	const line = "  Secret/s: a token\n"
	head := "\nLeft out by the annotation of namespace shop (atoll.dev/clusters: \"*\"):\n"
	annotation := v1alpha1.BundleSource{Kind: v1alpha1.SourceNamespaceAnnotation}
	space := Explanation{Kind: "Namespace", Name: "shop", Annotation: "*", Skipped: skipped}
	bundle := Explanation{Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "b", Annotation: "*", Skipped: skipped, Bundles: []BundleExplanation{{Source: annotation}}}
	other, object, unplaced, much := bundle, bundle, bundle, space
	other.Bundles = []BundleExplanation{{Source: v1alpha1.BundleSource{Kind: "PropagationPolicy"}}}
	object.Bundles, object.PolicyMatch = []BundleExplanation{{Source: annotation, Item: plainItem}}, &PolicyMatch{Winner: &Candidate{Kind: v1alpha1.SourceNamespaceAnnotation}}
	unplaced.Bundles, unplaced.PolicyMatch = nil, &PolicyMatch{}
	much.Skipped = many
	for name, c := range map[string]struct {
		e    Explanation
		all  bool
		want string
	}{
		"nothing":                  {Explanation{Kind: "Namespace"}, false, ""},
		"the namespace":            {space, false, head + line + "  ConfigMap/c: of the hub\n"},
		"its Bundle":               {bundle, false, head + line + "  ConfigMap/c: of the hub\n"},
		"another Bundle":           {other, false, ""},
		"an object":                {object, false, "\nThe annotation of namespace shop leaves out 2 objects; `atoll explain namespace/shop` lists them.\n"},
		"an object placed by none": {unplaced, false, ""},
		"many":                     {much, false, head + strings.Repeat(line, maxRows) + "  and 2 more; --all shows them\n"},
		"all of many":              {much, true, head + strings.Repeat(line, maxRows+2)},
	} {
		if got := writtenBy(func(b *strings.Builder) { c.e.writeNamespaceSkippedObjects(b, c.all) }); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The cells of a row show its state, and since when: since the report where the report is of what is wanted.
func TestCellsOfRows(t *testing.T) {
	ago := func(d time.Duration) *time.Time { at := testTime.Add(-d); return &at }
	for name, c := range map[string]struct {
		row  RowExplanation
		want string
	}{
		"ready":              {RowExplanation{Phase: atoll.RowActive, Online: true, State: atoll.RowReady, Health: atoll.Healthy, Number: 2, Revision: "b-2", Since: *ago(time.Hour), StateSince: ago(5 * time.Minute), Generation: 3, Reported: 3}, "Active\t2\tReady\t5m"},
		"a newer generation": {RowExplanation{Phase: atoll.RowActive, Online: true, State: atoll.RowReady, Number: 2, Since: *ago(9 * time.Minute), StateSince: ago(5 * time.Minute), Generation: 3, Reported: 2}, "Active\t2\tReady\t9m"},
		"it leaves":          {RowExplanation{Phase: atoll.RowLeaving, Online: true, State: atoll.RowReady, Number: 2, Since: *ago(9 * time.Minute), StateSince: ago(5 * time.Minute), Generation: 3, Reported: 3}, "Leaving\t2\tReady\t9m"},
		"an old revision":    {RowExplanation{Phase: atoll.RowActive, Online: true, Revision: "b-1", Since: testTime}, "Active\tb-1\tnot reported\t0s"},
		"away":               {RowExplanation{Phase: atoll.RowActive, State: atoll.RowReady, Number: 1, Since: testTime}, "Active\t1\tReady, away\t0s"},
		"away since":         {RowExplanation{Phase: atoll.RowActive, State: atoll.RowReady, Number: 1, Since: testTime, DisconnectedSince: ago(3 * time.Minute)}, "Active\t1\tReady, away for 3m\t0s"},
		"it checks in":       {RowExplanation{Phase: atoll.RowActive, Online: true, State: atoll.RowReady, Number: 1, Since: testTime, CheckIn: "checks in"}, "Active\t1\tReady, checks in\t0s"},
	} {
		if got := (Explanation{now: testTime}).rowCells(&c.row); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	const set = "apps/StatefulSet/shop/db"
	for name, c := range map[string]struct {
		row  RowExplanation
		want string
	}{
		"at its last good content":   {RowExplanation{State: atoll.RowFailed, Health: atoll.Healthy, Problem: "Conflict"}, "Failed (its last good content: Healthy)"},
		"drifted":                    {RowExplanation{State: atoll.RowReady, Health: atoll.Healthy, Problem: "Drifted", ProblemReason: atoll.ReasonDrifted}, "Ready"},
		"degraded with a problem":    {RowExplanation{State: atoll.RowFailed, Health: atoll.Degraded, Problem: "Conflict"}, "Failed (this: Degraded)"},
		"healthy among others":       {RowExplanation{State: atoll.RowFailed, Health: atoll.Healthy}, "Failed (this: Healthy)"},
		"unknown":                    {RowExplanation{State: atoll.RowFailed, Health: atoll.Unknown}, "Failed"},
		"as its Bundle":              {RowExplanation{State: atoll.RowDegraded, Health: atoll.Degraded}, "Degraded"},
		"of which nothing is known":  {RowExplanation{State: atoll.RowFailed}, "Failed"},
		"with a share":               {RowExplanation{State: atoll.RowReady, Assigned: map[string]int64{set: 3}}, "Ready, db=3"},
		"with ordinals":              {RowExplanation{State: atoll.RowReady, Assigned: map[string]int64{set: 3}, Ordinals: map[string]int64{set: 4}}, "Ready, db=3 (ordinals 4 to 6)"},
		"with ordinals from nothing": {RowExplanation{State: atoll.RowReady, Assigned: map[string]int64{set: 0}, Ordinals: map[string]int64{set: 4}}, "Ready, db=0 (ordinals from 4)"},
	} {
		if got := c.row.stateText(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The notes below a row show its wait, the actor, and the next step. A problem is said once.
func TestNotesBelowRows(t *testing.T) {
	since := testTime.Add(-5 * time.Minute)
	for name, c := range map[string]struct {
		bundle BundleExplanation
		row    *RowExplanation
		want   []string
	}{
		"no row yet":              {BundleExplanation{Number: 1, WaitsSince: &since}, nil, []string{"waits for Atoll to write its row, which it is about to for 5m; Atoll goes on by itself"}},
		"no revision yet":         {BundleExplanation{WaitsSince: &since}, nil, []string{"waits for the first revision of the Bundle for 5m"}},
		"nothing to say":          {BundleExplanation{}, newDoneRow(), nil},
		"an agent that is kept":   {BundleExplanation{}, &RowExplanation{AgentProblem: "no credentials"}, []string{"the agent that the hub runs for the cluster: no credentials"}},
		"a wait for Atoll":        {BundleExplanation{}, &RowExplanation{WaitsFor: "a slot", Who: atoll.ActorAtoll, WaitsSince: &since}, []string{"waits for a slot; for 5m; Atoll goes on by itself"}},
		"a wait for the agent":    {BundleExplanation{}, &RowExplanation{WaitsFor: "a report", Who: atoll.ActorAgent, WaitsSince: &since}, []string{"waits for a report; for 5m; the agent there is at it"}},
		"a wait for a person":     {BundleExplanation{}, &RowExplanation{WaitsFor: "room", Who: atoll.ActorHub, WaitsSince: &since}, []string{"waits for room; for 5m; to act: the hub's administrator"}},
		"a wait that is reported": {BundleExplanation{}, &RowExplanation{Phase: atoll.RowActive, Online: true, State: atoll.RowFailed, WaitsFor: "Secret/a Bad: no", Who: atoll.ActorHub, WaitsSince: &since}, []string{"Secret/a Bad: no; for 5m; to act: the hub's administrator"}},
		"a problem":               {BundleExplanation{}, &RowExplanation{Problem: "Conflict: not ours"}, []string{"this: Conflict: not ours"}},
		"a problem of few words":  {BundleExplanation{}, &RowExplanation{Problem: "Conflict", WaitsFor: "a Conflict", Who: atoll.ActorAtoll, WaitsSince: &since}, []string{"waits for a Conflict; for 5m; Atoll goes on by itself"}},
		"a problem waited for":    {BundleExplanation{}, &RowExplanation{Problem: "Conflict: not ours", WaitsFor: "Secret/a, not ours", Who: atoll.ActorAtoll, WaitsSince: &since}, []string{"waits for Secret/a, not ours; for 5m; Atoll goes on by itself"}},
		"another problem":         {BundleExplanation{}, &RowExplanation{Problem: "Conflict: not ours", WaitsFor: "a slot", Who: atoll.ActorAtoll, WaitsSince: &since}, []string{"waits for a slot; for 5m; Atoll goes on by itself", "this: Conflict: not ours"}},
		"the next step":           {BundleExplanation{}, &RowExplanation{Next: "becomes Leaving"}, []string{"next: becomes Leaving"}},
	} {
		if got := (Explanation{now: testTime}).rowNotes(c.bundle, ClusterExplanation{Row: c.row}); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	unready := RowExplanation{Phase: atoll.RowActive, Online: true, State: atoll.RowProgressing, Generation: 2, Reported: 2}
	for name, c := range map[string]struct {
		change func(*RowExplanation)
		want   bool
	}{
		"progressing":     {func(*RowExplanation) {}, true},
		"degraded":        {func(r *RowExplanation) { r.State = atoll.RowDegraded }, true},
		"ready":           {func(r *RowExplanation) { r.State = atoll.RowReady }, false},
		"leaving":         {func(r *RowExplanation) { r.Phase = atoll.RowLeaving }, false},
		"reported before": {func(r *RowExplanation) { r.Reported = 1 }, false},
		"away":            {func(r *RowExplanation) { r.Online = false }, false},
		"with a reason":   {func(r *RowExplanation) { r.Reason = "NoCapacity" }, false},
	} {
		r := unready
		if c.change(&r); r.isReportedUnready() != c.want {
			t.Errorf("%s: %t", name, !c.want)
		}
	}
}

// A row is done where nothing is left to say of it. Those that are not done are shown first.
func TestRowsThatAreNotDoneAreShownFirst(t *testing.T) {
	for name, change := range map[string]func(*RowExplanation){
		"it waits": func(r *RowExplanation) { r.WaitsFor = "pods" }, "it has a reason": func(r *RowExplanation) { r.Reason = "NoCapacity" },
		"it has a problem": func(r *RowExplanation) { r.Problem = "Drifted" }, "its overrides wait": func(r *RowExplanation) { r.OverridesWait = true },
	} {
		r := newDoneRow()
		if change(r); (ClusterExplanation{Row: r}).isDone() {
			t.Errorf("%s: it is done", name)
		}
	}
	if !(ClusterExplanation{Row: newDoneRow()}).isDone() || (ClusterExplanation{}).isDone() {
		t.Error("a row is not done, or a missing row is")
	}
	var x BundleExplanation
	for _, name := range nameClusters(maxRows + 3) {
		x.Clusters = append(x.Clusters, ClusterExplanation{Cluster: name, Verdict: schedule.OutcomePlaced, Row: newDoneRow()})
	}
	x.Clusters = append(x.Clusters, ClusterExplanation{Cluster: "out", Verdict: schedule.OutcomeOut})
	for _, i := range []int{0, maxRows + 2} {
		x.Clusters[i].Row.Problem = "Drifted"
	}
	text := writtenBy(func(b *strings.Builder) { Explanation{now: testTime}.writeRows(b, x, false) })
	lines := strings.Split(text, "\n")
	if !strings.HasPrefix(lines[1], "  c00 ") || !strings.HasPrefix(lines[3], "  c52 ") || !strings.HasSuffix(text, "\n  and 3 more that are done\n") || strings.Contains(text, "out") {
		t.Errorf("%s", text)
	}
	for i := range x.Clusters[:maxRows+3] {
		x.Clusters[i].Row.Problem = "Drifted"
	}
	if text := writtenBy(func(b *strings.Builder) { Explanation{now: testTime}.writeRows(b, x, false) }); !strings.HasSuffix(text, "\n  and 3 more that are not done; --all shows them, --cluster NAME shows one\n") {
		t.Errorf("%s", text)
	}
	x.Clusters[maxRows].Row.Problem, x.Clusters[maxRows+1].Row.Problem = "", ""
	if text := writtenBy(func(b *strings.Builder) { Explanation{now: testTime}.writeRows(b, x, false) }); !strings.HasSuffix(text, "\n  and 1 more that are not done; --all shows them, --cluster NAME shows one\n  and 2 more that are done\n") {
		t.Errorf("%s", text)
	}
	x.Clusters[maxRows].Row.Problem, x.Clusters[maxRows+1].Row.Problem = "Drifted", "Drifted"
	if text := writtenBy(func(b *strings.Builder) { Explanation{now: testTime}.writeRows(b, x, true) }); strings.Contains(text, "more that") || strings.Count(text, "Drifted") != maxRows+3 {
		t.Errorf("all: %s", text)
	}
	if text := writtenBy(func(b *strings.Builder) {
		Explanation{}.writeRows(b, BundleExplanation{Clusters: x.Clusters[maxRows+3:]}, false)
	}); text != "" {
		t.Errorf("no rows: %q", text)
	}
}

// The reason for which a cluster has a row, or is to have one.
func TestReasonsForWhichAClusterHasARow(t *testing.T) {
	until := time.Date(2026, 1, 2, 12, 9, 0, 0, time.UTC)
	capacity := []schedule.CapacityBound{{Path: "replicas", Used: "3", Stated: "4"}, {Path: "objects", Used: "9", Stated: "9", Over: true}}
	for want, c := range map[string]ClusterExplanation{
		"fits":                            {Verdict: schedule.OutcomePlaced, Weight: 1},
		"fits until 2026-01-02T12:09:00Z": {Verdict: schedule.OutcomePlaced, EvictAt: &until},
		"kept: a taint":                   {Verdict: schedule.OutcomeKept, Reason: "a taint"},
		"kept: a taint, replicas 3 of 4 used, objects 9 of 9 used (nothing more comes)": {Verdict: schedule.OutcomeKept, Reason: "a taint", Capacity: capacity},
		"named in exclude": {Verdict: schedule.OutcomeOut, Reason: "named in exclude", Capacity: capacity},
		"fits, scores 750, decision group canary, takes overflow (step 2), weight 2, at least 1, at most 5, room for 7 more of web, room unknown, disconnected (gets no new replicas), replicas 3 of 4 used": {
			Verdict: schedule.OutcomePlaced, Score: &Score{Total: 750}, Group: "canary", OverflowStep: 2, Weight: 2, MinReplicas: 1, MaxReplicas: 5,
			Room: map[string]int64{"apps/Deployment/shop/web": 7}, RoomUnknown: true, GetsNothingNew: true, Capacity: capacity[:1],
		},
		"fits, takes overflow (step 1), at least 2, at most 1": {Verdict: schedule.OutcomePlaced, OverflowStep: 1, MinReplicas: 2, MaxReplicas: 1},
	} {
		if got := c.placementReason(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Clusters without a row are folded by the reason. The reason of most comes first.
func TestClustersWithoutARowAreFolded(t *testing.T) {
	cluster := func(name, reason string) ClusterExplanation {
		return ClusterExplanation{Cluster: name, Verdict: schedule.OutcomeOut, Filter: "f", Reason: reason}
	}
	held, chosen, unchosen := cluster("h", "x"), cluster("p", "x"), cluster("s", "x")
	held.Row, chosen.Verdict, unchosen.Score = newDoneRow(), schedule.OutcomePlaced, &Score{}
	some := []ClusterExplanation{cluster("a", "one"), cluster("b", "two"), cluster("c", "two"), cluster("d", "three"), held, chosen}
	const heading = "  Not in:\n"
	for name, c := range map[string]struct {
		x      BundleExplanation
		folded int
		want   string
	}{
		"none":           {BundleExplanation{Clusters: []ClusterExplanation{held, chosen}}, 20, ""},
		"by reason":      {BundleExplanation{Clusters: some}, 20, heading + "    b, c: two [f]\n    a: one [f]\n    d: three [f]\n"},
		"folded":         {BundleExplanation{Clusters: some}, 1, heading + "    b, c: two [f]\n    and 2 clusters for 2 reasons more; --all shows them, --cluster NAME one, -o json all\n"},
		"just unfolded":  {BundleExplanation{Clusters: some}, 3, heading + "    b, c: two [f]\n    a: one [f]\n    d: three [f]\n"},
		"unknown":        {BundleExplanation{Unknown: []string{"nosuch"}}, 20, heading + "    nosuch: named by the placement, and no cluster that you may see\n"},
		"among scores":   {BundleExplanation{Choice: &Choice{}, Clusters: []ClusterExplanation{unchosen}}, 20, ""},
		"without scores": {BundleExplanation{Clusters: []ClusterExplanation{unchosen}}, 20, heading + "    s: x [f]\n"},
	} {
		if got := writtenBy(func(b *strings.Builder) { writeExcluded(b, c.x, c.folded) }); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
