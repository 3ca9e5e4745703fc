package manifest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// An item with a ServiceAccount has its content, and an error by which agents without support for the field apply nothing.
// An item without one has the bytes that it had.
func TestItemsWithAServiceAccount(t *testing.T) {
	content := newContent()
	plain, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
	if text, err := json.Marshal(plain); err != nil || strings.Contains(string(text), "erviceAccount") {
		t.Errorf("an item without a ServiceAccount has a byte of it: %s, %v", text, err)
	}
	hashes := map[string]string{plain.Hash: "no account"}
	for name, treatment := range map[string]*atoll.Treatment{
		"one":     {ServiceAccount: "shop/deployer"},
		"another": {ServiceAccount: "shop/other"},
		"watched": {ServiceAccount: "shop/deployer", Drift: v1alpha1.DriftReport},
	} {
		content = newContent()
		content.Items[1].Treatment = treatment
		got, _ := renderedItem(t, content, manifest.RenderInput{}, webKey)
		if got.ServiceAccount != treatment.ServiceAccount || got.Error != atoll.UnknownServiceAccount || got.Failed() || got.HasLostField() || string(got.Object) != string(plain.Object) {
			t.Errorf("%s: %+v", name, got)
		}
		if got.IsWritten() != (treatment.Drift == "") {
			t.Errorf("%s: written is %t", name, got.IsWritten())
		}
		if other, known := hashes[got.Hash]; known {
			t.Errorf("%s has the hash of %s", name, other)
		}
		hashes[got.Hash] = name
		// An agent of another version decodes what it knows.
		text, err := json.Marshal(got)
		var old struct {
			Error string `json:"error"`
		}
		if err != nil || json.Unmarshal(text, &old) != nil || old.Error == "" {
			t.Errorf("%s: an older agent reads %s, %v", name, text, err)
		}
	}
}

// An item that cannot be rendered fails, also with a ServiceAccount.
func TestAFailedItemHasNoServiceAccount(t *testing.T) {
	rule := newRule("OverridePolicy/shop/o", plaintextOverriders("replace", "/spec/none/of/this", `1`), webKey)
	for _, atomic := range []bool{false, true} {
		rule.Atomic = atomic
		content := newContent(rule)
		for i := range content.Items {
			content.Items[i].Treatment = &atoll.Treatment{ServiceAccount: "shop/deployer"}
		}
		web, _ := renderedItem(t, content, manifest.RenderInput{Rules: []int{0}}, webKey)
		other, _ := renderedItem(t, content, manifest.RenderInput{Rules: []int{0}}, jobKey)
		if !web.Failed() || web.ServiceAccount != "" || other.Failed() != atomic {
			t.Errorf("atomic %t: %+v, another %+v", atomic, web, other)
		}
	}
}

// The namespace of a manifest names its ServiceAccount.
func TestTheNamespaceOfAManifestNamesItsServiceAccount(t *testing.T) {
	meta := manifest.UserNamespaceMeta(nil, map[string]string{"atoll.dev/service-account": "deployer", "a": "b"})
	if meta.ServiceAccount != "deployer" || len(meta.Annotations) != 1 {
		t.Errorf("%+v", meta)
	}
	meta.ServiceAccount = "shop/deployer"
	m := manifest.BuildManifest(manifest.ManifestInput{
		Row: atoll.RowSpec{Phase: atoll.RowActive}, Content: newContent(), Items: []atoll.RenderedItem{{Key: webKey}},
		Namespaces: map[string]atoll.NamespaceMeta{"shop": meta},
	})
	if m.Namespaces["shop"].ServiceAccount != "shop/deployer" {
		t.Errorf("%+v", m.Namespaces)
	}
}
