package inventory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"atoll.dev/atoll/internal/freecapacity"
)

// labelledNode is a node with labels as "key=value key=value", and taints.
func labelledNode(name, labels string, taints ...corev1.Taint) *corev1.Node {
	n := aNode(name, "4")
	n.Labels = map[string]string{"kubernetes.io/hostname": name, "beta.kubernetes.io/arch": "amd64"}
	for pair := range strings.FieldsSeq(labels) {
		key, value, _ := strings.Cut(pair, "=")
		n.Labels[key] = value
	}
	n.Spec.Taints = taints
	return n
}

// inventoryOf is an Inventory that has listed these nodes, and no pods.
func inventoryOf(nodes ...*corev1.Node) *Inventory {
	i := &Inventory{nodes: map[string]node{}, pods: map[string]pod{}, used: map[string]*use{}, total: resourceAmounts{}, requested: resourceAmounts{}, counted: map[string]bool{}, read: map[string]bool{countProperties: true}, excess: map[string]string{}, version: "v1.36.3", wake: make(chan struct{}, 1), rescan: make(chan struct{}, 1)}
	var all []any
	for _, n := range nodes {
		all = append(all, n)
	}
	_ = i.newNodeSumStore().Replace(all, "")
	_ = i.newPodSumStore().Replace(nil, "")
	return i
}

// reportCapacity returns what is reported at first.
func (i *Inventory) reportCapacity() (lines []string, groups ReportedGroups) {
	i.mu.Lock()
	defer i.mu.Unlock()
	lines, groups, _ = i.chooseCapacityToReport(time.Now())
	return lines, groups
}

// Nodes are grouped by taints and labels. Full, cordoned and unready nodes are in groups, and taints by which
// Kubernetes marks the state of a node make none.
func TestGroupsOfNodes(t *testing.T) {
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	cordoned := labelledNode("c", "pool=gpu arch=amd64", gpu, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule})
	cordoned.Spec.Unschedulable = true
	cordoned.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("8")
	unready := labelledNode("d", "pool=cpu arch=amd64")
	unready.Status.Conditions = nil
	lines, groups := inventoryOf(labelledNode("a", "pool=cpu arch=amd64"), labelledNode("b", "arch=amd64"), cordoned, unready).reportCapacity()
	if want := []string{"1 cpu=3840m memory=65536Mi pods=96", "1 cpu=3840m memory=65536Mi pods=96"}; !slices.Equal(lines, want) {
		t.Errorf("classes %q", lines)
	}
	want := ReportedGroups{
		Sizes:     []string{"2 cpu=4000m memory=65536Mi pods=100", "1 cpu=4000m memory=65536Mi pods=100", "1 cpu=4000m memory=65536Mi pods=100 nvidia.com/gpu=8 taints=gpu=yes:NoSchedule"},
		Labels:    []map[string]string{{"pool": "cpu"}, {}, {"pool": "gpu"}},
		OfClasses: []uint32{1, 2}, Shared: map[string]string{"arch": "amd64"}, Unreported: []string{},
	}
	if !groups.equal(want) {
		t.Errorf("groups %+v\nwant   %+v", groups, want)
	}
}

// sentBytes is at least what the groups have as they are sent.
func (g *ReportedGroups) sentBytes() (n int) {
	label := func(labels map[string]string) {
		for key, value := range labels {
			n += labelFrame + len(key) + len(value)
		}
	}
	label(g.Shared)
	for i, size := range g.Sizes {
		n += 6 + len(size)
		label(g.Labels[i])
	}
	for _, entry := range g.Unreported {
		n += 4 + len(entry)
	}
	return n + 3 + len(g.OfClasses)
}

