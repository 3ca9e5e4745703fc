package rollout

import "time"

// Ledger adds up removals over Window, by key. Keys never mix: what one tenant
// removes is nothing to another. The zero value is empty. It is not safe for
// concurrent use.
type Ledger struct {
	entries map[string][]removal
}

type removal struct {
	at time.Time
	n  int
}

// DeletesKey is where direct deletes in a namespace are added up; cluster-scoped
// Bundles have the empty namespace.
func DeletesKey(namespace string) string { return "deletes/" + namespace }

// OutsKey is where removals by edits of a Bundle's placement are added up.
func OutsKey(bundleUID string) string { return "outs/" + bundleUID }

// Add n removals at a time; a negative n takes back what was added and did not
// happen.
func (l *Ledger) Add(key string, at time.Time, n int) {
	if n == 0 {
		return
	}
	if l.entries == nil {
		l.entries = map[string][]removal{}
	}
	l.entries[key] = append(l.entries[key], removal{at, n})
}

// Count what was added within Window before now, and forget what is older.
func (l *Ledger) Count(key string, now time.Time) int {
	sum, recent := 0, l.entries[key][:0]
	for _, e := range l.entries[key] {
		if now.Sub(e.at) < Window {
			recent, sum = append(recent, e), sum+e.n
		}
	}
	if len(recent) == 0 {
		delete(l.entries, key)
		return 0
	}
	l.entries[key] = recent
	return max(sum, 0)
}
