package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
)

// storm of Bundles of 1,000 rows, five slices each.
type storm struct {
	*desk
	bundles, rows int
	reported      map[string]time.Time // what waits for its acknowledgement
	seqs          map[string]int64
	longest       time.Duration
}

func newStorm(t *testing.T, bundles, rows int) *storm {
	s := &storm{desk: newDesk(t), bundles: bundles, rows: rows, reported: map[string]time.Time{}, seqs: map[string]int64{}}
	for b := range bundles {
		specs := map[string]atoll.RowSpec{}
		for i := range rows {
			specs[fmt.Sprint(i)] = active(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		s.desk.rows.set(fmt.Sprint(b), specs)
		s.desk.rows.report(fmt.Sprint(b), at(1, atoll.RowReady, 1))
	}
	return s
}

// turn a row.
func (s *storm) turn(b, i int, to atoll.RowState) {
	bundle, cluster := fmt.Sprint(b), fmt.Sprint(i)
	s.seq++
	st := at(1, to, 1)
	st.UID, st.Seq = "uid-"+cluster, s.seq
	row, _ := s.desk.rows.Get(bundle, cluster)
	s.offer(report{bundle: bundle, cluster: cluster, slice: row.Slice, status: st}, row.Status,
		session.Judge(&row.Spec, reported(row), session.Reported{RowStatus: &st}))
	key := st.UID + " " + bundle
	s.seqs[key] = st.Seq
	if _, waits := s.reported[key]; !waits {
		s.reported[key] = time.Now()
	}
}

// settle what is acknowledged.
func (s *storm) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, since := range s.reported {
		s.longest = max(s.longest, time.Since(since))
		if s.acks[key] >= s.seqs[key] {
			delete(s.reported, key)
		}
	}
}

// flip all rows, each every half minute and all over the slices, for that long.
func (s *storm) flip(span time.Duration, each func(tick int)) {
	const tick, period, apart = 100 * time.Millisecond, 30 * time.Second, 371
	per := s.rows * int(tick/time.Millisecond) / int(period/time.Millisecond)
	states := []atoll.RowState{atoll.RowDegraded, atoll.RowReady}
	for n := range int(span / tick) {
		for i := range per {
			at := n*per + i
			for b := range s.bundles {
				s.turn(b, at*apart%s.rows, states[at/s.rows%2])
			}
		}
		each(n)
		pass(tick)
		s.settle()
	}
}

// TestUpkeepIsBounded: however many rows flap, so many slices are written a second, and
// each row has its turn.
func TestUpkeepIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bundles int
		longest time.Duration
	}{
		{4, atoll.UpkeepSliceEvery + time.Second},
		{100, 5*time.Second + time.Second}, // 500 slices
		{160, 8*time.Second + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			const span = 20 * time.Second
			s := newStorm(t, c.bundles, 1000)
			s.flip(span, func(int) {})
			own := float64(5*c.bundles) * (atoll.UpkeepBurst + 1 + span.Seconds()/atoll.UpkeepSliceEvery.Seconds())
			most := min(own, atoll.UpkeepSlices*(1+span.Seconds()))
			if n := float64(s.desk.rows.written()); n > most {
				t.Errorf("%d Bundles: %v writes, at most %v are asked for", c.bundles, n, most)
			}
			if s.longest > c.longest {
				t.Errorf("%d Bundles: a report waited for %s, at most %s are asked for", c.bundles, s.longest, c.longest)
			}
		})
	}
}

// TestAnOrderWaitsForNoUpkeep: in the midst of a storm, what a user ordered is told at
// once.
func TestAnOrderWaitsForNoUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, 160, 1000)
		s.desk.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", "r1", 1)})
		ordered := int64(1)
		s.flip(20*time.Second, func(tick int) {
			switch {
			case tick%20 == 0:
				ordered++
				s.desk.rows.set("b", map[string]atoll.RowSpec{"0": active("uid-0", fmt.Sprint("r", ordered), ordered)})
				s.say("0", at(ordered, atoll.RowProgressing, 0))
				s.say("0", at(ordered, atoll.RowReady, 1))
			case tick%20 == 6:
				if r, _ := s.desk.rows.Get("b", "0"); r.Status.Generation != ordered || r.Status.State != atoll.RowReady {
					t.Errorf("order %d waits: the row says %+v", ordered, r.Status)
				}
			}
		})
	})
}
