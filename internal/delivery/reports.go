package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/tracing"
)

// reportQueue is the name by which the panics of writes are counted.
const reportQueue = "reports"

// maxWriters is how many Bundles' reports are written at a time.
const maxWriters = 16

// pendingReport is a report of one row that waits for its write.
type pendingReport struct {
	bundle          string
	cluster         string
	slice           string          // that holds the row
	status          atoll.RowStatus // with UID and Seq
	hash            string          // of status
	checkInInterval time.Duration   // between check-ins of its agent; 0: the agent holds the stream
	weight          changeUrgency
	receivedAt      time.Time     // or when the older report came that it replaces
	dueAt           time.Time     // latest time of its write
	turnAt          time.Time     // before which its cluster's allowance permits no write for it
	refused         *refusedOrder // that the written status states; nil: none
	ofHub           bool          // the status is none of the agent: what the row has, with the refusal
}

type reportWriterOptions struct {
	rows                      Rows
	bundleRows                BundleRows
	allowances                *clusterAllowances
	flushAfter, quietInterval time.Duration
	onStored                  func(uid, bundle string, seq int64)
	// onPanic gets the cluster whose report panicked. The report is dropped.
	onPanic func(uid string, p *reconcile.Panic)
	log     *slog.Logger
	metrics *metrics
	traces  *tracing.Tracer
}

// reportWriter coalesces reports by bundle and writes them as soon as
// rowWriteBudget.maxWait and the upkeep budget allow it. A write includes all that is
// pending of its bundle; of one row only the latest report is kept. A report that the row
// has already is acknowledged without a write. It is safe for concurrent use. Writes run
// on its own goroutines, which end with its context.
type reportWriter struct {
	reportWriterOptions
	ctx         context.Context
	writerSlots chan struct{}

	mu           sync.Mutex
	bundles      map[string]*bundleReports
	upkeepBudget pace.Bucket
	upkeepQueue  []string // Bundles that wait for the upkeep budget
}

// bundleReports are the pending reports of one bundle.
type bundleReports struct {
	rows       map[string]pendingReport // by cluster UID
	rowBudgets map[string]*rowWriteBudget
	timer      *time.Timer
	flushAt    time.Time // zero: no flush is scheduled
	lastWrite  time.Time // of its writes
	notBefore  time.Time // no write before
	writing    bool
	retryDelay time.Duration

	upkeepBudget pace.Bucket // of writes for upkeep
	nextUpkeep   time.Time   // no write for upkeep before
	inQueue      bool
}

func newReportWriter(ctx context.Context, o reportWriterOptions) *reportWriter {
	return &reportWriter{
		reportWriterOptions: o, ctx: ctx, writerSlots: make(chan struct{}, maxWriters),
		bundles: map[string]*bundleReports{}, upkeepBudget: pace.SliceWrites.NewBucket(),
	}
}

// offerReport takes a judged report. stored is the present status of the row.
func (t *reportWriter) offerReport(r pendingReport, stored *atoll.RowStatus, v session.Verdict) {
	if ack := t.keepReport(r, stored, v); ack > 0 {
		t.onStored(r.status.UID, r.bundle, ack)
	}
}

// keepReport keeps a report until it is written. ack is not 0 when nothing is to be
// written.
func (t *reportWriter) keepReport(r pendingReport, stored *atoll.RowStatus, v session.Verdict) (ack int64) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if ack := t.ackUnwritten(r, v); ack > 0 {
		return ack
	}
	p, uid := t.ensureBundle(r.bundle), r.status.UID
	old, had := p.rows[uid]
	if had && old.status.Seq > r.status.Seq {
		return 0
	}
	r.weight, r.dueAt = p.assessReportUrgency(r, stored, now, writePacing{t.flushAfter, t.quietInterval})
	if had {
		r.receivedAt, r.turnAt, r.refused = old.receivedAt, old.turnAt, old.refused
	} else {
		r.receivedAt, r.turnAt = now, now.Add(t.allowances.waitTime(uid, now))
	}
	if had && old.dueAt.Before(r.dueAt) {
		r.dueAt = old.dueAt
	}
	t.hastenCompletingReport(&r, p, now)
	if r.dueAt.Before(r.turnAt) {
		r.dueAt = r.turnAt
	}
	p.rows[uid] = r
	if due, known := p.dueTime(r); known {
		t.scheduleFlush(r.bundle, p, due)
	}
	return 0
}

