package quarantine

import (
	"fmt"
	"sync"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// RenderAccounts is a Ledger for concurrent callers, by the clock of the process. Make it with
// NewAccounts.
type RenderAccounts struct {
	mu        sync.Mutex
	ledger    RenderCostLedger
	listeners []func(bundle enginev1.BundleRef, q Quarantine)
}

// NewAccounts returns RenderAccounts without costs.
func NewAccounts() *RenderAccounts { return &RenderAccounts{ledger: NewRenderCostLedger()} }

// Subscribe calls fn for each quarantine that begins. It must be called before the first
// rendering.
func (a *RenderAccounts) Subscribe(fn func(bundle enginev1.BundleRef, q Quarantine)) {
	a.listeners = append(a.listeners, fn)
}

// Error is why a Revision is not rendered.
type Error struct{ Quarantine }

// Error is the sentence for people.
func (e *Error) Error() string {
	return fmt.Sprintf("its Bundle is quarantined until %s: its renderings cost %s", e.Until.UTC().Format(time.RFC3339), FormatCost(e.Cost))
}

// FormatCost returns the cost as text, in tenths of a second.
func FormatCost(cost time.Duration) string { return fmt.Sprintf("%.1f s of work", cost.Seconds()) }

// CheckRender returns an *Error while the Revision of the Bundle is not to be rendered.
func (a *RenderAccounts) CheckRender(bundle, revision string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if q, ok := a.ledger.Find(now, bundle, revision); ok && !q.IsOver(now) {
		return &Error{q}
	}
	return nil
}

// ChargeRender adds the work of one rendering to the Bundle's account.
func (a *RenderAccounts) ChargeRender(bundle enginev1.BundleRef, revision string, w RenderWork) {
	a.mu.Lock()
	q, begins := a.ledger.Charge(time.Now(), bundle.UID, revision, w)
	a.mu.Unlock()
	if begins {
		for _, fn := range a.listeners {
			fn(bundle, q)
		}
	}
}

// FindQuarantine returns the quarantine of a Revision of the Bundle, as long as it is shown.
func (a *RenderAccounts) FindQuarantine(bundle, revision string) (Quarantine, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.Find(time.Now(), bundle, revision)
}

// CountSetAside counts the Bundles that have a Revision which is not rendered now.
func (a *RenderAccounts) CountSetAside() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.CountSetAside(time.Now())
}
