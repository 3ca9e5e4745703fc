package bundlecontent

import (
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The ServiceAccount of the Namespace, or else of a rule, reaches each item. It goes only when a user takes it away, and
// costs no byte where none is named.
func TestItemsCarryTheServiceAccount(t *testing.T) {
	m := newFakeHub()
	a := shopKey("ConfigMap", "a")
	m.putTemplate(a, "u1")
	m.placers[a] = PlacedByThis
	w := newBundleTest(t, m, false)
	w.in.OwnNamespace, w.in.Namespace = atoll.NamespaceKey("shop"), &atoll.NamespaceMeta{Labels: map[string]string{"team": "a"}}
	plan := func(want string, problems int) Output {
		t.Helper()
		out := w.planNext()
		if got := out.Content.Items[0].Treatment.WritingServiceAccount(); got != want || len(out.Problems) != problems {
			t.Errorf("the item names %q, want %q; problems %v", got, want, out.Problems)
		}
		return out
	}
	out := plan("", 0)
	if text := string(atoll.EncodeContentIdentity(&out.Content)); strings.Contains(text, "treatment") || strings.Contains(text, "ccount") {
		t.Errorf("a content without a ServiceAccount has a byte of it: %s", text)
	}
	w.in.Intent.Spec.ItemRules = []v1alpha1.ItemRule{{ServiceAccount: "other"}}
	if out = plan("shop/other", 0); !out.NeedsRevision || out.Content.Namespace.ServiceAccount != "" {
		t.Errorf("by a rule: revision %t, namespace %+v", out.NeedsRevision, out.Content.Namespace)
	}
	w.in.Namespace = &atoll.NamespaceMeta{ServiceAccount: "deployer"}
	if out = plan("shop/deployer", 0); !out.NeedsRevision || out.Content.Namespace.ServiceAccount != "shop/deployer" || w.in.Namespace.ServiceAccount != "deployer" {
		t.Errorf("by the Namespace: revision %t, namespace %+v, input %+v", out.NeedsRevision, out.Content.Namespace, w.in.Namespace)
	}
	// A Namespace that is not known is no instruction, and a malformed name neither.
	w.in.Namespace = nil
	plan("shop/deployer", 0)
	w.in.Namespace = &atoll.NamespaceMeta{ServiceAccount: "a/b/c"}
	if out = plan("shop/deployer", 1); out.NeedsRevision || !strings.Contains(out.Problems[0].Err.Error(), "annotation atoll.dev/service-account of namespace shop: ") {
		t.Errorf("a malformed name: revision %t, %v", out.NeedsRevision, out.Problems)
	}
	w.in.Namespace, w.in.Intent.Spec.ItemRules = &atoll.NamespaceMeta{}, nil
	plan("", 0)
}

// A new object under a malformed ServiceAccount is not sent by the rights of the agent alone.
func TestAMalformedServiceAccountSendsNothing(t *testing.T) {
	m := newFakeHub()
	a := shopKey("ConfigMap", "a")
	m.putTemplate(a, "u1")
	m.placers[a] = PlacedByThis
	w := newBundleTest(t, m, false)
	w.in.OwnNamespace, w.in.Namespace = atoll.NamespaceKey("shop"), &atoll.NamespaceMeta{ServiceAccount: "no account"}
	if out := w.planNext(); len(out.Content.Items) != 0 || len(out.Problems) != 1 || out.Content.Namespace != nil {
		t.Errorf("%+v, problems %v", out.Content, out.Problems)
	}
}

// A Namespace that is an item itself has the ServiceAccount of its own annotation.
func TestANamespaceNamesItsOwnServiceAccount(t *testing.T) {
	m := newFakeHub()
	ns := atoll.NamespaceKey("blog")
	m.putTemplate(ns, "u1")
	m.placers[ns] = PlacedByThis
	w := newBundleTest(t, m, false)
	m.templates[ns].SetAnnotations(map[string]string{atoll.AnnotationServiceAccount: "deployer"})
	if out := w.planNext(); len(out.Problems) != 0 || out.Content.Items[0].Treatment.WritingServiceAccount() != "blog/deployer" {
		t.Errorf("%+v, problems %v", out.Content.Items, out.Problems)
	}
}
