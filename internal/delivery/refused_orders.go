package delivery

import (
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/state"
)

// An order that no agent takes is not sent: the agent could not read the frame, and would end each session at it, with
// the orders of all other Bundles. The hub writes into the row why, and what the member holds stays. A newer generation
// of the row is another order, and so is the order of the next session.

// refusedOrder is an order that is not sent. It is immutable.
type refusedOrder struct {
	generation int64
	message    string
	at         time.Time
}

// refuseOrder records in the row that its order is not sent.
func (s *agentSession) refuseOrder(row state.Row, tooLarge *session.OrderTooLargeError) {
	refused := &refusedOrder{generation: row.Spec.Generation, message: s.describeTooLarge(tooLarge), at: time.Now()}
	s.sessionLog().Error("an order is not sent; the member keeps what it has", "reason", atoll.ReasonOrderTooLarge, "bundle", row.Bundle.UID, "namespace", row.Bundle.Namespace, "name", row.Bundle.Name, "generation", row.Spec.Generation, "why", refused.message)
	s.gateway.reportWriter.offerRefusal(pendingReport{
		bundle: row.Bundle.UID, cluster: s.cluster, slice: row.Slice, refused: refused, ofHub: true,
		status: refused.addTo(heldStatus(row)), checkInInterval: s.announcedCheckInInterval(),
	}, row.Status)
}

// describeTooLarge returns what is too large, by how much, and what to do.
func (s *agentSession) describeTooLarge(tooLarge *session.OrderTooLargeError) string {
	todo := "divide the objects over several policies, or shorten itemRules"
	if !s.listsAssessments {
		todo = "upgrade the agent, or " + todo
	}
	return fmt.Sprintf("the order is not sent: %v; %s", tooLarge, todo)
}

// heldStatus returns what the row's cluster reported last, with the number of the report. Without a report it is empty.
func heldStatus(row state.Row) atoll.RowStatus {
	if row.Status == nil {
		return atoll.RowStatus{UID: row.Spec.UID}
	}
	return *row.Status
}

// addTo returns the status of a row whose order is refused, with what the cluster holds. No tombstone of the order counts
// as carried out that was not before.
func (o *refusedOrder) addTo(held atoll.RowStatus) atoll.RowStatus {
	return atoll.RowStatus{
		UID: held.UID, Seq: held.Seq, Generation: o.generation, State: atoll.RowFailed, Reason: atoll.ReasonOrderTooLarge,
		Message: o.message, Since: o.at.Unix(), Total: held.Total, Ready: held.Ready, Items: held.Items,
		UnlistedNotReady: held.UnlistedNotReady, Drifted: held.Drifted, DoneTombstones: held.DoneTombstones,
	}
}

// withRefusal returns a report of what a cluster holds, with the refusal that its row states of a newer order. Without
// one it is the report itself.
func withRefusal(row state.Row, report atoll.RowStatus) atoll.RowStatus {
	st := row.Status
	if st == nil || st.Reason != atoll.ReasonOrderTooLarge || st.Generation != row.Spec.Generation || report.Generation >= st.Generation {
		return report
	}
	refused := refusedOrder{generation: st.Generation, message: st.Message, at: st.SinceTime()}
	return refused.addTo(report)
}

// offerRefusal keeps the refusal of a row's order until it is written. A report of the agent that waits is written with it.
func (t *reportWriter) offerRefusal(r pendingReport, stored *atoll.RowStatus) {
	now, uid := time.Now(), r.status.UID
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.ensureBundle(r.bundle)
	if waiting, has := p.rows[uid]; has && !waiting.ofHub {
		r.status, r.hash, r.ofHub = waiting.status, waiting.hash, false
		r.receivedAt, r.turnAt = waiting.receivedAt, waiting.turnAt
	} else {
		r.receivedAt, r.turnAt = now, now.Add(t.allowances.waitTime(uid, now))
	}
	r.weight, r.dueAt = p.assessReportUrgency(r, stored, now, writePacing{t.flushAfter, t.quietInterval})
	if r.dueAt.Before(r.turnAt) {
		r.dueAt = r.turnAt
	}
	p.rows[uid] = r
	if due, known := p.dueTime(r); known {
		t.scheduleFlush(r.bundle, p, due)
	}
}

// isRefusedNow reports whether the row's present order is refused. A report of that order, which the agent sent since, has
// come by another session. The row itself may have one of an agent that lost what it held.
func (r pendingReport) isRefusedNow(row state.Row) bool {
	if r.refused == nil || r.refused.generation != row.Spec.Generation {
		return false
	}
	return r.ofHub || r.status.Generation < r.refused.generation
}

// prepareWrite returns a pending report as it is written into its row, with the refusal that is to stay, and judges it.
// The verdict has the acknowledgement, also of a report that is to be written. A refusal of the hub alone has the next
// number: an agent that uses the number, too, gets a higher one.
func (r pendingReport) prepareWrite(row state.Row) (pendingReport, session.Verdict) {
	if r.ofHub {
		r.status, r.hash = heldStatus(row), ""
	}
	held := r.status
	refusedNow := r.isRefusedNow(row)
	if refusedNow {
		r.status = r.refused.addTo(held)
	} else {
		r.status = withRefusal(row, held)
	}
	if r.hash == "" || r.status.Generation != held.Generation {
		r.hash = session.StatusHash(r.status)
	}
	var v session.Verdict
	if !r.ofHub {
		v = session.JudgeReport(&row.Spec, reportedStatus(row), session.Reported{RowStatus: &r.status, Hash: r.hash})
	}
	switch {
	case v.Write:
		v.Ack = r.status.Seq
	case refusedNow && (row.Status == nil || session.StatusHash(*row.Status) != r.hash):
		v.Write, r.status.Seq = true, heldStatus(row).Seq+1
	}
	return r, v
}
