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

// valuePackages are pure functions on values of the vocabulary.
var valuePackages = []string{
	"internal/rowcodec", "internal/quantity", "internal/freecapacity", "internal/clustermatch", "internal/checkin", "internal/phrase", "internal/refusal", "internal/jsonpointer", "internal/objectdiff", "internal/standardwebhook",
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
		name: "values", packages: valuePackages, below: []string{"api", "vocabulary"},
		why: "codecs and arithmetic of the vocabulary's values: a package that may import the vocabulary may import them, too",
	},
	{
		name: "reason page", packages: []string{"internal/reasonpage/..."}, below: []string{"vocabulary"},
		why: "the page of reasons follows from the table alone",
	},
	{
		name: "metric table", packages: []string{"internal/metrictable"},
		why: "every component may measure itself, so the table of metrics brings nothing along",
	},
	{
		name: "metric page", packages: []string{"internal/metricpage/..."}, below: []string{"metric table"},
		why: "the page of metrics follows from the table alone",
	},
	{
		name: "wire", packages: []string{"internal/session/sessionpb/...", "internal/peer/peerpb/..."}, below: nil,
		why: "the protocol must not change because a type of the program changes",
	},
	{
		name: "carriage", packages: []string{"internal/h2", "internal/tunnel/..."}, below: []string{"pace"},
		why: "how gRPC is carried, and what it carries itself, knows nothing of what is said",
	},
	{
		name: "runtime", packages: []string{"internal/panicorigin", "internal/pause", "internal/wakeup"},
		why: "what Go's runtime lacks knows nothing of Atoll, so every package may import it",
	},
	{
		name: "test wait", packages: []string{"internal/testwait"},
		why: "the tests of every package wait by it",
	},
	{
		name:     "cores",
		packages: []string{"internal/schedule", "internal/rollout", "internal/userfields", "internal/overrides", "internal/manifest", "internal/kinds/...", "internal/session", "internal/restore", "internal/expr", "internal/drift", "internal/assess", "internal/changewindow"},
		below:    []string{"api", "vocabulary", "wire"},
		why:      "a core is values in, values out, so that preview, explain and tests can call it like the acting code does",
	},
	{
		name: "contents", packages: []string{"internal/policymatch", "internal/bundlecontent"}, below: []string{"api", "vocabulary", "cores"},
		why: "the hub and the command line decide placement and content by the same cores, which stand on the other cores",
	},
	{
		name: "policy checks", packages: []string{"internal/policycheck"}, below: []string{"api", "vocabulary", "cores", "contents"},
		why: "a plan without a hub refuses what admission refuses, by the same functions",
	},
	{
		name: "plan", packages: []string{"internal/preview", "internal/preview/offline"}, below: []string{"api", "vocabulary", "cores", "contents", "policy checks"},
		why: "what would be is said by the functions that act, on a hub and on a laptop: nothing here reads or writes anything",
	},
	{
		name: "undo history", packages: []string{"internal/undo/history"}, below: []string{"api", "vocabulary"},
		why: "the hub keeps changes, and the command takes them back, by the same pure functions",
	},
	{
		name: "trust", packages: []string{"internal/trust/..."}, below: []string{"api", "vocabulary", "wire"},
		why: "tokens and certificates are used by hub, agent and CLI alike",
	},
	{
		name: "tracing", packages: []string{"internal/tracing"}, below: []string{"api", "vocabulary"},
		why: "a trace takes what components pass to it, and decides nothing",
	},
	{
		name: "state", packages: []string{"internal/state/..."}, below: []string{"api", "vocabulary", "cores", "tracing", "loop"},
		why: "tables hold the state, and know no reader",
	},
	{
		name: "state of tests", packages: []string{"internal/state/statetest"}, below: []string{"state"},
		why: "tests make tables by it, and no program does",
	},
	{
		name: "pace", packages: []string{"internal/pace"},
		why: "a rate limit is the same whatever it limits",
	},
	{
		name: "losses", packages: []string{"internal/failover/loss"}, below: []string{"api", "vocabulary", "pace"},
		why: "the hub taints lost clusters, and the command line shows when, by the same pure functions",
	},
	{
		name: "quarantine", packages: []string{"internal/quarantine"}, below: []string{"api", "pace"},
		why: "delivery charges the accounts and reconcilers read them: they know neither",
	},
	{
		name: "loop", packages: []string{"internal/reconcile"}, below: []string{"metric table"},
		why: "how often something is looked at is the same whatever it is",
	},
	{
		name: "answer weight", packages: []string{"internal/answerweight"},
		why: "how much memory an answer takes is the same whatever is answered",
	},
	{
		name: "watched", packages: []string{"internal/filteredwatch"},
		why: "a filtered watch is the same for all its users",
	},
	{
		name: "live", packages: []string{"internal/fleetview"}, below: []string{"api", "vocabulary"},
		why: "the form of members' objects is the same for the server and for admission",
	},
	{
		name: "explain", packages: []string{"internal/preview/explain"}, below: []string{"api", "vocabulary", "cores", "state"},
		why: "explain calls the functions that act, on the state that they act on, and must not act itself",
	},
	{
		name: "state metrics", packages: []string{"internal/statemetrics"}, below: []string{"api", "vocabulary", "values", "metric table", "state"},
		why: "it counts the tables, and no reconciler may depend on what is counted",
	},
	{
		name: "reconcilers",
		packages: []string{
			"internal/clusterstatus/...", "internal/binder/...", "internal/placer/...", "internal/bundlestatus/...", "internal/decommission", "internal/failover",
		},
		below: []string{"metric table", "api", "vocabulary", "wire", "cores", "contents", "losses", "state", "explain", "loop", "pace", "quarantine", "tracing"},
		why:   "reconcilers meet in the store only: one that called another could not be restarted, tested or reasoned about alone",
	},
	{
		name: "source cores", packages: []string{"internal/sources/render/...", "internal/sources/changes", "internal/sources/generate", "internal/sources/commitstatus"}, below: []string{"api", "vocabulary", "cores"},
		why: "the hub decides by them what a commit changes, and its child and tests call them as it does",
	},
	{
		name: "source child", packages: []string{"internal/sources/childprocess", "internal/sources/renderchild"}, below: []string{"vocabulary", "source cores"},
		why: "the hub and the command line run what renders as a process, and link none of its libraries by that",
	},
	{
		name: "source builders", packages: []string{"internal/sources/builders"}, below: []string{"vocabulary", "source cores", "source child"},
		why: "Helm and Kustomize read hostile content in a process of their own, which only the main of the hub links",
	},
	{
		name: "content signatures", packages: []string{"internal/sources/signature"}, below: []string{"vocabulary"},
		why: "whether a signature counts is decided by values alone",
	},
	{
		name: "OCI artifacts", packages: []string{"internal/ociartifact"},
		why: "how an artifact is read within bounds is the same whatever is in it",
	},
	{
		name: "source servers of tests", packages: []string{"internal/sources/chartstest", "internal/sources/cosigntest", "internal/sources/sshtest"},
		why: "tests of several modules start the same registry and git server, and push and sign the same charts",
	},
	{
		name: "source fetch", packages: []string{"internal/sources/fetch"}, below: []string{"vocabulary", "source cores", "source child", "address guard", "OCI artifacts", "content signatures"},
		why: "a child process reads hostile repositories by it, and must bring nothing of the hub along",
	},
	{
		name: "webhooks", packages: []string{"internal/sources/webhook"}, below: []string{"api", "vocabulary", "metric table", "connection fairness", "pace", "loop"},
		why: "strangers send to it: a request says which Repository to check, and nothing of its content goes further",
	},
	{
		name: "commit reports", packages: []string{"internal/sources/commitreport"}, below: []string{"api", "vocabulary", "loop", "source cores", "address guard"},
		why: "it sends tokens of users: what it sends, and where, is decided by values alone",
	},
	{
		name: "sources", packages: []string{"internal/sources"}, below: []string{"api", "vocabulary", "contents", "state", "loop", "source cores", "source fetch", "content signatures", "webhooks", "commit reports"},
		why: "it writes templates through the API, and knows nothing of what places and delivers them",
	},
	{
		name: "source sets", packages: []string{"internal/sources/sourcesets"}, below: []string{"api", "vocabulary", "state", "loop", "source cores", "source fetch", "sources"},
		why: "it makes Sources through the API, and reads Repositories in the checks that Sources have",
	},
	{
		name: "gate checks", packages: []string{"internal/gatechecks/..."}, below: []string{"api", "vocabulary", "cores", "state", "loop", "address guard"},
		why: "it asks servers of users, and what follows from their answers is decided by the placer and its core",
	},
	{
		name: "notification cores", packages: []string{"internal/notify/happening", "internal/notify/message"}, below: []string{"api", "vocabulary"},
		why: "which events are sent, and in which words, is decided by values alone, also for admission",
	},
	{
		name: "notifications", packages: []string{"internal/notify"}, below: []string{"metric table", "api", "vocabulary", "state", "loop", "pace", "notification cores", "address guard"},
		why: "it reads the tables and sends texts to servers of users; no component depends on what they answer",
	},
	{
		name: "address guard", packages: []string{"internal/addressguard"},
		why: "which addresses of users the hub dials is the same whatever is there",
	},
	{
		name: "dialects", packages: []string{"internal/dialect/..."}, below: []string{"api", "vocabulary", "cores", "loop"},
		why: "a dialect is a translation to Atoll's own objects: what acts on these knows nothing of it, and it nothing of them",
	},
	{
		name: "delivery", packages: []string{"internal/delivery/..."}, below: []string{"metric table", "api", "vocabulary", "wire", "carriage", "cores", "trust", "state", "watched", "pace", "quarantine", "connection fairness", "loop", "tracing"},
		why: "delivery sends the store's content, whichever component wrote it",
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
		name: "apiserver", packages: []string{"internal/apiserver/..."}, below: []string{"metric table", "api", "vocabulary", "trust", "node"},
		why: "the API server is what everything else stands on: it must start and stop without any of it",
	},
	{
		name: "admission", packages: []string{"internal/admission/..."}, below: []string{"api", "vocabulary", "cores", "source cores", "notification cores", "contents", "policy checks", "trust", "state", "apiserver", "live", "leader"},
		why: "it asks, by an interface, for the plan of a write; only the hub imports it",
	},
	{
		name: "undo", packages: []string{"internal/undo"}, below: []string{"metric table", "api", "vocabulary", "undo history", "watched", "live", "apiserver"},
		why: "it sees requests as admission does and keeps their former content, whichever component places it; only the hub imports it",
	},
	{
		name: "agent report", packages: []string{"internal/agent/report"}, below: []string{"api", "vocabulary", "cores"},
		why: "what agents report is made the same way by simulated ones",
	},
	{
		name: "agent", packages: []string{"internal/agent/..."}, below: []string{"metric table", "api", "vocabulary", "wire", "carriage", "cores", "trust", "agent report"},
		why: "the agent runs in members without the hub and stays small: nothing of the hub may come along",
	},
	{
		name: "preview server", packages: []string{"internal/preview/server"},
		below: []string{"api", "vocabulary", "values", "cores", "contents", "plan", "state", "explain", "reconcilers", "apiserver", "admission", "undo history"},
		why:   "previews are made by the functions that act, over copies of the tables: the hub only mounts them",
	},
	{
		name: "restore controller", packages: []string{"internal/restore/controller"},
		below: []string{"api", "vocabulary", "values", "wire", "cores", "state", "delivery"},
		why:   "a restored store is compared with what agents report; the result is a write like any other",
	},
	{
		name: "leader", packages: []string{"internal/leader"}, below: []string{"api"},
		why: "the choice of the leading hub depends on none of its decisions",
	},
	{
		name: "push", packages: []string{"internal/push"},
		below: []string{"metric table", "api", "vocabulary", "values", "wire", "cores", "trust", "reconcilers", "agent", "watched", "pace", "answer weight", "address guard"},
		why:   "the supervisor runs agents as they run in members; it reports on them and decides nothing else",
	},
	{
		name: "member proxy", packages: []string{"internal/memberproxy"}, below: []string{"metric table", "api", "vocabulary", "values", "trust", "carriage"},
		why: "it carries requests of people to members, and knows nothing of placed objects",
	},
	{
		name: "fleet view server", packages: []string{"internal/fleetview/server"},
		below: []string{"api", "vocabulary", "values", "cores", "trust", "live", "node", "member proxy", "apiserver", "answer weight"},
		why:   "it shows members' objects by requests through the member proxy, and writes nothing on the hub",
	},
	{
		name: "fleet view tables", packages: []string{"internal/fleetview/tables"},
		below: []string{"api", "vocabulary", "contents", "state", "reconcilers", "apiserver", "fleet view server"},
		why:   "it answers the fleet view from the hub's tables, and writes nothing",
	},
	{
		name: "gateway listener", packages: []string{"internal/delivery/listener"}, below: []string{"trust", "apiserver", "delivery", "peer"},
		why: "the port of agents and its certificates stand before the gateway does, and know no table",
	},
	{
		name: "connection fairness", packages: []string{"internal/delivery/fairness"}, below: []string{"pace"},
		why: "it divides turns and places by networks, and reads no connection",
	},
	{
		name: "bootstrap", packages: []string{"internal/apiserver/bootstrap"}, below: []string{"api", "vocabulary", "cores"},
		why: "what a hub installs in its own API follows from the shipped manifests alone",
	},
	{
		name: "CA status", packages: []string{"internal/trust/castatus"}, below: []string{"metric table", "api", "vocabulary", "trust", "apiserver"},
		why: "it reports on certificates from whatever table holds them, and only the hub imports it",
	},
	{
		name: "peer streams", packages: []string{"internal/peer/streams"}, below: []string{"cores", "peer", "delivery"},
		why: "it stands between one gateway and the other hubs, and decides nothing of content",
	},
	{
		name: "application tree", packages: []string{"internal/apptree"}, below: []string{"api", "vocabulary", "cores"},
		why: "the tree of an application is made of rows in the words of the rollout, by whichever endpoint asks",
	},
	{
		name: "application tree server", packages: []string{"internal/apptree/server"},
		below: []string{"api", "vocabulary", "values", "cores", "state", "apiserver", "application tree"},
		why:   "it reads the hub's tables and writes nothing; only the hub imports it",
	},
	{
		name: "fleet lists", packages: []string{"internal/fleetlist"}, below: []string{"api", "vocabulary"},
		why: "counts, pages and searches of the fleet are made of values, by whichever endpoint answers",
	},
	{
		name: "fleet list server", packages: []string{"internal/fleetlist/server"},
		below: []string{"api", "vocabulary", "values", "state", "apiserver", "pace", "connection fairness", "fleet lists"},
		why:   "it reads the hub's tables and writes nothing; only the hub imports it",
	},
	{
		name: "console issuer", packages: []string{"internal/console/issuer"}, below: []string{"values"},
		why: "it is a client of an OpenID Connect issuer, and imports nothing of the hub",
	},
	{
		name: "console codes", packages: []string{"internal/console/sharedcodes"},
		why: "it is a client of etcd, and imports nothing of the hub",
	},
	{
		name: "console", packages: []string{"internal/console"}, below: []string{"vocabulary", "pace", "connection fairness", "console issuer"},
		why: "it is a client of the hub's API: what it shows, kubectl with the same rights can show",
	},
	{
		name: "hub", packages: []string{"internal/hub/..."},
		below: []string{"application tree server", "fleet list server", "console", "console issuer", "console codes", "sources", "source sets", "webhooks", "gate checks", "notifications", "address guard", "gateway listener", "bootstrap", "CA status", "peer streams", "fleet view tables", "metric table", "state metrics", "loop", "preview server", "restore controller", "leader", "push", "member proxy", "fleet view server", "undo", "api", "vocabulary", "wire", "cores", "contents", "plan", "trust", "state", "explain", "reconcilers", "dialects", "carriage", "delivery", "peer", "apiserver", "admission", "agent", "live", "node", "watched", "quarantine", "tracing"},
		why:   "the composition root; it alone knows all parts",
	},
	{
		name: "logging", packages: []string{"internal/logging"},
		why: "every program of ours logs, so it brings nothing along",
	},
	{
		name: "profile", packages: []string{"internal/profile"},
		why: "every program of ours can be profiled, so it brings nothing along",
	},
	{
		name: "agent command", packages: []string{"internal/command/agent"}, below: []string{"vocabulary", "trust", "agent", "client", "logging"},
		why: "the command is a thin shell over the agent",
	},
	{
		name: "client", packages: []string{"internal/command/client", "internal/command/output", "internal/command/files", "internal/command/jointoken"}, below: []string{"api", "vocabulary"},
		why: "what the commands share: how to reach a cluster, how to print, and where a join token comes from",
	},
	{
		name: "pods", packages: []string{"internal/command/pods"}, below: []string{"vocabulary", "client"},
		why: "what commands share that read of containers and run in them: whose they are",
	},
	{
		name: "planning commands", packages: []string{"internal/command/crd", "internal/command/diff", "internal/command/drift", "internal/command/plan", "internal/command/schedule", "internal/command/rebalance", "internal/command/interpret"}, below: []string{"api", "vocabulary", "cores", "contents", "plan", "client", "OCI artifacts"},
		why: "they decide over files alone by the cores, and word what a hub answers; nothing of the hub comes along",
	},
	{
		name: "source command", packages: []string{"internal/command/source"}, below: []string{"api", "vocabulary", "cores", "contents", "plan", "client", "planning commands", "source cores", "source child"},
		why: "it renders a directory as the hub does, and shows the plan of it as the command for plans does",
	},
	{
		name: "undo command", packages: []string{"internal/command/undo"}, below: []string{"api", "vocabulary", "undo history", "plan", "client", "planning commands"},
		why: "it takes back what the hub kept, and shows the plan of it as the command for plans does",
	},
	{
		name: "commands", packages: []string{"internal/command/..."}, below: []string{"api", "vocabulary", "losses", "trust", "client", "pods", "deploy"},
		why: "the CLI is a client like any other: what it shows, the API must be able to tell",
	},
	{
		name: "deploy", packages: []string{"deploy/..."},
		why: "manifests, embedded",
	},
	{
		name: "moving commands", packages: []string{"internal/command/drain", "internal/command/migrate"}, below: []string{"api", "vocabulary", "plan", "client", "planning commands"},
		why: "they write one edit, and show the plan of it as the command for plans does",
	},
	{
		name: "root command", packages: []string{"internal/command"}, below: []string{"commands", "planning commands", "source command", "undo command", "moving commands", "agent command", "client", "profile"},
		why: "the root only mounts",
	},
	{
		name: "lab", packages: []string{"lab/..."}, below: []string{"api", "vocabulary", "wire", "carriage", "trust", "cores", "agent report"},
		why: "the lab drives the built binaries from outside, like a user would",
	},
	{
		name: "demo", packages: []string{"lab/demo"}, below: []string{"api", "vocabulary", "lab"},
		why: "the demo shows only what a user could do",
	},
	{
		name: "bench of cores", packages: []string{"lab/bench/coreperf"}, below: []string{"api", "vocabulary", "cores"},
		why: "a core is measured as its callers use it",
	},
	{
		name: "bench", packages: []string{"lab/bench/..."}, below: []string{"api", "vocabulary", "pace", "lab", "bench of cores"},
		why: "measured from outside, or it would measure something else than users get",
	},
	{
		name: "attack", packages: []string{"lab/attack/..."}, below: []string{"api", "vocabulary", "values", "wire", "carriage", "trust", "cores", "lab", "bench"},
		why: "attacks come from outside: they speak the protocol, and measure the hub as the benchmarks do",
	},
	{
		name: "tools", packages: []string{"tools/..."},
		why: "what is made of the tree is made by a module of its own: its libraries are none of the programs'",
	},
	{
		name: "main atoll", packages: []string{"cmd/atoll"}, below: []string{"root command", "values"},
		why: "main is a shell",
	},
	{
		name: "main hub", packages: []string{"cmd/atoll-hub/..."}, below: []string{"hub", "source fetch", "source child", "source builders", "member proxy", "apiserver", "vocabulary", "profile", "logging", "tracing"},
		why: "main is a shell",
	},
	{
		name: "main lab", packages: []string{"lab/cmd/atoll-lab/..."}, below: []string{"lab", "demo", "bench", "attack", "profile"},
		why: "main is a shell",
	},
}

