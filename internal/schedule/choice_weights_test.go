package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// placedNames returns the clusters that a decision places the Bundle in.
func placedNames(d Decision) string {
	var out []string
	for _, v := range d.Verdicts {
		if v.Outcome == OutcomePlaced {
			out = append(out, v.Cluster)
		}
	}
	return strings.Join(out, " ")
}

const divided = "replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: ["

// A cluster without a weight is chosen only while no cluster with a weight fits.
func TestClustersWithoutWeightAreNoCandidates(t *testing.T) {
	inZone := func(name, zone string) Cluster {
		c := newCluster(name)
		c.Zone = zone
		return c
	}
	// a and b are in zone x, c and d in zone y.
	fleet := []Cluster{inZone("a", "x"), inZone("b", "x"), inZone("c", "y"), inZone("d", "y")}
	entry := func(names string) string {
		return "{targetCluster: {clusterNames: [" + names + "]}, weight: 3}"
	}
	for name, tc := range map[string]struct{ placement, want string }{
		"maxClusters":                            {"maxClusters: 1, " + divided + entry("d") + "]}}", "d"},
		"fewer weighted than maxClusters":        {"maxClusters: 3, " + divided + entry("b, d") + "]}}", "b d"},
		"a spread":                               {"spreadConstraints: [{spreadByField: cluster, maxGroups: 2}], " + divided + entry("b") + ", " + entry("c") + "]}}", "b c"},
		"a spread over zones":                    {"spreadConstraints: [{spreadByField: zone, minGroups: 2}], " + divided + entry("a, d") + "]}}", "a d"},
		"weights in too few zones":               {"spreadConstraints: [{spreadByField: zone, minGroups: 2}], " + divided + entry("a, b") + "]}}", ""},
		"no weight fits":                         {"maxClusters: 4, " + divided + entry("z") + "]}}", "a b c d"},
		"a weight that is excluded":              {"clusterAffinity: {exclude: [d]}, maxClusters: 4, " + divided + entry("d") + "]}}", "a b c"},
		"without a choice all that fit":          {divided + entry("d") + "]}}", "a b c d"},
		"bounds alone are no weights":            {"maxClusters: 4, replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [d]}, maxReplicas: 3}]}}", "a b c d"},
		"without replicas, by names and nothing": {"maxClusters: 4", "a b c d"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parsePlacement(t, "{"+tc.placement+"}")
			for _, skip := range []bool{false, true} {
				d := DecidePlacement(Input{BundleUID: "b", Placement: p, Clusters: fleet, SkipExplanations: skip, Now: now})
				if got := placedNames(d); got != tc.want {
					t.Errorf("chosen %q, want %q", got, tc.want)
				}
			}
		})
	}
	d := DecidePlacement(Input{BundleUID: "b", Placement: parsePlacement(t, "{maxClusters: 1, "+divided+entry("d")+"]}}}"), Clusters: fleet, Now: now})
	if v, ok := d.FindVerdict("a"); !ok || v.Outcome != OutcomeOut || v.Filter != FilterWeights || v.ReasonCode() != atoll.ReasonNotChosen {
		t.Errorf("the verdict on a is %v", v)
	}
}

