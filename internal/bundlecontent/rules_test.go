package bundlecontent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// newOverrideTest is a Bundle of one Deployment under one policy of overrides, planned.
func newOverrideTest(t *testing.T, spec string) (b *bundleTest, edit func(spec string)) {
	t.Helper()
	m := newFakeHub()
	b = newBundleTest(t, m, true)
	m.putTemplate(shopKey("Deployment", "web"), "1")
	m.placers[shopKey("Deployment", "web")] = PlacedByThis
	edit = func(spec string) {
		t.Helper()
		b.in.NamespaceOverrides = []*v1alpha1.OverridePolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "eu", Namespace: "shop"}, Spec: *parseYAML[v1alpha1.OverrideSpec](t, spec),
		}}
	}
	edit(spec)
	b.planNext()
	return b, edit
}

// A hub that renders rules in newer semantics keeps the old semantics of rules that no user edited,
// and creates no Revision for them. New rules have the newest semantics.
func TestRulesKeepTheirMeaning(t *testing.T) {
	const first = "{targetCluster: {clusterNames: [a]}, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}"
	b, edit := newOverrideTest(t, "overrideRules: ["+first+"]")
	prev := b.in.Previous
	if prev.Rules[0].Semantics != atoll.CurrentRuleSemantics {
		t.Fatalf("a new rule has the meaning %d", prev.Rules[0].Semantics)
	}
	prev.Rules[0].Semantics = 0 // as an older hub has cut it
	if out := b.planNext(); out.NeedsRevision || out.Content.Rules[0].Semantics != 0 {
		t.Errorf("another hub: cut %t, meaning %d", out.NeedsRevision, out.Content.Rules[0].Semantics)
	}
	edit("overrideRules: [{overriders: {replicas: 1}}, " + first + "]")
	if out := b.planNext(); !out.NeedsRevision || out.Content.Rules[0].Semantics != atoll.CurrentRuleSemantics || out.Content.Rules[1].Semantics != 0 {
		t.Errorf("another rule before it: cut %t, rules %+v", out.NeedsRevision, out.Content.Rules)
	}
	edit("overrideRules: [{targetCluster: {clusterNames: [b]}, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]")
	if out := b.planNext(); !out.NeedsRevision || out.Content.Rules[0].Semantics != atoll.CurrentRuleSemantics {
		t.Errorf("an edit: cut %t, meaning %d", out.NeedsRevision, out.Content.Rules[0].Semantics)
	}
}

// A rule of a policy with appliedRules First has semantics that older hubs refuse, and its description. A change between All and
// First makes a Revision. A Secret whose data the policy may not change keeps the rule, which stops it: a later one would apply.
func TestRulesOfWhichTheFirstApplies(t *testing.T) {
	const rules = "overrideRules: [{description: for a, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]"
	b, edit := newOverrideTest(t, rules)
	for _, first := range []bool{true, false} {
		semantics, more := atoll.CurrentRuleSemantics, ""
		if first {
			semantics, more = atoll.FirstRuleSemantics, "appliedRules: First\n"
		}
		edit(more + rules)
		out := b.planNext()
		if r := out.Content.Rules[0]; !out.NeedsRevision || r.First != first || r.Semantics != semantics || r.Description != "for a" {
			t.Errorf("%v: %+v", first, r)
		}
	}
	o := policymatch.CompiledOverride{Namespace: "shop", Name: "p", Spec: parseYAML[v1alpha1.OverrideSpec](t, "appliedRules: First\noverrideRules: [{overriders: {mergePatch: {data: {a: null}}}}]")}
	secret := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}
	if got := rulesForItems([]atoll.Item{{Key: secret}}, []policymatch.CompiledOverride{o}, nil); len(got) != 1 || got[0].Items[0] != secret {
		t.Errorf("%+v", got)
	}
}

