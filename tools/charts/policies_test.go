package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// memberLookup answers lookups of AgentPolicies and Secrets, and no others.
type memberLookup struct {
	t       *testing.T
	objects []runtime.Object
}

func (l memberLookup) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	policies := schema.GroupVersionResource{Group: "agent.atoll.dev", Version: "v1alpha1", Resource: "agentpolicies"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{policies: "AgentPolicyList", secrets: "SecretList"}, l.objects...)
	switch apiVersion + "/" + kind {
	case agentPolicyKind:
		return client.Resource(policies), false, nil
	case "v1/Secret":
		return client.Resource(secrets), true, nil
	}
	l.t.Errorf("a template looks %s %s up", apiVersion, kind)
	return client.Resource(policies), false, nil
}

const agentPolicyKind = "agent.atoll.dev/v1alpha1/AgentPolicy"

func newAgentPolicy(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "agent.atoll.dev/v1alpha1", "kind": "AgentPolicy", "metadata": map[string]any{"name": "agent"}, "spec": spec,
	}}
}

// findObjects returns the rendered objects of a kind.
func findObjects(t *testing.T, r Release, kind string) (out []*unstructured.Unstructured) {
	t.Helper()
	text, err := RenderManifests(r)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := ParseObjects(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range objects {
		if u.GetKind() == kind {
			out = append(out, u)
		}
	}
	return out
}

// TestPoliciesAreOnByDefault: both charts render a NetworkPolicy, and the agent's an
// AgentPolicy that denies kube-*. A value turns each off.
func TestPoliciesAreOnByDefault(t *testing.T) {
	for _, c := range []struct {
		chart, values, kind string
		want                int
	}{
		{"atoll-agent", "{}", "NetworkPolicy", 1},
		{"atoll-agent", "{networkPolicy: {create: false}}", "NetworkPolicy", 0},
		{"atoll-agent", "{}", "AgentPolicy", 1},
		{"atoll-agent", "{agentPolicy: {create: false}}", "AgentPolicy", 0},
		{"atoll-hub", "{}", "NetworkPolicy", 1},
		{"atoll-hub", "{networkPolicy: {create: false}}", "NetworkPolicy", 0},
	} {
		values := parseValues(t, c.values)
		namespace := "atoll"
		if c.chart == "atoll-agent" {
			namespace = "atoll-system"
			values["join"] = blankValues
		} else {
			values["gatewayAddress"] = "hub.example:6444"
		}
		got := findObjects(t, Release{Chart: filepath.Join(chartsDir, c.chart), Name: c.chart, Namespace: namespace, Values: values}, c.kind)
		if len(got) != c.want {
			t.Errorf("%s with %s renders %d of %s, not %d", c.chart, c.values, len(got), c.kind, c.want)
		}
		if c.kind == "AgentPolicy" && c.want == 1 {
			denied, _, err := unstructured.NestedStringSlice(got[0].Object, "spec", "namespaces", "denied")
			if err != nil || strings.Join(denied, " ") != "kube-*" {
				t.Errorf("the default AgentPolicy denies %v (%v)", denied, err)
			}
		}
	}
}

// TestAnExistingAgentPolicyIsLeftOut: a release renders no AgentPolicy where the member has
// one. It does not look for one where the kind is not served, because that fails in Helm.
func TestAnExistingAgentPolicyIsLeftOut(t *testing.T) {
	r := Release{
		Chart: filepath.Join(chartsDir, "atoll-agent"), Name: "atoll-agent", Namespace: "atoll-system",
		Values: map[string]any{"join": blankValues},
	}
	render := func(what string, want int, note string) {
		t.Helper()
		if got := findObjects(t, r, "AgentPolicy"); len(got) != want {
			t.Errorf("%s: %d AgentPolicies, not %d", what, len(got), want)
		}
		if notes, err := RenderNotes(r); err != nil || !strings.Contains(notes, note) {
			t.Errorf("%s: no %q (%v) in:\n%s", what, note, err, notes)
		}
	}
	own := newAgentPolicy(map[string]any{"clusterScoped": "Deny"})
	r.Cluster = memberLookup{t, []runtime.Object{own}}
	render("the kind is not served", 1, "The release writes an AgentPolicy")
	r.Served = []string{agentPolicyKind}
	render("the administrator's", 0, "stays unchanged")
	r.Cluster = memberLookup{t, nil}
	render("none exists", 1, "The release writes an AgentPolicy")
}

// TestHelmKeepsTheAgentPolicy: upstream's Helm writes the AgentPolicy with the definition in one
// installation. Neither an upgrade, nor a rollback, nor an uninstallation changes a policy that
// exists: an edited one, the administrator's, or one that the hub must not lose.
func TestHelmKeepsTheAgentPolicy(t *testing.T) {
	c := newCluster(t)
	i := &installation{t: t, bin: os.Getenv("ATOLL_BIN_DIR"), dir: t.TempDir()}
	if _, err := os.Stat(filepath.Join(i.bin, "helm")); err != nil {
		t.Fatalf("this test drives upstream's helm: `make helm` builds it: %v", err)
	}
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		t.Setenv("HELM_"+kind+"_HOME", t.TempDir())
	}
	denied := func() string {
		t.Helper()
		return i.runKubectl(c.kubeconfig, "", "get agentpolicy agent -o jsonpath={.spec.namespaces.denied}{.spec.removal}")
	}
	expect := func(when, want string) {
		t.Helper()
		if got := denied(); got != want {
			t.Errorf("%s the policy denies %s, not %s", when, got, want)
		}
	}
	const release = "atoll-agent -n atoll-system"
	chart := " " + filepath.Join(chartsDir, "atoll-agent")
	install := "install " + release + chart + " --create-namespace --set join.existingSecret=joining"
	i.runHelm(c.kubeconfig, install)
	expect("after the installation", `["kube-*"]Allow`)
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set logFormat=json")
	expect("after an upgrade", `["kube-*"]Allow`)

	i.runKubectl(c.kubeconfig, "", `patch agentpolicy agent --type merge -p {"spec":{"namespaces":{"denied":["kube-public"]}}}`)
	before := i.runKubectl(c.kubeconfig, "", "get agentpolicy agent -o jsonpath={.metadata.uid}/{.metadata.generation}")
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set agentPolicy.spec.removal=Deny")
	expect("after an upgrade of an edited one", `["kube-public"]Allow`)
	i.runHelm(c.kubeconfig, "rollback "+release+" 1")
	expect("after a rollback", `["kube-public"]Allow`)
	i.runHelm(c.kubeconfig, "uninstall "+release)
	// The member's controller of aggregated ClusterRoles writes by apply, and so can create a role again
	// that is deleted at the same moment.
	i.runKubectl(c.kubeconfig, "", "delete clusterrole atoll-agent --ignore-not-found")
	i.runHelm(c.kubeconfig, install)
	expect("after another installation", `["kube-public"]Allow`)
	if now := i.runKubectl(c.kubeconfig, "", "get agentpolicy agent -o jsonpath={.metadata.uid}/{.metadata.generation}"); now != before {
		t.Errorf("the policy was %s, and is %s", before, now)
	}

	i.runKubectl(c.kubeconfig, "", "delete agentpolicy agent")
	i.runHelm(c.kubeconfig, "upgrade "+release+chart+" --reuse-values --set agentPolicy.spec.namespaces.denied={kube-public,kube-node-lease}")
	expect("after an upgrade of a cluster without one", `["kube-public","kube-node-lease"]Allow`)
}

