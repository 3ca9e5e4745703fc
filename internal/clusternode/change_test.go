package clusternode_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/clusternode"
)

const head = `"metadata":{"resourceVersion":"42","uid":"6f1d"}`

func TestEditsOfNodesAreEditsOfClusters(t *testing.T) {
	keep := `{"key":"maintenance","value":"soon","effect":"PreferNoSchedule"}`
	cordoned := `{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}`
	evicting := `{"key":"gone","effect":"NoExecute","timeAdded":"2026-03-02T10:00:00Z"}`
	for name, x := range map[string]struct {
		edit func(*corev1.Node)
		want string
	}{
		"nothing":  {func(*corev1.Node) {}, ""},
		"uncordon": {func(n *corev1.Node) { n.Spec.Unschedulable = false }, `{` + head + `,"spec":{"taints":[` + keep + `,` + evicting + `]}}`},
		"the taint of the cordon is taken off": {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints[:1:1], n.Spec.Taints[2]) },
			`{` + head + `,"spec":{"taints":[` + keep + `,` + evicting + `]}}`},
		"taint": {func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule})
		}, `{` + head + `,"spec":{"taints":[` + keep + `,` + cordoned + `,` + evicting + `,{"key":"gpu","value":"yes","effect":"NoSchedule"}]}}`},
		"no taints": {func(n *corev1.Node) { n.Spec.Taints, n.Spec.Unschedulable = nil, false }, `{` + head + `,"spec":{"taints":null}}`},
		"labels": {func(n *corev1.Node) { delete(n.Labels, "env"); n.Labels["tier"] = "edge" },
			`{"metadata":{"labels":{"env":null,"tier":"edge"},"resourceVersion":"42","uid":"6f1d"}}`},
		"region":         {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyRegion] = "eu" }, `{` + head + `,"spec":{"region":"eu"}}`},
		"no region":      {func(n *corev1.Node) { delete(n.Labels, corev1.LabelTopologyRegion) }, `{` + head + `,"spec":{"region":null}}`},
		"a labels' zone": {func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "a" }, `{` + head + `,"spec":{"zone":"a"}}`},
		"no zone, which was a label": {func(n *corev1.Node) { delete(n.Labels, corev1.LabelTopologyZone) },
			`{"metadata":{"labels":{"topology.kubernetes.io/zone":null},"resourceVersion":"42","uid":"6f1d"},"spec":{"zone":null}}`},
		"annotations": {func(n *corev1.Node) { delete(n.Annotations, "owner"); n.Annotations["team"] = "a" },
			`{"metadata":{"annotations":{"owner":null,"team":"a"},"resourceVersion":"42","uid":"6f1d"}}`},
		"the status, which cannot be edited": {func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning }, ""},
	} {
		c := read(t, "testdata/joined.in.yaml")
		n := clusternode.NodeOf(c)
		x.edit(n)
		got, errs := clusternode.PatchFromNodeEdit(c, n)
		if len(errs) > 0 || string(got) != x.want {
			t.Errorf("%s: patch\n%s (%v), want\n%s", name, got, errs, x.want)
		}
	}
}

