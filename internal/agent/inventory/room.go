package inventory

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/kinds"
)

const (
	// roomQuiet is how long a change of the room that makes little difference may be
	// kept; roomPace is how long one that does.
	roomQuiet = 30 * time.Second
	roomPace  = 5 * time.Second
	// mostClasses is the number of node classes, whatever the number of nodes. Groups by labels may have more of them,
	// up to freecapacity.MaxNodeClasses.
	mostClasses = 24
	// leastCPU and leastMemory are the smallest differences that separate node classes.
	leastCPU, leastMemory = 10, 16 << 20
)

// classifyFreeCapacity classifies the capacity that nodes have left, each of them given as a class of its own, in classes of
// nodes that have about as much: rounded down to as few digits as it takes to have no
// more than so many. Nodes without room for a pod are left out.
func classifyFreeCapacity(nodes []freecapacity.NodeClass, most int) freecapacity.NodeClasses {
	for digits := 4; digits > 0; digits-- {
		if out := groupNodeClasses(nodes, digits); len(out) <= most {
			return out
		}
	}
	return joinSmallClasses(groupNodeClasses(nodes, 1), most)
}

func groupNodeClasses(nodes []freecapacity.NodeClass, digits int) freecapacity.NodeClasses {
	type identity struct {
		text  string
		group *freecapacity.NodeGroup
	}
	by := map[identity]int{}
	out := freecapacity.NodeClasses{}
	for _, n := range nodes {
		c := freecapacity.NodeClass{
			Nodes: 1, CPU: roundDownToBits(n.CPU/leastCPU, digits) * leastCPU, Memory: roundDownToBits(n.Memory/leastMemory, digits) * leastMemory,
			Pods: roundDownToBits(n.Pods, digits), Taints: n.Taints, Group: n.Group,
		}
		for name, v := range n.Other {
			if v = roundDownToBits(v, digits); v > 0 {
				if c.Other == nil {
					c.Other = map[string]int64{}
				}
				c.Other[name] = v
			}
		}
		if c.Pods <= 0 {
			continue
		}
		key := identity{c.String(), c.Group}
		if i, known := by[key]; known {
			out[i].Nodes++
			continue
		}
		by[key] = len(out)
		out = append(out, c)
	}
	slices.SortStableFunc(out, compareByFreeCapacity)
	return out
}

// compareByFreeCapacity orders those with more first. Equal ones of several groups keep their order.
func compareByFreeCapacity(a, b freecapacity.NodeClass) int {
	return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.Pods, a.Pods), strings.Compare(a.String(), b.String()))
}

// joinSmallClasses reduces the number of classes: the largest stay, and the other ones without
// taints become one class of each group, with the least capacity of them.
func joinSmallClasses(all freecapacity.NodeClasses, most int) freecapacity.NodeClasses {
	slices.SortStableFunc(all, func(a, b freecapacity.NodeClass) int { return cmp.Compare(b.Nodes, a.Nodes) })
	kept := most - countGroupsWithoutTaints(all)
	out := slices.Clone(all[:kept])
	rests := map[*freecapacity.NodeGroup]int{} // indices in out
	for _, c := range all[kept:] {
		at, known := rests[c.Group]
		switch {
		case len(c.Taints) > 0:
		case !known:
			c.Other = nil
			rests[c.Group], out = len(out), append(out, c)
		default:
			rest := &out[at]
			rest.Nodes += c.Nodes
			rest.CPU, rest.Memory, rest.Pods = min(rest.CPU, c.CPU), min(rest.Memory, c.Memory), min(rest.Pods, c.Pods)
		}
	}
	slices.SortStableFunc(out, compareByFreeCapacity)
	return out
}

// countGroupsWithoutTaints returns how many groups have classes without taints, and at least 1.
func countGroupsWithoutTaints(all freecapacity.NodeClasses) int {
	groups := map[*freecapacity.NodeGroup]bool{}
	for i := range all {
		if len(all[i].Taints) == 0 {
			groups[all[i].Group] = true
		}
	}
	return max(len(groups), 1)
}

// roundDownToBits rounds down to so many binary digits.
func roundDownToBits(v int64, digits int) int64 {
	if v <= 0 {
		return 0
	}
	drop := max(bits.Len64(uint64(v))-digits, 0)
	return v >> drop << drop
}

// The numbers of groups into which labels may divide nodes, the first that leaves the free capacity exact enough. With
// the last, labels divide nothing.
var groupLimits = [...]int{mostGroups, 6, 3, 1}

const (
	// Groups by labels may lose an eighth of the free capacity of some resource to rounding when nodes are grouped, and a
	// quarter later.
	firstLossFraction, laterLossFraction = 8, 4
	// regroupInterval is how long nodes keep fewer groups because of such a loss.
	regroupInterval = 10 * time.Minute
)

