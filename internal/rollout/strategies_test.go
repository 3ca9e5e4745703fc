package rollout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
)

// strategyBook is the rollouts of strategies by key, and those that are enforced.
type strategyBook struct {
	rollouts map[types.NamespacedName]*v1alpha1.Rollout
	enforced Enforcement
}

func (b strategyBook) GetRollout(key types.NamespacedName) (*v1alpha1.Rollout, bool) {
	r, ok := b.rollouts[key]
	return r, ok
}

func (b strategyBook) ListEnforcedFor(labels map[string]string) []string {
	return b.enforced.ListFor(labels)
}

// boundOf returns a rollout that is known by its bound.
func boundOf(n int32) *v1alpha1.Rollout {
	bound := intstr.FromInt32(n)
	return &v1alpha1.Rollout{MaxUnavailable: &bound}
}

func selectingNamespaces(labels string) *v1alpha1.StrategyEnforcement {
	out := &v1alpha1.StrategyEnforcement{}
	for pair := range strings.SplitSeq(labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			metav1.AddLabelToSelector(&out.NamespaceSelector, key, value)
		}
	}
	return out
}

// describeChoice returns text such as "2 of RolloutStrategy a, enforced".
func describeChoice(c StrategyChoice) string {
	text := "no rollout"
	if c.Rollout != nil {
		text = c.Rollout.MaxUnavailable.String()
	}
	if c.Strategy != nil {
		text += " of " + c.Strategy.String()
		if c.Strategy.Enforced {
			text += ", enforced"
		}
	}
	if c.Missing != nil {
		text += ", missing " + c.Missing.String()
	}
	if len(c.Outranked) > 0 {
		text += ", before " + strings.Join(c.Outranked, " ")
	}
	return text
}

