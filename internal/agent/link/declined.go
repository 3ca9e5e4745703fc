package link

import (
	"errors"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/agent/report"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// maxDeclined orders are reported at a time.
	maxDeclined = 1000
)

// errOrdersFit ends a session: in the next one the hub sends the orders again for which there was no memory.
var errOrdersFit = errors.New("there is memory again for orders that the agent could not take")

// declinedOrder is an order for which the agent has no memory. The member keeps what it holds of the Bundle.
type declinedOrder struct {
	generation int64
	why        string
	at         time.Time
	missed     *store.MemoryFullError // nil: the order never fits
}

// declineManifest reports a manifest that the store refuses instead of storing it.
func (l *HubLink) declineManifest(m *atoll.Manifest, missed *store.MemoryFullError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.RemoveIfFirst(m)
	l.core.ManifestRefused(m.Bundle, m.Generation, m.Content)
	l.declineOrder(m.Bundle, declinedOrder{generation: m.Generation, why: missed.Error(), missed: missed})
}

// declineOversized reports orders that are larger than the agent ever takes. The caller holds mu.
func (l *HubLink) declineOversized(orders []session.OversizedOrder) {
	for _, o := range orders {
		l.declineOrder(o.Bundle, declinedOrder{
			generation: o.Generation,
			why:        fmt.Sprintf("the agent takes at most %d MiB of new objects of one application at a time: divide the application, or add its objects in steps", l.budget.Incomplete>>20),
		})
	}
}

// declineOrder makes the status of the Bundle that of the order. The caller holds mu.
func (l *HubLink) declineOrder(bundle string, d declinedOrder) {
	before, known := l.declined[bundle]
	if !known && len(l.declined) >= maxDeclined {
		return
	}
	d.at = time.Now()
	if known && before.generation == d.generation {
		d.at = before.at
	} else {
		l.o.Log.Warn("an order of the hub is not taken; the member keeps what it has", "bundle", bundle, "generation", d.generation, "why", d.why)
	}
	l.declined[bundle] = d
	l.dirty[bundle] = time.Now()
	wakeup.WakeReader(l.changed)
}

// endSessionIfOrdersFit ends the session where orders fit that were declined or postponed, so that the hub sends them again.
// Nothing is waiting to be stored.
func (l *HubLink) endSessionIfOrdersFit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return
	}
	fits := l.postponed && l.core.CountIncomplete() == 0
	for bundle, d := range l.declined {
		if d.missed != nil && l.o.Store.HasMemory(d.missed) {
			delete(l.declined, bundle)
			fits = true
		}
	}
	if fits {
		l.postponed = false
		l.out.end(errOrdersFit)
	}
}

// statusOfDeclined returns the status of a Bundle with a declined order, from the status of what is held. No tombstone
// counts as carried out: those of the order were not read, and one of an earlier order may have the same UID.
func (d *declinedOrder) statusOfDeclined(held atoll.RowStatus) atoll.RowStatus {
	return atoll.RowStatus{
		Generation: d.generation, State: atoll.RowFailed, Reason: atoll.ReasonAgentMemoryFull,
		Message: phrase.TruncateText(d.why, report.MaxMessage), Since: d.at.Unix(),
		Total: held.Total, Ready: held.Ready, Items: held.Items, UnlistedNotReady: held.UnlistedNotReady,
	}
}