// The report stays within its bounds whatever labels and taints nodes have. A label of a node is in its group, or is
// named among those that are left out. The order of nodes is no matter.
func TestGroupsStayWithinTheirBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for round := range 16 {
		var nodes []*corev1.Node
		keys, values := 1+r.IntN(120), 1+r.IntN(6)
		for at := range 1 + r.IntN(60) {
			n := labelledNode(fmt.Sprintf("n%03d", at), "")
			for k := range keys {
				domain := []string{"", "feature.node.kubernetes.io/", "example.com/", strings.Repeat("d", 60) + ".example/", "topology.kubernetes.io/"}[k%5]
				if r.IntN(3) > 0 || round%3 == 0 {
					n.Labels[fmt.Sprint(domain, "key", k)] = fmt.Sprint("value", r.IntN(values))
				}
			}
			if round%4 == 1 {
				n.Labels["example.com/id"] = n.Name
			}
			for k := range r.IntN(2) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: fmt.Sprint("t", (at+k)%(1+round)), Effect: corev1.TaintEffectNoExecute})
			}
			nodes = append(nodes, n)
		}
		i := inventoryOf(nodes...)
		lines, groups := i.reportCapacity()
		if len(groups.Sizes) > mostGroups || len(lines) > freecapacity.MaxNodeClasses || groups.sentBytes() > 4<<10 {
			t.Fatalf("round %d: %d groups, %d classes, %d bytes", round, len(groups.Sizes), len(lines), groups.sentBytes())
		}
		for _, line := range groups.Sizes {
			if _, err := freecapacity.ParseGroup(line, nil); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if len(groups.Sizes) == 0 {
			continue // too many taints
		}
		for _, n := range nodes {
			g := i.groups.groups[i.groups.at[n.Name]]
			g.Unreported = groups.Unreported
			for key, value := range n.Labels {
				if got, has := g.Labels[key]; has && got != value || !has && !g.IsUnreportedLabel(key) {
					t.Fatalf("round %d: node %s has %s=%s, and its group has %q, without %q", round, n.Name, key, value, got, g.Unreported)
				}
			}
			for key := range g.Labels {
				if _, has := n.Labels[key]; !has {
					t.Fatalf("round %d: node %s has no label %s, and its group has", round, n.Name, key)
				}
			}
		}
		slices.Reverse(nodes)
		if againLines, again := inventoryOf(nodes...).reportCapacity(); !again.equal(groups) || !slices.Equal(againLines, lines) {
			t.Fatalf("round %d: the order matters", round)
		}
	}
}

// Labels that no API server of Kubernetes stores are not kept, and everything about labels is unknown then.
func TestStrangeLabelsAreNotKept(t *testing.T) {
	n := labelledNode("a", "pool=cpu")
	n.Labels["a\x1b[2J"] = "b"
	_, groups := inventoryOf(n).reportCapacity()
	if !slices.Equal(groups.Unreported, []string{"*"}) || !maps.Equal(groups.Shared, map[string]string{"pool": "cpu"}) {
		t.Errorf("groups %+v", groups)
	}
	if _, none := inventoryOf().reportCapacity(); !reflect.DeepEqual(none, ReportedGroups{}) {
		t.Errorf("no nodes have groups %+v", none)
	}
}

// A changed label is reported, as a small change is, and a heartbeat of a node groups nothing again.
func TestChangedLabelsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := inventoryOf(labelledNode("a", "pool=cpu"))
		i.lastSnapshot.Room, i.lastSnapshot.Groups = i.reportCapacity()
		_ = i.newNodeSumStore().Update(labelledNode("a", "pool=cpu"))
		if i.groupsStale {
			t.Error("a heartbeat groups the nodes again")
		}
		_ = i.newNodeSumStore().Update(labelledNode("a", "pool=gpu"))
		if _, groups := i.reportCapacity(); groups.Shared["pool"] != "cpu" {
			t.Errorf("reported at once: %+v", groups)
		}
		time.Sleep(roomQuiet)
		if _, groups := i.reportCapacity(); groups.Shared["pool"] != "gpu" {
			t.Errorf("reported later: %+v", groups)
		}
		_ = i.newNodeSumStore().Delete(labelledNode("a", ""))
		time.Sleep(roomQuiet)
		if lines, groups := i.reportCapacity(); len(lines) != 0 || len(groups.Sizes) != 0 {
			t.Errorf("a deleted node is reported: %q, %+v", lines, groups)
		}
	})
}

// Small classes are joined within their groups when nodes are too different.
func TestSmallClassesJoinWithinGroups(t *testing.T) {
	var nodes []freecapacity.NodeClass
	groups := []*freecapacity.NodeGroup{{}, {}, {}}
	for at := range int64(200) {
		nodes = append(nodes, freecapacity.NodeClass{CPU: (1 + at) * 397, Memory: (1 + at%17) << 30, Pods: 100, Group: groups[at%3]})
	}
	classes := classifyFreeCapacity(nodes, mostClasses)
	if len(classes) > mostClasses {
		t.Fatalf("%d classes", len(classes))
	}
	by := map[*freecapacity.NodeGroup]int64{}
	for _, c := range classes {
		by[c.Group] += c.Nodes
	}
	if want := map[*freecapacity.NodeGroup]int64{groups[0]: 67, groups[1]: 67, groups[2]: 66}; !maps.Equal(by, want) {
		t.Errorf("nodes by group: %v", by)
	}
}

// variedNodes are nodes of so many pools with free capacities of all sizes.
func variedNodes(count, pools int) (nodes []*corev1.Node) {
	r := rand.New(rand.NewPCG(61, 62))
	for at := range count {
		n := labelledNode(fmt.Sprintf("n%04d", at), fmt.Sprint("pool=p", at%pools))
		n.Status.Allocatable["cpu"] = *resource.NewMilliQuantity(500+r.Int64N(16_000), resource.DecimalSI)
		n.Status.Allocatable["memory"] = *resource.NewQuantity((1+r.Int64N(64))<<30, resource.BinarySI)
		nodes = append(nodes, n)
	}
	return nodes
}

