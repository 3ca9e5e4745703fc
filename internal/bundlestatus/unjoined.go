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

// fail records that the script fails about the template, for explain.
func (r *Reconciler) fail(m *memo, item string, err error, now time.Time) {
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

// clearFailure notes that nothing fails about the template.
func (r *Reconciler) clearFailure(m *memo, item string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(m.failures, item)
}

// forgetFailures forgets failures about templates that are not looked at any more.
func (r *Reconciler) forgetFailures(m *memo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(m.failures, func(item string, _ failure) bool { return m.templates[item] == nil })
}

// JoinFailure returns why a script does not join the statuses of a template in a Bundle, both by
// UID, and since when this hub knows; false where none fails.
func (r *Reconciler) JoinFailure(bundle, template string) (why string, since time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.memos[bundle]; m != nil {
		f, failed := m.failures[template]
		return f.message, f.since, failed
	}
	return "", time.Time{}, false
}
