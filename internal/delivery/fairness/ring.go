package fairness

import "slices"

// ring is lines of waiters whose keys take turns. The first key is next.
type ring[W comparable] struct {
	keys    []string
	waiting map[string][]W
	count   int
}

func newRing[W comparable]() ring[W] { return ring[W]{waiting: map[string][]W{}} }

// addWaiter adds a waiter at the end of its key's line.
func (r *ring[W]) addWaiter(key string, w W) {
	if len(r.waiting[key]) == 0 {
		r.keys = append(r.keys, key)
	}
	r.waiting[key] = append(r.waiting[key], w)
	r.count++
}

// takeNext removes and returns the first waiter of the next key, which is then the last one to have
// a turn.
func (r *ring[W]) takeNext() W {
	key := r.keys[0]
	line := r.waiting[key]
	r.keys, r.count = r.keys[1:], r.count-1
	if len(line) > 1 {
		r.waiting[key] = line[1:]
		r.keys = append(r.keys, key)
	} else {
		delete(r.waiting, key)
	}
	return line[0]
}

// removeWaiter removes a waiter that is in the ring.
func (r *ring[W]) removeWaiter(key string, w W) {
	line := r.waiting[key]
	i := slices.Index(line, w)
	r.count--
	if len(line) > 1 {
		r.waiting[key] = slices.Delete(line, i, i+1)
		return
	}
	delete(r.waiting, key)
	r.keys = slices.DeleteFunc(r.keys, func(k string) bool { return k == key })
}

// longestLine returns the key with the most waiters; "" for an empty ring.
func (r *ring[W]) longestLine() (longest string) {
	for key, line := range r.waiting {
		if len(line) > len(r.waiting[longest]) {
			longest = key
		}
	}
	return longest
}