// An edit of a description alone, such as of the commit of a Source that is synced, makes no Revision, so that no rollout starts.
func TestDescriptionsMakeNoRevision(t *testing.T) {
	const rules = "appliedRules: First\noverrideRules: [{description: of commit @, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]"
	b, edit := newOverrideTest(t, strings.Replace(rules, "@", "1", 1))
	edit(strings.Replace(rules, "@", "2", 1))
	if out := b.planNext(); out.NeedsRevision {
		t.Error("of another commit")
	}
	edit(strings.NewReplacer("@", "3", "a: b", "a: c").Replace(rules))
	if out := b.planNext(); !out.NeedsRevision || out.Content.Rules[0].Description != "of commit 3" {
		t.Errorf("another value: %+v", out.Content.Rules)
	}
}

// Edits of a policy with apply: WithNextChange make a Revision to which rows that are
// there need not move; whatever else changes makes one to which all do.
func TestApplyWithNextChange(t *testing.T) {
	later := func(n int) string {
		return fmt.Sprintf("apply: WithNextChange\noverrideRules: [{overriders: {replicas: %d}}]", n)
	}
	b, edit := newOverrideTest(t, later(1))
	number := int64(1)
	b.in.PreviousNumber = number
	next := func(what string, base int64) {
		t.Helper()
		out := b.planNext()
		if !out.NeedsRevision || out.Content.MinRevision != base {
			t.Fatalf("%s: cut %t, base %d, want %d", what, out.NeedsRevision, out.Content.MinRevision, base)
		}
		number++
		b.in.PreviousNumber = number
		if again := b.planNext(); again.NeedsRevision || again.Content.MinRevision != base {
			t.Fatalf("%s, and then nothing: cut %t, base %d", what, again.NeedsRevision, again.Content.MinRevision)
		}
	}
	edit(later(2))
	next("the first edit", 1)
	edit(later(3))
	next("another edit", 1)
	web := b.m.templates[shopKey("Deployment", "web")]
	web.Object["data"] = map[string]any{"v": "2"}
	web.SetGeneration(web.GetGeneration() + 1)
	next("the template's own change", 0)
	edit(later(4))
	next("an edit after that", 4)
	b.in.NamespaceOverrides = nil
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

// A policy of a namespace changes no data of Secrets, and its rule then leaves Secrets out.
func TestRulesForItemsLeaveOutSecretData(t *testing.T) {
	secret, config := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}, shopKey("ConfigMap", "c")
	other := atoll.ItemKey{Group: "example.com", Kind: "Secret", Namespace: "shop", Name: "s"}
	const data, labels = "{plaintext: [{path: /data/p, operator: remove}]}", "{labelsOverrider: [{operator: add, value: {a: b}}]}"
	for _, c := range []struct {
		name, namespace, overriders string
		items, want                 []atoll.ItemKey // want nil: no rule
	}{
		{"data, by a policy of the namespace", "shop", data, []atoll.ItemKey{config, secret, other}, []atoll.ItemKey{config, other}},
		{"data of a Secret alone", "shop", data, []atoll.ItemKey{secret}, nil},
		{"data, by a policy of the cluster", "", data, []atoll.ItemKey{config, secret}, []atoll.ItemKey{config, secret}},
		{"labels, by a policy of the namespace", "shop", labels, []atoll.ItemKey{config, secret}, []atoll.ItemKey{config, secret}},
		{"no item", "shop", labels, nil, nil},
	} {
		o := policymatch.CompiledOverride{Namespace: c.namespace, Name: "p", Spec: parseYAML[v1alpha1.OverrideSpec](t, "overrideRules: [{overriders: "+c.overriders+"}]")}
		var items []atoll.Item
		for _, key := range c.items {
			items = append(items, atoll.Item{Key: key})
		}
		rules := rulesForItems(items, []policymatch.CompiledOverride{o}, nil)
		var got []atoll.ItemKey
		if len(rules) == 1 {
			got = rules[0].Items
		}
		if len(rules) > 1 || len(rules) == 1 != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want one of %v", c.name, rules, c.want)
		}
	}
}

