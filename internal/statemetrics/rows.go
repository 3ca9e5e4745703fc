package statemetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/metrictable"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/state"
)

// labelNone is the label of a row that waits for nothing.
const labelNone = "None"

type rowKey struct{ phase, reason string }

// rowCounts counts rows by phase and reason.
type rowCounts struct {
	counts map[rowKey]int
	waits  map[string]*waitAges // by reason
	// drifted is the sum of RowStatus.Drifted.
	drifted int

	total, oldest, driftedTotal *prometheus.Desc
}

func newRowCounts() rowCounts {
	return rowCounts{counts: map[rowKey]int{}, waits: map[string]*waitAges{}, total: metrictable.Rows.NewDesc(), oldest: metrictable.RowOldestWait.NewDesc(), driftedTotal: metrictable.DriftedObjects.NewDesc()}
}

// countTransition counts a row where it is now and no longer where it was.
func (r *rowCounts) countTransition(change state.RowTransition) {
	r.countRow(change.Before, -1)
	r.countRow(change.After, 1)
}

func (r *rowCounts) countRow(row rowcodec.Summary, n int) {
	if row.Phase == "" {
		return
	}
	r.drifted += n * int(row.Drifted)
	reason, start := waitOfRow(row)
	r.counts[rowKey{phaseMetricLabel(row.Phase), reason}] += n
	if start == 0 {
		return
	}
	if r.waits[reason] == nil {
		r.waits[reason] = newWaitAges()
	}
	if n > 0 {
		r.waits[reason].addStart(start)
	} else {
		r.waits[reason].removeStart(start)
	}
}

func (r *rowCounts) collectGauges(out chan<- prometheus.Metric, now time.Time) {
	out <- prometheus.MustNewConstMetric(r.driftedTotal, prometheus.GaugeValue, float64(r.drifted))
	for key, n := range r.counts {
		out <- prometheus.MustNewConstMetric(r.total, prometheus.GaugeValue, float64(n), key.phase, key.reason)
	}
	for reason, ages := range r.waits {
		out <- prometheus.MustNewConstMetric(r.oldest, prometheus.GaugeValue, ages.oldestAge(now), reason)
	}
}

func phaseMetricLabel(p atoll.RowPhase) string {
	switch p {
	case atoll.RowActive, atoll.RowLeaving, atoll.RowHeld, atoll.RowRemoving, atoll.RowVacant, atoll.RowPending:
		return string(p)
	}
	return labelOther
}

// waitOfRow returns the reason of a row's wait and when the wait began, in Unix seconds; 0 when no
// such time is stored. It reads the row alone, not whether its cluster is connected.
func waitOfRow(row rowcodec.Summary) (reason string, start int64) {
	isCurrent := row.IsReported && row.ReportedGeneration == row.Generation
	switch {
	case atoll.ParseRowReason(row.Reason).Plan != "", row.Phase == atoll.RowHeld:
		return string(atoll.ReasonWaitsForConfirmation), row.Since
	case row.Phase == atoll.RowPending:
		return string(atoll.ParseRowReason(row.Reason).Reason), row.Since
	case row.Phase == atoll.RowLeaving:
		return waitOfLeavingRow(row.Reason), row.Since
	case row.Phase == atoll.RowRemoving && !(isCurrent && row.State == atoll.RowRemoved):
		return string(atoll.ReasonWaitsForRemoval), row.Since
	case row.Phase != atoll.RowActive:
		return labelNone, 0
	case !isCurrent:
		return string(atoll.ReasonWaitsForApply), 0
	case row.WaitReason != "":
		return string(row.WaitReason), row.StateTime
	case atoll.ParseRowReason(row.Reason).Reason == atoll.ReasonNoCapacity:
		return string(atoll.ReasonNoCapacity), row.StateTime
	}
	return labelNone, 0
}

// waitOfLeavingRow returns the reason of the wait of a row that is to go: a budget that keeps it, or its replacements.
func waitOfLeavingRow(stored string) string {
	if reason := atoll.ParseRowReason(stored).Reason; atoll.IsBudgetReason(reason) {
		return string(reason)
	}
	return string(atoll.ReasonWaitsForReplacements)
}
