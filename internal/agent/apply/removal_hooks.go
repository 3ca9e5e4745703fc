package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// A removal runs hooks before and after it deletes the other objects of its Bundle. They are in its holding until all have
// succeeded. Then the holding is stored without them, so that no restart runs one again, and their objects leave as others.

// removalHookDeadline is the time in which a hook of a removal must end after its object was made.
const removalHookDeadline = time.Hour

// hookedRemoval is a removal with hooks.
type hookedRemoval struct {
	// position that is stored with the holding.
	position store.Position
	// finished: all hooks have succeeded, and the holding is to be stored without them.
	finished bool
	// read are the UIDs of objects that were read because the deadline of their run was over.
	read map[string]bool
}

// noteRemoval notes whether a holding is that of a removal with hooks. The caller holds mu, or is alone.
func (e *MemberApplier) noteRemoval(h *ownership.BundleHolding, at store.Position) {
	if !h.HasRemovalHooks() {
		delete(e.removals, h.Manifest.Bundle)
		return
	}
	e.removals[h.Manifest.Bundle] = &hookedRemoval{position: at, read: map[string]bool{}}
}

// isHeldByRemovalHooks reports whether a plan deletes an object that leaves after hooks of its Bundle's removal. The caller
// holds mu.
func (e *MemberApplier) isHeldByRemovalHooks(p *pendingWork) bool {
	if p.Verb != ownership.Delete || p.Hook != nil || len(e.removals) == 0 {
		return false
	}
	for bundle, c := range p.Record.Claims {
		if gate := e.gates[bundle]; c.State == ownership.Leaving && gate.IsRemoval() && !gate.IsPhaseOver(atoll.PhasePreDelete) {
			return true
		}
	}
	return false
}

// markLeavingDue marks the objects of a Bundle as due whose removal waited for hooks. The caller holds mu.
func (e *MemberApplier) markLeavingDue(bundle string) {
	for _, key := range e.book.KeysClaimedByBundle(bundle) {
		e.markDueUnlessBackingOff(key)
	}
}

// endFinishedRemovalHooks stores the holdings of removals without their hooks where all have succeeded. It reports whether
// none is left to be stored.
func (e *MemberApplier) endFinishedRemovalHooks(ctx context.Context) (stored bool) {
	e.mu.Lock()
	var finished []string
	for bundle, removal := range e.removals {
		if gate := e.gates[bundle]; gate.IsRemoval() && gate.IsFinished() && !removal.finished {
			removal.finished = true
			finished = append(finished, bundle)
		}
	}
	e.mu.Unlock()
	stored = true
	for _, bundle := range finished {
		if err := e.endRemovalHooks(ctx, bundle); err != nil {
			stored = false
			e.o.Log.Warn("the end of the hooks of a removal is not stored yet", "bundle", bundle, "err", err)
			e.mu.Lock()
			if removal := e.removals[bundle]; removal != nil {
				removal.finished = false
			}
			e.mu.Unlock()
		}
	}
	return stored
}

// endRemovalHooks stores the holding of a removal without its hooks, and lets their objects leave.
func (e *MemberApplier) endRemovalHooks(ctx context.Context, bundle string) error {
	e.upserts.Lock()
	defer e.upserts.Unlock()
	e.mu.Lock()
	held, gate, removal := e.book.HoldingOf(bundle), e.gates[bundle], e.removals[bundle]
	if !held.HasRemovalHooks() || !gate.IsRemoval() || !gate.IsFinished() || removal == nil { // another order came
		e.mu.Unlock()
		return nil
	}
	ended := held.WithoutRemovalHooks()
	e.mu.Unlock()
	if err := e.storeChangedRecords(ctx); err != nil {
		return err
	}
	if err := e.o.Store.PutBundle(ctx, store.Bundle{Holding: ended, Position: removal.position}); err != nil {
		return err
	}
	e.mu.Lock()
	e.noteRemoval(&ended, removal.position)
	for _, key := range e.foldHolding(ended, nil) {
		e.markDue(key)
	}
	told := e.book.TakeChangedBundles()
	e.openWaves(told...)
	e.mu.Unlock()
	e.reportChanged(told)
	return nil
}

// isOverdue reports whether a hook of a removal runs for longer than its deadline.
func isOverdue(run *ownership.HookRun, now time.Time) bool {
	return run.Phase >= atoll.PhasePreDelete && run.Outcome == "" && run.Since != 0 && untilOverdue(run, now) <= 0
}

// untilOverdue returns how long the deadline of a run is away.
func untilOverdue(run *ownership.HookRun, now time.Time) time.Duration {
	return time.Unix(run.Since, 0).Add(removalHookDeadline).Sub(now)
}

