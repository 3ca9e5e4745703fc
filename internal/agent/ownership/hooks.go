package ownership

import (
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// LabelHookRun is on the object of a hook: the run for which it was made, as HookRun.Label returns it. An object that an
// interrupted apply made, or of which the record is lost, is known by it for its run.
const LabelHookRun = "atoll.dev/hook-run"

// HookOutcome is how a run of a hook ended; empty: it has not ended.
type HookOutcome string

// The outcomes.
const (
	HookSucceeded HookOutcome = "Succeeded"
	HookFailed    HookOutcome = "Failed"
)

// HookRun is the last run of an object as a hook. The shell stores it before it creates the object, so that no restart runs
// the hook twice.
type HookRun struct {
	// Content that the run is for, as the HookRun of its manifest, and the template of the hook.
	Content  string `json:"c"`
	Template string `json:"t,omitempty"`
	// Phase of the run.
	Phase atoll.HookPhase `json:"p,omitempty"`
	// UID of the object that runs; empty: it is not made, or not recorded.
	UID     string      `json:"u,omitempty"`
	Outcome HookOutcome `json:"o,omitempty"`
	// Since is when the object of the run was made, in Unix seconds; 0: it is not known.
	Since int64 `json:"s,omitempty"`
	// Overdue, of a failed run: it did not end within its deadline.
	Overdue bool `json:"d,omitempty"`
	// Order is the order about the hooks of the removal by which the run began; empty: there was none.
	Order string `json:"r,omitempty"`
}

// Label returns the value of LabelHookRun.
func (h *HookRun) Label() string { return h.Content + "." + h.Phase.String() }

// ParseHookRun returns the run that a value of LabelHookRun names, of an object with the UID; nil: it names none.
func ParseHookRun(label, template, uid string) *HookRun {
	content, name, named := strings.Cut(label, ".")
	for phase := atoll.PhasePreSync; named && phase <= atoll.PhasePostDelete; phase++ {
		if phase.String() == name {
			return &HookRun{Content: content, Template: template, Phase: phase, UID: uid}
		}
	}
	return nil
}

// isOf reports whether the run is for a content of a Bundle and the template of its item.
func (h *HookRun) isOf(content string, it *atoll.RenderedItem) bool {
	return h != nil && h.Content == content && h.Template == it.UID
}

// HookState is what is known of the runs of a hook for the present content.
type HookState struct {
	// Phase of the present or next run; HasNext is false where none is left for the content.
	Phase   atoll.HookPhase
	HasNext bool
	// Begun: that the run begins is recorded.
	Begun bool
	// Last is the last run for the content; nil: there is none.
	Last *HookRun
	// Waits: the object still runs for a former content, and is not interrupted.
	Waits bool
	// Repeats: the last run failed, and a person ordered another one.
	Repeats bool
}

// Succeeded reports whether the run in the phase succeeded.
func (s HookState) Succeeded(phase atoll.HookPhase) bool {
	return s.Last != nil && (s.Last.Phase > phase || s.Last.Phase == phase && s.Last.Outcome == HookSucceeded)
}

// Failed reports whether a run for the content failed.
func (s HookState) Failed() bool {
	return s.Last != nil && s.Last.Outcome == HookFailed && !s.Repeats
}

// isDone reports whether all runs for the content succeeded, but those that only a failure has.
func (s HookState) isDone() bool {
	return !s.Failed() && (!s.HasNext || s.Phase == atoll.PhaseSyncFail)
}

// HookStateOf returns what is known of the runs of a Bundle's hook.
func (b *OwnershipRecords) HookStateOf(bundle string, it *atoll.RenderedItem) HookState {
	r, nb := b.records[it.Key], b.bundles[bundle]
	if r == nil || nb == nil || it.Hook == nil {
		return HookState{}
	}
	return r.hookState(&nb.holding, it)
}

// hookState returns what is known of the runs of the record's object as a hook of a holding.
func (r *Record) hookState(h *BundleHolding, it *atoll.RenderedItem) (s HookState) {
	if m := &h.Manifest; r.Hook.isOf(m.HookRun, it) {
		run := *r.Hook
		s.Last, s.Repeats = &run, run.Outcome == HookFailed && run.Order != m.RemovalHooks
	} else {
		s.Waits = !m.Remove && r.runsForFormerContent(it)
	}
	if s.Failed() {
		return s
	}
	for _, phase := range h.phasesOf(it.Hook) {
		if s.Succeeded(phase) {
			continue
		}
		s.Phase, s.HasNext = phase, true
		s.Begun = s.Last != nil && s.Last.Phase == phase && !s.Repeats
		return s
	}
	return s
}

// runsForFormerContent reports whether the object, as the item has it, still runs for another content.
func (r *Record) runsForFormerContent(it *atoll.RenderedItem) bool {
	return r.UID != "" && r.Hook != nil && r.Hook.UID == r.UID && r.Hook.Outcome == "" && r.Applied == it.Hash && r.Template == it.UID
}

// hookVerb returns what is to be done about the object of a hook. Whether its phase has come is for the caller to decide.
func (r *Record) hookVerb(s HookState, it *atoll.RenderedItem) Verb {
	switch {
	case s.Waits:
		return Nothing
	case !s.HasNext && r.isDeletedAfterRun(s, it.Hook):
		return Delete
	case !s.HasNext, s.Begun && s.Last.UID != "":
		return Nothing
	case !s.Begun && r.UID != "" && r.isHookDeletable() && (it.Hook.HasDeletePolicy(atoll.HookBeforeCreation) || r.Ran != ""):
		return Replace // also one that runs to completion, which cannot run again
	}
	return Apply
}

// isDeletedAfterRun reports whether a delete policy deletes the object of the last run as it ended.
func (r *Record) isDeletedAfterRun(s HookState, h *atoll.Hook) bool {
	if s.Last == nil || r.UID == "" || r.UID != s.Last.UID || !r.isHookDeletable() {
		return false
	}
	return s.Last.Outcome == HookFailed && h.HasDeletePolicy(atoll.HookFailed) ||
		s.Last.Outcome == HookSucceeded && h.HasDeletePolicy(atoll.HookSucceeded)
}

// isHookDeletable reports whether a delete policy may delete the object: Atoll made it, and it takes nothing along.
func (r *Record) isHookDeletable() bool {
	return !r.Adopted && !DeletionLosesDataOrDependents(r.Key)
}

// BeginHook records that a run of the owner's hook begins. The shell stores it before it applies the object.
func (b *OwnershipRecords) BeginHook(key atoll.ItemKey) {
	r := b.records[key]
	if r == nil {
		return
	}
	it := b.ItemToApply(r.Owner, key)
	if it == nil || it.Hook == nil {
		return
	}
	if s := b.HookStateOf(r.Owner, it); s.HasNext && !s.Begun && !s.Waits {
		m := &b.bundles[r.Owner].holding.Manifest
		r.Hook = &HookRun{Content: m.HookRun, Template: it.UID, Phase: s.Phase, Order: m.RemovalHooks}
		r.Last = nil
		b.markDirty(key)
	}
}

// RecordHookOutcome records how the run of the object with the UID ended, and reports whether that is new.
func (b *OwnershipRecords) RecordHookOutcome(key atoll.ItemKey, uid string, outcome HookOutcome) bool {
	r := b.records[key]
	if r == nil || r.Hook == nil || uid == "" || r.Hook.UID != uid || r.Hook.Outcome != "" {
		return false
	}
	r.Hook.Outcome = outcome
	b.markDirty(key)
	return true
}

// noteHookApplied notes the object of a run that began.
func (r *Record) noteHookApplied(f Fact) {
	if r.Hook != nil && r.Hook.UID == "" && r.Hook.Outcome == "" && r.Hook.Label() == f.HookRun {
		r.Hook.UID, r.Hook.Since = f.UID, f.At
	}
}

// noteHookGone ends a run whose object is gone before it ended.
func (r *Record) noteHookGone(last *atoll.ItemStatus) {
	if r.Hook == nil || r.Hook.UID == "" || r.Hook.UID != r.UID {
		return
	}
	if r.Hook.Outcome == "" {
		r.Hook.Outcome = HookFailed
	}
	if last != nil {
		r.Last = last
	}
}

// IsInstall reports whether a newer manifest with hooks still installs its Bundle: the Bundle is new here, or hooks of its first
// contents have not all succeeded.
func (b *OwnershipRecords) IsInstall(m *atoll.Manifest) bool {
	nb := b.bundles[m.Bundle]
	switch {
	case m.Remove, m.HookRun == "":
		return false
	case nb == nil || nb.holding.Manifest.Remove || nb.holding.appliedNothing():
		return true
	case !nb.holding.Install || nb.holding.Manifest.HookRun == m.HookRun:
		return nb.holding.Install
	}
	for i := range nb.holding.Manifest.Items {
		if it := &nb.holding.Manifest.Items[i]; it.Hook != nil && !b.HookStateOf(m.Bundle, it).isDone() {
			return true
		}
	}
	return false
}
