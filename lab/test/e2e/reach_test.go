package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
)

// proxiedKubeconfig returns a kubeconfig by which a member is reached through the hub.
func proxiedKubeconfig(t *testing.T, member string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), member+".kubeconfig")
	out, err := exec.CommandContext(t.Context(), builtBinary("atoll"), "kubeconfig", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "--cluster", member).Output()
	if err != nil {
		t.Fatalf("atoll kubeconfig: %v", err)
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectlAt runs kubectl with a kubeconfig and gives all that it printed; arguments are
// separated by blanks.
func kubectlAt(t *testing.T, kubeconfig, stdin, args string) string {
	t.Helper()
	return binaryOutput(t, stdin, "atoll-lab", append([]string{"kubectl", "--kubeconfig", kubeconfig}, strings.Fields(args)...)...)
}

// expectOutput checks that a command's output has all of wants, and no failure unless one
// is wanted.
func expectOutput(t *testing.T, what, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("%s does not contain %q:\n%s", what, want, out)
		}
	}
}

// grantRole grants the admins of the hub a role in a member, while the test runs.
func grantRole(t *testing.T, member, name string, args string) {
	t.Helper()
	direct := sharedWorld.lab.KubeconfigPath(member)
	if out := kubectlAt(t, direct, "", "create clusterrolebinding "+name+" "+args); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	kubectlAtEnd(t, member, "delete clusterrolebinding "+name)
}

// TestAMemberIsReachedThroughTheHub: by a plain kubectl, as the user, and with the member's
// grants for him, at first none.
func TestAMemberIsReachedThroughTheHub(t *testing.T) {
	t.Parallel()
	via := proxiedKubeconfig(t, "member1")
	direct := sharedWorld.lab.KubeconfigPath("member1")
	expectOutput(t, "an administrator without a grant of the member", kubectlAt(t, via, "", "get nodes"), "Forbidden", `User "atoll-admin" cannot list resource "nodes"`)

	grantRole(t, "member1", "reach-admins", "--clusterrole cluster-admin --group atoll:masters")
	if got, want := kubectlAt(t, via, "", "get nodes -o name"), kubectlAt(t, direct, "", "get nodes -o name"); got != want || !strings.Contains(got, "node/") {
		t.Errorf("nodes through the hub: %s\nand directly: %s", got, want)
	}
	expectOutput(t, "whoami", kubectlAt(t, via, "", "auth whoami"), "atoll-admin", "atoll:masters", "system:authenticated")

	t.Cleanup(func() {
		binaryFor(context.WithoutCancel(t.Context()), t, "", "atoll-lab", "kubectl", "--kubeconfig", direct, "delete", "namespace", "reached", "--wait=false")
	})
	expectOutput(t, "create", kubectlAt(t, via, "", "create namespace reached"), "created")
	file := writeManifest(t, "web.yaml", "reached", webDeployment)
	expectOutput(t, "diff", kubectlAt(t, via, "", "diff -n reached -f "+file), "+  name: web")
	expectOutput(t, "apply --server-side", kubectlAt(t, via, "", "apply --server-side -n reached -f "+file), "serverside-applied")
	expectOutput(t, "rollout status", kubectlAt(t, via, "", "rollout status deploy/web -n reached --timeout 60s"), "successfully rolled out")
	expectOutput(t, "wait", kubectlAt(t, via, "", "wait --for=condition=Available deploy/web -n reached --timeout 60s"), "condition met")
	expectOutput(t, "scale", kubectlAt(t, via, "", "scale deploy/web --replicas 3 -n reached"), "scaled")
	expectOutput(t, "events", kubectlAt(t, via, "", "get events -n reached"), "ScalingReplicaSet")
	expectOutput(t, "explain", kubectlAt(t, via, "", "explain deployment.spec.replicas"), "integer")
	expectOutput(t, "delete", kubectlAt(t, via, "", "delete -n reached -f "+file+" --wait --timeout 60s"), "deleted")
	if out := kubectlAt(t, direct, "", "get deploy -n reached"); !strings.Contains(out, "No resources found") {
		t.Errorf("what was deleted through the hub is there: %s", out)
	}
}

// watchConfigMaps has kubectl watch the ConfigMaps of the namespace default, and gives a check of
// what it has shown.
func watchConfigMaps(t *testing.T, via string) (sees func(name string) func(context.Context) error) {
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
	return func(name string) func(context.Context) error {
		return func(context.Context) error {
			if seen := fileTail(out); !strings.Contains(seen, name) {
				return errors.New("the watch shows: " + seen)
			}
			return nil
		}
	}
}

