package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// members that differ in everything that a placement can ask for.
var members = map[string]func() Cluster{
	"eu-1": func() Cluster {
		return newCluster("eu-1", withLabel("env", "prod"), withLabel("tier", "gold"), locatedIn("eu", "eu-a", "aws"), inClusterSets("europe", "paid"),
			servingKinds("/v1/Pod", "apps/v1/Deployment"), withProperty("nodes", "12"))
	},
	"eu-2": func() Cluster {
		return newCluster("eu-2", withLabel("env", "test"), locatedIn("eu", "eu-b", "gcp"), inClusterSets("europe"),
			servingKinds("/v1/Pod", "apps/v1/Deployment", "apps/v1beta1/Deployment"), withProperty("nodes", "3"))
	},
	"us-1": func() Cluster {
		return newCluster("us-1", withLabel("env", "prod"), locatedIn("us", "us-a", "aws"), withTaint("dedicated", "gpu", corev1.TaintEffectNoSchedule, 0))
	},
	"ap-1": func() Cluster { return newCluster("ap-1", locatedIn("ap", "ap-a", "metal"), servingKinds("/v1/Pod")) },
}

func inClusterSets(names ...string) func(*Cluster) { return func(c *Cluster) { c.Sets = names } }

func servingKinds(kinds ...string) func(*Cluster) { return func(c *Cluster) { c.APIs = APIsOf(kinds) } }

func withProperty(key, value string) func(*Cluster) {
	return func(c *Cluster) {
		c.Properties = maps.Clone(c.Properties)
		if c.Properties == nil {
			c.Properties = map[string]string{}
		}
		c.Properties[key] = value
	}
}

// locatedIn a cluster is, through the API object, so that its fields are those that
// people set.
func locatedIn(region, zone, provider string) func(*Cluster) {
	return func(c *Cluster) {
		obj := v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Region: region, Zone: zone, Provider: provider}}
		view := ClusterOf(&obj).ClusterView
		c.Region, c.Zone, c.Provider = view.Region, view.Zone, view.Provider
	}
}

// chosenClusters clusters under a placement in YAML, as people write it.
func chosenClusters(t *testing.T, text string) string {
	t.Helper()
	var p v1alpha1.PlacementSpec
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	in := Input{BundleUID: "b", Placement: p, Now: now}
	for _, m := range members {
		in.Clusters = append(in.Clusters, m())
	}
	var out []string
	for _, v := range DecidePlacement(in).Verdicts {
		if v.Outcome == OutcomePlaced {
			out = append(out, v.Cluster)
		}
	}
	return strings.Join(out, " ")
}

