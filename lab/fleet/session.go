package fleet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"atoll.dev/atoll/internal/h2"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// simulatedSession is one session of an agent.
type simulatedSession struct {
	agent  *simulatedAgent
	h2Call *h2.ClientCall
	wire   *cuttableConn
	began  time.Time
	// The agent's mutex guards the following fields.
	welcomed         bool
	applicationCount int      // number of applications in the last inventory
	requestedBundles []string // Bundles whose objects were requested
	leaving          bool
	lastFrameAt      time.Time // time of the last frame in either direction
	hubIdleSince     time.Time // when the hub first reported that nothing is left to send
	endCheckAt       int64     // time of the next check for the session's end; 0 means none
	refused          *pb.Refused
	moved            *pb.Move
}

// sendHello begins the session.
func (l *simulatedSession) sendHello() {
	a := l.agent
	a.mu.Lock()
	a.session, a.turnedUnhealthyEarly, a.resting = l, false, false
	l.send(a.wakeCore().BeginSession())
	a.mu.Unlock()
	l.flushFrames()
}

// send queues frames until flushFrames. The caller holds the agent's mutex.
func (l *simulatedSession) send(frames ...*pb.FromAgent) {
	l.lastFrameAt = time.Now()
	for _, f := range frames {
		size := proto.Size(f)
		b := make([]byte, h2.PrefixBytes, h2.PrefixBytes+size)
		binary.BigEndian.PutUint32(b[1:], uint32(size))
		b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, f)
		if err != nil {
			continue // frames of the agent always encode
		}
		l.agent.sim.counts.framesUp.Add(1)
		switch {
		case f.GetReport() != nil:
			l.agent.sim.counts.reports.Add(1)
		case f.GetNeed() != nil && !slices.Contains(l.requestedBundles, f.GetNeed().GetBundle()):
			l.requestedBundles = append(l.requestedBundles, f.GetNeed().GetBundle())
		}
		l.h2Call.QueueMessages(b)
	}
}

// flushFrames sends the queued frames. It does nothing on a nil session.
func (l *simulatedSession) flushFrames() {
	if l != nil {
		l.h2Call.Flush()
	}
}

// serveUntilEnd serves the session until it ends.
func (l *simulatedSession) serveUntilEnd() {
	err := l.h2Call.Serve(l.handleMessage)
	l.h2Call.Close()
	l.agent.endSession(l, err)
}

// handleMessage handles one message of the hub.
func (l *simulatedSession) handleMessage(message []byte) error {
	var f pb.FromHub
	if err := proto.Unmarshal(message, &f); err != nil {
		return fmt.Errorf("read a frame of the hub: %w", err)
	}
	a := l.agent
	a.sim.counts.framesDown.Add(1)
	a.mu.Lock()
	if a.session != l {
		a.mu.Unlock()
		return errors.New("the session is over")
	}
	l.lastFrameAt = time.Now()
	out := a.wakeCore().HandleFrame(&f)
	l.applyBeforeSend(&f, &out)
	l.send(out.Frames...)
	for i := range out.Store {
		m := &out.Store[i]
		l.requestedBundles = slices.DeleteFunc(l.requestedBundles, func(b string) bool { return b == m.Bundle })
		a.storeManifest(m)
		l.send(a.core.ManifestStored(m.Bundle, m.Generation, m.Content).Frames...)
	}
	if len(out.Store) > 0 {
		a.reportPendingBundles()
	}
	l.applyAfterSend(&f, &out)
	l.checkEndAfter(sessionEndPoll)
	a.mu.Unlock()
	l.h2Call.Flush()
	if l.moved != nil {
		return errors.New("the hub has more agents than its share")
	}
	if r := l.refused; r != nil {
		return errors.New(r.GetReason() + ": " + r.GetMessage())
	}
	return nil
}

// noteReportStored notes that the hub has stored a report. acked: no other report follows.
func (a *simulatedAgent) noteReportStored(s *pb.ReportStored, acked bool) {
	if h := a.findHeldBundle(s.GetBundle()); h != nil && s.GetSeq() >= h.seq {
		h.seq = a.core.LastSeq(s.GetBundle())
		h.acked = acked
	}
}