// TestWatchesThroughTheHub: a change in a member is seen at once, and a watch ends when the
// agent goes.
func TestWatchesThroughTheHub(t *testing.T) {
	t.Parallel()
	via, direct := proxiedKubeconfig(t, "member2"), sharedWorld.lab.KubeconfigPath("member2")
	grantRole(t, "member2", "reach-watchers", "--clusterrole view --user atoll-admin")
	sees := watchConfigMaps(t, via)
	testwait.UntilNil(t, "the watch begins", sees("configmap/kube-root-ca.crt"))
	expectOutput(t, "create", kubectlAt(t, direct, "", "create configmap reach-watched -n default"), "created")
	kubectlAtEnd(t, "member2", "delete configmap reach-watched -n default")
	testwait.UntilNil(t, "the watch shows what is new", sees("configmap/reach-watched"))
}

// TestTheRightToReachAMember: the hub's RBAC decides about the access, for a cluster or its
// set, and the member's about the operations; ServiceAccounts come under names of their
// own.
func TestTheRightToReachAMember(t *testing.T) {
	t.Parallel()
	via, other := proxiedKubeconfig(t, "member3"), proxiedKubeconfig(t, "member1")
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
	mustKubectl(t, "", "label cluster member3 reach-set=yes --overwrite")
	kubectlAtEnd(t, "hub", "label cluster member3 reach-set-")
	grantRole(t, "member3", "reach-viewers", "--clusterrole view --user jane --group tokyo-team --user atoll:serviceaccount:default:ci")
	testwait.UntilNil(t, "jane reaches the cluster that is hers", func(context.Context) error {
		if out := kubectlAt(t, via, "", "get namespaces --as jane"); !strings.Contains(out, "kube-system") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	const raw = "get --raw /api/v1/namespaces" // a user without access cannot list the served kinds
	expectOutput(t, "jane, another cluster", kubectlAt(t, other, "", raw+" --as jane"), "Forbidden", `cannot get resource "clusters/proxy"`)
	expectOutput(t, "jane, a write", kubectlAt(t, via, "", "create configmap x -n default --as jane"), "is forbidden", `cannot create resource "clusters/proxy"`)
	expectOutput(t, "a ServiceAccount that reads", kubectlAt(t, via, "", "get namespaces --as system:serviceaccount:default:ci"), "kube-system")
	expectOutput(t, "a component's name, as an administrator", kubectlAt(t, via, "", "get namespaces --as system:kube-scheduler --as-group system:masters"), `User "atoll:kube-scheduler" cannot list`)
	testwait.UntilNil(t, "a user of a team reads", func(context.Context) error { // when the hub sees the cluster in the set
		return outputContains(kubectlAt(t, via, "", "get namespaces --as joe --as-group tokyo-team"), "kube-system")
	})
	expectOutput(t, "a user of a team writes", kubectlAt(t, via, "", "create configmap x -n default --as joe --as-group tokyo-team"), `User "joe" cannot create resource "configmaps"`)
	expectOutput(t, "a user of a team, elsewhere", kubectlAt(t, other, "", raw+" --as joe --as-group tokyo-team"), "Forbidden", `cannot get resource "clusters/proxy"`)
	expectOutput(t, "no such cluster", kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "", "get --raw /apis/atoll.dev/v1alpha1/clusters/mars/proxy/api"), `"mars" not found`)
}

// TestADisconnectedMemberIsReported: and is reached again when it is back.
func TestADisconnectedMemberIsReported(t *testing.T) {
	via := proxiedKubeconfig(t, "member2")
	grantRole(t, "member2", "reach-away", "--clusterrole view --user atoll-admin")
	expectOutput(t, "before", kubectlAt(t, via, "", "get namespaces"), "kube-system")
	if err := sharedWorld.lab.CutLink(t.Context(), "member2"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member2") })
	testwait.UntilNil(t, "the answer is that it is disconnected", func(context.Context) error {
		began := time.Now()
		out := kubectlAt(t, via, "", "get namespaces --request-timeout 30s")
		if !strings.Contains(out, "cluster member2 cannot be reached: its agent is not connected to the hub") {
			return errors.New("the output is: " + out)
		}
		if took := time.Since(began); took > 5*time.Second {
			return errors.New("it took " + took.String() + " to say so")
		}
		return nil
	})
	if err := sharedWorld.lab.HealLink(t.Context(), "member2"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "it is reached again", func(context.Context) error {
		if out := kubectlAt(t, via, "", "get namespaces"); !strings.Contains(out, "kube-system") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}
