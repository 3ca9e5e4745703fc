package inventory

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/freecapacity"
)

func TestClassesOfNodes(t *testing.T) {
	gpu := []v1alpha1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	nodes := []freecapacity.NodeClass{
		{CPU: 3995, Memory: 15 << 30, Pods: 90},
		{CPU: 3990, Memory: 15<<30 + 5, Pods: 91},
		{CPU: 100, Memory: 1 << 30, Pods: 3},
		{CPU: 9000, Memory: 1 << 30, Pods: 0},
		{CPU: -50, Memory: 1 << 30, Pods: 5},
		{CPU: 8000, Memory: 1 << 34, Pods: 50, Other: map[string]int64{"nvidia.com/gpu": 8}, Taints: gpu},
	}
	want := []string{
		"1 cpu=7680m memory=16384Mi pods=48 nvidia.com/gpu=8 taints=gpu:NoSchedule",
		"2 cpu=3840m memory=15360Mi pods=88",
		"1 cpu=100m memory=1024Mi pods=3",
		"1 memory=1024Mi pods=5",
	}
	if got := classifyFreeCapacity(nodes, mostClasses).EncodeClasses(); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := classifyFreeCapacity(nil, mostClasses); got == nil || len(got) != 0 {
		t.Errorf("no nodes are %v", got)
	}
}

// However many nodes there are and however they differ, the classes are few, hold every
// node that takes a pod, and never more than there is; the order of nodes is no matter.
func TestClassesAreFewAndModest(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for round := range 24 {
		nodes := make([]freecapacity.NodeClass, r.IntN(2000))
		for i := range nodes {
			nodes[i] = freecapacity.NodeClass{CPU: r.Int64N(64_000), Memory: r.Int64N(1 << 38), Pods: r.Int64N(250)}
			if round%2 == 0 {
				nodes[i].Other = map[string]int64{fmt.Sprint("x.io/r", r.IntN(20)): 1 + r.Int64N(9)}
			}
		}
		got := classifyFreeCapacity(nodes, mostClasses)
		if len(got) > mostClasses {
			t.Fatalf("%d classes of %d nodes", len(got), len(nodes))
		}
		if back, err := freecapacity.ParseClasses(got.EncodeClasses()); err != nil || !reflect.DeepEqual(back, got) {
			t.Fatalf("%v does not come back: %v, %v", got, back, err)
		}
		is, reported := freecapacity.NodeClasses{}, got.TotalByResource()
		for _, n := range nodes {
			n.Nodes = 1
			if n.Pods > 0 {
				is = append(is, n)
			}
		}
		for name, v := range is.TotalByResource() {
			if reported[name] > v || name == "nodes" && reported[name] != v {
				t.Fatalf("%d %s are reported of %d", reported[name], name, v)
			}
		}
		slices.Reverse(nodes)
		if again := classifyFreeCapacity(nodes, mostClasses); !reflect.DeepEqual(again, got) {
			t.Fatalf("the order matters:\n%v\n%v", got.EncodeClasses(), again.EncodeClasses())
		}
	}
}

func aNode(name, cpu string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("100")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
}

func aPod(name, node, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}},
	}}
}

// Reports follow nodes and pods: large changes within seconds, lasting ones within half a minute,
// short ones never.
func TestRoomIsToldWhenItMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &Inventory{nodes: map[string]node{}, pods: map[string]pod{}, used: map[string]*use{}, total: resourceAmounts{}, requested: resourceAmounts{}, counted: map[string]bool{}, read: map[string]bool{countProperties: true}, version: "v1.36.3", wake: make(chan struct{}, 1)}
		nodes, pods := i.newNodeSumStore(), i.newPodSumStore()
		reportCapacity := func() string {
			i.mu.Lock()
			defer i.mu.Unlock()
			lines, groups, _ := i.chooseCapacityToReport(time.Now())
			i.lastSnapshot.Room, i.lastSnapshot.Groups = lines, groups
			return fmt.Sprint(lines)
		}
		check := func(when, want string) {
			t.Helper()
			if got := reportCapacity(); got != want {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		check("before anything is known", "[]")
		_ = nodes.Replace([]any{aNode("a", "16"), aNode("b", "16")}, "")
		check("before pods are known", "[]")
		_ = pods.Replace([]any{aPod("p", "a", "8"), aPod("q", "", "1")}, "")
		check("at first", "[1 cpu=15360m memory=65536Mi pods=96 1 cpu=7680m memory=65536Mi pods=96]")
		_ = pods.Add(aPod("r", "b", "500m"))
		check("a little", "[1 cpu=15360m memory=65536Mi pods=96 1 cpu=7680m memory=65536Mi pods=96]")
		time.Sleep(roomQuiet / 2)
		_ = pods.Add(aPod("s", "b", "1"))
		check("a little more", "[1 cpu=15360m memory=65536Mi pods=96 1 cpu=7680m memory=65536Mi pods=96]")
		time.Sleep(roomQuiet / 2)
		check("that lasts", "[1 cpu=14080m memory=65536Mi pods=96 1 cpu=7680m memory=65536Mi pods=96]")
		_ = pods.Add(aPod("t", "b", "10"))
		check("much, at once", "[1 cpu=14080m memory=65536Mi pods=96 1 cpu=7680m memory=65536Mi pods=96]")
		time.Sleep(roomPace)
		check("much", "[1 cpu=7680m memory=65536Mi pods=96 1 cpu=4480m memory=65536Mi pods=96]")
		_ = pods.Delete(aPod("t", "b", "10"))
		_ = pods.Delete(aPod("s", "b", "1"))
		cordoned := aNode("a", "16")
		cordoned.Spec.Unschedulable = true
		_ = nodes.Update(cordoned)
		time.Sleep(roomPace)
		check("a node less", "[1 cpu=15360m memory=65536Mi pods=96]")
		done := aPod("r", "b", "500m")
		done.Status.Phase = corev1.PodSucceeded
		_ = pods.Update(done)
		if len(i.used) != 1 || i.used["a"].pods != 1 {
			t.Errorf("used: %+v", i.used)
		}
	})
}

// TestPodsAreCountedAmongWhatIsRequested once they are known, also those that request nothing.
func TestPodsAreCountedAmongWhatIsRequested(t *testing.T) {
	i := &Inventory{requested: resourceAmounts{}, used: map[string]*use{}, counted: map[string]bool{}}
	if got := i.totalRequested(); len(got) != 0 {
		t.Errorf("before pods are known, %v", got)
	}
	i.counted[countPods] = true
	if got := i.totalRequested(); !maps.Equal(got, map[string]string{"pods": "0"}) {
		t.Errorf("of no pods, %v", got)
	}
	i.countPod(pod{node: "n1", requested: resourceAmounts{corev1.ResourceCPU: 100}}, 1)
	i.countPod(pod{node: "n2", requested: resourceAmounts{}}, 1)
	i.countPod(pod{requested: resourceAmounts{corev1.ResourceCPU: 100}}, 1) // on no node yet
	if got := i.totalRequested(); !maps.Equal(got, map[string]string{"cpu": "100m", "pods": "2"}) {
		t.Errorf("of two pods, %v", got)
	}
}
