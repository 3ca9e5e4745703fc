package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func asking(text string) v1alpha1.PlacementSpec { return v1alpha1.PlacementSpec{CELSelector: text} }

func inSets(names ...string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterSets: names}
}

func wanting(apiVersion, kind string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{APIs: []v1alpha1.ServedAPI{{APIVersion: apiVersion, Kind: kind}}}
}

func fields(key string, op corev1.NodeSelectorOperator, values ...string) v1alpha1.PlacementSpec {
	return affinity(v1alpha1.ClusterAffinity{FieldSelector: &v1alpha1.FieldSelector{
		MatchExpressions: []v1alpha1.FieldRequirement{{Key: key, Operator: op, Values: values}},
	}})
}

// Every refusal says what to do about it, in the words that people see.
func TestRefusalsSayWhy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster Cluster
		terms   Terms
		want    string
	}{
		{"no set", cluster("a"), Terms{Placement: inSets("eu")}, "clusterSets: is in none of the cluster sets eu"},
		{"other sets", cluster("a", sets("us", "ap")), Terms{Placement: inSets("eu", "uk")}, "clusterSets: is in none of the cluster sets eu, uk, but in us, ap"},
		{"many sets", cluster("a"), Terms{Placement: inSets("a", "b", "c", "d", "e", "f", "g")}, "clusterSets: is in none of the cluster sets a, b, c, d, e and 2 more"},
		{"not bound", cluster("a", sets("us")), Terms{Bound: []string{"eu", "uk"}}, "NotInBoundSet: is in none of the cluster sets that the namespace may use (eu, uk)"},
		{"nothing bound", cluster("a", sets("us")), Terms{Bound: []string{}}, "NotInBoundSet: no cluster set is bound to the namespace: a ClusterSetBinding is needed"},
		{"bound", cluster("a", sets("us")), Terms{Bound: []string{"eu", "us"}}, ""},
		{"everything bound", cluster("a"), Terms{}, ""},
		{"the expression is false", cluster("a"), Terms{Placement: asking("cluster.name == 'b'")}, "celSelector: not true of it: cluster.name == 'b'"},
		{"the expression fails", cluster("a"), Terms{Placement: asking("cluster.labels['dns'] == 'b'")}, "celSelector: the expression fails on it: no such key: dns"},
		{"the expression is malformed", cluster("a"), Terms{Placement: asking("cluster.nme == 'b'")}, "celSelector: celSelector is malformed: line 1, column 1: cluster has no field \"nme\" here: it has name, labels, region, zone, provider, sets and properties"},
		{"an API", cluster("a", serving("/v1/Pod")), Terms{Placement: wanting("batch/v1", "Job")}, "apis: does not serve batch/v1/Job, which the placement asks for"},
		{"an API of the core group", cluster("a", serving("apps/v1/Deployment")), Terms{Placement: wanting("v1", "")}, "apis: does not serve v1, which the placement asks for"},
		{"APIs that are not known", cluster("a"), Terms{Placement: wanting("batch/v1", "Job"), Kinds: []string{"x/v1/Y"}}, ""},
		{"a kind", cluster("a", serving("/v1/Pod")), Terms{Kinds: []string{"/v1/Pod", "x.io/v1/Y"}}, "kinds: does not serve x.io/v1/Y, which the bundle holds: install its definition or API service there, or place it with the bundle"},
		{"a property is missing", cluster("a"), Terms{Placement: fields("nodes", corev1.NodeSelectorOpExists)}, "fieldSelector: field nodes is not set"},
		{"a property is there", cluster("a", property("nodes", "3")), Terms{Placement: fields("nodes", corev1.NodeSelectorOpDoesNotExist)}, `fieldSelector: field nodes is set, to "3"`},
		{"a property is too small", cluster("a", property("nodes", "3")), Terms{Placement: fields("nodes", corev1.NodeSelectorOpGt, "10")}, `fieldSelector: field nodes="3" is not Gt ["10"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := tc.terms.Compile()
			ok, filter, reason := f.Fits(tc.cluster)
			got := strings.TrimPrefix(filter+": "+reason, ": ")
			if got != tc.want || ok != (tc.want == "") {
				t.Errorf("fits %t: %s, want %s", ok, got, tc.want)
			}
			if f.Admits(&tc.cluster) != ok {
				t.Error("Admits says otherwise")
			}
		})
	}
}

// What of the new filters is an edit, what is drift, and what of drift takes away under
// whenUnfit: Remove: never what agents report.
func TestEditsAndDriftOfEveryFilter(t *testing.T) {
	good := cluster("a", sets("eu"), serving("apps/v1/Deployment"), property("nodes", "12"), label("env", "prod"), where("eu", "z", "p"))
	drift := func(change ...func(*Cluster)) Cluster {
		c := cluster("a", sets("eu"), serving("apps/v1/Deployment"), property("nodes", "12"), label("env", "prod"), where("eu", "z", "p"))
		for _, f := range change {
			f(&c)
		}
		return c
	}
	many := fields("nodes", corev1.NodeSelectorOpGt, "10")
	prod := asking("cluster.labels['env'] == 'prod'")
	large := asking("int(cluster.properties['nodes']) > 10")
	deploys := wanting("apps/v1", "Deployment")
	both := prod
	both.ClusterSets = []string{"eu"}
	for _, tc := range []struct {
		name       string
		was        v1alpha1.PlacementSpec // under which the row came
		terms      Terms
		cluster    Cluster
		keep, take Outcome // under whenUnfit Keep and Remove
		filter     string
	}{
		{"the set drifts", inSets("eu"), Terms{Placement: inSets("eu")}, drift(sets("us")), Kept, Leaves, FilterSets},
		{"other sets are asked for", inSets("eu"), Terms{Placement: inSets("us")}, good, Leaves, Leaves, FilterSets},
		{"sets are asked for where none were", v1alpha1.PlacementSpec{}, Terms{Placement: inSets("us")}, good, Leaves, Leaves, FilterSets},
		{"the namespace loses the set", inSets("eu"), Terms{Placement: inSets("eu"), Bound: []string{"us"}}, good, Kept, Leaves, FilterBound},
		{"the label that the expression reads drifts", prod, Terms{Placement: prod}, drift(label("env", "test")), Kept, Leaves, FilterCEL},
		{"the property that the expression reads drifts", large, Terms{Placement: large}, drift(property("nodes", "2")), Kept, Kept, FilterCEL},
		{"another expression", prod, Terms{Placement: asking("cluster.name == 'b'")}, good, Leaves, Leaves, FilterCEL},
		{"an expression over properties where none was", v1alpha1.PlacementSpec{}, Terms{Placement: asking("int(cluster.properties['nodes']) > 20")}, good, Leaves, Leaves, FilterCEL},
		{"the expression's label drifted, and sets were added that fit", prod, Terms{Placement: both}, drift(label("env", "test")), Kept, Leaves, FilterCEL},
		{"the property drifts", many, Terms{Placement: many}, drift(property("nodes", "2")), Kept, Kept, FilterFields},
		{"another property is asked for", many, Terms{Placement: fields("nodes", corev1.NodeSelectorOpLt, "5")}, good, Leaves, Leaves, FilterFields},
		{"the API is not served any more", deploys, Terms{Placement: deploys}, drift(serving("/v1/Pod")), Kept, Kept, FilterAPIs},
		{"another API is asked for", deploys, Terms{Placement: wanting("batch/v1", "Job")}, good, Leaves, Leaves, FilterAPIs},
		{"the bundle holds another kind", v1alpha1.PlacementSpec{}, Terms{Kinds: []string{"batch/v1/Job"}}, good, Kept, Kept, FilterKinds},
		{"the property and the set drift", inSets("eu"), Terms{Placement: inSets("eu"), Kinds: []string{"batch/v1/Job"}}, drift(sets("us")), Kept, Leaves, FilterSets},
		{"denied, and the set drifts", inSets("eu"), Terms{Placement: inSets("eu")}, drift(sets("us"), func(c *Cluster) { c.Accepted = false }), Kept, Kept, FilterAccepted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for unfit, want := range map[v1alpha1.WhenUnfit]Outcome{v1alpha1.UnfitKeep: tc.keep, v1alpha1.UnfitRemove: tc.take} {
				f := tc.terms.Compile()
				r := row(good, tc.was)
				v := f.judge(&tc.cluster, &r, unfit, now)
				if v.Outcome != want || v.Filter != tc.filter {
					t.Errorf("%s: %s, want %s by %s", unfit, v, want, tc.filter)
				}
				if v.Outcome == Kept && v.Word != atoll.RowUnfit {
					t.Errorf("%s: kept with the word %q", unfit, v.Word)
				}
			}
		})
	}
}

// Rows remember what they always did where nothing new is asked for, so that a hub that
// is replaced by a newer one takes no drift for an edit.
func TestPrintsAreWhatTheyWere(t *testing.T) {
	prod := v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod")}
	for _, tc := range []struct {
		placement v1alpha1.PlacementSpec
		want      string
	}{
		{v1alpha1.PlacementSpec{}, ""},
		{affinity(prod), print8("env=prod") + "."},
		{affinity(v1alpha1.ClusterAffinity{FieldSelector: inRegion("eu")}), "." + print8(inRegion("eu"))},
		{inSets("eu"), "..." + print8([]string{"eu"})},
	} {
		if got := Compile(tc.placement).print; got != tc.want {
			t.Errorf("print %q, want %q", got, tc.want)
		}
	}
}

func TestServedAPIs(t *testing.T) {
	a := APIsOf([]string{"/v1/Pod", "apps/v1/Deployment"})
	for name, want := range map[string]bool{
		KindName("v1", "Pod"): true, KindName("apps/v1", "Deployment"): true, nameAPI(v1alpha1.ServedAPI{APIVersion: "apps/v1"}): true,
		nameAPI(v1alpha1.ServedAPI{APIVersion: "v1"}): true, KindName("apps/v1", "DaemonSet"): false, KindName("apps", "v1"): false,
		nameAPI(v1alpha1.ServedAPI{APIVersion: "v2"}): false,
	} {
		if _, lacks := a.lacking([]string{name}); lacks == want {
			t.Errorf("%s: served %t", name, !lacks)
		}
	}
}

// fleetOf n clusters, of which about one in a thousand passes all that manyFilters ask.
func fleetOf(n int) []Cluster {
	apis := APIsOf([]string{"/v1/Pod", "apps/v1/Deployment", "batch/v1/Job"})
	out := make([]Cluster, n)
	for i := range out {
		out[i] = cluster(fmt.Sprintf("c%05d", i), where([]string{"eu", "us", "ap"}[i%3], fmt.Sprint("z", i%9), []string{"aws", "gcp"}[i%2]),
			sets(fmt.Sprint("set", i%7), "all"), func(c *Cluster) {
				c.APIs = apis
				c.Labels = map[string]string{"env": []string{"prod", "test"}[i/3%2], "team": fmt.Sprint("t", i%100), "tier": "gold", "dns": "local", "rack": fmt.Sprint(i % 40)}
				c.Properties = map[string]string{"nodes": fmt.Sprint(i % 50)}
				if i%11 == 0 {
					c.Taints = []v1alpha1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
				}
			})
	}
	return out
}

// A cluster that is refused costs no memory, whichever filter refuses it.
func TestRefusingAllocatesNothing(t *testing.T) {
	fleet := fleetOf(200)
	for name, terms := range map[string]Terms{
		"sets":   {Placement: inSets("none")},
		"bound":  {Bound: []string{"none"}},
		"labels": {Placement: affinity(v1alpha1.ClusterAffinity{LabelSelector: matching("env", "none")})},
		"fields": {Placement: affinity(v1alpha1.ClusterAffinity{FieldSelector: inRegion("none")})},
		"number": {Placement: fields("nodes", corev1.NodeSelectorOpGt, "1000")},
		"apis":   {Placement: wanting("none/v1", "")},
		"kinds":  {Kinds: []string{"none/v1/None"}},
		"cel":    {Placement: asking("cluster.labels['env'] == 'none' || 'none' in cluster.sets")},
	} {
		f := terms.Compile()
		in := Input{Bundle: "b", Placement: terms.Placement, Filter: f, Clusters: fleet, Terse: true, Now: now}
		base := testing.AllocsPerRun(10, func() { Schedule(Input{Bundle: "b", Placement: terms.Placement, Filter: f, Terse: true, Now: now}) })
		if n := testing.AllocsPerRun(10, func() { Schedule(in) }); n > base+1 {
			t.Errorf("%s: %.0f allocations for 200 clusters that are refused, %.0f for none", name, n, base)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	fleet := fleetOf(10_000)
	eu := v1alpha1.ClusterAffinity{LabelSelector: matching("env", "prod", "team", "t7"), FieldSelector: inRegion("eu")}
	all := affinity(eu)
	all.ClusterSets, all.APIs, all.CELSelector = []string{"all"}, []v1alpha1.ServedAPI{{APIVersion: "batch/v1"}}, "int(cluster.properties['nodes']) > 10"
	for name, p := range map[string]v1alpha1.PlacementSpec{
		"labels and fields": affinity(eu),
		"all":               all,
		"an expression":     asking("cluster.labels['env'] == 'prod' && cluster.region == 'none'"),
	} {
		b.Run(name, func(b *testing.B) {
			f := Terms{Placement: p, Bound: []string{"all"}, Kinds: []string{"apps/v1/Deployment"}}.Compile()
			b.ReportAllocs()
			for b.Loop() {
				Schedule(Input{Bundle: "b", Placement: p, Filter: f, Clusters: fleet, Terse: true, Now: now})
			}
		})
	}
}

// The quick answer about labels is the selector's own.
func TestLabelsAreTheSelectors(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	keys, values := []string{"a", "b"}, []string{"", "x", "y"}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	for range 20000 {
		s := &metav1.LabelSelector{}
		if r.IntN(2) == 0 {
			s.MatchLabels = map[string]string{pick(keys): pick(values)}
		}
		for range r.IntN(3) {
			e := metav1.LabelSelectorRequirement{Key: pick(keys), Operator: metav1.LabelSelectorOperator(pick([]string{"In", "NotIn", "Exists", "DoesNotExist"}))}
			if e.Operator == "In" || e.Operator == "NotIn" {
				for range 1 + r.IntN(2) {
					e.Values = append(e.Values, pick(values))
				}
			}
			s.MatchExpressions = append(s.MatchExpressions, e)
		}
		have := map[string]string{}
		for range r.IntN(3) {
			have[pick(keys)] = pick(values)
		}
		sel, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		a := compileAffinity(&v1alpha1.ClusterAffinity{LabelSelector: s})
		if got, want := a.matchLabels(have), sel.Matches(labels.Set(have)); got != want {
			t.Fatalf("%s of %v: %t, want %t", sel, have, got, want)
		}
	}
}
