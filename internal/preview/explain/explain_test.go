package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

var updateGolden = flag.Bool("update", false, "rewrite the expected texts in testdata")

var (
	testTime  = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	webKey    = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	secretKey = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "db-password"}
)

// checkGolden compares a text with testdata/NAME.txt.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name + ".txt"
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func testCluster(name string, labels map[string]string) schedule.Cluster {
	return schedule.Cluster{ClusterView: atoll.ClusterView{Name: name, Labels: labels}, UID: "uid-" + name, Accepted: true}
}

func rowStatus(r atoll.RowSpec, state atoll.RowState, items ...atoll.ItemStatus) *atoll.RowStatus {
	return &atoll.RowStatus{Generation: r.Generation, State: state, Since: testTime.Add(-time.Minute).Unix(), Items: items, Applied: true}
}

// shopBundle is a Bundle that moves out of madrid, waits in oslo, runs in tokyo, and is
// still on its way out of a cluster that is away.
func shopBundle() Bundle {
	content := &atoll.Content{
		Items: []atoll.Item{
			{Key: webKey, Object: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2}}`)},
			{Key: secretKey, Object: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db-password"},"data":{"password":"aHVudGVyMg=="}}`)},
		},
		Rules: []atoll.Rule{{
			Policy: "ClusterOverridePolicy/asia", Items: []atoll.ItemKey{webKey, secretKey},
			Target:     &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"tokyo"}}},
			Overriders: v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: v1alpha1.OverrideAdd, Value: map[string]string{"where": "asia"}}}},
		}},
	}
	spec := v1alpha1.BundleSpec{
		Source:    v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"},
		Placement: v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}, ExcludeClusters: []string{"madrid"}}},
		WhenUnfit: v1alpha1.UnfitKeep, Removal: v1alpha1.Removal{Mode: v1alpha1.RemoveDelete},
	}
	prod := map[string]string{"env": "prod"}
	clusters := []schedule.Cluster{testCluster("madrid", prod), testCluster("oslo", prod), testCluster("tokyo", prod), testCluster("lima", nil), testCluster("quito", prod)}
	for i := range 7 {
		clusters = append(clusters, testCluster(fmt.Sprintf("dev-%d", i), map[string]string{"env": "dev"}))
	}
	clusters[4].Taints = []v1alpha1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
	row := func(name string, phase atoll.RowPhase, ago time.Duration) atoll.RowSpec {
		return atoll.RowSpec{UID: "uid-" + name, Generation: 7, Revision: "b-2", Phase: phase, Since: testTime.Add(-ago).Unix(), PlacementFingerprint: placementFingerprint(spec.Placement)}
	}
	madrid := row("madrid", atoll.RowLeaving, 3*time.Minute)
	madrid.MovingSince = madrid.Since
	oslo, tokyo := row("oslo", atoll.RowActive, 3*time.Minute), row("tokyo", atoll.RowActive, 72*time.Hour)
	quito := row("quito", atoll.RowActive, 30*24*time.Hour)
	lima := row("lima", atoll.RowRemoving, 5*time.Hour)
	_, tokyo.Variant = manifest.MatchRules(content, clusters[2].ClusterView)
	rows := map[string]rollout.Row{
		"madrid": {Spec: madrid, Status: rowStatus(madrid, atoll.RowReady), Online: true},
		"oslo": {Spec: oslo, Online: true, Status: rowStatus(oslo, atoll.RowProgressing, atoll.ItemStatus{
			Key: webKey, Health: atoll.Progressing, Reason: "ReplicasNotReady", Message: "1 of 2 replicas is ready",
		})},
		"tokyo": {Spec: tokyo, Online: true, Status: rowStatus(tokyo, atoll.RowFailed, atoll.ItemStatus{
			Key: secretKey, Health: atoll.Degraded, Error: true, Reason: "Conflict", Message: "Secret db-password is not ours",
		})},
		"quito": {Spec: quito, Online: true, Status: rowStatus(quito, atoll.RowReady)},
		"lima":  {Spec: lima},
	}
	b := Bundle{
		Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web-4f2a"}, Spec: spec, Content: content,
		Status: v1alpha1.BundleStatus{WaitsFor: "Secret/db-password in tokyo"},
		Latest: "b-2", Numbers: map[string]int64{"b-2": 2}, Rows: rows,
	}
	specs, views := map[string]atoll.RowSpec{}, map[string]atoll.ClusterView{}
	for name, r := range rows {
		specs[name] = r.Spec
	}
	for _, c := range clusters {
		views[c.Name] = c.ClusterView
	}
	b.Decision = schedule.DecidePlacement(schedule.Input{BundleUID: "b", Placement: spec.Placement, Clusters: clusters, Rows: specs, Now: testTime})
	b.Output = rollout.AdvanceRows(rollout.Input{
		BundleUID: "b", Rows: rows, Decision: b.Decision, Revision: "b-2", RemovalMode: v1alpha1.RemoveDelete, ExplainWaits: true, Now: testTime,
		Variants: map[string]string{"tokyo": tokyo.Variant},
	})
	b.Provenance = ProvenanceByCluster(rows, map[string]*atoll.Content{"b-2": content}, views)
	return b
}

