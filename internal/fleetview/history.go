package fleetview

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

// VersionHistory counts resource versions of what is shown, and stores at which versions of the
// clusters each of the last ones was. Make it with NewHistory.
type VersionHistory struct {
	mu     sync.Mutex
	first  uint64
	last   uint64
	traces []*VersionTrace // oldest first
	held   int             // versions of clusters
}

// NewHistory begins to count at a time, above all that was counted before it.
func NewHistory(start time.Time) *VersionHistory {
	first := uint64(start.UnixMilli()) * perMilli
	return &VersionHistory{first: first, last: first}
}

// VersionTrace is one list, or one watch from where it began. Its methods are safe for concurrent
// use with those of its History and of other Traces, not with each other.
type VersionTrace struct {
	history  *VersionHistory
	resource string
	from     uint64
	base     Versions // at from
	steps    []step   // since
	ended    time.Time
}

// partly is the version of a cluster whose objects were sent in part. No API server counts so.
const partly = "partly"

// step is one version, at which a cluster was at one of its own.
type step struct {
	at               uint64
	cluster, version string
}

// IsHistoryVersion reports whether a resource version may be one that a History gave, this or another one.
func IsHistoryVersion(version string) bool {
	n, err := strconv.ParseUint(version, 10, 64)
	return err == nil && n >= leastOurs
}

// RecordList counts a list of a resource.
func (h *VersionHistory) RecordList(resource string, at Versions, now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.add(&VersionTrace{history: h, resource: resource, from: h.last, base: at, ended: now}, now)
	return formatVersion(h.last)
}

// StartTrace begins a watch of a resource at a resource version, of which Find gave the
// versions. They are the Trace's from then on.
func (h *VersionHistory) StartTrace(resource, version string, at Versions, now time.Time) *VersionTrace {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, _ := strconv.ParseUint(version, 10, 64)
	t := &VersionTrace{history: h, resource: resource, from: from, base: at}
	h.add(t, now)
	return t
}

// Find returns the versions of clusters at a resource version; they are the caller's. False where it
// is not remembered, or was never given.
func (h *VersionHistory) Find(resource, version string) (Versions, bool) {
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

// RecordEvent counts an event of a cluster, which was at a version of its own after it. The
// version is empty while the cluster's objects are sent one by one, because there is no such
// version yet. From such a step on nothing can be found until the cluster has a version: a watch
// that resumed there would miss deletions. A step of no cluster changes nothing.
func (t *VersionTrace) RecordEvent(cluster, version string) string {
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
		t.dropSteps(stepsMost / 2)
	}
	return formatVersion(h.last)
}

// EndTrace ends a trace of the watch.
func (t *VersionTrace) EndTrace(now time.Time) {
	h := t.history
	h.mu.Lock()
	defer h.mu.Unlock()
	t.ended = now
	h.sweepOld(now)
}

// dropSteps drops the first steps.
func (t *VersionTrace) dropSteps(n int) {
	before := t.heldVersionCount()
	for _, s := range t.steps[:n] {
		t.from = s.at
		if s.version != "" {
			t.base[s.cluster] = s.version
		}
	}
	t.steps = slices.Clone(t.steps[n:])
	t.history.held += t.heldVersionCount() - before
}

// find returns the versions at a resource version.
func (t *VersionTrace) find(at uint64) (Versions, bool) {
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

func (t *VersionTrace) heldVersionCount() int { return len(t.base) + len(t.steps) }

// add adds a Trace. The caller holds mu.
func (h *VersionHistory) add(t *VersionTrace, now time.Time) {
	h.traces = append(h.traces, t)
	h.held += t.heldVersionCount()
	h.sweepOld(now)
}

// sweepOld drops what is too old or too much away; watches that go on stay. The caller holds mu.
func (h *VersionHistory) sweepOld(now time.Time) {
	h.traces = slices.DeleteFunc(h.traces, func(t *VersionTrace) bool {
		over := !t.ended.IsZero() && (now.Sub(t.ended) > remembered || h.held > rememberedMost)
		if over {
			h.held -= t.heldVersionCount()
		}
		return over
	})
}

func formatVersion(n uint64) string { return strconv.FormatUint(n, 10) }
