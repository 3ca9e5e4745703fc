package placer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// The lowest score of a group is that of its Bundles, and is computed again when one of them changes.
func TestLowestThresholdsOfAGroup(t *testing.T) {
	m, kind := newMovableBundles(), movableKind{}
	set := func(uid string, lowest int64) {
		m.setScoreThresholds(uid, kind, &schedule.ScoreThresholds{LowestChosen: lowest})
	}
	expect := func(when string, want int64) {
		t.Helper()
		if got := m.groups[kind].lowestThresholds(); *got != (schedule.ScoreThresholds{LowestChosen: want, HighestOther: math.MinInt64}) || m.groups[kind].isStale {
			t.Errorf("%s: %+v, want %d", when, *got, want)
		}
	}
	set("a", 50)
	expect("one Bundle", 50)
	set("b", 30)
	expect("a lower one", 30)
	set("b", 70)
	expect("it rose", 50)
	m.removeBundle("a")
	expect("the lower one is gone", 70)
}

// A Bundle of other terms leaves its group. A decision ends its wait for a turn.
func TestBundlesChangeTheirGroup(t *testing.T) {
	m, one, other := newMovableBundles(), movableKind{namespace: "a"}, movableKind{namespace: "b"}
	m.queued["web"] = true
	m.setScoreThresholds("web", one, &schedule.ScoreThresholds{LowestChosen: 1})
	if m.queued["web"] || m.groups[one].standings["web"].number != 1 {
		t.Errorf("queued %v, %+v", m.queued, m.groups[one].standings["web"])
	}
	m.setScoreThresholds("web", one, &schedule.ScoreThresholds{LowestChosen: 2})
	if m.groups[one].standings["web"].number != 2 || m.groups[one].standings["web"].LowestChosen != 2 {
		t.Errorf("%+v", m.groups[one].standings["web"])
	}
	m.setScoreThresholds("web", other, &schedule.ScoreThresholds{LowestChosen: 3})
	if m.groups[one] != nil || m.kindOfBundle["web"] != other || len(m.groups[other].standings) != 1 {
		t.Errorf("groups %v, kind %v", m.groups, m.kindOfBundle["web"])
	}
}

// Scores that clusters reached count for the Bundles that were decided before.
func TestRisesCountForEarlierDecisions(t *testing.T) {
	x, kind := newBundleIndex(), movableKind{}
	x.movable.setScoreThresholds("early", kind, &schedule.ScoreThresholds{HighestOther: 10})
	x.recordScoreRise(kind, 40)
	x.movable.setScoreThresholds("late", kind, &schedule.ScoreThresholds{HighestOther: 10})
	x.recordScoreRise(kind, 20)
	x.recordScoreRise(movableKind{namespace: "gone"}, 99)
	got := map[string]int64{}
	for _, c := range x.moveCandidates([]movableKind{kind, {namespace: "gone"}}, map[string]*atoll.RowSpec{"early": {}, "unmovable": {}}) {
		got[c.uid] = c.standing.HighestOther
	}
	if len(got) != 2 || got["early"] != 40 || got["late"] != 20 {
		t.Errorf("%v", got)
	}
	if len(x.lowestThresholdsByKind()) != 1 || !x.hasMovable() {
		t.Errorf("kinds %v", x.lowestThresholdsByKind())
	}
	x.removeBundle("early")
	x.removeBundle("late")
	if x.hasMovable() {
		t.Error("no Bundle may move any more")
	}
}