func placementFingerprint(p v1alpha1.PlacementSpec) string {
	c := testCluster("x", map[string]string{"env": "prod"})
	v, _ := schedule.DecidePlacement(schedule.Input{Placement: p, Clusters: []schedule.Cluster{c}}).FindVerdict("x")
	return v.PlacementFingerprint
}

func explainInput(key atoll.ItemKey, bundles ...Bundle) ExplanationInput {
	return ExplanationInput{
		Object: key, Exists: true, Bundles: bundles, Now: testTime,
		PolicyMatch: &PolicyMatch{
			Winner: &Candidate{Kind: "PropagationPolicy", Name: "web", Priority: 5, Matched: "by name"},
			Why:    "best of 2 policies by priority",
			Others: []Candidate{{Kind: "ClusterPropagationPolicy", Name: "base", Matched: "by kind"}},
		},
		Skipped: []Skipped{{Key: atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "token"}, Why: "a token that the hub issued"}, {Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt"}, Why: "made by the hub in every namespace"}},
	}
}

func TestDeployment(t *testing.T) {
	checkGolden(t, "deployment", Explain(explainInput(webKey, shopBundle())).FormatText(false))
}

// A healthy row at an older revision, since the cluster is full, is not done, and nothing else of
// its Bundle is the cause.
func TestWhatIsHeldByCapacityIsNotDone(t *testing.T) {
	b := shopBundle()
	row := b.Rows["quito"]
	row.Spec.Reason = atoll.RowReason{Reason: atoll.ReasonNoCapacity, Text: "capacity.replicas is 18"}.String()
	b.Rows["quito"] = row
	b.Output.Waits = append(b.Output.Waits, rollout.RowWait{Cluster: "quito", For: "capacity of the cluster: capacity.replicas is 18", Actor: atoll.ActorHub, Since: testTime})
	if got := Explain(explainInput(webKey, b)).Verdict; !strings.Contains(got, "and ready in 1; not done in oslo, quito; other items of its Bundle are not done in tokyo;") {
		t.Error(got)
	}
}

// For a placement on all fitting clusters, the full ones are named.
func TestWhatIsFullIsInTheVerdict(t *testing.T) {
	b := shopBundle()
	for i := range b.Decision.Verdicts {
		if v := &b.Decision.Verdicts[i]; v.Cluster == "dev-0" {
			v.Filter, v.Reason = schedule.FilterCapacity, "capacity.replicas is 18, of which 18 are used"
		}
	}
	if got := Explain(explainInput(webKey, b)).Verdict; !strings.Contains(got, "; not in dev-0 for want of capacity;") {
		t.Error(got)
	}
}

// An object that another policy has taken up says why it is in two Bundles.
func TestWhatMovesToAnotherBundle(t *testing.T) {
	const says = "\n  It is to go to the Bundle of its own annotation, and stays in this one until it is healthy there.\n"
	in := explainInput(webKey, shopBundle())
	if text := Explain(in).FormatText(false); strings.Contains(text, "is to go") {
		t.Errorf("it moves in place:\n%s", text)
	}
	in.PolicyMatch.Winner = &Candidate{Kind: v1alpha1.SourceAnnotation, Name: "web"}
	if text := Explain(in).FormatText(false); !strings.Contains(text, says) {
		t.Errorf("lacks %q:\n%s", says, text)
	}
}

func TestWholeBundle(t *testing.T) {
	in := explainInput(atoll.ItemKey{Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "web-4f2a"}, shopBundle())
	in.PolicyMatch = nil
	checkGolden(t, "bundle", Explain(in).FormatText(false))
}

// An object that a policy places and that is in no Bundle yet has its wait, when that takes long.
func TestWhatIsPlacedAndWaitsSaysWhy(t *testing.T) {
	in := explainInput(webKey)
	in.PolicyMatch.WaitsFor = "namespace shop is not known"
	if got, want := Explain(in).Verdict, " is not placed by PropagationPolicy web yet: namespace shop is not known."; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A cluster that checks in is not away: it says when it comes.
func TestClustersThatCheckIn(t *testing.T) {
	b := shopBundle()
	row := b.Rows["quito"]
	row.CheckIn, row.Status = 15*time.Minute, nil
	b.Rows["quito"] = row
	e := Explain(explainInput(webKey, b))
	if text := e.FormatText(false); !strings.Contains(text, "not reported, checks in every 15m, next in about ") || strings.Contains(e.Verdict, "quito away") {
		t.Error(text)
	}
}

func TestNobodyPlacesIt(t *testing.T) {
	in := explainInput(webKey)
	in.PolicyMatch = &PolicyMatch{Why: "no policy and no annotation selects it", Skipped: "made by Deployment/api", NeededBy: []string{"shop/api-1"}}
	in.Holding = "the store was restored from an older snapshot"
	checkGolden(t, "empty", Explain(in).FormatText(false))
	if got := Explain(ExplanationInput{Object: webKey, Now: testTime}).FormatText(false); !strings.Contains(got, "is not on the hub") {
		t.Error(got)
	}
}

func TestHeldRemovalsAndEvictions(t *testing.T) {
	clusters := []schedule.Cluster{testCluster("a", nil), testCluster("b", nil)}
	added := metav1.NewTime(testTime.Add(-time.Minute))
	clusters[1].Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}}
	seconds := int64(600)
	b := Bundle{
		Ref: enginev1.BundleRef{UID: "b", Name: "base"}, Latest: "b-1", Numbers: map[string]int64{"b-1": 1}, Content: &atoll.Content{},
		Spec: v1alpha1.BundleSpec{Placement: v1alpha1.PlacementSpec{
			ClusterAffinity:    &v1alpha1.ClusterAffinity{ExcludeClusters: []string{"a"}},
			ClusterTolerations: []corev1.Toleration{{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}},
		}},
		Rows: map[string]rollout.Row{},
	}
	specs := map[string]atoll.RowSpec{}
	for _, c := range clusters {
		s := atoll.RowSpec{UID: c.UID, Generation: 1, Revision: "b-1", Phase: atoll.RowActive, Since: testTime.Add(-time.Hour).Unix()}
		specs[c.Name], b.Rows[c.Name] = s, rollout.Row{Spec: s, Online: true, Status: rowStatus(s, atoll.RowReady)}
	}
	clusters = append(clusters, testCluster("c", nil))
	b.Decision = schedule.DecidePlacement(schedule.Input{BundleUID: "b", Placement: b.Spec.Placement, Clusters: clusters, Rows: specs, Now: testTime})
	budget := intstr.FromInt32(0)
	step := rollout.Input{BundleUID: "b", Rows: b.Rows, Decision: b.Decision, Revision: "b-1", RemovalBudget: &budget, ExplainWaits: true, Now: testTime}
	out := rollout.AdvanceRows(step)
	for c, s := range out.Changes {
		if c == "a" {
			b.Rows[c] = rollout.Row{Spec: *s, Online: true, Status: b.Rows[c].Status}
		}
	}
	step.Rows = b.Rows
	b.Output = rollout.AdvanceRows(step)
	text := Explain(ExplanationInput{Object: atoll.ItemKey{Group: "atoll.dev", Kind: "ClusterBundle", Name: "base"}, Exists: true, Bundles: []Bundle{b}, Now: testTime}).FormatText(false)
	checkGolden(t, "held", strings.ReplaceAll(text, b.Output.PendingRemoval.Hash, "HASH"))
}

