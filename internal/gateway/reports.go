package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
)

// writersLimit is how many Bundles' reports are written at a time.
const writersLimit = 16

// report of one row on its way to the store.
type report struct {
	bundle  string
	cluster string
	slice   string          // that holds the row
	status  atoll.RowStatus // with UID and Seq
	hash    string          // of status
	every   time.Duration   // between two check-ins of its agent; 0: it holds the stream
	weight  weight
	came    time.Time // or when an older one did that it replaces
	due     time.Time // when it is to be written; sooner if others are
}

type reportOptions struct {
	rows              Rows
	flushAfter, quiet time.Duration
	stored            func(uid, bundle string, seq int64)
	log               *slog.Logger
	metrics           *metrics
}

// reports coalesces reports by bundle and writes them, as soon as rate.wait and the
// upkeep's budget let it. A write takes along all that is pending of its bundle, and of
// one row only the latest is kept. What the store says already is acknowledged without
// a write. It is safe for concurrent use; writes happen on goroutines of its own, which
// end with its context.
type reports struct {
	reportOptions
	ctx     context.Context
	writers chan struct{}

	mu      sync.Mutex
	bundles map[string]*pending
	upkeep  budget
	line    []string // Bundles that wait for the upkeep's budget
}

// pending reports of one bundle.
type pending struct {
	rows    map[string]report // by cluster UID
	rates   map[string]*allowance
	timer   *time.Timer
	due     time.Time // zero: nothing is planned
	last    time.Time // of its writes
	next    time.Time // no write before
	writing bool
	retry   time.Duration

	turns  budget    // of writes for upkeep
	upkept time.Time // no write for upkeep before
	inLine bool
}

func newReports(ctx context.Context, o reportOptions) *reports {
	return &reports{
		reportOptions: o, ctx: ctx, writers: make(chan struct{}, writersLimit),
		bundles: map[string]*pending{}, upkeep: newBudget(),
	}
}

// offer a judged report. stored is what the row holds now.
func (t *reports) offer(r report, stored *atoll.RowStatus, v session.Verdict) {
	if ack := t.keep(r, stored, v); ack > 0 {
		t.stored(r.status.UID, r.bundle, ack)
	}
}

// keep a report until it is written; ack when there is nothing to write.
func (t *reports) keep(r report, stored *atoll.RowStatus, v session.Verdict) (ack int64) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p, uid := t.bundles[r.bundle], r.status.UID
	if v.Ack > 0 && p != nil && !p.writing {
		v = t.judge(r)
	}
	if v.Ack > 0 && (p == nil || !p.writing) {
		if p != nil && p.rows[uid].status.Seq <= r.status.Seq {
			delete(p.rows, uid) // there and back again
		}
		return v.Ack
	}
	if p == nil {
		p = &pending{rows: map[string]report{}, rates: map[string]*allowance{}, turns: newTurns()}
		t.bundles[r.bundle] = p
	}
	old, had := p.rows[uid]
	if had && old.status.Seq > r.status.Seq {
		return 0
	}
	rate := p.rate(r.status, now, t.quiet)
	// It may have been Ready before this hub knew of it.
	rate.ready = rate.ready || stored != nil && stored.Generation == r.status.Generation && stored.State == atoll.RowReady
	r.weight = rate.weigh(stored, r.status)
	r.due = now.Add(rate.wait(r.weight, now, pace{t.flushAfter, t.quiet}))
	if gathered := p.last.Add(lull(len(p.rates), r.every)); gathered.After(r.due) {
		r.due = gathered
	}
	r.came = now
	if had {
		r.came = old.came
	}
	if had && old.due.Before(r.due) {
		r.due = old.due
	}
	p.rows[uid] = r
	if due, known := p.when(r); known {
		t.plan(r.bundle, p, due)
	}
	return 0
}

// judge a report by what its row says now: since it was judged, a write may have ended
// that changed the row. The caller holds the lock.
func (t *reports) judge(r report) session.Verdict {
	row, ok := t.rows.Get(r.bundle, r.cluster)
	if !ok || row.Spec.UID != r.status.UID {
		return session.Verdict{} // it went meanwhile
	}
	return session.Judge(&row.Spec, reported(row), session.Reported{RowStatus: &r.status, Hash: r.hash})
}

