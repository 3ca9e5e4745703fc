package fleet

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab/labtest"
)

var resourcesByKind = map[string]schema.GroupVersionResource{
	"Namespace":         {Version: "v1", Resource: "namespaces"},
	"ConfigMap":         {Version: "v1", Resource: "configmaps"},
	"Deployment":        {Group: "apps", Version: "v1", Resource: "deployments"},
	"PropagationPolicy": {Group: "atoll.dev", Version: "v1alpha1", Resource: "propagationpolicies"},
	"Bundle":            {Group: "atoll.dev", Version: "v1alpha1", Resource: "bundles"},
	"Cluster":           {Group: "atoll.dev", Version: "v1alpha1", Resource: "clusters"},
}

var applicationManifests = []string{
	`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
	`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web","namespace":"shop"},"data":{"a":"b"}}`,
	`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":2,
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"web:1"}]}}}}`,
	`{"apiVersion":"atoll.dev/v1alpha1","kind":"PropagationPolicy","metadata":{"name":"web","namespace":"shop"},"spec":{
		"resourceSelectors":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},{"apiVersion":"v1","kind":"ConfigMap","name":"web"}],
		"placement":{"clusterAffinity":{"labelSelector":{"matchLabels":{"group":"g1"}}}}}}`,
}

// realFleet runs the command until the test ends or stop is called.
func realFleet(t *testing.T, bin, dir string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "atoll-lab"), append([]string{"fleet", "--dir", dir}, args...)...)
	cmd.Stderr = t.Output()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Signal(syscall.SIGTERM) // the wait reports it
			if err := cmd.Wait(); err != nil {
				t.Errorf("the simulator does not end well: %v", err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func hubClient(t *testing.T, dir string) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", hubKubeconfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return dynamic.NewForConfigOrDie(config)
}

// TestRealHub: a small fleet against a real hub holds exactly its rows, also after restarts
// of the simulator and the hub. Deleted rows vanish.
func TestRealHub(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a hub")
	}
	bin := labtest.BuildBinaries(t, "atoll-hub", "atoll-lab")
	t.Setenv("ATOLL_BIN_DIR", bin)
	dir := t.TempDir()
	args := []string{"--agents", "20", "--groups", "2", "--processes", "2"}
	stop := realFleet(t, bin, dir, args...)
	control := NewSimulatorClient(dir, "")
	stats := func() Stats {
		s, err := control.ReadStats(t.Context())
		if err != nil {
			return Stats{}
		}
		return s
	}
	testwait.UntilTrue(t, "all have joined", func() bool { return stats().Connected == 20 })
	hub := hubClient(t, dir)
	for _, text := range applicationManifests {
		create(t, hub, text)
	}
	testwait.UntilTrue(t, "half of them hold it", func() bool { return stats().RowsHealthy == 10 })
	testwait.UntilTrue(t, "the template says so", func() bool { return readyReplicas(t, hub) == 2 })
	uid, content := checkHoldings(t, control, hub, "")

	stop()
	stop = realFleet(t, bin, dir, args...)
	testwait.UntilTrue(t, "all are back", func() bool { s := stats(); return s.Connected == 20 && s.RowsHealthy == 10 })
	if s := stats(); s.Joins != 0 || s.Refusals != 0 {
		t.Errorf("the same fleet, started again: %+v", s)
	}
	hub = hubClient(t, dir)
	if again, same := checkHoldings(t, control, hub, content); again != uid || same != content {
		t.Errorf("bundle %s, content %s became %s, %s", uid, content, again, same)
	}

	patch := []byte(`{"spec":{"replicas":5}}`)
	if _, err := hub.Resource(resourcesByKind["Deployment"]).Namespace("shop").Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the template says the new number", func() bool { return readyReplicas(t, hub) == 5 })
	if _, now := checkHoldings(t, control, hub, ""); now == content {
		t.Error("the agents hold the old content")
	}
	for kind, name := range map[string]string{"Deployment": "web", "ConfigMap": "web"} {
		if err := hub.Resource(resourcesByKind[kind]).Namespace("shop").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testwait.UntilTrue(t, "no agent holds anything", func() bool { s := stats(); return s.Connected == 20 && s.Rows == 0 && s.Unacknowledged == 0 })
	testwait.UntilTrue(t, "the templates are gone", func() bool {
		list, err := hub.Resource(resourcesByKind["Deployment"]).Namespace("shop").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	stop()
	if err := control.SetRates(context.WithoutCancel(t.Context()), FaultRates{}); err == nil {
		t.Error("a simulator that ended still answers")
	}
}

func create(t *testing.T, hub dynamic.Interface, text string) {
	t.Helper()
	var u unstructured.Unstructured
	if err := json.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	client := dynamic.ResourceInterface(hub.Resource(resourcesByKind[u.GetKind()]))
	if u.GetNamespace() != "" {
		client = hub.Resource(resourcesByKind[u.GetKind()]).Namespace(u.GetNamespace())
	}
	if _, err := client.Create(t.Context(), &u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func readyReplicas(t *testing.T, hub dynamic.Interface) int64 {
	d, err := hub.Resource(resourcesByKind["Deployment"]).Namespace("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return -1
	}
	n, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas")
	seen, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
	if seen != d.GetGeneration() {
		return -1
	}
	return n
}

// checkHoldings compares the state of every agent with the hub's; want is the content, if
// it is known.
func checkHoldings(t *testing.T, control *SimulatorClient, hub dynamic.Interface, want string) (uid, content string) {
	t.Helper()
	bundles, err := hub.Resource(resourcesByKind["Bundle"]).Namespace("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(bundles.Items) != 1 {
		t.Fatalf("%d bundles: %v", len(bundles.Items), err)
	}
	uid, content = string(bundles.Items[0].GetUID()), want
	clusters, err := hub.Resource(resourcesByKind["Cluster"]).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	group := map[string]string{}
	for _, c := range clusters.Items {
		group[c.GetName()+" "+string(c.GetUID())] = c.GetLabels()[GroupLabel]
	}
	for name, h := range heldBy(t, control) {
		g, known := group[name+" "+h.UID]
		held, holds := h.Bundles[uid]
		if content == "" {
			content = held.Content
		}
		switch {
		case !known || !strings.HasPrefix(name, DefaultPrefix+"-"):
			t.Errorf("the hub does not know %s (%s)", name, h.UID)
		case len(h.Bundles) > 1 || holds != (g == "g1"):
			t.Errorf("%s of %s holds %v", name, g, h.Bundles)
		case holds && (held.Content != content || held.Items != 2 || held.State != atoll.RowReady):
			t.Errorf("%s holds %+v, want content %s", name, held, content)
		}
	}
	return uid, content
}