// Every leaf of a placement changes which clusters are chosen. The names of the cases
// are the paths of the fields.
func TestPlacementFields(t *testing.T) {
	const all = "ap-1 eu-1 eu-2"
	for _, tc := range []struct{ field, placement, want string }{
		{"none", "{}", all},
		{"clusterAffinity.clusterNames", "clusterAffinity: {clusterNames: [eu-1, ap-1]}", "ap-1 eu-1"},
		{"clusterAffinity.exclude", "clusterAffinity: {exclude: [eu-1]}", "ap-1 eu-2"},
		{"clusterAffinity.labelSelector.matchLabels", "clusterAffinity: {labelSelector: {matchLabels: {env: prod}}}", "eu-1"},
		{"clusterAffinity.labelSelector.matchExpressions In", "clusterAffinity: {labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, test]}]}}", "eu-1 eu-2"},
		{"clusterAffinity.labelSelector.matchExpressions NotIn", "clusterAffinity: {labelSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}}", "ap-1 eu-2"},
		{"clusterAffinity.labelSelector.matchExpressions Exists", "clusterAffinity: {labelSelector: {matchExpressions: [{key: tier, operator: Exists}]}}", "eu-1"},
		{"clusterAffinity.labelSelector.matchExpressions DoesNotExist", "clusterAffinity: {labelSelector: {matchExpressions: [{key: env, operator: DoesNotExist}]}}", "ap-1"},
		{"clusterAffinity.fieldSelector.matchExpressions.key region", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}}", "eu-1 eu-2"},
		{"clusterAffinity.fieldSelector.matchExpressions.key zone", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [eu-b]}]}}", "eu-2"},
		{"clusterAffinity.fieldSelector.matchExpressions.key provider", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [metal]}]}}", "ap-1"},
		{"clusterAffinity.fieldSelector.matchExpressions.operator", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [eu]}]}}", "ap-1"},
		{"clusterAffinity.fieldSelector.matchExpressions.values", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [ap, eu]}]}}", all},
		{"clusterAffinity.fieldSelector.matchExpressions all", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}, {key: provider, operator: NotIn, values: [aws]}]}}", "eu-2"},
		{"clusterAffinity all of it", "clusterAffinity: {clusterNames: [eu-1, eu-2, us-1], exclude: [us-1], labelSelector: {matchLabels: {env: prod}}, fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [eu-b]}]}}", "eu-1"},
		{"clusterAffinity.fieldSelector.matchExpressions.key of a property", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: In, values: ['3']}]}}", "eu-2"},
		{"clusterAffinity.fieldSelector.matchExpressions.operator Exists", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Exists}]}}", "eu-1 eu-2"},
		{"clusterAffinity.fieldSelector.matchExpressions.operator DoesNotExist", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: DoesNotExist}]}}", "ap-1"},
		{"clusterAffinity.fieldSelector.matchExpressions.operator Gt", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Gt, values: ['3']}]}}", "eu-1"},
		{"clusterAffinity.fieldSelector.matchExpressions.operator Lt", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: nodes, operator: Lt, values: ['12']}]}}", "eu-2"},
		{"clusterAffinity.fieldSelector.matchExpressions.operator Gt of what is no number", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: Gt, values: ['3']}]}}", ""},
		{"clusterSets", "clusterSets: [paid, other]", "eu-1"},
		{"clusterSets several", "clusterSets: [paid, europe]", "eu-1 eu-2"},
		{"celSelector", "celSelector: \"cluster.labels['env'] == 'prod' || cluster.provider == 'metal'\"", "ap-1 eu-1"},
		{"celSelector over sets and properties", "celSelector: \"'europe' in cluster.sets && int(cluster.properties['nodes']) > 10\"", "eu-1"},
		{"celSelector that is malformed", "celSelector: \"cluster.labels[\"", ""},
		{"apis.apiVersion", "apis: [{apiVersion: apps/v1beta1}]", "eu-2"},
		{"apis.apiVersion of the core group", "apis: [{apiVersion: v1, kind: Pod}]", all},
		{"apis.kind", "apis: [{apiVersion: apps/v1, kind: Deployment}]", "eu-1 eu-2"},
		{"apis all of them", "apis: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: apps/v1beta1, kind: Deployment}]", "eu-2"},
		{"clusterTolerations Exists", "clusterTolerations: [{key: dedicated, operator: Exists}]", all + " us-1"},
		{"clusterTolerations Equal", "clusterTolerations: [{key: dedicated, operator: Equal, value: gpu, effect: NoSchedule}]", all + " us-1"},
		{"clusterTolerations.key", "clusterTolerations: [{key: other, operator: Exists}]", all},
		{"clusterTolerations.value", "clusterTolerations: [{key: dedicated, operator: Equal, value: tpu}]", all},
		{"clusterTolerations.effect", "clusterTolerations: [{key: dedicated, operator: Exists, effect: NoExecute}]", all},
	} {
		t.Run(tc.field, func(t *testing.T) {
			if got := chosenClusters(t, tc.placement); got != tc.want {
				t.Errorf("chosen: %s, want %s", got, tc.want)
			}
		})
	}
}