// A user that may not read Secrets sees neither them nor their content.
func TestSecretsStaySecret(t *testing.T) {
	for _, key := range []atoll.ItemKey{webKey, {Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "web-4f2a"}} {
		in := explainInput(key, shopBundle())
		in.MayRead = func(k atoll.ItemKey) bool { return k.Kind != "Secret" }
		e := Explain(in)
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"Secret", "db-password", "token", "Conflict", "aHVudGVyMg"} {
			if strings.Contains(string(raw), word) || strings.Contains(e.FormatText(false), word) {
				t.Errorf("the explanation of %s tells of %q:\n%s", key, word, raw)
			}
		}
		if !strings.Contains(e.FormatText(false), "items that you may not read") {
			t.Errorf("what tokyo waits for is not worded:\n%s", e.FormatText(false))
		}
	}
	for _, key := range []atoll.ItemKey{secretKey, {Group: "atoll.dev", Kind: "Bundle", Namespace: "shop", Name: "web-4f2a"}} {
		raw, err := json.Marshal(Explain(explainInput(key, shopBundle())))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "aHVudGVyMg") {
			t.Errorf("a Secret's value is in the explanation: %s", raw)
		}
	}
	text := Explain(explainInput(secretKey, shopBundle())).FormatText(false)
	if !strings.Contains(text, "/metadata/labels/where changed by ClusterOverridePolicy/asia rule 0 labelsOverrider[0], in tokyo") {
		t.Errorf("the override of a Secret: %s", text)
	}
}

