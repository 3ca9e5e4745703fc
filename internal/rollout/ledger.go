package rollout

import (
	"maps"
	"slices"
	"time"
)

// Ledger remembers removals for Window, by tenant: what one removes is nothing to
// another. Deletes are added up per namespace, clusters that an edit took out of a
// Bundle are listed per Bundle. The zero value is empty. It is not safe for
// concurrent use.
type Ledger struct {
	deletes map[string][]removal
	outs    map[string]map[string]time.Time
}

type removal struct {
	at   time.Time
	rows int
}

// Delete notes that direct deletes took something out of so many rows of a
// namespace; cluster-scoped Bundles have the empty one. A negative number takes
// back what was noted and did not happen.
func (l *Ledger) Delete(namespace string, at time.Time, rows int) {
	if rows == 0 {
		return
	}
	if l.deletes == nil {
		l.deletes = map[string][]removal{}
	}
	all := l.deletes[namespace]
	if n := len(all); n > 0 && all[n-1].at.Unix() == at.Unix() {
		all[n-1].rows += rows // what goes within a second is one entry
		return
	}
	l.deletes[namespace] = append(all, removal{at, rows})
}

// Deletes of the namespace within Window before now. What is older is forgotten.
func (l *Ledger) Deletes(namespace string, now time.Time) int {
	sum, recent := 0, l.deletes[namespace][:0]
	for _, e := range l.deletes[namespace] {
		if now.Sub(e.at) < Window {
			recent, sum = append(recent, e), sum+e.rows
		}
	}
	if len(recent) == 0 {
		delete(l.deletes, namespace)
		return 0
	}
	l.deletes[namespace] = recent
	return max(sum, 0)
}

// Out notes that an edit took clusters out of a Bundle.
func (l *Ledger) Out(bundle string, at time.Time, clusters []string) {
	if len(clusters) == 0 {
		return
	}
	if l.outs == nil {
		l.outs = map[string]map[string]time.Time{}
	}
	if l.outs[bundle] == nil {
		l.outs[bundle] = map[string]time.Time{}
	}
	for _, c := range clusters {
		l.outs[bundle][c] = at
	}
}

// NotOut takes back what was noted and did not happen.
func (l *Ledger) NotOut(bundle string, clusters []string) {
	for _, c := range clusters {
		delete(l.outs[bundle], c)
	}
}

// Outs of the Bundle within Window before now, sorted. What is older is forgotten.
func (l *Ledger) Outs(bundle string, now time.Time) []string {
	maps.DeleteFunc(l.outs[bundle], func(_ string, at time.Time) bool { return now.Sub(at) >= Window })
	if len(l.outs[bundle]) == 0 {
		delete(l.outs, bundle)
		return nil
	}
	return slices.Sorted(maps.Keys(l.outs[bundle]))
}