// An edit of the weights chooses again. A cluster that loses its weight without an edit stays, and
// so does each cluster by the rule of earlier versions.
func TestEditedWeightsChooseAgain(t *testing.T) {
	labelled := func(name, tier string) Cluster {
		c := newCluster(name)
		c.Labels = map[string]string{"tier": tier}
		return c
	}
	byTier := func(tier string) v1alpha1.PlacementSpec {
		return parsePlacement(t, "{maxClusters: 1, "+divided+"{targetCluster: {labelSelector: {matchLabels: {tier: "+tier+"}}}, weight: 1}]}}}")
	}
	w := newWorld(labelled("a", "gold"), labelled("b", "silver"))
	if got := placedNames(w.decideAndApply(byTier("gold"))); got != "a" {
		t.Fatalf("chosen %s, want a", got)
	}
	w.clusters["a"] = labelled("a", "bronze")
	w.clusters["b"] = labelled("b", "gold")
	if got := placedNames(w.decideAndApply(byTier("gold"))); got != "a" {
		t.Errorf("after new labels %s, want a: nothing was edited", got)
	}
	edited := byTier("gold")
	edited.ReplicaScheduling.WeightPreference.StaticWeightList[0].TargetCluster.ExcludeClusters = []string{"z"}
	in := w.buildInput(edited)
	in.Filter = PlacementTerms{Placement: edited, SummedWeights: true}.CompilePlacement()
	// The row stores a fingerprint that the earlier rule does not have.
	row := w.rows["a"]
	row.PlacementFingerprint = PlacementTerms{Placement: byTier("gold"), SummedWeights: true}.CompilePlacement().placementFingerprint
	in.Rows = map[string]atoll.RowSpec{"a": row}
	if got := placedNames(DecidePlacement(in)); got != "a" {
		t.Errorf("by the earlier rule %s, want a", got)
	}
	d := w.decideAndApply(edited)
	v, _ := d.FindVerdict("a")
	if got := placedNames(d); got != "b" || v.Outcome != OutcomeLeaves || v.RowReason != atoll.ReasonPlacementEdited || v.Filter != FilterWeights {
		t.Errorf("after an edit %s, want b; a %v, %s", got, v, v.RowReason)
	}
}

// All replicas have a place for any list of entries, and none is in a cluster without a weight while
// a cluster has one.
func TestDividedByWeightsAddUp(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	var fleet []Cluster
	for _, n := range names {
		fleet = append(fleet, newCluster(n))
	}
	r := rand.New(rand.NewPCG(7, 11))
	for range 400 {
		var list []v1alpha1.StaticClusterWeight
		largest := map[string]int64{}
		for range 1 + r.IntN(4) {
			e := staticWeight(1+r.Int64N(9), names[r.IntN(4)], []string{"z", names[r.IntN(4)]}[r.IntN(2)])
			if r.IntN(5) == 0 {
				e.TargetCluster.ClusterNames = []string{"z"}
			}
			for _, n := range e.TargetCluster.ClusterNames {
				largest[n] = max(largest[n], e.Weight)
			}
			list = append(list, e)
		}
		delete(largest, "z")
		total := r.Int64N(50)
		d := DecidePlacement(Input{BundleUID: "b", Placement: weightedPlacement(list...), Clusters: fleet, Workloads: []Workload{{Key: web.Key, Replicas: total}}, Now: now})
		shares, sum := d.AssignReplicas(nil), int64(0)
		for _, n := range names {
			got := shares.ShareOf(n).AssignedReplicas()[web.Key.String()]
			if sum += got; got > 0 && len(largest) > 0 && largest[n] == 0 {
				t.Fatalf("%v: %s has %d replicas and no weight", list, n, got)
			}
			if v, _ := d.FindVerdict(n); v.Weight != largest[n] {
				t.Fatalf("%v: %s weighs %d, want %d", list, n, v.Weight, largest[n])
			}
		}
		if sum != total || len(shares.Shortages) > 0 {
			t.Fatalf("%v: %d of %d replicas are placed", list, sum, total)
		}
	}
}

// By the rule of earlier versions, clusters without a weight are candidates, and rows store the
// same as before.
func TestSummedWeightsChooseAsBefore(t *testing.T) {
	p := parsePlacement(t, "{maxClusters: 2, "+divided+"{targetCluster: {clusterNames: [b]}, weight: 1}]}}}")
	f := PlacementTerms{Placement: p, SummedWeights: true}.CompilePlacement()
	d := DecidePlacement(Input{BundleUID: "b", Placement: p, Filter: f, Clusters: []Cluster{newCluster("a"), newCluster("b")}, Now: now})
	if got := placedNames(d); got != "a b" {
		t.Errorf("chosen %s, want a b", got)
	}
	unweighted := p
	unweighted.ReplicaScheduling = v1alpha1.ReplicaScheduling{}
	if got, want := f.placementFingerprint, CompilePlacement(unweighted).placementFingerprint; got != want {
		t.Errorf("rows remember %s, want %s as without weights", got, want)
	}
	if all := []string{f.placementFingerprint, CompilePlacement(p).placementFingerprint}; slices.Compact(all)[0] == "" || len(slices.Compact(all)) != 2 {
		t.Errorf("rows remember %s, whichever rule counts", fmt.Sprint(all))
	}
}
