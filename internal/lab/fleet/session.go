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

// link is one session of an agent.
type link struct {
	agent *agent
	call  *h2.Call
	wire  *wire
	began time.Time
	// Guarded by the agent's mutex.
	welcomed bool
	load     int      // applications held, as the inventory told
	needs    []string // Bundles of which objects were asked for
	leaving  bool
	active   time.Time // when a frame came or went
	idle     time.Time // when the hub said first that it has nothing more
	looks    int64     // when it is looked whether the session is over; 0: it is not
	refused  *pb.Refused
	moved    *pb.Move
}

// greet begins the session.
func (l *link) greet() {
	a := l.agent
	a.mu.Lock()
	a.link, a.turned, a.resting = l, false, false
	l.send(a.awake().Hello())
	a.mu.Unlock()
	l.flush()
}

// send frames once the link is flushed. The caller holds the agent's mutex.
func (l *link) send(frames ...*pb.FromAgent) {
	l.active = time.Now()
	for _, f := range frames {
		size := proto.Size(f)
		b := make([]byte, h2.PrefixBytes, h2.PrefixBytes+size)
		binary.BigEndian.PutUint32(b[1:], uint32(size))
		b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, f)
		if err != nil {
			continue // its own frames are well made
		}
		l.agent.sim.counts.framesUp.Add(1)
		switch {
		case f.GetReport() != nil:
			l.agent.sim.counts.reports.Add(1)
		case f.GetNeed() != nil && !slices.Contains(l.needs, f.GetNeed().GetBundle()):
			l.needs = append(l.needs, f.GetNeed().GetBundle())
		}
		l.call.Queue(b)
	}
}

// flush what was sent; a link that is nil has nothing.
func (l *link) flush() {
	if l != nil {
		l.call.Flush()
	}
}

// serve the session until it ends.
func (l *link) serve() {
	err := l.call.Serve(l.take)
	l.call.Close()
	l.agent.ended(l, err)
}

// take one message of the hub.
func (l *link) take(message []byte) error {
	var f pb.FromHub
	if err := proto.Unmarshal(message, &f); err != nil {
		return fmt.Errorf("read a frame of the hub: %w", err)
	}
	a := l.agent
	a.sim.counts.framesDown.Add(1)
	a.mu.Lock()
	if a.link != l {
		a.mu.Unlock()
		return errors.New("the session is over")
	}
	l.active = time.Now()
	out := a.awake().Frame(&f)
	l.before(&f, &out)
	l.send(out.Frames...)
	for i := range out.Store {
		m := &out.Store[i]
		l.needs = slices.DeleteFunc(l.needs, func(b string) bool { return b == m.Bundle })
		a.store(m)
		l.send(a.core.Stored(m.Bundle, m.Generation, m.Content).Frames...)
	}
	if len(out.Store) > 0 {
		a.reportStored()
	}
	l.after(&f, &out)
	l.lookIn(look)
	a.mu.Unlock()
	l.call.Flush()
	if l.moved != nil {
		return errors.New("the hub has more agents than its share")
	}
	if r := l.refused; r != nil {
		return errors.New(r.GetReason() + ": " + r.GetMessage())
	}
	return nil
}

// before the core's frames go out: what the member is to remember. The caller holds
// the agent's mutex.
func (l *link) before(f *pb.FromHub, out *session.AgentOutput) {
	a := l.agent
	if f.GetUpsert() != nil {
		a.sim.counts.upserts.Add(1)
	}
	if p := out.Position; p != nil {
		a.position = position{a.sim.intern(p.GetChainId()), p.GetRevision(), p.GetIssued(), string(p.GetMac())}
	}
	if s := f.GetReportStored(); s != nil {
		if h := a.holding(s.GetBundle()); h != nil && s.GetSeq() >= h.seq {
			h.seq = a.core.Seq(s.GetBundle())
			h.acked = len(out.Frames) == 0
		}
	}
	for _, bundle := range f.GetAsk().GetReports() {
		if h := a.holding(bundle); h != nil {
			h.acked, h.fresh = false, true
		}
	}
	if out.Welcome != nil {
		l.welcomed = true
		l.send(l.inventory(false))
		l.follow(out.Welcome.GetCheckInSeconds())
	}
	if i := out.Idle; i != nil {
		if l.idle.IsZero() {
			l.idle = time.Now()
		}
		l.follow(i.GetCheckInSeconds())
	}
	if out.SendAPIs {
		l.send(l.inventory(true))
	}
	if out.Recall {
		l.send(a.recalled()...)
	}
}