// A cluster that got worse for a Bundle on it lowers the Bundle's lowest score, and that of its group.
func TestRecordScoreFall(t *testing.T) {
	x, kind := newBundleIndex(), movableKind{}
	x.movable.setScoreThresholds("web", kind, &schedule.ScoreThresholds{LowestChosen: 50})
	x.movable.setScoreThresholds("api", kind, &schedule.ScoreThresholds{LowestChosen: 40})
	x.lowestThresholdsByKind()
	for _, tc := range []struct {
		uid              string
		score            int64
		bundle, ofLowest int64
	}{{"web", 60, 50, 40}, {"web", 50, 50, 40}, {"web", 45, 45, 40}, {"web", 30, 30, 30}, {"gone", 1, 30, 30}} {
		x.recordScoreFall(tc.uid, tc.score)
		if g := x.movable.groups[kind]; g.standings["web"].LowestChosen != tc.bundle || g.lowestThresholds().LowestChosen != tc.ofLowest {
			t.Errorf("%s falls to %d: %d, lowest %d; want %d, %d", tc.uid, tc.score, g.standings["web"].LowestChosen, g.lowestThresholds().LowestChosen, tc.bundle, tc.ofLowest)
		}
	}
}

// Bundles that scores may move wait for their turns, each once.
func TestMovesTakeTurns(t *testing.T) {
	x, now := newBundleIndex(), time.Unix(1000, 0)
	for _, tc := range []struct {
		uid   string
		at    time.Duration
		after time.Duration
		yes   bool
	}{
		{"a", 0, 0, true}, {"b", 0, scoreMoveInterval, true}, {"a", 0, 0, false}, {"c", scoreMoveInterval, scoreMoveInterval, true}, {"d", time.Hour, 0, true},
	} {
		if after, yes := x.reserveMoveTimeOnce(tc.uid, now.Add(tc.at)); after != tc.after || yes != tc.yes {
			t.Errorf("%s: after %s, %t; want %s, %t", tc.uid, after, yes, tc.after, tc.yes)
		}
	}
}