// ensureBundle returns the pending reports of a bundle. The caller holds the lock.
func (t *reportWriter) ensureBundle(bundle string) *bundleReports {
	p := t.bundles[bundle]
	if p == nil {
		p = &bundleReports{rows: map[string]pendingReport{}, rowBudgets: map[string]*rowWriteBudget{}, upkeepBudget: pace.BundleSliceWrites.NewBucket()}
		t.bundles[bundle] = p
	}
	return p
}

// ackUnwritten returns the acknowledgement of a report that the row has already; 0: it is to be
// written. The caller holds the lock.
func (t *reportWriter) ackUnwritten(r pendingReport, v session.Verdict) int64 {
	p, uid := t.bundles[r.bundle], r.status.UID
	switch {
	case v.Ack == 0 || p == nil:
		return v.Ack
	case p.writing:
		return 0
	}
	waiting, waits := p.rows[uid]
	if v = t.rejudgeReport(r); v.Ack == 0 || !waits || waiting.status.Seq > r.status.Seq {
		return v.Ack
	}
	if delete(p.rows, uid); waiting.refused != nil { // the row is again as stored, but for the refusal
		waiting.ofHub = true
		p.rows[uid] = waiting
	}
	return v.Ack
}

// rejudgeReport judges a report by the present row: a write may have changed the row since
// the report was judged. The caller holds the lock.
func (t *reportWriter) rejudgeReport(r pendingReport) session.Verdict {
	row, ok := t.rows.Get(r.bundle, r.cluster)
	if !ok || row.Spec.UID != r.status.UID {
		return session.Verdict{} // the row is gone
	}
	return session.JudgeReport(&row.Spec, reportedStatus(row), session.Reported{RowStatus: &r.status, Hash: r.hash})
}

// scheduleFlush schedules a flush at due or before, but not before the next write is
// allowed. The caller holds the lock.
func (t *reportWriter) scheduleFlush(bundle string, p *bundleReports, due time.Time) {
	if due.Before(p.notBefore) {
		due = p.notBefore
	}
	if p.flushAt.IsZero() || due.Before(p.flushAt) {
		p.flushAt = due
		if p.timer != nil {
			p.timer.Stop()
		}
		p.timer = time.AfterFunc(time.Until(due), func() { t.flushBundle(bundle) })
	}
}

