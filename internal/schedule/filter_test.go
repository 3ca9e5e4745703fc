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

func expressionPlacement(text string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{CELSelector: text}
}

func setsPlacement(names ...string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{ClusterSets: names}
}

func apisPlacement(apiVersion, kind string) v1alpha1.PlacementSpec {
	return v1alpha1.PlacementSpec{APIs: []v1alpha1.ServedAPI{{APIVersion: apiVersion, Kind: kind}}}
}

func fieldsPlacement(key string, op corev1.NodeSelectorOperator, values ...string) v1alpha1.PlacementSpec {
	return affinityPlacement(v1alpha1.ClusterAffinity{FieldSelector: &v1alpha1.FieldSelector{
		MatchExpressions: []v1alpha1.FieldRequirement{{Key: key, Operator: op, Values: values}},
	}})
}

// Every refusal says what to do about it, in the words that people see.
func TestRefusalsSayWhy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cluster Cluster
		terms   PlacementTerms
		want    string
	}{
		{"no set", newCluster("a"), PlacementTerms{Placement: setsPlacement("eu")}, "clusterSets: is in none of the cluster sets eu"},
		{"other sets", newCluster("a", inClusterSets("us", "ap")), PlacementTerms{Placement: setsPlacement("eu", "uk")}, "clusterSets: is in none of the cluster sets eu, uk, but in us, ap"},
		{"many sets", newCluster("a"), PlacementTerms{Placement: setsPlacement("a", "b", "c", "d", "e", "f", "g")}, "clusterSets: is in none of the cluster sets a, b, c, d, e and 2 more"},
		{"not bound", newCluster("a", inClusterSets("us")), PlacementTerms{BoundSets: []string{"eu", "uk"}}, "NotInBoundSet: is in none of the cluster sets that the namespace may use (eu, uk)"},
		{"nothing bound", newCluster("a", inClusterSets("us")), PlacementTerms{BoundSets: []string{}}, "NotInBoundSet: no cluster set is bound to the namespace: a ClusterSetBinding is needed"},
		{"bound", newCluster("a", inClusterSets("us")), PlacementTerms{BoundSets: []string{"eu", "us"}}, ""},
		{"everything bound", newCluster("a"), PlacementTerms{}, ""},
		{"the expression is false", newCluster("a"), PlacementTerms{Placement: expressionPlacement("cluster.name == 'b'")}, "celSelector: not true of it: cluster.name == 'b'"},
		{"the expression fails", newCluster("a"), PlacementTerms{Placement: expressionPlacement("cluster.labels['dns'] == 'b'")}, "celSelector: the expression fails on it: no such key: dns"},
		{"the expression is malformed", newCluster("a"), PlacementTerms{Placement: expressionPlacement("cluster.nme == 'b'")}, "celSelector: celSelector is malformed: line 1, column 1: cluster has no field \"nme\" here: it has name, labels, region, zone, zones, provider, sets and properties"},
		{"an API", newCluster("a", servingKinds("/v1/Pod")), PlacementTerms{Placement: apisPlacement("batch/v1", "Job")}, "apis: does not serve batch/v1/Job, which the placement requires"},
		{"an API of the core group", newCluster("a", servingKinds("apps/v1/Deployment")), PlacementTerms{Placement: apisPlacement("v1", "")}, "apis: does not serve v1, which the placement requires"},
		{"APIs that are not known", newCluster("a"), PlacementTerms{Placement: apisPlacement("batch/v1", "Job"), Kinds: []string{"x/v1/Y"}}, ""},
		{"a kind", newCluster("a", servingKinds("/v1/Pod")), PlacementTerms{Kinds: []string{"/v1/Pod", "x.io/v1/Y"}}, "kinds: does not serve x.io/v1/Y, which the bundle holds: install its definition or API service there, or place it with the bundle"},
		{"a property is missing", newCluster("a"), PlacementTerms{Placement: fieldsPlacement("nodes", corev1.NodeSelectorOpExists)}, "fieldSelector: field nodes is not set"},
		{"a property is there", newCluster("a", withProperty("nodes", "3")), PlacementTerms{Placement: fieldsPlacement("nodes", corev1.NodeSelectorOpDoesNotExist)}, `fieldSelector: field nodes is set, to "3"`},
		{"a property is too small", newCluster("a", withProperty("nodes", "3")), PlacementTerms{Placement: fieldsPlacement("nodes", corev1.NodeSelectorOpGt, "10")}, `fieldSelector: field nodes="3" is not Gt ["10"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := tc.terms.CompilePlacement()
			ok, filter, reason := f.CheckCluster(tc.cluster)
			got := strings.TrimPrefix(filter+": "+reason, ": ")
			if got != tc.want || ok != (tc.want == "") {
				t.Errorf("fits %t: %s, want %s", ok, got, tc.want)
			}
			if f.AdmitsCluster(&tc.cluster) != ok {
				t.Error("Admits says otherwise")
			}
		})
	}
}

// The new filters: edits, drift, and the drift that removes under whenUnfit: Remove, which is
// never an agent's report.
func TestEditsAndDriftOfEveryFilter(t *testing.T) {
	good := newCluster("a", inClusterSets("eu"), servingKinds("apps/v1/Deployment"), withProperty("nodes", "12"), withLabel("env", "prod"), locatedIn("eu", "z", "p"))
	drift := func(change ...func(*Cluster)) Cluster {
		c := newCluster("a", inClusterSets("eu"), servingKinds("apps/v1/Deployment"), withProperty("nodes", "12"), withLabel("env", "prod"), locatedIn("eu", "z", "p"))
		for _, f := range change {
			f(&c)
		}
		return c
	}
	many := fieldsPlacement("nodes", corev1.NodeSelectorOpGt, "10")
	prod := expressionPlacement("cluster.labels['env'] == 'prod'")
	large := expressionPlacement("int(cluster.properties['nodes']) > 10")
	deploys := apisPlacement("apps/v1", "Deployment")
	both := prod
	both.ClusterSets = []string{"eu"}
	for _, tc := range []struct {
		name       string
		was        v1alpha1.PlacementSpec // under which the row came
		terms      PlacementTerms
		cluster    Cluster
		keep, take Outcome // under whenUnfit Keep and Remove
		filter     string
	}{
		{"the set drifts", setsPlacement("eu"), PlacementTerms{Placement: setsPlacement("eu")}, drift(inClusterSets("us")), OutcomeKept, OutcomeLeaves, FilterSets},
		{"other sets are asked for", setsPlacement("eu"), PlacementTerms{Placement: setsPlacement("us")}, good, OutcomeLeaves, OutcomeLeaves, FilterSets},
		{"sets are asked for where none were", v1alpha1.PlacementSpec{}, PlacementTerms{Placement: setsPlacement("us")}, good, OutcomeLeaves, OutcomeLeaves, FilterSets},
		{"the namespace loses the set", setsPlacement("eu"), PlacementTerms{Placement: setsPlacement("eu"), BoundSets: []string{"us"}}, good, OutcomeKept, OutcomeLeaves, FilterBoundSets},
		{"the label that the expression reads drifts", prod, PlacementTerms{Placement: prod}, drift(withLabel("env", "test")), OutcomeKept, OutcomeLeaves, FilterCEL},
		{"the property that the expression reads drifts", large, PlacementTerms{Placement: large}, drift(withProperty("nodes", "2")), OutcomeKept, OutcomeKept, FilterCEL},
		{"another expression", prod, PlacementTerms{Placement: expressionPlacement("cluster.name == 'b'")}, good, OutcomeLeaves, OutcomeLeaves, FilterCEL},
		{"an expression over properties where none was", v1alpha1.PlacementSpec{}, PlacementTerms{Placement: expressionPlacement("int(cluster.properties['nodes']) > 20")}, good, OutcomeLeaves, OutcomeLeaves, FilterCEL},
		{"the expression's label drifted, and sets were added that fit", prod, PlacementTerms{Placement: both}, drift(withLabel("env", "test")), OutcomeKept, OutcomeLeaves, FilterCEL},
		{"the property drifts", many, PlacementTerms{Placement: many}, drift(withProperty("nodes", "2")), OutcomeKept, OutcomeKept, FilterFields},
		{"another property is asked for", many, PlacementTerms{Placement: fieldsPlacement("nodes", corev1.NodeSelectorOpLt, "5")}, good, OutcomeLeaves, OutcomeLeaves, FilterFields},
		{"the API is not served any more", deploys, PlacementTerms{Placement: deploys}, drift(servingKinds("/v1/Pod")), OutcomeKept, OutcomeKept, FilterAPIs},
		{"another API is asked for", deploys, PlacementTerms{Placement: apisPlacement("batch/v1", "Job")}, good, OutcomeLeaves, OutcomeLeaves, FilterAPIs},
		{"the bundle holds another kind", v1alpha1.PlacementSpec{}, PlacementTerms{Kinds: []string{"batch/v1/Job"}}, good, OutcomeKept, OutcomeKept, FilterKinds},
		{"the property and the set drift", setsPlacement("eu"), PlacementTerms{Placement: setsPlacement("eu"), Kinds: []string{"batch/v1/Job"}}, drift(inClusterSets("us")), OutcomeKept, OutcomeLeaves, FilterSets},
		{"denied, and the set drifts", setsPlacement("eu"), PlacementTerms{Placement: setsPlacement("eu")}, drift(inClusterSets("us"), func(c *Cluster) { c.Accepted = false }), OutcomeKept, OutcomeKept, FilterAccepted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for unfit, want := range map[v1alpha1.WhenUnfit]Outcome{v1alpha1.UnfitKeep: tc.keep, v1alpha1.UnfitRemove: tc.take} {
				f := tc.terms.CompilePlacement()
				r := activeRow(good, tc.was)
				v := f.judgeByUsedGroup(&tc.cluster, &r, rowTerms{unfit: unfit, now: now})
				if v.Outcome != want || v.Filter != tc.filter {
					t.Errorf("%s: %s, want %s by %s", unfit, v, want, tc.filter)
				}
				if v.Outcome == OutcomeKept && v.RowReason != atoll.ReasonUnfit {
					t.Errorf("%s: kept with the word %q", unfit, v.RowReason)
				}
			}
		})
	}
}

// Rows store what they always did where nothing new is asked for, so that a hub that
// is replaced by a newer one takes no drift for an edit.
func TestPrintsAreWhatTheyWere(t *testing.T) {
	prod := v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod")}
	for _, tc := range []struct {
		placement v1alpha1.PlacementSpec
		want      string
	}{
		{v1alpha1.PlacementSpec{}, ""},
		{affinityPlacement(prod), shortFingerprint("env=prod") + "."},
		{affinityPlacement(v1alpha1.ClusterAffinity{FieldSelector: inRegion("eu")}), "." + shortFingerprint(inRegion("eu"))},
		{setsPlacement("eu"), "..." + shortFingerprint([]string{"eu"})},
	} {
		if got := CompilePlacement(tc.placement).placementFingerprint; got != tc.want {
			t.Errorf("print %q, want %q", got, tc.want)
		}
	}
}

func TestServedAPIs(t *testing.T) {
	a := APIsOf([]string{"/v1/Pod", "apps/v1/Deployment"})
	for name, want := range map[string]bool{
		FormatKindName("v1", "Pod"): true, FormatKindName("apps/v1", "Deployment"): true, formatAPIName(v1alpha1.ServedAPI{APIVersion: "apps/v1"}): true,
		formatAPIName(v1alpha1.ServedAPI{APIVersion: "v1"}): true, FormatKindName("apps/v1", "DaemonSet"): false, FormatKindName("apps", "v1"): false,
		formatAPIName(v1alpha1.ServedAPI{APIVersion: "v2"}): false,
	} {
		if _, lacks := a.firstMissing([]string{name}); lacks == want {
			t.Errorf("%s: served %t", name, !lacks)
		}
	}
}

// fleetOf n clusters, of which about one in a thousand passes all that manyFilters ask.
func fleetOf(n int) []Cluster {
	apis := APIsOf([]string{"/v1/Pod", "apps/v1/Deployment", "batch/v1/Job"})
	out := make([]Cluster, n)
	for i := range out {
		out[i] = newCluster(fmt.Sprintf("c%05d", i), locatedIn([]string{"eu", "us", "ap"}[i%3], fmt.Sprint("z", i%9), []string{"aws", "gcp"}[i%2]),
			inClusterSets(fmt.Sprint("set", i%7), "all"), func(c *Cluster) {
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
	for name, terms := range map[string]PlacementTerms{
		"sets":   {Placement: setsPlacement("none")},
		"bound":  {BoundSets: []string{"none"}},
		"labels": {Placement: affinityPlacement(v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "none")})},
		"fields": {Placement: affinityPlacement(v1alpha1.ClusterAffinity{FieldSelector: inRegion("none")})},
		"number": {Placement: fieldsPlacement("nodes", corev1.NodeSelectorOpGt, "1000")},
		"apis":   {Placement: apisPlacement("none/v1", "")},
		"kinds":  {Kinds: []string{"none/v1/None"}},
		"cel":    {Placement: expressionPlacement("cluster.labels['env'] == 'none' || 'none' in cluster.sets")},
	} {
		f := terms.CompilePlacement()
		in := Input{BundleUID: "b", Placement: terms.Placement, Filter: f, Clusters: fleet, SkipExplanations: true, Now: now}
		base := testing.AllocsPerRun(10, func() {
			DecidePlacement(Input{BundleUID: "b", Placement: terms.Placement, Filter: f, SkipExplanations: true, Now: now})
		})
		if n := testing.AllocsPerRun(10, func() { DecidePlacement(in) }); n > base+1 {
			t.Errorf("%s: %.0f allocations for 200 clusters that are refused, %.0f for none", name, n, base)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	fleet := fleetOf(10_000)
	eu := v1alpha1.ClusterAffinity{LabelSelector: labelSelectorOf("env", "prod", "team", "t7"), FieldSelector: inRegion("eu")}
	all := affinityPlacement(eu)
	all.ClusterSets, all.APIs, all.CELSelector = []string{"all"}, []v1alpha1.ServedAPI{{APIVersion: "batch/v1"}}, "int(cluster.properties['nodes']) > 10"
	for name, p := range map[string]v1alpha1.PlacementSpec{
		"labels and fields": affinityPlacement(eu),
		"all":               all,
		"an expression":     expressionPlacement("cluster.labels['env'] == 'prod' && cluster.region == 'none'"),
	} {
		b.Run(name, func(b *testing.B) {
			f := PlacementTerms{Placement: p, BoundSets: []string{"all"}, Kinds: []string{"apps/v1/Deployment"}}.CompilePlacement()
			b.ReportAllocs()
			for b.Loop() {
				DecidePlacement(Input{BundleUID: "b", Placement: p, Filter: f, Clusters: fleet, SkipExplanations: true, Now: now})
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
		var a clusterSelectors
		a.setLabels(s)
		if got, want := a.matchLabels(have), sel.Matches(labels.Set(have)); got != want {
			t.Fatalf("%s of %v: %t, want %t", sel, have, got, want)
		}
	}
}
