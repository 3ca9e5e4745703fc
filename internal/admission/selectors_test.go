package admission

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestSelectorsOfAllKinds(t *testing.T) {
	p := New(Options{})
	for name, c := range map[string]struct {
		selector  v1alpha1.ResourceSelector
		namespace string
		want      string // a part of the error; empty: none
	}{
		"everything":             {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*"}, "", ""},
		"everything in a policy": {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*"}, "shop", ""},
		"a group":                {v1alpha1.ResourceSelector{APIVersion: "apps/*", Kind: "*"}, "", ""},
		"the core group":         {v1alpha1.ResourceSelector{APIVersion: "v1", Kind: "*", Namespace: "shop"}, "", ""},
		"one kind in all groups": {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "Deployment"}, "", `must be "*" where apiVersion is "*"`},
		"all kinds of a version": {v1alpha1.ResourceSelector{APIVersion: "apps/v1", Kind: "*"}, "", "write apiVersion: apps/*"},
		"with a name":            {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*", Name: "web"}, "", "takes a labelSelector"},
		"the hub's own API":      {v1alpha1.ResourceSelector{APIVersion: "atoll.dev/*", Kind: "*"}, "", "Atoll's own API"},
		"a malformed group":      {v1alpha1.ResourceSelector{APIVersion: "a/b/c", Kind: "*"}, "", "GROUP/* for one"},
		"another's namespace":    {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*", Namespace: "other"}, "shop", "selects only there"},
		"a malformed namespace":  {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*", Namespace: "A b"}, "", "namespace"},
	} {
		err := p.checkSelectors([]v1alpha1.ResourceSelector{c.selector}, c.namespace, field.NewPath("s")).ToAggregate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	o := &v1alpha1.OverrideSpec{ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "*", Kind: "*"}}}
	if errs := forbidAllKindsSelectors(o, field.NewPath("spec")); len(errs) != 1 {
		t.Errorf("an override of everything: %v", errs)
	}
}

// A user that places everything must be able to read everything there.
func TestAccessOfAllKinds(t *testing.T) {
	p := New(Options{})
	for name, c := range map[string]struct {
		selector  v1alpha1.ResourceSelector
		namespace string
		want      requiredRead // one of those that are needed
	}{
		"everywhere":                  {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*"}, "", requiredRead{resource: schema.GroupResource{Group: "*", Resource: "*"}}},
		"a group":                     {v1alpha1.ResourceSelector{APIVersion: "apps/*", Kind: "*"}, "", requiredRead{resource: schema.GroupResource{Group: "apps", Resource: "*"}}},
		"a group in a namespace":      {v1alpha1.ResourceSelector{APIVersion: "apps/*", Kind: "*"}, "shop", requiredRead{resource: schema.GroupResource{Group: "apps", Resource: "*"}, namespace: "shop"}},
		"everything in a namespace":   {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*"}, "shop", requiredRead{kind: schema.GroupKind{Kind: "Secret"}, namespace: "shop"}},
		"of a cluster policy's place": {v1alpha1.ResourceSelector{APIVersion: "*", Kind: "*", Namespace: "shop"}, "", requiredRead{kind: schema.GroupKind{Kind: "Secret"}, namespace: "shop"}},
	} {
		need := p.requiredSelectorReads(c.namespace, []v1alpha1.ResourceSelector{c.selector})
		if !slices.ContainsFunc(need, func(x requiredRead) bool {
			if c.want.resource.Resource != "" {
				return x.resource == c.want.resource && x.namespace == c.want.namespace
			}
			return x == c.want
		}) {
			t.Errorf("%s: %+v", name, need)
		}
	}
}
