package house

import (
	"slices"
	"strings"
	"testing"
)

// foreign lists imports from outside that some packages must do without.
var foreign = []struct {
	dirs      []string
	forbidden []string // prefixes of import paths
	except    []string // prefixes that are fine all the same
	apart     []string // directories that have a reason of their own
	why       string
}{
	{
		dirs: []string{"api/..."},
		forbidden: []string{
			"k8s.io/client-go", "k8s.io/apiserver", "k8s.io/kubernetes", "sigs.k8s.io/controller-runtime",
			"google.golang.org/", "go.etcd.io/", "k8s.io/component-base",
		},
		why: "users of the API's types must get apimachinery and nothing else",
	},
	{
		dirs: append([]string{"internal/atoll", "internal/schedule", "internal/rollout", "internal/userfields", "internal/overrides", "internal/manifest", "internal/kinds/...", "internal/session", "internal/restore", "internal/policymatch", "internal/bundlecontent", "internal/clusternode"}, valuePackages...),
		forbidden: []string{
			"log", "net", "os", "io/fs", "sync", "database/", "k8s.io/client-go", "k8s.io/klog", "k8s.io/apiserver", "k8s.io/kubernetes",
			"sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "go.etcd.io/", "k8s.io/component-base", "math/rand",
		},
		except: []string{"net/netip"},
		why:    "a core has no client, no clock, no goroutine, no logger and no chance",
	},
	{
		dirs: []string{"internal/expr"}, // caches compiled expressions, which are the same for all callers: hence sync
		forbidden: []string{
			"log", "net", "os", "io/fs", "database/", "time", "k8s.io/client-go", "k8s.io/klog", "k8s.io/apiserver", "k8s.io/kubernetes",
			"sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "go.etcd.io/", "k8s.io/component-base", "math/rand",
		},
		why: "a core has no client, no clock, no goroutine, no logger and no chance",
	},
	{
		dirs: []string{"internal/changewindow"}, // a schedule is read once, when it is first needed: hence sync
		forbidden: []string{
			"log", "net", "os", "io/fs", "database/", "k8s.io/client-go", "k8s.io/klog", "k8s.io/apiserver", "k8s.io/kubernetes",
			"sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "go.etcd.io/", "k8s.io/component-base", "math/rand",
		},
		why: "a core has no client, no clock, no goroutine, no logger and no chance",
	},
	{
		dirs: []string{"internal/...", "cmd/..."}, forbidden: []string{"golang.org/x/time"},
		why: "internal/pace has every rate limit and the table of rates",
	},
	{
		dirs:      []string{"internal/agent/...", "internal/command/...", "internal/trust/...", "cmd/atoll"},
		forbidden: []string{"k8s.io/kubernetes", "k8s.io/apiserver", "sigs.k8s.io/controller-runtime", "go.etcd.io/", "k8s.io/kubectl", "k8s.io/component-base"},
		// Only the hub imports the room of the CAs' status.
		apart: []string{"internal/trust/castatus"},
		why:   "agent and CLI stay light: client-go, gRPC and cobra are enough",
	},
	{
		dirs:      []string{"internal/agent/...", "internal/command/...", "cmd/atoll", "internal/sources/render/...", "internal/sources/renderchild", "internal/sources/childprocess", "internal/sources/changes"},
		forbidden: []string{"helm.sh", "sigs.k8s.io/kustomize", "github.com/go-git", "github.com/Masterminds"},
		except:    []string{"helm.sh/helm/v4/pkg/ignore"},
		why:       "agent and CLI do without the libraries of Sources; .helmignore is read by a package that brings nothing along",
	},
	{
		dirs:      []string{"internal/state/...", "internal/binder/...", "internal/placer/...", "internal/bundlestatus/...", "internal/clusterstatus/...", "internal/dialect/...", "internal/delivery/...", "internal/preview/explain"},
		forbidden: []string{"k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/"},
		// Which values are defaults is only in upstream's code.
		apart: []string{"internal/binder/defaulting"},
		why:   "controllers are clients of the API: what they need of the server, the API must give",
	},
}

func TestForeignImportsHaveTheirPlace(t *testing.T) {
	for _, s := range loadSources(t) {
		if s.test || s.generated {
			continue
		}
		for _, rule := range foreign {
			if !slices.ContainsFunc(rule.dirs, func(p string) bool { return isWithin(p, s.dir) }) || slices.Contains(rule.apart, s.dir) {
				continue
			}
			for _, p := range s.listImports() {
				if hasPathPrefix(p, rule.forbidden) && !hasPathPrefix(p, rule.except) {
					t.Errorf("%s: imports %s: %s", s.path, p, rule.why)
				}
			}
		}
	}
}

func hasPathPrefix(p string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(f string) bool {
		f = strings.TrimSuffix(f, "/")
		return p == f || strings.HasPrefix(p, f+"/")
	})
}
