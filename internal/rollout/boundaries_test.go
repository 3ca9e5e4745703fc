package rollout

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

func TestDirectDeletesUpToTheLimitGo(t *testing.T) {
	for recent, over := range map[int]bool{DirectDeleteLimit - 1: false, DirectDeleteLimit: true} {
		s := newRolloutStep(Input{RecentDeletes: recent, Deleting: true}, false)
		s.newlyLeaving = []string{"a"}
		if s.isDeletionOverLimit() != over {
			t.Errorf("%d recent deletes and one more: over the limit is %t", recent, !over)
		}
		s = newRolloutStep(Input{
			RecentDeletes: recent, DeletedItems: map[string][]string{"r1": {"x u"}},
			Rows: map[string]Row{"a": {Spec: atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}}},
		}, false)
		s.nextSpecs["a"] = &atoll.RowSpec{Revision: "r2", Phase: atoll.RowActive}
		s.holdRowsLosingDeletedItems()
		if held := s.nextSpecs["a"].Revision == "r1"; held != over || s.directDeletes != map[bool]int{false: 1}[over] {
			t.Errorf("%d recent deletes: the row is held: %t, counted: %d", recent, held, s.directDeletes)
		}
	}
}

func TestTheLedgerForgetsAtTheEndOfTheWindow(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	for after, kept := range map[time.Duration]bool{RemovalWindow - 1: true, RemovalWindow: false} {
		var l RemovalLedger
		l.RecordDeletes("ns", at, 2)
		l.RecordDeletes("ns", at, 3)
		l.RecordRemovedClusters("b", at, []string{"a"})
		if n := l.CountDeletes("ns", at.Add(after)); (n == 5) != kept {
			t.Errorf("%d deletes after %s", n, after)
		}
		if names := l.RemovedClusters("b", at.Add(after)); (len(names) == 1) != kept {
			t.Errorf("removed from %v after %s", names, after)
		}
	}
}

// A wait ends at the second of its timeout, counted from its begin or from the last arrival.
func TestWaitsEndWithTheirTimeout(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for _, tc := range []struct {
		since, latest int64
		now           time.Time
		over          bool
	}{
		{begin.Unix(), 0, begin.Add(ReadinessTimeout - 1), false},
		{begin.Unix(), 0, begin.Add(ReadinessTimeout), true},
		{begin.Unix(), begin.Unix() + 60, begin.Add(ReadinessTimeout), false},
		{begin.Unix(), begin.Unix() + 60, begin.Add(ReadinessTimeout + time.Minute), true},
	} {
		s := newRolloutStep(Input{Now: tc.now}, false)
		b := &blockerSet{clusters: []string{"a"}, latestArrivals: [2]int64{tc.latest}, longestTimeouts: [2]time.Duration{ReadinessTimeout}}
		if over := s.hasTimedOut(tc.since, b); over != tc.over || s.requeueAt.IsZero() != over {
			t.Errorf("%+v: over is %t, next step at %s", tc, over, s.requeueAt)
		}
	}
	for after, recent := range map[time.Duration]bool{ReadinessTimeout - 1: true, ReadinessTimeout: false} {
		s := newRolloutStep(Input{Now: begin.Add(after), Rows: map[string]Row{"a": {Online: true}, "b": {}}}, false)
		s.nextSpecs["a"], s.nextSpecs["b"] = &atoll.RowSpec{Since: begin.Unix()}, &atoll.RowSpec{Since: begin.Unix()}
		if s.isRecentArrival("a") != recent || s.isRecentArrival("b") {
			t.Errorf("%s after it came: recent is %t", after, !recent)
		}
	}
}

func TestReadinessTimeoutGrowsWithCheckIns(t *testing.T) {
	for every, want := range map[time.Duration]time.Duration{
		0: ReadinessTimeout, ReadinessTimeout / ReadinessCheckIns: ReadinessTimeout, time.Hour: ReadinessCheckIns * time.Hour,
	} {
		if got := (Row{CheckIn: every}).readinessTimeout(); got != want {
			t.Errorf("checked in every %s: %s, want %s", every, got, want)
		}
	}
}

func TestRequeueTakesTheEarliestTime(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	s := newRolloutStep(Input{}, false)
	for _, later := range []time.Duration{time.Minute, time.Hour, time.Second} {
		s.requeueNoLater(at.Add(later))
	}
	if !s.requeueAt.Equal(at.Add(time.Second)) {
		t.Errorf("next step at %s", s.requeueAt)
	}
}