// counterText is the counters of a registry, as "name label=n".
func counterText(t *testing.T, r prometheus.Gatherer) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			text := ""
			for _, l := range m.GetLabel() {
				text += l.GetValue()
			}
			out = append(out, fmt.Sprintf("%s=%v", text, m.GetCounter().GetValue()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Steps are counted by their outcome, and orders by their cause; rows without an order are not. No application has failed.
func TestStepsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	active := atoll.RowSpec{UID: "u", Phase: atoll.RowActive, Generation: 1, Revision: "r1"}
	revised, noted := active, active
	revised.Revision, revised.Generation, noted.Reason = "r2", 2, "note"
	base := []state.Row{{Cluster: "a", Spec: active}, {Cluster: "b", Spec: active}, {Cluster: "c", Spec: active}, {Cluster: "d", Spec: active}}
	m.countStep(base, map[string]*atoll.RowSpec{"a": &revised, "b": &noted, "c": nil, "x": &active, "y": &active}, nil)
	m.countStep(base, nil, nil)
	m.countStep(base, map[string]*atoll.RowSpec{"a": &revised}, fmt.Errorf("write: %w", state.ErrRowsMoved))
	m.countStep(base, map[string]*atoll.RowSpec{"a": &revised}, errors.New("timeout"))
	m.countStep(base, map[string]*atoll.RowSpec{"b": &noted}, nil)
	if got, want := counterText(t, r), "=0 Forgotten=1 Placement=2 Revision=1 failed=1 outdated=1 unchanged=1 written=2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	NewMetrics(nil).countStep(nil, nil, nil)
}

// A new revision looks again at the clusters that had no capacity for another one.
func TestTouchRefusedClusters(t *testing.T) {
	for _, tc := range []struct {
		name    string
		crowded []string
		refused string
		touched []string
		whole   bool
	}{
		{"another revision was refused", []string{"a", "b"}, "old", []string{"a", "b"}, false},
		{"this revision was refused", []string{"a", "b"}, "web-1-r1", nil, false},
		{"any cluster", []string{anyCluster}, "old", nil, true},
	} {
		m := newFakeHub()
		m.cutRevision("web", &atoll.Content{})
		r := New(m.reconcilerConfig())
		e := r.index.ensureEntry("web")
		e.isComplete, e.needsAllRows = true, false
		r.usage.setCrowdedClusters("web", tc.crowded, nil)
		r.usage.refusedRevisions["web"] = tc.refused
		r.touchRefusedClusters("web")
		r.touchRefusedClusters("gone")
		for _, c := range tc.touched {
			if !e.hasTouched(c) {
				t.Errorf("%s: %s is not touched", tc.name, c)
			}
		}
		if len(e.touchedClusters) != len(tc.touched) || e.isComplete == tc.whole || len(r.index.entries) != 1 {
			t.Errorf("%s: touched %v, complete %t", tc.name, e.touchedClusters, e.isComplete)
		}
	}
}

// A Bundle waits for what its decision and its step found without capacity. A revision counts as refused once all
// clusters of the wait were looked at. Capacity that came free since is looked at again.
func TestRecordCapacityWaits(t *testing.T) {
	for _, tc := range []struct {
		name     string
		was      []string
		only     map[string]bool
		deleting bool
		want     []string
		refused  string
	}{
		{"all clusters", []string{"x"}, nil, false, []string{"a", "b"}, "r2"},
		{"some clusters", []string{"x"}, map[string]bool{"a": true, "b": true}, false, []string{"a", "b", "x"}, "r1"},
		{"all that it waited for", []string{"a"}, map[string]bool{"a": true, "b": true}, false, []string{"a", "b"}, "r2"},
		{"a deleted Bundle", []string{"x"}, map[string]bool{"a": true}, true, nil, ""},
	} {
		m := newFakeHub()
		r := New(m.reconcilerConfig())
		e := r.index.ensureEntry("web")
		r.usage.setCrowdedClusters("web", tc.was, nil)
		r.usage.refusedRevisions["web"], r.usage.freedCounts["a"], r.usage.freedCounts["b"] = "r1", 3, 3
		s := &stepInput{demand: capacityDemand{answers: map[string]usageAnswer{"a": {freedCount: 2}, "b": {freedCount: 3}}}}
		s.bundle.Ref.UID, s.rollout.Revision, s.rollout.Deleting, s.rollout.Decision.CapacityBlocked = "web", "r2", tc.deleting, []string{"b", "a"}
		r.recordCapacityWaits(s, rollout.Output{CapacityBlocked: []string{"a"}}, tc.only)
		if got := r.usage.crowdedClusters["web"]; !slices.Equal(got, tc.want) || r.usage.refusedRevisions["web"] != tc.refused {
			t.Errorf("%s: waits for %q, refused %q; want %q, %q", tc.name, got, r.usage.refusedRevisions["web"], tc.want, tc.refused)
		}
		if e.hasTouched("a") == tc.deleting || e.hasTouched("b") {
			t.Errorf("%s: touched %v", tc.name, e.touchedClusters)
		}
	}
}

// A cluster that states other bounds frees capacity. One without bounds, or of another UID, is not counted any more.
func TestCapacityChanged(t *testing.T) {
	bounded, other := boundedCluster(5), boundedCluster(6)
	replaced, unbounded := boundedCluster(5), boundedCluster(5)
	replaced.UID, unbounded.Capacity = "uid-new", nil
	for _, tc := range []struct {
		name    string
		was, is schedule.Cluster
		freed   uint64
		counted bool
	}{
		{"nothing", bounded, bounded, 0, true}, {"other bounds", bounded, other, 1, true}, {"no bounds any more", bounded, unbounded, 2, false},
		{"the first bounds", unbounded, bounded, 0, true}, {"a new cluster of that name", bounded, replaced, 1, false},
	} {
		m := newFakeHub()
		r := New(m.reconcilerConfig())
		r.usage.members["uid-a"] = &memberUsage{}
		r.index.ensureEntry("web").filter = schedule.CompilePlacement(v1alpha1.PlacementSpec{})
		r.index.replaceCluster(tc.is)
		defer r.index.beginStep("web")()
		r.capacityChanged(tc.was, tc.is)
		if got := r.usage.freedCounts["a"]; got != tc.freed || r.usage.hasMembers() != tc.counted {
			t.Errorf("%s: freed %d times, counted %t; want %d, %t", tc.name, got, r.usage.hasMembers(), tc.freed, tc.counted)
		}
		if changed := !slices.Equal(tc.was.Capacity, tc.is.Capacity) && len(tc.was.Capacity) > 0; r.index.ensureEntry("web").hasTouched("a") != changed {
			t.Errorf("%s: the running step is touched: %t", tc.name, !changed)
		}
	}
}

// A preview starts with the counts of the real hub, of all Bundles but the changed ones.
func TestPreviewCountsOnTheBase(t *testing.T) {
	row := func(uid string) map[string]state.Row {
		return map[string]state.Row{"a": withBundle(state.Row{Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowActive, Revision: "r"}}, uid)}
	}
	c := boundedCluster(9)
	for _, tc := range []struct {
		name  string
		known func(*bundleIndex)
		based bool
	}{
		{"the cluster is counted", func(x *bundleIndex) { x.replaceCluster(c) }, true},
		{"the cluster is not known", func(*bundleIndex) {}, false},
		{"it is of another UID", func(x *bundleIndex) { other := c; other.UID = "uid-b"; x.replaceCluster(other) }, false},
		{"it states nothing", func(x *bundleIndex) { other := c; other.Capacity = nil; x.replaceCluster(other) }, false},
	} {
		m := newFakeHub()
		m.contents["r"] = undividedContent("x", 3)
		m.rows["web"], m.rows["api"] = row("web"), row("api")
		base := New(m.reconcilerConfig())
		tc.known(base.index)
		fork := New(m.reconcilerConfig())
		fork.usage.base, fork.usage.supposedBundles = base, []string{"web"}
		others, own, err := fork.usedCapacity(t.Context(), &c, "web")
		if err != nil || others.QuantityOf(schedule.MeasureReplicas) != 3 || own.QuantityOf(schedule.MeasureReplicas) != 3 {
			t.Errorf("%s: others use %v, own %v, %v", tc.name, others, own, err)
		}
		if counted := base.usage.hasMembers(); counted != tc.based {
			t.Errorf("%s: the base counts the cluster: %t", tc.name, counted)
		}
	}
	failing, reads := newFakeHub(), 0
	failing.rows["web"] = row("web")
	cfg := failing.reconcilerConfig()
	cfg.Revisions = failingRevisions{fakeRevisions{failing}, errors.New("timeout"), &reads}
	base := New(cfg)
	base.index.replaceCluster(c)
	fork := New(failing.reconcilerConfig())
	fork.usage.base = base
	if _, _, err := fork.usedCapacity(t.Context(), &c, "api"); formatError(err) != "count what cluster a holds: timeout" {
		t.Errorf("the base cannot be read: %v", err)
	}
}