// Every leaf of a weight's target changes the weights.
func TestWeightFields(t *testing.T) {
	for _, tc := range []struct{ field, list, want string }{
		{"targetCluster.clusterNames", "[{targetCluster: {clusterNames: [eu-1]}, weight: 2}]", "ap-1=0 eu-1=2 eu-2=0"},
		{"targetCluster.exclude", "[{targetCluster: {exclude: [eu-1]}, weight: 2}]", "ap-1=2 eu-1=0 eu-2=2"},
		{"targetCluster.labelSelector.matchLabels", "[{targetCluster: {labelSelector: {matchLabels: {env: test}}}, weight: 3}]", "ap-1=0 eu-1=0 eu-2=3"},
		{"targetCluster.labelSelector.matchExpressions", "[{targetCluster: {labelSelector: {matchExpressions: [{key: env, operator: Exists}]}}, weight: 3}]", "ap-1=0 eu-1=3 eu-2=3"},
		{"targetCluster.fieldSelector.matchExpressions.key", "[{targetCluster: {fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [metal]}]}}, weight: 1}]", "ap-1=1 eu-1=0 eu-2=0"},
		{"targetCluster.fieldSelector.matchExpressions.operator", "[{targetCluster: {fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [eu]}]}}, weight: 1}]", "ap-1=1 eu-1=0 eu-2=0"},
		{"targetCluster.fieldSelector.matchExpressions.values", "[{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [eu-a, eu-b]}]}}, weight: 1}]", "ap-1=0 eu-1=1 eu-2=1"},
		{"weight", "[{targetCluster: {}, weight: 1000000}, {targetCluster: {clusterNames: [ap-1]}, weight: 5}]", "ap-1=1000000 eu-1=1000000 eu-2=1000000"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			var p v1alpha1.PlacementSpec
			text := "replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: " + tc.list + "}}"
			if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range []string{"ap-1", "eu-1", "eu-2"} {
				in := Input{BundleUID: "b", Placement: p, Clusters: []Cluster{members[name]()}, Now: now}
				got = append(got, name+"="+fmt.Sprint(DecidePlacement(in).Verdicts[0].Weight))
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("weights %s, want %s", text, tc.want)
			}
		})
	}
}

// Weighted is the one preference that there is: it divides by the weights, and leaving
// it out means the same.
func TestReplicaDivisionPreference(t *testing.T) {
	var got []string
	for _, preference := range []v1alpha1.ReplicaDivisionPreference{v1alpha1.DivideWeighted, ""} {
		p := weightedPlacement(staticWeight(1, "a"), staticWeight(2, "b"))
		p.ReplicaScheduling.ReplicaDivisionPreference = preference
		in := Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: []Workload{{Key: web.Key, Replicas: 9}}, Now: now}
		got = append(got, formatShares(DecidePlacement(in), web))
	}
	if want := "a=3 b=6"; got[0] != want || got[1] != want {
		t.Errorf("shares %q, want %q twice", got, want)
	}
}

