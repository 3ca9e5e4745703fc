package house

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// A layer is a set of packages that may import the layers named in below, and
// nothing else of ours. Packages of one layer do not import each other unless
// one lies below the other in the directory tree.
type layer struct {
	name     string
	packages []string // directories; "/..." takes in what is below
	below    []string // names of layers
	why      string   // the reason why nothing else may be imported
}

// Imports run one way: vocabulary, cores, state, shells, hub, commands.
var layers = []layer{
	{
		name: "api", packages: []string{"api/..."},
		why: "others vendor the types of the API: they must bring nothing along but apimachinery",
	},
	{
		name: "vocabulary", packages: []string{"internal/atoll"}, below: []string{"api"},
		why: "every package speaks the vocabulary, so whatever it imported, all would import",
	},
	{
		name: "wire", packages: []string{"internal/session/sessionpb/...", "internal/peer/peerpb/..."}, below: nil,
		why: "the protocol must not change because a type of the program changes",
	},
	{
		name: "carriage", packages: []string{"internal/h2", "internal/tunnel/..."}, below: nil,
		why: "how gRPC is carried, and what it carries itself, knows nothing of what is said",
	},
	{
		name:     "cores",
		packages: []string{"internal/schedule", "internal/rollout", "internal/render", "internal/interpret/...", "internal/session", "internal/rewind", "internal/expr"},
		below:    []string{"api", "vocabulary", "wire"},
		why:      "a core is values in, values out, so that preview, explain and tests can call it like the acting code does",
	},
	{
		name: "claim", packages: []string{"internal/claim"}, below: []string{"api", "vocabulary", "cores"},
		why: "who places what is asked by the hub and on laptops alike: a core that stands on render and interpret",
	},
	{
		name: "plan", packages: []string{"internal/plan", "internal/offline"}, below: []string{"api", "vocabulary", "cores", "claim"},
		why: "what would be is said by the functions that act, on a hub and on a laptop: nothing here reads or writes anything",
	},
	{
		name: "trust", packages: []string{"internal/trust/..."}, below: []string{"api", "vocabulary", "wire"},
		why: "tokens and certificates are used by hub, agent and CLI alike",
	},
	{
		name: "state", packages: []string{"internal/state/..."}, below: []string{"api", "vocabulary", "cores"},
		why: "tables know what is, never who reads them",
	},
	{
		name: "loop", packages: []string{"internal/reconcile"},
		why: "how often something is looked at is the same whatever it is",
	},
	{
		name: "watched", packages: []string{"internal/watched"},
		why: "how some objects of a kind are followed is the same whoever follows them",
	},
	{
		name: "live", packages: []string{"internal/live"}, below: []string{"api", "vocabulary"},
		why: "how what runs in members is shown, whoever serves it and whoever admits writes to it",
	},
	{
		name: "explain", packages: []string{"internal/explain"}, below: []string{"api", "vocabulary", "cores", "state"},
		why: "explain calls the functions that act, on the state that they act on, and must not act itself",
	},
	{
		name: "reconcilers",
		packages: []string{
			"internal/inventory/...", "internal/bind/...", "internal/place/...", "internal/summarise/...", "internal/leave",
		},
		below: []string{"api", "vocabulary", "wire", "cores", "claim", "state", "explain", "loop"},
		why:   "reconcilers meet in the store only: one that called another could not be restarted, tested or reasoned about alone",
	},
	{
		name: "dialects", packages: []string{"internal/dialect/..."}, below: []string{"api", "vocabulary", "cores", "loop"},
		why: "a dialect is a translation to Atoll's own objects: what acts on these knows nothing of it, and it nothing of them",
	},
	{
		name: "gateway", packages: []string{"internal/gateway/..."}, below: []string{"api", "vocabulary", "wire", "carriage", "cores", "trust", "state", "watched"},
		why: "the gateway sends what the store says, whoever wrote it",
	},
	{
		name: "peer", packages: []string{"internal/peer"}, below: []string{"wire", "carriage", "watched"},
		why: "hubs tell each other which streams they hold; what follows from it is the hub's to say",
	},
	{
		name: "node", packages: []string{"internal/clusternode"}, below: []string{"api", "vocabulary"},
		why: "a Cluster is shown as a Node by nothing but itself",
	},
	{
		name: "apiserver", packages: []string{"internal/apiserver/..."}, below: []string{"api", "vocabulary", "trust", "node"},
		why: "the API server is what everything else stands on: it must start and stop without any of it",
	},
	{
		name: "admission", packages: []string{"internal/admission/..."}, below: []string{"api", "vocabulary", "cores", "claim", "trust", "state", "apiserver", "live"},
		why: "it asks, by an interface, what the hub makes of a write; nobody but the hub knows it",
	},
	{
		name: "agent report", packages: []string{"internal/agent/report"}, below: []string{"api", "vocabulary", "cores"},
		why: "what agents report is made the same way by simulated ones",
	},
	{
		name: "agent", packages: []string{"internal/agent/..."}, below: []string{"api", "vocabulary", "wire", "carriage", "cores", "trust", "agent report"},
		why: "the agent runs in members without the hub and stays small: nothing of the hub may come along",
	},
	{
		name: "hub", packages: []string{"internal/hub/..."},
		below: []string{"api", "vocabulary", "wire", "cores", "claim", "plan", "trust", "state", "explain", "reconcilers", "dialects", "carriage", "gateway", "peer", "apiserver", "admission", "agent", "live", "node", "watched"},
		why:   "the composition root; it alone knows all parts",
	},
	{
		name: "profile", packages: []string{"internal/profile"},
		why: "every program of ours can be profiled, so it brings nothing along",
	},
	{
		name: "agent command", packages: []string{"internal/command/agent"}, below: []string{"vocabulary", "trust", "agent", "client"},
		why: "the command is a thin shell over the agent",
	},
	{
		name: "client", packages: []string{"internal/command/client", "internal/command/output", "internal/command/files"}, below: []string{"api", "vocabulary"},
		why: "what the commands share: how to reach a cluster and how to print",
	},
	{
		name: "pods", packages: []string{"internal/command/pods"}, below: []string{"vocabulary", "client"},
		why: "what commands share that read of containers and run in them: whose they are",
	},
	{
		name: "planning commands", packages: []string{"internal/command/plan", "internal/command/schedule", "internal/command/rebalance", "internal/command/interpret"}, below: []string{"api", "vocabulary", "cores", "claim", "plan", "client"},
		why: "they decide over files alone by the cores, and word what a hub answers; nothing of the hub comes along",
	},
	{
		name: "commands", packages: []string{"internal/command/..."}, below: []string{"api", "vocabulary", "trust", "client", "pods", "deploy"},
		why: "the CLI is a client like any other: what it shows, the API must be able to tell",
	},
	{
		name: "deploy", packages: []string{"deploy/..."},
		why: "manifests, embedded",
	},
	{
		name: "root command", packages: []string{"internal/command"}, below: []string{"commands", "planning commands", "agent command", "client", "profile"},
		why: "the root only mounts",
	},
	{
		name: "lab", packages: []string{"internal/lab/..."}, below: []string{"api", "vocabulary", "wire", "carriage", "trust", "cores", "agent report"},
		why: "the lab drives the built binaries from outside, like a user would",
	},
	{
		name: "demo", packages: []string{"internal/demo", "demo"}, below: []string{"api", "vocabulary", "lab"},
		why: "the demo shows only what a user could do",
	},
	{
		name: "bench of cores", packages: []string{"internal/bench/brain"}, below: []string{"api", "vocabulary", "cores"},
		why: "a core has no outside but those who call it: it is measured as they do",
	},
	{
		name: "bench", packages: []string{"internal/bench/..."}, below: []string{"api", "vocabulary", "lab", "bench of cores"},
		why: "measured from outside, or it would measure something else than users get",
	},
	{
		name: "tools", packages: []string{"tools/..."},
		why: "what is made of the tree is made by a module of its own: its libraries are none of the programs'",
	},
	{
		name: "main atoll", packages: []string{"cmd/atoll"}, below: []string{"root command"},
		why: "main is a shell",
	},
	{
		name: "main hub", packages: []string{"cmd/atoll-hub/..."}, below: []string{"hub", "apiserver", "vocabulary", "profile"},
		why: "main is a shell",
	},
	{
		name: "main lab", packages: []string{"cmd/atoll-lab/..."}, below: []string{"lab", "demo", "bench", "profile"},
		why: "main is a shell",
	},
}

