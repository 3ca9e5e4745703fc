package apply

import (
	"fmt"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// setGate lets the items of a Bundle's manifest wait for their waves, from the first one on. The caller holds mu.
func (e *MemberApplier) setGate(bundle string) {
	delete(e.gates, bundle)
	delete(e.hookMarks, bundle)
	h := e.book.HoldingOf(bundle)
	if h == nil {
		return
	}
	gate := ownership.NewRemovalGate(h)
	if !h.Manifest.Remove {
		gate = ownership.NewWaveGate(&h.Manifest, h.Install)
	}
	if gate != nil {
		e.gates[bundle] = gate
		e.openWaves(bundle)
	}
}

// openWaves opens the waves of Bundles whose turn has come. The caller holds mu.
func (e *MemberApplier) openWaves(bundles ...string) {
	for _, bundle := range bundles {
		opened := e.gates[bundle].Advance(func(entry ownership.GateEntry) bool { return e.isEntryReady(bundle, entry) })
		for _, key := range opened {
			if key == (atoll.ItemKey{}) { // which stands for all objects of a removal that are no hooks
				e.markLeavingDue(bundle)
				continue
			}
			e.markDue(key)
		}
		e.markHooksDue(bundle)
	}
}

// isEntryReady reports whether what follows need not wait for an item in its step. The caller holds mu.
func (e *MemberApplier) isEntryReady(bundle string, entry ownership.GateEntry) bool {
	if entry.IsRemovalOfOthers() {
		return e.book.AreObjectsRemoved(bundle)
	}
	if r, _ := e.book.Record(entry.Item.Key); isRunBy(bundle, entry.Item, r) {
		return e.book.HookStateOf(bundle, entry.Item).Succeeded(entry.Step.Phase)
	}
	if e.gates[bundle].IsRemoval() {
		return true // another Bundle owns the object of the hook, and runs it
	}
	item := e.itemStatus(bundle, entry.Item, nil)
	return item.IsReady() || isUnboundClaim(&item)
}

// isUnboundClaim reports whether an item is a volume claim that is not bound yet. No wave waits for it: it may wait for the
// first Pod that uses it, which may be of a later wave.
func isUnboundClaim(item *report.Item) bool {
	isClaim := item.Key.Group == "" && item.Key.Kind == "PersistentVolumeClaim"
	return isClaim && item.Applied && item.Observed && item.Reason == "" && item.RenderError == "" && item.Health == atoll.Progressing && item.Why == atoll.ReasonPending
}

// isHeldByWave reports whether a plan brings content that waits for its wave. The caller holds mu.
func (e *MemberApplier) isHeldByWave(p *pendingWork) bool {
	return p.Item != nil && p.Hook == nil && (p.Verb == ownership.Apply || p.Verb == ownership.Replace) && e.waitsForWave(p.Owner, p.Item, p.Record)
}

// waitsForWave reports whether the owner's item has content that the object lacks, and waits for its wave. It does not wait
// once the wave of another Bundle that has the object is open: that Bundle would wait for the owner, and the owner perhaps
// for it. The caller holds mu.
func (e *MemberApplier) waitsForWave(owner string, it *atoll.RenderedItem, r ownership.Record) bool {
	isMade := r.UID != "" && r.Applied == it.Hash && r.Template == it.UID
	if isMade || e.isOpenFor(owner, it) {
		return false
	}
	for bundle, c := range r.Claims {
		other := e.book.ItemToApply(bundle, it.Key)
		if c.State == ownership.Wanted && !c.Observed && c.Template == it.UID && other != nil && other.Hook == nil && e.isOpenFor(bundle, other) {
			return false
		}
	}
	return true
}

// isOpenFor reports whether the step of a Bundle's item that is no hook is open. The caller holds mu.
func (e *MemberApplier) isOpenFor(bundle string, it *atoll.RenderedItem) bool {
	gate := e.gates[bundle]
	return gate == nil || it.Hook != nil || gate.IsOpen(gate.StepsOf(it)[0])
}

// addWaveWait adds for which object the item waits, if it waits for its wave. The caller holds mu.
func (e *MemberApplier) addWaveWait(out *report.Item, bundle string, it *atoll.RenderedItem, r ownership.Record) bool {
	if r.Owner != bundle || it.Failed() || r.HasRun(it, it.Hash) || !e.waitsForWave(bundle, it, r) {
		return false
	}
	out.Reason, out.Message = e.describeGateWait(bundle, it)
	return true
}

// describeLeavingWait returns what the deletion of an object waits for; empty: for nothing.
func describeLeavingWait(wait ownership.LeavingWait) string {
	switch {
	case wait.Objects == 0:
		return ""
	case wait.IsLast && wait.Wave == 0:
		return fmt.Sprintf("it is removed last, after %s of the Bundle", phrase.CountNoun(wait.Objects, "other object"))
	}
	return fmt.Sprintf("it is removed after %s of wave %d of the Bundle", phrase.CountNoun(wait.Objects, "object"), wait.Wave)
}
