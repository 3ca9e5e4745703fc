package delivery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/state"
)

// reportDesk is the writer of reports over rows in memory, under synctest's clock.
type reportDesk struct {
	*reportWriter
	rows *memRows
	mu   sync.Mutex
	acks map[string]int64 // "uid bundle" → seq
	seq  int64
	// every is how often the agents check in.
	every time.Duration
}

func newReportDesk(t *testing.T) *reportDesk {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	d := &reportDesk{rows: &memRows{rows: map[string]map[string]state.Row{}}, acks: map[string]int64{}}
	d.reportWriter = newReportWriter(ctx, reportWriterOptions{
		rows: d.rows, bundleRows: d.rows, allowances: newClusterAllowances(d.rows.CountOfCluster), flushAfter: 100 * time.Millisecond, quietInterval: 15 * time.Second,
		onStored: func(uid, bundle string, seq int64) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.acks[uid+" "+bundle] = seq
		},
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), metrics: newMetrics(nil),
	})
	return d
}

// reportRow that the cluster's row is so.
func (d *reportDesk) reportRow(cluster string, s atoll.RowStatus) {
	row, _ := d.rows.Get("b", cluster)
	row.Cluster, row.Spec.UID = cluster, "uid-"+cluster
	d.reportFor(row, s)
}

// reportFor that a row, as it was read, is so.
func (d *reportDesk) reportFor(row state.Row, s atoll.RowStatus) {
	d.seq++
	s.UID, s.Seq = row.Spec.UID, d.seq
	d.offerReport(pendingReport{bundle: "b", cluster: row.Cluster, slice: row.Slice, status: s, checkInInterval: d.every}, row.Status, judgeStatus(row, s))
}

// judgeStatus judges a report of a row.
func judgeStatus(row state.Row, s atoll.RowStatus) session.Verdict {
	return session.JudgeReport(&row.Spec, reportedStatus(row), session.Reported{RowStatus: &s})
}

func (d *reportDesk) ackedSeq(cluster string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acks["uid-"+cluster+" b"]
}

func (d *reportDesk) rowState(cluster string) atoll.RowState {
	r, _ := d.rows.Get("b", cluster)
	if r.Status == nil {
		return ""
	}
	return r.Status.State
}

func passTime(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestThreeClustersOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range 3 {
			specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.setRows("b", specs)
		for i := range 3 {
			d.reportRow(fmt.Sprint(i), atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowProgressing, Applied: true})
			passTime(20 * time.Millisecond)
		}
		if d.ackedSeq("0") != 0 {
			t.Error("acknowledged before the write")
		}
		passTime(500 * time.Millisecond)
		if n := d.rows.countWrites(); n != 1 {
			t.Errorf("%d writes", n)
		}
		for i := range 3 {
			if d.ackedSeq(fmt.Sprint(i)) != int64(i+1) {
				t.Errorf("cluster %d: acknowledged %d", i, d.ackedSeq(fmt.Sprint(i)))
			}
		}
		// All become ready at about the same time: one more.
		passTime(time.Second)
		for i := range 3 {
			d.reportRow(fmt.Sprint(i), atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowReady, Applied: true})
		}
		passTime(100 * time.Millisecond)
		if n := d.rows.countWrites(); n != 2 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestFlappingHealthCostsFewWrites: a row that changes its mind every second costs a
// few writes and then four a minute; what matters is written at once all the same.
func TestFlappingHealthCostsFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		d.reportRow("0", atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowReady, Applied: true})
		passTime(time.Second)
		for i := range 300 {
			d.reportRow("0", atoll.RowStatus{Generation: 1, Content: "r1", State: []atoll.RowState{atoll.RowReady, atoll.RowDegraded}[i%2], Applied: true})
			passTime(time.Second)
		}
		if n := d.rows.countWrites(); n > 25 || n < 15 {
			t.Errorf("%d writes in five minutes of flapping", n)
		}
		before := d.rows.countWrites()
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r2", 2)})
		for _, s := range []atoll.RowStatus{
			{Generation: 2, Content: "r2", State: atoll.RowProgressing},
			{Generation: 2, Content: "r2", State: atoll.RowProgressing, Applied: true},
			{Generation: 2, Content: "r2", State: atoll.RowReady, Applied: true},
		} {
			d.reportRow("0", s)
			passTime(time.Second)
		}
		if n := d.rows.countWrites() - before; n != 3 || d.rowState("0") != atoll.RowReady {
			t.Errorf("%d writes of a rollout after flapping, state %s", n, d.rowState("0"))
		}
	})
}