// within tells whether the directory is of the pattern.
func within(pattern, dir string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == base || strings.HasPrefix(dir, base+"/")
	}
	return dir == pattern
}

// layerOf a directory: the most exact pattern wins.
func layerOf(dir string) *layer {
	var found *layer
	longest := -1
	for i := range layers {
		for _, p := range layers[i].packages {
			n := 2 * len(strings.TrimSuffix(p, "/..."))
			if !strings.HasSuffix(p, "/...") {
				n++
			}
			if within(p, dir) && n > longest {
				found, longest = &layers[i], n
			}
		}
	}
	return found
}

func TestImportsRunOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || within("test/...", s.dir) {
			continue
		}
		own := layerOf(s.dir)
		if own == nil {
			t.Errorf("%s: package %s has no layer: give it one in test/house/imports_test.go", s.path, s.dir)
			continue
		}
		for _, p := range s.imports() {
			dir, ours := strings.CutPrefix(p, modulePath+"/")
			if !ours {
				continue
			}
			to := layerOf(dir)
			kin := strings.HasPrefix(dir, s.dir+"/") || strings.HasPrefix(s.dir, dir+"/")
			switch {
			case to == nil:
				t.Errorf("%s: imports %s, which has no layer", s.path, dir)
			case to == own && (kin || allowSiblings[own.name] || slices.Contains(stacked[s.dir], dir)):
			case !slices.Contains(own.below, to.name):
				t.Errorf("%s: %s (%s) may not import %s (%s): %s", s.path, s.dir, own.name, dir, to.name, own.why)
			}
		}
	}
}