// readOverdueHooks has the objects of hooks read whose deadline is over, once each: what is read decides whether they have
// failed. It returns how long Run may wait for the next deadline. The caller holds mu.
func (e *MemberApplier) readOverdueHooks(now time.Time) (wait time.Duration) {
	wait = time.Hour
	for bundle, removal := range e.removals {
		for _, entry := range e.gates[bundle].Hooks() {
			r, _ := e.book.Record(entry.Item.Key)
			if !isRunBy(bundle, entry.Item, r) || r.Hook == nil || r.UID == "" || r.UID != r.Hook.UID || removal.read[r.UID] {
				continue
			}
			switch {
			case isOverdue(r.Hook, now):
				removal.read[r.UID] = true
				e.ensureTask(r.Key).judge = true
				e.markDue(r.Key)
			case r.Hook.Outcome == "" && r.Hook.Since != 0:
				wait = min(wait, untilOverdue(r.Hook, now))
			}
		}
	}
	return wait
}

// removalHookOf returns the hook that a removal of the Bundle runs under the key; nil: there is none. The caller holds mu.
func (e *MemberApplier) removalHookOf(bundle string, key atoll.ItemKey) *atoll.RenderedItem {
	if e.removals[bundle] == nil {
		return nil
	}
	return e.book.ItemToApply(bundle, key)
}

// removalHookStatus returns the status of a hook of a removal. The caller holds mu.
func (e *MemberApplier) removalHookStatus(bundle string, it *atoll.RenderedItem) report.Item {
	r, _ := e.book.Record(it.Key)
	out := report.Item{Key: it.Key, Extra: true, Health: atoll.Progressing, Observed: true, Why: atoll.ReasonRemoving}
	s := e.book.HookStateOf(bundle, it)
	switch {
	case !isRunBy(bundle, it, r):
		out.Text = "it is a hook of another Bundle, too, which runs it"
	case s.Failed():
		out.Health, out.Reason, out.Error, out.Message = atoll.Degraded, atoll.ReasonHookFailed, true, e.describeFailedRemovalHook(r)
		return out
	case s.HasNext && e.gates[bundle].IsOpen(ownership.GateStep{Phase: s.Phase, Wave: it.Wave}):
		out.Why, out.Text = atoll.ReasonWaitsForHook, "the removal waits until the hook succeeds in "+s.Phase.String()
	case s.HasNext:
		out.Text = "the hook runs in " + s.Phase.String() + ", after what comes before"
	default:
		out.Text = "the hook has run, and its object is removed at the end of the removal"
	}
	e.addFailure(&out)
	return out
}

// describeFailedRemovalHook returns why a hook of a removal failed, and what a person can do. The caller holds mu.
func (e *MemberApplier) describeFailedRemovalHook(r ownership.Record) string {
	text := "it was gone before it ended"
	v, seen := e.viewOf(r.Key)
	switch {
	case r.Hook.Overdue:
		text = "it did not end within " + removalHookDeadline.String()
	case seen && v.Message != "":
		text = v.Message
	case r.UID != "":
		text = "its object failed"
	case r.Last != nil && r.Last.Message != "":
		text = r.Last.Message
	}
	const remedy = "; annotate the Bundle with " + atoll.AnnotationRemovalHooks + ": Retry or Skip"
	const most = report.MaxMessage - len(remedy)
	return phrase.TruncateText(fmt.Sprintf("the hook failed in %s, and the removal waits: %s", r.Hook.Phase, truncateText(text)), most) + remedy
}

// describeRemovalHookWait returns for which hook the removal of a Bundle's objects waits; empty: for none. The caller holds mu.
func (e *MemberApplier) describeRemovalHookWait(bundle string) string {
	gate := e.gates[bundle]
	if !gate.IsRemoval() || gate.IsPhaseOver(atoll.PhasePreDelete) {
		return ""
	}
	awaited := gate.Awaited()
	name := awaited.Item.Key.Kind + " " + displayName(awaited.Item.Key)
	if awaited.Item.Key.IsSecret() {
		name = "a Secret"
	}
	return truncateText(fmt.Sprintf("it is removed after the hook %s succeeds in %s", name, awaited.Step.Phase))
}

// describeAnyRemovalHookWait returns what the first removal with hooks waits for, by the UID of its Bundle; empty: there is none.
// The caller holds mu.
func (e *MemberApplier) describeAnyRemovalHookWait() string {
	for _, bundle := range slices.Sorted(maps.Keys(e.removals)) {
		for _, entry := range e.gates[bundle].Hooks() {
			s := e.removalHookStatus(bundle, entry.Item)
			if text := s.Message + s.Text; s.Error || s.Why == atoll.ReasonWaitsForHook {
				return truncateText(s.Key.Kind + " " + displayName(s.Key) + ": " + text)
			}
		}
	}
	return ""
}
