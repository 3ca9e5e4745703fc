package bundlestatus

import (
	"maps"
	"time"
)

// failure of a script that joins a template's statuses.
type failure struct {
	message string
	since   time.Time
}

// recordJoinFailure records that the script fails about the template, for explain.
func (r *BundleReconciler) recordJoinFailure(m *bundleMemo, item string, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := failure{err.Error(), now}
	if was, failed := m.failures[item]; failed {
		f.since = was.since
	}
	if m.failures == nil {
		m.failures = map[string]failure{}
	}
	m.failures[item] = f
}

// clearJoinFailure notes that nothing fails about the template.
func (r *BundleReconciler) clearJoinFailure(m *bundleMemo, item string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(m.failures, item)
}

// dropOldJoinFailures drops failures about templates that are not looked at any more.
func (r *BundleReconciler) dropOldJoinFailures(m *bundleMemo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(m.failures, func(item string, _ failure) bool { return m.templates[item] == nil })
}

// JoinFailure returns why a script does not join the statuses of a template in a Bundle, both by
// UID, and since when this hub observes it; false where none fails.
func (r *BundleReconciler) JoinFailure(bundle, template string) (why string, since time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.memos[bundle]; m != nil {
		f, failed := m.failures[template]
		return f.message, f.since, failed
	}
	return "", time.Time{}, false
}
