package top

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

func newCluster(name string, ready bool, requested, has corev1.ResourceList) v1alpha1.Cluster {
	c := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	c.Status.Resources = v1alpha1.ResourceSummary{Allocatable: has, Requested: requested}
	if ready {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue})
	}
	return c
}

func resourceList(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods)}
}

func parseMetrics(t *testing.T, text string) []resourceUsage {
	t.Helper()
	var all []resourceUsage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestClustersAreSummed(t *testing.T) {
	pending := newCluster("pending", false, nil, nil)
	pending.Spec.Accepted = false
	clusters := []v1alpha1.Cluster{
		newCluster("oslo", true, resourceList("500m", "1Gi", "4"), resourceList("2", "4Gi", "110")), pending,
		newCluster("rome", true, resourceList("1", "1Gi", "7"), resourceList("8", "8Gi", "110")),
		newCluster("york", false, nil, nil),
	}
	used := parseMetrics(t, `[{"metadata":{"name":"oslo"},"usage":{"cpu":"259m","memory":"1Gi"}}]`)
	var out strings.Builder
	if err := printClusters(&out, clusterUses(clusters, used, nil)); err != nil {
		t.Fatal(err)
	}
	want := `CLUSTER   READY   CPU USED   CPU%   REQUESTED   HAS      MEMORY USED   MEMORY%   REQUESTED   HAS       PODS   HAS
oslo      yes     259m       12%    500m        2000m    1024Mi        25%       1024Mi      4096Mi    4      110
rome      yes     -          -      1000m       8000m    -             -         1024Mi      8192Mi    7      110
york      no      -          -      -           -        -             -         -           -         -      -
TOTAL     2/3     259m       12%    1500m       10000m   1024Mi        25%       2048Mi      12288Mi   11     220
clusters without metrics, of which what they use is in no sum: 2 of 3
`
	if out.String() != want {
		t.Errorf("it prints\n%s\nwanted\n%s", out.String(), want)
	}
	if got := clusterUses(clusters, used, []string{"rome"}); len(got) != 1 || got[0].Cluster != "rome" {
		t.Errorf("of chosen clusters there are %v", got)
	}
}

func TestPodsAreSummedPerCluster(t *testing.T) {
	used := parseMetrics(t, `[
		{"metadata":{"namespace":"shop","name":"b.rome","labels":{"atoll.dev/cluster":"rome"}},"containers":[{"usage":{"cpu":"5m","memory":"10Mi"}},{"usage":{"cpu":"7m"}}]},
		{"metadata":{"namespace":"shop","name":"z.oslo","labels":{"atoll.dev/cluster":"oslo"}},"containers":[]},
		{"metadata":{"namespace":"shop","name":"a.oslo","labels":{"atoll.dev/cluster":"oslo"}},"containers":[{"usage":{"cpu":"100m","memory":"1Gi"}}]}]`)
	var out strings.Builder
	if err := new(topOptions).printPods(&out, podUses(used)); err != nil {
		t.Fatal(err)
	}
	want := `CLUSTER   NAMESPACE   NAME     CPU    MEMORY
oslo      shop        a.oslo   100m   1024Mi
oslo      shop        z.oslo   -      -
rome      shop        b.rome   12m    10Mi

CLUSTER   PODS   CPU    MEMORY
oslo      2      100m   1024Mi
rome      1      12m    10Mi
TOTAL     3      112m   1034Mi
`
	if out.String() != want {
		t.Errorf("it prints\n%s\nwanted\n%s", out.String(), want)
	}
}
