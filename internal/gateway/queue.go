package gateway

import (
	"time"

	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

const (
	retryFirst = time.Second
	retryMost  = time.Minute
)

// queue is what waits to go down one stream, by name: the content is looked up
// when its turn comes. What people changed goes before what is compared anew. It is
// bounded by the number of the cluster's bundles; its stream's lock guards it. The
// zero queue is empty.
type queue struct {
	control []*pb.FromHub
	dials   []string         // ids of tunnels
	acks    map[string]int64 // bundle → seq
	touched map[string]struct{}
	needs   map[string]*pb.Need
	orders  map[string]session.Order
	urgent  []string
	resync  []string
	retries map[string]time.Duration
}

// controlLimit bounds control frames; all of them answer frames of the agent.
const controlLimit = 64

// order a bundle. An order that waits already is not doubled, but may become
// urgent.
func (q *queue) order(o session.Order) {
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

// task is one thing to send; exactly one field is set.
type task struct {
	frame *pb.FromHub
	need  *pb.Need
	order *session.Order
}

// next takes the next thing to send. Orders stay while the hub holds.
func (q *queue) next(holding bool) (task, bool) {
	if len(q.control) > 0 {
		f := q.control[0]
		q.control = q.control[1:]
		return task{frame: f}, true
	}
	if len(q.dials) > 0 {
		id := q.dials[0]
		q.dials = q.dials[1:]
		return task{frame: &pb.FromHub{Frame: &pb.FromHub_Dial{Dial: &pb.Dial{Id: id}}}}, true
	}
	for bundle, seq := range q.acks {
		delete(q.acks, bundle)
		return task{frame: &pb.FromHub{Frame: &pb.FromHub_ReportStored{ReportStored: &pb.ReportStored{Bundle: bundle, Seq: seq}}}}, true
	}
	if holding {
		return task{}, false
	}
	for bundle, n := range q.needs {
		delete(q.needs, bundle)
		return task{need: n}, true
	}
	for _, list := range []*[]string{&q.urgent, &q.resync} {
		for len(*list) > 0 {
			bundle := (*list)[0]
			*list = (*list)[1:]
			if o, ok := q.orders[bundle]; ok {
				delete(q.orders, bundle)
				return task{order: &o}, true
			}
		}
	}
	return task{}, false
}

// retryAfter doubles from a second to a minute per bundle.
func (q *queue) retryAfter(bundle string) time.Duration {
	d := min(max(2*q.retries[bundle], retryFirst), retryMost)
	put(&q.retries, bundle, d)
	return d
}
