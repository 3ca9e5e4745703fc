package summarise

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// What stays in members without following its template is told, on the Bundle and to its
// owner; a dependency of what is frozen leaves that to what it goes along with.
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
		"one that nobody places":            {of("ConfigMap", "a", false, atoll.ItemUnclaimed), "ConfigMap/a is Unclaimed", true},
		"a dependency of such":              {of("ConfigMap", "a", true, atoll.ItemUnclaimed), "", false},
		"a dependency that nothing names":   {of("ConfigMap", "a", true, atoll.ItemUnnamed), "ConfigMap/a is Unnamed", true},
		"a Secret that nothing names":       {of("Secret", "a", true, atoll.ItemUnnamed), "a Secret is Unnamed", true},
		"one that is gone without a reason": {of("ConfigMap", "a", false, atoll.ItemUnaccounted), "ConfigMap/a is Unaccounted", false},
	} {
		content := &atoll.Content{Items: []atoll.Item{tc.item}}
		if got := frozenWait(content); !strings.HasPrefix(got, tc.wait) || (got == "") != (tc.wait == "") {
			t.Errorf("%s: the Bundle says %q, want %q", name, got, tc.wait)
		}
		found := map[refusal]refusers{}
		if frozen(found, content); len(found) > 0 != tc.refused {
			t.Errorf("%s: its owner is told %v", name, found)
		}
	}
}

// What bind says of a Bundle, and nothing that summarise says itself, has it looked at.
func TestWhatCannotBeSentIsLookedAt(t *testing.T) {
	x, b := newIndex(), state.Bundle{Ref: enginev1.BundleRef{UID: "b"}}
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
		if got := x.edited(b); got != step.want {
			t.Errorf("%s: %v", step.what, got)
		}
	}
}