// A drained cluster is a node that is not schedulable, and uncordon ends the drain, whether or not it is cordoned, too.
func TestUncordonEndsADrain(t *testing.T) {
	for _, alsoCordoned := range []bool{false, true} {
		c := read(t, "testdata/joined.in.yaml")
		c.Spec.Taints = []v1alpha1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
		if alsoCordoned {
			c.Spec.Taints = append(c.Spec.Taints, v1alpha1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}
		n := clusternode.NodeOf(c)
		if !n.Spec.Unschedulable {
			t.Error("a drained cluster is schedulable")
		}
		n.Spec.Unschedulable = false
		patch, errs := clusternode.PatchFromNodeEdit(c, n)
		if want := `{` + head + `,"spec":{"taints":[{"key":"gpu","effect":"NoSchedule"}]}}`; len(errs) > 0 || string(patch) != want {
			t.Errorf("patch %s (%v), want %s", patch, errs, want)
		}
	}
}

func TestWhatNoClusterCanTakeIsRefused(t *testing.T) {
	for name, x := range map[string]struct {
		edit func(*corev1.Node)
		at   string
		says string
	}{
		"role":         {func(n *corev1.Node) { delete(n.Labels, clusternode.LabelRole) }, "metadata.labels[node-role.kubernetes.io/cluster]", "as a cluster"},
		"provider":     {func(n *corev1.Node) { n.Spec.ProviderID = "x" }, "spec", "only taints and unschedulable"},
		"addresses":    {func(n *corev1.Node) { n.Spec.PodCIDR = "10.0.0.0/8" }, "spec", "only taints and unschedulable"},
		"finalizers":   {func(n *corev1.Node) { n.Finalizers = []string{"x/y"} }, "metadata.finalizers", "put it on the Cluster"},
		"owners":       {func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }, "metadata.ownerReferences", "put it on the Cluster"},
		"apply":        {func(n *corev1.Node) { n.Annotations[corev1.LastAppliedConfigAnnotation] = "{}" }, "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", "apply Cluster/tokyo-1"},
		"Atoll's keys": {func(n *corev1.Node) { n.Annotations["atoll.dev/agent-key"] = "x" }, "metadata.annotations[atoll.dev/agent-key]", "Cluster/tokyo-1 has"},
	} {
		c := read(t, "testdata/joined.in.yaml")
		n := clusternode.NodeOf(c)
		n.Spec.Unschedulable = false // not even what could be done
		x.edit(n)
		got, errs := clusternode.PatchFromNodeEdit(c, n)
		if got != nil || len(errs) != 1 || errs[0].Field != x.at || !strings.Contains(errs[0].Detail, x.says) {
			t.Errorf("%s: patch %s, errors %v; want one at %s that says %q", name, got, errs, x.at, x.says)
		}
	}
}

// After any edit of taints, labels and annotations, the Cluster's Node is as edited.
func TestANodeIsAsItWasEdited(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	random := rand.New(rand.NewPCG(seed, 1))
	c := read(t, "testdata/joined.in.yaml")
	for range 500 {
		n := clusternode.NodeOf(c)
		editNode(random, n)
		patch, errs := clusternode.PatchFromNodeEdit(c, n)
		if len(errs) > 0 {
			t.Fatalf("SEED=%d: %v", seed, errs)
		}
		if patch != nil {
			c = applyPatch(t, c, patch)
		}
		want, got := n.DeepCopy(), clusternode.NodeOf(c)
		want.Spec.Taints, got.Spec.Taints = nil, nil // in the order of the Cluster, with the cordon's
		if !equality.Semantic.DeepEqual(got, want) {
			t.Fatalf("SEED=%d: after %s the node is\n%v\nwant\n%v", seed, patch, got, want)
		}
	}
}

func editNode(random *rand.Rand, n *corev1.Node) {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	for range 1 + random.IntN(3) {
		key := pick("env", "tier", corev1.LabelTopologyRegion, corev1.LabelTopologyZone)
		switch random.IntN(6) {
		case 0:
			n.Labels[key] = pick("a", "b")
		case 1:
			delete(n.Labels, key)
		case 2:
			n.Annotations[key] = pick("a", "b")
		case 3:
			delete(n.Annotations, key)
		case 4:
			n.Spec.Unschedulable = !n.Spec.Unschedulable
		case 5:
			// Without the taint of the cordon it would be uncordoned.
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key != corev1.TaintNodeUnschedulable })
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: pick("x", "y"), Effect: corev1.TaintEffectNoExecute})
		}
	}
	if len(n.Annotations) == 0 {
		n.Annotations = nil
	}
}

func applyPatch(t *testing.T, c *v1alpha1.Cluster, patch []byte) *v1alpha1.Cluster {
	t.Helper()
	before, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		t.Fatal(err)
	}
	out := &v1alpha1.Cluster{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}
