package claim

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// overridden is a Bundle of one Deployment under one policy of overrides, planned.
func overridden(t *testing.T, spec string) (b *bundle, edit func(spec string)) {
	t.Helper()
	m := newMemory()
	b = newBundle(t, m, true)
	m.put(obj("Deployment", "web"), "1")
	m.claims[obj("Deployment", "web")] = Mine
	edit = func(spec string) {
		t.Helper()
		b.in.Overrides = []*v1alpha1.OverridePolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "eu", Namespace: "shop"}, Spec: *decode[v1alpha1.OverrideSpec](t, spec),
		}}
	}
	edit(spec)
	b.plan()
	return b, edit
}

// A hub that renders rules in a newer meaning goes on with that of rules that nobody
// edited, and cuts no Revision for it; rules that are new have the newest.
func TestRulesKeepTheirMeaning(t *testing.T) {
	const first = "{targetCluster: {clusterNames: [a]}, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}"
	b, edit := overridden(t, "overrideRules: ["+first+"]")
	prev := b.in.Previous
	if prev.Rules[0].Meaning != atoll.RuleMeaning {
		t.Fatalf("a new rule has the meaning %d", prev.Rules[0].Meaning)
	}
	prev.Rules[0].Meaning = 0 // as an older hub has cut it
	if out := b.plan(); out.Cut || out.Content.Rules[0].Meaning != 0 {
		t.Errorf("another hub: cut %t, meaning %d", out.Cut, out.Content.Rules[0].Meaning)
	}
	edit("overrideRules: [{overriders: {replicas: 1}}, " + first + "]")
	if out := b.plan(); !out.Cut || out.Content.Rules[0].Meaning != atoll.RuleMeaning || out.Content.Rules[1].Meaning != 0 {
		t.Errorf("another rule before it: cut %t, rules %+v", out.Cut, out.Content.Rules)
	}
	edit("overrideRules: [{targetCluster: {clusterNames: [b]}, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]")
	if out := b.plan(); !out.Cut || out.Content.Rules[0].Meaning != atoll.RuleMeaning {
		t.Errorf("an edit: cut %t, meaning %d", out.Cut, out.Content.Rules[0].Meaning)
	}
}

// Edits of a policy with apply: WithNextChange make a Revision to which rows that are
// there need not move; whatever else changes makes one to which all do.
func TestApplyWithNextChange(t *testing.T) {
	later := func(n int) string {
		return fmt.Sprintf("apply: WithNextChange\noverrideRules: [{overriders: {replicas: %d}}]", n)
	}
	b, edit := overridden(t, later(1))
	number := int64(1)
	b.in.Number = number
	next := func(what string, base int64) {
		t.Helper()
		out := b.plan()
		if !out.Cut || out.Content.Base != base {
			t.Fatalf("%s: cut %t, base %d, want %d", what, out.Cut, out.Content.Base, base)
		}
		number++
		b.in.Number = number
		if again := b.plan(); again.Cut || again.Content.Base != base {
			t.Fatalf("%s, and then nothing: cut %t, base %d", what, again.Cut, again.Content.Base)
		}
	}
	edit(later(2))
	next("the first edit", 1)
	edit(later(3))
	next("another edit", 1)
	web := b.m.templates[obj("Deployment", "web")]
	web.Object["data"] = map[string]any{"v": "2"}
	web.SetGeneration(web.GetGeneration() + 1)
	next("the template's own change", 0)
	edit(later(4))
	next("an edit after that", 4)
	b.in.Overrides = nil
	next("the end of the policy", 4)
	edit(later(4))
	next("it comes back", 4)
	edit("apply: Now\noverrideRules: [{overriders: {replicas: 4}}]")
	next("Now", 0)
	edit("overrideRules: [{overriders: {replicas: 5}}]")
	next("an edit of a policy that does not say", 0)
	edit(later(6))
	next("an edit with which it says so", 9)
}

// What a rule says of failing is carried out at render, which sees the content alone.
func TestWhatARuleSaysReachesTheContent(t *testing.T) {
	b, _ := overridden(t, "overrideRules: [{onMissing: Skip, overriders: {replicas: 1}}, {atomic: true, overriders: {replicas: 1}}]")
	r := b.in.Previous.Rules
	if r[0].OnMissing != v1alpha1.OnMissingSkip || r[0].Atomic || r[1].OnMissing != "" || !r[1].Atomic || r[0].Later {
		t.Errorf("rules %+v", r)
	}
}