// currentFreeCapacity returns the free capacity of the member's ready and schedulable nodes. The classes are
// about as exact as they would be without groups. The caller holds mu.
func (i *Inventory) currentFreeCapacity(now time.Time) freecapacity.NodeClasses {
	names, free := i.freeNodes()
	exact, fraction := classifyFreeCapacity(free, mostClasses).TotalByResource(), int64(laterLossFraction)
	if i.groupsStale || i.groupLimit > 0 && now.Sub(i.groupedAt) >= regroupInterval {
		i.groups, i.groupsStale, i.groupLimit, i.groupedAt = groupNodes(i.nodes, groupLimits[0]), false, 0, now
		fraction = firstLossFraction
	}
	for {
		for at, name := range names {
			free[at].Group = nil
			if group, known := i.groups.at[name]; known {
				free[at].Group = &i.groups.groups[group]
			}
		}
		most := freecapacity.MaxNodeClasses
		if i.groupLimit == len(groupLimits)-1 {
			most = mostClasses
		}
		is := classifyFreeCapacity(free, most)
		if i.groupLimit == len(groupLimits)-1 || len(i.groups.groups) == 0 || !losesCapacity(is.TotalByResource(), exact, fraction) {
			return is
		}
		i.groupLimit++
		i.groups, fraction = groupNodes(i.nodes, groupLimits[i.groupLimit]), firstLossFraction
	}
}

// losesCapacity reports whether some resource has less than it has exactly by more than the fraction.
func losesCapacity(is, exact map[string]int64, fraction int64) bool {
	for name, n := range exact {
		if is[name] < n-n/fraction {
			return true
		}
	}
	return false
}

// freeNodes returns the ready and schedulable nodes by name, each as a class without a group. The caller holds mu.
func (i *Inventory) freeNodes() (names []string, free []freecapacity.NodeClass) {
	for _, name := range slices.Sorted(maps.Keys(i.nodes)) {
		n := i.nodes[name]
		if !n.ready || n.cordoned {
			continue
		}
		left := maps.Clone(n.allocatable)
		if used := i.used[name]; used != nil {
			left.add(used.requested, -1)
			left[corev1.ResourcePods] -= used.pods
		}
		c := freecapacity.NodeClass{CPU: left[corev1.ResourceCPU], Memory: left[corev1.ResourceMemory], Pods: left[corev1.ResourcePods], Taints: n.taints}
		for resource, v := range left {
			if kinds.IsExtraCapacityResource(resource) {
				if c.Other == nil {
					c.Other = map[string]int64{}
				}
				c.Other[string(resource)] = v
			}
		}
		names, free = append(names, name), append(free, c)
	}
	return names, free
}

// chooseCapacityToReport decides whether the present free capacity is reported, and if not, when to decide
// again. The caller holds mu.
func (i *Inventory) chooseCapacityToReport(now time.Time) (tell []string, groups ReportedGroups, again time.Duration) {
	if !i.counted[countNodes] || !i.counted[countPods] {
		return nil, ReportedGroups{}, 0
	}
	is := i.currentFreeCapacity(now)
	lines := is.EncodeClasses()
	groups = i.groups.reportGroups(is)
	if i.lastSnapshot.Room != nil && slices.Equal(lines, i.lastSnapshot.Room) && groups.equal(i.lastSnapshot.Groups) {
		return i.lastSnapshot.Room, i.lastSnapshot.Groups, 0
	}
	wait := roomQuiet
	if i.lastSnapshot.Room == nil {
		wait = 0
	} else if is.DiffersSignificantly(i.toldRoom) {
		wait = roomPace
	}
	if left := i.toldAt.Add(wait).Sub(now); left > 0 {
		return i.lastSnapshot.Room, i.lastSnapshot.Groups, left
	}
	i.toldRoom, i.toldAt = is, now
	return lines, groups, 0
}

// use of a node by pods that are bound to it and not finished.
type use struct {
	requested resourceAmounts
	pods      int64
}

// pod as far as it is counted.
type pod struct {
	node      string
	requested resourceAmounts
}

// countPod counts a pod in, or out.
func (i *Inventory) countPod(p pod, sign int64) {
	if p.node == "" {
		return
	}
	i.requested.add(p.requested, sign)
	u := i.used[p.node]
	if u == nil {
		u = &use{requested: resourceAmounts{}}
		i.used[p.node] = u
	}
	u.requested.add(p.requested, sign)
	if u.pods += sign; u.pods == 0 {
		delete(i.used, p.node)
	}
}

// totalRequested returns the sum requested by all pods that are counted, and their number. The caller holds mu.
func (i *Inventory) totalRequested() map[string]string {
	asked := maps.Clone(i.requested)
	if i.counted[countPods] {
		asked[corev1.ResourcePods] = 0
		for _, u := range i.used {
			asked[corev1.ResourcePods] += u.pods
		}
	}
	return asked.formatQuantities(2)
}

// taintsOf returns the taints of a node that repel pods, sorted.
func taintsOf(n *corev1.Node) (out []v1alpha1.Taint) {
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			out = append(out, v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.Taint) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value), cmp.Compare(a.Effect, b.Effect))
	})
	return out
}
