package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/quantity"
)

// CountFittingReplicas returns how many more replicas with these requests fit into the free
// capacity. It ignores affinities between pods.
func CountFittingReplicas(free freecapacity.NodeClasses, r freecapacity.ReplicaRequests) (n int64) {
	for i := range free {
		c := &free[i]
		if per := podsPerNode(c, r); per > 0 && admitsPods(c, r) {
			n = quantity.AddCapped(n, quantity.MultiplyCapped(per, c.Nodes))
		}
	}
	return n / max(r.Pods, 1)
}

// CountFittingWorkloads returns how many replicas of the workloads fit together, including
// those that the cluster is assigned already, by item key.
func CountFittingWorkloads(free freecapacity.NodeClasses, workloads []Workload, assigned map[string]int64) (replicas int64) {
	for i := range workloads {
		w := &workloads[i]
		needs, has := max(w.Replicas, 0), int64(0)
		if len(assigned) > 0 {
			has = min(max(assigned[w.Key.String()], 0), needs)
		}
		more := min(CountFittingReplicas(free, w.Requests), needs-has)
		if replicas = quantity.AddCapped(replicas, has+more); i < len(workloads)-1 && more > 0 {
			free = TakeCapacity(free, w.Requests, more)
		}
	}
	return replicas
}

// podsPerNode returns how many of the pods each node of the class takes.
func podsPerNode(c *freecapacity.NodeClass, r freecapacity.ReplicaRequests) int64 {
	n := c.Pods
	if r.CPU > 0 {
		n = min(n, c.CPU/r.CPU)
	}
	if r.Memory > 0 {
		n = min(n, c.Memory/r.Memory)
	}
	if len(r.Other) == 0 { // ranging over a nil map costs as much as all of the above
		return n
	}
	for name, request := range r.Other {
		if request > 0 {
			n = min(n, c.Other[name]/request)
		}
	}
	return n
}

// admitsPods reports whether the pods tolerate the taints of the nodes, and require nothing else of
// their labels.
func admitsPods(c *freecapacity.NodeClass, r freecapacity.ReplicaRequests) bool {
	return isTolerated(c, r) && (r.Matcher == nil || r.Matcher.MatchesGroup(c.Group))
}

func isTolerated(c *freecapacity.NodeClass, r freecapacity.ReplicaRequests) bool {
	for i := range c.Taints {
		if !slices.ContainsFunc(r.Tolerations, func(tol corev1.Toleration) bool { return coversTaint(&tol, &c.Taints[i]) }) {
			return false
		}
	}
	return true
}

// TakeCapacity returns the free capacity less n replicas' requests, node by node in the
// order of the classes. Pods that do not fit take nothing.
func TakeCapacity(free freecapacity.NodeClasses, r freecapacity.ReplicaRequests, n int64) freecapacity.NodeClasses {
	out := make(freecapacity.NodeClasses, 0, len(free)+2)
	n = quantity.MultiplyCapped(n, max(r.Pods, 1))
	for i := range free {
		c := free[i]
		per := podsPerNode(&c, r)
		if n <= 0 || per <= 0 || !admitsPods(&c, r) {
			out = append(out, c)
			continue
		}
		full := min(n/per, c.Nodes)
		n -= full * per
		out = appendReducedNodes(out, c, r, full, per)
		if c.Nodes -= full; c.Nodes > 0 && n > 0 {
			out = appendReducedNodes(out, c, r, 1, n)
			c.Nodes, n = c.Nodes-1, 0
		}
		if c.Nodes > 0 {
			out = append(out, c)
		}
	}
	return out
}

// appendReducedNodes appends that many nodes of the class with so many of the pods on each.
func appendReducedNodes(out freecapacity.NodeClasses, c freecapacity.NodeClass, r freecapacity.ReplicaRequests, nodes, pods int64) freecapacity.NodeClasses {
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

// UsesFreeCapacity reports whether the decision's shares depend on free capacity.
func (d Decision) UsesFreeCapacity() bool {
	return len(d.workloads) > 0 && methodOf(d.scheduling) != ByWeight
}

// WithFreeCapacity returns the decision with the capacity that members have left beyond what
// their rows are assigned. It calls left for clusters that may be given something; false:
// not known. It does not call left where capacity makes no difference.
func (d Decision) WithFreeCapacity(left func(cluster string) (free freecapacity.NodeClasses, known bool)) Decision {
	if !d.UsesFreeCapacity() {
		return d
	}
	d.freeCapacity = make([]freecapacity.NodeClasses, len(d.Verdicts))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if !v.IsHolder() {
			continue
		}
		free, known := left(v.Cluster)
		if known && free == nil {
			free = freecapacity.NodeClasses{} // none is left, which is known
		}
		if known {
			d.freeCapacity[v.capacityIndex] = free
		}
	}
	return d
}

// FreeReplicasOf returns how many more replicas of each workload fit in a cluster, by item
// key; false where this is not known or makes no difference.
func (d Decision) FreeReplicasOf(cluster string) (fit map[string]int64, known bool) {
	v, ok := d.FindVerdict(cluster)
	if !ok || d.freeCapacity == nil || d.freeCapacity[v.capacityIndex] == nil {
		return nil, false
	}
	free := d.freeCapacity[v.capacityIndex]
	fit = make(map[string]int64, len(d.workloads))
	for _, w := range d.workloads {
		fit[w.Key.String()] = CountFittingReplicas(free, w.Requests)
	}
	return fit, true
}