// after the core's frames went out: what follows from them. The caller holds the
// agent's mutex.
func (l *link) after(f *pb.FromHub, out *session.AgentOutput) {
	a := l.agent
	for bundle, generation := range out.Forget {
		a.forget(bundle, generation)
	}
	if out.Welcome != nil {
		for i := range a.holdings {
			h := &a.holdings[i]
			h.fresh = h.fresh || !h.acked
			a.report(h)
		}
		a.sim.connected(l)
		l.renew()
	}
	for _, bundle := range f.GetAsk().GetReports() {
		if h := a.holding(bundle); h != nil {
			a.report(h)
		}
	}
	if r := out.Renewed; r != nil {
		a.renewed(r)
	}
	l.refused, l.moved = out.Refused, out.Move
}

// reportStored Bundles, and those that may have waited for them. The caller holds mu.
func (a *agent) reportStored() {
	for i := range a.holdings {
		h := &a.holdings[i]
		h.fresh = h.fresh || h.shape.waits()
		a.report(h)
	}
}

// forget a Bundle whose removal the hub has stored. The caller holds mu.
func (a *agent) forget(bundle string, generation int64) {
	if a.gone == nil {
		a.gone = map[string]int64{}
	}
	a.gone[bundle] = generation
	i := slices.IndexFunc(a.holdings, func(h holding) bool { return h.shape.bundle == bundle })
	if i < 0 {
		return
	}
	a.sim.shapes.release(a.holdings[i].shape)
	a.holdings = slices.Delete(a.holdings, i, i+1)
}

// recalled answers a hub that asks what is remembered of removals. The caller holds
// mu.
func (a *agent) recalled() []*pb.FromAgent {
	answer := &pb.Remembered{Complete: true}
	for _, t := range a.buried {
		one := &pb.RememberedTombstone{Bundle: t.bundle, Generation: t.generation, At: t.at}
		h := a.holding(t.bundle)
		if t.which == nil && h != nil && !h.shape.remove || t.which != nil && h != nil && h.shape.listed[t.which.Key] {
			continue // it came back
		}
		if t.which != nil {
			body, err := json.Marshal(t.which)
			if err != nil {
				continue
			}
			one.Tombstone = body
		}
		answer.Tombstones = append(answer.Tombstones, one)
	}
	return []*pb.FromAgent{{Frame: &pb.FromAgent_Remembered{Remembered: answer}}}
}

// renew the certificate, if it is time. The caller holds the agent's mutex.
func (l *link) renew() {
	a := l.agent
	if a.renewing || time.Now().Add(a.interval).Unix() < a.renew {
		return
	}
	id, err := a.identity.get()
	if err != nil {
		return
	}
	key, err := id.key()
	if err != nil {
		return
	}
	csr, err := trust.NewRequest(key, id.Name)
	if err != nil {
		return
	}
	a.renewing = true
	l.send(&pb.FromAgent{Frame: &pb.FromAgent_Renew{Renew: &pb.Renew{Csr: csr}}})
}

// renewed keeps the new certificate. The caller holds mu.
func (a *agent) renewed(r *pb.Renewed) {
	a.renewing = false
	id, err := a.identity.get()
	if err != nil {
		return
	}
	if err := id.certify(r.GetCertificate()); err != nil {
		return
	}
	a.keep(id)
}
