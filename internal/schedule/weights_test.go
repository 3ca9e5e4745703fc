package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

// weightByEntries is the plain form of weightOf: it matches each entry of a list with the cluster.
func weightByEntries(list []v1alpha1.StaticClusterWeight, c *Cluster, summed bool) (w clusterWeight) {
	for i := range list {
		e := &list[i]
		if !CompileTarget(&v1alpha1.ClusterTarget{ClusterAffinity: e.TargetCluster}).MatchesCluster(&c.ClusterView) {
			continue
		}
		if summed {
			w.weight = min(w.weight+min(max(e.Weight, 0), MaxWeight), MaxWeight)
		} else {
			w.weight = max(w.weight, min(max(e.Weight, 0), MaxWeight))
		}
		w.bounds.Min = max(w.bounds.Min, e.MinReplicas)
		if e.MaxReplicas > 0 && (w.bounds.Max == 0 || e.MaxReplicas < w.bounds.Max) {
			w.bounds.Max = e.MaxReplicas
		}
	}
	return w
}

// Entries that are looked up by one label give each cluster the weight and the bounds that they give one by one.
func TestWeightsByLabelAreThoseOfTheEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	looked := 0
	for round := range 300 {
		var list []v1alpha1.StaticClusterWeight
		for range r.IntN(9) {
			e := v1alpha1.StaticClusterWeight{Weight: r.Int64N(9) - 1, MinReplicas: r.Int64N(3), MaxReplicas: r.Int64N(4)}
			if r.IntN(12) == 0 {
				e.Weight = MaxWeight + 1
			}
			env, tier := fmt.Sprint(r.IntN(3)), fmt.Sprint(r.IntN(2))
			switch r.IntN(6) {
			case 0:
				e.TargetCluster.LabelSelector = labelSelectorOf("env", env, "tier", tier)
			case 1:
				e.TargetCluster.ClusterNames = []string{"a", "c"}[:1+r.IntN(2)]
			case 2:
				e.TargetCluster.LabelSelector, e.TargetCluster.ExcludeClusters = labelSelectorOf("env", env), []string{"b"}
			case 3:
				e.TargetCluster.LabelSelector = labelSelectorOf("tier", tier)
			default:
				e.TargetCluster.LabelSelector = labelSelectorOf("env", env)
			}
			list = append(list, e)
		}
		for _, summed := range []bool{false, true} {
			s := staticWeights{summed: summed}
			for i := range list {
				s.addEntry(&list[i])
			}
			looked += len(s.byLabel)
			for _, name := range []string{"a", "b", "c", "d"} {
				c := newCluster(name)
				if name != "d" {
					c = newCluster(name, withLabel("env", fmt.Sprint(r.IntN(3))), withLabel("tier", fmt.Sprint(r.IntN(2))))
				}
				if is, want := s.weightOf(&c), weightByEntries(list, &c, summed); is != want {
					t.Fatalf("round %d, summed %t, %s %v: %+v, want %+v, of %+v", round, summed, name, c.Labels, is, want, list)
				}
			}
		}
	}
	if looked == 0 {
		t.Error("no entry was looked up by its label")
	}
}
