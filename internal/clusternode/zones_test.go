package clusternode_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/clusternode"
)

// A Node has the label of one zone. Several zones are no label, and no edit of one replaces them.
func TestZonesOfANode(t *testing.T) {
	c := read(t, "testdata/joined.in.yaml")
	c.Spec.Zones = []string{"a"}
	n := clusternode.NodeOf(c)
	if zone := n.Labels[corev1.LabelTopologyZone]; zone != "a" {
		t.Errorf("the label of one zone is %q", zone)
	}
	n.Labels[corev1.LabelTopologyZone] = "b"
	got, errs := clusternode.PatchFromNodeEdit(c, n)
	if want := `{` + head + `,"spec":{"zone":"b","zones":null}}`; len(errs) > 0 || string(got) != want {
		t.Errorf("patch %s (%v), want %s", got, errs, want)
	}

	c.Spec.Zones = []string{"a", "b"}
	n = clusternode.NodeOf(c)
	if zone := n.Labels[corev1.LabelTopologyZone]; zone != "from-label" {
		t.Errorf("with several zones, the label is %q, which is not the Cluster's own", zone)
	}
	n.Labels[corev1.LabelTopologyZone] = "c"
	got, errs = clusternode.PatchFromNodeEdit(c, n)
	if got != nil || len(errs) != 1 || !strings.Contains(errs[0].Detail, "edit spec.zones of Cluster/tokyo-1") {
		t.Errorf("patch %s, errors %v", got, errs)
	}
}
