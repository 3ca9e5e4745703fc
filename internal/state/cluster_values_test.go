package state

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

func newTestCluster(i int) *v1alpha1.Cluster {
	offer := func(cpu int) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(cpu)), "memory": resource.MustParse("96Gi"), "pods": resource.MustParse("330")}
	}
	c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true, Region: "eu-west"}}
	c.Name, c.UID, c.ResourceVersion = fmt.Sprintf("sim-%06d", i), "c5f0c9f6-8f57-4a4f-9d1c-0123456789ab", "1234567"
	c.Labels = map[string]string{"group": "g1", "env": "prod", "shop": fmt.Sprint(i)}
	c.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}"}
	for _, k := range []string{"Accepted", "Joined", "Ready"} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: k, Status: "True", Reason: "Streaming", Message: "the agent holds a stream and the member's API answers it"})
	}
	c.Status.KubernetesVersion, c.Status.APIsHash = "v1.36.3", "0123456789abcdef0123456789abcdef"
	c.Status.Nodes = v1alpha1.NodeSummary{Total: 3, Ready: 3, Summary: "3/3"}
	c.Status.Resources = v1alpha1.ResourceSummary{Allocatable: offer(24), Requested: offer(i % 10)}
	return c
}

// A Cluster says the same when it shares, and takes little.
func TestClustersShare(t *testing.T) {
	const n = 2000
	var s valueSharer
	read := func(raw []byte) *v1alpha1.Cluster {
		var c v1alpha1.Cluster
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatal(err)
		}
		return &c
	}
	odd := newTestCluster(1)
	odd.Status.Resources.Allocatable["example.com/gpu"] = resource.MustParse("4")
	for _, c := range []*v1alpha1.Cluster{newTestCluster(0), odd, {}} {
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.shareValues(read(raw))
		if want := read(raw); err != nil || !equality.Semantic.DeepEqual(got, want) || got.(*v1alpha1.Cluster).Status.Resources.Allocatable.Cpu().Cmp(*want.Status.Resources.Allocatable.Cpu()) != 0 {
			t.Errorf("%+v\nbecame %+v, %v", want, got, err)
		}
	}
	var raw [][]byte
	for i := range n {
		line, err := json.Marshal(newTestCluster(i))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, line)
	}
	clusters := make([]*v1alpha1.Cluster, n)
	before := heapBytes()
	for i := range raw {
		got, _ := s.shareValues(read(raw[i]))
		clusters[i] = got.(*v1alpha1.Cluster)
	}
	per := (heapBytes() - before) / n
	runtime.KeepAlive(raw)
	t.Logf("a Cluster takes %d bytes", per)
	if per > 2500 || !reflect.DeepEqual(clusters[0].Status.Resources.Requested, clusters[10].Status.Resources.Requested) {
		t.Errorf("a Cluster takes %d bytes", per)
	}
}