// A Cluster's own fields, as the API has them, are what decides about it.
func TestClusterFields(t *testing.T) {
	at := metav1.NewTime(now.Add(-time.Minute))
	for _, tc := range []struct {
		field, placement string
		change           func(*v1alpha1.ClusterSpec)
		want             string // of the newcomer
	}{
		{"spec.accepted", "{}", func(s *v1alpha1.ClusterSpec) { s.Accepted = false }, "Out accepted"},
		{"spec.removal.mode", "{}", func(s *v1alpha1.ClusterSpec) { s.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean} }, "Out removal"},
		{"spec.region", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}}", func(s *v1alpha1.ClusterSpec) { s.Region = "us" }, "Out fieldSelector"},
		{"spec.zone", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [z]}]}}", func(s *v1alpha1.ClusterSpec) { s.Zone = "y" }, "Out fieldSelector"},
		{"spec.zones", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [z]}]}}", func(s *v1alpha1.ClusterSpec) { s.Zone, s.Zones = "", []string{"x", "y"} }, "Out fieldSelector"},
		{"spec.provider", "clusterAffinity: {fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [p]}]}}", func(s *v1alpha1.ClusterSpec) { s.Provider = "q" }, "Out fieldSelector"},
		{"spec.taints.key", "clusterTolerations: [{key: k, operator: Exists}]", func(s *v1alpha1.ClusterSpec) { s.Taints[0].Key = "other" }, "Out taints"},
		{"spec.taints.value", "clusterTolerations: [{key: k, operator: Equal, value: v}]", func(s *v1alpha1.ClusterSpec) { s.Taints[0].Value = "w" }, "Out taints"},
		{"spec.taints.effect", "clusterTolerations: [{key: k, operator: Exists, effect: NoSchedule}]", func(s *v1alpha1.ClusterSpec) { s.Taints[0].Effect = corev1.TaintEffectNoExecute }, "Out taints"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			var p v1alpha1.PlacementSpec
			if err := yaml.UnmarshalStrict([]byte(tc.placement), &p); err != nil {
				t.Fatal(err)
			}
			p.ClusterTolerations = append(slices.Clone(p.ClusterTolerations), corev1.Toleration{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule})
			obj := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}, Spec: v1alpha1.ClusterSpec{
				Accepted: true, Region: "eu", Zone: "z", Provider: "p",
				Taints: []v1alpha1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &at}},
			}}
			if v := DecidePlacement(Input{Placement: p, Clusters: []Cluster{ClusterOf(obj)}, Now: now}).Verdicts[0]; v.Outcome != OutcomePlaced {
				t.Fatalf("before: %s", v)
			}
			tc.change(&obj.Spec)
			v := DecidePlacement(Input{Placement: p, Clusters: []Cluster{ClusterOf(obj)}, Now: now}).Verdicts[0]
			if got := string(v.Outcome) + " " + v.Filter; got != tc.want {
				t.Errorf("after: %s, want %s", v, tc.want)
			}
		})
	}
}

// Every other leaf of replicaScheduling changes the shares. The names of the cases
// are the paths of the fields.
func TestReplicaSchedulingFields(t *testing.T) {
	for _, tc := range []struct{ field, scheduling, running, want, short string }{
		{"replicaDivisionPreference Weighted", "{replicaDivisionPreference: Weighted}", "", "a=5 b=5", ""},
		{"replicaDivisionPreference Aggregated", "{replicaDivisionPreference: Aggregated}", "b", "a=0 b=10", ""},
		{"replicaDivisionPreference Aggregated, bounded", "{replicaDivisionPreference: Aggregated, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [b]}, maxReplicas: 7}]}}", "b", "a=3 b=7", ""},
		{"minReplicas", "{weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 1, minReplicas: 4}, {targetCluster: {clusterNames: [b]}, weight: 9}]}}", "", "a=4 b=6", ""},
		{"maxReplicas", "{weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 1, maxReplicas: 2}, {targetCluster: {clusterNames: [b]}, weight: 1}]}}", "", "a=2 b=8", ""},
		{"the tightest bounds", "{weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 1, minReplicas: 6, maxReplicas: 9}, {targetCluster: {}, weight: 1, minReplicas: 2, maxReplicas: 8}]}}", "", "a=6 b=4", ""},
		{"onShortage PlaceWhatFits", "{onShortage: PlaceWhatFits, weightPreference: {staticWeightList: [{targetCluster: {}, weight: 1, maxReplicas: 3}]}}", "b", "a=3 b=3", "4 of 10"},
		{"onShortage PlaceNothing", "{onShortage: PlaceNothing, weightPreference: {staticWeightList: [{targetCluster: {}, weight: 1, maxReplicas: 3}]}}", "b", "a=0 b=2", "8 of 10"},
		{"onShortage PlaceNothing, where all fit", "{onShortage: PlaceNothing, weightPreference: {staticWeightList: [{targetCluster: {}, weight: 1, maxReplicas: 5}]}}", "b", "a=5 b=5", ""},
	} {
		t.Run(tc.field, func(t *testing.T) {
			var p v1alpha1.PlacementSpec
			if err := yaml.UnmarshalStrict([]byte("replicaScheduling: "+tc.scheduling), &p); err != nil {
				t.Fatal(err)
			}
			in := Input{BundleUID: "b", Placement: p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: []Workload{{Key: web.Key, Replicas: 10}}, Now: now}
			if tc.running != "" {
				in.Rows = map[string]atoll.RowSpec{tc.running: runningRow(newCluster(tc.running), web, 2)}
			}
			d, short := DecidePlacement(in), ""
			for _, s := range d.AssignReplicas(nil).Shortages {
				short = fmt.Sprintf("%d of %d", s.Unplaced, s.Replicas)
			}
			if got := formatShares(d, web); got != tc.want || short != tc.short {
				t.Errorf("shares %s, short %q; want %s, %q", got, short, tc.want, tc.short)
			}
		})
	}
}

