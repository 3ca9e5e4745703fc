package delivery

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func statusAt(generation int64, state atoll.RowState, ready int32) atoll.RowStatus {
	return atoll.RowStatus{
		Generation: generation, Content: fmt.Sprint("r", generation), Applied: true, State: state,
		Ready: ready, Reason: atoll.Reason(fmt.Sprintf("%d ready", ready)),
	}
}

// TestFirstReadyIsNeverLate: whatever was said on the way, the first Ready of every
// generation is written within the time of a flush and a gap.
func TestFirstReadyIsNeverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		for g := range int64(10) {
			d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", fmt.Sprint("r", g), g)})
			for i := range int32(40) {
				d.reportRow("0", statusAt(g, atoll.RowProgressing, i))
				passTime(100 * time.Millisecond)
			}
			d.reportRow("0", statusAt(g, atoll.RowReady, 40))
			passTime(450 * time.Millisecond)
			if s := d.rowState("0"); s != atoll.RowReady {
				t.Errorf("generation %d is %s", g, s)
			}
		}
	})
}

// TestOneDeploymentCostsTwoWrites: three clusters go through pending, applied and
// three counts to Ready within half a second, each at its own pace.
func TestOneDeploymentCostsTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range 3 {
			specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.setRows("b", specs)
		for step := range 7 {
			for i := range 3 {
				s := statusAt(1, atoll.RowProgressing, int32(step))
				s.Applied = step > 1
				if step+i >= 6 {
					s = statusAt(1, atoll.RowReady, 6)
				}
				d.reportRow(fmt.Sprint(i), s)
				passTime(25 * time.Millisecond)
			}
		}
		passTime(450 * time.Millisecond)
		for c := range specs {
			if d.rowState(c) != atoll.RowReady {
				t.Errorf("cluster %s is %s", c, d.rowState(c))
			}
		}
		if n := d.rows.countWrites(); n > 2 {
			t.Errorf("%d writes", n)
		}
	})
}

// Counts are written every second at first. A rollout that hangs costs four writes a
// minute. The last report arrives.
func TestProgressIsWrittenLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		count, writes := int32(0), 0
		during := func(length time.Duration) int {
			for range int(length / (200 * time.Millisecond)) {
				count++
				d.reportRow("0", statusAt(1, atoll.RowProgressing, count))
				passTime(200 * time.Millisecond)
			}
			was := writes
			writes = d.rows.countWrites()
			return writes - was
		}
		if n := during(5 * time.Second); n < 4 || n > 6 {
			t.Errorf("%d writes in the first 5 s", n)
		}
		if n := during(55 * time.Second); n > 18 {
			t.Errorf("%d writes in the rest of the minute", n)
		}
		during(time.Minute)
		if n := during(10 * time.Minute); n > 41 {
			t.Errorf("%d writes in ten minutes of a rollout that hangs", n)
		}
		passTime(16 * time.Second)
		if r, _ := d.rows.Get("b", "0"); r.Status.Ready != count || d.ackedSeq("0") != d.seq {
			t.Errorf("%d of %d arrived, acknowledged %d of %d", r.Status.Ready, count, d.ackedSeq("0"), d.seq)
		}
	})
}

// TestEveryKindOfFlappingIsBounded: a row that turns, that turns and counts, or whose failure
// changes its reason, costs a few writes and then at most one per quiet interval
// for its turns; what it costs others of its Bundle is nothing.
func TestEveryKindOfFlappingIsBounded(t *testing.T) {
	failed := func(reason atoll.Reason) atoll.RowStatus {
		s := statusAt(1, atoll.RowFailed, 0)
		s.Items = []atoll.ItemStatus{{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "a"}, Error: true, Reason: reason}}
		return s
	}
	for name, words := range map[string][]atoll.RowStatus{
		"turns":    {statusAt(1, atoll.RowReady, 2), statusAt(1, atoll.RowDegraded, 2)},
		"counts":   {statusAt(1, atoll.RowReady, 2), statusAt(1, atoll.RowProgressing, 1), statusAt(1, atoll.RowProgressing, 0), statusAt(1, atoll.RowProgressing, 1)},
		"failures": {failed("Forbidden"), failed("Conflict")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newReportDesk(t)
				d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
				for _, every := range []time.Duration{130 * time.Millisecond, time.Second, 4 * time.Second} {
					begin := d.rows.countWrites()
					for i := range int(10 * time.Minute / every) {
						d.reportRow("0", words[i%len(words)])
						passTime(every)
					}
					if n := d.rows.countWrites() - begin; n < 8 || n > 60 {
						t.Errorf("%d writes in ten minutes of flapping every %s", n, every)
					}
				}
				before := d.rows.countWrites()
				d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r2", 2)})
				d.reportRow("0", statusAt(2, atoll.RowReady, 2))
				passTime(450 * time.Millisecond)
				if n := d.rows.countWrites() - before; n > 2 || d.rowState("0") != atoll.RowReady {
					t.Errorf("a new order after flapping: %d writes, state %s", n, d.rowState("0"))
				}
			})
		})
	}
}

