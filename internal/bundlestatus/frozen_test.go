package bundlestatus

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// An item that stays in members without following its template is reported, on the Bundle and to
// its owner; a dependency of a frozen item leaves that to the item.
func TestWhatIsFrozenIsTold(t *testing.T) {
	of := func(kind, name string, dependency bool, state atoll.ItemState) atoll.Item {
		return atoll.Item{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: name}, Dependency: dependency, State: state}
	}
	for name, tc := range map[string]struct {
		item    atoll.Item
		wait    string
		refused bool
	}{
		"one that follows":                  {of("ConfigMap", "a", false, ""), "", false},
		"one that is not placed":            {of("ConfigMap", "a", false, atoll.ItemUnclaimed), "ConfigMap/a is Unclaimed", true},
		"a dependency of such":              {of("ConfigMap", "a", true, atoll.ItemUnclaimed), "", false},
		"a dependency that nothing names":   {of("ConfigMap", "a", true, atoll.ItemUnreferenced), "ConfigMap/a is Unnamed", true},
		"a Secret that nothing names":       {of("Secret", "a", true, atoll.ItemUnreferenced), "a Secret is Unnamed", true},
		"one that is gone without a reason": {of("ConfigMap", "a", false, atoll.ItemUnaccounted), "ConfigMap/a is Unaccounted", false},
	} {
		content := &atoll.Content{Items: []atoll.Item{tc.item}}
		if got := frozenWait(content).text; !strings.HasPrefix(got, tc.wait) || (got == "") != (tc.wait == "") {
			t.Errorf("%s: the Bundle says %q, want %q", name, got, tc.wait)
		}
		found := map[refusal]refusers{}
		if addFrozenRefusals(found, content); len(found) > 0 != tc.refused {
			t.Errorf("%s: its owner gets %v", name, found)
		}
	}
}

// Templates and tombstones that no Bundle has any more are returned, and are not remembered.
func TestIndexReturnsUnheldTemplates(t *testing.T) {
	x := newBundleIndex()
	web, api, old := atoll.ItemKey{Kind: "ConfigMap", Name: "web"}, atoll.ItemKey{Kind: "ConfigMap", Name: "api"}, atoll.ItemKey{Kind: "ConfigMap", Name: "old"}
	set := func(uid string, tombstones []atoll.ItemKey, items ...atoll.ItemKey) string {
		c := &atoll.Content{}
		for _, key := range items {
			c.Items = append(c.Items, atoll.Item{Key: key})
			x.recordTemplateChange(key, &unstructured.Unstructured{Object: map[string]any{}})
		}
		for _, key := range tombstones {
			c.Tombstones = append(c.Tombstones, atoll.Tombstone{Key: key})
		}
		return fmt.Sprint(x.setBundle(&bundleSnapshot{uid: uid, content: c}))
	}
	keys := func(of ...atoll.ItemKey) string { return fmt.Sprint(of) }
	for _, step := range []struct{ what, got, want string }{
		{"a has all", set("a", []atoll.ItemKey{old}, web, api), keys()},
		{"b has web", set("b", nil, web), keys()},
		{"a has api", set("a", nil, api), keys(old)},
		{"a has nothing", set("a", nil), keys(api)},
		{"b is gone", fmt.Sprint(x.dropBundleMemo("b")), keys(web)},
		{"b is still gone", fmt.Sprint(x.dropBundleMemo("b")), keys()},
	} {
		if step.got != step.want {
			t.Errorf("%s: %s, want %s", step.what, step.got, step.want)
		}
	}
	if len(x.holds) > 0 || len(x.templates) > 0 {
		t.Errorf("it remembers %v and %v", x.holds, x.templates)
	}
}

// A status that the server stores otherwise is not sent again for the same version of the template.
func TestStuckStatusIsRemembered(t *testing.T) {
	sent, other := map[string]any{"replicas": int64(2)}, map[string]any{"replicas": int64(3)}
	template := func(version string, status map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		o.SetResourceVersion(version)
		return o
	}
	m := &templateMemo{}
	m.storeAlteredStatus(template("1", sent), sent, sent)
	if m.wasSentInVain(template("1", sent), sent) {
		t.Error("the status was stored as it was sent")
	}
	m.storeAlteredStatus(template("2", map[string]any{}), sent, sent)
	if !m.wasSentInVain(template("2", nil), sent) || m.wasSentInVain(template("3", nil), sent) || m.wasSentInVain(template("2", nil), other) {
		t.Error("the same status of the same version is stuck, and no other")
	}
	m.storeAlteredStatus(template("4", sent), sent, sent)
	if m.wasSentInVain(template("2", nil), sent) || m.wasSentInVain(template("4", nil), sent) {
		t.Error("a later status was stored")
	}
}

// A change of the binder's part of a Bundle, and not of the status written here, causes a look.
func TestWhatCannotBeSentIsLookedAt(t *testing.T) {
	x, b := newBundleIndex(), state.Bundle{Ref: enginev1.BundleRef{UID: "b"}}
	for _, step := range []struct {
		what string
		c    metav1.Condition
		want bool
	}{
		{"it is new", metav1.Condition{Type: v1alpha1.BundleReady, Status: metav1.ConditionFalse}, true},
		{"its readiness", metav1.Condition{Type: v1alpha1.BundleReady, Status: metav1.ConditionTrue}, false},
		{"it cannot be sent", metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Message: "a"}, true},
		{"the same", metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Message: "a"}, false},
		{"for another reason", metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Message: "b"}, true},
		{"it can", metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionTrue, Message: "all"}, true},
	} {
		b.Status.Conditions = []metav1.Condition{step.c}
		if got := x.recordBundleChange(b); got != step.want {
			t.Errorf("%s: %v", step.what, got)
		}
	}
}