// An override sets the assigned replicas of a cluster, and the others divide the rest.
func TestHandedShares(t *testing.T) {
	rangedBy2 := v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided, Ordinals: &v1alpha1.OrdinalRanges{Size: 2}}
	rangedBy2OfB := rangedBy2
	rangedBy2OfB.WeightPreference = weightedPlacement(staticWeight(1, "b")).ReplicaScheduling.WeightPreference
	for _, tc := range []struct {
		name     string
		workload Workload
		r        v1alpha1.ReplicaScheduling
		handed   map[string]int64
		want     string
		left     int64
	}{
		{"one cluster", web, v1alpha1.ReplicaScheduling{}, map[string]int64{"a": 6}, "a=6 b=2 c=2", 0},
		{"none at all", web, v1alpha1.ReplicaScheduling{}, map[string]int64{"a": 0}, "a=0 b=5 c=5", 0},
		{"more than there are", web, v1alpha1.ReplicaScheduling{}, map[string]int64{"a": 9, "b": 4}, "a=9 b=4 c=0", 0},
		{"all clusters, and fewer", web, v1alpha1.ReplicaScheduling{}, map[string]int64{"a": 1, "b": 1, "c": 1}, "a=1 b=1 c=1", 7},
		{"aside of weights and bounds", web, weightedPlacement(staticWeight(1, "b"), v1alpha1.StaticClusterWeight{TargetCluster: v1alpha1.ClusterAffinity{ClusterNames: []string{"c"}}, Weight: 1, MaxReplicas: 1}).ReplicaScheduling,
			map[string]int64{"a": 2, "c": 3}, "a=2 b=5 c=3", 0},
		{"by room", web, v1alpha1.ReplicaScheduling{ReplicaDivisionPreference: v1alpha1.DivideAggregated}, map[string]int64{"a": 4, "b": 6}, "a=4 b=6 c=0", 0},
		{"no further than its range", db, rangedBy2, map[string]int64{"a": 6}, "a=2 b=2 c=2", 4},
		{"no further than its range, where no weight is stated", db, rangedBy2OfB, map[string]int64{"a": 6, "c": 1}, "a=2 b=2 c=1", 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.workload
			w.Replicas = 10
			in := Input{BundleUID: "b", Placement: v1alpha1.PlacementSpec{ReplicaScheduling: tc.r}, Clusters: []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}, Workloads: []Workload{w}, Now: now,
				OverriddenShares: map[string]map[string]int64{}}
			for c, n := range tc.handed {
				in.OverriddenShares[c] = map[string]int64{w.Key.String(): n}
			}
			d := DecidePlacement(in)
			var left int64
			for _, s := range d.AssignReplicas(nil).Shortages {
				left += s.Unplaced
			}
			if got := formatShares(d, w); got != tc.want || left != tc.left {
				t.Errorf("%s, %d left; want %s, %d", got, left, tc.want, tc.left)
			}
		})
	}
	whole := db
	whole.Replicas = 3
	in := Input{BundleUID: "b", Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: []Workload{whole}, Rows: map[string]atoll.RowSpec{"b": homeRow(newCluster("b"), 3)}, Now: now,
		OverriddenShares: map[string]map[string]int64{"a": {db.Key.String(): 9}, "b": {db.Key.String(): 5}}}
	if got := formatShares(DecidePlacement(in), whole); got != "a=0 b=5!" {
		t.Errorf("whole: %s", got)
	}
	// An override with 0 replicas keeps it out of a cluster; in its home it stays.
	for at, want := range map[string]string{"": "a=0 b=3! c=0", "a": "a=0! b=0 c=0", "b": "a=0 b=3! c=0"} {
		in.Clusters, in.Rows = []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}, nil
		in.OverriddenShares = map[string]map[string]int64{"a": {db.Key.String(): 0}, "c": {db.Key.String(): 0}}
		if at != "" {
			in.Rows = map[string]atoll.RowSpec{at: homeRow(newCluster(at), 3)}
		}
		if got := formatShares(DecidePlacement(in), whole); got != want {
			t.Errorf("whole, at home in %q: %s, want %s", at, got, want)
		}
	}
}

