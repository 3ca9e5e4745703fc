package clusternode_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/clusternode"
)

var update = flag.Bool("update", false, "write what is given as what is expected")

// read a Cluster of the test data.
func read(t *testing.T, path string) *v1alpha1.Cluster {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cluster{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNodesOfClusters(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data (%v)", err)
	}
	for _, path := range files {
		c := read(t, path)
		got, err := yaml.Marshal(clusternode.NodeOf(c))
		if err != nil {
			t.Fatal(err)
		}
		golden := strings.TrimSuffix(path, ".in.yaml") + ".out.yaml"
		if *update {
			if err := os.WriteFile(golden, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s: the node is\n%s\nwant\n%s", path, got, want)
		}
	}
}

// The caller may change the result.
func TestANodeSharesNothingWithItsCluster(t *testing.T) {
	c := read(t, "testdata/joined.in.yaml")
	before := c.DeepCopy()
	n := clusternode.NodeOf(c)
	n.Labels["env"], n.Annotations["owner"] = "x", "x"
	n.Spec.Taints[2].TimeAdded.Time = n.Spec.Taints[2].TimeAdded.AddDate(1, 0, 0)
	n.Spec.Taints[0].Key = "x"
	delete(n.Status.Capacity, "cpu")
	n.Status.Conditions[0].Reason = "x"
	for what, same := range map[string]bool{
		"labels":      c.Labels["env"] == before.Labels["env"],
		"annotations": c.Annotations["owner"] == before.Annotations["owner"],
		"times":       c.Spec.Taints[2].TimeAdded.Equal(before.Spec.Taints[2].TimeAdded),
		"taints":      c.Spec.Taints[0].Key == before.Spec.Taints[0].Key,
		"resources":   len(c.Status.Resources.Allocatable) == len(before.Status.Resources.Allocatable),
		"allocatable": len(n.Status.Allocatable) == len(before.Status.Resources.Allocatable),
		"conditions":  c.Status.Conditions[0].Reason == before.Status.Conditions[0].Reason,
	} {
		if !same {
			t.Errorf("%s are shared", what)
		}
	}
}
