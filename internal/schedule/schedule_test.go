package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clustermatch"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newCluster(name string, change ...func(*Cluster)) Cluster {
	c := Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name, Accepted: true}
	for _, f := range change {
		f(&c)
	}
	return c
}

func withLabel(k, v string) func(*Cluster) {
	return func(c *Cluster) {
		c.Labels = maps.Clone(c.Labels)
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[k] = v
	}
}

func withTaint(key, value string, effect corev1.TaintEffect, ago time.Duration) func(*Cluster) {
	at := metav1.NewTime(now.Add(-ago))
	return func(c *Cluster) {
		c.Taints = append(slices.Clone(c.Taints), v1alpha1.Taint{Key: key, Value: value, Effect: effect, TimeAdded: &at})
	}
}

func affinityPlacement(a v1alpha1.ClusterAffinity) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &a}
}

func labelSelectorOf(kv ...string) *metav1.LabelSelector {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return &metav1.LabelSelector{MatchLabels: m}
}

func inRegion(regions ...string) *v1alpha1.FieldSelector {
	return &v1alpha1.FieldSelector{MatchExpressions: []v1alpha1.FieldRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: regions}}}
}

// activeRow as it is after the placement put it on the cluster.
func activeRow(c Cluster, p v1alpha1.PlacementSpec) atoll.RowSpec {
	return atoll.RowSpec{UID: c.UID, Generation: 1, Revision: "r1", Phase: atoll.RowActive, PlacementFingerprint: CompilePlacement(p).placementFingerprint}
}

func secondsPointer(n int64) *int64 { return &n }