// scheduleRemaining schedules a flush of what is pending, or drops the bundle when
// nothing is. The caller holds the lock.
func (t *reportWriter) scheduleRemaining(bundle string, p *bundleReports) {
	if len(p.rows) == 0 {
		t.dropWhenIdle(bundle, p)
		return
	}
	var first time.Time
	for _, r := range p.rows {
		if due, known := p.dueTime(r); known && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	if !first.IsZero() {
		t.scheduleFlush(bundle, p, first)
	}
}

// flushBundle writes what is pending of a bundle, if any of it is due and may be written.
// The next write waits for the end of this one.
func (t *reportWriter) flushBundle(bundle string) {
	t.runContainingPanics(bundle, func() {
		if p, batch := t.takeBatchIfDue(bundle); batch != nil {
			t.writeBatch(bundle, p, batch)
		}
	})
}

// runContainingPanics runs what writes reports of a bundle. A panic is logged.
func (t *reportWriter) runContainingPanics(bundle string, fn func()) {
	if p := reconcile.ContainPanicCounted(reportQueue, fn); p != nil {
		t.log.Error("reports of a bundle are late; the next report of it is written again", "bundle", bundle, "err", p)
	}
}

// takeBatchIfDue takes what is pending of a bundle, if any of it is due and may be written.
func (t *reportWriter) takeBatchIfDue(bundle string) (p *bundleReports, batch map[string]pendingReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, now := t.bundles[bundle], time.Now()
	if p == nil || t.ctx.Err() != nil {
		return nil, nil
	}
	p.flushAt = time.Time{}
	switch {
	case p.writing:
		return nil, nil
	case now.Before(p.notBefore) || !p.hasDueReport(now):
		t.scheduleRemaining(bundle, p)
		return nil, nil
	case !t.admitWrite(bundle, p, now):
		return nil, nil
	}
	return p, p.takeAllPendingReports()
}

// takeAllPendingReports takes all that is pending, to be written. The caller holds the lock.
func (p *bundleReports) takeAllPendingReports() (batch map[string]pendingReport) {
	batch = p.rows
	p.rows, p.writing = map[string]pendingReport{}, true
	return batch
}

// writeBatch writes a batch, and schedules what has come since.
func (t *reportWriter) writeBatch(bundle string, p *bundleReports, batch map[string]pendingReport) {
	written, err := t.writeBatchDroppingPanickingReports(bundle, batch)

	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p.writing = false
	if err != nil {
		p.retryDelay = min(max(2*p.retryDelay, minRetryDelay), maxRetryDelay)
		if p.retryDelay == minRetryDelay {
			t.log.Error("cannot write reported statuses; agents keep them and the hub tries again", "bundle", bundle, "clusters", len(batch), "after", p.retryDelay, "err", err)
		}
		p.notBefore = now.Add(p.retryDelay)
		for uid, r := range batch {
			if newer, has := p.rows[uid]; has {
				r = newer.withUnwritten(r)
			}
			p.rows[uid] = r
		}
		t.scheduleRemaining(bundle, p)
		return
	}
	p.retryDelay = 0
	if len(written) > 0 {
		p.lastWrite, p.notBefore = now, now.Add(writePacing{t.flushAfter, t.quietInterval}.bundleWriteInterval(len(p.rowBudgets)))
	}
	for _, r := range written {
		p.recordWrite(r, now)
		t.allowances.reserveTurn(r.status.UID, now) // what waits for its turn is delayed
		t.traces.ReportWritten(r.status.UID, bundle, &r.status, r.receivedAt)
		t.metrics.reportWaitSeconds.Add(now.Sub(r.receivedAt).Seconds())
	}
	t.metrics.reportsWritten.Add(float64(len(written)))
	t.scheduleRemaining(bundle, p)
}

// writeBatchDroppingPanickingReports writes a batch. When that panics, each report is written by itself, and one that
// panics again is dropped from the batch.
func (t *reportWriter) writeBatchDroppingPanickingReports(bundle string, batch map[string]pendingReport) (written []pendingReport, err error) {
	p := reconcile.ContainPanicCounted(reportQueue, func() { written, err = t.writeStatuses(bundle, batch) })
	if p == nil {
		return written, err
	}
	written, err = nil, nil
	for uid, r := range batch {
		p := reconcile.ContainPanicCounted(reportQueue, func() {
			one, failed := t.writeStatuses(bundle, map[string]pendingReport{uid: r})
			written, err = append(written, one...), errors.Join(err, failed)
		})
		if p != nil {
			delete(batch, uid)
			t.onPanic(uid, p)
		}
	}
	return written, err
}

// writeStatuses writes a batch in one call, without what the rows have already. written
// are the reports that were stored.
func (t *reportWriter) writeStatuses(bundle string, batch map[string]pendingReport) (written []pendingReport, err error) {
	select {
	case t.writerSlots <- struct{}{}:
	case <-t.ctx.Done():
		return nil, t.ctx.Err()
	}
	defer func() { <-t.writerSlots }()
	changes, acks := map[string]atoll.RowStatus{}, map[string]int64{}
	for uid, r := range batch {
		row, ok := t.rows.Get(bundle, r.cluster)
		if !ok || row.Spec.UID != uid {
			continue // the row is gone; the next session reports the bundle as unclaimed
		}
		r, v := r.prepareWrite(row)
		if v.Write {
			changes[uid] = r.status
			written = append(written, r)
		}
		if v.Ack > 0 {
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
		t.onStored(uid, bundle, seq)
	}
	return written, nil
}

// dropWhenIdle drops the bundle's budgets once they are full again. The caller holds the
// lock.
func (t *reportWriter) dropWhenIdle(bundle string, p *bundleReports) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc((stateChangeBurst+1)*t.quietInterval, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.bundles[bundle] == p && len(p.rows) == 0 && !p.writing && !p.inQueue && p.flushAt.IsZero() {
			delete(t.bundles, bundle)
		}
	})
}
