package policymatch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// TestIndexTakesSinglePolicies: policies that come, change and go one by one leave the
// index as if it had been made of those that there are.
func TestIndexTakesSinglePolicies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	draw := func() (out []v1alpha1.ResourceSelector) {
		for range 1 + rnd.IntN(3) {
			rs := deploymentSelector([]string{"", "a", "b", "c"}[rnd.IntN(4)])
			if rnd.IntN(3) == 0 {
				rs.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": fmt.Sprint(rnd.IntN(2))}}
			}
			if rnd.IntN(4) == 0 {
				rs.Kind = "StatefulSet"
			}
			out = append(out, rs)
		}
		return out
	}
	x := &PolicyIndex{}
	own, cluster := map[string]*v1alpha1.PropagationPolicy{}, map[string]*v1alpha1.ClusterPropagationPolicy{}
	for range 500 {
		name, spec := fmt.Sprint("p", rnd.IntN(6)), policySpec(int32(rnd.IntN(2)), draw()...)
		switch rnd.IntN(5) {
		case 0:
			delete(own, name)
			x.SetPolicy(namespacePolicyKind, "shop", name, nil)
		case 1:
			delete(cluster, name)
			x.SetPolicy(clusterPolicyKind, "", name, nil)
		case 2:
			cluster[name] = clusterPolicy(name, 0, spec)
			x.SetPolicy(clusterPolicyKind, "", name, CompilePolicy(clusterPolicyKind, &cluster[name].ObjectMeta, &cluster[name].Spec))
		default:
			own[name] = namespacePolicy(name, 0, spec)
			x.SetPolicy(namespacePolicyKind, "shop", name, CompilePolicy(namespacePolicyKind, &own[name].ObjectMeta, &own[name].Spec))
		}
		rebuilt := &PolicyIndex{}
		rebuilt.SetNamespacePolicies("shop", slices.Collect(maps.Values(own)))
		rebuilt.SetClusterPolicies(slices.Collect(maps.Values(cluster)))
		for _, kind := range []string{"Deployment", "StatefulSet"} {
			for _, object := range []string{"a", "b", "d"} {
				sub := Subject{Key: atoll.ItemKey{Group: map[string]string{"Deployment": "apps"}[kind], Kind: kind, Namespace: "shop", Name: object}, Labels: map[string]string{"x": fmt.Sprint(rnd.IntN(2))}}
				if got, want := formatCandidates(x.findCandidates(sub)), formatCandidates(rebuilt.findCandidates(sub)); got != want {
					t.Fatalf("%s: %s, want %s", sub.Key, got, want)
				}
			}
		}
	}
	for name := range own {
		x.SetPolicy(namespacePolicyKind, "shop", name, nil)
	}
	if len(x.namespaced) > 0 {
		t.Errorf("left behind: %+v", x.namespaced)
	}
}

func formatCandidates(all []Candidate) (out string) {
	for _, c := range all {
		out += fmt.Sprint(c.Source, c.level, c.specificity, c.MatchedBy, c.Spec.Priority, "; ")
	}
	return out
}
