package preview

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
)

// A plan shows a Bundle that would have another rollout, or that of another strategy. For a new Bundle it shows the rollout of a strategy alone.
func TestRolloutThatABundleWouldHave(t *testing.T) {
	bound := intstr.FromString("10%")
	staged := func(names ...string) *v1alpha1.Rollout {
		out := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged}
		for _, name := range names {
			out.Stages = append(out.Stages, v1alpha1.RolloutStage{Name: name})
		}
		return out
	}
	edited := staged("canary", "europe")
	edited.Stages[0].MaxFailures = &bound
	own, enforced := &v1alpha1.AppliedStrategy{Kind: "RolloutStrategy", Name: "careful"}, &v1alpha1.AppliedStrategy{Kind: "ClusterRolloutStrategy", Name: "first", Enforced: true}
	spec := func(r *v1alpha1.Rollout, s *v1alpha1.AppliedStrategy) *v1alpha1.BundleSpec {
		return &v1alpha1.BundleSpec{Rollout: r, RolloutStrategy: s}
	}
	all := &v1alpha1.Rollout{Type: v1alpha1.RolloutAll, MaxUnavailable: &bound, Windows: make([]v1alpha1.ChangeWindow, 2)}
	auto := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, AutoStages: []intstr.IntOrString{intstr.FromInt32(1), bound}}
	for name, c := range map[string]struct {
		before, after *v1alpha1.BundleSpec
		want          string
	}{
		"nothing":                     {spec(nil, nil), spec(nil, nil), ""},
		"its own stays":               {spec(staged("canary"), own), spec(staged("canary"), own), ""},
		"a policy states one":         {spec(nil, nil), spec(staged("canary"), nil), "  Its rollout would change: none stated -> stages canary.\n"},
		"a strategy":                  {spec(nil, nil), spec(staged("canary", "europe"), own), "  Its rollout would change: none stated -> stages canary, europe (RolloutStrategy careful).\n"},
		"an edit of its terms":        {spec(staged("canary", "europe"), own), spec(edited, own), "  The terms of its rollout would change: stages canary, europe (RolloutStrategy careful).\n"},
		"an enforcement":              {spec(all, own), spec(auto, enforced), "  Its rollout would change: all clusters at once, maxUnavailable 10%, 2 change windows (RolloutStrategy careful) -> automatic stages 1, 10%, 100% (ClusterRolloutStrategy first, enforced).\n"},
		"the same of another one":     {spec(staged("canary"), own), spec(staged("canary"), enforced), "  Its rollout would change: stages canary (RolloutStrategy careful) -> stages canary (ClusterRolloutStrategy first, enforced).\n"},
		"a new Bundle":                {nil, spec(staged("canary"), own), "  Its rollout would be: stages canary (RolloutStrategy careful).\n"},
		"a new Bundle of a policy":    {nil, spec(staged("canary"), nil), ""},
		"a new Bundle without stages": {nil, spec(nil, nil), ""},
	} {
		edit := NewRolloutEdit(c.before, c.after)
		var b strings.Builder
		if edit.writeText(&b); b.String() != c.want {
			t.Errorf("%s: %q, want %q", name, b.String(), c.want)
		}
		plan := Plan{}
		plan.addBundle(&Input{}, &BundleChange{Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "web"}, RolloutEdit: edit})
		if shown := len(plan.Bundles) == 1; shown != (c.want != "") || plan.Changes {
			t.Errorf("%s: shown %v, with changes %v", name, shown, plan.Changes)
		}
		if len(plan.Bundles) == 1 && !strings.Contains(plan.FormatText(false), c.want) {
			t.Errorf("%s: the plan is %s", name, plan.FormatText(false))
		}
	}
}