// applyBeforeSend applies an output of the core to the member before its frames are sent.
// The caller holds the agent's mutex.
func (l *simulatedSession) applyBeforeSend(f *pb.FromHub, out *session.AgentOutput) {
	a := l.agent
	if f.GetUpsert() != nil {
		a.sim.counts.upserts.Add(1)
	}
	if p := out.Position; p != nil {
		a.position = position{a.sim.internString(p.GetChainId()), p.GetRevision(), p.GetIssued(), string(p.GetMac())}
	}
	if s := f.GetReportStored(); s != nil {
		a.noteReportStored(s, len(out.Frames) == 0)
	}
	for _, bundle := range f.GetAsk().GetReports() {
		if h := a.findHeldBundle(bundle); h != nil {
			h.acked, h.reportPending = false, true
		}
	}
	if out.Welcome != nil {
		l.welcomed = true
		l.send(l.inventoryFrame(false))
		l.adoptCheckInInterval(out.Welcome.GetCheckInSeconds())
	}
	if i := out.Idle; i != nil {
		if l.hubIdleSince.IsZero() {
			l.hubIdleSince = time.Now()
		}
		l.adoptCheckInInterval(i.GetCheckInSeconds())
	}
	if out.SendAPIs {
		l.send(l.inventoryFrame(true))
	}
	if out.Recall {
		l.send(a.recordedRemovalFrames()...)
	}
}

// applyAfterSend applies the consequences of an output after its frames were sent. The
// caller holds the agent's mutex.
func (l *simulatedSession) applyAfterSend(f *pb.FromHub, out *session.AgentOutput) {
	a := l.agent
	for bundle, generation := range out.Forget {
		a.dropAcknowledgedRemoval(bundle, generation)
	}
	if out.Welcome != nil {
		for i := range a.holdings {
			h := &a.holdings[i]
			h.reportPending = h.reportPending || !h.acked
			a.reportBundle(h)
		}
		a.sim.countConnected(l)
		l.renewCertificateIfDue()
	}
	for _, bundle := range f.GetAsk().GetReports() {
		if h := a.findHeldBundle(bundle); h != nil {
			a.reportBundle(h)
		}
	}
	if r := out.Renewed; r != nil {
		a.storeRenewedCertificate(r)
	}
	l.refused, l.moved = out.Refused, out.Move
}

// reportPendingBundles reports stored Bundles and the Bundles that may have waited for them. The
// caller holds mu.
func (a *simulatedAgent) reportPendingBundles() {
	for i := range a.holdings {
		h := &a.holdings[i]
		h.reportPending = h.reportPending || h.shape.needsMemberState()
		a.reportBundle(h)
	}
}

// dropAcknowledgedRemoval deletes the record of a removal that the hub has stored. The caller holds
// mu.
func (a *simulatedAgent) dropAcknowledgedRemoval(bundle string, generation int64) {
	if a.removedGenerations == nil {
		a.removedGenerations = map[string]int64{}
	}
	a.removedGenerations[bundle] = generation
	i := slices.IndexFunc(a.holdings, func(h heldBundle) bool { return h.shape.bundle == bundle })
	if i < 0 {
		return
	}
	a.sim.shapes.releaseManifest(a.holdings[i].shape)
	a.holdings = slices.Delete(a.holdings, i, i+1)
}

// recordedRemovalFrames returns the recorded removals for a hub that requests them. The caller
// holds mu.
func (a *simulatedAgent) recordedRemovalFrames() []*pb.FromAgent {
	answer := &pb.Remembered{Complete: true}
	for _, t := range a.carriedOutTombstones {
		one := &pb.RememberedTombstone{Bundle: t.bundle, Generation: t.generation, At: t.at}
		h := a.findHeldBundle(t.bundle)
		if t.item == nil && h != nil && !h.shape.isRemoval || t.item != nil && h != nil && h.shape.listedKeys[t.item.Key] {
			continue // the Bundle has returned
		}
		if t.item != nil {
			body, err := json.Marshal(t.item)
			if err != nil {
				continue
			}
			one.Tombstone = body
		}
		answer.Tombstones = append(answer.Tombstones, one)
	}
	return []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: answer}}}
}

// renewCertificateIfDue renews the certificate when it is due. The caller holds the agent's mutex.
func (l *simulatedSession) renewCertificateIfDue() {
	a := l.agent
	if a.renewing || time.Now().Add(a.interval).Unix() < a.renewAt {
		return
	}
	id, err := a.identity.readIdentity()
	if err != nil {
		return
	}
	key, err := id.privateKey()
	if err != nil {
		return
	}
	csr, err := trust.NewCertificateRequest(key, id.Name)
	if err != nil {
		return
	}
	a.renewing = true
	l.send(&pb.FromAgent{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: csr}}})
}

// storeRenewedCertificate stores the new certificate. The caller holds mu.
func (a *simulatedAgent) storeRenewedCertificate(r *pb.Renewed) {
	a.renewing = false
	id, err := a.identity.readIdentity()
	if err != nil {
		return
	}
	if err := id.setCertificate(r.GetCertificate()); err != nil {
		return
	}
	a.storeIdentity(id)
}
