package tenancy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/lab"
)

// testHub is the hub that the tests of this package share; each keeps to names of its
// own.
var testHub struct {
	kubeconfig string
	config     *rest.Config
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "atoll-hub-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	hub := filepath.Join(os.Getenv(lab.BinDirVariable), "atoll-hub")
	if _, err := os.Stat(hub); err != nil || !filepath.IsAbs(hub) {
		fmt.Fprintf(os.Stderr, "these tests run built binaries: `make build`, then %s=$PWD/bin go test -C lab ./test/e2e/tenancy\n", lab.BinDirVariable)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cmd := exec.CommandContext(ctx, hub, "--data-dir", dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	testHub.kubeconfig = filepath.Join(dir, "hub.kubeconfig")
	if err := waitReady(ctx, ended); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, err, log.String())
		return 1
	}
	code := m.Run()
	stop()
	<-ended
	return code
}

func waitReady(ctx context.Context, ended chan error) (err error) {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the hub ended: %w", err)
		default:
		}
		if testHub.config, err = clientcmd.BuildConfigFromFlags("", testHub.kubeconfig); err != nil {
			return false, nil
		}
		testHub.config.QPS = -1
		http, err := rest.HTTPClientFor(testHub.config)
		if err != nil {
			return false, err
		}
		r, err := http.Get(testHub.config.Host + "/readyz")
		if err != nil {
			return false, nil
		}
		defer r.Body.Close()
		return r.StatusCode == 200, nil
	})
}

// clientAs returns a client of the hub as that user; "" is its administrator.
func clientAs(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(testHub.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	}
	return newClient(t, config)
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: state.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// decodeObjects decodes objects in YAML.
func decodeObjects(t *testing.T, text string) (list []*unstructured.Unstructured) {
	t.Helper()
	docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		if err := docs.Decode(&o); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if len(o.Object) > 0 {
			list = append(list, &o)
		}
	}
}

// apply applies the objects as the hub's administrator; they end with the test.
func apply(t *testing.T, text string) {
	t.Helper()
	for _, o := range decodeObjects(t, text) {
		if err := put(t.Context(), clientAs(t, ""), o); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		t.Cleanup(func() { _ = clientAs(t, "").Delete(context.WithoutCancel(t.Context()), o) })
	}
}

// put writes an object unchanged, by server-side apply.
func put(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.FieldOwner("test"), client.ForceOwnership)
}
