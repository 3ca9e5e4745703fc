package atoll

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// Room that a member has left for pods, as its agent counts it: nodes in classes.
type Room []NodeClass

// NodeClass is so many ready nodes that have at least so much left each: CPU in
// thousandths, memory in bytes, pods, and other resources by name.
type NodeClass struct {
	Nodes             int64
	CPU, Memory, Pods int64
	Other             map[string]int64
	// Taints of the nodes that repel pods, sorted.
	Taints []v1alpha1.Taint
}

// Requests of one replica: CPU in thousandths, memory in bytes, other resources by name,
// and the taints of nodes that it tolerates.
type Requests struct {
	CPU, Memory int64
	Other       map[string]int64
	Tolerations []corev1.Toleration
	// Pods of which a replica is made, each of which requests the above; 0 means 1.
	Pods int64
}

// The bounds of a Room's text.
const (
	MaxNodeClasses = 32
	maxClassText   = 1024
)

const mebi = 1 << 20

// String of a class is a line such as
//
//	3 cpu=3500m memory=12288Mi pods=90 nvidia.com/gpu=2 taints=gpu=true:NoSchedule
//
// for three nodes that have so much left each. What is 0 is left out.
func (c NodeClass) String() string {
	b := strconv.AppendInt(nil, c.Nodes, 10)
	put := func(name string, n int64, unit string) {
		if n > 0 {
			b = append(strconv.AppendInt(append(b, " "+name+"="...), n, 10), unit...)
		}
	}
	put("cpu", c.CPU, "m")
	put("memory", c.Memory/mebi, "Mi")
	put("pods", c.Pods, "")
	for _, name := range slices.Sorted(maps.Keys(c.Other)) {
		put(name, c.Other[name], "")
	}
	for i, t := range c.Taints {
		b = append(b, map[bool]string{true: " taints=", false: ","}[i == 0]+taintText(t)...)
	}
	return string(b)
}

func taintText(t v1alpha1.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

var errClass = errors.New("not a class of nodes")

// ParseNodeClass reads what String wrote.
func ParseNodeClass(text string) (NodeClass, error) {
	c, err := parseNodeClass(text)
	if err != nil || len(text) > maxClassText {
		return NodeClass{}, fmt.Errorf("%.100q: %w", text, errClass)
	}
	return c, nil
}

func parseNodeClass(text string) (c NodeClass, err error) {
	head, rest, _ := strings.Cut(text, " ")
	if c.Nodes, err = strconv.ParseInt(head, 10, 32); err != nil || c.Nodes <= 0 {
		return c, errClass
	}
	for rest != "" {
		var field string
		field, rest, _ = strings.Cut(rest, " ")
		name, value, _ := strings.Cut(field, "=")
		switch {
		case name == "cpu":
			c.CPU, err = amountOf(value, "m", 1)
		case name == "memory":
			c.Memory, err = amountOf(value, "Mi", mebi)
		case name == "pods":
			c.Pods, err = amountOf(value, "", 1)
		case name == "taints":
			c.Taints, err = taintsOf(value)
		case name == "":
			err = errClass
		default:
			if c.Other == nil {
				c.Other = map[string]int64{}
			}
			c.Other[name], err = amountOf(value, "", 1)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

// mostOfAmount keeps sums of amounts from running over.
const mostOfAmount = 1 << 53

func amountOf(value, unit string, times int64) (int64, error) {
	digits, ok := strings.CutSuffix(value, unit)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n <= 0 || n > mostOfAmount/times {
		return 0, errClass
	}
	return n * times, nil
}

func taintsOf(value string) (out []v1alpha1.Taint, err error) {
	for text := range strings.SplitSeq(value, ",") {
		left, effect, ok := strings.Cut(text, ":")
		key, v, _ := strings.Cut(left, "=")
		if !ok || key == "" || effect == "" {
			return nil, errClass
		}
		out = append(out, v1alpha1.Taint{Key: key, Value: v, Effect: corev1.TaintEffect(effect)})
	}
	return out, nil
}

// Lines of all classes.
func (r Room) Lines() []string {
	out := make([]string, 0, len(r))
	for _, c := range r {
		out = append(out, c.String())
	}
	return out
}

// ParseRoom reads what Lines wrote. A room with a line that cannot be read, or of more
// than MaxNodeClasses, is an error as a whole: what is left out would be taken for full.
func ParseRoom(lines []string) (Room, error) {
	if len(lines) > MaxNodeClasses {
		return nil, fmt.Errorf("%d classes of nodes, of which there may be %d", len(lines), MaxNodeClasses)
	}
	out := make(Room, 0, len(lines))
	for _, line := range lines {
		c, err := ParseNodeClass(line)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// LoadMatters is the part of what there is, an eighth, from which on a change of what is
// used says more than that some application came or went.
const LoadMatters = 8

// DiffersFrom tells whether so much has changed that it should be told soon: the number of
// nodes, or an eighth of what there is left of some resource.
func (r Room) DiffersFrom(old Room) bool {
	a, b := old.Totals(), r.Totals()
	if a["nodes"] != b["nodes"] {
		return true
	}
	for name := range b {
		a[name] += 0
	}
	for name, was := range a {
		if diff := max(was, b[name]) - min(was, b[name]); diff > max(was, b[name])/LoadMatters {
			return true
		}
	}
	return false
}

// Totals of all nodes, by resource; "nodes" counts them.
func (r Room) Totals() map[string]int64 {
	out := map[string]int64{}
	for _, c := range r {
		out["nodes"] = Plus(out["nodes"], c.Nodes)
		add := func(name string, each int64) { out[name] = Plus(out[name], Times(c.Nodes, each)) }
		add("cpu", c.CPU)
		add("memory", c.Memory)
		add("pods", c.Pods)
		for name, v := range c.Other {
			add(name, v)
		}
	}
	return out
}