// Sets that changed recheck all Bundles of the namespace, or all Bundles where it has none.
func TestClusterSetsChanged(t *testing.T) {
	for namespace, want := range map[string]string{"shop": "web", "bank": "loan", "": "loan web", "none": ""} {
		m := newFakeHub()
		m.changeBundle("web", nil)
		m.changeBundle("loan", func(b *state.Bundle) { b.Ref.Namespace = "bank" })
		r := New(m.reconcilerConfig())
		for _, uid := range []string{"web", "loan"} {
			r.index.ensureEntry(uid).needsAllRows = false
		}
		r.clusterSetsChanged(namespace)
		var got []string
		for uid, e := range r.index.entries {
			if e.needsAllRows {
				got = append(got, uid)
			}
		}
		if slices.Sort(got); strings.Join(got, " ") != want {
			t.Errorf("namespace %q: %q, want %q", namespace, got, want)
		}
	}
}

// Terms are those of the Bundle, its sets and its latest content, which is read once.
func TestTermsOfABundle(t *testing.T) {
	m, reads := newFakeHub(), 0
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
	b, _ := fakeBundles{m}.Get("web")
	r := New(m.reconcilerConfig())
	if terms, err := r.termsOf(t.Context(), b); err != nil || terms.Kinds != nil || terms.BoundSets != nil || !terms.SummedWeights || len(terms.Placement.ClusterAffinity.ClusterNames) != 1 {
		t.Errorf("without a content: %+v, %v", terms, err)
	}
	b.Spec.WeightRule = v1alpha1.WeightLargest
	m.cutRevision("web", contentAsking("web", 1))
	for range 2 {
		if terms, err := r.termsOf(t.Context(), b); err != nil || !slices.Equal(terms.Kinds, []string{"apps/v1/Deployment"}) || terms.SummedWeights {
			t.Errorf("%+v, %v", terms, err)
		}
		m.contents["web-1-r1"] = &atoll.Content{}
	}
	cfg := m.reconcilerConfig()
	cfg.Revisions = failingRevisions{fakeRevisions{m}, errors.New("timeout"), &reads}
	if _, err := New(cfg).termsOf(t.Context(), b); formatError(err) != "bundle shop/web: timeout" {
		t.Errorf("a content that cannot be read: %v", err)
	}
	broken := atoll.Item{Key: atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, Object: []byte("[]")}
	if got := manifest.ListDefinedKinds(&atoll.Content{Items: []atoll.Item{broken}}); len(got) > 0 {
		t.Errorf("what is no definition defines %v", got)
	}
}

