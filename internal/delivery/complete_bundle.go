package delivery

import (
	"time"

	"atoll.dev/atoll/internal/state"
)

// hastenCompletingReport makes a report due at once that completes its Bundle. The caller holds the lock.
func (t *reportWriter) hastenCompletingReport(r *pendingReport, p *bundleReports, now time.Time) {
	if r.weight != weightMilestone || !t.completesBundle(r, p) {
		return
	}
	r.dueAt = now
	if p.retryDelay == 0 {
		p.notBefore = now // no further report is to be gathered
	}
}

// completesBundle reports whether each row of a small Bundle is Ready, with the report and what is
// pending. Such a report comes once per order, and users wait for it. The caller holds the lock.
func (t *reportWriter) completesBundle(r *pendingReport, p *bundleReports) bool {
	rows := t.bundleRows.ListOfSmallBundle(r.bundle)
	for i, row := range rows {
		if row.Spec.UID == r.status.UID {
			rows[i].Status = &r.status
		} else if other, isPending := p.rows[row.Spec.UID]; isPending {
			rows[i].Status = &other.status
		}
	}
	return state.AllReady(rows)
}