// A failed write acknowledges nothing, and the latest report is written.
func TestFailedWritesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1), "1": activeSpec("uid-1", "r1", 1)})
		d.rows.fail = errors.New("etcd is away")
		d.reportRow("0", atoll.RowStatus{Generation: 1, State: atoll.RowProgressing})
		d.reportRow("1", atoll.RowStatus{Generation: 1, State: atoll.RowProgressing})
		passTime(500 * time.Millisecond)
		d.reportRow("1", atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true})
		passTime(time.Minute)
		if d.ackedSeq("0")+d.ackedSeq("1") != 0 {
			t.Error("acknowledged without a write")
		}
		d.rows.mu.Lock()
		d.rows.fail = nil
		d.rows.mu.Unlock()
		passTime(maxRetryDelay)
		if d.rowState("0") != atoll.RowProgressing || d.rowState("1") != atoll.RowReady || d.ackedSeq("0") != 1 || d.ackedSeq("1") != 3 {
			t.Errorf("states %s and %s, acknowledged %d and %d", d.rowState("0"), d.rowState("1"), d.ackedSeq("0"), d.ackedSeq("1"))
		}
	})
}

// interruptedRows fail their first write after something else has happened.
type interruptedRows struct {
	*memRows
	meanwhile func() // nil: writes succeed
}

func (r *interruptedRows) WriteStatuses(ctx context.Context, bundle string, reports map[string]atoll.RowStatus) error {
	if happens := r.meanwhile; happens != nil {
		r.meanwhile = nil
		happens()
		return errors.New("etcd is away")
	}
	return r.memRows.WriteStatuses(ctx, bundle, reports)
}

// A report that comes during a write that fails is newer than what the write had, and stays.
func TestReportDuringAFailedWriteIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		d.reportWriter.rows = &interruptedRows{d.rows, func() { d.reportRow("0", statusAt(1, atoll.RowReady, 1)) }}
		d.reportRow("0", statusAt(1, atoll.RowProgressing, 1))
		passTime(maxRetryDelay)
		if s := d.rowState("0"); s != atoll.RowReady || d.ackedSeq("0") != 2 {
			t.Errorf("the row is %s, acknowledged %d of 2", s, d.ackedSeq("0"))
		}
	})
}

// An agent that restarts reports what is stored.
func TestEqualReportIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		ready := atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true}
		d.reportRow("0", ready)
		passTime(time.Second)
		for range 5 {
			d.reportRow("0", ready)
			passTime(time.Second)
		}
		if n := d.rows.countWrites(); n != 1 || d.ackedSeq("0") != 6 {
			t.Errorf("%d writes, acknowledged %d", n, d.ackedSeq("0"))
		}
		// There and back before the write: nothing to write either.
		d.reportRow("0", atoll.RowStatus{Generation: 1, State: atoll.RowDegraded, Applied: true})
		d.reportRow("0", ready)
		passTime(time.Second)
		if n := d.rows.countWrites(); n != 1 || d.ackedSeq("0") != 8 {
			t.Errorf("%d writes, acknowledged %d", n, d.ackedSeq("0"))
		}
		// A row that is deleted before its write is not written.
		d.reportRow("0", atoll.RowStatus{Generation: 1, State: atoll.RowDegraded})
		d.rows.removeRow("b", "0")
		passTime(time.Minute)
		if n := d.rows.countWrites(); n != 1 {
			t.Errorf("%d writes", n)
		}
		passTime(5 * time.Minute)
		d.reportWriter.mu.Lock()
		defer d.reportWriter.mu.Unlock()
		if len(d.bundles) != 0 {
			t.Errorf("%d bundles are remembered long after", len(d.bundles))
		}
	})
}

// TestReportIsComparedWithPendingWrite: one that was judged by what its row said before
// the write of another is not taken for what the store says already.
func TestReportIsComparedWithPendingWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		d.reportRow("0", statusAt(1, atoll.RowReady, 1))
		passTime(time.Second)
		before, _ := d.rows.Get("b", "0")
		d.reportRow("0", statusAt(1, atoll.RowDegraded, 1))
		passTime(time.Second)
		if s := d.rowState("0"); s != atoll.RowDegraded {
			t.Fatalf("the row is %s", s)
		}
		d.reportFor(before, statusAt(1, atoll.RowReady, 1))
		passTime(time.Minute)
		if s := d.rowState("0"); s != atoll.RowReady || d.ackedSeq("0") != d.seq {
			t.Errorf("the row is %s, acknowledged %d of %d", s, d.ackedSeq("0"), d.seq)
		}
	})
}

func TestQueueOrder(t *testing.T) {
	var q sendQueue
	q.queueOrder(session.Order{Bundle: "compared-1", Resync: true})
	q.queueOrder(session.Order{Bundle: "compared-2", Resync: true})
	q.queueOrder(session.Order{Bundle: "changed"})
	q.queueOrder(session.Order{Bundle: "compared-2"}) // a user changed it since
	q.queueOrder(session.Order{Bundle: "changed"})
	var got []string
	for {
		task, ok := q.nextTask(false)
		if !ok {
			break
		}
		got = append(got, task.order.Bundle)
	}
	if fmt.Sprint(got) != "[changed compared-2 compared-1]" {
		t.Errorf("sent in the order %v", got)
	}
	q.queueOrder(session.Order{Bundle: "changed"})
	put(&q.acks, "b", 4)
	if task, ok := q.nextTask(true); !ok || task.frame.GetReportStored().GetSeq() != 4 {
		t.Error("a hub that holds does not acknowledge")
	}
	if _, ok := q.nextTask(true); ok {
		t.Error("a hub that holds gives orders")
	}
}
