package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/kinds"
)

const (
	// mostGroups is the number of reported node groups. Labels that would make more are left out.
	mostGroups = 12
	// mostGroupBytes bounds the reported groups, as they are sent. A hub that does not have them in its
	// protocol takes 4 KiB of unknown fields.
	mostGroupBytes = 3 << 10
	// mostNodeLabelText bounds the labels that are kept of a node.
	mostNodeLabelText = 3 << 10
	// mostTriedKeys is the number of labels by which groups may be divided. In push mode, a hostile member could
	// have millions of them.
	mostTriedKeys = 200
	// mostUnreported is how many entries name labels that are left out, before "*" does.
	mostUnreported = 16
	// mostUnreportedText bounds those entries together.
	mostUnreportedText = 512
	// Bytes that the protocol adds to a label, and to a group.
	labelFrame, groupFrame = 8, 16
	// maxSizeText is the longest line of a class that a hub reads.
	maxSizeText = 1000
)

// nodeLabels are the labels of a node that are kept. Nodes with equal labels share their memory.
type nodeLabels struct {
	text unique.Handle[string] // "key=value,key=value", by the order of compareLabelKeys
	// omitted are the entries of the labels that are left out, joined by commas.
	omitted unique.Handle[string]
}

// labelsOf returns what is kept of the labels of a node.
func labelsOf(n *corev1.Node) nodeLabels {
	var text strings.Builder
	omitted := map[string]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(n.Labels), compareLabelKeys) {
		value := n.Labels[key]
		switch {
		case freecapacity.IsNodeOwnLabel(key):
		case !isLabelText(key, 317) || !isLabelText(value, 63):
			omitted["*"] = true // no API server of Kubernetes stores such labels
		case text.Len()+len(key)+len(value)+2 > mostNodeLabelText:
			omitted[freecapacity.FormatUnreportedEntry(key)] = true
		default:
			if text.Len() > 0 {
				text.WriteByte(',')
			}
			text.WriteString(key + "=" + value)
		}
	}
	return nodeLabels{unique.Make(text.String()), unique.Make(strings.Join(joinOmitted(omitted), ","))}
}

// selectLabels returns the kept labels with these keys.
func (l nodeLabels) selectLabels(keys []string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(l.text.Value(), ",") {
		if key, value, _ := strings.Cut(pair, "="); key != "" && slices.Contains(keys, key) {
			out[key] = value
		}
	}
	return out
}

// isLabelText reports whether a text has only the characters of labels.
func isLabelText(s string, most int) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./", rune(c)) {
			return false
		}
	}
	return len(s) <= most
}

// compareLabelKeys orders the keys that pods select by most often first, and the many of feature
// discovery last.
func compareLabelKeys(a, b string) int {
	return cmp.Or(cmp.Compare(rankLabelKey(a), rankLabelKey(b)), strings.Compare(a, b))
}

func rankLabelKey(key string) int {
	domain, _, _ := strings.Cut(key, "/")
	switch {
	case key == corev1.LabelTopologyZone, key == corev1.LabelTopologyRegion, key == corev1.LabelArchStable, key == corev1.LabelOSStable, key == corev1.LabelInstanceTypeStable:
		return 0
	case domain == "node-role.kubernetes.io":
		return 1
	case domain == "feature.node.kubernetes.io":
		return 3
	}
	return 2
}

// joinOmitted returns the entries, sorted. Too many become one for all labels.
func joinOmitted(entries map[string]bool) []string {
	text := 0
	for entry := range entries {
		text += len(entry) + labelFrame
	}
	if entries["*"] || len(entries) > mostUnreported || text > mostUnreportedText {
		return []string{"*"}
	}
	return slices.Sorted(maps.Keys(entries))
}

// nodeGroups are the groups of all nodes.
type nodeGroups struct {
	groups []freecapacity.NodeGroup
	// at is the index of the group of each node, by the node's name.
	at      map[string]int
	omitted []string
}

// nodeShape is the nodes with equal taints and kept labels.
type nodeShape struct {
	group int
	names []string
	// key and value are the next label of the nodes that does not divide the groups yet, and rest has those after it. An
	// empty key: there are no more labels.
	key, value, rest string
}

// nextLabel goes on to the next label.
func (s *nodeShape) nextLabel() {
	var pair string
	pair, s.rest, _ = strings.Cut(s.rest, ",")
	s.key, s.value, _ = strings.Cut(pair, "=")
}

