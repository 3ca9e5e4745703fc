package apply

import (
	"fmt"
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
)

// A hook runs once for each content of its Bundle. Package ownership records its runs and decides what is next; the gate of
// the Bundle decides when.

// hookMark is how far the hooks of a Bundle are: the phase that is open, whether all are over, and whether one failed.
type hookMark struct {
	phase            atoll.HookPhase
	finished, failed bool
}

// isRunBy reports whether the Bundle runs the item's object as a hook.
func isRunBy(bundle string, it *atoll.RenderedItem, r ownership.Record) bool {
	return it.Hook != nil && r.Owner == bundle && !it.Failed()
}

// hasFailedHook reports whether a hook of the Bundle failed for its content. The caller holds mu.
func (e *MemberApplier) hasFailedHook(bundle string) bool {
	for _, entry := range e.gates[bundle].Hooks() {
		r, _ := e.book.Record(entry.Item.Key)
		if isRunBy(bundle, entry.Item, r) && e.book.HookStateOf(bundle, entry.Item).Failed() {
			return true
		}
	}
	return false
}

// markHooksDue marks the hooks of a Bundle as due when another phase opens or a hook fails: some run then, and objects of
// others are deleted. The caller holds mu.
func (e *MemberApplier) markHooksDue(bundle string) {
	gate := e.gates[bundle]
	if gate == nil || !gate.HasHooks() {
		return
	}
	now := hookMark{finished: gate.IsFinished(), failed: e.hasFailedHook(bundle)}
	if !now.finished {
		now.phase = gate.OpenStep().Phase
	}
	if before, known := e.hookMarks[bundle]; known && before == now {
		return
	}
	e.hookMarks[bundle] = now
	for _, it := range e.book.HoldingOf(bundle).Hooks() {
		e.markDueUnlessBackingOff(it.Key)
	}
}

// isHookHeld reports whether a plan starts, corrects or deletes the object of a hook whose time has not come. The caller holds mu.
func (e *MemberApplier) isHookHeld(p *pendingWork) bool {
	if p.Hook == nil || p.Item == nil {
		return false
	}
	gate := e.gates[p.Owner]
	switch p.Verb {
	case ownership.Apply, ownership.Replace:
		switch {
		case p.Hook.Begun:
			return false
		case p.Hook.Phase == atoll.PhaseSyncFail:
			return !e.hasFailedHook(p.Owner)
		}
		return gate != nil && !gate.IsOpen(ownership.GateStep{Phase: p.Hook.Phase, Wave: p.Item.Wave})
	case ownership.Delete:
		return !p.Hook.Failed() && !gate.IsPhaseOver(p.Hook.Last.Phase) && !e.hasFailedHook(p.Owner)
	case ownership.Nothing: // drift of the object of the present run alone is corrected
		return p.Hook.Last == nil || p.Hook.Last.UID != p.Record.UID
	}
	return false
}

// recordHookOutcome records how the run of a view's object ended, if it did. A view from before the run counts for nothing. The
// caller holds mu.
func (e *MemberApplier) recordHookOutcome(v observe.View) {
	r, known := e.book.Record(v.Key)
	if !known || r.Hook == nil || r.Hook.UID != v.UID || r.Hook.Label() != v.HookRun || v.RulesID != e.rulesOf(r.Owner, v.Key).ID() {
		return
	}
	it := e.book.ItemToApply(r.Owner, v.Key)
	if it == nil || it.Hook == nil {
		return
	}
	outcome := judgeHook(v, ownership.RunsOnce(v.Key) && r.Ran != "" || it.StatesCompletion())
	if e.recordRunEnd(v, r.Hook, outcome) {
		e.markDue(v.Key) // it may run for the next content, or be deleted
	}
}

// recordRunEnd records the outcome of a run, or that its deadline is over, and reports whether that is new. The caller holds mu.
func (e *MemberApplier) recordRunEnd(v observe.View, run *ownership.HookRun, outcome ownership.HookOutcome) bool {
	if outcome == "" && isOverdue(run, time.Now()) {
		return e.book.RecordOverdueHook(v.Key, v.UID)
	}
	return outcome != "" && e.book.RecordHookOutcome(v.Key, v.UID, outcome)
}

// judgeHook returns how the run of an object ended; empty: it has not ended. Objects that run to completion end then, and
// others when they are healthy. A volume claim may wait for its first Pod.
func judgeHook(v observe.View, completes bool) ownership.HookOutcome {
	isClaim := v.Key.Group == "" && v.Key.Kind == "PersistentVolumeClaim"
	switch {
	case completes && !v.Finished, v.Deleting && !v.Finished:
		return ""
	case completes && v.Health == atoll.Degraded:
		return ownership.HookFailed
	case v.Health == atoll.Healthy, isClaim && v.Health == atoll.Progressing && v.Reason == atoll.ReasonPending:
		return ownership.HookSucceeded
	}
	return ""
}

