package gateway

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

// desk is the writer of reports over rows in memory, under synctest's clock.
type desk struct {
	*reports
	rows *memRows
	mu   sync.Mutex
	acks map[string]int64 // "uid bundle" → seq
	seq  int64
	// every is how often the agents check in.
	every time.Duration
}

func newDesk(t *testing.T) *desk {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	d := &desk{rows: &memRows{rows: map[string]map[string]state.Row{}}, acks: map[string]int64{}}
	d.reports = newReports(ctx, reportOptions{
		rows: d.rows, flushAfter: 100 * time.Millisecond, quiet: 15 * time.Second,
		stored: func(uid, bundle string, seq int64) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.acks[uid+" "+bundle] = seq
		},
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), metrics: newMetrics(nil),
	})
	return d
}

// say that the cluster's row is so.
func (d *desk) say(cluster string, s atoll.RowStatus) {
	row, _ := d.rows.Get("b", cluster)
	row.Cluster, row.Spec.UID = cluster, "uid-"+cluster
	d.sayTo(row, s)
}

// sayTo that a row, as it was read, is so.
func (d *desk) sayTo(row state.Row, s atoll.RowStatus) {
	d.seq++
	s.UID, s.Seq = row.Spec.UID, d.seq
	d.offer(report{bundle: "b", cluster: row.Cluster, slice: row.Slice, status: s, every: d.every}, row.Status, session.Judge(&row.Spec, reported(row), session.Reported{RowStatus: &s}))
}

func (d *desk) acked(cluster string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acks["uid-"+cluster+" b"]
}

func (d *desk) state(cluster string) atoll.RowState {
	r, _ := d.rows.Get("b", cluster)
	if r.Status == nil {
		return ""
	}
	return r.Status.State
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestThreeClustersOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range 3 {
			specs[fmt.Sprint(i)] = active(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.set("b", specs)
		for i := range 3 {
			d.say(fmt.Sprint(i), atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowProgressing, Applied: true})
			pass(20 * time.Millisecond)
		}
		if d.acked("0") != 0 {
			t.Error("acknowledged before the write")
		}
		pass(500 * time.Millisecond)
		if n := d.rows.written(); n != 1 {
			t.Errorf("%d writes", n)
		}
		for i := range 3 {
			if d.acked(fmt.Sprint(i)) != int64(i+1) {
				t.Errorf("cluster %d: acknowledged %d", i, d.acked(fmt.Sprint(i)))
			}
		}
		// All become ready at about the same time: one more.
		pass(time.Second)
		for i := range 3 {
			d.say(fmt.Sprint(i), atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowReady, Applied: true})
		}
		pass(100 * time.Millisecond)
		if n := d.rows.written(); n != 2 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestFlappingHealthIsWrittenSeldom: a row that changes its mind every second costs a
// few writes and then four a minute; what matters is written at once all the same.
func TestFlappingHealthIsWrittenSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
		d.say("0", atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowReady, Applied: true})
		pass(time.Second)
		for i := range 300 {
			d.say("0", atoll.RowStatus{Generation: 1, Content: "r1", State: []atoll.RowState{atoll.RowReady, atoll.RowDegraded}[i%2], Applied: true})
			pass(time.Second)
		}
		if n := d.rows.written(); n > 25 || n < 15 {
			t.Errorf("%d writes in five minutes of flapping", n)
		}
		before := d.rows.written()
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r2", 2)})
		for _, s := range []atoll.RowStatus{
			{Generation: 2, Content: "r2", State: atoll.RowProgressing},
			{Generation: 2, Content: "r2", State: atoll.RowProgressing, Applied: true},
			{Generation: 2, Content: "r2", State: atoll.RowReady, Applied: true},
		} {
			d.say("0", s)
			pass(time.Second)
		}
		if n := d.rows.written() - before; n != 3 || d.state("0") != atoll.RowReady {
			t.Errorf("%d writes of a rollout after flapping, state %s", n, d.state("0"))
		}
	})
}

