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
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func cluster(name string, change ...func(*Cluster)) Cluster {
	c := Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name, Accepted: true}
	for _, f := range change {
		f(&c)
	}
	return c
}

func label(k, v string) func(*Cluster) {
	return func(c *Cluster) {
		c.Labels = maps.Clone(c.Labels)
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[k] = v
	}
}

func taint(key, value string, effect corev1.TaintEffect, ago time.Duration) func(*Cluster) {
	at := metav1.NewTime(now.Add(-ago))
	return func(c *Cluster) {
		c.Taints = append(slices.Clone(c.Taints), v1alpha1.Taint{Key: key, Value: value, Effect: effect, TimeAdded: &at})
	}
}

func affinity(a v1alpha1.ClusterAffinity) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterAffinity: &a}
}

func matching(kv ...string) *metav1.LabelSelector {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return &metav1.LabelSelector{MatchLabels: m}
}

func inRegion(regions ...string) *v1alpha1.FieldSelector {
	return &v1alpha1.FieldSelector{MatchExpressions: []v1alpha1.FieldRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: regions}}}
}

// row as it is after the placement put it on the cluster.
func row(c Cluster, p v1alpha1.PlacementSpec) atoll.RowSpec {
	return atoll.RowSpec{UID: c.UID, Generation: 1, Revision: "r1", Phase: atoll.RowActive, Placement: Compile(p).print}
}

func seconds(n int64) *int64 { return &n }

