package preview

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
)

// A plan names the copies that a budget would keep, equal ones together, and an edited budget that would let no copy go.
func TestBudgetsInAPlan(t *testing.T) {
	const awaited = "lima to become available: 2 of 3 copies are"
	wait := rollout.RowWait{Reason: atoll.ReasonDisruptionBudget, For: awaited, Actor: atoll.ActorOf(atoll.ReasonDisruptionBudget)}
	c := shopChange()
	c.After = map[string]atoll.RowSpec{}
	c.DisruptionWaits = map[string]rollout.RowWait{"tokyo": wait, "oslo": wait, "bergen": {Reason: atoll.ReasonPodDisruptionBudget, For: "pods", Actor: atoll.ActorUser}}
	p := BuildPlan(Input{Bundles: []BundleChange{c}})
	if k := p.Bundles[0].KeptByBudget; len(k) != 2 || k[0].Reason != atoll.ReasonPodDisruptionBudget || strings.Join(k[1].Clusters, " ") != "oslo tokyo" || k[1].For != awaited || k[1].Actor != atoll.ActorUser {
		t.Errorf("the copies that are kept are %+v", k)
	}
	if text, want := p.FormatText(false), "  The copy in oslo, tokyo cannot leave because of its budget, and would wait for "+awaited+" (DisruptionBudget); the application's owner must act.\n"; !strings.Contains(text, want) {
		t.Errorf("the plan is\n%s\nwant\n%s", text, want)
	}
	for name, s := range map[string]struct {
		least  int32
		edited bool
		want   string
	}{
		"as many as there are":    {2, true, "disruptionBudget with minAvailable 2 would let no copy in 2 clusters go, even while all are available"},
		"fewer":                   {1, true, ""},
		"which no write edits":    {2, false, ""},
		"more clusters than rows": {5, true, "disruptionBudget with minAvailable 5 would let no copy in 2 clusters go, even while all are available"},
	} {
		c := shopChange()
		c.DisruptionBudget, c.BudgetEdited = &v1alpha1.DisruptionBudget{MinAvailable: &intstr.IntOrString{IntVal: s.least}}, s.edited
		p := BuildPlan(Input{Bundles: []BundleChange{c}})
		got := ""
		if len(p.Bundles) > 0 {
			got = p.Bundles[0].StrictBudget
		}
		if got != s.want || strings.Contains(p.FormatText(false), "changes of healthy copies would wait") != (s.want != "") {
			t.Errorf("%s: %q in\n%s\nwant %q", name, got, p.FormatText(false), s.want)
		}
	}
}
