package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// through gives a kubeconfig by which a member is reached through the hub.
func through(t *testing.T, member string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), member+".kubeconfig")
	out, err := exec.CommandContext(t.Context(), builtBinary("atoll"), "kubeconfig", "--kubeconfig", world.lab.Kubeconfig("hub"), "--cluster", member).Output()
	if err != nil {
		t.Fatalf("atoll kubeconfig: %v", err)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// at runs kubectl with a kubeconfig and gives all that it printed; arguments are
// separated by blanks.
func at(t *testing.T, kubeconfig, stdin, args string) string {
	t.Helper()
	return binary(t, stdin, "atoll-lab", append([]string{"kubectl", "--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
}

// expect what a command printed to have all of wants, and no failure unless one is wanted.
func expect(t *testing.T, what, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("%s does not say %q:\n%s", what, want, out)
		}
	}
}

// grant the admins of the hub a role in a member, while the test runs.
func grant(t *testing.T, member, name string, args string) {
	t.Helper()
	direct := world.lab.Kubeconfig(member)
	if out := at(t, direct, "", "create clusterrolebinding "+name+" "+args); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	afterwards(t, member, "delete clusterrolebinding "+name)
}

// TestAMemberIsReachedThroughTheHub: by a kubectl that knows of nothing, as who asks, and
// with what the member grants him, which is nothing at first.
func TestAMemberIsReachedThroughTheHub(t *testing.T) {
	t.Parallel()
	via := through(t, "member1")
	direct := world.lab.Kubeconfig("member1")
	expect(t, "an administrator to whom the member grants nothing", at(t, via, "", "get nodes"), "Forbidden", `User "atoll-admin" cannot list resource "nodes"`)

	grant(t, "member1", "reach-admins", "--clusterrole cluster-admin --group atoll:masters")
	if got, want := at(t, via, "", "get nodes -o name"), at(t, direct, "", "get nodes -o name"); got != want || !strings.Contains(got, "node/") {
		t.Errorf("nodes through the hub: %s\nand directly: %s", got, want)
	}
	expect(t, "whoami", at(t, via, "", "auth whoami"), "atoll-admin", "atoll:masters", "system:authenticated")

	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll-lab", "kubectl", "--kubeconfig", direct, "delete", "namespace", "reached", "--wait=false")
	})
	expect(t, "create", at(t, via, "", "create namespace reached"), "created")
	file := manifest(t, "web.yaml", "reached", web)
	expect(t, "diff", at(t, via, "", "diff -n reached -f "+file), "+  name: web")
	expect(t, "apply --server-side", at(t, via, "", "apply --server-side -n reached -f "+file), "serverside-applied")
	expect(t, "rollout status", at(t, via, "", "rollout status deploy/web -n reached --timeout 60s"), "successfully rolled out")
	expect(t, "wait", at(t, via, "", "wait --for=condition=Available deploy/web -n reached --timeout 60s"), "condition met")
	expect(t, "scale", at(t, via, "", "scale deploy/web --replicas 3 -n reached"), "scaled")
	expect(t, "events", at(t, via, "", "get events -n reached"), "ScalingReplicaSet")
	expect(t, "explain", at(t, via, "", "explain deployment.spec.replicas"), "integer")
	expect(t, "delete", at(t, via, "", "delete -n reached -f "+file+" --wait --timeout 60s"), "deleted")
	if out := at(t, direct, "", "get deploy -n reached"); !strings.Contains(out, "No resources found") {
		t.Errorf("what was deleted through the hub is there: %s", out)
	}
}

// watching has kubectl watch the ConfigMaps of the namespace default, and gives a check of
// what it has shown.
func watching(t *testing.T, via string) (sees func(name string) func(context.Context) string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "watched")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	watch := exec.Command(builtBinary("atoll-lab"), "kubectl", "--kubeconfig", via, "get", "configmaps", "-n", "default", "-w", "-o", "name")
	watch.Stdout, watch.Stderr = file, file
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = watch.Process.Kill() // it may have ended
		_ = watch.Wait()
	})
	return func(name string) func(context.Context) string {
		return func(context.Context) string {
			if seen := tail(out); !strings.Contains(seen, name) {
				return "the watch shows: " + seen
			}
			return ""
		}
	}
}