// Terms are equal where every part is.
func TestEqualTerms(t *testing.T) {
	base := schedule.PlacementTerms{Placement: placementNamed("a"), BoundSets: []string{"s"}, Kinds: []string{"k"}, Rebalance: time.Unix(1, 0)}
	for name, change := range map[string]func(*schedule.PlacementTerms){
		"the placement": func(x *schedule.PlacementTerms) { x.Placement = placementNamed("b") }, "the sets": func(x *schedule.PlacementTerms) { x.BoundSets = []string{"t"} },
		"the kinds": func(x *schedule.PlacementTerms) { x.Kinds = nil }, "the fixed kinds": func(x *schedule.PlacementTerms) { x.FixedKinds = []string{"k"} },
		"the losses": func(x *schedule.PlacementTerms) { x.VersionLosses = schedule.VersionLosses{"k": {"v": ""}} }, "the rebalance": func(x *schedule.PlacementTerms) { x.Rebalance = time.Unix(2, 0) },
	} {
		other := base
		if change(&other); equalTerms(base, other) {
			t.Errorf("%s differs", name)
		}
	}
	same := base
	if same.Placement, same.Rebalance = placementNamed("a"), time.Unix(1, 0).UTC(); !equalTerms(base, same) {
		t.Error("equal terms differ")
	}
}

// The rows of a deleted Bundle leave by what is known of their clusters. No cluster is wanted.
func TestLeavingVerdicts(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("b", nil)
	m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan} })
	m.changeCluster("c", func(c *v1alpha1.Cluster) { c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: "Delete"} })
	m.changeCluster("d", func(c *v1alpha1.Cluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
	got := New(m.reconcilerConfig()).leavingVerdicts([]state.Row{{Cluster: "gone"}, {Cluster: "d"}, {Cluster: "c"}, {Cluster: "b"}, {Cluster: "a"}})
	want := []schedule.Verdict{
		{Cluster: "a", UID: "uid-a", Outcome: schedule.OutcomeOut, Orphan: true}, {Cluster: "b", UID: "uid-b", Outcome: schedule.OutcomeOut}, {Cluster: "c", UID: "uid-c", Outcome: schedule.OutcomeOut},
		{Cluster: "d", Outcome: schedule.OutcomeGone, Filter: schedule.FilterDeleting}, {Cluster: "gone", Outcome: schedule.OutcomeGone, Filter: schedule.FilterDeleting},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// The condition PreferredGroup shows which group is in use. The first group is not worth one until another was used.
func TestPreferredGroupCondition(t *testing.T) {
	placement := ownThenCloudPlacement(time.Minute)
	at := time.Unix(1000, 0).UTC()
	fellBack := []metav1.Condition{{Type: v1alpha1.BundlePreferredGroup, Status: metav1.ConditionFalse, Reason: string(reasonFallenBack)}}
	for _, tc := range []struct {
		name   string
		before []metav1.Condition
		d      schedule.Decision
		want   string
	}{
		{"no groups", nil, schedule.Decision{}, ""},
		{"always the first", nil, schedule.Decision{Group: "own"}, ""},
		{"it never had groups", []metav1.Condition{{Type: v1alpha1.BundlePreferredGroup, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonNoGroups)}}, schedule.Decision{Group: "own"}, ""},
		{"the first again", fellBack, schedule.Decision{Group: "own"}, "True InUse: group own is in use, the first of clusterAffinities"},
		{"another one", nil, schedule.Decision{Group: "cloud"}, "False FallenBack: group cloud is in use; `atoll explain` shows why none is that comes before"},
		{"soon the first again", fellBack, schedule.Decision{Group: "cloud", PendingFailback: schedule.PendingFailback{Group: "own", Since: at}, FailbackAt: at.Add(time.Minute)},
			"Unknown ComesBack: group own could be used since 1970-01-01T00:16:40Z; it is used again from 1970-01-01T00:17:40Z on if it stays well, and cloud until then"},
	} {
		said := ""
		cfg := newFakeHub().reconcilerConfig()
		cfg.SetCondition = func(_ context.Context, _ state.Bundle, c metav1.Condition) error {
			said = fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			return apierrors.NewNotFound(bundleResource(), "web")
		}
		var b state.Bundle
		b.Spec.Placement, b.Status.Conditions = placement, tc.before
		if err := New(cfg).writePreferredGroupCondition(t.Context(), b, tc.d); err != nil || said != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.name, said, err, tc.want)
		}
		cfg.SetCondition = func(context.Context, state.Bundle, metav1.Condition) error { return errors.New("timeout") }
		if err := New(cfg).writePreferredGroupCondition(t.Context(), b, tc.d); (formatError(err) == "timeout") != (tc.want != "") {
			t.Errorf("%s: an error of the write is %v", tc.name, err)
		}
	}
}

