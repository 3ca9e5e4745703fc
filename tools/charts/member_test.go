package charts

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// memberCluster is a member of the lab, whose pods kwok runs.
type memberCluster struct {
	t      *testing.T
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// kubeconfig is the file of its administrator.
	kubeconfig string
}

func newCluster(t *testing.T) *memberCluster {
	t.Helper()
	bin := os.Getenv("ATOLL_BIN_DIR")
	if bin == "" || testing.Short() {
		t.Skip("ATOLL_BIN_DIR does not say where the built binaries are")
	}
	dir := filepath.Join(t.TempDir(), "member")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	cmd := exec.Command(filepath.Join(bin, "atoll-lab"), "member", "--dir", dir, "--port", strconv.Itoa(port), "--name", "member")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	logs, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = logs, logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(logs.Name()); err == nil && t.Failed() {
			t.Logf("the member says:\n%s", text[max(0, len(text)-2000):])
		}
	})
	waitUntil(t, "the member is ready", func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err
	})
	c := &memberCluster{t: t, kubeconfig: filepath.Join(dir, "kubeconfig")}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if c.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	return c
}

// hangLimit only ends what hangs: no test depends on its length.
const hangLimit = 3 * time.Minute

// waitUntil waits until the check returns nil. After hangLimit the test fails with the error that the
// check returned last before the limit.
func waitUntil(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, hangLimit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s; last seen: %v", what, hangLimit, last)
	}
}

func (c *memberCluster) resourceFor(u *unstructured.Unstructured) dynamic.ResourceInterface {
	c.t.Helper()
	gvk := u.GroupVersionKind()
	var m *meta.RESTMapping
	// A definition that was just applied is served a moment later.
	waitUntil(c.t, gvk.Kind+" is served", func(context.Context) (err error) {
		if m, err = c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			c.mapper.Reset()
		}
		return err
	})
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.client.Resource(m.Resource).Namespace(u.GetNamespace())
	}
	return c.client.Resource(m.Resource)
}

// apply applies manifests as Helm 4 does, in its order, with strict fields.
func (c *memberCluster) apply(manifests string) {
	c.t.Helper()
	all, err := ParseObjects(manifests)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, u := range all {
		body, err := u.MarshalJSON()
		if err != nil {
			c.t.Fatal(err)
		}
		_, err = c.resourceFor(u).Patch(c.t.Context(), u.GetName(), "application/apply-patch+yaml", body, metav1.PatchOptions{FieldManager: "helm", FieldValidation: "Strict"})
		if err != nil {
			c.t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

func (c *memberCluster) createObject(apiVersion, kind, namespace, name string, fields map[string]any) {
	c.t.Helper()
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	if _, err := c.resourceFor(u).Create(c.t.Context(), u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
}

// waitForPods waits until the workload has its pods.
func (c *memberCluster) waitForPods(kind, namespace, name string, want int64) {
	c.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("apps/v1")
	u.SetKind(kind)
	u.SetNamespace(namespace)
	at := c.resourceFor(u)
	waitUntil(c.t, kind+" "+name+" runs", func(ctx context.Context) error {
		live, err := at.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedInt64(live.Object, "status", "readyReplicas"); ready != want {
			return fmt.Errorf("%d replicas are ready, want %d; its status is %v", ready, want, live.Object["status"])
		}
		return nil
	})
}

// TestTheChartsRun: a cluster accepts all rendered objects, also with every value set, and
// runs their pods, also after an upgrade.
func TestTheChartsRun(t *testing.T) {
	c := newCluster(t)
	for _, ns := range []string{"atoll-system", "atoll"} {
		c.createObject("v1", "Namespace", "", ns, map[string]any{})
	}
	// The cluster has no provisioner of volumes.
	c.createObject("v1", "PersistentVolume", "", "volume", map[string]any{"spec": map[string]any{
		"capacity": map[string]any{"storage": "50Gi"}, "accessModes": []any{"ReadWriteOnce"}, "hostPath": map[string]any{"path": "/nowhere"},
	}})
	c.createObject("v1", "Secret", "atoll-system", "joining", map[string]any{"stringData": map[string]any{"name": "a", "hub": "b:1", "caHash": "c", "token": "d"}})
	for _, name := range []string{"etcd", "hub-keys", "hub-tls"} {
		c.createObject("v1", "Secret", "atoll", name, map[string]any{})
	}
	for i, r := range goldenCases {
		release := "atoll-" + strconv.Itoa(i)
		text, err := RenderManifests(Release{Chart: filepath.Join(chartsDir, r.chart), Name: release, Namespace: r.namespace, Values: parseValues(t, r.values)})
		if err != nil {
			t.Fatal(err)
		}
		c.apply(text)
		switch r.name {
		case "hub":
			c.waitForPods("StatefulSet", r.namespace, release+"-atoll-hub", 1)
		case "agent", "agent-all":
			c.waitForPods("Deployment", r.namespace, "atoll-agent", 1)
		}
	}
}

func TestTheChartsAreOfThisVersion(t *testing.T) {
	text, err := os.ReadFile("../../internal/atoll/version.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"atoll-agent", "atoll-hub"} {
		chart, err := os.ReadFile(filepath.Join(chartsDir, c, "Chart.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		meta := parseValues(t, string(chart))
		app := fmt.Sprint(meta["appVersion"])
		if want := fmt.Sprintf("Version = %q", app); !strings.Contains(string(text), want) || app != "v"+fmt.Sprint(meta["version"]) {
			t.Errorf("chart %s is of %s %v, and internal/atoll/version.go of another", c, app, meta["version"])
		}
	}
}
