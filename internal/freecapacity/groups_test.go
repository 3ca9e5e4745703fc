package freecapacity

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/api/v1alpha1"
)

func exampleGroups(t *testing.T) []NodeGroup {
	t.Helper()
	var out []NodeGroup
	for _, one := range []struct {
		size   string
		labels map[string]string
	}{
		{"3 cpu=4000m memory=16384Mi pods=110", map[string]string{"pool": "cpu", "topology.kubernetes.io/zone": "a"}},
		{"2 cpu=8000m pods=110 nvidia.com/gpu=8 taints=gpu=true:NoSchedule", map[string]string{"pool": "gpu"}},
		{"1 cpu=2000m pods=110", map[string]string{"pool": "full", "node-role.kubernetes.io/worker": ""}},
	} {
		g, err := ParseGroup(one.size, one.labels)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, g)
	}
	return out
}

// The groups that an agent reports are in the status, and are read from there as they were, with a
// group of which no node takes a pod.
func TestStatusHoldsTheGroups(t *testing.T) {
	classes, err := ParseClasses([]string{"3 cpu=3500m memory=12288Mi pods=90", "1 cpu=8000m pods=5 nvidia.com/gpu=2 taints=gpu=true:NoSchedule"})
	if err != nil {
		t.Fatal(err)
	}
	is := classes.WithGroups(exampleGroups(t), []int32{1, 2}, []string{"example.com/*"})
	if classes[0].Group != nil || len(is) != 3 || is[2].Nodes != 0 || len(is.ListGroups()) != 3 || !slices.Equal(is.EncodeClasses(), classes.EncodeClasses()) {
		t.Fatalf("classes %+v of %+v", is, classes)
	}
	stored, err := json.Marshal(is.ToStatus())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"nodeClasses":[{"nodes":3,"free":{"cpu":"3500m","memory":"12Gi","pods":"90"},"nodeGroup":1},` +
		`{"nodes":1,"free":{"cpu":"8","nvidia.com/gpu":"2","pods":"5"},"taints":[{"key":"gpu","value":"true","effect":"NoSchedule"}],"nodeGroup":2}],` +
		`"nodeGroups":[{"nodes":3,"labels":{"pool":"cpu","topology.kubernetes.io/zone":"a"},"largest":{"cpu":"4","memory":"16Gi","pods":"110"}},` +
		`{"nodes":2,"labels":{"pool":"gpu"},"taints":[{"key":"gpu","value":"true","effect":"NoSchedule"}],"largest":{"cpu":"8","nvidia.com/gpu":"8","pods":"110"}},` +
		`{"nodes":1,"labels":{"node-role.kubernetes.io/worker":"","pool":"full"},"largest":{"cpu":"2","pods":"110"}}],"unreportedLabels":["example.com/*"]}`
	if string(stored) != want || strings.Contains(string(stored), "timeAdded") {
		t.Errorf("stored as %s", stored)
	}
	var read v1alpha1.FreeCapacity
	if err := json.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}
	again, known := FreeCapacityOf(&v1alpha1.ResourceSummary{FreeCapacity: &read})
	if !known || !again.Equal(is) || !equality.Semantic.DeepEqual(&read, again.ToStatus()) {
		t.Errorf("read as %+v, %t", again, known)
	}
	for i, change := range []func(g *NodeGroup){
		func(g *NodeGroup) { g.Size.Nodes++ }, func(g *NodeGroup) { g.Labels = map[string]string{"pool": "other"} }, func(g *NodeGroup) { g.Unreported = nil },
	} {
		other := classes.WithGroups(exampleGroups(t), []int32{1, 2}, []string{"example.com/*"})
		if change(other[2].Group); other.Equal(is) {
			t.Errorf("change %d makes no difference", i)
		}
	}
	if is.Equal(classes) || classes.Equal(is) {
		t.Error("classes with and without groups are equal")
	}
}

// Other labels and taints make a difference, other numbers and another order do not.
func TestDifferenceOfGroups(t *testing.T) {
	classes := NodeClasses{{Nodes: 1, CPU: 1000, Pods: 9}}
	with := func(change func(g []NodeGroup) []NodeGroup) NodeClasses {
		return classes.WithGroups(change(exampleGroups(t)), []int32{1}, nil)
	}
	is := with(func(g []NodeGroup) []NodeGroup { return g })
	for name, tc := range map[string]struct {
		change  func(g []NodeGroup) []NodeGroup
		differs bool
	}{
		"nothing": {func(g []NodeGroup) []NodeGroup { return g }, false},
		"order":   {func(g []NodeGroup) []NodeGroup { slices.Reverse(g); return g }, false},
		"numbers": {func(g []NodeGroup) []NodeGroup { g[0].Size.Nodes, g[0].Size.CPU = 9, 1; return g }, false},
		"a label": {func(g []NodeGroup) []NodeGroup { g[0].Labels = map[string]string{"pool": "x"}; return g }, true},
		"taints":  {func(g []NodeGroup) []NodeGroup { g[1].Size.Taints = nil; return g }, true},
		"a group": {func(g []NodeGroup) []NodeGroup { return g[:2] }, true},
	} {
		if got := with(tc.change); got.DiffersInGroups(is) != tc.differs || is.DiffersInGroups(got) != tc.differs {
			t.Errorf("%s: differs is not %t", name, tc.differs)
		}
	}
	if !is.DiffersInGroups(classes) || classes.DiffersInGroups(classes) {
		t.Error("no groups")
	}
}

// Groups over a bound are left out all together, and the classes stay.
func TestUnreadableGroupsAreLeftOut(t *testing.T) {
	classes, err := ParseClasses([]string{"1 cpu=1000m pods=9"})
	if err != nil {
		t.Fatal(err)
	}
	many := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint("example.com/", strings.Repeat("x", 55), i)] = strings.Repeat("v", 60)
		}
		return out
	}
	same := func(g []NodeGroup) []NodeGroup { return g }
	for name, tc := range map[string]struct {
		change     func([]NodeGroup) []NodeGroup
		positions  []int32
		unreported []string
		kept       bool
	}{
		"valid":              {same, []int32{1}, []string{"a", "example.com/b", "example.com/*", "*"}, true},
		"none":               {func([]NodeGroup) []NodeGroup { return nil }, []int32{1}, nil, false},
		"no positions":       {same, nil, nil, false},
		"too many positions": {same, []int32{1, 1}, nil, false},
		"an unknown group":   {same, []int32{4}, nil, false},
		"no group":           {same, []int32{0}, nil, false},
		"no nodes":           {func(g []NodeGroup) []NodeGroup { g[0].Size.Nodes = 0; return g }, []int32{1}, nil, false},
		"too many groups":    {func(g []NodeGroup) []NodeGroup { return slices.Repeat(g, 6) }, []int32{1}, nil, false},
		"too many labels":    {func(g []NodeGroup) []NodeGroup { g[0].Labels = many(MaxGroupLabels + 1); return g }, []int32{1}, nil, false},
		"too much text": {func(g []NodeGroup) []NodeGroup {
			g[0].Labels, g[1].Labels, g[2].Labels = many(60), many(60), many(60)
			return g
		}, []int32{1}, nil, false},
		"too many entries": {same, []int32{1}, slices.Repeat([]string{"a"}, MaxUnreportedLabels+1), false},
	} {
		got := classes.WithGroups(tc.change(exampleGroups(t)), tc.positions, tc.unreported)
		if (len(got.ListGroups()) > 0) != tc.kept || !tc.kept && !got.Equal(classes) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	status := classes.WithGroups(exampleGroups(t), []int32{1}, nil).ToStatus()
	status.NodeGroups[2].Nodes = 0
	if free, known := FreeCapacityOf(&v1alpha1.ResourceSummary{FreeCapacity: status}); !known || !free.Equal(classes) {
		t.Errorf("a status with a bad group: %+v, %t", free, known)
	}
}

// Labels, taints and entries of another form than Kubernetes gives them are refused when they are received.
func TestFormOfReceivedGroups(t *testing.T) {
	const size = "1 pods=9"
	for name, tc := range map[string]struct {
		size, key, value string
		valid            bool
	}{
		"valid":                  {size + " taints=example.com/gpu=yes:NoSchedule,a:NoExecute", "example.com/a", "b", true},
		"an empty value":         {size, "a", "", true},
		"a bad size":             {"many nodes", "a", "b", false},
		"a bad key":              {size, "a b", "c", false},
		"a bad value":            {size, "a", "\x1b[2J", false},
		"a bad key of a taint":   {size + " taints=\x1b[2J:NoSchedule", "a", "b", false},
		"a bad value of a taint": {size + " taints=a=b\nc:NoSchedule", "a", "b", false},
	} {
		if _, err := ParseGroup(tc.size, map[string]string{tc.key: tc.value}); (err == nil) != tc.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for entry, valid := range map[string]bool{"a": true, "example.com/b": true, "example.com/*": true, "*": true, "a b": false, "": false, "a*b/*": false, "**": false} {
		if got := AreUnreportedEntries([]string{"a", entry}); got != valid {
			t.Errorf("entry %q: %t", entry, got)
		}
	}
}

// A label that is left out, by its key, its domain or with all others, may be there.
func TestUnreportedLabels(t *testing.T) {
	for key, want := range map[string]bool{
		"a": true, "ab": false, "example.com/x": true, "example.com.org/x": false, "kubernetes.io/hostname": true, "beta.kubernetes.io/arch": true,
		"failure-domain.beta.kubernetes.io/zone": true, "kubernetes.io/arch": false,
	} {
		g := NodeGroup{Unreported: []string{"a", FormatUnreportedEntry("example.com/y")}}
		if got := g.IsUnreportedLabel(key); got != want {
			t.Errorf("%s: %t", key, got)
		}
		if g.Unreported = []string{"*"}; !g.IsUnreportedLabel(key) {
			t.Errorf("%s is known where all others are left out", key)
		}
	}
	if got := FormatUnreportedEntry("pool"); got != "pool" {
		t.Errorf("the entry of a key without a domain is %q", got)
	}
}