// Groups by labels take little of the free capacity that is reported without them: where nodes differ too much, labels are left
// out.
func TestGroupsLeaveFreeCapacityExact(t *testing.T) {
	for _, tc := range []struct{ nodes, pools, groups int }{{12, 12, 12}, {50, 4, 4}, {300, 4, 1}, {300, 12, 1}} {
		i := inventoryOf(variedNodes(tc.nodes, tc.pools)...)
		_, free := i.freeNodes()
		want := classifyFreeCapacity(free, mostClasses).TotalByResource()
		lines, groups := i.reportCapacity()
		classes, err := freecapacity.ParseClasses(lines)
		if err != nil || len(groups.Sizes) != tc.groups {
			t.Errorf("%d nodes of %d pools are in %d groups, want %d: %v", tc.nodes, tc.pools, len(groups.Sizes), tc.groups, err)
		}
		got := classes.TotalByResource()
		for name, n := range want {
			if got[name] < n-n/firstLossFraction {
				t.Errorf("%d nodes of %d pools: %d %s are reported, and %d without labels", tc.nodes, tc.pools, got[name], name, n)
			}
		}
	}
}

// Nodes that became alike are grouped by labels again after a time.
func TestGroupsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := variedNodes(300, 12)
		i := inventoryOf(nodes...)
		if _, groups := i.reportCapacity(); len(groups.Sizes) != 1 || !slices.Equal(groups.Unreported, []string{"pool"}) {
			t.Fatalf("groups %+v", groups)
		}
		var pods []any
		for at, n := range nodes {
			p := aPod(fmt.Sprint("fill", at), n.Name, "1")
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": *n.Status.Allocatable.Cpu(), "memory": *n.Status.Allocatable.Memory()}
			pods = append(pods, p)
		}
		_ = i.newPodSumStore().Replace(pods, "")
		time.Sleep(regroupInterval)
		if _, groups := i.reportCapacity(); len(groups.Sizes) != mostGroups {
			t.Errorf("%d groups of nodes that are alike", len(groups.Sizes))
		}
	})
}

// The hub reads all groups that an agent may report, with many shared labels, too.
func TestHubReadsReportedGroups(t *testing.T) {
	var nodes []*corev1.Node
	for at := range 10 {
		n := labelledNode(fmt.Sprint("n", at), fmt.Sprint("pool=p", at))
		for k := range 45 {
			n.Labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-%02d", k)] = "true"
		}
		nodes = append(nodes, n)
	}
	lines, sent := inventoryOf(nodes...).reportCapacity()
	classes, err := freecapacity.ParseClasses(lines)
	if err != nil || len(sent.Sizes) != 10 {
		t.Fatalf("%d groups: %v", len(sent.Sizes), err)
	}
	var groups []freecapacity.NodeGroup
	for at, size := range sent.Sizes {
		labels := maps.Clone(sent.Shared)
		maps.Copy(labels, sent.Labels[at])
		g, err := freecapacity.ParseGroup(size, labels)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	var positions []int32
	for _, p := range sent.OfClasses {
		positions = append(positions, int32(p))
	}
	if kept := classes.WithGroups(groups, positions, sent.Unreported).ListGroups(); len(kept) != 10 {
		t.Errorf("the hub keeps %d of 10 groups", len(kept))
	}
}

// The work on labels has a bound: however many distinct labels nodes have, only so many are tried.
func TestManyLabelsAreTriedToABound(t *testing.T) {
	shapes, omitted := []*nodeShape{}, map[string]bool{}
	for at := range 3000 {
		var text strings.Builder
		for k := range 40 {
			fmt.Fprintf(&text, "k%06d=v,", at*40+k)
		}
		s := &nodeShape{rest: strings.TrimSuffix(text.String(), ",")}
		s.nextLabel()
		shapes = append(shapes, s)
	}
	keys, groups := chooseLabelKeys(shapes, 1, mostGroups, 60, omitted)
	if groups > mostGroups || !slices.Equal(joinOmitted(omitted), []string{"*"}) {
		t.Errorf("%d groups, without %d labels", groups, len(omitted))
	}
	for _, key := range keys {
		if key > fmt.Sprintf("k%06d", mostTriedKeys) {
			t.Errorf("label %s is tried", key)
		}
	}
	if len(omitted) > mostUnreported+mostTriedKeys {
		t.Errorf("%d labels are listed", len(omitted))
	}
}

// Labels after the bound are named by their domain.
func TestLabelsAfterTheBoundAreNamed(t *testing.T) {
	n := labelledNode("a", "pool=cpu")
	for k := range 250 {
		n.Labels[fmt.Sprintf("feature.node.kubernetes.io/%03d", k)] = ""
	}
	_, groups := inventoryOf(n).reportCapacity()
	if !slices.Equal(groups.Unreported, []string{"feature.node.kubernetes.io/*"}) || groups.Shared["pool"] != "cpu" {
		t.Errorf("groups %+v", groups)
	}
}