func TestWhatAnItemIs(t *testing.T) {
	for _, tc := range []struct {
		content atoll.Content
		want    string
	}{
		{atoll.Content{Items: []atoll.Item{{Key: webKey}}}, "an item"},
		{atoll.Content{Items: []atoll.Item{{Key: webKey, Divided: true}}}, "an item whose replicas are divided"},
		{atoll.Content{Items: []atoll.Item{{Key: webKey, Dependency: true}}}, "a dependency of other items"},
		{atoll.Content{Items: []atoll.Item{{Key: webKey, State: atoll.ItemUnclaimed}}}, "Unclaimed"},
		{atoll.Content{Items: []atoll.Item{{Key: webKey, State: atoll.ItemUnaccounted}}}, "Unaccounted"},
		{atoll.Content{Tombstones: []atoll.Tombstone{{Key: webKey, Cause: atoll.CauseDeleted}}}, "on its way out (Deleted): it goes"},
		{atoll.Content{Tombstones: []atoll.Tombstone{{Key: webKey, Cause: atoll.CauseDeleted, Orphan: true}}}, "leave it running"},
		{atoll.Content{}, "not in the latest revision yet"},
	} {
		got := Explain(ExplanationInput{Object: webKey, Bundles: []Bundle{{Content: &tc.content}}, Now: testTime}).Bundles[0].Item
		if !strings.Contains(got, tc.want) {
			t.Errorf("%+v is %q, want %q", tc.content, got, tc.want)
		}
	}
}

func TestNextSteps(t *testing.T) {
	is := atoll.RowSpec{UID: "u", Generation: 3, Revision: "r", Variant: "v", Phase: atoll.RowActive}
	change := func(f func(*atoll.RowSpec)) *atoll.RowSpec {
		next := is
		next.Generation++
		f(&next)
		return &next
	}
	for want, next := range map[string]*atoll.RowSpec{
		"given up, since its Cluster is gone":                 nil,
		"created again for the Cluster that has the name now": change(func(r *atoll.RowSpec) { r.UID = "w" }),
		"becomes Leaving":                              change(func(r *atoll.RowSpec) { r.Phase = atoll.RowLeaving }),
		"moves to the latest revision":                 change(func(r *atoll.RowSpec) { r.Revision = "s" }),
		"gets other overrides, or another API version": change(func(r *atoll.RowSpec) { r.Variant = "" }),
		"gets another share":                           change(func(r *atoll.RowSpec) { r.Assigned = map[string]int64{"x": 1} }),
		"":                                             &is,
	} {
		if got := nextStep(is, next); got != want {
			t.Errorf("%+v is %q, want %q", next, got, want)
		}
	}
}

