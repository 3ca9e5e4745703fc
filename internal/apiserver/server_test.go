package apiserver_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/testwait"
)

// hub is the server that the tests of this package share; each test keeps to
// namespaces and names of its own.
var hub *apiserver.Server

// seen records what the shared server's extra admission plugin saw.
var seen = &recorder{}

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimEnv); dir != "" {
		beVictim(dir)
		return
	}
	flag.Parse()
	os.Exit(run(m))
}

// testsAtOnce is how many of the tests that start servers of their own run beside each
// other, whatever the number of processors: they wait more than they work.
const testsAtOnce = 4

func run(m *testing.M) int {
	if err := flag.Set("test.parallel", strconv.Itoa(testsAtOnce)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "atoll-apiserver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	o := testOptions(dir)
	o.Admission = []apiserver.AdmissionPlugin{{Name: "TestRecorder", Handler: seen}}
	o.Storage = fleet.view.InstallStorage
	begin := time.Now()
	hub, err = apiserver.StartAPIServer(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf("ready after %v\n", time.Since(begin).Round(time.Millisecond))
	code := m.Run()
	if err := stop(hub); err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		return 1
	}
	return code
}

func stop(s *apiserver.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), testwait.HangLimit)
	defer cancel()
	return s.Stop(ctx)
}

func testOptions(dir string) apiserver.Options {
	return apiserver.Options{DataDir: dir, Version: "v0.1.0", Logger: testLogger()}
}

// testLogger discards unless LOG_LEVEL states otherwise.
func testLogger() *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv("LOG_LEVEL"))); err != nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// starting lets one server start at a time: upstream settles flags of the whole process
// while it does. Servers that have started run beside each other.
var starting sync.Mutex

// tryStart runs another server, which the test stops.
func tryStart(t *testing.T, o apiserver.Options) (*apiserver.Server, error) {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	return apiserver.StartAPIServer(t.Context(), o)
}

// start runs another server and stops it with the test.
func start(t *testing.T, o apiserver.Options) *apiserver.Server {
	t.Helper()
	s, err := tryStart(t, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(s); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// user is a client of a hub, as an administrator unless changed.
type user struct {
	t       testing.TB
	config  *rest.Config
	kube    *kubernetes.Clientset
	objects *dynamic.DynamicClient
}

func newAdmin(t testing.TB, s *apiserver.Server) *user {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", s.AdminKubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	return newUser(t, c)
}

func newUser(t testing.TB, c *rest.Config) *user {
	t.Helper()
	c.QPS = -1
	kube, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return &user{t: t, config: c, kube: kube, objects: objects}
}

// createNamespace makes a namespace that goes with the test, and returns its name.
func (u *user) createNamespace(prefix string) string {
	u.t.Helper()
	name := prefix + "-" + rand.String(5)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": name}}}
	if _, err := u.kube.CoreV1().Namespaces().Create(u.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		u.kube.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return name
}

// apply applies every object of a YAML stream server-side and returns the first
// error.
func (u *user) apply(manifests string, options ...func(*metav1.PatchOptions)) error {
	u.t.Helper()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(u.kube.Discovery()))
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); err == io.EOF {
			return nil
		} else if err != nil {
			u.t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(obj.GroupVersionKind().GroupKind(), obj.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		body, err := obj.MarshalJSON()
		if err != nil {
			u.t.Fatal(err)
		}
		po := metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict}
		for _, option := range options {
			option(&po)
		}
		_, err = u.objects.Resource(mapping.Resource).Namespace(obj.GetNamespace()).
			Patch(u.t.Context(), obj.GetName(), types.ApplyPatchType, body, po)
		if err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}

func (u *user) mustApply(manifests string) {
	u.t.Helper()
	if err := u.apply(manifests); err != nil {
		u.t.Fatal(err)
	}
}

func (u *user) resourceClient(group, version, resource string) dynamic.NamespaceableResourceInterface {
	return u.objects.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
}

// createConfigMap writes a ConfigMap, the simplest proof that the hub takes writes.
func (u *user) createConfigMap(namespace, name string) error {
	_, err := u.kube.CoreV1().ConfigMaps(namespace).Create(u.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}
