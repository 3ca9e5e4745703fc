package gateway

import (
	"encoding/json"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust"
)

const (
	// complaintsPerStream is how many refused reports of one stream are logged.
	complaintsPerStream = 10
	// statusBytes is the largest status that a row takes.
	statusBytes = 32 << 10
)

// report judges a report and hands it to the writer. An agent speaks only for rows
// of its own cluster.
func (s *stream) report(r *pb.Report) {
	var st atoll.RowStatus
	if err := json.Unmarshal(r.GetStatus(), &st); err != nil || len(r.GetStatus()) > statusBytes || r.GetSeq() <= 0 || r.GetSeq() >= generationLimit {
		s.complain("BadReport", "refused a report that cannot be read or is too large", r.GetBundle())
		return
	}
	st.UID, st.Seq = s.id.uid, r.GetSeq()
	var spec *atoll.RowSpec
	var stored session.Reported
	row, ok := s.row(r.GetBundle())
	if ok {
		spec, stored = &row.Spec, reported(row)
	}
	hash := session.StatusHash(st)
	v := session.Judge(spec, stored, session.Reported{RowStatus: &st, Hash: hash})
	if v.Ahead {
		s.mu.Lock()
		s.ahead(r.GetBundle(), st.Generation)
		s.mu.Unlock()
	}
	switch {
	case v.Refused:
		s.keepEarly(r)
		s.complain("NoRow", "refused a report: this cluster has no row of the bundle", r.GetBundle())
	case spec == nil:
		s.ack(r.GetBundle(), v.Ack)
	default:
		s.g.reports.offer(report{bundle: r.GetBundle(), cluster: s.cluster, slice: row.Slice, status: st, hash: hash, every: s.rhythm()}, stored.RowStatus, v)
	}
}

// reported is what a row says that its agent reported last.
func reported(row state.Row) session.Reported {
	return session.Reported{RowStatus: row.Status, Hash: row.StatusHash}
}

// complain about a report, a few times per stream. Bundles that are known to be
// unclaimed were logged as such.
func (s *stream) complain(reason, message, bundle string) {
	s.g.metrics.refused.WithLabelValues("report", reason).Inc()
	s.mu.Lock()
	_, unclaimed := s.unclaimed[bundle]
	if !unclaimed {
		s.complains++
	}
	n := s.complains
	s.mu.Unlock()
	if !unclaimed && n <= complaintsPerStream {
		s.log().Warn(message, "reason", reason, "bundle", bundle)
	}
}

// inventory passes on what the member is, and asks for its APIs where nobody has
// sent that set before.
func (s *stream) inventory(i *pb.Inventory) {
	hash, listed := i.GetApisHash(), len(i.GetApis()) > 0
	s.g.o.Inventory.Observe(s.id.uid, i) // i is the inventory's from here on
	if hash == "" || listed {
		return
	}
	known, err := s.g.o.Inventory.APIsKnown(s.g.running, hash)
	if err != nil {
		s.log().Warn("cannot look up a set of APIs; the agent is asked for it", "hash", hash, "err", err)
	}
	if !known {
		s.control(&pb.FromHub{Frame: &pb.FromHub_Ask{Ask: &pb.Ask{Apis: true}}})
	}
}

// renew the agent's certificate for the key that it has shown.
func (s *stream) renew(r *pb.Renew) {
	now := time.Now()
	s.mu.Lock()
	early := now.Sub(s.renewed) < trust.RenewRetry(s.g.o.CertificateLifetime)/2
	if !early {
		s.renewed = now
	}
	s.mu.Unlock()
	if early {
		return
	}
	request, err := trust.ParseRequest(r.GetCsr())
	if err == nil && request.KeyHash != s.id.keyHash {
		s.complain("OtherKey", "refused to renew a certificate: the request is for another key than the session's; a new key needs a new join", "")
		return
	}
	if err != nil {
		s.complain("BadRequest", "refused to renew a certificate: "+err.Error(), "")
		return
	}
	if _, refused := s.g.admit(s.id); refused != nil {
		return
	}
	s.certify(request.Public, "renewal")
}
