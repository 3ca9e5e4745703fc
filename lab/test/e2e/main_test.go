package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/lab"
)

// memberNames are the names of the lab's members and of their Clusters.
var memberNames = []string{"member1", "member2", "member3"}

// labVariable names the directory of a running lab with three members in regions eu, us and
// ap. The tests leave it running: for authors of tests.
const labVariable = "ATOLL_E2E_LAB"

var sharedWorld struct {
	lab     *lab.Lab
	clients map[string]client.Client // "hub" and the members
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	flag.Parse()
	if flagOf("test.list") != "" {
		return m.Run()
	}
	if os.Getenv(lab.BinDirVariable) == "" {
		fmt.Fprintf(os.Stderr, "these tests run built binaries: `make build`, then %s=$PWD/bin go test -C lab ./test/e2e\n", lab.BinDirVariable)
		return 1
	}
	if wantsParts() {
		return runParts()
	}
	if err := atOnce(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if ownPart().noLab {
		return m.Run()
	}
	if dir := os.Getenv(labVariable); dir != "" {
		return runIn(dir, m)
	}
	dir, err := os.MkdirTemp("", "atoll-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	audit, err := auditArgs(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	sharedWorld.lab, err = lab.BringUp(ctx, lab.Options{
		Dir: dir, HubArgs: audit, Members: len(memberNames), RealNodes: ownPart().realNodes && lab.MissingContainerRequirements() == nil,
		Regions: []string{"eu", "us", "ap"}, Progress: os.Stderr, EndsWithStarter: true,
	})
	defer func() {
		if sharedWorld.lab == nil {
			if sharedWorld.lab, err = lab.OpenExisting(dir); err != nil {
				return
			}
		}
		if err := sharedWorld.lab.StopAll(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "end the lab:", err)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring the lab up:", err)
		return 1
	}
	code := runConnected(m)
	if code == 0 {
		os.RemoveAll(dir)
	} else {
		fmt.Fprintln(os.Stderr, "logs of the lab are in", filepath.Join(dir))
	}
	return code
}

// runIn runs the tests in a lab that stays up.
func runIn(dir string, m *testing.M) int {
	var err error
	if sharedWorld.lab, err = lab.OpenExisting(dir); err != nil {
		fmt.Fprintf(os.Stderr, "open the lab that %s names: %v\n", labVariable, err)
		return 1
	}
	return runConnected(m)
}

// runConnected runs the tests with clients of the lab's clusters.
func runConnected(m *testing.M) int {
	sharedWorld.clients = map[string]client.Client{}
	for _, name := range append([]string{"hub"}, memberNames...) {
		c, err := newClient(name)
		if err != nil {
			fmt.Fprintf(os.Stderr, "connect to %s: %v\n", name, err)
			return 1
		}
		sharedWorld.clients[name] = c
	}
	return m.Run()
}

func newClient(name string) (client.Client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath(name))
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 200, 400
	return client.New(cfg, client.Options{})
}

// hubClient is the client of the hub, as its administrator.
func hubClient() client.Client { return sharedWorld.clients["hub"] }

// decodeObjects decodes YAML documents after replacing $NS by the namespace.
func decodeObjects(t *testing.T, ns, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(strings.ReplaceAll(text, "$NS", ns), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatalf("yaml: %v\n%s", err, doc)
		}
		if len(o.Object) > 0 {
			out = append(out, &o)
		}
	}
	return out
}

// apply applies YAML to the hub as `kubectl apply --server-side` does.
func apply(t *testing.T, ns, text string) {
	t.Helper()
	for _, o := range decodeObjects(t, ns, text) {
		if err := hubClient().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
}

// createNamespace makes a namespace on the hub for one test.
func createNamespace(t *testing.T, ns string) string {
	t.Helper()
	apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	return ns
}

// get reads an object; nil when it is not there, or its kind is not served.
func get(ctx context.Context, cluster, apiVersion, kind, ns, name string) (*unstructured.Unstructured, error) {
	var o unstructured.Unstructured
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	err := sharedWorld.clients[cluster].Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &o)
	if client.IgnoreNotFound(err) == nil || meta.IsNoMatchError(err) {
		if err != nil {
			return nil, nil
		}
		return &o, nil
	}
	return nil, err
}

// inCluster returns a check that the object is in the cluster, or is not.
func inCluster(cluster, apiVersion, kind, ns, name string, want bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, cluster, apiVersion, kind, ns, name)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", cluster, err)
		case want && o == nil:
			return fmt.Errorf("%s has no %s %s/%s", cluster, kind, ns, name)
		case !want && o != nil:
			return fmt.Errorf("%s still has %s %s/%s", cluster, kind, ns, name)
		}
		return nil
	}
}

// allChecks joins checks.
func allChecks(checks ...func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, c := range checks {
			if err := c(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// fieldIs returns a check of one integer field, such as "status.replicas", of a Deployment.
func fieldIs(cluster, ns, name, path string, want int64) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, cluster, "apps/v1", "Deployment", ns, name)
		if err != nil || o == nil {
			return fmt.Errorf("%s: no Deployment %s/%s (%v)", cluster, ns, name, err)
		}
		got, _, err := unstructured.NestedInt64(o.Object, strings.Split(path, ".")...)
		if err != nil || got != want {
			return fmt.Errorf("%s: Deployment %s/%s has %s=%d, want %d", cluster, ns, name, path, got, want)
		}
		return nil
	}
}
