package binder

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

const (
	// reportWaitAfter is how long a wait stays unreported: after a start most kinds and
	// namespaces are read within it.
	reportWaitAfter = 10 * time.Second
	// recheckWaitAfter is how soon a reported wait is rechecked.
	recheckWaitAfter = time.Minute
)

// pendingSince records since when each key waits. The zero value is empty. It is safe for concurrent use.
type pendingSince[K comparable] struct {
	mu         sync.Mutex
	startTimes map[K]time.Time
	reported   map[K]bool
}

// startWait records the start of a wait, unless the key waits already, and returns it.
func (w *pendingSince[K]) startWait(k K, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.startTimes == nil {
		w.startTimes = map[K]time.Time{}
	}
	if _, ok := w.startTimes[k]; !ok {
		w.startTimes[k] = now
	}
	return w.startTimes[k]
}

// markReported marks a wait as reported. It returns true the first time.
func (w *pendingSince[K]) markReported(k K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	reported := w.reported[k]
	if w.reported == nil {
		w.reported = map[K]bool{}
	}
	w.reported[k] = true
	return !reported
}

// isWaiting reports whether a key waits.
func (w *pendingSince[K]) isWaiting(k K) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waits := w.startTimes[k]
	return waits
}

// endWait ends the wait of a key.
func (w *pendingSince[K]) endWait(k K) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.startTimes, k)
	delete(w.reported, k)
}

// pendingKeys lists the keys that wait.
func (w *pendingSince[K]) pendingKeys() []K {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]K, 0, len(w.startTimes))
	for k := range w.startTimes {
		all = append(all, k)
	}
	return all
}

// newProblems returns one problem for each of some templates.
func newProblems(keys []atoll.ItemKey, why string) []bundlecontent.TemplateProblem {
	problems := make([]bundlecontent.TemplateProblem, 0, len(keys))
	for _, key := range keys {
		problems = append(problems, bundlecontent.TemplateProblem{Key: key, Err: errors.New(why)})
	}
	return problems
}

// setUnboundCondition reports on the Bundle and its policy why no Revision is created.
func (b *Binder) setUnboundCondition(ctx context.Context, id policymatch.BundleID, bundle state.Bundle, from bundleOrigin, reason atoll.Reason, why string) error {
	b.policyStatus.enqueuePolicy(PolicyKey{from.source.Kind, policyNamespace(from.source.Kind, id), from.source.Name})
	return b.SetBundleCondition(ctx, bundle, metav1.Condition{Type: v1alpha1.BundleBound, Status: metav1.ConditionFalse, Reason: string(reason), Message: why})
}
