package freecapacity

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

var exampleLines = []string{
	"3 cpu=3500m memory=12288Mi pods=90",
	"2 cpu=8000m pods=5 nvidia.com/gpu=2 taints=gpu=true:NoSchedule,x:NoExecute",
	"1",
}

// The text of an agent is in the status as values, without timeAdded of taints, and is read from
// there as it was.
func TestStatusHoldsWhatTheTextHolds(t *testing.T) {
	reported, err := ParseClasses(exampleLines)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(reported.ToStatus())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"nodeClasses":[{"nodes":3,"free":{"cpu":"3500m","memory":"12Gi","pods":"90"}},` +
		`{"nodes":2,"free":{"cpu":"8","nvidia.com/gpu":"2","pods":"5"},"taints":[{"key":"gpu","value":"true","effect":"NoSchedule"},{"key":"x","effect":"NoExecute"}]},` +
		`{"nodes":1}]}`
	if string(stored) != want || strings.Contains(string(stored), "timeAdded") {
		t.Errorf("stored as %s", stored)
	}
	var read v1alpha1.FreeCapacity
	if err := json.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}
	is, known := FreeCapacityOf(&v1alpha1.ResourceSummary{FreeCapacity: &read})
	if !known || !is.Equal(reported) || !equality.Semantic.DeepEqual(&read, is.ToStatus()) {
		t.Errorf("read as %+v, %t", is, known)
	}
	if empty, known := FreeCapacityOf(&v1alpha1.ResourceSummary{FreeCapacity: NodeClasses{}.ToStatus()}); !known || len(empty) != 0 {
		t.Errorf("full nodes are read as %+v, %t", empty, known)
	}
}

// The status of a Cluster that v0.1.0 stored is read, unless there is a newer one.
func TestReadsTheTextOfAFormerVersion(t *testing.T) {
	const stored = `
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: oslo}
status:
  nodes: {total: 3, ready: 3, summary: 3/3}
  resources:
    room:
      classes: ["3 cpu=3500m memory=12288Mi pods=90 taints=gpu=true:NoSchedule"]
`
	c := &v1alpha1.Cluster{}
	if err := yaml.UnmarshalStrict([]byte(stored), c); err != nil {
		t.Fatal(err)
	}
	free, known := FreeCapacityOf(&c.Status.Resources)
	if !known || len(free) != 1 || free[0].CPU != 3500 || free[0].Memory != 12<<30 || len(free[0].Taints) != 1 {
		t.Errorf("read as %+v, %t", free, known)
	}
	c.Status.Resources.FreeCapacity = NodeClasses{{Nodes: 1, Pods: 2}}.ToStatus()
	if free, known = FreeCapacityOf(&c.Status.Resources); !known || len(free) != 1 || free[0].Pods != 2 {
		t.Errorf("beside a newer one it is read as %+v, %t", free, known)
	}
}

func TestUnreadableStatusIsUnknown(t *testing.T) {
	class := func(nodes int32, cpu string) *v1alpha1.FreeCapacity {
		text := `{"nodeClasses":[{"nodes":1},{"nodes":2,"free":{"cpu":"` + cpu + `"}}]}`
		out := &v1alpha1.FreeCapacity{}
		if err := json.Unmarshal([]byte(text), out); err != nil {
			t.Fatal(err)
		}
		out.NodeClasses[1].Nodes = nodes
		return out
	}
	if _, known := FreeCapacityOf(&v1alpha1.ResourceSummary{FreeCapacity: class(2, "1")}); !known {
		t.Error("a valid one is unknown")
	}
	for name, r := range map[string]v1alpha1.ResourceSummary{
		"none":           {},
		"no nodes":       {FreeCapacity: class(0, "1")},
		"a negative one": {FreeCapacity: class(2, "-1")},
		"nothing":        {FreeCapacity: class(2, "0")},
		"too much":       {FreeCapacity: class(2, "1P")},
		"bad text":       {Room: &v1alpha1.NodeRoom{Classes: []string{"many nodes"}}},
	} {
		if free, known := FreeCapacityOf(&r); known {
			t.Errorf("%s is read as %+v", name, free)
		}
	}
}

func TestEqualClasses(t *testing.T) {
	a := NodeClasses{{Nodes: 1, CPU: 2, Memory: 3, Pods: 4, Other: map[string]int64{"gpu": 1}, Taints: []v1alpha1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}}}
	if !a.Equal(NodeClasses{a[0]}) || a.Equal(nil) || !(NodeClasses{}).Equal(nil) {
		t.Error("equal lists differ")
	}
	for i, change := range []func(*NodeClass){
		func(c *NodeClass) { c.Nodes++ }, func(c *NodeClass) { c.CPU++ }, func(c *NodeClass) { c.Memory++ }, func(c *NodeClass) { c.Pods++ },
		func(c *NodeClass) { c.Other = map[string]int64{"gpu": 2} }, func(c *NodeClass) { c.Taints = nil },
	} {
		b := NodeClasses{a[0]}
		if change(&b[0]); a.Equal(b) {
			t.Errorf("change %d makes no difference", i)
		}
	}
}