// groupNodes groups the nodes by taints, and by labels into at most so many groups. It returns no groups when the
// taints alone make more than mostGroups.
func groupNodes(nodes map[string]node, most int) (out nodeGroups) {
	shapes, omitted := shapesOf(nodes)
	count := 0
	byTaints := map[string]int{}
	for _, s := range shapes {
		taints := freecapacity.NodeClass{Taints: lastingTaints(nodes[s.names[0]].taints)}.String()
		group, known := byTaints[taints]
		if !known {
			group, byTaints[taints] = count, count
			count++
		}
		s.group = group
	}
	if count == 0 || count > mostGroups {
		return nodeGroups{}
	}
	sizeText := sizeTextOf(nodes)
	if count*(groupFrame+sizeText) > mostGroupBytes || sizeText > maxSizeText {
		return nodeGroups{}
	}
	keys, count := chooseLabelKeys(shapes, count, max(most, count), sizeText, omitted)
	out = nodeGroups{groups: make([]freecapacity.NodeGroup, count), at: make(map[string]int, len(nodes)), omitted: joinOmitted(omitted)}
	out.addShapes(shapes, keys, nodes)
	return out
}

// addShapes adds the nodes of the shapes to their groups, with these labels.
func (g *nodeGroups) addShapes(shapes []*nodeShape, keys []string, nodes map[string]node) {
	for _, s := range shapes {
		one := &g.groups[s.group]
		if one.Labels == nil {
			one.Labels = nodes[s.names[0]].labels.selectLabels(keys)
		}
		for _, name := range s.names {
			n := nodes[name]
			g.at[name], one.Size.Taints = s.group, lastingTaints(n.taints)
			one.Size.Nodes++
			raiseLargest(&one.Size, n.allocatable)
		}
	}
}

// lastingTaints returns the taints without those by which Kubernetes marks the state of a node.
func lastingTaints(taints []v1alpha1.Taint) []v1alpha1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t v1alpha1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
	})
}

// shapesOf returns the shapes of the nodes, by the names of their first nodes, and what is left out of
// their labels.
func shapesOf(nodes map[string]node) (shapes []*nodeShape, omitted map[string]bool) {
	type identity struct {
		labels nodeLabels
		taints string
	}
	omitted = map[string]bool{}
	by := map[identity]*nodeShape{}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		id := identity{n.labels, freecapacity.NodeClass{Taints: lastingTaints(n.taints)}.String()}
		s := by[id]
		if s == nil {
			s = &nodeShape{rest: n.labels.text.Value()}
			s.nextLabel()
			by[id], shapes = s, append(shapes, s)
			for entry := range strings.SplitSeq(n.labels.omitted.Value(), ",") {
				if entry != "" {
					omitted[entry] = true
				}
			}
		}
		s.names = append(s.names, name)
	}
	return shapes, omitted
}

// chooseLabelKeys divides the groups of the shapes by one label after the other, as far as the bounds allow,
// and returns the keys. It adds the others to omitted.
func chooseLabelKeys(shapes []*nodeShape, count, most, sizeText int, omitted map[string]bool) (keys []string, groups int) {
	shared, each, labels := 0, groupFrame+sizeText, 0 // bytes of what all groups share, of each group, and of its labels on the hub
	for range mostTriedKeys {
		key := firstLabelKey(shapes)
		if key == "" {
			break
		}
		d := divideByLabel(shapes, key, most)
		oneShared, oneEach := d.text, 0
		if !d.isShared {
			oneShared, oneEach = 0, d.text
		}
		if d.count > most || len(keys) >= freecapacity.MaxGroupLabels || shared+oneShared+d.count*(each+oneEach) > mostGroupBytes ||
			d.count*(labels+d.text) > freecapacity.MaxGroupsText {
			omitted[freecapacity.FormatUnreportedEntry(key)] = true
			continue
		}
		for i, s := range shapes {
			s.group = d.groups[i]
		}
		count, keys = d.count, append(keys, key)
		shared, each, labels = shared+oneShared, each+oneEach, labels+d.text
	}
	omitRemainingLabels(shapes, omitted)
	return keys, count
}

// firstLabelKey returns the first of the next labels of the shapes; empty: there are no more.
func firstLabelKey(shapes []*nodeShape) (first string) {
	for _, s := range shapes {
		if s.key != "" && s.key != first && (first == "" || compareLabelKeys(s.key, first) < 0) {
			first = s.key
		}
	}
	return first
}

