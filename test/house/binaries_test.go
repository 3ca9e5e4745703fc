package house

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goCommand runs the go command at the root and returns its output.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	return goCommandIn(t, ".", args...)
}

// goCommandIn runs the go command in a directory below the root and returns its output.
func goCommandIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(root(), dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// heavy modules have no place in what runs in members and on laptops, nor do the clients by
// type, and discovery's, that register every version of every kind of Kubernetes.
var heavy = []string{
	"k8s.io/kubernetes", "k8s.io/apiserver", "sigs.k8s.io/controller-runtime", "go.etcd.io", "k8s.io/kubectl",
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/discovery", "filippo.io/age",
}

func TestTheCommandStaysLight(t *testing.T) {
	for dep := range strings.Lines(goCommand(t, "list", "-deps", "./cmd/atoll")) {
		if dep = strings.TrimSpace(dep); hasPathPrefix(dep, heavy) {
			t.Errorf("cmd/atoll links %s; ask why with: go list -deps -f '{{.ImportPath}} {{.Imports}}' ./cmd/atoll | grep %s", dep, dep)
		}
	}
}

// registryClients have no place in an agent, which fetches nothing.
var registryClients = []string{"oras.land", "github.com/opencontainers"}

func TestAgentsHaveNoRegistryClient(t *testing.T) {
	for dep := range strings.Lines(goCommand(t, "list", "-deps", "./internal/agent/...", "./internal/command/agent")) {
		if dep = strings.TrimSpace(dep); hasPathPrefix(dep, registryClients) {
			t.Errorf("the agent links %s", dep)
		}
	}
}

// apiServer is what makes a binary link the whole API server, which takes half
// a minute and a gigabyte per binary.
const apiServer = "k8s.io/kubernetes/cmd/kube-apiserver/app"

func TestOneTestBinaryLinksTheAPIServer(t *testing.T) {
	var linking []string
	for _, module := range []string{".", "lab"} {
		for line := range strings.Lines(goCommandIn(t, module, "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")) {
			words := strings.Fields(line)
			if strings.HasSuffix(words[0], ".test") && slices.Contains(words[1:], apiServer) {
				linking = append(linking, strings.TrimPrefix(words[0], modulePath+"/"))
			}
		}
	}
	if len(linking) > 1 {
		t.Errorf("%d test binaries link the API server: %s; keep one, and let the others run the built binaries (ATOLL_BIN_DIR)",
			len(linking), strings.Join(linking, ", "))
	}
}
