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
	h := e.book.HoldingOf(bundle)
	if h == nil {
		return
	}
	if gate := ownership.NewWaveGate(&h.Manifest); gate != nil {
		e.gates[bundle] = gate
		e.openWaves(bundle)
	}
}

// openWaves opens the waves of Bundles whose turn has come. The caller holds mu.
func (e *MemberApplier) openWaves(bundles ...string) {
	for _, bundle := range bundles {
		opened := e.gates[bundle].Advance(func(it *atoll.RenderedItem) bool {
			item := e.itemStatus(bundle, it, nil)
			return item.IsReady() || isUnboundClaim(&item)
		})
		for _, key := range opened {
			e.markDue(key)
		}
	}
}

// isUnboundClaim reports whether an item is a volume claim that is not bound yet. No wave waits for it: it may wait for the
// first Pod that uses it, which may be of a later wave.
func isUnboundClaim(item *report.Item) bool {
	isClaim := item.Key.Group == "" && item.Key.Kind == "PersistentVolumeClaim"
	return isClaim && item.Applied && item.Observed && item.Reason == "" && item.RenderError == "" && item.Health == atoll.Progressing && item.Why == atoll.ReasonPending
}

// isHeldByWave reports whether a plan brings content that waits for its wave. The caller holds mu.
func (e *MemberApplier) isHeldByWave(p *pendingWork) bool {
	return p.Item != nil && (p.Verb == ownership.Apply || p.Verb == ownership.Replace) && e.waitsForWave(p.Owner, p.Item, p.Record)
}

// waitsForWave reports whether the owner's item has content that the object lacks, and waits for its wave. It does not wait
// once the wave of another Bundle that has the object is open: that Bundle would wait for the owner, and the owner perhaps
// for it. The caller holds mu.
func (e *MemberApplier) waitsForWave(owner string, it *atoll.RenderedItem, r ownership.Record) bool {
	isMade := r.UID != "" && r.Applied == it.Hash && r.Template == it.UID
	if isMade || e.gates[owner].IsOpen(r.Claims[owner].Wave) {
		return false
	}
	for bundle, c := range r.Claims {
		if c.State == ownership.Wanted && !c.Observed && c.Template == it.UID && e.gates[bundle].IsOpen(c.Wave) {
			return false
		}
	}
	return true
}

// addWaveWait adds for which object the item waits, if it waits for its wave. The caller holds mu.
func (e *MemberApplier) addWaveWait(out *report.Item, bundle string, it *atoll.RenderedItem, r ownership.Record) bool {
	if r.Owner != bundle || it.Failed() || r.HasRun(it, it.Hash) || !e.waitsForWave(bundle, it, r) {
		return false
	}
	gate := e.gates[bundle]
	awaited := gate.Awaited().Key
	name := awaited.Kind + " " + displayName(awaited)
	if awaited.IsSecret() {
		name = "a Secret"
	}
	out.Reason = atoll.ReasonWaitsForWave
	out.Message = truncateText(fmt.Sprintf("wave %d waits until wave %d is applied and healthy, now for %s", r.Claims[bundle].Wave, gate.OpenWave(), name))
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