// plan a flush at due or before, but not before the next write may be. The caller
// holds the lock.
func (t *reports) plan(bundle string, p *pending, due time.Time) {
	if due.Before(p.next) {
		due = p.next
	}
	if p.due.IsZero() || due.Before(p.due) {
		p.due = due
		if p.timer != nil {
			p.timer.Stop()
		}
		p.timer = time.AfterFunc(time.Until(due), func() { t.flush(bundle) })
	}
}

// planRest plans for what is pending, or forgets the bundle when nothing is. The
// caller holds the lock.
func (t *reports) planRest(bundle string, p *pending) {
	if len(p.rows) == 0 {
		t.forgetLater(bundle, p)
		return
	}
	var first time.Time
	for _, r := range p.rows {
		if due, known := p.when(r); known && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	if !first.IsZero() {
		t.plan(bundle, p, first)
	}
}

// flush writes what is pending of a bundle, if any of it is due and may be written.
// While a write is under way the next waits for its end.
func (t *reports) flush(bundle string) {
	t.mu.Lock()
	p, now := t.bundles[bundle], time.Now()
	if p == nil || t.ctx.Err() != nil {
		t.mu.Unlock()
		return
	}
	p.due = time.Time{}
	if p.writing {
		t.mu.Unlock()
		return
	}
	if now.Before(p.next) || !p.isDue(now) {
		t.planRest(bundle, p)
		t.mu.Unlock()
		return
	}
	if !t.mayWrite(bundle, p, now) {
		t.mu.Unlock()
		return
	}
	batch := p.begin()
	t.mu.Unlock()
	t.writeOut(bundle, p, batch)
}

// begin to write all that is pending. The caller holds the lock.
func (p *pending) begin() (batch map[string]report) {
	batch = p.rows
	p.rows, p.writing = map[string]report{}, true
	return batch
}

// writeOut a batch, and plan for what has come meanwhile.
func (t *reports) writeOut(bundle string, p *pending, batch map[string]report) {
	written, err := t.write(bundle, batch)

	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p.writing = false
	if err != nil {
		p.retry = min(max(2*p.retry, retryFirst), retryMost)
		if p.retry == retryFirst {
			t.log.Error("cannot write reported statuses; agents keep them and the hub tries again", "bundle", bundle, "clusters", len(batch), "after", p.retry, "err", err)
		}
		p.next = now.Add(p.retry)
		for uid, r := range batch {
			if _, newer := p.rows[uid]; !newer {
				p.rows[uid] = r
			}
		}
		t.planRest(bundle, p)
		return
	}
	p.retry = 0
	if len(written) > 0 {
		p.last, p.next = now, now.Add(pace{t.flushAfter, t.quiet}.gap(len(p.rates)))
	}
	for _, r := range written {
		p.wrote(r, now)
		t.metrics.waited.Add(now.Sub(r.came).Seconds())
	}
	t.metrics.written.Add(float64(len(written)))
	t.planRest(bundle, p)
}

// write a batch: one call, without what the rows say already. written are the
// reports that were stored.
func (t *reports) write(bundle string, batch map[string]report) (written []report, err error) {
	select {
	case t.writers <- struct{}{}:
	case <-t.ctx.Done():
		return nil, t.ctx.Err()
	}
	defer func() { <-t.writers }()
	changes, acks := map[string]atoll.RowStatus{}, map[string]int64{}
	for uid, r := range batch {
		row, ok := t.rows.Get(bundle, r.cluster)
		if !ok || row.Spec.UID != uid {
			continue // the row went meanwhile; the next session shows it as unclaimed
		}
		v := session.Judge(&row.Spec, reported(row), session.Reported{RowStatus: &r.status, Hash: r.hash})
		if v.Write {
			changes[uid], acks[uid] = r.status, r.status.Seq
			written = append(written, r)
		} else {
			acks[uid] = v.Ack
		}
	}
	if len(changes) > 0 {
		if err := t.rows.WriteStatuses(t.ctx, bundle, changes); err != nil {
			t.metrics.writes.WithLabelValues("error").Inc()
			return nil, err
		}
		t.metrics.writes.WithLabelValues("ok").Inc()
	}
	for uid, seq := range acks {
		t.stored(uid, bundle, seq)
	}
	return written, nil
}

// forgetLater drops the bundle's rates once they mean nothing any more. The caller
// holds the lock.
func (t *reports) forgetLater(bundle string, p *pending) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc((burst+1)*t.quiet, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.bundles[bundle] == p && len(p.rows) == 0 && !p.writing && !p.inLine && p.due.IsZero() {
			delete(t.bundles, bundle)
		}
	})
}