// hookStatus returns the status of a hook that its Bundle runs. out is what is known of its object. The caller holds mu.
func (e *MemberApplier) hookStatus(out report.Item, bundle string, it *atoll.RenderedItem, r ownership.Record, prev *atoll.RowStatus) report.Item {
	s := e.book.HookStateOf(bundle, it)
	failed := s.HasNext && s.Phase == atoll.PhaseSyncFail && !s.Begun && e.hasFailedHook(bundle)
	switch {
	case s.Failed():
		e.addHookFailure(&out, it, r, prev)
	case s.HasNext && (s.Phase != atoll.PhaseSyncFail || s.Begun || failed):
		e.addHookProgress(&out, bundle, it, s)
	case s.Last != nil:
		if r.UID == "" {
			e.reportFinishedRun(&out, r, prev)
		}
		out.Applied, out.Observed, out.Health, out.Why, out.Text = true, true, atoll.Healthy, "", ""
	default:
		out = report.Item{Key: it.Key, Applied: true, Observed: true, Health: atoll.Healthy, Why: atoll.ReasonHookNotRun}
		out.Text = "it is a hook (" + it.Hook.Text() + "), and does not run for this content"
	}
	return out
}

// addHookFailure reports a hook that failed. The caller holds mu.
func (e *MemberApplier) addHookFailure(out *report.Item, it *atoll.RenderedItem, r ownership.Record, prev *atoll.RowStatus) {
	if r.UID == "" {
		e.reportFinishedRun(out, r, prev)
	}
	text := out.Text
	if text == "" {
		text = "it was gone before it ended"
	}
	out.Applied, out.Observed, out.Health, out.Why = true, true, atoll.Degraded, atoll.ReasonHookFailed
	out.Text = truncateText(fmt.Sprintf("the hook failed in %s, and what follows waits: %s; each change of the Bundle's content runs its hooks again", r.Hook.Phase, text))
}

// addHookProgress reports a hook that runs, or waits for its turn. The caller holds mu.
func (e *MemberApplier) addHookProgress(out *report.Item, bundle string, it *atoll.RenderedItem, s ownership.HookState) {
	if !s.Begun {
		*out = report.Item{Key: out.Key, Observed: out.Observed, Health: out.Health, Why: out.Why, Text: out.Text}
	}
	if e.addFailure(out) || s.Begun && out.Health != atoll.Healthy {
		return
	}
	out.Reason, out.Message = atoll.ReasonWaitsForHook, "it runs in "+s.Phase.String()+", and has not ended"
	switch gate := e.gates[bundle]; {
	case s.Waits:
		out.Message = "it still runs for the former content, and runs for this one when that ends"
	case !s.Begun && s.Phase != atoll.PhaseSyncFail && gate != nil && !gate.IsOpen(ownership.GateStep{Phase: s.Phase, Wave: it.Wave}):
		out.Reason, out.Message = e.describeGateWait(bundle, it)
	}
}

// addHookOfOwner adds how far the hook of another Bundle, which owns the item's object, is, while the member does not have the object.
// It reports whether there is such a hook. The caller holds mu.
func (e *MemberApplier) addHookOfOwner(out *report.Item, bundle string, it *atoll.RenderedItem, r ownership.Record) bool {
	own := e.book.ItemToApply(r.Owner, it.Key)
	if r.Owner == bundle || r.UID != "" || it.Failed() || own == nil || own.Hook == nil || own.UID != it.UID {
		return false
	}
	s := e.book.HookStateOf(r.Owner, own)
	switch failed := s.Failed(); {
	case failed:
		out.Applied, out.Observed, out.Health, out.Why = true, true, atoll.Degraded, atoll.ReasonHookFailed
		out.Text = "it is a hook that bundle " + r.Owner + " runs, and failed there"
	case !s.HasNext || s.Phase == atoll.PhaseSyncFail:
		out.Applied, out.Observed, out.Health = true, true, atoll.Healthy
	case !e.addFailure(out):
		out.Reason, out.Message = atoll.ReasonWaitsForHook, "it is a hook that bundle "+r.Owner+" runs, and has not run there"
	}
	return true
}

// describeGateWait returns why an item of a Bundle waits for its step: a hook or an earlier wave. The caller holds mu.
func (e *MemberApplier) describeGateWait(bundle string, it *atoll.RenderedItem) (atoll.Reason, string) {
	gate := e.gates[bundle]
	awaited := gate.Awaited()
	name := awaited.Item.Key.Kind + " " + displayName(awaited.Item.Key)
	if awaited.Item.Key.IsSecret() {
		name = "a Secret"
	}
	if r, _ := e.book.Record(awaited.Item.Key); isRunBy(bundle, awaited.Item, r) {
		if e.book.HookStateOf(bundle, awaited.Item).Failed() {
			return atoll.ReasonHookFailed, truncateText(fmt.Sprintf("it waits, because the hook %s failed in %s; each change of the Bundle's content runs its hooks again", name, awaited.Step.Phase))
		}
		return atoll.ReasonWaitsForHook, truncateText(fmt.Sprintf("it waits until the hook %s succeeds in %s", name, awaited.Step.Phase))
	}
	if it.Hook != nil || gate.OpenStep().Phase != atoll.PhaseSync {
		return atoll.ReasonWaitsForWave, truncateText("it waits until what comes before is applied and healthy, now for " + name)
	}
	return atoll.ReasonWaitsForWave, truncateText(fmt.Sprintf("wave %d waits until wave %d is applied and healthy, now for %s", gate.StepsOf(it)[0].Wave, gate.OpenStep().Wave, name))
}
