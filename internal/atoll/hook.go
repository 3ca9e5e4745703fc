package atoll

import (
	"fmt"
	"slices"
	"strings"
)

// MaxHooks and MaxWaves bound the hooks of a Bundle and its different waves, of all phases together. At each
// step an agent stores the records of what it applied.
const (
	MaxHooks = 256
	MaxWaves = 1000
)

// Hook is when members run an item's object, where they do not just keep it applied.
type Hook struct {
	// Events in which the object runs, in their order. Empty: it never runs, and members do not apply it.
	Events []HookEvent `json:"events,omitempty"`
	// DeletePolicies are when members delete the object of a run. Sorted. Empty: before the next run.
	DeletePolicies []HookDeletePolicy `json:"delete,omitempty"`
}

// HookEvent is an event of a Bundle in a member in which a hook runs.
type HookEvent string

// The events. Those of an install are of the first content that a member gets of a Bundle, those of an upgrade of
// each later one. Those of a deletion are of the Bundle's removal from the member.
const (
	HookPreSync     HookEvent = "PreSync"
	HookPreInstall  HookEvent = "PreInstall"
	HookPreUpgrade  HookEvent = "PreUpgrade"
	HookSync        HookEvent = "Sync"
	HookPostSync    HookEvent = "PostSync"
	HookPostInstall HookEvent = "PostInstall"
	HookPostUpgrade HookEvent = "PostUpgrade"
	HookSyncFail    HookEvent = "SyncFail"
	HookPreDelete   HookEvent = "PreDelete"
	HookPostDelete  HookEvent = "PostDelete"
)

// hookEvents are all events, in the order in which hooks list them.
var hookEvents = []HookEvent{HookPreSync, HookPreInstall, HookPreUpgrade, HookSync, HookPostSync, HookPostInstall, HookPostUpgrade, HookSyncFail, HookPreDelete, HookPostDelete}

// hookSkip, among the events of an annotation, means that no event applies the object.
const hookSkip = "Skip"

// HookPhase is a phase of the work on a content, or of the removal of a Bundle. Objects that are no hooks are of PhaseSync
// and of PhaseRemoval.
type HookPhase int8

// The phases, in their order. PhaseSyncFail comes after a hook of an earlier phase failed. The last three are those of a
// removal.
const (
	PhasePreSync HookPhase = iota - 1
	PhaseSync
	PhasePostSync
	PhaseSyncFail
	PhasePreDelete
	PhaseRemoval
	PhasePostDelete
)

// String returns the name of the phase, as annotations state it.
func (p HookPhase) String() string {
	switch p {
	case PhasePreSync:
		return string(HookPreSync)
	case PhasePostSync:
		return string(HookPostSync)
	case PhaseSyncFail:
		return string(HookSyncFail)
	case PhasePreDelete:
		return string(HookPreDelete)
	case PhaseRemoval:
		return "Removal"
	case PhasePostDelete:
		return string(HookPostDelete)
	}
	return string(HookSync)
}

// PhasesOf returns the phases of a content in which the hook runs, in their order, each once. install: the content is the
// first that the member gets.
func (h *Hook) PhasesOf(install bool) (out []HookPhase) {
	for _, event := range h.Events {
		phase, runs := PhaseSync, true
		switch event {
		case HookPreSync:
			phase = PhasePreSync
		case HookPreInstall:
			phase, runs = PhasePreSync, install
		case HookPreUpgrade:
			phase, runs = PhasePreSync, !install
		case HookPostSync:
			phase = PhasePostSync
		case HookPostInstall:
			phase, runs = PhasePostSync, install
		case HookPostUpgrade:
			phase, runs = PhasePostSync, !install
		case HookSyncFail:
			phase = PhaseSyncFail
		case HookPreDelete, HookPostDelete:
			runs = false
		}
		if runs && !slices.Contains(out, phase) {
			out = append(out, phase)
		}
	}
	return out
}

// HookDeletePolicy is when members delete the object of a hook.
type HookDeletePolicy string