// namedOverride is an OverridePolicy of the namespace shop that sets a label to its own name.
func namedOverride(t *testing.T, name, selectors string) *v1alpha1.OverridePolicy {
	t.Helper()
	spec := "overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {by: " + name + "}}]}}]\nresourceSelectors: " + selectors
	return &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: *parseYAML[v1alpha1.OverrideSpec](t, spec)}
}

// formatRules returns which policies change which items, in order.
func formatRules(rules []atoll.Rule) string {
	var out []string
	for _, r := range rules {
		line := strings.TrimPrefix(r.Policy, "OverridePolicy/shop/") + ":"
		for _, key := range r.Items {
			line += key.Name
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

const (
	selectsAll     = "[{apiVersion: apps/v1, kind: Deployment}]"
	selectsLabels  = "[{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchLabels: {app: x}}}]"
	selectsW       = "[{apiVersion: apps/v1, kind: Deployment, name: w}]"
	selectsWAndAll = "[{apiVersion: apps/v1, kind: Deployment, name: w}, {apiVersion: apps/v1, kind: Deployment}]"
)

// Policies of equal priority apply by how specifically they select each object, then by name.
func TestRulesAreOrderedBySelector(t *testing.T) {
	w, x := shopKey("Deployment", "w"), shopKey("Deployment", "x")
	items := []atoll.Item{{Key: w}, {Key: x}}
	labelsOf := func(*atoll.Item) map[string]string { return map[string]string{"app": "x"} }
	for name, c := range map[string]struct {
		policies []*v1alpha1.OverridePolicy
		want     string
	}{
		"by selector":                         {[]*v1alpha1.OverridePolicy{namedOverride(t, "a", selectsW), namedOverride(t, "b", selectsLabels), namedOverride(t, "c", selectsAll)}, "c:wx b:wx a:w"},
		"by name":                             {[]*v1alpha1.OverridePolicy{namedOverride(t, "b", selectsAll), namedOverride(t, "a", selectsAll)}, "a:wx b:wx"},
		"without selectors":                   {[]*v1alpha1.OverridePolicy{namedOverride(t, "a", selectsLabels), namedOverride(t, "b", "[]")}, "b:wx a:wx"},
		"the most specific selector":          {[]*v1alpha1.OverridePolicy{namedOverride(t, "a", selectsWAndAll), namedOverride(t, "b", selectsLabels)}, "a:x b:wx a:w"},
		"one policy is there once for itself": {[]*v1alpha1.OverridePolicy{namedOverride(t, "a", selectsWAndAll)}, "a:wx"},
	} {
		if got := formatRules(rulesForItems(items, policymatch.SortOverrides(nil, c.policies), labelsOf)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	high := namedOverride(t, "a", selectsAll)
	high.Spec.Priority = 900
	if got := formatRules(rulesForItems(items, policymatch.SortOverrides(nil, []*v1alpha1.OverridePolicy{high, namedOverride(t, "b", selectsW)}), labelsOf)); got != "b:w a:wx" {
		t.Errorf("of another priority: %s", got)
	}
}

// A Bundle that an older hub stored keeps its order by name, through edits of templates, until its
// rules change.
func TestStoredRulesKeepTheirOrder(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	place := func(name string) {
		m.putTemplate(shopKey("Deployment", name), "1")
		m.placers[shopKey("Deployment", name)] = PlacedByThis
	}
	place("w")
	b.in.NamespaceOverrides = []*v1alpha1.OverridePolicy{namedOverride(t, "a", selectsW), namedOverride(t, "b", selectsAll)}
	if out := b.planNext(); formatRules(out.Content.Rules) != "b:w a:w" || out.Content.RuleOrder != atoll.RuleOrderBySelector {
		t.Fatalf("a new Bundle: %s, order %d", formatRules(out.Content.Rules), out.Content.RuleOrder)
	}
	slices.Reverse(b.in.Previous.Rules) // as an older hub stored it
	b.in.Previous.RuleOrder = atoll.RuleOrderByName
	for i := range b.in.Previous.Rules {
		b.in.Previous.Rules[i].Semantics = 1
	}
	if out := b.planNext(); out.NeedsRevision || formatRules(out.Content.Rules) != "a:w b:w" {
		t.Errorf("an upgrade: cut %t, %s", out.NeedsRevision, formatRules(out.Content.Rules))
	}
	place("x")
	if out := b.planNext(); !out.NeedsRevision || formatRules(out.Content.Rules) != "a:w b:wx" || out.Content.RuleOrder != atoll.RuleOrderByName {
		t.Errorf("another template: cut %t, %s, order %d", out.NeedsRevision, formatRules(out.Content.Rules), out.Content.RuleOrder)
	}
	b.in.NamespaceOverrides = append(b.in.NamespaceOverrides, namedOverride(t, "c", selectsW))
	if out := b.planNext(); !out.NeedsRevision || formatRules(out.Content.Rules) != "b:wx a:w c:w" || out.Content.RuleOrder != atoll.RuleOrderBySelector {
		t.Errorf("another policy: cut %t, %s, order %d", out.NeedsRevision, formatRules(out.Content.Rules), out.Content.RuleOrder)
	}
	if again := b.planNext(); again.NeedsRevision {
		t.Error("the same once more needs a Revision")
	}
	if out := b.planNext(); out.Content.Rules[1].Semantics != 1 {
		t.Errorf("a rule that was not edited has the meaning %d", out.Content.Rules[1].Semantics)
	}
	// Without the order of an older hub, an edit of selectors alone reorders.
	b.in.NamespaceOverrides = []*v1alpha1.OverridePolicy{namedOverride(t, "a", selectsAll), namedOverride(t, "b", selectsAll)}
	b.planNext()
	b.in.NamespaceOverrides = []*v1alpha1.OverridePolicy{namedOverride(t, "a", "[{apiVersion: apps/v1, kind: Deployment, name: w}, {apiVersion: apps/v1, kind: Deployment, name: x}]"), namedOverride(t, "b", selectsAll)}
	if out := b.planNext(); !out.NeedsRevision || formatRules(out.Content.Rules) != "b:wx a:wx" {
		t.Errorf("an edit of a selector: cut %t, %s", out.NeedsRevision, formatRules(out.Content.Rules))
	}
}

// onMissing and atomic take effect at rendering, which sees the content alone.
func TestRuleFieldsReachTheContent(t *testing.T) {
	b, _ := newOverrideTest(t, "overrideRules: [{onMissing: Skip, overriders: {replicas: 1}}, {atomic: true, overriders: {replicas: 1}}]")
	r := b.in.Previous.Rules
	if r[0].OnMissing != v1alpha1.OnMissingSkip || r[0].Atomic || r[1].OnMissing != "" || !r[1].Atomic || r[0].Deferred {
		t.Errorf("rules %+v", r)
	}
}

// A frozen item has the labels of its content, any other item the labels of its template.
func TestItemLabels(t *testing.T) {
	m := newFakeHub()
	m.putTemplate(shopKey("ConfigMap", "cfg"), "1").SetLabels(map[string]string{"from": "template"})
	p := &contentBuilder{templates: m}
	for _, c := range []struct {
		name  string
		key   atoll.ItemKey
		state atoll.ItemState
		want  string
	}{
		{"with a template", shopKey("ConfigMap", "cfg"), "", "template"},
		{"frozen", shopKey("ConfigMap", "cfg"), atoll.ItemRemovalHeld, "content"},
		{"without a template", shopKey("ConfigMap", "gone"), atoll.ItemRemovalHeld, "content"},
	} {
		item := &atoll.Item{Key: c.key, State: c.state, Object: []byte(`{"metadata":{"labels":{"from":"content"}}}`)}
		if got := p.itemLabels(item)["from"]; got != c.want {
			t.Errorf("%s: labels of the %s, want those of the %s", c.name, got, c.want)
		}
	}
	if got := parseItemLabels(&atoll.Item{Object: []byte("{")}); got != nil {
		t.Errorf("of malformed content: %v", got)
	}
}