// TestManyRowsShareWrites: of 1,000 rows that turn Ready one after the other, each
// write takes many: about 15 flushes of five slices and a bit.
func TestManyRowsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range 1000 {
			specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.setRows("b", specs)
		for i := range 1000 {
			d.reportRow(fmt.Sprint(i), statusAt(1, atoll.RowReady, 1))
			passTime(10 * time.Millisecond)
		}
		passTime(2 * time.Second)
		if n := d.rows.countWrites(); n > 100 || d.ackedSeq("999") != 1000 {
			t.Errorf("%d writes for 1,000 rows in 10 s, the last acknowledged %d", n, d.ackedSeq("999"))
		}
	})
}

// TestReportsOfCheckInsAreGathered: 1,000 agents that check in once in 15 minutes, each
// progressing and then Ready, cost each of their five slices some thirty writes; each has its answer while it
// stays, and a single one at once.
func TestReportsOfCheckInsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows, interval = 1000, 15 * time.Minute
		d := newReportDesk(t)
		d.every = interval
		specs := map[string]atoll.RowSpec{}
		for i := range rows {
			specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.setRows("b", specs)
		reported := map[string]time.Time{}
		for i := range rows {
			name := fmt.Sprint(i)
			d.reportRow(name, statusAt(1, atoll.RowProgressing, 0))
			passTime(interval / rows / 2)
			d.reportRow(name, statusAt(1, atoll.RowReady, 1))
			reported[name] = time.Now()
			passTime(interval / rows / 2)
			for name, since := range reported {
				if wait := time.Since(since); d.rowState(name) == atoll.RowReady {
					delete(reported, name)
				} else if wait > maxGatherDelay+time.Second || i == 0 {
					t.Fatalf("cluster %s waits for %s", name, wait)
				}
			}
		}
		passTime(maxGatherDelay + time.Second)
		if n := d.rows.countWrites(); n > 160 || d.rowState("999") != atoll.RowReady {
			t.Errorf("%d writes for %d agents that check in; the last is %s", n, rows, d.rowState("999"))
		}
	})
}

// A removal is written within one flush.
func TestRemovalsAreMilestones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newReportDesk(t)
		d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		for i := range 100 { // spend all tokens
			d.reportRow("0", statusAt(1, []atoll.RowState{atoll.RowReady, atoll.RowDegraded}[i%2], 1))
			passTime(time.Second)
		}
		s := statusAt(1, atoll.RowDegraded, 1)
		s.DoneTombstones = []string{"v1/ConfigMap a u1"}
		d.reportRow("0", s)
		passTime(450 * time.Millisecond)
		if r, _ := d.rows.Get("b", "0"); len(r.Status.DoneTombstones) != 1 {
			t.Error("a tombstone that is carried out waits")
		}
		d.reportRow("0", statusAt(1, atoll.RowRemoved, 0))
		passTime(450 * time.Millisecond)
		if d.rowState("0") != atoll.RowRemoved {
			t.Errorf("a removed row is %s", d.rowState("0"))
		}
	})
}

// The report that completes a small Bundle waits for no other one, and for no gap between writes.
func TestTheLastReadyIsWrittenAtOnce(t *testing.T) {
	for rows, isAtOnce := range map[int]bool{3: true, state.SmallBundle: true, state.SmallBundle + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			d := newReportDesk(t)
			specs := map[string]atoll.RowSpec{}
			for i := range rows {
				specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
			}
			d.rows.setRows("b", specs)
			ready := atoll.RowStatus{Generation: 1, Content: "r1", State: atoll.RowReady, Applied: true}
			for i := range rows - 1 {
				d.reportRow(fmt.Sprint(i), ready)
			}
			passTime(101 * time.Millisecond)
			if n := d.rows.countWrites(); n != 1 {
				t.Fatalf("of %d rows: %d writes of all but one", rows, n)
			}
			last := fmt.Sprint(rows - 1)
			d.reportRow(last, ready)
			passTime(time.Millisecond)
			if is := d.rowState(last) == atoll.RowReady; is != isAtOnce {
				t.Errorf("of %d rows, the last one is written at once: %v, want %v", rows, is, isAtOnce)
			}
			passTime(time.Second)
			if n := d.rows.countWrites(); n != 2 || d.rowState(last) != atoll.RowReady {
				t.Errorf("of %d rows: %d writes, the last row is %q", rows, n, d.rowState(last))
			}
		})
	}
}
