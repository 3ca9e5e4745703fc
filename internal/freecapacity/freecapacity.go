package freecapacity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/quantity"
)

// NodeClasses is the free capacity that a member has left for pods, as its agent counts it: nodes in classes.
type NodeClasses []NodeClass

// NodeClass is so many ready nodes that have at least so much left each: CPU in
// thousandths, memory in bytes, pods, and other resources by name.
type NodeClass struct {
	Nodes             int64
	CPU, Memory, Pods int64
	Other             map[string]int64
	// Taints of the nodes that repel pods, sorted.
	Taints []v1alpha1.Taint
	// Group of the nodes; nil: the agent reports none. A class of no nodes stands for a group
	// whose nodes are all full, cordoned or not ready.
	Group *NodeGroup
}

// ReplicaRequests of one replica: CPU in thousandths, memory in bytes, other resources by name,
// and the nodes that it requires or tolerates.
type ReplicaRequests struct {
	CPU, Memory int64
	Other       map[string]int64
	Tolerations []corev1.Toleration
	// NodeSelector and NodeAffinity are what each pod requires of the labels of its node. Matcher decides
	// by both; nil: they require nothing.
	NodeSelector map[string]string
	NodeAffinity *corev1.NodeSelector
	Matcher      GroupMatcher
	// Pods of which a replica is made, each of which requests the above; 0 means 1.
	Pods int64
}

// The bounds of a Room's text.
const (
	MaxNodeClasses   = 32
	maxNodeClassText = 1024
)

const mebibyte = 1 << 20

// String returns the class as one line, such as the example below.
//
//	3 cpu=3500m memory=12288Mi pods=90 nvidia.com/gpu=2 taints=gpu=true:NoSchedule
//
// for three nodes that have so much left each. Zero amounts are left out.
func (c NodeClass) String() string {
	b := strconv.AppendInt(nil, c.Nodes, 10)
	put := func(name string, n int64, unit string) {
		if n > 0 {
			b = append(strconv.AppendInt(append(b, " "+name+"="...), n, 10), unit...)
		}
	}
	put("cpu", c.CPU, "m")
	put("memory", c.Memory/mebibyte, "Mi")
	put("pods", c.Pods, "")
	for _, name := range slices.Sorted(maps.Keys(c.Other)) {
		put(name, c.Other[name], "")
	}
	for i, t := range c.Taints {
		b = append(b, map[bool]string{true: " taints=", false: ","}[i == 0]+FormatTaint(t)...)
	}
	return string(b)
}

// FormatTaint returns a taint as kubectl writes it.
func FormatTaint(t v1alpha1.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

var errNodeClass = errors.New("not a class of nodes")

// ParseNodeClass reads what String wrote.
func ParseNodeClass(text string) (NodeClass, error) {
	c, err := parseNodeClass(text)
	if err != nil || len(text) > maxNodeClassText {
		return NodeClass{}, fmt.Errorf("%.100q: %w", text, errNodeClass)
	}
	return c, nil
}

func parseNodeClass(text string) (c NodeClass, err error) {
	head, rest, _ := strings.Cut(text, " ")
	if c.Nodes, err = strconv.ParseInt(head, 10, 32); err != nil || c.Nodes <= 0 {
		return c, errNodeClass
	}
	for rest != "" {
		var field string
		field, rest, _ = strings.Cut(rest, " ")
		name, value, _ := strings.Cut(field, "=")
		switch {
		case name == "cpu":
			c.CPU, err = parseAmount(value, "m", 1)
		case name == "memory":
			c.Memory, err = parseAmount(value, "Mi", mebibyte)
		case name == "pods":
			c.Pods, err = parseAmount(value, "", 1)
		case name == "taints":
			c.Taints, err = parseTaints(value)
		case name == "":
			err = errNodeClass
		default:
			if c.Other == nil {
				c.Other = map[string]int64{}
			}
			c.Other[name], err = parseAmount(value, "", 1)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// maxAmount keeps sums of amounts from running over.
const maxAmount = 1 << 53

func parseAmount(value, unit string, times int64) (int64, error) {
	digits, ok := strings.CutSuffix(value, unit)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n <= 0 || n > maxAmount/times {
		return 0, errNodeClass
	}
	return n * times, nil
}

func parseTaints(value string) (out []v1alpha1.Taint, err error) {
	for text := range strings.SplitSeq(value, ",") {
		left, effect, ok := strings.Cut(text, ":")
		key, v, _ := strings.Cut(left, "=")
		if !ok || key == "" || len(key) > maxTaintKey || len(v) > maxTaintValue || !isTaintEffect(corev1.TaintEffect(effect)) {
			return nil, errNodeClass
		}
		out = append(out, v1alpha1.Taint{Key: key, Value: v, Effect: corev1.TaintEffect(effect)})
	}
	return out, nil
}

// The bounds of a taint in a Cluster's status.
const (
	maxTaintKey   = 316
	maxTaintValue = 63
)

func isTaintEffect(e corev1.TaintEffect) bool {
	return e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectPreferNoSchedule || e == corev1.TaintEffectNoExecute
}

// EncodeClasses returns a line for each class that has nodes.
func (r NodeClasses) EncodeClasses() []string {
	out := make([]string, 0, len(r))
	for _, c := range r {
		if c.Nodes > 0 {
			out = append(out, c.String())
		}
	}
	return out
}

// ParseClasses reads what EncodeClasses wrote. A list with a line that cannot be read, or of more
// than MaxNodeClasses, is an error as a whole: what is left out would be taken for full.
func ParseClasses(lines []string) (NodeClasses, error) {
	if len(lines) > MaxNodeClasses {
		return nil, fmt.Errorf("%d classes of nodes, of which there may be %d", len(lines), MaxNodeClasses)
	}
	out := make(NodeClasses, 0, len(lines))
	for _, line := range lines {
		c, err := ParseNodeClass(line)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// SignificantFraction is the fraction, an eighth, from which on a change is reported at once: a
// smaller one is the ordinary change of applications.
const SignificantFraction = 8

// DiffersSignificantly reports whether the change must be reported soon: the number of nodes
// differs, or an eighth of the free capacity of some resource.
func (r NodeClasses) DiffersSignificantly(old NodeClasses) bool {
	a, b := old.TotalByResource(), r.TotalByResource()
	if a["nodes"] != b["nodes"] {
		return true
	}
	for name := range b {
		a[name] += 0
	}
	for name, was := range a {
		if diff := max(was, b[name]) - min(was, b[name]); diff > max(was, b[name])/SignificantFraction {
			return true
		}
	}
	return false
}

// TotalByResource returns the sum of all nodes, by resource; "nodes" counts them.
func (r NodeClasses) TotalByResource() map[string]int64 {
	out := map[string]int64{}
	for _, c := range r {
		out["nodes"] = quantity.AddCapped(out["nodes"], c.Nodes)
		add := func(name string, each int64) {
			out[name] = quantity.AddCapped(out[name], quantity.MultiplyCapped(c.Nodes, each))
		}
		add("cpu", c.CPU)
		add("memory", c.Memory)
		add("pods", c.Pods)
		for name, v := range c.Other {
			add(name, v)
		}
	}
	return out
}
