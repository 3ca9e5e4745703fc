package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

const undoneTemplates = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}, {apiVersion: v1, kind: Secret, name: pass}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
---
apiVersion: v1
kind: Secret
metadata: {name: pass, namespace: $NS}
stringData: {password: first-password}
`

// outputHas returns a check that a command of kubectl on the hub prints a text.
func outputHas(t *testing.T, args, want string) func(context.Context) error {
	return func(context.Context) error {
		if out := kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", args); !strings.Contains(out, want) {
			return errors.New("kubectl " + args + " prints: " + out)
		}
		return nil
	}
}

// A person takes back an edit, the undo of it, and a deletion. Labels that came later stay, kubectl apply goes on
// as before, and a user without the right sees nothing. With undoWindow 0s nothing is kept.
func TestUndoTakesBackEditsAndDeletions(t *testing.T) {
	ns := createNamespace(t, "undo")
	manifests := strings.ReplaceAll(undoneTemplates, "$NS", ns)
	mustKubectl(t, manifests, "apply -f -")
	replicas := func(n int64) func(context.Context) error { return fieldIs("member1", ns, "web", "spec.replicas", n) }
	testwait.UntilNil(t, "the member has the workload", replicas(2))
	testwait.UntilNil(t, "the member has the Secret", inCluster("member1", "v1", "Secret", ns, "pass", true))

	mustKubectl(t, strings.ReplaceAll(manifests, "replicas: 2", "replicas: 5"), "apply -f -")
	mustKubectl(t, "", "label deployment web -n "+ns+" team=blue")
	testwait.UntilNil(t, "the edit arrives", replicas(5))
	list := runCLI(t, "undo", "-n", ns)
	expectOutput(t, "the list", list, "deployments.apps/web", "/spec/replicas", "/metadata/labels", "Edited")

	// The label is the latest change; the time before both edits takes both back.
	shown := runCLI(t, "undo", "deployment/web", "-n", ns)
	expectOutput(t, "the latest change", shown, "/metadata/labels", "Nothing is changed yet", "exit status 2")
	revision := ""
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasSuffix(f[0], "/web") && strings.Contains(line, "/spec/replicas") {
			revision = f[1]
		}
	}
	shown = runCLI(t, "undo", "deployment/web", "-n", ns, "--revision", revision)
	expectOutput(t, "the first edit", shown, "/spec/replicas: 5 -> 2", "member1", "exit status 2")
	expectOutput(t, "the undo", runCLI(t, "undo", "deployment/web", "-n", ns, "--revision", revision, "--yes"), "is as it was")
	testwait.UntilNil(t, "the edit is undone in the member", replicas(2))
	expectOutput(t, "the undo of the undo", runCLI(t, "undo", "deploy/web", "-n", ns, "-y"), "/spec/replicas: 2 -> 5", "is as it was")
	testwait.UntilNil(t, "the undo is undone", replicas(5))
	mustKubectl(t, "", "scale deployment web -n "+ns+" --replicas 7")
	testwait.UntilNil(t, "the scale arrives", replicas(7))
	expectOutput(t, "the undo of a scale", runCLI(t, "undo", "deploy/web", "-n", ns, "-y"), "/spec/replicas: 7 -> 5")
	mustKubectl(t, "", "label deployment web -n "+ns+" later=yes --overwrite")

	checkUndoneDeletion(t, ns, manifests)
	checkUndoneSecret(t, ns)

	patch(t, "atoll.dev/v1alpha1", "HubSettings", "", "hub", `{"spec":{"undoWindow":"0s"}}`)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "patch", "hubsettings", "hub", "--type=merge", "-p", `{"spec":{"undoWindow":null}}`)
	})
	testwait.UntilNil(t, "nothing is kept", outputHas(t, "get secrets -n atoll-system --field-selector type=atoll.dev/undo", "No resources found"))
	expectOutput(t, "the list without a window", runCLI(t, "undo", "-n", ns), "Undo is switched off")
}

// checkUndoneDeletion deletes the workload and its policy, and brings both back.
func checkUndoneDeletion(t *testing.T, ns, manifests string) {
	t.Helper()
	mustKubectl(t, "", "delete deployment web -n "+ns)
	testwait.UntilNil(t, "the workload is gone", inCluster("member1", "apps/v1", "Deployment", ns, "web", false))
	expectOutput(t, "the undo of a deletion", runCLI(t, "undo", "deployment/web", "-n", ns, "-y"), "would be created", "member1", "is created again")
	testwait.UntilNil(t, "the workload is back", fieldIs("member1", ns, "web", "spec.replicas", 5))
	hub := sharedWorld.lab.KubeconfigPath("hub")
	owners := kubectlAt(t, hub, "", "get deployment web -n "+ns+" --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}")
	expectOutput(t, "the owners", owners, "kubectl-client-side-apply", "kubectl-label")
	expectOutput(t, "the next apply", mustKubectl(t, strings.ReplaceAll(manifests, "replicas: 2", "replicas: 5"), "apply -f -"), "deployment.apps/web unchanged")
	expectOutput(t, "the undo of the creation", runCLI(t, "undo", "deployment/web", "-n", ns), "would be deleted", "exit status 2")

	mustKubectl(t, "", "delete propagationpolicy web -n "+ns)
	expectOutput(t, "the undo of a deleted policy", runCLI(t, "undo", "propagationpolicy/web", "-n", ns, "-y"), "is created again")
	testwait.UntilNil(t, "the policy is back", outputHas(t, "get propagationpolicy web -n "+ns+" -o jsonpath={.spec.placement.clusterAffinity.clusterNames}", "member1"))
}

// checkUndoneSecret edits a Secret: its values are shown to no one, and its changes to users that may get it.
func checkUndoneSecret(t *testing.T, ns string) {
	t.Helper()
	mustKubectl(t, "", `patch secret pass -n `+ns+` -p {"stringData":{"password":"second-password"}}`)
	shown := runCLI(t, "undo", "secret/pass", "-n", ns)
	expectOutput(t, "the Secret", shown, "/data/password: (not shown)")
	if strings.Contains(shown, "first") || strings.Contains(shown, "Zmlyc3") {
		t.Errorf("a value of a Secret is shown:\n%s", shown)
	}
	mustKubectl(t, "", "create role looks -n "+ns+" --verb=get --resource=deployments.apps")
	mustKubectl(t, "", "create rolebinding looks -n "+ns+" --role=looks --user=guest-"+ns)
	expectOutput(t, "a user that may not get Secrets", runAs(t, "guest-"+ns, "undo", "secret/pass", "-n", ns), "orbidden")
	seen := runAs(t, "guest-"+ns, "undo", "-n", ns)
	expectOutput(t, "the list of a guest", seen, "deployments.apps/web")
	if strings.Contains(seen, "secrets/pass") || strings.Contains(seen, "propagationpolicies") {
		t.Errorf("a guest sees changes of objects that it may not get:\n%s", seen)
	}
	expectOutput(t, "the write of a guest", runAs(t, "guest-"+ns, "undo", "deployment/web", "-n", ns, "-y"), "orbidden")
	if out := runAs(t, "stranger-"+ns, "undo", "-n", ns); strings.Contains(out, "/web") {
		t.Errorf("a stranger sees:\n%s", out)
	}
	expectOutput(t, "the undo", runCLI(t, "undo", "secret/pass", "-n", ns, "-y"), "is as it was")
	testwait.UntilNil(t, "the Secret is as it was", outputHas(t, "get secret pass -n "+ns+" -o jsonpath={.data.password}", "Zmlyc3QtcGFzc3dvcmQ="))
}