// isWithin reports whether the directory is of the pattern.
func isWithin(pattern, dir string) bool {
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
			if isWithin(p, dir) && n > longest {
				found, longest = &layers[i], n
			}
		}
	}
	return found
}

func TestImportsRunOneWay(t *testing.T) {
	for _, s := range loadSources(t) {
		if s.test || isWithin("test/...", s.dir) || isWithin("lab/test/...", s.dir) {
			continue
		}
		own := layerOf(s.dir)
		if own == nil {
			t.Errorf("%s: package %s has no layer: give it one in test/house/imports_test.go", s.path, s.dir)
			continue
		}
		for _, p := range s.listImports() {
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
			case to.name == "runtime":
			case to.name == "values" && slices.Contains(own.below, "vocabulary"):
			case !slices.Contains(own.below, to.name):
				t.Errorf("%s: %s (%s) may not import %s (%s): %s", s.path, s.dir, own.name, dir, to.name, own.why)
			}
		}
	}
}

// stacked lists the cores that stand on other ones, which are lower.
var stacked = map[string][]string{
	// where an object has its replicas and pod templates
	"internal/userfields": {"internal/kinds"},
	// where replicas and images are in an object; values of a Cluster
	"internal/overrides": {"internal/userfields", "internal/kinds", "internal/kinds/script", "internal/expr", "internal/schedule"},
	// the events that it words
	"internal/notify/message": {"internal/notify/happening"},
	// what a Source reads of a tree
	"internal/sources/changes": {"internal/sources/render"},
	// what generators list of a tree
	"internal/sources/generate": {"internal/sources/render"},
	// how a process is run
	"internal/sources/renderchild": {"internal/sources/childprocess"},
	// the rules that it applies
	"internal/manifest": {"internal/overrides", "internal/userfields", "internal/kinds", "internal/kinds/script", "internal/schedule"},
	// the policies that apply to the items
	"internal/bundlecontent": {"internal/policymatch"},
	// expressions over a Cluster; where replicas and requests are in an object
	"internal/schedule": {"internal/expr", "internal/kinds"},
	// expressions over objects; kinds that run to completion
	"internal/assess": {"internal/expr", "internal/kinds"},
	// expressions over objects; what pods request and need
	"internal/kinds/script": {"internal/expr", "internal/kinds"},
	// the decision that it carries out; expressions of gates; times of changes; disruptions that an object allows
	"internal/rollout": {"internal/schedule", "internal/expr", "internal/changewindow", "internal/kinds"},
}

// allowSiblings lists the layers that are one part in several directories.
var allowSiblings = map[string]bool{
	"api": true, "values": true, "reason page": true, "trust": true, "state": true, "apiserver": true, "gateway": true, "agent": true, "lab": true, "demo": true, "hub": true, "bench": true,
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

// channelOfContext is where a core has a channel that is never sent to: the virtual machine of
// scripts checks a context before each step, and a core counts the steps there.
const channelOfContext = "internal/kinds/script/meter.go"

func TestCoresArePure(t *testing.T) {
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	for _, s := range loadSources(t) {
		if l := layerOf(s.dir); s.test || l == nil || (l.name != "cores" && l.name != "contents" && l.name != "vocabulary" && l.name != "values") {
			continue
		}
		forEachCall(s, "time", clock, func(at ast.Node, name string) {
			t.Errorf("%s: time.%s: a core takes the time as a value", s.positionOf(at), name)
		})
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: go statement: a core starts no goroutine", s.positionOf(n))
			case *ast.ChanType:
				if s.path == channelOfContext {
					return true
				}
				t.Errorf("%s: channel: a core is values in, values out", s.positionOf(n))
			}
			return true
		})
	}
}
