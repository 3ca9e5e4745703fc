package server

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
)

var webKey = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

// contentWithRule holds a Deployment whose replicas are divided, and a rule of OverridePolicy
// shop/scale that sets them.
func contentWithRule(change func(*atoll.Item, *atoll.Rule)) *atoll.Content {
	item := atoll.Item{Key: webKey, Divided: true}
	rule := atoll.Rule{
		Policy: "OverridePolicy/shop/scale", Index: 2, Items: []atoll.ItemKey{webKey},
		Overriders: v1alpha1.Overriders{Replicas: new(int32(3))},
	}
	if change != nil {
		change(&item, &rule)
	}
	return &atoll.Content{Items: []atoll.Item{item}, Rules: []atoll.Rule{rule}}
}

func TestRulesThatSetDividedReplicas(t *testing.T) {
	for name, tc := range map[string]struct {
		content *atoll.Content
		refused bool
	}{
		"divided replicas":                {contentWithRule(nil), true},
		"no content":                      {nil, false},
		"replicas that are not divided":   {contentWithRule(func(i *atoll.Item, _ *atoll.Rule) { i.Divided = false }), false},
		"replicas that overrides may set": {contentWithRule(func(i *atoll.Item, _ *atoll.Rule) { i.ReplicaOverrides = true }), false},
		"the rule of another policy":      {contentWithRule(func(_ *atoll.Item, r *atoll.Rule) { r.Policy = "OverridePolicy/shop/other" }), false},
		"a rule about another item":       {contentWithRule(func(_ *atoll.Item, r *atoll.Rule) { r.Items = []atoll.ItemKey{{Kind: "Secret"}} }), false},
		"a rule that sets no replicas":    {contentWithRule(func(_ *atoll.Item, r *atoll.Rule) { r.Overriders = v1alpha1.Overriders{} }), false},
	} {
		err := checkDividedReplicas(tc.content, "OverridePolicy/shop/scale")
		if (err != nil) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "spec.overrideRules[2].overriders") {
			t.Errorf("%s: the error names no place: %v", name, err)
		}
	}
}

func TestOverridePoliciesOfDividedReplicasAreRefused(t *testing.T) {
	scale := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "scale"}}
	other := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}
	all := &v1alpha1.ClusterOverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	deleted := scale.DeepCopy()
	at := metav1.NewTime(time.Unix(1, 0))
	deleted.DeletionTimestamp = &at
	previewed := []binder.PreviewedBundle{{Content: nil}, {Content: contentWithRule(nil)}}
	s := &hypotheticalState{ownObjects: []client.Object{other, scale, all}}
	if !s.refuseDividedReplicas(previewed) || len(s.ownObjects) != 2 || len(s.refused) != 1 || s.refused[0].Object != "OverridePolicy shop/scale" || s.refused[0].Why == "" {
		t.Errorf("%d objects are left, refused: %+v", len(s.ownObjects), s.refused)
	}
	for name, o := range map[string]client.Object{"a policy that is deleted": deleted, "a policy of another name": other, "a Placement": &v1alpha1.Placement{ObjectMeta: scale.ObjectMeta}} {
		s := &hypotheticalState{ownObjects: []client.Object{o}}
		if s.refuseDividedReplicas(previewed) || len(s.ownObjects) != 1 || len(s.refused) != 0 {
			t.Errorf("%s is refused: %+v", name, s.refused)
		}
	}
	ofAll := contentWithRule(func(_ *atoll.Item, r *atoll.Rule) { r.Policy = "ClusterOverridePolicy/all" })
	s = &hypotheticalState{ownObjects: []client.Object{all}}
	if !s.refuseDividedReplicas([]binder.PreviewedBundle{{Content: ofAll}}) || s.refused[0].Object != "ClusterOverridePolicy all" {
		t.Errorf("a cluster policy: %+v", s.refused)
	}
}