// omitRemainingLabels adds the labels to omitted that were not tried.
func omitRemainingLabels(shapes []*nodeShape, omitted map[string]bool) {
	for _, s := range shapes {
		for ; s.key != ""; s.nextLabel() {
			if omitted[freecapacity.FormatUnreportedEntry(s.key)] = true; len(omitted) > mostUnreported {
				return // "*" stands for all
			}
		}
	}
}

// labelDivision is the groups of the shapes when a label divides them, too.
type labelDivision struct {
	groups []int // by shape
	count  int
	// text is the most bytes that the label has in a group.
	text int
	// isShared: all nodes have the same value.
	isShared bool
}

// divideByLabel divides the groups by the label that is the next one of the shapes that have it, and goes on to the
// labels after it. It stops counting above the number of groups that there may be.
func divideByLabel(shapes []*nodeShape, key string, most int) (d labelDivision) {
	type part struct {
		group int
		value string
		has   bool
	}
	parts, values := map[part]int{}, map[part]bool{}
	for _, s := range shapes {
		one := part{group: s.group}
		if s.key == key {
			one.value, one.has = s.value, true
			s.nextLabel()
		}
		if d.count > most {
			continue
		}
		group, known := parts[one]
		if !known {
			group, parts[one] = d.count, d.count
			d.count++
		}
		d.groups, d.text = append(d.groups, group), max(d.text, labelFrame+len(key)+len(one.value))
		one.group = 0
		values[one] = true
	}
	d.isShared = len(values) == 1
	return d
}

// sizeTextOf returns the most bytes that the size of a group has as a line.
func sizeTextOf(nodes map[string]node) int {
	resources, taints := map[corev1.ResourceName]bool{}, 0
	for _, n := range nodes {
		taints = max(taints, len(freecapacity.NodeClass{Taints: lastingTaints(n.taints)}.String()))
		for name := range n.allocatable {
			if kinds.IsExtraCapacityResource(name) {
				resources[name] = true
			}
		}
	}
	size := 60 + taints
	for name := range resources {
		size += len(name) + 20
	}
	return size
}

// raiseLargest raises each amount to at least what a node has.
func raiseLargest(c *freecapacity.NodeClass, has resourceAmounts) {
	c.CPU, c.Pods = max(c.CPU, has[corev1.ResourceCPU]), max(c.Pods, has[corev1.ResourcePods])
	c.Memory = max(c.Memory, (has[corev1.ResourceMemory]+leastMemory-1)/leastMemory*leastMemory)
	for name, n := range has {
		if kinds.IsExtraCapacityResource(name) && n > 0 {
			if c.Other == nil {
				c.Other = map[string]int64{}
			}
			c.Other[string(name)] = max(c.Other[string(name)], n)
		}
	}
}

// ReportedGroups are the node groups of the free capacity. The zero value: there are none, or too many.
type ReportedGroups struct {
	Sizes  []string            // freecapacity.NodeGroup.Size, by group
	Labels []map[string]string // without the shared ones, by group
	// OfClasses has the position, from 1, of the group of each class.
	OfClasses  []uint32
	Shared     map[string]string
	Unreported []string
}

func (g *ReportedGroups) equal(o ReportedGroups) bool {
	return slices.Equal(g.Sizes, o.Sizes) && slices.EqualFunc(g.Labels, o.Labels, maps.Equal[map[string]string]) &&
		slices.Equal(g.OfClasses, o.OfClasses) && maps.Equal(g.Shared, o.Shared) && slices.Equal(g.Unreported, o.Unreported)
}

// reportGroups returns the groups as they are reported with the classes.
func (g *nodeGroups) reportGroups(classes freecapacity.NodeClasses) (out ReportedGroups) {
	if len(g.groups) == 0 {
		return out
	}
	out.Shared, out.Unreported = maps.Clone(g.groups[0].Labels), g.omitted
	for i := range g.groups {
		maps.DeleteFunc(out.Shared, func(key, value string) bool {
			other, has := g.groups[i].Labels[key]
			return !has || other != value
		})
	}
	for i := range g.groups {
		own := maps.Clone(g.groups[i].Labels)
		maps.DeleteFunc(own, func(key, _ string) bool { _, is := out.Shared[key]; return is })
		out.Sizes, out.Labels = append(out.Sizes, g.groups[i].Size.String()), append(out.Labels, own)
	}
	for i := range classes {
		position := uint32(0)
		for j := range g.groups {
			if classes[i].Group == &g.groups[j] {
				position = uint32(j + 1)
			}
		}
		out.OfClasses = append(out.OfClasses, position)
	}
	return out
}
