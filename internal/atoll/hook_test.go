package atoll

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A hook is what its annotations state. Words without a meaning are returned, and a hook without an event never runs.
func TestParseHook(t *testing.T) {
	for _, c := range []struct {
		events, policies    string
		text, deleted, lost string
	}{
		{"PreSync", "", "PreSync", "BeforeHookCreation", ""},
		{" PostSync , Sync,PreSync", "HookSucceeded,HookFailed", "PreSync, Sync, PostSync", "HookFailed, HookSucceeded", ""},
		{"SyncFail,,SyncFail", "BeforeHookCreation", "SyncFail", "BeforeHookCreation", ""},
		{"PreInstall,PreUpgrade", "BeforeHookCreation, HookSucceeded", "PreInstall, PreUpgrade", "BeforeHookCreation, HookSucceeded", ""},
		{"Skip", "", "Skip", "BeforeHookCreation", ""},
		{"PreSync,Skip", "", "Skip", "BeforeHookCreation", ""},
		{"presync", "", "Skip", "BeforeHookCreation", "presync"},
		{"PreDelete,Sync", "Never", "Sync, PreDelete", "BeforeHookCreation", "Never"},
		{"Before,Sync", "Never", "Sync", "BeforeHookCreation", "Before Never"},
		{"", "", "Skip", "BeforeHookCreation", ""},
		{strings.Repeat("x,", 100_000), "", "Skip", "BeforeHookCreation", "x x x x"},
	} {
		h, unknown := ParseHook(c.events, c.policies)
		if h.Text() != c.text || h.DeletePolicyText() != c.deleted || strings.Join(unknown, " ") != c.lost {
			t.Errorf("%.40q and %q: runs in %s, deleted by %s, unknown %q", c.events, c.policies, h.Text(), h.DeletePolicyText(), unknown)
		}
		if err := h.CheckForm(); err != nil {
			t.Errorf("%.40q: %v", c.events, err)
		}
		for _, p := range hookDeletePolicies {
			if want := strings.Contains(c.deleted, string(p)); h.HasDeletePolicy(p) != want {
				t.Errorf("%q is deleted by %s: %t", c.policies, p, !want)
			}
		}
	}
}

// A hook runs once in each phase. Events of an install and of an upgrade exclude each other.
func TestPhasesOfAHook(t *testing.T) {
	for _, c := range []struct {
		events           string
		install, upgrade string
	}{
		{"PreSync", "PreSync", "PreSync"},
		{"PreInstall", "PreSync", ""},
		{"PreUpgrade", "", "PreSync"},
		{"PreInstall,PreUpgrade,PreSync", "PreSync", "PreSync"},
		{"PostInstall,PreUpgrade", "PostSync", "PreSync"},
		{"PostUpgrade,Sync", "Sync", "Sync PostSync"},
		{"SyncFail,PreSync", "PreSync SyncFail", "PreSync SyncFail"},
		{"Skip,PreSync", "", ""},
		{"PreDelete,PostDelete", "", ""},
		{"PostDelete,PostSync", "PostSync", "PostSync"},
	} {
		h, _ := ParseHook(c.events, "")
		for install, want := range map[bool]string{true: c.install, false: c.upgrade} {
			var names []string
			phases := h.PhasesOf(install)
			for _, phase := range phases {
				names = append(names, phase.String())
			}
			if got := strings.Join(names, " "); got != want || !slices.IsSorted(phases) {
				t.Errorf("%s runs in %q, install %t, want %q", c.events, got, install, want)
			}
		}
	}
}

// A hook with other events or delete policies than a hub sends is refused, and equal hooks have one ID.
func TestFormOfAHook(t *testing.T) {
	for _, h := range []Hook{
		{Events: []HookEvent{"Never"}}, {Events: []HookEvent{HookPreSync, HookPreSync}}, {Events: []HookEvent{HookPostSync, HookPreSync}},
		{DeletePolicies: []HookDeletePolicy{"x"}}, {DeletePolicies: []HookDeletePolicy{HookSucceeded, HookBeforeCreation}},
	} {
		if h.CheckForm() == nil {
			t.Errorf("%+v is accepted", h)
		}
	}
	var none *Hook
	ids := map[string]bool{none.ID(): true}
	for _, annotations := range [][2]string{{"PreSync", ""}, {"Sync", ""}, {"Skip", ""}, {"PreSync", "HookFailed"}} {
		h, _ := ParseHook(annotations[0], annotations[1])
		ids[h.ID()] = true
	}
	if len(ids) != 5 {
		t.Errorf("the IDs are %v", ids)
	}
	for text, want := range map[string]bool{HashParts(): true, "": false, strings.Repeat("g", 32): false, fmt.Sprintf("%031d", 0): false} {
		if IsHookRun(text) != want {
			t.Errorf("%q names a content: %t", text, !want)
		}
	}
}