// TestFailedWritesAreRetried: nothing is acknowledged before, the latest word wins.
func TestFailedWritesAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1), "1": active("uid-1", "r1", 1)})
		d.rows.fail = errors.New("etcd is away")
		d.say("0", atoll.RowStatus{Generation: 1, State: atoll.RowProgressing})
		d.say("1", atoll.RowStatus{Generation: 1, State: atoll.RowProgressing})
		pass(500 * time.Millisecond)
		d.say("1", atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true})
		pass(time.Minute)
		if d.acked("0")+d.acked("1") != 0 {
			t.Error("acknowledged without a write")
		}
		d.rows.mu.Lock()
		d.rows.fail = nil
		d.rows.mu.Unlock()
		pass(retryMost)
		if d.state("0") != atoll.RowProgressing || d.state("1") != atoll.RowReady || d.acked("0") != 1 || d.acked("1") != 3 {
			t.Errorf("states %s and %s, acknowledged %d and %d", d.state("0"), d.state("1"), d.acked("0"), d.acked("1"))
		}
	})
}

// TestSameAgainIsNotWritten: an agent that restarts says what is known.
func TestSameAgainIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
		ready := atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true}
		d.say("0", ready)
		pass(time.Second)
		for range 5 {
			d.say("0", ready)
			pass(time.Second)
		}
		if n := d.rows.written(); n != 1 || d.acked("0") != 6 {
			t.Errorf("%d writes, acknowledged %d", n, d.acked("0"))
		}
		// There and back before the write: nothing to write either.
		d.say("0", atoll.RowStatus{Generation: 1, State: atoll.RowDegraded, Applied: true})
		d.say("0", ready)
		pass(time.Second)
		if n := d.rows.written(); n != 1 || d.acked("0") != 8 {
			t.Errorf("%d writes, acknowledged %d", n, d.acked("0"))
		}
		// A row that goes meanwhile is not written.
		d.say("0", atoll.RowStatus{Generation: 1, State: atoll.RowDegraded})
		d.rows.remove("b", "0")
		pass(time.Minute)
		if n := d.rows.written(); n != 1 {
			t.Errorf("%d writes", n)
		}
		pass(5 * time.Minute)
		d.reports.mu.Lock()
		defer d.reports.mu.Unlock()
		if len(d.bundles) != 0 {
			t.Errorf("%d bundles are remembered long after", len(d.bundles))
		}
	})
}

// TestAReportIsComparedWithWhatIsWritten: one that was judged by what its row said before
// the write of another is not taken for what the store says already.
func TestAReportIsComparedWithWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
		d.say("0", at(1, atoll.RowReady, 1))
		pass(time.Second)
		before, _ := d.rows.Get("b", "0")
		d.say("0", at(1, atoll.RowDegraded, 1))
		pass(time.Second)
		if s := d.state("0"); s != atoll.RowDegraded {
			t.Fatalf("the row is %s", s)
		}
		d.sayTo(before, at(1, atoll.RowReady, 1))
		pass(time.Minute)
		if s := d.state("0"); s != atoll.RowReady || d.acked("0") != d.seq {
			t.Errorf("the row is %s, acknowledged %d of %d", s, d.acked("0"), d.seq)
		}
	})
}

func TestQueueOrder(t *testing.T) {
	var q queue
	q.order(session.Order{Bundle: "compared-1", Resync: true})
	q.order(session.Order{Bundle: "compared-2", Resync: true})
	q.order(session.Order{Bundle: "changed"})
	q.order(session.Order{Bundle: "compared-2"}) // a person changed it meanwhile
	q.order(session.Order{Bundle: "changed"})
	var got []string
	for {
		task, ok := q.next(false)
		if !ok {
			break
		}
		got = append(got, task.order.Bundle)
	}
	if fmt.Sprint(got) != "[changed compared-2 compared-1]" {
		t.Errorf("sent in the order %v", got)
	}
	q.order(session.Order{Bundle: "changed"})
	put(&q.acks, "b", 4)
	if task, ok := q.next(true); !ok || task.frame.GetReportStored().GetSeq() != 4 {
		t.Error("a hub that holds does not acknowledge")
	}
	if _, ok := q.next(true); ok {
		t.Error("a hub that holds gives orders")
	}
}
