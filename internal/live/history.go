package live

import (
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// remembered is how long a resource version can be watched from after the list that it
	// is of, or after the end of the watch.
	remembered = 3 * time.Minute
	// rememberedMost versions of clusters are kept, of all lists and watches together.
	rememberedMost = 400_000
	// stepsMost of one watch can be gone back to.
	stepsMost = 4096
	// perMilli versions are counted in a millisecond at most: later hubs begin above.
	perMilli = 1 << 20
	// leastOurs is above what any store counts to, and below what any clock gives.
	leastOurs = 1 << 50
)

// Versions at which the API servers of clusters, and of the hub itself under the name "",
// were seen.
type Versions map[string]string

// History counts resource versions of what is shown, and knows at which versions of the
// clusters each of the last ones was. Make it with NewHistory.
type History struct {
	mu     sync.Mutex
	first  uint64
	last   uint64
	traces []*Trace // oldest first
	held   int      // versions of clusters
}

// NewHistory begins to count at a time, above all that was counted before it.
func NewHistory(start time.Time) *History {
	first := uint64(start.UnixMilli()) * perMilli
	return &History{first: first, last: first}
}

// Trace is one list, or one watch from where it began. Its methods are safe for concurrent
// use with those of its History and of other Traces, not with each other.
type Trace struct {
	history  *History
	resource string
	from     uint64
	base     Versions // at from
	steps    []step   // since
	ended    time.Time
}

// partly is where a cluster is of which some was told, and some not yet. No API server
// counts so.
const partly = "partly"

// step is one version, at which a cluster was at one of its own.
type step struct {
	at               uint64
	cluster, version string
}

// Ours tells whether a resource version may be one that a History gave, this or another one.
func Ours(version string) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	return err == nil && n >= leastOurs
}

// Listed counts a list of a resource.
func (h *History) Listed(resource string, at Versions, now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.add(&Trace{history: h, resource: resource, from: h.last, base: at, ended: now}, now)
	return text(h.last)
}

// Follow begins a watch of a resource at a resource version, of which Find gave the
// versions. They are the Trace's from then on.
func (h *History) Follow(resource, version string, at Versions, now time.Time) *Trace {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, _ := strconv.ParseUint(version, 10, 64)
	t := &Trace{history: h, resource: resource, from: from, base: at}
	h.add(t, now)
	return t
}

// Find the versions of clusters at a resource version; they are the caller's. False where it
// is not remembered, or was never given.
func (h *History) Find(resource, version string) (Versions, bool) {
	at, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at < h.first || at > h.last {
		return nil, false
	}
	for _, t := range h.traces {
		if t.resource == resource {
			if found, ok := t.find(at); ok {
				return found, true
			}
		}
	}
	return nil, false
}

// Step counts an event of a cluster, which was at a version of its own after it; empty while
// what the cluster has is being told one by one, so that there is no such version yet. From
// such a step on nothing can be found until the cluster is at one: who goes on from there
// would not hear that what he was told of has gone. A step of no cluster changes nothing.
func (t *Trace) Step(cluster, version string) string {
	if version == "" && cluster != "" {
		version = partly
	}
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	t.steps = append(t.steps, step{h.last, cluster, version})
	h.held++
	if len(t.steps) > stepsMost {
		t.forget(stepsMost / 2)
	}
	return text(h.last)
}

// End of the watch.
func (t *Trace) End(now time.Time) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	t.ended = now
	h.sweep(now)
}

// forget the first steps.
func (t *Trace) forget(n int) {
	before := t.size()
	for _, s := range t.steps[:n] {
		t.from = s.at
		if s.version != "" {
			t.base[s.cluster] = s.version
		}
	}
	t.steps = slices.Clone(t.steps[n:])
	t.history.held += t.size() - before
}

// find the versions at a resource version.
func (t *Trace) find(at uint64) (Versions, bool) {
	last := 0
	if at != t.from {
		i, ok := slices.BinarySearchFunc(t.steps, at, func(s step, at uint64) int {
			switch {
			case s.at < at:
				return -1
			case s.at > at:
				return 1
			}
			return 0
		})
		if !ok {
			return nil, false
		}
		last = i + 1
	}
	out := make(Versions, len(t.base))
	for cluster, version := range t.base {
		out[cluster] = version
	}
	for _, s := range t.steps[:last] {
		if s.version != "" {
			out[s.cluster] = s.version
		}
	}
	for _, version := range out {
		if version == partly {
			return nil, false
		}
	}
	return out, true
}

func (t *Trace) size() int { return len(t.base) + len(t.steps) }

// add a Trace. The caller holds mu.
func (h *History) add(t *Trace, now time.Time) {
	h.traces = append(h.traces, t)
	h.held += t.size()
	h.sweep(now)
}

// sweep what is too old or too much away; watches that go on stay. The caller holds mu.
func (h *History) sweep(now time.Time) {
	h.traces = slices.DeleteFunc(h.traces, func(t *Trace) bool {
		over := !t.ended.IsZero() && (now.Sub(t.ended) > remembered || h.held > rememberedMost)
		if over {
			h.held -= t.size()
		}
		return over
	})
}

func text(n uint64) string { return strconv.FormatUint(n, 10) }
