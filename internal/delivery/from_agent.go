package delivery

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll.dev/atoll/internal/assess"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/drift"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust"
)

// maxComplaints is how many refused reports of one session are logged.
const maxComplaints = 10

// maxReportedObjects bounds the number of drifted objects that one report counts, so that an agent cannot
// make the sum of a fleet meaningless.
const maxReportedObjects = 1 << 20

// checkFrame checks a frame against the bounds of its fields. It returns why the session ends, and
// records that the agent misbehaves.
func (s *agentSession) checkFrame(f *pb.FromAgent) *pb.Refused {
	err := session.CheckLimits(f)
	if err == nil {
		return nil
	}
	return s.recordMisbehaviour(err.Error())
}

// recordOversizedFrame records on the Cluster that Recv refused a frame by its length. Any other
// error is the connection's.
func (s *agentSession) recordOversizedFrame(err error) {
	if status.Code(err) == codes.ResourceExhausted {
		s.gateway.options.Inventory.RecordMisbehaviour(s.id.uid, fmt.Sprintf("the agent sends a frame of more than %d bytes", session.MaxAgentFrameBytes))
	}
}

// recordMisbehaviour records on the Cluster what its agent did that no agent may do, and returns
// the end of its session.
func (s *agentSession) recordMisbehaviour(what string) *pb.Refused {
	s.gateway.options.Inventory.RecordMisbehaviour(s.id.uid, what)
	return &pb.Refused{Reason: string(atoll.ReasonMisbehaving), Message: "the agent sends what no agent may send: " + what, Final: true}
}

// handleReport judges a report and passes it to the reportWriter. An agent speaks only for
// rows of its own cluster.
func (s *agentSession) handleReport(r *pb.Report) {
	var st atoll.RowStatus
	if len(r.GetStatus()) > session.MaxStatusBytes {
		s.logRefusedReport(atoll.ReasonBadReport, "refused a report that is too large", r.GetBundle())
		return
	}
	if err := json.Unmarshal(r.GetStatus(), &st); err != nil || r.GetSeq() <= 0 || r.GetSeq() >= generationLimit {
		s.logRefusedReport(atoll.ReasonBadReport, "refused a report that cannot be read", r.GetBundle())
		return
	}
	st.UID, st.Seq = s.id.uid, r.GetSeq()
	st.Since = min(max(st.Since, 0), atoll.MaxUnixSeconds)
	st.Drifted = min(max(st.Drifted, 0), maxReportedObjects)
	for i := range st.Items {
		st.Items[i].Drift = drift.LimitAndRedact(st.Items[i].Key, st.Items[i].Drift)
		st.Items[i].Feedback = assess.LimitFeedback(st.Items[i].Key, st.Items[i].Feedback)
	}
	var spec *atoll.RowSpec
	var stored session.Reported
	row, ok := s.ownRow(r.GetBundle())
	if ok {
		spec, stored = &row.Spec, reportedStatus(row)
		st = withRefusal(row, st)
	}
	if timing := r.GetTiming(); timing != nil {
		s.gateway.options.Traces.OrderApplied(s.id.uid, r.GetBundle(), &st, durationFromMillis(timing.GetApplyMs()), durationFromMillis(timing.GetAgeMs()))
	}
	hash := session.StatusHash(st)
	v := session.JudgeReport(spec, stored, session.Reported{RowStatus: &st, Hash: hash})
	if v.Ahead {
		s.lockAndReportGenerationAhead(r.GetBundle(), st.Generation)
	}
	switch {
	case v.Refused:
		s.keepEarlyReport(r)
		s.logRefusedReport(atoll.ReasonNoRow, "refused a report: this cluster has no row of the bundle", r.GetBundle())
	case spec == nil:
		s.queueAck(r.GetBundle(), v.Ack)
	default:
		s.gateway.reportWriter.offerReport(pendingReport{bundle: r.GetBundle(), cluster: s.cluster, slice: row.Slice, status: st, hash: hash, checkInInterval: s.announcedCheckInInterval()}, stored.RowStatus, v)
	}
}

// reportedStatus returns the last report that is stored in a row.
func reportedStatus(row state.Row) session.Reported {
	return session.Reported{RowStatus: row.Status, Hash: row.StatusHash}
}

// logRefusedReport logs a refused report, a few times per session. Bundles that are known
// to be unclaimed were logged before.
func (s *agentSession) logRefusedReport(reason atoll.Reason, message, bundle string) {
	s.gateway.metrics.refused.WithLabelValues("report", string(reason)).Inc()
	s.mu.Lock()
	_, unclaimed := s.unclaimed[bundle]
	if !unclaimed {
		s.complaintCount++
	}
	n := s.complaintCount
	s.mu.Unlock()
	if !unclaimed && n <= maxComplaints {
		s.sessionLog().Warn(message, "reason", reason, "bundle", bundle)
	}
}

// handleInventory passes on the inventory, and requests the list of APIs where no agent
// has sent the same list before.
func (s *agentSession) handleInventory(i *pb.Inventory) {
	hash, listed := i.GetApisHash(), len(i.GetApis()) > 0
	s.gateway.options.Inventory.RecordInventory(s.id.uid, i) // i belongs to the Inventory from here on
	if hash == "" || listed {
		return
	}
	s.mu.Lock()
	waits := s.lookupHash != ""
	s.lookupHash = hash
	s.mu.Unlock()
	if waits {
		return // its turn looks up the last one
	}
	if wait := s.gateway.allowances.reserveTurn(s.id.uid, time.Now()); wait > 0 {
		time.AfterFunc(wait, func() { s.runContainingPanics(s.requestUnknownAPIs) })
		return
	}
	s.requestUnknownAPIs()
}

// requestUnknownAPIs requests the list of APIs that the agent reported last, unless the hub has it.
func (s *agentSession) requestUnknownAPIs() {
	s.mu.Lock()
	hash, done := s.lookupHash, s.done
	s.lookupHash = ""
	s.mu.Unlock()
	if done {
		return
	}
	known, err := s.gateway.options.Inventory.IsAPISetStored(s.gateway.lifetime, hash)
	if err != nil {
		s.sessionLog().Warn("cannot look up a set of APIs; it is requested from the agent", "hash", hash, "err", err)
	}
	if !known {
		s.queueControl(&pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Apis: true}}})
	}
}

// renewCertificate renews the certificate of the agent for the key that it has shown.
func (s *agentSession) renewCertificate(r *pb.Renew) {
	now := time.Now()
	s.mu.Lock()
	early := now.Sub(s.renewedAt) < trust.RenewalRetryInterval(s.gateway.options.CertificateLifetime)/2
	if !early {
		s.renewedAt = now
	}
	s.mu.Unlock()
	if early {
		return
	}
	request, err := trust.ParseCertificateRequest(r.GetCsr())
	if err == nil && request.KeyHash != s.id.keyHash {
		s.logRefusedReport(atoll.ReasonOtherKey, "refused to renew a certificate: the request is for another key than the session's; a new key needs a new join", "")
		return
	}
	if err != nil {
		s.logRefusedReport(atoll.ReasonBadRequest, "refused to renew a certificate: "+err.Error(), "")
		return
	}
	if _, refused := s.gateway.admitIdentity(s.id); refused != nil {
		return
	}
	s.sendCertificate(request.Public, "renewal")
}