func TestFiltersOfNewcomers(t *testing.T) {
	noSchedule := withTaint("maintenance", "", corev1.TaintEffectNoSchedule, 0)
	noExecute := withTaint("down", "yes", corev1.TaintEffectNoExecute, 0)
	tolerate := func(ts ...corev1.Toleration) v1alpha1.PlacementSpec {
		return v1alpha1.PlacementSpec{ClusterTolerations: ts}
	}
	for _, tc := range []struct {
		name      string
		cluster   Cluster
		placement v1alpha1.PlacementSpec
		want      string
	}{
		{"nothing asked", newCluster("a"), v1alpha1.PlacementSpec{}, "Placed"},
		{"not accepted", newCluster("a", func(c *Cluster) { c.Accepted = false }), v1alpha1.PlacementSpec{}, "Out (accepted: not accepted: `atoll accept a` is missing)"},
		{"deleting", newCluster("a", func(c *Cluster) { c.Deleting = true }), v1alpha1.PlacementSpec{}, "Out (deleting: the Cluster is being deleted)"},
		{"excluded", newCluster("a"), affinityPlacement(v1alpha1.ClusterAffinity{ExcludeClusters: []string{"b", "a"}, ClusterNames: []string{"a"}}), "Out (exclude: named in exclude)"},
		{"named", newCluster("a"), affinityPlacement(v1alpha1.ClusterAffinity{ClusterNames: []string{"b", "a"}}), "Placed"},
		{"not named", newCluster("a"), affinityPlacement(v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}), "Out (clusterNames: not named in clusterNames)"},
		{"nowhere", newCluster("a"), atoll.NowherePlacement(), "Out (clusterNames: not named in clusterNames)"},
		{"labels", newCluster("a", withLabel("env", "prod")), affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")}), "Placed"},
		{"other labels", newCluster("a"), affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")}), `Out (labelSelector: labels do not match "env=prod")`},
		{"fields", newCluster("a", func(c *Cluster) { c.Region = "eu" }), affinityPlacement(v1alpha1.ClusterAffinity{FieldSelector: inRegion("eu")}), "Placed"},
		{"other fields", newCluster("a"), affinityPlacement(v1alpha1.ClusterAffinity{FieldSelector: inRegion("eu")}), `Out (fieldSelector: field region="" is not In ["eu"])`},
		{"NoSchedule", newCluster("a", noSchedule), v1alpha1.PlacementSpec{}, "Out (taints: taint maintenance:NoSchedule is not tolerated)"},
		{"NoExecute", newCluster("a", noExecute), v1alpha1.PlacementSpec{}, "Out (taints: taint down=yes:NoExecute is not tolerated)"},
		{"tolerated by Exists", newCluster("a", noSchedule), tolerate(corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpExists}), "Placed"},
		{"tolerated by Equal", newCluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Value: "yes"}), "Placed"},
		{"another value", newCluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Value: "no"}), "Out (taints: taint down=yes:NoExecute is not tolerated)"},
		{"another effect", newCluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), "Out (taints: taint down=yes:NoExecute is not tolerated)"},
		{"everything tolerated", newCluster("a", noExecute, noSchedule), tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}), "Placed"},
		{"an empty key needs Exists", newCluster("a", noSchedule), tolerate(corev1.Toleration{}), "Out (taints: taint maintenance:NoSchedule is not tolerated)"},
		{"tolerated for a while", newCluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: secondsPointer(60)}), "Out (taints: taint down=yes:NoExecute is tolerated for 60 s only)"},
		{"malformed selector", newCluster("a"), affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}}}}), `Out (labelSelector: labelSelector is malformed: "Near" is not a valid label selector operator)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := DecidePlacement(Input{Placement: tc.placement, Clusters: []Cluster{tc.cluster}, Now: now})
			if got := d.Verdicts[0].String(); got != tc.want {
				t.Errorf("verdict %s, want %s", got, tc.want)
			}
			if fits := d.Verdicts[0].Outcome == OutcomePlaced; d.NoFit == fits && !atoll.IsNowhere(tc.placement) {
				t.Errorf("NoFit is %t", d.NoFit)
			}
		})
	}
}

// A running Bundle leaves for an edit, an eviction or on demand, and for nothing else.
func TestDriftIsNotAnEdit(t *testing.T) {
	prod := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")})
	dev := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "dev")})
	prodEU := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod"), FieldSelector: inRegion("eu")})
	c := newCluster("a", withLabel("env", "prod"))
	drifted := newCluster("a", withLabel("env", "test"))
	withTaint := func(effect corev1.TaintEffect, ago time.Duration) Cluster {
		return newCluster("a", withLabel("env", "prod"), withTaint("t", "", effect, ago))
	}
	brief := prod
	brief.ClusterTolerations = []corev1.Toleration{{Key: "t", Operator: corev1.TolerationOpExists, TolerationSeconds: secondsPointer(60)}}
	held := activeRow(c, prod)
	held.Phase = atoll.RowHeld
	removing := activeRow(c, prod)
	removing.Phase = atoll.RowRemoving
	for _, tc := range []struct {
		name      string
		cluster   Cluster
		row       atoll.RowSpec
		placement v1alpha1.PlacementSpec
		unfit     v1alpha1.WhenUnfit
		outcome   Outcome
		word      atoll.Reason
	}{
		{"fits", c, activeRow(c, prod), prod, "", OutcomePlaced, ""},
		{"labels drifted", drifted, activeRow(c, prod), prod, v1alpha1.UnfitKeep, OutcomeKept, atoll.ReasonUnfit},
		{"labels drifted, Remove", drifted, activeRow(c, prod), prod, v1alpha1.UnfitRemove, OutcomeLeaves, atoll.ReasonUnfit},
		{"labels drifted, then another selector", drifted, activeRow(c, prod), dev, "", OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"labels drifted, then another part of the placement", drifted, activeRow(c, prod), affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod"), ExcludeClusters: []string{"z"}}), "", OutcomeKept, atoll.ReasonUnfit},
		{"the selector was edited", c, activeRow(c, prod), dev, "", OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"fields were added", c, activeRow(c, prod), prodEU, "", OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"fields drifted", c, activeRow(c, prodEU), prodEU, "", OutcomeKept, atoll.ReasonUnfit},
		{"a selector where there was none", c, activeRow(c, v1alpha1.PlacementSpec{}), dev, "", OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"the same selector written another way", c, activeRow(c, prod), affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: metav1.LabelSelectorOpIn, Values: []string{"prod"}}}}}), "", OutcomePlaced, ""},
		{"excluded", c, activeRow(c, prod), affinityPlacement(v1alpha1.ClusterAffinity{ExcludeClusters: []string{"a"}}), "", OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"not named any more", c, activeRow(c, v1alpha1.PlacementSpec{}), affinityPlacement(v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}), "", OutcomeLeaves, atoll.ReasonPlacementEdited},
		{"denied", newCluster("a", withLabel("env", "prod"), func(c *Cluster) { c.Accepted = false }), activeRow(c, prod), prod, v1alpha1.UnfitRemove, OutcomeKept, atoll.ReasonUnfit},
		{"NoSchedule", withTaint(corev1.TaintEffectNoSchedule, 0), activeRow(c, prod), prod, "", OutcomeKept, atoll.ReasonUnfit},
		{"NoSchedule, Remove", withTaint(corev1.TaintEffectNoSchedule, 0), activeRow(c, prod), prod, v1alpha1.UnfitRemove, OutcomeLeaves, atoll.ReasonUnfit},
		{"NoExecute", withTaint(corev1.TaintEffectNoExecute, 0), activeRow(c, prod), prod, "", OutcomeLeaves, atoll.ReasonEvicted},
		{"NoExecute, tolerated for a while", withTaint(corev1.TaintEffectNoExecute, 59*time.Second), activeRow(c, prod), brief, "", OutcomePlaced, ""},
		{"NoExecute, no longer tolerated", withTaint(corev1.TaintEffectNoExecute, 60*time.Second), activeRow(c, prod), brief, "", OutcomeLeaves, atoll.ReasonEvicted},
		{"deleting", newCluster("a", func(c *Cluster) { c.Deleting = true }), activeRow(c, prod), prod, "", OutcomeGone, ""},
		{"held, and the edit is taken back", c, held, prod, "", OutcomePlaced, ""},
		{"removing, and wanted again", c, removing, prod, "", OutcomePlaced, ""},
		{"removing, and drifted", drifted, removing, prod, "", OutcomeOut, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spare := newCluster("spare", withLabel("env", "prod"), withLabel("x", "y"), func(c *Cluster) { c.Region = "eu" })
			if atoll.HashJSON(tc.placement) == atoll.HashJSON(dev) {
				spare = newCluster("spare", withLabel("env", "dev"))
			}
			spare.Name = "b"
			d := DecidePlacement(Input{
				Placement: tc.placement, WhenUnfit: tc.unfit, Now: now,
				Clusters: []Cluster{tc.cluster, spare}, Rows: map[string]atoll.RowSpec{"a": tc.row},
			})
			v, _ := d.FindVerdict("a")
			if v.Outcome != tc.outcome || v.RowReason != tc.word {
				t.Errorf("%s %q, want %s %q", v, v.RowReason, tc.outcome, tc.word)
			}
			if b, _ := d.FindVerdict("b"); b.Outcome != OutcomePlaced {
				t.Errorf("the spare cluster is %s", b)
			}
		})
	}
}

func TestNothingFitsClearsNothing(t *testing.T) {
	a, b := newCluster("a"), newCluster("b")
	rows := map[string]atoll.RowSpec{"a": activeRow(a, v1alpha1.PlacementSpec{}), "b": activeRow(b, v1alpha1.PlacementSpec{})}
	slip := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prdo")})
	d := DecidePlacement(Input{Placement: slip, Clusters: []Cluster{a, b}, Rows: rows, Now: now})
	for _, v := range d.Verdicts {
		if v.Outcome != OutcomeKept || v.RowReason != atoll.ReasonNoClusterFits || !d.NoFit {
			t.Errorf("%s: %s %q", v.Cluster, v, v.RowReason)
		}
		// It has to leave as soon as something fits.
		if v.PlacementFingerprint != rows[v.Cluster].PlacementFingerprint {
			t.Errorf("the row on %s forgets what it was chosen under", v.Cluster)
		}
	}
	d = DecidePlacement(Input{Placement: slip, Clusters: []Cluster{a, b, newCluster("c", withLabel("env", "prdo"))}, Rows: rows, Now: now})
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeLeaves || d.NoFit {
		t.Errorf("when one fits, the others are %s", v)
	}
	d = DecidePlacement(Input{Placement: atoll.NowherePlacement(), Clusters: []Cluster{a, b}, Rows: rows, Now: now})
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeLeaves || d.NoFit {
		t.Errorf("where nowhere is wished, a is %s", v)
	}
	d = DecidePlacement(Input{Clusters: []Cluster{newCluster("a", withTaint("t", "", corev1.TaintEffectNoExecute, 0))}, Rows: map[string]atoll.RowSpec{"a": rows["a"]}, Now: now})
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomeKept {
		t.Errorf("the only place, tainted: %s", v)
	}
}

// While no cluster fits, a scaled workload is still divided by weight among the clusters that keep it.
func TestNothingFitsAndTheWorkloadIsScaled(t *testing.T) {
	a, b := newCluster("a"), newCluster("b")
	p := weightedPlacement(staticWeight(3, "a"), staticWeight(1, "b"))
	p.ClusterAffinity = &v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prdo")}
	w := web
	w.Replicas = 8
	d := DecidePlacement(Input{Placement: p, Clusters: []Cluster{a, b}, Workloads: []Workload{w}, Now: now,
		Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 3), "b": runningRow(b, web, 1)}})
	if got := formatShares(d, w); !d.NoFit || got != "a=6 b=2" {
		t.Errorf("no cluster fits: %t; shares %s, want a=6 b=2", d.NoFit, got)
	}
}

func TestVanishedAndReplacedClusters(t *testing.T) {
	a := newCluster("a")
	other := newCluster("b")
	other.UID = "new"
	d := DecidePlacement(Input{Clusters: []Cluster{a, other}, Now: now, Rows: map[string]atoll.RowSpec{
		"a": activeRow(a, v1alpha1.PlacementSpec{}), "b": activeRow(newCluster("b"), v1alpha1.PlacementSpec{}), "c": activeRow(newCluster("c"), v1alpha1.PlacementSpec{}),
	}})
	for name, want := range map[string]Outcome{"a": OutcomePlaced, "b": OutcomePlaced, "c": OutcomeGone} {
		if v, ok := d.FindVerdict(name); !ok || v.Outcome != want {
			t.Errorf("%s is %s, want %s", name, v, want)
		}
	}
	if v, _ := d.FindVerdict("b"); v.UID != "new" {
		t.Errorf("b has UID %s", v.UID)
	}
	if _, ok := d.FindVerdict("absent"); ok {
		t.Error("there is a verdict on an unknown cluster")
	}
}

func TestEvictionTimes(t *testing.T) {
	c := newCluster("a", withTaint("x", "", corev1.TaintEffectNoExecute, 10*time.Second), withTaint("y", "", corev1.TaintEffectNoExecute, 20*time.Second))
	tol := func(key string, s *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, TolerationSeconds: s}
	}
	for _, tc := range []struct {
		tolerations []corev1.Toleration
		in          time.Duration // from now; -1: never
	}{
		{[]corev1.Toleration{tol("x", secondsPointer(100)), tol("y", secondsPointer(60))}, 40 * time.Second},
		{[]corev1.Toleration{tol("x", nil), tol("y", secondsPointer(1000))}, 980 * time.Second},
		{[]corev1.Toleration{tol("x", nil), tol("y", nil)}, -1},
		{[]corev1.Toleration{tol("", secondsPointer(30))}, 10 * time.Second},
		{[]corev1.Toleration{tol("x", secondsPointer(1<<62)), tol("y", nil)}, maxSeconds*time.Second - 10*time.Second},
	} {
		d := DecidePlacement(Input{
			Placement: v1alpha1.PlacementSpec{ClusterTolerations: tc.tolerations}, Now: now,
			Clusters: []Cluster{c, newCluster("b")}, Rows: map[string]atoll.RowSpec{"a": activeRow(c, v1alpha1.PlacementSpec{})},
		})
		v, _ := d.FindVerdict("a")
		want := time.Time{}
		if tc.in >= 0 {
			want = now.Add(tc.in)
		}
		if v.Outcome != OutcomePlaced || !v.Notes().EvictAt.Equal(want) || !d.EvictAt.Equal(want) {
			t.Errorf("%v: %s, evicted at %s, want %s", tc.tolerations, v, v.Notes().EvictAt, want)
		}
	}
	c.Taints[0].TimeAdded, c.Taints[1].TimeAdded = nil, nil
	d := DecidePlacement(Input{
		Placement: v1alpha1.PlacementSpec{ClusterTolerations: []corev1.Toleration{tol("", secondsPointer(1))}}, Now: now,
		Clusters: []Cluster{c}, Rows: map[string]atoll.RowSpec{"a": activeRow(c, v1alpha1.PlacementSpec{})},
	})
	if v, _ := d.FindVerdict("a"); v.Outcome != OutcomePlaced || !v.Notes().EvictAt.IsZero() {
		t.Errorf("a taint whose time is not known yet evicts: %s at %s", v, v.Notes().EvictAt)
	}
}

// The compiled filter says what the vocabulary's own matcher says, in its words.
func TestFilterAgreesWithMatchAffinity(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	pick := func(options ...string) string { return options[r.IntN(len(options))] }
	for range 5000 {
		var a v1alpha1.ClusterAffinity
		if r.IntN(2) == 0 {
			a.ClusterNames = []string{pick("a", "b"), pick("b", "c")}
		}
		if r.IntN(3) == 0 {
			a.ExcludeClusters = []string{pick("a", "b", "c")}
		}
		if r.IntN(2) == 0 {
			a.LabelSelector = labelSelectorOf(pick("env", "tier"), pick("prod", "dev"))
		}
		if r.IntN(2) == 0 {
			a.FieldSelector = inRegion(pick("eu", "us"))
			a.FieldSelector.MatchExpressions[0].Operator = corev1.NodeSelectorOperator(pick("In", "NotIn"))
		}
		c := newCluster(pick("a", "b", "c"), withLabel(pick("env", "tier"), pick("prod", "dev")), func(c *Cluster) { c.Region = pick("eu", "us", "") })
		ok, reason := clustermatch.MatchesAffinity(&a, c.ClusterView)
		fits, _, why := CompilePlacement(affinityPlacement(a)).CheckCluster(c)
		if ok != fits || reason != why || ok != CompileTarget(&v1alpha1.ClusterTarget{ClusterAffinity: a}).MatchesCluster(&c.ClusterView) {
			t.Fatalf("%+v on %+v: MatchAffinity says %t %q, the filter %t %q", a, c, ok, reason, fits, why)
		}
	}
}

func TestTheOrderOfClustersDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		var cs []Cluster
		rows := map[string]atoll.RowSpec{}
		for i := range 1 + r.IntN(9) {
			c := newCluster(fmt.Sprint("c", i), withLabel("env", []string{"prod", "dev"}[r.IntN(2)]))
			cs = append(cs, c)
			if r.IntN(2) == 0 {
				spec := activeRow(c, v1alpha1.PlacementSpec{})
				spec.Assigned = map[string]int64{web.Key.String(): r.Int64N(5), db.Key.String(): r.Int64N(2)}
				rows[c.Name] = spec
			}
		}
		in := Input{
			BundleUID: "b", Clusters: cs, Rows: rows, Now: now,
			Placement: affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")}),
			Workloads: []Workload{{Key: web.Key, Replicas: r.Int64N(20)}, {Key: db.Key, Replicas: 3}},
		}
		d := DecidePlacement(in)
		in.Clusters = slices.Clone(cs)
		rand.Shuffle(len(cs), func(i, j int) { in.Clusters[i], in.Clusters[j] = in.Clusters[j], in.Clusters[i] })
		again := DecidePlacement(in)
		if !reflect.DeepEqual(d.Verdicts, again.Verdicts) || !reflect.DeepEqual(d.AssignReplicas(nil), again.AssignReplicas(nil)) {
			t.Fatalf("the order matters:\n%v\n%v", d, again)
		}
	}
}

var (
	web = Workload{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}}
	db  = Workload{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}}
)

// formatShares of a workload, "a=1 b=2".
func formatShares(d Decision, w Workload, held ...string) string {
	hold := map[string]bool{}
	for _, h := range held {
		hold[h] = true
	}
	var out []string
	for share := range d.AssignReplicas(hold).Shares() {
		s := fmt.Sprintf("%s=%d", share.Cluster, share.AssignedReplicas()[w.Key.String()])
		if slices.Contains(share.Home, w.Key.String()) {
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func runningRow(c Cluster, w Workload, n int64) atoll.RowSpec {
	r := activeRow(c, v1alpha1.PlacementSpec{})
	r.Assigned = map[string]int64{w.Key.String(): n}
	return r
}

// homeRow of the StatefulSet, with so many replicas.
func homeRow(c Cluster, n int64) atoll.RowSpec {
	r := runningRow(c, db, n)
	r.HomeItems = []string{db.Key.String()}
	return r
}

func weightedPlacement(list ...v1alpha1.StaticClusterWeight) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
		ReplicaSchedulingType: v1alpha1.Divided, WeightPreference: &v1alpha1.ClusterPreferences{StaticWeightList: list},
	}}
}

// summedFilter is the filter of weightedPlacement by the rule of earlier versions.
func summedFilter(list ...v1alpha1.StaticClusterWeight) *CompiledPlacement {
	return PlacementTerms{Placement: weightedPlacement(list...), SummedWeights: true}.CompilePlacement()
}

func staticWeight(n int64, names ...string) v1alpha1.StaticClusterWeight {
	return v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{ClusterNames: names}, Weight: n}
}

func TestAssign(t *testing.T) {
	a, b, c := newCluster("a"), newCluster("b"), newCluster("c")
	tainted := newCluster("c", withTaint("t", "", corev1.TaintEffectNoSchedule, 0))
	excludeC := affinityPlacement(v1alpha1.ClusterAffinity{ExcludeClusters: []string{"c"}})
	for _, tc := range []struct {
		name     string
		in       Input
		workload Workload
		held     []string
		want     string
		// unweighed and evenly: no chosen cluster has a weight. sums: weights of entries add up.
		unweighed, evenly, sums bool
	}{
		{name: "by weight", in: Input{Placement: weightedPlacement(staticWeight(1, "a"), staticWeight(2, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=3 b=6"},
		{name: "of several entries the largest counts", in: Input{Placement: weightedPlacement(staticWeight(1, "a", "b"), staticWeight(2, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=3 b=6"},
		{name: "also where the largest comes first", in: Input{Placement: weightedPlacement(staticWeight(2, "b"), staticWeight(1, "b"), staticWeight(1, "a", "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=3 b=6"},
		{name: "no entry, no replicas", in: Input{Placement: weightedPlacement(staticWeight(1, "a")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=9 b=0"},
		{name: "no entry matches at all: division is even", in: Input{
			Placement: weightedPlacement(staticWeight(1, "z")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 8}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 5)},
		}, workload: web, want: "a=4 b=4", evenly: true},
		{name: "as earlier versions: entries that match add up", in: Input{
			Placement: weightedPlacement(staticWeight(1, "a", "b"), staticWeight(1, "b")), Filter: summedFilter(staticWeight(1, "a", "b"), staticWeight(1, "b")),
			Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}},
		}, workload: web, want: "a=3 b=6", sums: true},
		{name: "as earlier versions, and no entries overlap", in: Input{
			Placement: weightedPlacement(staticWeight(1, "a"), staticWeight(2, "b")), Filter: summedFilter(staticWeight(1, "a"), staticWeight(2, "b")),
			Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}},
		}, workload: web, want: "a=3 b=6"},
		{name: "as earlier versions: without a match each keeps its replicas", in: Input{
			Placement: weightedPlacement(staticWeight(1, "z")), Filter: summedFilter(staticWeight(1, "z")),
			Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}, Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 5)},
		}, workload: web, want: "a=5 b=0", unweighed: true},
		{name: "a kept cluster keeps its share", in: Input{
			Clusters: []Cluster{a, b, tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 10}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 3), "b": runningRow(b, web, 3), "c": runningRow(c, web, 4)},
		}, workload: web, want: "a=3 b=3 c=4"},
		{name: "nothing new goes to a kept cluster", in: Input{
			Clusters: []Cluster{a, b, tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 20}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 3), "b": runningRow(b, web, 3), "c": runningRow(c, web, 4)},
		}, workload: web, want: "a=8 b=8 c=4"},
		{name: "a kept cluster shrinks with the total", in: Input{
			Clusters: []Cluster{a, tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 2}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 3), "c": runningRow(c, web, 4)},
		}, workload: web, want: "a=0 c=2"},
		{name: "only kept clusters are left: they share", in: Input{
			Clusters: []Cluster{tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 6}},
			Rows: map[string]atoll.RowSpec{"c": runningRow(c, web, 4)},
		}, workload: web, want: "c=6"},
		{name: "what is held keeps its share", in: Input{
			Placement: excludeC, Clusters: []Cluster{a, b, c}, Workloads: []Workload{{Key: web.Key, Replicas: 9}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 3), "b": runningRow(b, web, 3), "c": runningRow(c, web, 3)},
		}, workload: web, held: []string{"c"}, want: "a=3 b=3 c=3"},
		{name: "what leaves counts no more", in: Input{
			Placement: excludeC, Clusters: []Cluster{a, b, c}, Workloads: []Workload{{Key: web.Key, Replicas: 8}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 3), "b": runningRow(b, web, 3), "c": runningRow(c, web, 2)},
		}, workload: web, want: "a=4 b=4"},
		{name: "a StatefulSet goes whole to the heaviest", in: Input{Placement: weightedPlacement(staticWeight(1, "a"), staticWeight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 3}}}, workload: db, want: "a=0 b=3!"},
		{name: "and stays where it is", in: Input{
			Placement: weightedPlacement(staticWeight(1, "a"), staticWeight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 5}},
			Rows: map[string]atoll.RowSpec{"a": homeRow(a, 3), "b": runningRow(b, db, 0)},
		}, workload: db, want: "a=5! b=0"},
		{name: "also where it is kept", in: Input{
			Clusters: []Cluster{a, tainted}, Workloads: []Workload{{Key: db.Key, Replicas: 5}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, db, 0), "c": homeRow(c, 3)},
		}, workload: db, want: "a=0 c=5!"},
		{name: "it leaves with its cluster", in: Input{
			Placement: excludeC, Clusters: []Cluster{a, c}, Workloads: []Workload{{Key: db.Key, Replicas: 3}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, db, 0), "c": homeRow(c, 3)},
		}, workload: db, want: "a=3!"},
		{name: "at 0 its home is remembered", in: Input{
			Placement: weightedPlacement(staticWeight(1, "a"), staticWeight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 0}},
			Rows: map[string]atoll.RowSpec{"a": homeRow(a, 3), "b": runningRow(b, db, 0)},
		}, workload: db, want: "a=0! b=0"},
		{name: "and found again", in: Input{
			Placement: weightedPlacement(staticWeight(1, "a"), staticWeight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 2}},
			Rows: map[string]atoll.RowSpec{"a": homeRow(a, 0), "b": runningRow(b, db, 0)},
		}, workload: db, want: "a=2! b=0"},
		{name: "while it moves, the new home counts", in: Input{
			Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 3}},
			Rows: map[string]atoll.RowSpec{"a": runningRow(a, db, 3), "b": homeRow(b, 3)},
		}, workload: db, want: "a=0 b=3!"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.BundleUID, tc.in.Now = "bundle", now
			if got := formatShares(DecidePlacement(tc.in), tc.workload, tc.held...); got != tc.want {
				t.Errorf("shares %s, want %s", got, tc.want)
			}
			d := DecidePlacement(tc.in)
			if d.KeepsReplicasWithoutWeights() != tc.unweighed || d.FallsBackToEvenDivision() != tc.evenly || d.SumsWeights() != tc.sums {
				t.Errorf("unweighed is %t, evenly %t, sums %t", d.KeepsReplicasWithoutWeights(), d.FallsBackToEvenDivision(), d.SumsWeights())
			}
		})
	}
}

// All of a Bundle's StatefulSets go to one cluster: its parts belong together.
func TestStatefulSetsOfABundleStayTogether(t *testing.T) {
	other := db
	other.Key.Name = "queue"
	var cs []Cluster
	for i := range 20 {
		cs = append(cs, newCluster(fmt.Sprint("c", i)))
	}
	got := DecidePlacement(Input{BundleUID: "b", Clusters: cs, Workloads: []Workload{{Key: db.Key, Replicas: 3}, {Key: other.Key, Replicas: 2}}, Now: now}).AssignReplicas(nil).Shares()
	for s := range got {
		if (s.AssignedReplicas()[db.Key.String()] == 3) != (s.AssignedReplicas()[other.Key.String()] == 2) {
			t.Errorf("%+v", s)
		}
	}
}

func TestScheduleChangesNoArgument(t *testing.T) {
	a, b := newCluster("a"), newCluster("b", withTaint("t", "", corev1.TaintEffectNoSchedule, 0))
	in := Input{
		BundleUID: "x", Clusters: []Cluster{b, a}, Workloads: []Workload{{Key: web.Key, Replicas: 5}, {Key: db.Key, Replicas: 0}}, Now: now,
		Rows: map[string]atoll.RowSpec{"a": runningRow(a, web, 1), "b": runningRow(b, web, 2)},
	}
	before := atoll.HashJSON(in)
	d := DecidePlacement(in)
	d.AssignReplicas(map[string]bool{"b": true})
	if atoll.HashJSON(in) != before {
		t.Error("an argument was changed")
	}
}

func bigFleet(n int) []Cluster {
	cs := make([]Cluster, n)
	for i := range cs {
		cs[i] = newCluster(fmt.Sprintf("cluster-%05d", i), withLabel("env", []string{"prod", "dev"}[i%2]), withLabel("country", fmt.Sprint(i%50)))
	}
	return cs
}

func benchmarkSchedule(b *testing.B, p v1alpha1.PlacementSpec, divided bool) {
	in := Input{BundleUID: "b", Placement: p, Filter: CompilePlacement(p), Clusters: bigFleet(10_000), Now: now}
	if divided {
		in.Workloads = []Workload{{Key: web.Key, Replicas: 50_000}}
	}
	b.ReportAllocs()
	for b.Loop() {
		d := DecidePlacement(in)
		d.AssignReplicas(nil)
	}
}

func BenchmarkSchedule10000(b *testing.B) {
	b.Run("all", func(b *testing.B) { benchmarkSchedule(b, v1alpha1.PlacementSpec{}, false) })
	b.Run("labels", func(b *testing.B) {
		benchmarkSchedule(b, affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod", "country", "6")}), false)
	})
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%05d", 2*i)
	}
	b.Run("names", func(b *testing.B) {
		benchmarkSchedule(b, affinityPlacement(v1alpha1.ClusterAffinity{ClusterNames: names}), false)
	})
	b.Run("divided", func(b *testing.B) {
		benchmarkSchedule(b, weightedPlacement(
			v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")}, Weight: 3},
			v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "dev")}, Weight: 1},
		), true)
	})
}

// One cluster's change is judged alone; that must stay cheap whatever the fleet.
func BenchmarkOneVerdict(b *testing.B) {
	p := affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod", "country", "6")})
	f, c := CompilePlacement(p), bigFleet(1)
	b.ReportAllocs()
	for b.Loop() {
		DecidePlacement(Input{BundleUID: "b", Placement: p, Filter: f, Clusters: c, Now: now})
	}
}