// The policies.
const (
	// HookBeforeCreation: before the next run of the hook.
	HookBeforeCreation HookDeletePolicy = "BeforeHookCreation"
	// HookFailed: as soon as its run failed.
	HookFailed HookDeletePolicy = "HookFailed"
	// HookSucceeded: after its phase, when its run succeeded.
	HookSucceeded HookDeletePolicy = "HookSucceeded"
)

var hookDeletePolicies = []HookDeletePolicy{HookBeforeCreation, HookFailed, HookSucceeded}

// HasDeletePolicy reports whether the hook's object is deleted by the policy.
func (h *Hook) HasDeletePolicy(p HookDeletePolicy) bool {
	if len(h.DeletePolicies) == 0 {
		return p == HookBeforeCreation
	}
	return slices.Contains(h.DeletePolicies, p)
}

// Text returns the events of the hook for people.
func (h *Hook) Text() string {
	if h == nil {
		return ""
	}
	if len(h.Events) == 0 {
		return hookSkip
	}
	return joinWords(h.Events)
}

// DeletePolicyText returns the delete policies of the hook for people.
func (h *Hook) DeletePolicyText() string {
	if len(h.DeletePolicies) == 0 {
		return string(HookBeforeCreation)
	}
	return joinWords(h.DeletePolicies)
}

// ID returns a text that equal hooks share; empty: there is none.
func (h *Hook) ID() string {
	if h == nil {
		return ""
	}
	return h.Text() + " " + h.DeletePolicyText()
}

// CheckForm returns an error for a hook that no hub sends.
func (h *Hook) CheckForm() error {
	if !isOrderedSubset(h.Events, hookEvents) || !isOrderedSubset(h.DeletePolicies, hookDeletePolicies) {
		return fmt.Errorf("its hook has events or delete policies that no hook has")
	}
	return nil
}

// IsHookRun reports whether a text has the form of a manifest's HookRun, which is a hash.
func IsHookRun(text string) bool {
	return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == ""
}

// ParseHook returns the hook that the values of two annotations state: its events and its delete policies. Unknown are the
// words without a meaning. A hook without a known event never runs.
func ParseHook(events, policies string) (h *Hook, unknown []string) {
	h = &Hook{}
	stated, unknownEvents := parseWords(events, append(slices.Clone(hookEvents), hookSkip))
	if !slices.Contains(stated, hookSkip) {
		h.Events = stated
	}
	deleted, unknownPolicies := parseWords(policies, hookDeletePolicies)
	if !slices.Equal(deleted, []HookDeletePolicy{HookBeforeCreation}) {
		h.DeletePolicies = deleted
	}
	return h, append(unknownEvents, unknownPolicies...)
}

// maxUnknownWords bounds the words without a meaning that a message names.
const maxUnknownWords = 4

// parseWords returns the known words of a list that commas separate, in the order of the known ones, and the first few others.
func parseWords[W ~string](text string, known []W) (out []W, unknown []string) {
	stated := map[W]bool{}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		switch {
		case word == "":
		case slices.Contains(known, W(word)):
			stated[W(word)] = true
		case len(unknown) < maxUnknownWords:
			unknown = append(unknown, word)
		}
	}
	for _, word := range known {
		if stated[word] {
			out = append(out, word)
		}
	}
	return out, unknown
}

// isOrderedSubset reports whether the words are some of the known ones, in their order, each once.
func isOrderedSubset[W comparable](words, known []W) bool {
	for _, word := range known {
		if len(words) > 0 && words[0] == word {
			words = words[1:]
		}
	}
	return len(words) == 0
}

func joinWords[W ~string](words []W) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, ", ")
}

// UnknownHook is the error of each item of a Bundle with hooks, which agents without support for hooks report. So they run no
// hook as an ordinary object, and apply nothing without its hooks. It must never change: newer agents find by it what older
// ones stored.
const UnknownHook = "the agent is older than hooks, and keeps the content that it had: upgrade the agent"
