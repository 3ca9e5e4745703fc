package delivery

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// TestAHostileAgentCausesFewWrites: an agent with one row reports milestones without end, which need
// no budget of upkeep. Its writes keep to its allowance, the last one is stored, and a neighbour's
// report is written at once.
func TestAHostileAgentCausesFewWrites(t *testing.T) {
	flap := map[string]func(i int) atoll.RowStatus{
		"tombstones": func(i int) atoll.RowStatus {
			s := statusAt(1, atoll.RowReady, 1)
			s.DoneTombstones = []string{fmt.Sprint("ConfigMap/", i, " uid")}
			return s
		},
		"removals": func(i int) atoll.RowStatus {
			return statusAt(1, []atoll.RowState{atoll.RowRemoved, atoll.RowProgressing}[i%2], 1)
		},
		"contents": func(i int) atoll.RowStatus {
			s := statusAt(1, []atoll.RowState{atoll.RowReady, atoll.RowFailed}[i%2], 1)
			s.Content = fmt.Sprint(i)
			return s
		},
	}
	for name, status := range flap {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newReportDesk(t)
				d.rows.setRows("b", map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
				d.rows.setRows("other", map[string]atoll.RowSpec{"1": activeSpec("uid-1", "r1", 1)})
				const span, tick = 5 * time.Minute, 10 * time.Millisecond
				for i := range int(span / tick) {
					d.reportRow("0", status(i))
					passTime(tick)
				}
				most := clusterWriteRate(1).Burst + int(span.Seconds()*(1+1/allowanceRowInterval.Seconds())) + 1
				if n := d.rows.countWrites(); n > most {
					t.Errorf("one agent with one row caused %d writes in %s, at most %d are allowed", n, span, most)
				}
				honest, _ := d.rows.Get("other", "1")
				ready := statusAt(1, atoll.RowReady, 1)
				ready.UID, ready.Seq = "uid-1", 1
				d.offerReport(pendingReport{bundle: "other", cluster: "1", slice: honest.Slice, status: ready}, nil, judgeStatus(honest, ready))
				passTime(150 * time.Millisecond)
				if r, _ := d.rows.Get("other", "1"); r.Status == nil || r.Status.State != atoll.RowReady {
					t.Error("a neighbour's report waits")
				}
				passTime(5 * time.Second)
				if d.ackedSeq("0") != d.seq {
					t.Errorf("the last report is lost: %d of %d is acknowledged", d.ackedSeq("0"), d.seq)
				}
			})
		})
	}
}

// TestARolloutOfManyRowsIsNotSlowed: a thousand rows of one cluster report twice each, for one change
// that concerns all.
func TestARolloutOfManyRowsIsNotSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rows = 1000
		d := newReportDesk(t)
		for i := range rows {
			d.rows.setRows(fmt.Sprint(i), map[string]atoll.RowSpec{"0": activeSpec("uid-0", "r1", 1)})
		}
		for _, state := range []atoll.RowState{atoll.RowProgressing, atoll.RowReady} {
			for i := range rows {
				row, _ := d.rows.Get(fmt.Sprint(i), "0")
				d.seq++
				s := statusAt(1, state, 1)
				s.UID, s.Seq = "uid-0", d.seq
				d.offerReport(pendingReport{bundle: fmt.Sprint(i), cluster: "0", slice: row.Slice, status: s}, row.Status, judgeStatus(row, s))
			}
			passTime(time.Second)
		}
		for i := range rows {
			if r, _ := d.rows.Get(fmt.Sprint(i), "0"); r.Status == nil || r.Status.State != atoll.RowReady {
				t.Fatalf("row %d waits: %+v", i, r.Status)
			}
		}
	})
}

// TestAllowancesAreForgotten: those of clusters that report nothing take no memory.
func TestAllowancesAreForgotten(t *testing.T) {
	a := newClusterAllowances(func(string) int { return 1 })
	now := time.Unix(0, 0)
	for i := range 1000 {
		a.reserveTurn(fmt.Sprint(i), now)
		now = now.Add(time.Minute)
	}
	if n := len(a.byUID); n > 4 {
		t.Errorf("%d are kept", n)
	}
}
