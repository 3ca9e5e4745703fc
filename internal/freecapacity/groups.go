package freecapacity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeGroup is all nodes of a member that have the same taints and reported labels, with those
// that are full, cordoned or not ready.
type NodeGroup struct {
	// Size has the number of nodes, their taints, and the largest amount of each resource that one
	// of them has without pods.
	Size   NodeClass
	Labels map[string]string
	// Unreported are the labels that the agent leaves out of Labels: keys, domains as "example.com/*",
	// or "*".
	Unreported []string
}

// GroupMatcher decides whether pods may run on the nodes of a group. A group that is not known
// matches.
type GroupMatcher interface {
	MatchesGroup(g *NodeGroup) bool
}

// The bounds of the groups that one member reports.
const (
	MaxNodeGroups       = 16
	MaxGroupLabels      = 64
	MaxUnreportedLabels = 32
	// MaxGroupsText bounds the labels of all groups together, in bytes.
	MaxGroupsText = 16 << 10
)

// IsUnreportedLabel reports whether the nodes may have a label with this key that is not in Labels.
func (g *NodeGroup) IsUnreportedLabel(key string) bool {
	if IsNodeOwnLabel(key) {
		return true
	}
	for _, entry := range g.Unreported {
		if domain, isDomain := strings.CutSuffix(entry, "*"); isDomain && strings.HasPrefix(key, domain) || entry == key {
			return true
		}
	}
	return false
}

// IsNodeOwnLabel reports whether agents never report a label, because each node has a value of its own, or
// because the label is the former name of another.
func IsNodeOwnLabel(key string) bool {
	return key == corev1.LabelHostname || strings.HasPrefix(key, "beta.kubernetes.io/") || strings.HasPrefix(key, "failure-domain.beta.kubernetes.io/")
}

// FormatUnreportedEntry returns the entry of NodeGroup.Unreported that covers a key.
func FormatUnreportedEntry(key string) string {
	if domain, _, ok := strings.Cut(key, "/"); ok {
		return domain + "/*"
	}
	return key
}

// WithGroups returns the classes with their groups. The position of a class's group counts from 1, and
// 0 means that the group is not known. Groups over a bound are left out all together: with some of
// them, the others would seem to be all.
func (r NodeClasses) WithGroups(groups []NodeGroup, positions []int32, unreported []string) NodeClasses {
	if len(groups) == 0 || len(positions) != len(r) || !areBoundedGroups(groups, unreported) {
		return r
	}
	out, used := slices.Clone(r), make([]bool, len(groups))
	for i, position := range positions {
		if position <= 0 || int(position) > len(groups) {
			return r
		}
		used[position-1], out[i].Group = true, &groups[position-1]
	}
	for i := range groups {
		if groups[i].Unreported = unreported; !used[i] {
			out = append(out, NodeClass{Taints: groups[i].Size.Taints, Group: &groups[i]})
		}
	}
	return out
}

// ParseGroup reads a group as agents send it: its size as the line of a class, and its labels. Labels and taints have the form
// that Kubernetes gives them.
func ParseGroup(size string, labels map[string]string) (NodeGroup, error) {
	c, err := ParseNodeClass(size)
	if err != nil {
		return NodeGroup{}, err
	}
	for key, value := range labels {
		if !isLabel(key, value) {
			return NodeGroup{}, fmt.Errorf("%.100q is not a label", key+"="+value)
		}
	}
	for _, t := range c.Taints {
		if !isLabel(t.Key, t.Value) {
			return NodeGroup{}, fmt.Errorf("%.100q is not a taint", t.Key+"="+t.Value)
		}
	}
	return NodeGroup{Size: c, Labels: labels}, nil
}

func isLabel(key, value string) bool {
	return len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}

// AreUnreportedEntries reports whether all entries have a form of NodeGroup.Unreported.
func AreUnreportedEntries(entries []string) bool {
	return !slices.ContainsFunc(entries, func(entry string) bool {
		return entry != "*" && len(validation.IsQualifiedName(strings.TrimSuffix(entry, "*")+strings.Repeat("x", strings.Count(entry, "*")))) > 0
	})
}

// areBoundedGroups reports whether the groups are within their bounds. Their form was checked when the hub received them.
func areBoundedGroups(groups []NodeGroup, unreported []string) bool {
	text := 0
	if len(groups) > MaxNodeGroups || len(unreported) > MaxUnreportedLabels {
		return false
	}
	for i := range groups {
		g := &groups[i]
		if g.Size.Nodes <= 0 || len(g.Labels) > MaxGroupLabels {
			return false
		}
		for key, value := range g.Labels {
			if text += len(key) + len(value); text > MaxGroupsText {
				return false
			}
		}
	}
	return true
}

// ListGroups returns the groups of the classes, each once, in the order of the classes.
func (r NodeClasses) ListGroups() (out []*NodeGroup) {
	for i := range r {
		if g := r[i].Group; g != nil && !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out
}

// DiffersInGroups reports whether nodes have other labels or taints than before, whatever their number and free
// capacity.
func (r NodeClasses) DiffersInGroups(old NodeClasses) bool {
	is, was := r.ListGroups(), old.ListGroups()
	return len(is) != len(was) || slices.ContainsFunc(is, func(g *NodeGroup) bool {
		return !slices.ContainsFunc(was, func(o *NodeGroup) bool {
			return maps.Equal(g.Labels, o.Labels) && slices.Equal(g.Size.Taints, o.Size.Taints) && slices.Equal(g.Unreported, o.Unreported)
		})
	})
}

func (g *NodeGroup) equal(o *NodeGroup) bool {
	if g == nil || o == nil || g == o {
		return g == o
	}
	return g.Size.hasEqualNodes(&o.Size) && maps.Equal(g.Labels, o.Labels) && slices.Equal(g.Unreported, o.Unreported)
}
