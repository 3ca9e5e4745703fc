package gateway

import (
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// When a report is written
//
// A milestone is written at once: the first Ready of a generation, a row removed, a
// tombstone carried out. Somebody waits for each, and each comes once per order.
//
// A turn is written at once too: the row becomes Degraded, Failed or not Ready any
// more, or an item cannot be applied. A row may turn burst times and then once per
// quiet interval, so that one that flaps costs a few writes a minute.
//
// All else is progress: what was acknowledged and applied on the way, counts, texts.
// It goes along with whatever is written of its Bundle, or by itself after a moment,
// and then ever more seldom: never sooner after the last write than a fifth of the
// time for which the row has been under way, at least a second and at most the quiet
// interval. Who watches a rollout of seconds sees it move every second, and one that
// hangs for hours costs four writes a minute at most.
//
// Writes of one Bundle keep a small gap, which grows with its rows.
//
// Turns and progress are upkeep, which has a bound (upkeep.go). A milestone waits for
// none of it, and takes along what waits.
//
// What agents tell that check in comes spread over their interval, and each slice would
// be written for each of its rows. So it waits for others of its Bundle, the longer the
// more there are: a slice is written some twenty times an interval at most. Such an
// agent stays for its answer.

const (
	// burst is how many turns a row may have written quickly; it refills by one per
	// quiet interval.
	burst = 3
	// underWay is the part of the time since a row began to move after which its
	// progress is written anew.
	underWay = 5
	// gapRow is added to the gap between two writes per row of the Bundle, up to
	// gapMost.
	gapRow  = time.Millisecond
	gapMost = 5 * time.Second
	// lullRows of a Bundle, of agents that check in, have a lull of a lullPart of the
	// interval between two writes, fewer rows a shorter one; none is longer than
	// lullMost, for which an agent surely stays.
	lullRows = 200
	lullPart = 20
	lullMost = 45 * time.Second
)

// pace of writes.
type pace struct {
	flushAfter, quiet time.Duration
}

// gap between two writes of a Bundle with so many rows.
func (p pace) gap(rows int) time.Duration {
	return min(3*p.flushAfter+time.Duration(rows)*gapRow, gapMost)
}

// lull between two writes of what so many agents tell that check in so often.
func lull(rows int, every time.Duration) time.Duration {
	return min(every/lullPart*time.Duration(min(rows, lullRows))/lullRows, lullMost)
}

// moment is how long progress waits for something to go along with.
func (p pace) moment() time.Duration { return 5 * p.flushAfter }

// weight of a change.
type weight int

const (
	progress weight = iota
	turn
	milestone
)

// allowance of writes of one row.
type allowance struct {
	generation int64     // of the last report
	began      time.Time // of the generation, or of the last turn
	last       time.Time // of the last write
	ready      bool      // Ready was written at this generation
	tokens     float64
	asOf       time.Time
}

// rate is the allowance of the row that a report is about. An order renews it. The caller holds the
// lock.
func (p *pending) rate(s atoll.RowStatus, now time.Time, quiet time.Duration) *allowance {
	r := p.rates[s.UID]
	if r == nil {
		r = &allowance{}
		p.rates[s.UID] = r
	}
	if r.generation != s.Generation || r.asOf.IsZero() {
		r.generation, r.began, r.ready = s.Generation, now, false
		r.tokens, r.asOf = burst, now
	}
	r.tokens = min(burst, r.tokens+now.Sub(r.asOf).Seconds()/quiet.Seconds())
	r.asOf = now
	return r
}

// wait tells for how long a report of that weight may wait.
func (r *allowance) wait(w weight, now time.Time, p pace) time.Duration {
	switch {
	case w == milestone, w == turn && r.tokens >= 1:
		return p.flushAfter
	case w == turn:
		return max(p.flushAfter, r.last.Add(p.quiet).Sub(now))
	}
	spacing := min(max(now.Sub(r.began)/underWay, 10*p.flushAfter), p.quiet)
	return max(p.moment(), r.last.Add(spacing).Sub(now))
}

// weigh what a report changes; stored is what the row says now.
func (r *allowance) weigh(stored *atoll.RowStatus, s atoll.RowStatus) weight {
	old := atoll.RowStatus{Generation: s.Generation, State: atoll.RowProgressing}
	if stored != nil {
		old = *stored
	}
	ordered := old.Generation != s.Generation || old.Content != s.Content
	news := ordered && s.State != atoll.RowProgressing || !ordered && old.State != s.State
	switch {
	case s.State == atoll.RowRemoved && news, news && s.State == atoll.RowReady && !r.ready:
		return milestone
	case s.AllGone && (ordered || !old.AllGone),
		slices.ContainsFunc(s.Gone, func(id string) bool { return !slices.Contains(old.Gone, id) }):
		return milestone
	case news, !slices.Equal(failures(old), failures(s)):
		return turn
	}
	return progress
}

// failures lists what cannot be applied, and why.
func failures(s atoll.RowStatus) (out []string) {
	for _, it := range s.Items {
		if it.Error {
			out = append(out, it.Key.String()+" "+it.Reason)
		}
	}
	return out
}

// wrote counts a write. The caller holds the lock.
func (p *pending) wrote(w report, now time.Time) {
	r := p.rates[w.status.UID]
	r.last = now
	if r.generation != w.status.Generation {
		return // another order came meanwhile
	}
	r.ready = r.ready || w.status.State == atoll.RowReady
	if w.weight == turn {
		if r.tokens = max(0, r.tokens-1); r.tokens >= 1 {
			r.began = now
		}
	}
}
