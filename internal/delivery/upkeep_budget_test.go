package delivery

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/session"
)

// statusStorm of Bundles of 1,000 rows, five slices each.
type statusStorm struct {
	*reportDesk
	bundles, rows int
	reported      map[string]time.Time // what waits for its acknowledgement
	seqs          map[string]int64
	longest       time.Duration
}

func newStatusStorm(t *testing.T, bundles, rows int) *statusStorm {
	s := &statusStorm{reportDesk: newReportDesk(t), bundles: bundles, rows: rows, reported: map[string]time.Time{}, seqs: map[string]int64{}}
	for b := range bundles {
		specs := map[string]atoll.RowSpec{}
		for i := range rows {
			specs[fmt.Sprint(i)] = activeSpec(fmt.Sprintf("uid-%d", i), "r1", 1)
		}
		s.reportDesk.rows.setRows(fmt.Sprint(b), specs)
		s.reportDesk.rows.setStatus(fmt.Sprint(b), statusAt(1, atoll.RowReady, 1))
	}
	return s
}

// reportChange reports the change of a row.
func (s *statusStorm) reportChange(b, i int, to atoll.RowState) {
	bundle, cluster := fmt.Sprint(b), fmt.Sprint(i)
	s.seq++
	st := statusAt(1, to, 1)
	st.UID, st.Seq = "uid-"+cluster, s.seq
	row, _ := s.reportDesk.rows.Get(bundle, cluster)
	s.offerReport(pendingReport{bundle: bundle, cluster: cluster, slice: row.Slice, status: st}, row.Status,
		session.JudgeReport(&row.Spec, reportedStatus(row), session.Reported{RowStatus: &st}))
	key := st.UID + " " + bundle
	s.seqs[key] = st.Seq
	if _, waits := s.reported[key]; !waits {
		s.reported[key] = time.Now()
	}
}

// settleAcked drops the reports that are acknowledged.
func (s *statusStorm) settleAcked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, since := range s.reported {
		s.longest = max(s.longest, time.Since(since))
		if s.acks[key] >= s.seqs[key] {
			delete(s.reported, key)
		}
	}
}

// flipRows changes all rows, each every half minute and spread over the slices, for that
// long.
func (s *statusStorm) flipRows(span time.Duration, each func(tick int)) {
	const tick, period, apart = 100 * time.Millisecond, 30 * time.Second, 371
	per := s.rows * int(tick/time.Millisecond) / int(period/time.Millisecond)
	states := []atoll.RowState{atoll.RowDegraded, atoll.RowReady}
	for n := range int(span / tick) {
		for i := range per {
			at := n*per + i
			for b := range s.bundles {
				s.reportChange(b, at*apart%s.rows, states[at/s.rows%2])
			}
		}
		each(n)
		passTime(tick)
		s.settleAcked()
	}
}

// However many rows flap, the slices written per second are bounded, and each row is
// written in turn.
func TestUpkeepIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bundles int
		longest time.Duration
	}{
		{4, pace.BundleSliceWrites.Interval + time.Second},
		{100, 5*time.Second + time.Second}, // 500 slices
		{160, 8*time.Second + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			const span = 20 * time.Second
			s := newStatusStorm(t, c.bundles, 1000)
			s.flipRows(span, func(int) {})
			own := float64(5*c.bundles) * (float64(pace.BundleSliceWrites.Burst) + 1 + span.Seconds()/pace.BundleSliceWrites.Interval.Seconds())
			most := min(own, pace.SliceWrites.TokensPerSecond()*(1+span.Seconds()))
			if n := float64(s.reportDesk.rows.countWrites()); n > most {
				t.Errorf("%d Bundles: %v writes, at most %v are asked for", c.bundles, n, most)
			}
			if s.longest > c.longest {
				t.Errorf("%d Bundles: a report waited for %s, at most %s are asked for", c.bundles, s.longest, c.longest)
			}
		})
	}
}

// The status of a user's order is written at once in the midst of a storm.
func TestOrdersDoNotWaitForUpkeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStatusStorm(t, 160, 1000)
		s.reportDesk.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		ordered := int64(1)
		s.flipRows(20*time.Second, func(tick int) {
			switch {
			case tick%20 == 0:
				ordered++
				s.reportDesk.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", fmt.Sprint("r", ordered), ordered)})
				s.reportRow("0", statusAt(ordered, atoll.RowProgressing, 0))
				s.reportRow("0", statusAt(ordered, atoll.RowReady, 1))
			case tick%20 == 6:
				if r, _ := s.reportDesk.rows.Get("b", "0"); r.Status.Generation != ordered || r.Status.State != atoll.RowReady {
					t.Errorf("order %d waits: the row says %+v", ordered, r.Status)
				}
			}
		})
	})
}