func TestFiltersOfNewcomers(t *testing.T) {
	noSchedule := taint("maintenance", "", corev1.TaintEffectNoSchedule, 0)
	noExecute := taint("down", "yes", corev1.TaintEffectNoExecute, 0)
	tolerate := func(ts ...corev1.Toleration) v1alpha1.PlacementSpec {
		return v1alpha1.PlacementSpec{ClusterTolerations: ts}
	}
	for _, tc := range []struct {
		name      string
		cluster   Cluster
		placement v1alpha1.PlacementSpec
		want      string
	}{
		{"nothing asked", cluster("a"), v1alpha1.PlacementSpec{}, "Placed"},
		{"not accepted", cluster("a", func(c *Cluster) { c.Accepted = false }), v1alpha1.PlacementSpec{}, "Out (accepted: not accepted: `atoll accept a` is missing)"},
		{"deleting", cluster("a", func(c *Cluster) { c.Deleting = true }), v1alpha1.PlacementSpec{}, "Out (deleting: the Cluster is being deleted)"},
		{"excluded", cluster("a"), affinity(v1alpha1.ClusterAffinity{ExcludeClusters: []string{"b", "a"}, ClusterNames: []string{"a"}}), "Out (exclude: named in exclude)"},
		{"named", cluster("a"), affinity(v1alpha1.ClusterAffinity{ClusterNames: []string{"b", "a"}}), "Placed"},
		{"not named", cluster("a"), affinity(v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}), "Out (clusterNames: not named in clusterNames)"},
		{"nowhere", cluster("a"), atoll.Nowhere(), "Out (clusterNames: not named in clusterNames)"},
		{"labels", cluster("a", label("env", "prod")), affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")}), "Placed"},
		{"other labels", cluster("a"), affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")}), `Out (labelSelector: labels do not match "env=prod")`},
		{"fields", cluster("a", func(c *Cluster) { c.Region = "eu" }), affinity(v1alpha1.ClusterAffinity{FieldSelector: inRegion("eu")}), "Placed"},
		{"other fields", cluster("a"), affinity(v1alpha1.ClusterAffinity{FieldSelector: inRegion("eu")}), `Out (fieldSelector: field region="" is not In ["eu"])`},
		{"NoSchedule", cluster("a", noSchedule), v1alpha1.PlacementSpec{}, "Out (taints: taint maintenance:NoSchedule is not tolerated)"},
		{"NoExecute", cluster("a", noExecute), v1alpha1.PlacementSpec{}, "Out (taints: taint down=yes:NoExecute is not tolerated)"},
		{"tolerated by Exists", cluster("a", noSchedule), tolerate(corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpExists}), "Placed"},
		{"tolerated by Equal", cluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Value: "yes"}), "Placed"},
		{"another value", cluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Value: "no"}), "Out (taints: taint down=yes:NoExecute is not tolerated)"},
		{"another effect", cluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}), "Out (taints: taint down=yes:NoExecute is not tolerated)"},
		{"everything tolerated", cluster("a", noExecute, noSchedule), tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}), "Placed"},
		{"an empty key needs Exists", cluster("a", noSchedule), tolerate(corev1.Toleration{}), "Out (taints: taint maintenance:NoSchedule is not tolerated)"},
		{"tolerated for a while", cluster("a", noExecute), tolerate(corev1.Toleration{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds(60)}), "Out (taints: taint down=yes:NoExecute is tolerated for 60 s only)"},
		{"malformed selector", cluster("a"), affinity(v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}}}}), `Out (labelSelector: labelSelector is malformed: "Near" is not a valid label selector operator)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := Schedule(Input{Placement: tc.placement, Clusters: []Cluster{tc.cluster}, Now: now})
			if got := d.Verdicts[0].String(); got != tc.want {
				t.Errorf("verdict %s, want %s", got, tc.want)
			}
			if fits := d.Verdicts[0].Outcome == Placed; d.NoFit == fits && !atoll.IsNowhere(tc.placement) {
				t.Errorf("NoFit is %t", d.NoFit)
			}
		})
	}
}

// What runs leaves for an edit, an eviction or on demand, and for nothing else.
func TestDriftIsNotAnEdit(t *testing.T) {
	prod := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")})
	dev := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "dev")})
	prodEU := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod"), FieldSelector: inRegion("eu")})
	c := cluster("a", label("env", "prod"))
	drifted := cluster("a", label("env", "test"))
	withTaint := func(effect corev1.TaintEffect, ago time.Duration) Cluster {
		return cluster("a", label("env", "prod"), taint("t", "", effect, ago))
	}
	brief := prod
	brief.ClusterTolerations = []corev1.Toleration{{Key: "t", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds(60)}}
	held := row(c, prod)
	held.Phase = atoll.RowHeld
	removing := row(c, prod)
	removing.Phase = atoll.RowRemoving
	for _, tc := range []struct {
		name      string
		cluster   Cluster
		row       atoll.RowSpec
		placement v1alpha1.PlacementSpec
		unfit     v1alpha1.WhenUnfit
		outcome   Outcome
		word      string
	}{
		{"fits", c, row(c, prod), prod, "", Placed, ""},
		{"labels drifted", drifted, row(c, prod), prod, v1alpha1.UnfitKeep, Kept, atoll.RowUnfit},
		{"labels drifted, Remove", drifted, row(c, prod), prod, v1alpha1.UnfitRemove, Leaves, atoll.RowUnfit},
		{"labels drifted, then another selector", drifted, row(c, prod), dev, "", Leaves, atoll.RowPlacementEdited},
		{"labels drifted, then another part of the placement", drifted, row(c, prod), affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod"), ExcludeClusters: []string{"z"}}), "", Kept, atoll.RowUnfit},
		{"the selector was edited", c, row(c, prod), dev, "", Leaves, atoll.RowPlacementEdited},
		{"fields were added", c, row(c, prod), prodEU, "", Leaves, atoll.RowPlacementEdited},
		{"fields drifted", c, row(c, prodEU), prodEU, "", Kept, atoll.RowUnfit},
		{"a selector where there was none", c, row(c, v1alpha1.PlacementSpec{}), dev, "", Leaves, atoll.RowPlacementEdited},
		{"the same selector written another way", c, row(c, prod), affinity(v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: metav1.LabelSelectorOpIn, Values: []string{"prod"}}}}}), "", Placed, ""},
		{"excluded", c, row(c, prod), affinity(v1alpha1.ClusterAffinity{ExcludeClusters: []string{"a"}}), "", Leaves, atoll.RowPlacementEdited},
		{"not named any more", c, row(c, v1alpha1.PlacementSpec{}), affinity(v1alpha1.ClusterAffinity{ClusterNames: []string{"b"}}), "", Leaves, atoll.RowPlacementEdited},
		{"denied", cluster("a", label("env", "prod"), func(c *Cluster) { c.Accepted = false }), row(c, prod), prod, v1alpha1.UnfitRemove, Kept, atoll.RowUnfit},
		{"NoSchedule", withTaint(corev1.TaintEffectNoSchedule, 0), row(c, prod), prod, "", Kept, atoll.RowUnfit},
		{"NoSchedule, Remove", withTaint(corev1.TaintEffectNoSchedule, 0), row(c, prod), prod, v1alpha1.UnfitRemove, Leaves, atoll.RowUnfit},
		{"NoExecute", withTaint(corev1.TaintEffectNoExecute, 0), row(c, prod), prod, "", Leaves, atoll.RowEvicted},
		{"NoExecute, tolerated for a while", withTaint(corev1.TaintEffectNoExecute, 59*time.Second), row(c, prod), brief, "", Placed, ""},
		{"NoExecute, no longer tolerated", withTaint(corev1.TaintEffectNoExecute, 60*time.Second), row(c, prod), brief, "", Leaves, atoll.RowEvicted},
		{"deleting", cluster("a", func(c *Cluster) { c.Deleting = true }), row(c, prod), prod, "", Gone, ""},
		{"held, and the edit is taken back", c, held, prod, "", Placed, ""},
		{"removing, and wanted again", c, removing, prod, "", Placed, ""},
		{"removing, and drifted", drifted, removing, prod, "", Out, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spare := cluster("spare", label("env", "prod"), label("x", "y"), func(c *Cluster) { c.Region = "eu" })
			if atoll.HashJSON(tc.placement) == atoll.HashJSON(dev) {
				spare = cluster("spare", label("env", "dev"))
			}
			spare.Name = "b"
			d := Schedule(Input{
				Placement: tc.placement, WhenUnfit: tc.unfit, Now: now,
				Clusters: []Cluster{tc.cluster, spare}, Rows: map[string]atoll.RowSpec{"a": tc.row},
			})
			v, _ := d.Verdict("a")
			if v.Outcome != tc.outcome || v.Word != tc.word {
				t.Errorf("%s %q, want %s %q", v, v.Word, tc.outcome, tc.word)
			}
			if b, _ := d.Verdict("b"); b.Outcome != Placed {
				t.Errorf("the spare cluster is %s", b)
			}
		})
	}
}

func TestNothingFitsClearsNothing(t *testing.T) {
	a, b := cluster("a"), cluster("b")
	rows := map[string]atoll.RowSpec{"a": row(a, v1alpha1.PlacementSpec{}), "b": row(b, v1alpha1.PlacementSpec{})}
	slip := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prdo")})
	d := Schedule(Input{Placement: slip, Clusters: []Cluster{a, b}, Rows: rows, Now: now})
	for _, v := range d.Verdicts {
		if v.Outcome != Kept || v.Word != atoll.RowNoClusterFits || !d.NoFit {
			t.Errorf("%s: %s %q", v.Cluster, v, v.Word)
		}
		// It has to leave as soon as something fits.
		if v.Placement != rows[v.Cluster].Placement {
			t.Errorf("the row on %s forgets what it was chosen under", v.Cluster)
		}
	}
	d = Schedule(Input{Placement: slip, Clusters: []Cluster{a, b, cluster("c", label("env", "prdo"))}, Rows: rows, Now: now})
	if v, _ := d.Verdict("a"); v.Outcome != Leaves || d.NoFit {
		t.Errorf("when one fits, the others are %s", v)
	}
	d = Schedule(Input{Placement: atoll.Nowhere(), Clusters: []Cluster{a, b}, Rows: rows, Now: now})
	if v, _ := d.Verdict("a"); v.Outcome != Leaves || d.NoFit {
		t.Errorf("where nowhere is wished, a is %s", v)
	}
	d = Schedule(Input{Clusters: []Cluster{cluster("a", taint("t", "", corev1.TaintEffectNoExecute, 0))}, Rows: map[string]atoll.RowSpec{"a": rows["a"]}, Now: now})
	if v, _ := d.Verdict("a"); v.Outcome != Kept {
		t.Errorf("the only place, tainted: %s", v)
	}
}

func TestVanishedAndReplacedClusters(t *testing.T) {
	a := cluster("a")
	other := cluster("b")
	other.UID = "new"
	d := Schedule(Input{Clusters: []Cluster{a, other}, Now: now, Rows: map[string]atoll.RowSpec{
		"a": row(a, v1alpha1.PlacementSpec{}), "b": row(cluster("b"), v1alpha1.PlacementSpec{}), "c": row(cluster("c"), v1alpha1.PlacementSpec{}),
	}})
	for name, want := range map[string]Outcome{"a": Placed, "b": Placed, "c": Gone} {
		if v, ok := d.Verdict(name); !ok || v.Outcome != want {
			t.Errorf("%s is %s, want %s", name, v, want)
		}
	}
	if v, _ := d.Verdict("b"); v.UID != "new" {
		t.Errorf("b has UID %s", v.UID)
	}
	if _, ok := d.Verdict("nobody"); ok {
		t.Error("there is a verdict on a cluster that nobody named")
	}
}

func TestEvictionTimes(t *testing.T) {
	c := cluster("a", taint("x", "", corev1.TaintEffectNoExecute, 10*time.Second), taint("y", "", corev1.TaintEffectNoExecute, 20*time.Second))
	tol := func(key string, s *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, TolerationSeconds: s}
	}
	for _, tc := range []struct {
		tolerations []corev1.Toleration
		in          time.Duration // from now; -1: never
	}{
		{[]corev1.Toleration{tol("x", seconds(100)), tol("y", seconds(60))}, 40 * time.Second},
		{[]corev1.Toleration{tol("x", nil), tol("y", seconds(1000))}, 980 * time.Second},
		{[]corev1.Toleration{tol("x", nil), tol("y", nil)}, -1},
		{[]corev1.Toleration{tol("", seconds(30))}, 10 * time.Second},
		{[]corev1.Toleration{tol("x", seconds(1<<62)), tol("y", nil)}, maxSeconds*time.Second - 10*time.Second},
	} {
		d := Schedule(Input{
			Placement: v1alpha1.PlacementSpec{ClusterTolerations: tc.tolerations}, Now: now,
			Clusters: []Cluster{c, cluster("b")}, Rows: map[string]atoll.RowSpec{"a": row(c, v1alpha1.PlacementSpec{})},
		})
		v, _ := d.Verdict("a")
		want := time.Time{}
		if tc.in >= 0 {
			want = now.Add(tc.in)
		}
		if v.Outcome != Placed || !v.EvictAt.Equal(want) || !d.EvictAt.Equal(want) {
			t.Errorf("%v: %s, evicted at %s, want %s", tc.tolerations, v, v.EvictAt, want)
		}
	}
	c.Taints[0].TimeAdded, c.Taints[1].TimeAdded = nil, nil
	d := Schedule(Input{
		Placement: v1alpha1.PlacementSpec{ClusterTolerations: []corev1.Toleration{tol("", seconds(1))}}, Now: now,
		Clusters: []Cluster{c}, Rows: map[string]atoll.RowSpec{"a": row(c, v1alpha1.PlacementSpec{})},
	})
	if v, _ := d.Verdict("a"); v.Outcome != Placed || !v.EvictAt.IsZero() {
		t.Errorf("a taint whose time is not known yet evicts: %s at %s", v, v.EvictAt)
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
			a.LabelSelector = matching(pick("env", "tier"), pick("prod", "dev"))
		}
		if r.IntN(2) == 0 {
			a.FieldSelector = inRegion(pick("eu", "us"))
			a.FieldSelector.MatchExpressions[0].Operator = corev1.NodeSelectorOperator(pick("In", "NotIn"))
		}
		c := cluster(pick("a", "b", "c"), label(pick("env", "tier"), pick("prod", "dev")), func(c *Cluster) { c.Region = pick("eu", "us", "") })
		ok, reason := atoll.MatchAffinity(&a, c.ClusterView)
		fits, _, why := Compile(affinity(a)).Fits(c)
		if ok != fits || reason != why || ok != Compile(affinity(a)).matches(&c.ClusterView) {
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
			c := cluster(fmt.Sprint("c", i), label("env", []string{"prod", "dev"}[r.IntN(2)]))
			cs = append(cs, c)
			if r.IntN(2) == 0 {
				spec := row(c, v1alpha1.PlacementSpec{})
				spec.Assigned = map[string]int64{web.Key.String(): r.Int64N(5), db.Key.String(): r.Int64N(2)}
				rows[c.Name] = spec
			}
		}
		in := Input{
			Bundle: "b", Clusters: cs, Rows: rows, Now: now,
			Placement: affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")}),
			Workloads: []Workload{{Key: web.Key, Replicas: r.Int64N(20)}, {Key: db.Key, Replicas: 3}},
		}
		d := Schedule(in)
		in.Clusters = slices.Clone(cs)
		rand.Shuffle(len(cs), func(i, j int) { in.Clusters[i], in.Clusters[j] = in.Clusters[j], in.Clusters[i] })
		again := Schedule(in)
		if !reflect.DeepEqual(d.Verdicts, again.Verdicts) || !reflect.DeepEqual(d.Assign(nil).Shares, again.Assign(nil).Shares) {
			t.Fatalf("the order matters:\n%v\n%v", d, again)
		}
	}
}

var (
	web = Workload{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}}
	db  = Workload{Key: atoll.ItemKey{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db"}}
)

// shares of a workload, "a=1 b=2".
func shares(d Decision, w Workload, held ...string) string {
	hold := map[string]bool{}
	for _, h := range held {
		hold[h] = true
	}
	var out []string
	for _, share := range d.Assign(hold).Shares {
		s := fmt.Sprintf("%s=%d", share.Cluster, share.Assigned()[w.Key.String()])
		if slices.Contains(share.Home, w.Key.String()) {
			s += "!"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func running(c Cluster, w Workload, n int64) atoll.RowSpec {
	r := row(c, v1alpha1.PlacementSpec{})
	r.Assigned = map[string]int64{w.Key.String(): n}
	return r
}

// home of the StatefulSet, with so many replicas.
func home(c Cluster, n int64) atoll.RowSpec {
	r := running(c, db, n)
	r.Home = []string{db.Key.String()}
	return r
}

func weights(list ...v1alpha1.StaticClusterWeight) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{
		ReplicaSchedulingType: v1alpha1.Divided, WeightPreference: &v1alpha1.ClusterPreferences{StaticWeightList: list},
	}}
}

func weight(n int64, names ...string) v1alpha1.StaticClusterWeight {
	return v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{ClusterNames: names}, Weight: n}
}

func TestAssign(t *testing.T) {
	a, b, c := cluster("a"), cluster("b"), cluster("c")
	tainted := cluster("c", taint("t", "", corev1.TaintEffectNoSchedule, 0))
	excludeC := affinity(v1alpha1.ClusterAffinity{ExcludeClusters: []string{"c"}})
	for _, tc := range []struct {
		name     string
		in       Input
		workload Workload
		held     []string
		want     string
		// unweighed: no chosen cluster has a weight.
		unweighed bool
	}{
		{name: "by weight", in: Input{Placement: weights(weight(1, "a"), weight(2, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=3 b=6"},
		{name: "entries that match add up", in: Input{Placement: weights(weight(1, "a", "b"), weight(1, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=3 b=6"},
		{name: "no entry, no replicas", in: Input{Placement: weights(weight(1, "a")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}}, workload: web, want: "a=9 b=0"},
		{name: "no entry matches at all: everybody keeps theirs", in: Input{
			Placement: weights(weight(1, "z")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: web.Key, Replicas: 9}},
			Rows: map[string]atoll.RowSpec{"a": running(a, web, 5)},
		}, workload: web, want: "a=5 b=0", unweighed: true},
		{name: "a kept cluster keeps its share", in: Input{
			Clusters: []Cluster{a, b, tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 10}},
			Rows: map[string]atoll.RowSpec{"a": running(a, web, 3), "b": running(b, web, 3), "c": running(c, web, 4)},
		}, workload: web, want: "a=3 b=3 c=4"},
		{name: "nothing new goes to a kept cluster", in: Input{
			Clusters: []Cluster{a, b, tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 20}},
			Rows: map[string]atoll.RowSpec{"a": running(a, web, 3), "b": running(b, web, 3), "c": running(c, web, 4)},
		}, workload: web, want: "a=8 b=8 c=4"},
		{name: "a kept cluster shrinks with the total", in: Input{
			Clusters: []Cluster{a, tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 2}},
			Rows: map[string]atoll.RowSpec{"a": running(a, web, 3), "c": running(c, web, 4)},
		}, workload: web, want: "a=0 c=2"},
		{name: "only kept clusters are left: they share", in: Input{
			Clusters: []Cluster{tainted}, Workloads: []Workload{{Key: web.Key, Replicas: 6}},
			Rows: map[string]atoll.RowSpec{"c": running(c, web, 4)},
		}, workload: web, want: "c=6"},
		{name: "what is held keeps its share", in: Input{
			Placement: excludeC, Clusters: []Cluster{a, b, c}, Workloads: []Workload{{Key: web.Key, Replicas: 9}},
			Rows: map[string]atoll.RowSpec{"a": running(a, web, 3), "b": running(b, web, 3), "c": running(c, web, 3)},
		}, workload: web, held: []string{"c"}, want: "a=3 b=3 c=3"},
		{name: "what leaves counts no more", in: Input{
			Placement: excludeC, Clusters: []Cluster{a, b, c}, Workloads: []Workload{{Key: web.Key, Replicas: 8}},
			Rows: map[string]atoll.RowSpec{"a": running(a, web, 3), "b": running(b, web, 3), "c": running(c, web, 2)},
		}, workload: web, want: "a=4 b=4"},
		{name: "a StatefulSet goes whole to the heaviest", in: Input{Placement: weights(weight(1, "a"), weight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 3}}}, workload: db, want: "a=0 b=3!"},
		{name: "and stays where it is", in: Input{
			Placement: weights(weight(1, "a"), weight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 5}},
			Rows: map[string]atoll.RowSpec{"a": home(a, 3), "b": running(b, db, 0)},
		}, workload: db, want: "a=5! b=0"},
		{name: "also where it is kept", in: Input{
			Clusters: []Cluster{a, tainted}, Workloads: []Workload{{Key: db.Key, Replicas: 5}},
			Rows: map[string]atoll.RowSpec{"a": running(a, db, 0), "c": home(c, 3)},
		}, workload: db, want: "a=0 c=5!"},
		{name: "it leaves with its cluster", in: Input{
			Placement: excludeC, Clusters: []Cluster{a, c}, Workloads: []Workload{{Key: db.Key, Replicas: 3}},
			Rows: map[string]atoll.RowSpec{"a": running(a, db, 0), "c": home(c, 3)},
		}, workload: db, want: "a=3!"},
		{name: "at 0 its home is remembered", in: Input{
			Placement: weights(weight(1, "a"), weight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 0}},
			Rows: map[string]atoll.RowSpec{"a": home(a, 3), "b": running(b, db, 0)},
		}, workload: db, want: "a=0! b=0"},
		{name: "and found again", in: Input{
			Placement: weights(weight(1, "a"), weight(9, "b")), Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 2}},
			Rows: map[string]atoll.RowSpec{"a": home(a, 0), "b": running(b, db, 0)},
		}, workload: db, want: "a=2! b=0"},
		{name: "while it moves, the new home counts", in: Input{
			Clusters: []Cluster{a, b}, Workloads: []Workload{{Key: db.Key, Replicas: 3}},
			Rows: map[string]atoll.RowSpec{"a": running(a, db, 3), "b": home(b, 3)},
		}, workload: db, want: "a=0 b=3!"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Bundle, tc.in.Now = "bundle", now
			if got := shares(Schedule(tc.in), tc.workload, tc.held...); got != tc.want {
				t.Errorf("shares %s, want %s", got, tc.want)
			}
			if got := Schedule(tc.in).Unweighed(); got != tc.unweighed {
				t.Errorf("unweighed is %t", got)
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
		cs = append(cs, cluster(fmt.Sprint("c", i)))
	}
	got := Schedule(Input{Bundle: "b", Clusters: cs, Workloads: []Workload{{Key: db.Key, Replicas: 3}, {Key: other.Key, Replicas: 2}}, Now: now}).Assign(nil).Shares
	for _, s := range got {
		if (s.Assigned()[db.Key.String()] == 3) != (s.Assigned()[other.Key.String()] == 2) {
			t.Errorf("%+v", s)
		}
	}
}

func TestScheduleChangesNoArgument(t *testing.T) {
	a, b := cluster("a"), cluster("b", taint("t", "", corev1.TaintEffectNoSchedule, 0))
	in := Input{
		Bundle: "x", Clusters: []Cluster{b, a}, Workloads: []Workload{{Key: web.Key, Replicas: 5}, {Key: db.Key, Replicas: 0}}, Now: now,
		Rows: map[string]atoll.RowSpec{"a": running(a, web, 1), "b": running(b, web, 2)},
	}
	before := atoll.HashJSON(in)
	d := Schedule(in)
	d.Assign(map[string]bool{"b": true})
	if atoll.HashJSON(in) != before {
		t.Error("an argument was changed")
	}
}

func bigFleet(n int) []Cluster {
	cs := make([]Cluster, n)
	for i := range cs {
		cs[i] = cluster(fmt.Sprintf("cluster-%05d", i), label("env", []string{"prod", "dev"}[i%2]), label("country", fmt.Sprint(i%50)))
	}
	return cs
}

func benchmarkSchedule(b *testing.B, p v1alpha1.PlacementSpec, divided bool) {
	in := Input{Bundle: "b", Placement: p, Filter: Compile(p), Clusters: bigFleet(10_000), Now: now}
	if divided {
		in.Workloads = []Workload{{Key: web.Key, Replicas: 50_000}}
	}
	b.ReportAllocs()
	for b.Loop() {
		d := Schedule(in)
		d.Assign(nil)
	}
}

func BenchmarkSchedule10000(b *testing.B) {
	b.Run("all", func(b *testing.B) { benchmarkSchedule(b, v1alpha1.PlacementSpec{}, false) })
	b.Run("labels", func(b *testing.B) {
		benchmarkSchedule(b, affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod", "country", "6")}), false)
	})
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%05d", 2*i)
	}
	b.Run("names", func(b *testing.B) {
		benchmarkSchedule(b, affinity(v1alpha1.ClusterAffinity{ClusterNames: names}), false)
	})
	b.Run("divided", func(b *testing.B) {
		benchmarkSchedule(b, weights(
			v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")}, Weight: 3},
			v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{LabelSelector: matching("env", "dev")}, Weight: 1},
		), true)
	})
}

// One cluster's change is judged alone; that must stay cheap whatever the fleet.
func BenchmarkOneVerdict(b *testing.B) {
	p := affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod", "country", "6")})
	f, c := Compile(p), bigFleet(1)
	b.ReportAllocs()
	for b.Loop() {
		Schedule(Input{Bundle: "b", Placement: p, Filter: f, Clusters: c, Now: now})
	}
}
