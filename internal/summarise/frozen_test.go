package summarise

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
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
