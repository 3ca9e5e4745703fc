package inventory

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The facts of a member come from most of its nodes, and from its ClusterProperty objects, which
// do not replace what the agent finds out itself.
func TestPropertiesOfAMember(t *testing.T) {
	nodes := func(list ...node) map[string]node {
		out := map[string]node{}
		for i, n := range list {
			out[string(rune('a'+i))] = n
		}
		return out
	}
	for name, tc := range map[string]struct {
		version string
		nodes   map[string]node
		stated  map[string]string
		want    map[string]string
	}{
		"nothing known": {"", nil, nil, map[string]string{}},
		"no nodes":      {"v1.36.3", nil, nil, map[string]string{propertyVersion: "v1.36.3"}},
		"most nodes": {"v1", nodes(node{provider: "aws", region: "eu"}, node{provider: "aws", region: "us"}, node{provider: "gce", region: "us"}), nil,
			map[string]string{propertyVersion: "v1", propertyNodes: "3", propertyProvider: "aws", propertyRegion: "us"}},
		"nodes that do not say": {"v1", nodes(node{}, node{}, node{region: "eu"}), nil,
			map[string]string{propertyVersion: "v1", propertyNodes: "3", propertyRegion: "eu"}},
		"as many of one as of another": {"v1", nodes(node{provider: "b"}, node{provider: "a"}), nil,
			map[string]string{propertyVersion: "v1", propertyNodes: "2", propertyProvider: "a"}},
		"stated": {"v1", nil, map[string]string{"cluster.clusterset.k8s.io": "tokyo"},
			map[string]string{propertyVersion: "v1", "cluster.clusterset.k8s.io": "tokyo"}},
	} {
		i := &Inventory{version: tc.version, nodes: tc.nodes, stated: tc.stated}
		if got := i.currentProperties(); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	i := &Inventory{stated: map[string]string{}}
	for name, value := range map[string]any{"good": "yes", propertyNodes: "1000", "number": int64(3)} {
		i.recordProperty(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"value": value}}})
	}
	if want := map[string]string{"good": "yes"}; !maps.Equal(i.stated, want) {
		t.Errorf("stated %v, want %v", i.stated, want)
	}
}

func TestProviderOfANode(t *testing.T) {
	for id, want := range map[string]string{"": "", "aws:///eu-west-1a/i-0123": "aws", "gce://p/z/n": "gce", "kwok": ""} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: id}}
		if got := providerOf(n); got != want {
			t.Errorf("provider of %q is %q, want %q", id, got, want)
		}
	}
}