// TestKeepingIsNotHanded: an item that is to keep its share does so whatever overrides
// say, and the others divide what it leaves.
func TestKeepingIsNotHanded(t *testing.T) {
	w := web
	w.Replicas = 10
	d := DecidePlacement(Input{
		BundleUID: "b", Clusters: []Cluster{newCluster("a"), newCluster("b"), newCluster("c")}, Workloads: []Workload{w}, Now: now,
		Placement:        v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}},
		Rows:             map[string]atoll.RowSpec{"a": {UID: newCluster("a").UID, Assigned: map[string]int64{w.Key.String(): 4}}},
		OverriddenShares: map[string]map[string]int64{"a": {w.Key.String(): 0}, "b": {w.Key.String(): 0}},
	})
	if got := formatShares(d, w); got != "a=0 b=0 c=10" {
		t.Errorf("handed: %s", got)
	}
	kept := d.KeepCurrentShares(map[string][]string{"a": {w.Key.String(), "another"}})
	if got := formatShares(kept, w); got != "a=4 b=0 c=6" {
		t.Errorf("a keeps: %s", got)
	}
	if got := formatShares(d.KeepCurrentShares(nil), w); got != "a=0 b=0 c=10" {
		t.Errorf("no cluster keeps its share: %s", got)
	}
}

// A workload that is not divided goes where all of it may be, and no further.
func TestWholeWithinBounds(t *testing.T) {
	bounded := func(a, b int64) v1alpha1.PlacementSpec {
		p := weightedPlacement(staticWeight(9, "a"), staticWeight(1, "b"))
		list := p.ReplicaScheduling.WeightPreference.StaticWeightList
		list[0].MaxReplicas, list[1].MaxReplicas = a, b
		return p
	}
	for _, tc := range []struct {
		p    v1alpha1.PlacementSpec
		n    int64
		want string
		left int64
	}{
		{bounded(3, 5), 3, "a=3! b=0", 0},
		{bounded(3, 5), 4, "a=0 b=4!", 0},
		{bounded(3, 5), 7, "a=0 b=5!", 2},
	} {
		d := DecidePlacement(Input{BundleUID: "b", Placement: tc.p, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Workloads: []Workload{{Key: db.Key, Replicas: tc.n}}, Now: now})
		var left int64
		for _, s := range d.AssignReplicas(nil).Shortages {
			left = s.Unplaced
		}
		if got := formatShares(d, db); got != tc.want || left != tc.left {
			t.Errorf("%d: %s, %d left; want %s, %d", tc.n, got, left, tc.want, tc.left)
		}
	}
}
