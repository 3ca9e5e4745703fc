package bind

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

const (
	// waitsLong is after how long it is said that something is waited for: after a
	// start kinds and namespaces are read anew, most of them at once.
	waitsLong = 10 * time.Second
	// waitsAgain is how soon what was said is looked at again.
	waitsAgain = time.Minute
)

// waits remembers since when something is waited for, by what it is. It is safe for
// concurrent use.
type waits[K comparable] struct {
	mu    sync.Mutex
	since map[K]time.Time
	told  map[K]bool
}

func newWaits[K comparable]() *waits[K] {
	return &waits[K]{since: map[K]time.Time{}, told: map[K]bool{}}
}

// begin to wait, where that is not so already: since when.
func (w *waits[K]) begin(k K, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.since[k]; !ok {
		w.since[k] = now
	}
	return w.since[k]
}

// first tells whether nobody was told of this wait yet.
func (w *waits[K]) first(k K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := w.told[k]
	w.told[k] = true
	return !told
}

// end the wait.
func (w *waits[K]) end(k K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, k)
	delete(w.told, k)
}

// all that is waited for.
func (w *waits[K]) all() []K {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]K, 0, len(w.since))
	for k := range w.since {
		all = append(all, k)
	}
	return all
}

// unbound says on the Bundle and its policy why nothing is cut.
func (b *Binder) unbound(ctx context.Context, id claim.BundleID, bundle state.Bundle, from origin, reason, why string) error {
	b.reports.touch(policyKey{from.source.Kind, policyNamespace(from.source.Kind, id), from.source.Name})
	return b.Say(ctx, bundle, metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: reason, Message: why})
}