func bundleResource() schema.GroupResource { return schema.GroupResource{Resource: "bundles"} }

// The groups of a decision are remembered. A failback from the condition stays so while it is the same.
func TestFailbackOfADecision(t *testing.T) {
	own := schedule.PendingFailback{Group: "own", Since: time.Unix(1, 0)}
	d := schedule.Decision{Group: "cloud", AwaitsFailback: true, EarlierGroupFull: true, Overflows: true, PendingFailback: own}
	want := failbackState{group: "cloud", awaitsEarlier: true, earlierIsFull: true, overflows: true, better: own, isRestored: true}
	if got := failbackOf(d, failbackState{better: own, isRestored: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want.isRestored = false
	for name, was := range map[string]failbackState{"another failback": {isRestored: true}, "it was not restored": {better: own}} {
		if got := failbackOf(d, was); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A Bundle waits for capacity in an earlier group, or wherever it may overflow.
func TestAwaitsCapacityIn(t *testing.T) {
	filter := schedule.CompilePlacement(ownThenCloudPlacement(time.Minute))
	cluster := func(name string) *schedule.Cluster {
		return &schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, Accepted: true}
	}
	for _, tc := range []struct {
		name string
		is   failbackState
		own  bool // the cluster of the first group
		last bool // that of the second
	}{
		{"the earlier group is full", failbackState{group: "cloud", earlierIsFull: true}, true, false}, {"it overflows", failbackState{group: "own", overflows: true}, true, true},
		{"neither", failbackState{group: "cloud"}, false, false},
	} {
		x := newBundleIndex()
		x.ensureEntry("web").filter, x.ensureEntry("web").failback = filter, tc.is
		if own, last := x.awaitsCapacityIn("web", cluster("a")), x.awaitsCapacityIn("web", cluster("b")); own != tc.own || last != tc.last {
			t.Errorf("%s: in a %t, in b %t", tc.name, own, last)
		}
		if x.awaitsCapacityIn("gone", cluster("a")) || x.awaitsCapacityIn("web", cluster("other")) {
			t.Errorf("%s: an unknown Bundle, or another cluster, waits", tc.name)
		}
	}
	if x := newBundleIndex(); x.ensureEntry("new").filter == nil && x.awaitsCapacityIn("new", cluster("a")) {
		t.Error("a Bundle without terms waits")
	}
}
