package atoll

import (
	"fmt"
	"testing"
)

// Hooks of a removal run in its phases alone, and order: before it, and after it.
func TestPhasesOfARemoval(t *testing.T) {
	for _, c := range []struct {
		events, want string
		only         bool
	}{
		{"PostDelete,PreDelete", "[PreDelete PostDelete]", true},
		{"PreDelete", "[PreDelete]", true},
		{"PostSync,PostDelete", "[PostDelete]", false},
		{"PreSync", "[]", false},
		{"Skip,PreDelete", "[]", false},
		{"", "[]", false},
	} {
		h, _ := ParseHook(c.events, "")
		if got := fmt.Sprint(h.RemovalPhases()); got != c.want || h.RunsOnlyAtRemoval() != c.only {
			t.Errorf("%q runs in %s, only in removals: %t", c.events, got, h.RunsOnlyAtRemoval())
		}
	}
	if PhasePreDelete >= PhaseRemoval || PhaseRemoval >= PhasePostDelete || PhaseSyncFail >= PhasePreDelete {
		t.Error("the phases of a removal do not follow each other")
	}
}

// An order about hooks is Skip or Retry, with a short word that makes it another order.
func TestOrdersAboutRemovalHooks(t *testing.T) {
	for order, want := range map[string]bool{
		"Skip": true, "Retry": true, "Retry-2": true, "Retry-after-lunch": false, "Retry-abcdefghijklmnopqrst": true, "Retry-abcdefghijklmnopqrstu": false,
		"": false, "skip": false, "Retry-": false, "Retry-A": false, "Skip-1": false, "Retry-1\n": false,
	} {
		if got := CheckRemovalHooks(order) == nil; got != want {
			t.Errorf("%q has a meaning: %t", order, got)
		}
	}
}

// A content is removed as a whole when users deleted all of it but hooks of removals, and stays so. Objects that moved to another
// Bundle, and contents that never had such hooks, are no such removal.
func TestAContentThatIsRemovedWithHooks(t *testing.T) {
	item := func(events string) Item {
		it := Item{Key: ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}}
		if events != "" {
			h, _ := ParseHook(events, "")
			it.Treatment = &Treatment{Hook: h}
		}
		return it
	}
	gone, hookGone := Tombstone{Cause: CauseDeleted}, Tombstone{Cause: CauseDeleted, RemovalHook: true}
	moved, unused := Tombstone{Cause: CauseMoved, MovedTo: []string{"b2"}}, Tombstone{Cause: CauseUnused}
	observed := item("PreDelete")
	observed.Treatment.Drift = "Report"
	for name, c := range map[string]struct {
		content  Content
		previous *Content
		want     bool
	}{
		"nothing":                         {Content{}, &Content{}, false},
		"the first content":               {Content{Items: []Item{item("PreDelete")}}, nil, true},
		"objects without hooks deleted":   {Content{Tombstones: []Tombstone{gone}}, &Content{}, false},
		"all deleted":                     {Content{Tombstones: []Tombstone{gone, hookGone}}, &Content{}, true},
		"only the hook is left":           {Content{Items: []Item{item("PreDelete")}, Tombstones: []Tombstone{gone}}, &Content{}, true},
		"only hooks are left, confirmed":  {Content{Items: []Item{item("PreDelete,PostDelete")}}, &Content{RemovedWithHooks: true}, true},
		"the hooks are deleted then":      {Content{Tombstones: []Tombstone{hookGone}}, &Content{RemovedWithHooks: true}, true},
		"an object comes":                 {Content{Items: []Item{item("PreDelete"), item("")}}, &Content{RemovedWithHooks: true}, false},
		"an object is left":               {Content{Items: []Item{item("PreDelete"), item("")}, Tombstones: []Tombstone{gone}}, &Content{}, false},
		"the hook alone is deleted":       {Content{Items: []Item{item("")}, Tombstones: []Tombstone{hookGone}}, &Content{}, false},
		"the hook runs otherwise, too":    {Content{Items: []Item{item("PostSync,PreDelete")}, Tombstones: []Tombstone{gone}}, &Content{}, false},
		"a hook that never runs":          {Content{Items: []Item{item("Skip")}, Tombstones: []Tombstone{gone}}, &Content{}, false},
		"an observed object":              {Content{Items: []Item{observed}, Tombstones: []Tombstone{gone}}, &Content{}, false},
		"the others moved":                {Content{Items: []Item{item("PreDelete")}, Tombstones: []Tombstone{moved}}, &Content{}, false},
		"the others moved, confirmed":     {Content{Items: []Item{item("PreDelete")}}, &Content{}, false},
		"the hook is deleted after those": {Content{Tombstones: []Tombstone{hookGone}}, &Content{}, false},
		"nothing needs the others":        {Content{Items: []Item{item("PreDelete")}, Tombstones: []Tombstone{unused}}, &Content{}, false},
		"a namespace is left":             {Content{NamespaceAlone: true, Tombstones: []Tombstone{gone, hookGone}}, &Content{}, false},
	} {
		c.content.SetRemovedWithHooks(c.previous)
		if got := c.content.IsRemovedWithHooks(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if (*Content)(nil).IsRemovedWithHooks() {
		t.Error("no content is removed with hooks")
	}
}

// A Removing row waits for the hook that failed, and otherwise for one that runs.
func TestTheHookForWhichARemovalWaits(t *testing.T) {
	status := func(items ...ItemStatus) *RowStatus { return &RowStatus{Items: items} }
	entry := func(name string, reason Reason) ItemStatus {
		return ItemStatus{Key: ItemKey{Group: "batch", Kind: "Job", Name: name}, Reason: reason, Message: "m"}
	}
	for name, c := range map[string]struct {
		status *RowStatus
		want   string
	}{
		"none":   {status(entry("a", ReasonRemoving)), " "},
		"runs":   {status(entry("a", ReasonRemoving), entry("b", ReasonWaitsForHook), entry("c", ReasonWaitsForHook)), "WaitsForHook Job b: m"},
		"failed": {status(entry("b", ReasonWaitsForHook), entry("c", ReasonHookFailed), entry("d", ReasonHookFailed)), "HookFailed Job c: m"},
	} {
		if reason, text := c.status.RemovalHookWait(); fmt.Sprintf("%s %s", reason, text) != c.want {
			t.Errorf("%s: %s %s", name, reason, text)
		}
	}
}
