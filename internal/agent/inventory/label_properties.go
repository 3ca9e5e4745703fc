package inventory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

const (
	// mostLabelValues is how many values of node labels are reported, of all keys together.
	mostLabelValues = 12
	// mostReportedLabelText bounds the labels with stated keys that are kept of a node.
	mostReportedLabelText = 1 << 10
)

// The properties of the nodes with a label. The key of the label follows the name after a slash, and its value after an
// equals sign.
const (
	propertyNodesCPU    = "cpu.nodes.atoll.dev"
	propertyNodesMemory = "memory.nodes.atoll.dev"
)

// ReportNodeLabels sets the keys of the node labels of which properties report the values. The nodes are listed again
// when the keys change. Until then the former keys are reported.
func (i *Inventory) ReportNodeLabels(keys []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Equal(keys, i.nextLabelKeys) {
		return
	}
	i.nextLabelKeys = slices.Clone(keys)
	if i.relistNodes != nil {
		i.relistNodes()
	}
}

// watchNodes watches the nodes, and lists them again when the keys of reported labels change.
func (i *Inventory) watchNodes(ctx context.Context) {
	for ctx.Err() == nil {
		listed, relist := context.WithCancel(ctx)
		i.mu.Lock()
		i.relistNodes = relist
		i.mu.Unlock()
		i.watch(listed, countNodes, &corev1.Node{}, &corev1.NodeList{}, i.newNodeSumStore())
		relist()
	}
}

// reportedLabelsOf returns the labels of a node that properties report, as "key=value,key=value" in the order of the
// keys. The caller holds mu.
func (i *Inventory) reportedLabelsOf(n *corev1.Node) unique.Handle[string] {
	var text strings.Builder
	for _, key := range i.labelKeys {
		value, has := n.Labels[key]
		if !has || !isLabelText(key, 317) || !isLabelText(value, 63) || text.Len()+len(key)+len(value)+2 > mostReportedLabelText {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte(',')
		}
		text.WriteString(key + "=" + value)
	}
	return unique.Make(text.String())
}

// labelSum is the nodes with a value of a label.
type labelSum struct {
	nodes       int
	allocatable resourceAmounts // cpu and memory
}

func (s *labelSum) add(nodes int, has resourceAmounts) {
	s.nodes += nodes
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		s.allocatable[name] += has[name]
	}
}

// sumFor returns the sum of a key in the map, and adds one that is missing.
func sumFor[K comparable](sums map[K]*labelSum, key K) *labelSum {
	one := sums[key]
	if one == nil {
		one = &labelSum{allocatable: resourceAmounts{}}
		sums[key] = one
	}
	return one
}

// sumNodeLabels sums the nodes by the keys and values of their reported labels.
func (i *Inventory) sumNodeLabels() map[string]map[string]*labelSum {
	alike := map[unique.Handle[string]]*labelSum{} // most nodes have the same labels as others
	for _, n := range i.nodes {
		sumFor(alike, n.reportedLabels).add(1, n.allocatable)
	}
	out := map[string]map[string]*labelSum{}
	for labels, sum := range alike {
		for pair := range strings.SplitSeq(labels.Value(), ",") {
			key, value, isLabel := strings.Cut(pair, "=")
			if !isLabel {
				continue
			}
			if out[key] == nil {
				out[key] = map[string]*labelSum{}
			}
			sumFor(out[key], value).add(sum.nodes, sum.allocatable)
		}
	}
	return out
}

// labelValue is a value of a label, by its place among those of its key.
type labelValue struct {
	rank int
	name string // "/key=value"
	sum  *labelSum
}

// addLabelProperties adds the properties of node labels. If there are too many values, each key keeps those of most nodes; the
// caller holds the lock.
func (i *Inventory) addLabelProperties(out map[string]string) {
	if len(i.labelKeys) == 0 {
		return
	}
	sums := i.sumNodeLabels()
	var values []labelValue
	for _, key := range i.labelKeys {
		nodes, of := 0, sums[key]
		ranked := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
			return cmp.Or(cmp.Compare(of[b].nodes, of[a].nodes), strings.Compare(a, b))
		})
		for rank, value := range ranked {
			nodes += of[value].nodes
			if name := "/" + key + "=" + value; len(propertyNodesMemory)+len(name) <= v1alpha1.MaxPropertyName {
				values = append(values, labelValue{rank, name, of[value]})
			}
		}
		if name := propertyNodes + "/" + key; nodes > 0 && len(name) <= v1alpha1.MaxPropertyName {
			out[name] = strconv.Itoa(nodes)
		}
	}
	slices.SortStableFunc(values, func(a, b labelValue) int { return cmp.Compare(a.rank, b.rank) })
	for _, v := range values[:min(len(values), mostLabelValues)] {
		amounts := v.sum.allocatable.formatQuantities(0)
		out[propertyNodes+v.name] = strconv.Itoa(v.sum.nodes)
		out[propertyNodesCPU+v.name] = amounts[string(corev1.ResourceCPU)]
		out[propertyNodesMemory+v.name] = amounts[string(corev1.ResourceMemory)]
	}
}