// All published clusters are listed where there are as many as are shown, and the others are counted
// where there are more.
func TestThePublishedClustersThatAreNotShownAreCounted(t *testing.T) {
	for n, want := range map[int]string{50: "", 51: "  and 1 cluster more;"} {
		e := Explanation{Chosen: &PlacementExplanation{}}
		for i := range n {
			name := fmt.Sprintf("c%02d", i)
			e.Chosen.Published = append(e.Chosen.Published, name)
			e.Chosen.Decision.Clusters = append(e.Chosen.Decision.Clusters, ClusterExplanation{Cluster: name, Verdict: schedule.OutcomePlaced})
		}
		var b strings.Builder
		e.writePublished(&b, false)
		text := b.String()
		if strings.Count(text, "\n  c") != 50 || strings.Contains(text, " more;") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%d published clusters: want %q in\n%s", n, want, text)
		}
	}
}

// A deleted object is held by the clusters that have not reported its deletion, and by no cluster for
// the deletion of another object.
func TestTheClustersThatHoldADeletedObjectAreNamed(t *testing.T) {
	row := func(name string) rollout.Row {
		return rollout.Row{Spec: atoll.RowSpec{UID: "uid-" + name, Generation: 2, Revision: "r", Phase: atoll.RowActive}, Online: true}
	}
	gone := atoll.Tombstone{Key: webKey, Cause: atoll.CauseDeleted}
	done := row("oslo")
	done.Status = &atoll.RowStatus{Generation: 2, State: atoll.RowReady, AllTombstonesDone: true}
	b := Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}, Latest: "r", Content: &atoll.Content{Tombstones: []atoll.Tombstone{gone}},
		Rows: map[string]rollout.Row{"oslo": done, "tokyo": row("tokyo")}}
	for key, want := range map[atoll.ItemKey]string{webKey: "tokyo", secretKey: ""} {
		got := Explain(ExplanationInput{Object: key, Bundles: []Bundle{b}, Now: testTime}).Bundles[0].Holders
		if strings.Join(got, " ") != want {
			t.Errorf("%s is held by %q, want %q", key.Name, got, want)
		}
	}
}

func TestLargeBundlesAreFolded(t *testing.T) {
	b := Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "n", Name: "big"}, Content: &atoll.Content{}, Latest: "r", Numbers: map[string]int64{"r": 1}, Rows: map[string]rollout.Row{}}
	var clusters []schedule.Cluster
	specs := map[string]atoll.RowSpec{}
	for i := range 2000 {
		c := testCluster(fmt.Sprintf("c%04d", i), nil)
		clusters = append(clusters, c)
		s := atoll.RowSpec{UID: c.UID, Generation: 1, Revision: "r", Phase: atoll.RowActive, Since: testTime.Unix()}
		specs[c.Name] = s
		b.Rows[c.Name] = rollout.Row{Spec: s, Online: i != 1999, Status: rowStatus(s, atoll.RowReady)}
	}
	last := b.Rows["c1999"]
	last.Status = nil
	b.Rows["c1999"] = last
	b.Decision = schedule.DecidePlacement(schedule.Input{Clusters: clusters, Rows: specs, Now: testTime})
	b.Output = rollout.AdvanceRows(rollout.Input{Rows: b.Rows, Decision: b.Decision, Revision: "r", ExplainWaits: true, Now: testTime})
	text := Explain(ExplanationInput{Object: atoll.ItemKey{Group: "atoll.dev", Kind: "Bundle", Namespace: "n", Name: "big"}, Bundles: []Bundle{b}, Now: testTime, Exists: true}).FormatText(false)
	if strings.Index(text, "c1999") > strings.Index(text, "c0000") {
		t.Error("what is not done does not come first")
	}
	if strings.Count(text, "\n") > 70 || !strings.Contains(text, "c1999") || !strings.Contains(text, "and 1950 more that are done") {
		t.Error(text)
	}
}

