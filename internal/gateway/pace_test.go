package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

func at(generation int64, state atoll.RowState, ready int32) atoll.RowStatus {
	return atoll.RowStatus{
		Generation: generation, Content: fmt.Sprint("r", generation), Applied: true, State: state,
		Ready: ready, Reason: fmt.Sprintf("%d ready", ready),
	}
}

// TestFirstReadyIsNeverLate: whatever was said on the way, the first Ready of every
// generation is written within the time of a flush and a gap.
func TestFirstReadyIsNeverLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for g := range int64(10) {
			d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", fmt.Sprint("r", g), g)})
			for i := range int32(40) {
				d.say("0", at(g, atoll.RowProgressing, i))
				pass(100 * time.Millisecond)
			}
			d.say("0", at(g, atoll.RowReady, 40))
			pass(450 * time.Millisecond)
			if s := d.state("0"); s != atoll.RowReady {
				t.Errorf("generation %d is %s", g, s)
			}
		}
	})
}

// TestOneDeploymentCostsTwoWrites: three clusters go through pending, applied and
// three counts to Ready within half a second, each at its own pace.
func TestOneDeploymentCostsTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range 3 {
			specs[fmt.Sprint(i)] = active(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.set("b", specs)
		for step := range 7 {
			for i := range 3 {
				s := at(1, atoll.RowProgressing, int32(step))
				s.Applied = step > 1
				if step+i >= 6 {
					s = at(1, atoll.RowReady, 6)
				}
				d.say(fmt.Sprint(i), s)
				pass(25 * time.Millisecond)
			}
		}
		pass(450 * time.Millisecond)
		for c := range specs {
			if d.state(c) != atoll.RowReady {
				t.Errorf("cluster %s is %s", c, d.state(c))
			}
		}
		if n := d.rows.written(); n > 2 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestProgressIsWrittenEverMoreSeldom: who watches sees counts move every second at
// first; a rollout that hangs costs four writes a minute; the last word arrives.
func TestProgressIsWrittenEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
		count, writes := int32(0), 0
		during := func(length time.Duration) int {
			for range int(length / (200 * time.Millisecond)) {
				count++
				d.say("0", at(1, atoll.RowProgressing, count))
				pass(200 * time.Millisecond)
			}
			was := writes
			writes = d.rows.written()
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
		pass(16 * time.Second)
		if r, _ := d.rows.Get("b", "0"); r.Status.Ready != count || d.acked("0") != d.seq {
			t.Errorf("%d of %d arrived, acknowledged %d of %d", r.Status.Ready, count, d.acked("0"), d.seq)
		}
	})
}

// TestFlappingInAnyShape: a row that turns, that turns and counts, or whose failure
// changes its reason, costs a few writes and then at most one per quiet interval
// for its turns; what it costs others of its Bundle is nothing.
func TestFlappingInAnyShape(t *testing.T) {
	failed := func(reason string) atoll.RowStatus {
		s := at(1, atoll.RowFailed, 0)
		s.Items = []atoll.ItemStatus{{Key: atoll.ItemKey{Kind: "ConfigMap", Name: "a"}, Error: true, Reason: reason}}
		return s
	}
	for name, words := range map[string][]atoll.RowStatus{
		"turns":    {at(1, atoll.RowReady, 2), at(1, atoll.RowDegraded, 2)},
		"counts":   {at(1, atoll.RowReady, 2), at(1, atoll.RowProgressing, 1), at(1, atoll.RowProgressing, 0), at(1, atoll.RowProgressing, 1)},
		"failures": {failed("Forbidden"), failed("Conflict")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t)
				d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
				for _, every := range []time.Duration{130 * time.Millisecond, time.Second, 4 * time.Second} {
					begin := d.rows.written()
					for i := range int(10 * time.Minute / every) {
						d.say("0", words[i%len(words)])
						pass(every)
					}
					if n := d.rows.written() - begin; n < 8 || n > 60 {
						t.Errorf("%d writes in ten minutes of flapping every %s", n, every)
					}
				}
				before := d.rows.written()
				d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r2", 2)})
				d.say("0", at(2, atoll.RowReady, 2))
				pass(450 * time.Millisecond)
				if n := d.rows.written() - before; n > 2 || d.state("0") != atoll.RowReady {
					t.Errorf("a new order after flapping: %d writes, state %s", n, d.state("0"))
				}
			})
		})
	}
}

// TestManyRowsShareWrites: of 1,000 rows that turn Ready one after the other, each
// write takes many: about 15 flushes of five slices and a bit.
func TestManyRowsShareWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		specs := map[string]atoll.RowSpec{}
		for i := range 1000 {
			specs[fmt.Sprint(i)] = active(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.set("b", specs)
		for i := range 1000 {
			d.say(fmt.Sprint(i), at(1, atoll.RowReady, 1))
			pass(10 * time.Millisecond)
		}
		pass(2 * time.Second)
		if n := d.rows.written(); n > 100 || d.acked("999") != 1000 {
			t.Errorf("%d writes for 1,000 rows in 10 s, the last acknowledged %d", n, d.acked("999"))
		}
	})
}

// TestReportsOfCheckInsAreGathered: 1,000 agents that check in once in 15 minutes, each
// progressing and then Ready, cost each of their five slices some thirty writes; each has its answer while it
// stays, and a single one at once.
func TestReportsOfCheckInsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows, interval = 1000, 15 * time.Minute
		d := newDesk(t)
		d.every = interval
		specs := map[string]atoll.RowSpec{}
		for i := range rows {
			specs[fmt.Sprint(i)] = active(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		d.rows.set("b", specs)
		told := map[string]time.Time{}
		for i := range rows {
			name := fmt.Sprint(i)
			d.say(name, at(1, atoll.RowProgressing, 0))
			pass(interval / rows / 2)
			d.say(name, at(1, atoll.RowReady, 1))
			told[name] = time.Now()
			pass(interval / rows / 2)
			for name, since := range told {
				if wait := time.Since(since); d.state(name) == atoll.RowReady {
					delete(told, name)
				} else if wait > lullMost+time.Second || i == 0 {
					t.Fatalf("cluster %s waits for %s", name, wait)
				}
			}
		}
		pass(lullMost + time.Second)
		if n := d.rows.written(); n > 160 || d.state("999") != atoll.RowReady {
			t.Errorf("%d writes for %d agents that check in; the last is %s", n, rows, d.state("999"))
		}
	})
}

// TestRemovalsAreMilestones: what waits for a removal waits for one flush.
func TestRemovalsAreMilestones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
		for i := range 100 { // spend all tokens
			d.say("0", at(1, []atoll.RowState{atoll.RowReady, atoll.RowDegraded}[i%2], 1))
			pass(time.Second)
		}
		s := at(1, atoll.RowDegraded, 1)
		s.Gone = []string{"v1/ConfigMap a u1"}
		d.say("0", s)
		pass(450 * time.Millisecond)
		if r, _ := d.rows.Get("b", "0"); len(r.Status.Gone) != 1 {
			t.Error("a tombstone that is carried out waits")
		}
		d.say("0", at(1, atoll.RowRemoved, 0))
		pass(450 * time.Millisecond)
		if d.state("0") != atoll.RowRemoved {
			t.Errorf("a removed row is %s", d.state("0"))
		}
	})
}