// stacked lists the cores that stand on other ones, which are lower.
var stacked = map[string][]string{
	// where replicas and images are in an object; values of a Cluster
	"internal/render": {"internal/interpret", "internal/interpret/script", "internal/expr", "internal/schedule"},
	// expressions over a Cluster; where replicas and requests are in an object
	"internal/schedule": {"internal/expr", "internal/interpret"},
	// expressions over objects; what pods request and need
	"internal/interpret/script": {"internal/expr", "internal/interpret"},
	// the decision that it carries out
	"internal/rollout": {"internal/schedule"},
}

// allowSiblings lists the layers that are one part in several directories.
var allowSiblings = map[string]bool{
	"api": true, "trust": true, "state": true, "apiserver": true, "gateway": true, "agent": true, "lab": true, "demo": true, "hub": true, "bench": true,
}

// TestLayersExist keeps the table honest: a layer that only serves absent
// packages still has to be spelled right.
func TestLayersExist(t *testing.T) {
	names := map[string]bool{}
	for _, l := range layers {
		if names[l.name] {
			t.Errorf("layer %s is there twice", l.name)
		}
		names[l.name] = true
		if l.why == "" {
			t.Errorf("layer %s gives no reason", l.name)
		}
	}
	for _, l := range layers {
		for _, b := range l.below {
			if !names[b] {
				t.Errorf("layer %s: there is no layer %q", l.name, b)
			}
		}
	}
}

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
		why: "whoever uses the API's types must get apimachinery and nothing else",
	},
	{
		dirs: []string{"internal/atoll", "internal/schedule", "internal/rollout", "internal/render", "internal/interpret/...", "internal/session", "internal/rewind", "internal/claim", "internal/clusternode"},
		forbidden: []string{
			"log", "net", "os", "io/fs", "sync", "database/", "k8s.io/client-go", "k8s.io/klog", "k8s.io/apiserver", "k8s.io/kubernetes",
			"sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "go.etcd.io/", "k8s.io/component-base", "math/rand",
		},
		except: []string{"net/netip"},
		why:    "a core has no client, no clock, no goroutine, no logger and no chance",
	},
	{
		dirs: []string{"internal/expr"}, // keeps what it compiled, which is the same whoever asks: hence sync
		forbidden: []string{
			"log", "net", "os", "io/fs", "database/", "time", "k8s.io/client-go", "k8s.io/klog", "k8s.io/apiserver", "k8s.io/kubernetes",
			"sigs.k8s.io/controller-runtime", "google.golang.org/grpc", "go.etcd.io/", "k8s.io/component-base", "math/rand",
		},
		why: "a core has no client, no clock, no goroutine, no logger and no chance",
	},
	{
		dirs:      []string{"internal/agent/...", "internal/command/...", "internal/trust/...", "cmd/atoll"},
		forbidden: []string{"k8s.io/kubernetes", "k8s.io/apiserver", "sigs.k8s.io/controller-runtime", "go.etcd.io/", "k8s.io/kubectl", "k8s.io/component-base"},
		why:       "agent and CLI stay light: client-go, gRPC and cobra are enough",
	},
	{
		dirs:      []string{"internal/state/...", "internal/bind/...", "internal/place/...", "internal/summarise/...", "internal/inventory/...", "internal/dialect/...", "internal/gateway/...", "internal/explain"},
		forbidden: []string{"k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/"},
		// Which values are defaults is only in upstream's code.
		apart: []string{"internal/bind/defaulting"},
		why:   "controllers are clients of the API: what they need of the server, the API must give",
	},
}

func TestForeignImportsHaveTheirPlace(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.generated {
			continue
		}
		for _, rule := range foreign {
			if !slices.ContainsFunc(rule.dirs, func(p string) bool { return within(p, s.dir) }) || slices.Contains(rule.apart, s.dir) {
				continue
			}
			for _, p := range s.imports() {
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

// channelOfContext is where a core has a channel that is never sent to: the virtual machine
// of scripts asks a context before each step, and a core counts the steps there.
const channelOfContext = "internal/interpret/script/meter.go"

func TestCoresArePure(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	for _, s := range sources(t) {
		if l := layerOf(s.dir); s.test || l == nil || (l.name != "cores" && l.name != "claim" && l.name != "vocabulary") {
			continue
		}
		forEachCall(s, "time", clock, func(at ast.Node, name string) {
			t.Errorf("%s: time.%s: a core takes the time as a value", s.position(at), name)
		})
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: go statement: a core starts no goroutine", s.position(n))
			case *ast.ChanType:
				if s.path == channelOfContext {
					return true
				}
				t.Errorf("%s: channel: a core is values in, values out", s.position(n))
			}
			return true
		})
	}
}