// An item that could not be brought up to date goes on at its last good content,
// which is healthy; the item is not done for that.
func TestLastGoodContentIsNotDone(t *testing.T) {
	b := shopBundle()
	row := b.Rows["oslo"]
	row.Status = rowStatus(row.Spec, atoll.RowFailed, atoll.ItemStatus{Key: webKey, Health: atoll.Healthy, Error: true, Reason: "RenderFailed", Message: "no such element"})
	b.Rows["oslo"] = row
	text := Explain(explainInput(webKey, b)).FormatText(false)
	if !strings.Contains(text, "not done in oslo") || !strings.Contains(text, "Failed (its last good content: Healthy)") {
		t.Error(text)
	}
}

// A kept cluster shows the capacity that it states, the used part, and a bound that is exceeded.
func TestPlacementReasonOfAKeptCluster(t *testing.T) {
	c := ClusterExplanation{Verdict: schedule.OutcomeKept, Reason: "it is not ready", Capacity: []schedule.CapacityBound{
		{Path: "capacity.replicas", Stated: "18", Used: "20", Over: true}, {Path: "capacity.requests.cpu", Stated: "4", Used: "500m"},
	}}
	const want = "kept: it is not ready, capacity.replicas 20 of 18 used (nothing more comes), capacity.requests.cpu 500m of 4 used"
	if got := c.placementReason(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The start of a StatefulSet's range is shown with its assigned replicas.
func TestOrdinalsAreTold(t *testing.T) {
	b := shopBundle()
	row := b.Rows["quito"]
	row.Spec.Assigned, row.Spec.OrdinalStarts = map[string]int64{webKey.String(): 3}, map[string]int64{webKey.String(): 2000}
	b.Rows["quito"] = row
	if text := Explain(ExplanationInput{Object: webKey, Exists: true, Bundles: []Bundle{b}, Now: testTime}).FormatText(true); !strings.Contains(text, "web=3 (ordinals 2000 to 2002)") {
		t.Error(text)
	}
}

// A lack of places is shown for the requested object, with the bound of each cluster.
func TestShortageIsTold(t *testing.T) {
	b := shopBundle()
	b.Output.Shortages = []schedule.Shortage{{Key: webKey, Replicas: 10, Unplaced: 3}}
	for i := range b.Decision.Verdicts {
		b.Decision.Verdicts[i].Weight, b.Decision.Verdicts[i].Bounds = 2, schedule.ReplicaBounds{Min: 1, Max: 4}
	}
	ask := func(key atoll.ItemKey) string {
		return Explain(ExplanationInput{Object: key, Exists: true, Bundles: []Bundle{b}, Now: testTime}).FormatText(true)
	}
	const short = "3 of 10 replicas of Deployment/web have no place: every cluster that fits is at its bounds; to act: the policy's owner."
	if text := ask(webKey); !strings.Contains(text, short) || !strings.Contains(text, "; not done in oslo; 3 replicas without a place;") || !strings.Contains(text, "fits, weight 2, at least 1, at most 4") {
		t.Error(text)
	}
	if text := ask(secretKey); strings.Contains(text, short) {
		t.Error(text)
	}
}

// For shares by free capacity, the clusters' capacity is shown, and that it is unknown.
func TestRoomIsTold(t *testing.T) {
	b := shopBundle()
	p := b.Spec.Placement
	p.ReplicaScheduling = v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, ReplicaDivisionPreference: v1alpha1.DivideAggregated}
	left, err := freecapacity.ParseClasses([]string{"2 cpu=1000m pods=7"})
	if err != nil {
		t.Fatal(err)
	}
	b.Decision = schedule.DecidePlacement(schedule.Input{BundleUID: "b", Placement: p, Clusters: []schedule.Cluster{testCluster("oslo", map[string]string{"env": "prod"}), testCluster("tokyo", map[string]string{"env": "prod"})},
		Workloads: []schedule.Workload{{Key: webKey, Replicas: 3, Requests: freecapacity.ReplicaRequests{CPU: 300}}}, Now: testTime}).WithFreeCapacity(func(cluster string) (freecapacity.NodeClasses, bool) { return left, cluster == "oslo" })
	e := Explain(ExplanationInput{Object: webKey, Exists: true, Bundles: []Bundle{b}, Now: testTime})
	oslo, tokyo := e.Bundles[0].Clusters[0], e.Bundles[0].Clusters[1]
	if oslo.Room[webKey.String()] != 6 || oslo.RoomUnknown || tokyo.Room != nil || !tokyo.RoomUnknown {
		t.Errorf("%+v\n%+v", oslo, tokyo)
	}
	if text := e.FormatText(true); !strings.Contains(text, "fits, room for 6 more of web") || !strings.Contains(text, "fits, room unknown") {
		t.Error(text)
	}
	e = Explain(ExplanationInput{Object: secretKey, Exists: true, Bundles: []Bundle{b}, Now: testTime})
	if room := e.Bundles[0].Clusters[0].Room; room != nil {
		t.Errorf("of another object: %v", room)
	}
}

// The group of clusterAffinities in use, and the return to an earlier one, are shown once; for a
// group without a fitting cluster only that.
func TestGroupInUse(t *testing.T) {
	at := testTime.Add(5 * time.Minute)
	groups := func(first schedule.AffinityGroup) []schedule.AffinityGroup {
		first.Name = "own"
		return []schedule.AffinityGroup{first, {Name: "cloud", InUse: true, Fit: 3, Healthy: 2}}
	}
	for _, tc := range []struct {
		decision schedule.Decision
		want     string
	}{
		{schedule.Decision{}, ""},
		{schedule.Decision{Group: "cloud", Groups: groups(schedule.AffinityGroup{Why: "no cluster fits in it"})}, "    own: not in use: no cluster fits in it\n    cloud: in use; 3 clusters fit, 1 of them not in touch\n"},
		{schedule.Decision{Group: "cloud", Groups: groups(schedule.AffinityGroup{Why: "none of its clusters that fit is in touch", Fit: 1})}, "    own: not in use: none of its clusters that fit is in touch; 1 cluster fits, and is not in touch\n"},
		{schedule.Decision{Group: "cloud", AwaitsFailback: true, PendingFailback: schedule.PendingFailback{Group: "own", Since: testTime}, FailbackAt: at, Groups: groups(schedule.AffinityGroup{
			Why: "it is used again once it could be for 5m without a break", Fit: 1, Healthy: 1, Since: &testTime, Again: &at,
		})}, "    own: not in use: it is used again once it could be for 5m without a break; it could be since " + testTime.UTC().Format(time.RFC3339) + ", and is used again from " + at.UTC().Format(time.RFC3339) + " on if that lasts; 1 cluster fits\n"},
	} {
		x := ExplanationInput{}.explainBundle(Bundle{Ref: enginev1.BundleRef{Namespace: "shop", Name: "web"}, Decision: tc.decision})
		var b strings.Builder
		Explanation{Bundles: []BundleExplanation{x}}.writeBundle(&b, x, false)
		got := b.String()
		if !strings.Contains(got, tc.want) || tc.want == "" && strings.Contains(got, "clusterAffinities") {
			t.Errorf("says %q, want %q", got, tc.want)
		}
		if strings.Count(got, "in use") > 2 {
			t.Errorf("it says twice which is in use: %q", got)
		}
	}
}

// A policy shows what it selects, and why it places nothing of that. An object whose policy waits
// shows that. In a namespace that may place nowhere, there is no advice to place there.
func TestWhatIsNotPlacedSaysWhy(t *testing.T) {
	missing := "Placement shop/egde, which placementRef names, does not exist. Create it, or name another"
	policy := ExplanationInput{
		Object: atoll.ItemKey{Group: "atoll.dev", Kind: "PropagationPolicy", Namespace: "shop", Name: "web"}, Exists: true, Now: testTime,
		Policy: &Policy{Selects: []string{"Deployment web", "every Service with app=web"}, Problem: missing},
	}
	held := policy
	held.Bundles = []Bundle{shopBundle()}
	well := held
	well.Policy = &Policy{Selects: policy.Policy.Selects}
	object := ExplanationInput{Object: webKey, Version: "v1", Exists: true, Now: testTime}
	waits, barred := object, object
	waits.PolicyMatch = &PolicyMatch{Winner: &Candidate{Kind: "PropagationPolicy", Name: "web"}, Why: "only it selects the object", WaitsFor: missing}
	barred.PolicyMatch, barred.NamespaceBarred = &PolicyMatch{Why: "no policy and no annotation selects it"}, true
	for name, tc := range map[string]struct {
		in     ExplanationInput
		has    []string
		hasNot string
	}{
		"a policy":                 {policy, []string{"PropagationPolicy/web in namespace shop places nothing: " + missing + ".\n", "\nIt selects Deployment web, every Service with app=web.\n"}, "no object that exists"},
		"a policy with a Bundle":   {held, []string{"\n  Not all of that is placed as it states: " + missing + ".\n"}, "places nothing"},
		"a policy that is well":    {well, []string{"\nIt selects Deployment web"}, "Not all"},
		"an object":                {waits, []string{"is not placed by PropagationPolicy web yet: " + missing}, "about to be"},
		"a namespace without sets": {barred, []string{"Namespace shop may place on no cluster", "metadata: {name: SET, namespace: shop}"}, "kubectl annotate"},
	} {
		text := Explain(tc.in).FormatText(false)
		for _, line := range tc.has {
			if !strings.Contains(text, line) {
				t.Errorf("%s lacks %q:\n%s", name, line, text)
			}
		}
		if strings.Contains(text, tc.hasNot) {
			t.Errorf("%s has %q:\n%s", name, tc.hasNot, text)
		}
	}
}

// The effect of workloadAffinity is shown, and a term without a label.
func TestWorkloadAffinityIsExplained(t *testing.T) {
	group := schedule.WorkloadGroup{Key: "tier", Value: "db", KeepsApart: true, Others: map[string]bool{"oslo": true}, NameAt: func(string) schedule.MemberName {
		return schedule.MemberName{Text: "Deployment shop/a", Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "a"}}
	}}
	d := schedule.DecidePlacement(schedule.Input{
		BundleUID: "web", Clusters: []schedule.Cluster{{ClusterView: atoll.ClusterView{Name: "oslo"}, UID: "u", Accepted: true}},
		WorkloadGroups: &schedule.WorkloadGroups{List: []schedule.WorkloadGroup{group}, Terms: []schedule.WorkloadTerm{{Term: "affinity", Key: "stack"}, {Term: "antiAffinity", Key: "tier", Values: []string{"db"}}}},
	})
	x := ExplanationInput{}.explainBundle(Bundle{Ref: enginev1.BundleRef{Namespace: "shop", Name: "web"}, Decision: d})
	var b strings.Builder
	Explanation{Bundles: []BundleExplanation{x}}.writeBundle(&b, x, false)
	for _, want := range []string{
		"  workloadAffinity.affinity does nothing: no template of the Bundle has the label stack.\n",
		"  workloadAffinity.antiAffinity keeps it apart from the other members of tier=db.\n",
		"  Clusters that fit otherwise are refused: it is kept apart from Deployment shop/a, which runs in oslo (group tier=db).\n",
		"kept apart from Deployment shop/a, which runs here (group tier=db)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if c := x.Clusters[0]; c.ReasonCode != atoll.ReasonKeptApart || c.Filter != schedule.FilterApart {
		t.Errorf("the cluster is explained by %s, %s", c.Filter, c.ReasonCode)
	}
	// A reader of other kinds is shown no name, also not one that a row has from an earlier decision.
	row := rollout.Row{Spec: atoll.RowSpec{Phase: atoll.RowActive, Reason: "NoReplacement: kept apart from Deployment shop/b, which runs in oslo (group tier=db)"}}
	for mayRead, want := range map[bool]string{true: "kept apart from Deployment shop/a, which", false: "kept apart from another member of the group, which"} {
		in := ExplanationInput{MayRead: func(atoll.ItemKey) bool { return mayRead }}
		x := in.explainBundle(Bundle{Ref: enginev1.BundleRef{Namespace: "shop", Name: "web"}, Decision: d, Rows: map[string]rollout.Row{"oslo": row}})
		c := x.Clusters[0]
		if !strings.Contains(c.Reason, want) || !strings.Contains(x.WorkloadAffinity.Refusal, want) || strings.Contains(c.Row.Reason, "shop/b") {
			t.Errorf("may read %t: %q, %q, %q", mayRead, c.Reason, x.WorkloadAffinity.Refusal, c.Row.Reason)
		}
	}
}
