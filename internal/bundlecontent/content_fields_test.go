package bundlecontent

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func parseYAML[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The rules of a policy reach the content in their order, with their clusters.
func TestOverrideRulesReachTheContent(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	w, cfg := shopKey("Deployment", "web"), shopKey("ConfigMap", "cfg")
	m.putTemplate(w, "1", "ConfigMap/cfg")
	m.putTemplate(cfg, "2")
	m.placers[w] = PlacedByThis
	b.planNext()
	b.in.NamespaceOverrides = []*v1alpha1.OverridePolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "eu", Namespace: "shop"},
		Spec: *parseYAML[v1alpha1.OverrideSpec](t, `
resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
overrideRules:
- {targetCluster: {clusterNames: [a]}, overriders: {replicas: 1}}
- {overriders: {plaintext: [{path: /spec/paused, operator: add, value: true}]}}
`),
	}}
	b.wantContent("an override makes a revision", "ConfigMap/cfg@2+ Deployment/web@1", 2)
	rules := b.in.Previous.Rules
	if len(rules) != 2 || rules[0].Policy != "OverridePolicy/shop/eu" || rules[1].Index != 1 ||
		rules[0].Target == nil || rules[0].Target.ClusterNames[0] != "a" || rules[1].Target != nil ||
		*rules[0].Overriders.Replicas != 1 || rules[1].Overriders.Plaintext[0].Path != "/spec/paused" ||
		fmt.Sprint(rules[0].Items) != fmt.Sprint([]atoll.ItemKey{w}) {
		t.Errorf("rules %+v", rules)
	}
}

// The content takes its conflict resolution and removal mode from the policy.
func TestContentCarriesConflictResolutionAndRemoval(t *testing.T) {
	m := newFakeHub()
	b := newBundleTest(t, m, true)
	a := shopKey("ConfigMap", "a")
	m.putTemplate(a, "1")
	m.placers[a] = PlacedByThis
	b.in.Intent.Spec.ConflictResolution = v1alpha1.ConflictAdoptIfSame
	b.planNext()
	if c := b.in.Previous; c.ConflictResolution != v1alpha1.ConflictAdoptIfSame || c.Removal != v1alpha1.RemoveDelete {
		t.Errorf("conflictResolution %s, removal.mode %s", c.ConflictResolution, c.Removal)
	}
	b.in.Intent.Spec.ConflictResolution, b.in.Intent.Spec.Removal.Mode = v1alpha1.ConflictOverwrite, v1alpha1.RemoveOrphan
	b.wantContent("an edit of both makes a revision", "ConfigMap/a@1", 2)
	if c := b.in.Previous; c.ConflictResolution != v1alpha1.ConflictOverwrite || c.Removal != v1alpha1.RemoveOrphan {
		t.Errorf("conflictResolution %s, removal.mode %s", c.ConflictResolution, c.Removal)
	}
}
