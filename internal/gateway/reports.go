package gateway

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
)

const (
	// writersLimit is how many Bundles' reports are written at a time.
	writersLimit = 16
	// burst is how many changes of health a row may have written quickly; it
	// refills by one per quiet interval.
	burst = 3
)

// report of one row on its way to the store.
type report struct {
	bundle  string
	cluster string
	status  atoll.RowStatus // with UID and Seq
}

type reportOptions struct {
	rows              Rows
	flushAfter, quiet time.Duration
	stored            func(uid, bundle string, seq int64)
	log               *slog.Logger
	metrics           *metrics
}

// reports coalesces reports by bundle and writes them: soon where something
// happened that matters, seldom where only health flaps. Of one row only the
// latest is kept. It is safe for concurrent use; writes happen on goroutines of
// its own, which end with its context.
type reports struct {
	reportOptions
	ctx     context.Context
	writers chan struct{}

	mu      sync.Mutex
	bundles map[string]*pending
}

// pending reports of one bundle.
type pending struct {
	rows    map[string]report // by cluster UID
	rates   map[string]*rate
	timer   *time.Timer
	due     time.Time // zero: nothing is planned
	writing bool
	retry   time.Duration
}

// rate of one row's writes.
type rate struct {
	last   time.Time // of the last write
	tokens float64
	asOf   time.Time
}

func newReports(ctx context.Context, o reportOptions) *reports {
	return &reports{reportOptions: o, ctx: ctx, writers: make(chan struct{}, writersLimit), bundles: map[string]*pending{}}
}

// offer a judged report. stored is what the row holds now.
func (t *reports) offer(r report, stored *atoll.RowStatus, v session.Verdict) {
	if !t.keep(r, stored, v) {
		t.stored(r.status.UID, r.bundle, v.Ack)
	}
}

// keep a report until it is written; false when there is nothing to write.
func (t *reports) keep(r report, stored *atoll.RowStatus, v session.Verdict) bool {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.bundles[r.bundle]
	if v.Ack > 0 && (p == nil || !p.writing && p.rows[r.status.UID].bundle == "") {
		return false
	}
	if p == nil {
		p = &pending{rows: map[string]report{}, rates: map[string]*rate{}}
		t.bundles[r.bundle] = p
	}
	if old, ok := p.rows[r.status.UID]; ok && old.status.Seq > r.status.Seq {
		return true
	}
	p.rows[r.status.UID] = r
	due := now.Add(max(t.flushAfter, p.wait(r.status.UID, weigh(stored, r.status), now, t.quiet)))
	t.plan(r.bundle, p, due)
	return true
}

// plan a flush at due or before. The caller holds the lock.
func (t *reports) plan(bundle string, p *pending, due time.Time) {
	if p.due.IsZero() || due.Before(p.due) {
		p.due = due
		if p.timer != nil {
			p.timer.Stop()
		}
		p.timer = time.AfterFunc(time.Until(due), func() { t.flush(bundle) })
	}
}

// flush writes what is pending of a bundle. While a write is under way the next
// waits for its end.
func (t *reports) flush(bundle string) {
	t.mu.Lock()
	p := t.bundles[bundle]
	if p == nil || p.writing || t.ctx.Err() != nil {
		if p != nil {
			p.due = time.Time{}
		}
		t.mu.Unlock()
		return
	}
	batch := p.rows
	p.rows, p.due, p.writing = map[string]report{}, time.Time{}, true
	t.mu.Unlock()

	err := t.write(bundle, batch)

	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p.writing = false
	if err != nil {
		for uid, r := range batch {
			if _, newer := p.rows[uid]; !newer {
				p.rows[uid] = r
			}
		}
		p.retry = min(max(2*p.retry, retryFirst), retryMost)
		if p.retry == retryFirst {
			t.log.Error("cannot write reported statuses; agents keep them and the hub tries again", "bundle", bundle, "clusters", len(batch), "after", p.retry, "err", err)
		}
		t.plan(bundle, p, now.Add(p.retry))
		return
	}
	p.retry = 0
	for uid := range batch {
		p.wrote(uid, now)
	}
	if len(p.rows) > 0 {
		t.plan(bundle, p, now.Add(t.flushAfter))
		return
	}
	t.forgetLater(bundle, p)
}

// write a batch: one call, without what the rows say already.
func (t *reports) write(bundle string, batch map[string]report) error {
	select {
	case t.writers <- struct{}{}:
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
	defer func() { <-t.writers }()
	changes, acks := map[string]atoll.RowStatus{}, map[string]int64{}
	for uid, r := range batch {
		row, ok := t.rows.Get(bundle, r.cluster)
		if !ok || row.Spec.UID != uid {
			continue // the row went meanwhile; the next session shows it as unclaimed
		}
		v := session.Judge(&row.Spec, row.Status, r.status.Seq, r.status)
		if v.Write {
			changes[uid], acks[uid] = r.status, r.status.Seq
		} else {
			acks[uid] = v.Ack
		}
	}
	if len(changes) > 0 {
		if err := t.rows.WriteStatuses(t.ctx, bundle, changes); err != nil {
			t.metrics.writes.WithLabelValues("error").Inc()
			return err
		}
		t.metrics.writes.WithLabelValues("ok").Inc()
	}
	for uid, seq := range acks {
		t.stored(uid, bundle, seq)
	}
	return nil
}

// forgetLater drops the bundle's rates once they mean nothing any more. The caller
// holds the lock.
func (t *reports) forgetLater(bundle string, p *pending) {
	p.timer = time.AfterFunc((burst+1)*t.quiet, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.bundles[bundle] == p && len(p.rows) == 0 && !p.writing && p.due.IsZero() {
			delete(t.bundles, bundle)
		}
	})
}

// weight of a change.
type weight int

const (
	// trivial: counts, messages and reflected status.
	trivial weight = iota
	// health: what state the row or an item is in, at the same generation.
	health
	// matters: another generation or content, applied, removed, carried out.
	matters
)

// weigh what a report changes.
func weigh(stored *atoll.RowStatus, r atoll.RowStatus) weight {
	switch {
	case stored == nil, stored.Generation != r.Generation, stored.Content != r.Content, stored.Applied != r.Applied,
		r.State == atoll.RowRemoved, !slices.Equal(stored.Gone, r.Gone):
		return matters
	case stored.State != r.State, stored.Reason != r.Reason, !slices.EqualFunc(stored.Items, r.Items, sameHealth):
		return health
	}
	return trivial
}

func sameHealth(a, b atoll.ItemStatus) bool {
	return a.Key == b.Key && a.Health == b.Health && a.Reason == b.Reason && a.Error == b.Error
}

// wait tells for how long a change of that weight may wait. The caller holds the
// lock.
func (p *pending) wait(uid string, w weight, now time.Time, quiet time.Duration) time.Duration {
	r := p.rates[uid]
	if r == nil {
		return 0
	}
	if w == matters {
		r.tokens, r.asOf = burst, now
		return 0
	}
	r.tokens = min(burst, r.tokens+now.Sub(r.asOf).Seconds()/quiet.Seconds())
	r.asOf = now
	if w == health && r.tokens >= 1 {
		return 0
	}
	return r.last.Add(quiet).Sub(now)
}

// wrote counts a write of the row. The caller holds the lock.
func (p *pending) wrote(uid string, now time.Time) {
	r := p.rates[uid]
	if r == nil {
		r = &rate{tokens: burst, asOf: now}
		p.rates[uid] = r
	}
	r.last = now
	r.tokens = max(0, r.tokens-1)
}
