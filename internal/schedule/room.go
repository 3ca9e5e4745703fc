package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/atoll"
)

// Fit tells how many more replicas with these requests the room takes. Selectors and
// affinities of pods are not looked at.
func Fit(room atoll.Room, r atoll.Requests) (n int64) {
	for i := range room {
		c := &room[i]
		if per := perNode(c, r); per > 0 && tolerated(c, r) {
			n = atoll.Plus(n, atoll.Times(per, c.Nodes))
		}
	}
	return n / max(r.Pods, 1)
}

// FitAll tells how many replicas of the workloads the room takes together, those that the
// cluster is assigned of them, by item key, included.
func FitAll(room atoll.Room, workloads []Workload, assigned map[string]int64) (replicas int64) {
	for i := range workloads {
		w := &workloads[i]
		needs := max(w.Replicas, 0)
		has := min(max(assigned[w.Key.String()], 0), needs)
		more := min(Fit(room, w.Requests), needs-has)
		if replicas = atoll.Plus(replicas, has+more); i < len(workloads)-1 && more > 0 {
			room = Take(room, w.Requests, more)
		}
	}
	return replicas
}

// perNode is how many of the pods each node of the class takes.
func perNode(c *atoll.NodeClass, r atoll.Requests) int64 {
	n := c.Pods
	bound := func(free, request int64) {
		if request > 0 {
			n = min(n, free/request)
		}
	}
	bound(c.CPU, r.CPU)
	bound(c.Memory, r.Memory)
	for name, request := range r.Other {
		bound(c.Other[name], request)
	}
	return n
}

func tolerated(c *atoll.NodeClass, r atoll.Requests) bool {
	for i := range c.Taints {
		if !slices.ContainsFunc(r.Tolerations, func(tol corev1.Toleration) bool { return covers(&tol, &c.Taints[i]) }) {
			return false
		}
	}
	return true
}

// Take n replicas' requests from the room, node by node in the order of the classes; pods
// that do not fit take nothing.
func Take(room atoll.Room, r atoll.Requests, n int64) atoll.Room {
	out := make(atoll.Room, 0, len(room)+2)
	n = atoll.Times(n, max(r.Pods, 1))
	for i := range room {
		c := room[i]
		per := perNode(&c, r)
		if n <= 0 || per <= 0 || !tolerated(&c, r) {
			out = append(out, c)
			continue
		}
		full := min(n/per, c.Nodes)
		n -= full * per
		out = less(out, c, r, full, per)
		if c.Nodes -= full; c.Nodes > 0 && n > 0 {
			out = less(out, c, r, 1, n)
			c.Nodes, n = c.Nodes-1, 0
		}
		if c.Nodes > 0 {
			out = append(out, c)
		}
	}
	return out
}

// less appends that many nodes of the class with so many of the pods on each.
func less(out atoll.Room, c atoll.NodeClass, r atoll.Requests, nodes, pods int64) atoll.Room {
	if nodes == 0 {
		return out
	}
	c.Nodes, c.Pods = nodes, c.Pods-pods
	c.CPU, c.Memory = c.CPU-pods*r.CPU, c.Memory-pods*r.Memory
	if len(r.Other) > 0 {
		c.Other = maps.Clone(c.Other)
		for name, request := range r.Other {
			c.Other[name] -= pods * request
		}
	}
	return append(out, c)
}

// UsesRoom tells whether the decision's shares depend on the room that clusters have.
func (d Decision) UsesRoom() bool {
	return len(d.workloads) > 0 && methodOf(d.scheduling) != ByWeight
}

// WithRoom gives the decision with what members have left beyond what their rows are
// assigned, which left is asked of those that may be given something: false where nobody
// knows. Where room makes no difference nobody is asked.
func (d Decision) WithRoom(left func(cluster string) (room atoll.Room, known bool)) Decision {
	if !d.UsesRoom() {
		return d
	}
	d.room = make([]atoll.Room, len(d.Verdicts))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Outcome != Placed && v.Outcome != Kept {
			continue
		}
		room, known := left(v.Cluster)
		if known && room == nil {
			room = atoll.Room{} // none is left, which is known
		}
		if known {
			d.room[v.at] = room
		}
	}
	return d
}

// Room for more of each workload in a cluster, by item key; false where nobody knows,
// or where it makes no difference.
func (d Decision) Room(cluster string) (fit map[string]int64, known bool) {
	v, ok := d.Verdict(cluster)
	if !ok || d.room == nil || d.room[v.at] == nil {
		return nil, false
	}
	room := d.room[v.at]
	fit = make(map[string]int64, len(d.workloads))
	for _, w := range d.workloads {
		fit[w.Key.String()] = Fit(room, w.Requests)
	}
	return fit, true
}
