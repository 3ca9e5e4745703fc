package delivery

import (
	"time"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
	// maxQuarantineDelay bounds the pause of an order whose Bundle is quarantined. The pause holds
	// the session, which may be over by then.
	maxQuarantineDelay = 5 * time.Minute
)

// sendQueue is what waits to be sent to one agent, by name. The content is looked up when
// it is sent. Changes of users go before results of the comparison. The number of the
// cluster's bundles bounds it. The lock of the session guards it. The zero sendQueue is
// empty.
type sendQueue struct {
	control     []*pb.FromHub
	dials       []string         // ids of tunnels
	acks        map[string]int64 // bundle → seq
	changedRows map[string]struct{}
	needs       map[string]*pb.Need
	needHashes  int // of all needs
	orders      map[string]session.Order
	urgent      []string
	resync      []string
	retries     map[string]time.Duration
}

const (
	// maxControlFrames bounds control frames, all of which answer frames of the agent.
	maxControlFrames = 64
	// maxNeedHashes bounds the hashes of all needs that wait.
	maxNeedHashes = 50_000
	// ackMargin is how many acknowledgements may wait beyond two for each bundle of the session.
	ackMargin = 1024
)

// queueNeededObjects queues a need, in place of an older one of the bundle. It reports whether the needs of
// the agent are within their bound.
func (q *sendQueue) queueNeededObjects(n *pb.Need) bool {
	q.needHashes += len(n.GetHashes()) - len(q.needs[n.GetBundle()].GetHashes())
	put(&q.needs, n.GetBundle(), n)
	return q.needHashes <= maxNeedHashes
}

// queueOrder queues an order of a bundle. An order that waits already is not doubled, but
// may become urgent.
func (q *sendQueue) queueOrder(o session.Order) {
	old, waits := q.orders[o.Bundle]
	switch {
	case !waits && o.Resync:
		q.resync = append(q.resync, o.Bundle)
	case !waits || old.Resync && !o.Resync:
		q.urgent = append(q.urgent, o.Bundle)
	}
	if waits {
		o.Resync = o.Resync && old.Resync
	}
	put(&q.orders, o.Bundle, o)
}

// sendTask is one thing to send. Exactly one field is set.
type sendTask struct {
	frame *pb.FromHub
	need  *pb.Need
	order *session.Order
}

// nextTask takes the next thing to send. Orders stay queued while the hub holds.
func (q *sendQueue) nextTask(holding bool) (sendTask, bool) {
	if len(q.control) > 0 {
		f := q.control[0]
		q.control = q.control[1:]
		return sendTask{frame: f}, true
	}
	if len(q.dials) > 0 {
		id := q.dials[0]
		q.dials = q.dials[1:]
		return sendTask{frame: &pb.FromHub{Frame: &pb.FromHub_Dial{Dial: &pb.Dial{Id: id}}}}, true
	}
	for bundle, seq := range q.acks {
		delete(q.acks, bundle)
		return sendTask{frame: &pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: bundle, Seq: seq}}}}, true
	}
	if holding {
		return sendTask{}, false
	}
	for bundle, n := range q.needs {
		delete(q.needs, bundle)
		q.needHashes -= len(n.GetHashes())
		return sendTask{need: n}, true
	}
	for _, list := range []*[]string{&q.urgent, &q.resync} {
		for len(*list) > 0 {
			bundle := (*list)[0]
			*list = (*list)[1:]
			if o, ok := q.orders[bundle]; ok {
				delete(q.orders, bundle)
				return sendTask{order: &o}, true
			}
		}
	}
	return sendTask{}, false
}

// nextRetryDelay returns the pause before the next try, which doubles from a second to a
// minute per bundle.
func (q *sendQueue) nextRetryDelay(bundle string) time.Duration {
	d := min(max(2*q.retries[bundle], minRetryDelay), maxRetryDelay)
	put(&q.retries, bundle, d)
	return d
}