// The rollout of a Bundle is that of the strategy that is enforced for its namespace. Without one, it is that of the strategy which the source
// names by rolloutRef.kind and name, or the source's own.
func TestTheStrategyOfABundle(t *testing.T) {
	var enforced Enforcement
	for name, labels := range map[string]string{"c": "tier=prod", "a": "tier=prod,zone=eu", "b": "tier=prod"} {
		enforced = enforced.WithStrategy(name, selectingNamespaces(labels))
	}
	book := strategyBook{map[types.NamespacedName]*v1alpha1.Rollout{
		{Namespace: "shop", Name: "own"}: boundOf(1), {Name: "own"}: boundOf(2), {Name: "a"}: boundOf(3), {Name: "b"}: boundOf(4), {Name: "c"}: boundOf(5),
	}, enforced}
	ref := func(kind, name string) v1alpha1.PropagationSpec {
		return v1alpha1.PropagationSpec{RolloutRef: &v1alpha1.RolloutRef{Kind: kind, Name: name}}
	}
	const policy, cluster = v1alpha1.SourcePropagationPolicy, v1alpha1.SourceClusterPropagationPolicy
	prod, eu := map[string]string{"tier": "prod"}, map[string]string{"tier": "prod", "zone": "eu"}
	for name, c := range map[string]struct {
		strategies Strategies
		scope      StrategyScope
		spec       v1alpha1.PropagationSpec
		want       string
	}{
		"nothing is stated":                  {book, StrategyScope{SourceKind: policy, Namespace: "shop"}, v1alpha1.PropagationSpec{}, "no rollout"},
		"its own":                            {book, StrategyScope{SourceKind: policy, Namespace: "shop"}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "9"},
		"its own, without strategies":        {nil, StrategyScope{SourceKind: policy, Namespace: "shop"}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "9"},
		"of the namespace, without a kind":   {book, StrategyScope{SourceKind: policy, Namespace: "shop"}, ref("", "own"), "1 of RolloutStrategy own"},
		"of the namespace":                   {book, StrategyScope{SourceKind: policy, Namespace: "shop"}, ref("RolloutStrategy", "own"), "1 of RolloutStrategy own"},
		"of all namespaces":                  {book, StrategyScope{SourceKind: policy, Namespace: "shop"}, ref("ClusterRolloutStrategy", "own"), "2 of ClusterRolloutStrategy own"},
		"of another namespace":               {book, StrategyScope{SourceKind: policy, Namespace: "blog"}, ref("", "own"), "no rollout, missing RolloutStrategy own"},
		"of a cluster policy":                {book, StrategyScope{SourceKind: cluster, Namespace: "shop"}, ref("", "own"), "2 of ClusterRolloutStrategy own"},
		"missing, of a cluster policy":       {book, StrategyScope{SourceKind: cluster, Namespace: "shop"}, ref("", "none"), "no rollout, missing ClusterRolloutStrategy none"},
		"missing, without strategies":        {nil, StrategyScope{SourceKind: policy, Namespace: "shop"}, ref("", "own"), "no rollout, missing RolloutStrategy own"},
		"enforced in place of its own":       {book, StrategyScope{policy, "shop", prod}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "4 of ClusterRolloutStrategy b, enforced, before c"},
		"enforced in place of a named one":   {book, StrategyScope{policy, "shop", prod}, ref("", "own"), "4 of ClusterRolloutStrategy b, enforced, before c"},
		"enforced in place of a missing one": {book, StrategyScope{policy, "shop", prod}, ref("", "none"), "4 of ClusterRolloutStrategy b, enforced, before c"},
		"enforced over a cluster policy":     {book, StrategyScope{cluster, "shop", prod}, v1alpha1.PropagationSpec{}, "4 of ClusterRolloutStrategy b, enforced, before c"},
		"enforced over an annotation":        {book, StrategyScope{v1alpha1.SourceAnnotation, "shop", prod}, v1alpha1.PropagationSpec{}, "4 of ClusterRolloutStrategy b, enforced, before c"},
		"the first one by name":              {book, StrategyScope{policy, "shop", eu}, v1alpha1.PropagationSpec{}, "3 of ClusterRolloutStrategy a, enforced, before b c"},
		"no namespace":                       {book, StrategyScope{cluster, "", prod}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "9"},
		"one is deleted while it is read":    {strategyBook{map[types.NamespacedName]*v1alpha1.Rollout{{Name: "c"}: boundOf(5)}, enforced}, StrategyScope{policy, "shop", prod}, v1alpha1.PropagationSpec{}, "5 of ClusterRolloutStrategy c, enforced"},
		"all of them are deleted while read": {strategyBook{nil, enforced}, StrategyScope{policy, "shop", prod}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "9"},
		"labels that no strategy selects":    {book, StrategyScope{policy, "shop", map[string]string{"tier": "test"}}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "9"},
		"a namespace without labels":         {book, StrategyScope{policy, "shop", nil}, v1alpha1.PropagationSpec{Rollout: boundOf(9)}, "9"},
	} {
		if got := describeChoice(ChooseStrategy(c.strategies, c.scope, &c.spec)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// enforcedFor.namespaceSelector selects namespaces by matchLabels and matchExpressions, and an empty one all of them. A strategy that is stated
// again replaces its former selector.
func TestNamespacesOfAnEnforcement(t *testing.T) {
	in := func(operator metav1.LabelSelectorOperator, values ...string) *v1alpha1.StrategyEnforcement {
		return &v1alpha1.StrategyEnforcement{NamespaceSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: operator, Values: values}}}}
	}
	prod, test := map[string]string{"tier": "prod"}, map[string]string{"tier": "test"}
	var e Enforcement
	expect := func(what, inProd, inTest, without string) {
		t.Helper()
		got := []string{fmt.Sprint(e.ListFor(prod)), fmt.Sprint(e.ListFor(test)), fmt.Sprint(e.ListFor(nil))}
		if want := []string{"[" + inProd + "]", "[" + inTest + "]", "[" + without + "]"}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("none", "", "", "")
	e = e.WithStrategy("m", selectingNamespaces("tier=prod"))
	expect("matchLabels", "m", "", "")
	before := e
	e = e.WithStrategy("k", in(metav1.LabelSelectorOpIn, "prod", "test")).WithStrategy("z", in(metav1.LabelSelectorOpDoesNotExist))
	expect("matchExpressions with key, operator and values", "k m", "k", "z")
	e = e.WithStrategy("a", &v1alpha1.StrategyEnforcement{})
	expect("an empty selector", "a k m", "a k", "a z")
	e = e.WithStrategy("m", selectingNamespaces("tier=test")).WithStrategy("k", nil).WithStrategy("none", nil)
	expect("another selector, and an end", "a", "a m", "a z")
	e = e.WithStrategy("a", in("Like", "x"))
	expect("a selector that cannot be parsed", "", "m", "z")
	if got := before.ListFor(prod); !slices.Equal(got, []string{"m"}) {
		t.Errorf("an earlier list changed: %v", got)
	}
}
