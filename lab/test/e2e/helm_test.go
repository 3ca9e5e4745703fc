package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// helmChart is what `helm create` gives in small: values, a helper, hooks left out.
var helmChart = map[string]string{
	"Chart.yaml":  "{apiVersion: v2, name: shop, version: 1.2.3, appVersion: \"1\"}",
	"values.yaml": "{replicas: 2, colour: blue}",
	"templates/config.yaml": `
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, labels: {app.kubernetes.io/instance: {{ .Release.Name }}}}
data: {colour: {{ .Values.colour | quote }}}
`,
	"templates/workload.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, labels: {app.kubernetes.io/instance: {{ .Release.Name }}}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}, annotations: {colour: {{ .Values.colour }}}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: shop, image: "registry.example/shop:{{ .Chart.AppVersion }}", envFrom: [{configMapRef: {name: {{ .Release.Name }}}}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}, labels: {app.kubernetes.io/instance: {{ .Release.Name }}}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80, targetPort: 8080}]}
`,
}

// helmProgram is the upstream program, with nothing known of anything but a kubeconfig.
type helmProgram struct {
	t     *testing.T
	env   []string
	chart string
}

func newHelm(t *testing.T, kubeconfig string) helmProgram {
	t.Helper()
	if _, err := os.Stat(builtBinary("helm")); err != nil {
		t.Fatalf("this test drives upstream's helm: `make helm` builds it: %v", err)
	}
	h := helmProgram{t: t, chart: filepath.Join(t.TempDir(), "shop"), env: append(os.Environ(), "KUBECONFIG="+kubeconfig)}
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		h.env = append(h.env, "HELM_"+kind+"_HOME="+t.TempDir())
	}
	for name, text := range helmChart {
		path := filepath.Join(h.chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// run it, which has to succeed; the arguments are separated by blanks.
func (h helmProgram) run(args string) string {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), builtBinary("helm"), strings.Fields(args)...)
	cmd.Env = h.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("helm %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestHelmTakesTheFleetForOneCluster: Helm installs, upgrades, rolls back and removes on
// the hub, and waits for all clusters; its own records go to none.
func TestHelmTakesTheFleetForOneCluster(t *testing.T) {
	t.Parallel()
	const ns = "helmed"
	apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS, annotations: {atoll.dev/clusters: \"member1,member3\"}}")
	in := []string{"member1", "member3"}
	h := newHelm(t, sharedWorld.lab.KubeconfigPath("hub"))
	// Helm has waited: what it waited for is so now.
	has := func(what string, replicas int64, colour string) {
		t.Helper()
		for _, m := range in {
			if err := allChecks(
				fieldIs(m, ns, "shop", "status.availableReplicas", replicas), fieldIs(m, ns, "shop", "status.updatedReplicas", replicas),
				fieldIs(m, ns, "shop", "status.replicas", replicas), fieldShows([]string{m}, objectName{"v1", "ConfigMap", ns, "shop"}, "data.colour", colour),
			)(t.Context()); err != nil {
				t.Errorf("helm %s --wait returned although %s", what, err)
			}
		}
	}
	expectOutput(t, "install", h.run("install shop "+h.chart+" -n "+ns+" --wait --timeout 60s"), "STATUS: deployed")
	has("install", 2, "blue")
	h.run("upgrade shop " + h.chart + " -n " + ns + " --wait --timeout 60s --set replicas=3,colour=red")
	has("upgrade", 3, "red")
	expectOutput(t, "list", h.run("list -n "+ns), "shop-1.2.3", "deployed")
	h.run("rollback shop 1 -n " + ns + " --wait --timeout 60s")
	has("rollback", 2, "blue")
	expectOutput(t, "history", h.run("history shop -n "+ns), "superseded", "Rollback to 1")
	expectOutput(t, "what is kept on the hub", mustKubectl(t, "", "get secrets -o name -n "+ns), "secret/sh.helm.release.v1.shop.v3")
	for _, m := range in {
		if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath(m), "", "get secrets -o name -n "+ns); strings.Contains(out, "helm") {
			t.Errorf("%s has what Helm keeps for itself: %s", m, out)
		}
	}
	h.run("uninstall shop -n " + ns + " --wait --timeout 60s")
	// Helm itself takes an object whose state it has not read yet for a deleted one, so that a slow
	// machine can end its wait early.
	for _, o := range []objectName{{"apps/v1", "Deployment", ns, "shop"}, {"v1", "Service", ns, "shop"}, {"v1", "ConfigMap", ns, "shop"}} {
		testwait.UntilNil(t, o.kind+" deleted by helm uninstall",
			allChecks(existsIn(o.apiVersion, o.kind, ns, "shop"), inCluster("hub", o.apiVersion, o.kind, ns, "shop", false)))
	}
}

// TestHelmInAMemberThroughTheHub: by a context of `atoll kubeconfig --all`.
func TestHelmInAMemberThroughTheHub(t *testing.T) {
	t.Parallel()
	grantRole(t, "member2", "helmed-through", "--clusterrole cluster-admin --group atoll:masters")
	out, err := exec.CommandContext(t.Context(), builtBinary("atoll"), "kubeconfig", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "--all").Output()
	if err != nil {
		t.Fatalf("atoll kubeconfig --all: %v", err)
	}
	const ns = "helmed-through"
	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll-lab", "kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("member2"), "delete", "namespace", ns, "--wait=false")
	})
	h := newHelm(t, writeManifest(t, "all.kubeconfig", ns, string(out)))
	to := " --kube-context member2 -n " + ns
	expectOutput(t, "install", h.run("install shop "+h.chart+to+" --create-namespace --wait --timeout 60s"), "STATUS: deployed")
	if err := fieldIs("member2", ns, "shop", "status.availableReplicas", 2)(t.Context()); err != nil {
		t.Errorf("helm install --wait returned although %s", err)
	}
	h.run("upgrade shop " + h.chart + to + " --wait --timeout 60s --set replicas=1")
	if err := fieldIs("member2", ns, "shop", "status.replicas", 1)(t.Context()); err != nil {
		t.Errorf("helm upgrade --wait returned although %s", err)
	}
	expectOutput(t, "list", h.run("list"+to), "shop-1.2.3", "deployed")
	h.run("uninstall shop" + to + " --wait --timeout 60s")
	testwait.UntilNil(t, "Deployment deleted by helm uninstall", inCluster("member2", "apps/v1", "Deployment", ns, "shop", false))
}