// TestWatchesThroughTheHub: what changes in a member is seen at once, and a watch ends when
// the agent goes.
func TestWatchesThroughTheHub(t *testing.T) {
	t.Parallel()
	via, direct := through(t, "member2"), world.lab.Kubeconfig("member2")
	grant(t, "member2", "reach-watchers", "--clusterrole view --user atoll-admin")
	sees := watching(t, via)
	eventually(t, converge, "the watch begins", sees("configmap/kube-root-ca.crt"))
	expect(t, "create", at(t, direct, "", "create configmap reach-watched -n default"), "created")
	afterwards(t, "member2", "delete configmap reach-watched -n default")
	eventually(t, converge, "the watch shows what is new", sees("configmap/reach-watched"))
}

// TestWhoMayReachAMember: the hub's RBAC says who may at all, for a cluster or its set,
// and the member's what he may; ServiceAccounts come under names of their own.
func TestWhoMayReachAMember(t *testing.T) {
	t.Parallel()
	via, other := through(t, "member3"), through(t, "member1")
	apply(t, "", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reach-one}
rules: [{apiGroups: [atoll.dev], resources: [clusters/proxy], resourceNames: [member3], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reach-one}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reach-one}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:serviceaccount:default:ci"}]
---
apiVersion: atoll.dev/v1alpha1
kind: ClusterSet
metadata: {name: reach-set}
spec: {clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {reach-set: "yes"}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reach-set}
rules: [{apiGroups: [atoll.dev], resources: [clustersets/proxy], resourceNames: [reach-set], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reach-set}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reach-set}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: tokyo-team}]
`)
	sh(t, "", "label cluster member3 reach-set=yes --overwrite")
	afterwards(t, "hub", "label cluster member3 reach-set-")
	grant(t, "member3", "reach-viewers", "--clusterrole view --user jane --group tokyo-team --user atoll:serviceaccount:default:ci")
	eventually(t, converge, "jane reaches the cluster that is hers", func(context.Context) string {
		if out := at(t, via, "", "get namespaces --as jane"); !strings.Contains(out, "kube-system") {
			return "the output is: " + out
		}
		return ""
	})
	const raw = "get --raw /api/v1/namespaces" // who may not at all cannot ask what is served
	expect(t, "jane, another cluster", at(t, other, "", raw+" --as jane"), "Forbidden", `cannot get resource "clusters/proxy"`)
	expect(t, "jane, a write", at(t, via, "", "create configmap x -n default --as jane"), "is forbidden", `cannot create resource "clusters/proxy"`)
	expect(t, "a ServiceAccount that reads", at(t, via, "", "get namespaces --as system:serviceaccount:default:ci"), "kube-system")
	expect(t, "a component's name, as an administrator", at(t, via, "", "get namespaces --as system:kube-scheduler --as-group system:masters"), `User "atoll:kube-scheduler" cannot list`)
	eventually(t, converge, "who is of a team, reads", func(context.Context) string { // once the hub knows that the cluster is in the set
		return missingIn(at(t, via, "", "get namespaces --as joe --as-group tokyo-team"), "kube-system")
	})
	expect(t, "who is of a team, writes", at(t, via, "", "create configmap x -n default --as joe --as-group tokyo-team"), `User "joe" cannot create resource "configmaps"`)
	expect(t, "who is of a team, elsewhere", at(t, other, "", raw+" --as joe --as-group tokyo-team"), "Forbidden", `cannot get resource "clusters/proxy"`)
	expect(t, "no such cluster", at(t, world.lab.Kubeconfig("hub"), "", "get --raw /apis/atoll.dev/v1alpha1/clusters/mars/proxy/api"), `"mars" not found`)
}

// TestAMemberThatIsAwayIsSaidToBe: and is reached again when it is back.
func TestAMemberThatIsAwayIsSaidToBe(t *testing.T) {
	via := through(t, "member2")
	grant(t, "member2", "reach-away", "--clusterrole view --user atoll-admin")
	expect(t, "before", at(t, via, "", "get namespaces"), "kube-system")
	if err := world.lab.Cut(t.Context(), "member2"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.lab.Heal(context.WithoutCancel(t.Context()), "member2") })
	eventually(t, converge, "who asks is told that it is away", func(context.Context) string {
		began := time.Now()
		out := at(t, via, "", "get namespaces --request-timeout 30s")
		if !strings.Contains(out, "cluster member2 cannot be reached: its agent is not connected to the hub") {
			return "the output is: " + out
		}
		if took := time.Since(began); took > 5*time.Second {
			return "it took " + took.String() + " to say so"
		}
		return ""
	})
	if err := world.lab.Heal(t.Context(), "member2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, converge, "it is reached again", func(context.Context) string {
		if out := at(t, via, "", "get namespaces"); !strings.Contains(out, "kube-system") {
			return "the output is: " + out
		}
		return ""
	})
}
