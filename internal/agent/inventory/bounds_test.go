package inventory

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
)

// newBounded returns an Inventory that has read everything.
func newBounded(t *testing.T) *Inventory {
	t.Helper()
	client, err := member.New(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return &Inventory{
		o:    Options{Client: client},
		wake: make(chan struct{}, 1), rescan: make(chan struct{}, 1), version: "v1",
		nodes: map[string]node{}, pods: map[string]pod{}, used: map[string]*use{}, total: resourceAmounts{}, requested: resourceAmounts{}, stated: map[string]string{},
		counted: map[string]bool{}, read: map[string]bool{countNodes: true, countPods: true, countProperties: true}, failed: map[string]string{}, excess: map[string]string{},
	}
}

func podOn(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

// TestWhatIsKeptOfAMemberHasBounds: what is kept already may change. Names of any length are not kept.
func TestWhatIsKeptOfAMemberHasBounds(t *testing.T) {
	i := newBounded(t)
	pods := i.newPodSumStore()
	for n := range maxPods {
		pods.put(podOn(fmt.Sprint("p", n), "n"))
	}
	if len(i.excess) > 0 {
		t.Fatalf("as many as may be: %q", i.excess)
	}
	pods.put(podOn("p0", "other"))
	if i.pods["shop/p0"].node != "other" || len(i.excess) > 0 {
		t.Errorf("a pod that is kept is on %q, %q", i.pods["shop/p0"].node, i.excess)
	}
	pods.put(podOn("new", "n"))
	if len(i.pods) != maxPods || i.used["n"].pods != maxPods-1 || !strings.Contains(i.excess[countPods], "more than 200000 pods") {
		t.Errorf("%d pods are kept, %q", len(i.pods), i.excess)
	}
	if err := pods.Replace([]any{podOn(strings.Repeat("x", maxPodText), "n"), podOn("new", "n")}, "1"); err != nil {
		t.Fatal(err)
	}
	if len(i.pods) != 1 || !strings.Contains(i.excess[countPods], "names have more than 2048 bytes") {
		t.Errorf("%d pods are kept, %q", len(i.pods), i.excess)
	}
}

func TestANodeIsCountedIfItsNamesAreShort(t *testing.T) {
	i := newBounded(t)
	nodes := i.newNodeSumStore()
	named := func(resources ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
		for _, r := range resources {
			n.Status.Allocatable[corev1.ResourceName(r)] = resource.MustParse("1")
		}
		return n
	}
	nodes.put(named("gpu"))
	if len(i.nodes) != 1 || i.total["gpu"] != 1 {
		t.Fatalf("the node is %+v", i.nodes)
	}
	long := strings.Repeat("x", maxNodeText)
	for what, n := range map[string]*corev1.Node{
		"a resource": named(long),
		"a taint":    {ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Value: long, Effect: corev1.TaintEffectNoSchedule}}}},
		"a provider": {ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: long + "://"}},
		"a region":   {ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyRegion: long}}},
	} {
		nodes.put(named("gpu"))
		if nodes.put(n); len(i.nodes) != 0 || len(i.total) != 0 || i.excess[countNodes] == "" {
			t.Errorf("a long name of %s: %d nodes are kept, %v", what, len(i.nodes), i.total)
		}
	}
	if i.updateSnapshot(); !strings.Contains(i.lastSnapshot.Trouble, "some of the member's nodes are not counted") {
		t.Errorf("the trouble is %q", i.lastSnapshot.Trouble)
	}
	if err := nodes.Replace([]any{named("gpu")}, "2"); err != nil {
		t.Fatal(err)
	}
	if i.updateSnapshot(); i.lastSnapshot.Trouble != "" || i.lastSnapshot.Nodes != 1 {
		t.Errorf("after a list: %+v", i.lastSnapshot)
	}
}

func TestPropertiesHaveBounds(t *testing.T) {
	i := newBounded(t)
	property := func(name, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"value": value}}}
	}
	for n := range maxProperties + 1 {
		i.recordProperty(property(fmt.Sprint("p", n), "v"))
	}
	if len(i.stated) != maxProperties || i.excess[countProperties] == "" {
		t.Errorf("%d properties are kept, %q", len(i.stated), i.excess)
	}
	if i.recordProperty(property("p0", strings.Repeat("x", maxPropertyText))); len(i.stated) != maxProperties-1 {
		t.Errorf("%d properties are kept, one of which became long", len(i.stated))
	}
}
