package gateway

import (
	"time"

	limit "golang.org/x/time/rate"

	"atoll.dev/atoll/internal/atoll"
)

// Upkeep
//
// What clusters cause by themselves, turns and progress, is written at most
// atoll.UpkeepSlices slices a second, and each Bundle, after a burst, at most every
// atoll.UpkeepSliceEvery. Bundles that are due while that is spent wait in line, in the
// order in which they came, and take along all that is pending of them when their turn
// comes. So while health flaps everywhere, every slice has its turn, and the more there
// are the longer it takes. What is written for a milestone costs the budget nothing, so
// that a rollout, however large, keeps nobody from telling of a failure.

// budget of slices; what was taken beyond it is owed.
type budget struct{ *limit.Limiter }

func newBudget() budget {
	return budget{limit.NewLimiter(atoll.UpkeepSlices, atoll.UpkeepSlices)}
}

// newTurns are those of one Bundle to be written for its upkeep.
func newTurns() budget {
	return budget{limit.NewLimiter(limit.Every(atoll.UpkeepSliceEvery), atoll.UpkeepBurst)}
}

// wait until something is left.
func (b budget) wait(now time.Time) time.Duration {
	missing := 1 - b.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(b.Limit()) * float64(time.Second))
}

// take n, though less may be left.
func (b budget) take(n int, now time.Time) {
	for ; n > 0; n -= b.Burst() {
		b.ReserveN(now, min(n, b.Burst()))
	}
}

// mayWrite tells whether a Bundle of which reports are due may be written now, and pays
// for it; if not, it has its place in line. The caller holds the lock.
func (t *reports) mayWrite(bundle string, p *pending, now time.Time) bool {
	switch {
	case p.isUrgent(now):
	case len(t.line) > 0 || t.upkeep.wait(now) > 0:
		p.inLine = true
		if t.line = append(t.line, bundle); len(t.line) == 1 {
			t.callNext(now)
		}
		return false
	default:
		t.pay(p, now)
	}
	return true
}

// pay for a write of what is pending. The caller holds the lock.
func (t *reports) pay(p *pending, now time.Time) {
	t.upkeep.take(p.slices(), now)
	p.turns.take(1, now)
	p.upkept = now.Add(p.turns.wait(now))
}

// callNext in line, when something is left. The caller holds the lock.
func (t *reports) callNext(now time.Time) {
	time.AfterFunc(max(t.upkeep.wait(now), time.Millisecond), t.advance)
}

// advance the line as far as the budget reaches.
func (t *reports) advance() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	now := time.Now()
	for len(t.line) > 0 && t.upkeep.wait(now) == 0 {
		bundle := t.line[0]
		t.line = t.line[1:]
		p := t.bundles[bundle]
		if p.inLine = false; p.writing {
			continue // it plans for the rest when it is done
		}
		if now.Before(p.next) || !p.isDue(now) { // it was written for a milestone
			t.planRest(bundle, p)
			continue
		}
		t.pay(p, now)
		batch := p.begin()
		go t.writeOut(bundle, p, batch)
	}
	if len(t.line) > 0 {
		t.callNext(now)
	}
}

// when a report is to be written; known is false for one that waits in line.
func (p *pending) when(r report) (due time.Time, known bool) {
	switch {
	case r.weight == milestone:
		return r.due, true
	case r.due.Before(p.upkept):
		return p.upkept, !p.inLine
	}
	return r.due, !p.inLine
}

// isDue tells whether a report has waited for as long as it may. The caller holds
// the lock.
func (p *pending) isDue(now time.Time) bool {
	for _, r := range p.rows {
		if due, known := p.when(r); known && !due.After(now) {
			return true
		}
	}
	return false
}

// isUrgent tells whether a milestone is due. The caller holds the lock.
func (p *pending) isUrgent(now time.Time) bool {
	for _, r := range p.rows {
		if r.weight == milestone && !r.due.After(now) {
			return true
		}
	}
	return false
}

// slices that hold what is pending.
func (p *pending) slices() int {
	names := map[string]struct{}{}
	for _, r := range p.rows {
		names[r.slice] = struct{}{}
	}
	return len(names)
}
