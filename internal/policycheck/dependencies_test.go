package policycheck

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

// A dependency that could not be honoured is refused by the path of its field.
func TestFieldsOfADependency(t *testing.T) {
	const cluster = v1alpha1.SourceClusterPropagationPolicy
	many := make([]v1alpha1.PolicyDependency, v1alpha1.MaxDependencies+1)
	for i := range many {
		many[i].Name = fmt.Sprint("p", i)
	}
	for name, c := range map[string]struct {
		namespace string
		list      []v1alpha1.PolicyDependency
		refused   string
	}{
		"none":                    {"shop", nil, ""},
		"one":                     {"shop", []v1alpha1.PolicyDependency{{Name: "db", Scope: "All", AcceptedStates: []v1alpha1.DependencyState{"Ready", "Applied"}}}, ""},
		"a cluster policy":        {"shop", []v1alpha1.PolicyDependency{{Kind: cluster, Name: "crds"}, {Name: "crds"}}, ""},
		"of a cluster policy":     {"", []v1alpha1.PolicyDependency{{Name: "crds"}}, ""},
		"not the other way round": {"", []v1alpha1.PolicyDependency{{Kind: v1alpha1.SourcePropagationPolicy, Name: "db"}}, "spec.dependsOn[0].kind: Forbidden"},
		"another kind":            {"shop", []v1alpha1.PolicyDependency{{Kind: "Bundle", Name: "db"}}, "spec.dependsOn[0].kind: Unsupported"},
		"no name":                 {"shop", []v1alpha1.PolicyDependency{{}}, "spec.dependsOn[0].name: Invalid"},
		"a name of no policy":     {"shop", []v1alpha1.PolicyDependency{{Name: "db"}, {Name: "shop/db"}}, "spec.dependsOn[1].name: Invalid"},
		"twice":                   {"shop", []v1alpha1.PolicyDependency{{Name: "db"}, {Kind: v1alpha1.SourcePropagationPolicy, Name: "db", Scope: "All"}}, "spec.dependsOn[1]: Duplicate"},
		"a scope":                 {"shop", []v1alpha1.PolicyDependency{{Name: "db", Scope: "Namespace"}}, "spec.dependsOn[0].scope: Unsupported"},
		"a state":                 {"shop", []v1alpha1.PolicyDependency{{Name: "db", AcceptedStates: []v1alpha1.DependencyState{"Ready", "Late"}}}, "spec.dependsOn[0].acceptedStates[1]: Unsupported"},
		"as many as there may be": {"shop", many[1:], ""},
		"more":                    {"shop", many, "spec.dependsOn: Too many"},
	} {
		got := fmt.Sprint(checkDependencies(c.list, c.namespace, field.NewPath("spec", "dependsOn")).ToAggregate())
		if c.refused == "" && got != "<nil>" || !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}

// Policies that would depend on each other are refused, over any number of steps. Others that do so already, and what they lead to, are no reason.
func TestCirclesOfDependencies(t *testing.T) {
	graph := map[string][]v1alpha1.PolicyDependency{
		"b": {{Name: "c"}}, "c": {{Name: "a"}, {Name: "d"}}, "x": {{Name: "y"}}, "y": {{Name: "x"}},
		"d": {{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "a"}},
	}
	others := func(p v1alpha1.PolicyRef) []v1alpha1.PolicyDependency {
		if p.Namespace != "shop" {
			return nil
		}
		return graph[p.Name]
	}
	own := v1alpha1.PolicyRef{Kind: v1alpha1.SourcePropagationPolicy, Namespace: "shop", Name: "a"}
	for name, c := range map[string]struct {
		list []v1alpha1.PolicyDependency
		want string
	}{
		"itself":         {[]v1alpha1.PolicyDependency{{Name: "a"}}, "spec.dependsOn[0]: Forbidden: the policies would depend on each other: PropagationPolicy a on PropagationPolicy a"},
		"one step":       {[]v1alpha1.PolicyDependency{{Name: "d"}, {Name: "c"}}, "spec.dependsOn[1]: Forbidden: the policies would depend on each other: PropagationPolicy a on PropagationPolicy c on PropagationPolicy a"},
		"several steps":  {[]v1alpha1.PolicyDependency{{Name: "b"}}, "PropagationPolicy a on PropagationPolicy b on PropagationPolicy c on PropagationPolicy a"},
		"another circle": {[]v1alpha1.PolicyDependency{{Name: "x"}}, "<nil>"},
		"equal names":    {[]v1alpha1.PolicyDependency{{Name: "d"}, {Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "a"}}, "<nil>"},
		"none":           {[]v1alpha1.PolicyDependency{{Name: "missing"}}, "<nil>"},
	} {
		got := fmt.Sprint(CheckDependencyCycles(own, c.list, others, field.NewPath("spec", "dependsOn")).ToAggregate())
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q", name, got, c.want)
		}
	}
}

// Names of override policies are those of objects, each once, and bounded.
func TestNamesOfDependentOverrides(t *testing.T) {
	many := make([]string, v1alpha1.MaxDependentOverrides+1)
	for i := range many {
		many[i] = fmt.Sprint("o", i)
	}
	for name, c := range map[string]struct {
		names   []string
		refused string
	}{
		"none":                    {nil, "<nil>"},
		"two":                     {[]string{"eu", "us"}, "<nil>"},
		"no name":                 {[]string{"eu", ""}, "spec.dependentOverrides[1]: Invalid"},
		"with a namespace":        {[]string{"shop/eu"}, "spec.dependentOverrides[0]: Invalid"},
		"twice":                   {[]string{"eu", "us", "eu"}, "spec.dependentOverrides[2]: Duplicate"},
		"as many as there may be": {many[1:], "<nil>"},
		"more":                    {many, "spec.dependentOverrides: Too many"},
	} {
		spec := &v1alpha1.PropagationSpec{DependentOverrides: c.names}
		if got := fmt.Sprint(CheckPropagation(spec, "shop", nil, field.NewPath("spec")).ToAggregate()); !strings.Contains(got, c.refused) {
			t.Errorf("%s: %s, want %q", name, got, c.refused)
		}
	}
}