// TestJoinKeepsTheAgentPolicy: `atoll join` creates the AgentPolicy with the definition, before
// the agent. A repeated join does not change an edited one, and --policy=false creates none.
func TestJoinKeepsTheAgentPolicy(t *testing.T) {
	c := newCluster(t)
	i := &installation{t: t, bin: os.Getenv("ATOLL_BIN_DIR")}
	join := func(more ...string) string {
		t.Helper()
		token := "atoll1." + strings.Repeat("a", 10) + "." + strings.Repeat("b", 26)
		args := []string{"--kubeconfig", c.kubeconfig, "join", "tokyo-1", "--hub", "hub.example:6444", "--ca-hash", "sha256:" + zeroHash, "--token", token, "--timeout", "0"}
		return i.mustRun("", "atoll", append(args, more...)...)
	}
	get := func(what, path string) string {
		t.Helper()
		return i.runKubectl(c.kubeconfig, "", "get "+what+" --ignore-not-found -o jsonpath="+path)
	}
	if out := join("--policy=false"); strings.Contains(out, "AgentPolicy") || get("agentpolicies", "{.items[*].spec}") != "" {
		t.Errorf("--policy=false created %s and said:\n%s", get("agentpolicies", "{.items[*].spec}"), out)
	}
	i.runKubectl(c.kubeconfig, "", "delete deployment -n atoll-system atoll-agent")
	i.runKubectl(c.kubeconfig, "", "delete crd agentpolicies.agent.atoll.dev")
	const denied = "{.spec.namespaces.denied}"
	if out := join(); !strings.Contains(out, "AgentPolicy agent keeps the hub out") || get("agentpolicy/agent", denied) != `["kube-*"]` {
		t.Errorf("the policy denies %s, and the join said:\n%s", get("agentpolicy/agent", denied), out)
	}
	policy := get("agentpolicy/agent", "{.metadata.creationTimestamp}")
	if agent := get("deployment/atoll-agent -n atoll-system", "{.metadata.creationTimestamp}"); policy > agent {
		t.Errorf("the policy is of %s, and the agent of %s", policy, agent)
	}
	i.runKubectl(c.kubeconfig, "", `patch agentpolicy agent --type merge -p {"spec":{"namespaces":{"denied":["kube-public"]}}}`)
	if out := join(); !strings.Contains(out, "AgentPolicy agent exists, and stays unchanged") || get("agentpolicy/agent", denied) != `["kube-public"]` {
		t.Errorf("the edited policy denies %s, and the join said:\n%s", get("agentpolicy/agent", denied), out)
	}
}
