package freecapacity

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"atoll.dev/atoll/api/v1alpha1"
)

// FreeCapacityOf returns the free capacity in a Cluster's status, which a hub of v0.1.0 may have
// written as text; known is false when there is none, or one that cannot be read. A class that
// cannot be read makes the whole unknown: without it the cluster would count as full.
func FreeCapacityOf(r *v1alpha1.ResourceSummary) (free NodeClasses, known bool) {
	switch {
	case r.FreeCapacity != nil:
		return classesOf(r.FreeCapacity)
	case r.Room != nil:
		free, err := ParseClasses(r.Room.Classes)
		return free, err == nil
	}
	return nil, false
}

func classesOf(s *v1alpha1.FreeCapacity) (free NodeClasses, known bool) {
	free = make(NodeClasses, 0, len(s.NodeClasses))
	positions := make([]int32, 0, len(s.NodeClasses))
	for i := range s.NodeClasses {
		c, ok := classOf(&s.NodeClasses[i])
		if !ok {
			return nil, false
		}
		free, positions = append(free, c), append(positions, s.NodeClasses[i].NodeGroup)
	}
	groups := make([]NodeGroup, 0, len(s.NodeGroups))
	for i := range s.NodeGroups {
		g := &s.NodeGroups[i]
		size, ok := classOf(&v1alpha1.NodeClass{Nodes: g.Nodes, Free: g.Largest, Taints: g.Taints})
		if !ok {
			return free, true
		}
		groups = append(groups, NodeGroup{Size: size, Labels: g.Labels})
	}
	return free.WithGroups(groups, positions, s.UnreportedLabels), true
}

func classOf(s *v1alpha1.NodeClass) (c NodeClass, ok bool) {
	c = NodeClass{Nodes: int64(s.Nodes), Taints: s.Taints}
	if c.Nodes <= 0 {
		return c, false
	}
	for name, q := range s.Free {
		n := q.Value()
		if name == corev1.ResourceCPU {
			n = q.MilliValue()
		}
		if n <= 0 || n > maxAmount {
			return c, false
		}
		switch name {
		case corev1.ResourceCPU:
			c.CPU = n
		case corev1.ResourceMemory:
			c.Memory = n
		case corev1.ResourcePods:
			c.Pods = n
		default:
			if c.Other == nil {
				c.Other = map[string]int64{}
			}
			c.Other[string(name)] = n
		}
	}
	return c, true
}

// ToStatus returns the classes as a Cluster's status has them.
func (r NodeClasses) ToStatus() *v1alpha1.FreeCapacity {
	out := &v1alpha1.FreeCapacity{}
	positions := map[*NodeGroup]int32{}
	for i := range r {
		c := &r[i]
		if g := c.Group; g != nil && positions[g] == 0 {
			out.NodeGroups = append(out.NodeGroups, v1alpha1.NodeGroup{
				Nodes: int32(g.Size.Nodes), Labels: g.Labels, Taints: g.Size.Taints, Largest: g.Size.listAmounts(),
			})
			positions[g], out.UnreportedLabels = int32(len(out.NodeGroups)), g.Unreported
		}
		if c.Nodes > 0 {
			out.NodeClasses = append(out.NodeClasses, v1alpha1.NodeClass{Nodes: int32(c.Nodes), Free: c.listAmounts(), Taints: c.Taints, NodeGroup: positions[c.Group]})
		}
	}
	return out
}

// listAmounts returns the resources of each node.
func (c *NodeClass) listAmounts() corev1.ResourceList {
	out := corev1.ResourceList{}
	put := func(name corev1.ResourceName, n int64, quantityOf func(int64, resource.Format) *resource.Quantity, format resource.Format) {
		if n > 0 {
			out[name] = *quantityOf(n, format)
		}
	}
	put(corev1.ResourceCPU, c.CPU, resource.NewMilliQuantity, resource.DecimalSI)
	put(corev1.ResourceMemory, c.Memory, resource.NewQuantity, resource.BinarySI)
	put(corev1.ResourcePods, c.Pods, resource.NewQuantity, resource.DecimalSI)
	for name, n := range c.Other {
		put(corev1.ResourceName(name), n, resource.NewQuantity, resource.DecimalSI)
	}
	return out
}

// Equal reports whether two lists of classes are equal.
func (r NodeClasses) Equal(o NodeClasses) bool {
	return slices.EqualFunc(r, o, func(a, b NodeClass) bool { return a.hasEqualNodes(&b) && a.Group.equal(b.Group) })
}

func (c *NodeClass) hasEqualNodes(o *NodeClass) bool {
	return c.Nodes == o.Nodes && c.CPU == o.CPU && c.Memory == o.Memory && c.Pods == o.Pods &&
		maps.Equal(c.Other, o.Other) && slices.Equal(c.Taints, o.Taints)
}
