package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
)

// leavingMember is a member of its own, its agent, and what of it stays when it leaves.
type leavingMember struct {
	t          *testing.T
	kubeconfig string
	name       string
	tokenInvitation
	log  func() string
	stop func()
}

func newLeaver(t *testing.T, name string) *leavingMember {
	t.Helper()
	l := &leavingMember{t: t, kubeconfig: startStranger(t), name: name}
	l.joinAs(name, createToken(t, "--auto-accept"))
	return l
}

// joinAs joins by a new agent process, which replaces any earlier one.
func (l *leavingMember) joinAs(name string, i tokenInvitation) {
	l.t.Helper()
	if l.stop != nil {
		l.stop()
	}
	l.name = name
	l.t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(l.t.Context()), l.t, "delete", "cluster", name, "--ignore-not-found")
	})
	l.tokenInvitation = i
	l.run()
}

// run its agent, by the token that it joined by.
func (l *leavingMember) run() {
	l.t.Helper()
	l.log, l.stop = start(l.t, "atoll", "agent", "--name", l.name, "--hub", l.Hub, "--ca-hash", l.CAHash, "--token", l.Token, "--kubeconfig", l.kubeconfig)
}

// admit accepts Bundles: a token alone admits a cluster without review.
func (l *leavingMember) admit() {
	l.t.Helper()
	testwait.UntilNil(l.t, l.name+" is in", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", l.name, "Ready"); !strings.HasPrefix(c, "True") {
			return errors.New("the output is: " + c)
		}
		return nil
	})
	patch(l.t, "atoll.dev/v1alpha1", "Cluster", "", l.name, `{"spec":{"taints":null}}`)
}

func (l *leavingMember) runKubectl(args ...string) string {
	l.t.Helper()
	return binaryOutput(l.t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", l.kubeconfig}, args...)...)
}

// runningPods returns the UIDs of the pods, when two are running.
func (l *leavingMember) runningPods(ns string) (uids string) {
	l.t.Helper()
	testwait.UntilNilWithin(l.t, 2*testwait.HangLimit, "two pods run in "+l.name, func(context.Context) error {
		out := l.runKubectl("get", "pods", "-n", ns, "-o", `jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.uid}{" "}{end}`)
		if uids = strings.TrimSpace(out); len(strings.Fields(uids)) != 2 {
			return fmt.Errorf("pods that run: %q", out)
		}
		return nil
	})
	return uids
}

// holdsDeployment checks the labels of the Deployment in the member.
func (l *leavingMember) holdsDeployment(ns string, want bool) func(context.Context) error {
	return func(context.Context) error {
		out := l.runKubectl("get", "deployment", "web", "-n", ns, "--show-managed-fields", "-o", "json")
		var d struct {
			Metadata struct {
				Labels        map[string]string
				Finalizers    []string
				ManagedFields []struct{ Manager, Operation string }
			}
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			return errors.New("the output is: " + out)
		}
		applies := false
		for _, f := range d.Metadata.ManagedFields {
			applies = applies || f.Manager == "atoll" && f.Operation == "Apply"
		}
		labelled := d.Metadata.Labels["atoll.dev/bundle-uid"] != "" || d.Metadata.Labels["atoll.dev/template-uid"] != ""
		if labelled != want || applies != want || len(d.Metadata.Finalizers) > 0 {
			return fmt.Errorf("labels %v, finalizers %v, managers %v", d.Metadata.Labels, d.Metadata.Finalizers, d.Metadata.ManagedFields)
		}
		return nil
	}
}

// serviceManifests is a Deployment of two pods with its ConfigMap, on whatever is labelled so.
const serviceManifests = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: ConfigMap, name: web}]
  placement: {clusterAffinity: {clusterNames: [$CLUSTERS]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS}
data: {colour: blue}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1"}]}
`

func checkGone(t *testing.T, cluster string) {
	t.Helper()
	testwait.UntilNil(t, cluster+" is gone from the hub", func(ctx context.Context) error {
		if o, err := get(ctx, "hub", "atoll.dev/v1alpha1", "Cluster", "", cluster); err != nil || o != nil {
			return fmt.Errorf("it is there (%v)", err)
		}
		return nil
	})
}

// Orphaned, a cluster keeps all that ran there without Atoll's marks. Joined again under
// another name it is adopted, and no pod restarts. Its agent is killed in between, and the
// removal continues.
func TestAClusterIsOrphanedAndComesBackUnderAnotherName(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "orphan")
	l := newLeaver(t, "orphan-1")
	l.admit()
	apply(t, ns, strings.Replace(serviceManifests, "$CLUSTERS", "orphan-1, orphan-2", 1))
	pods := l.runningPods(ns)
	testwait.UntilNil(t, "Atoll holds it", l.holdsDeployment(ns, true))

	l.stop()
	out := runCLI(t, "remove", "orphan-1", "--orphan", "--timeout", "3s")
	if !strings.Contains(out, "has not left the fleet within 3s") || !strings.Contains(out, "--force") {
		t.Errorf("what a cluster that is away waits for is not said:\n%s", out)
	}
	l.run()
	if out := runCLI(t, "remove", "orphan-1", "--timeout", "1m"); !strings.Contains(out, "cluster orphan-1 has left the fleet") {
		t.Fatalf("followed again:\n%s", out)
	}
	checkGone(t, "orphan-1")
	if err := l.holdsDeployment(ns, false)(t.Context()); err != nil {
		t.Errorf("Atoll's marks are left: %s", err)
	}
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}
	testwait.UntilNil(t, "its agent logs the removal", logSays(l.log, "this cluster was removed from the hub"))

	l.joinAs("orphan-2", createToken(t, "--auto-accept"))
	l.admit()
	testwait.UntilNil(t, "Atoll holds it again", l.holdsDeployment(ns, true))
	testwait.UntilNil(t, "and says so", wantPhases(t, ns, map[string]int{"Active": 1}))
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}
}

// Cleaned, a cluster loses what Atoll applied, after a confirmation, and nothing else.
func TestAClusterIsCleaned(t *testing.T) {
	t.Parallel()
	ns, shared := createNamespace(t, "clean"), createNamespace(t, "clean-shared")
	l := newLeaver(t, "clean-1")
	l.admit()
	apply(t, ns, strings.Replace(serviceManifests, "$CLUSTERS", "clean-1", 1))
	apply(t, shared, strings.Replace(serviceManifests, "$CLUSTERS", "clean-1", 1))
	l.runningPods(ns)
	l.runningPods(shared)
	l.runKubectl("create", "configmap", "foreign", "-n", shared, "--from-literal=a=b")

	if out := runCLI(t, "remove", "clean-1"); !strings.Contains(out, "--orphan") || !strings.Contains(out, "--clean") {
		t.Errorf("it is not asked what is to become of it:\n%s", out)
	}
	out := runCLI(t, "remove", "clean-1", "--clean")
	if !strings.Contains(out, "these 4 objects are removed") || !strings.Contains(out, "run it again with --yes") || !strings.Contains(out, ns+"/web") {
		t.Errorf("what would go is not listed:\n%s", out)
	}
	if o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", "clean-1"); err != nil || strings.Contains(fmt.Sprint(o.Object["spec"]), "removal") {
		t.Fatalf("it was begun without a confirmation: %v, %v", o, err)
	}
	// Stated by whatever else writes Clusters, it is held.
	pods := l.runningPods(ns)
	patch(t, "atoll.dev/v1alpha1", "Cluster", "", "clean-1", `{"spec":{"removal":{"mode":"Clean"}}}`)
	testwait.UntilNil(t, "it asks for a confirmation", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", "clean-1", "Removing"); !strings.Contains(c, "atoll confirm cluster/clean-1 --plan") {
			return errors.New("the output is: " + c)
		}
		return nil
	})
	if out := kubectlOutput(t, "", "patch", "cluster", "clean-1", "--type=merge", "-p", `{"spec":{"removal":{"confirm":"0123456789abcdef"}}}`); !strings.Contains(out, "another plan now") {
		t.Errorf("another plan was confirmed:\n%s", out)
	}
	if out := runCLI(t, "confirm", "cluster/clean-1"); !strings.Contains(out, ns+"/web: apps/Deployment/"+ns+"/web") || !strings.Contains(out, "release it with --plan") {
		t.Errorf("what waits is not listed:\n%s", out)
	}
	testwait.UntilNil(t, "an Event says so", func(context.Context) error {
		if out := kubectlOutput(t, "", "events", "--for", "cluster/clean-1", "-A"); !strings.Contains(out, "RemovalHeld") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	asksForExactlyThat(t, l, ns)
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}
	out = runCLI(t, "remove", "clean-1", "--clean", "--yes", "--timeout", "2m")
	if !strings.Contains(out, "cluster clean-1 has left the fleet") || !strings.Contains(out, "removed-clean-1") {
		t.Fatalf("cleaned:\n%s", out)
	}
	checkGone(t, "clean-1")
	if out := l.runKubectl("get", "namespace", ns); !strings.Contains(out, "NotFound") && !strings.Contains(out, "not found") {
		t.Errorf("the namespace that the agent made is there:\n%s", out)
	}
	if out := l.runKubectl("get", "deployment,configmap", "-n", shared, "-o", "name"); strings.Contains(out, "web") || !strings.Contains(out, "configmap/foreign") {
		t.Errorf("where others have something:\n%s", out)
	}
	record, err := get(t.Context(), "hub", "v1", "ConfigMap", "atoll-system", "removed-clean-1")
	if err != nil || record == nil || !strings.Contains(fmt.Sprint(record.Object["data"]), "Namespace "+shared+" is kept") {
		t.Errorf("what stays is not written down: %v, %v", record, err)
	}
}

// asksForExactlyThat: an edit of a present object arrives and keeps the plan; an additional
// object changes it, and so does another removal of the same.
func asksForExactlyThat(t *testing.T, l *leavingMember, ns string) {
	t.Helper()
	plan := func() string {
		o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", l.name)
		if err != nil || o == nil {
			t.Fatalf("no Cluster %s: %v", l.name, err)
		}
		plan, _, _ := unstructured.NestedString(o.Object, "status", "removal", "plan")
		return plan
	}
	asks := func(what string, than ...string) (now string) {
		t.Helper()
		testwait.UntilNil(t, what+" makes another plan", func(context.Context) error {
			if now = plan(); now == "" || slices.Contains(than, now) {
				return errors.New("the plan is " + now)
			}
			return nil
		})
		return now
	}
	confirms := func(plan string) {
		t.Helper()
		out := kubectlOutput(t, "", "patch", "cluster", l.name, "--type=merge", "-p", `{"spec":{"removal":{"mode":"Clean","confirm":"`+plan+`"}}}`)
		if !strings.Contains(out, "another plan now") {
			t.Errorf("a plan that is none any more was confirmed:\n%s", out)
		}
	}
	first := plan()
	kubectlOutput(t, "", "-n", ns, "patch", "configmap", "web", "--type=merge", "-p", `{"data":{"colour":"red"}}`)
	testwait.UntilNil(t, "an edit arrives", func(context.Context) error {
		if out := l.runKubectl("get", "configmap", "web", "-n", ns, "-o", "jsonpath={.data.colour}"); !strings.Contains(out, "red") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if now := plan(); now != first {
		t.Errorf("after an edit the plan is %s, was %s", now, first)
	}
	apply(t, ns, strings.NewReplacer("name: web", "name: more", "app: web", "app: more", "replicas: 2", "replicas: 0").Replace(serviceManifests[strings.LastIndex(serviceManifests, "apiVersion: apps"):]))
	second := asks("an object on top", first)
	confirms(first)
	if out := runCLI(t, "remove", l.name, "--cancel"); !strings.Contains(out, "stays") {
		t.Fatal(out)
	}
	confirms(second) // as git would again
	patch(t, "atoll.dev/v1alpha1", "Cluster", "", l.name, `{"spec":{"removal":{"mode":"Clean"}}}`)
	asks("another removal", first, second)
	confirms(second)
}

// Given up while disconnected, a cluster keeps all its content, and its agent learns it on
// its return. The content is recorded.
func TestADeadClusterIsGivenUpAndComesBack(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "dead")
	l := newLeaver(t, "dead-1")
	l.admit()
	apply(t, ns, strings.Replace(serviceManifests, "$CLUSTERS", "dead-1", 1))
	pods := l.runningPods(ns)
	l.stop()
	out := runCLI(t, "remove", "dead-1", "--force")
	if !strings.Contains(out, "cluster dead-1 is given up") || !strings.Contains(out, "Deployment.apps") {
		t.Fatalf("given up:\n%s", out)
	}
	checkGone(t, "dead-1")
	record, err := get(t.Context(), "hub", "v1", "ConfigMap", "atoll-system", "removed-dead-1")
	if err != nil || record == nil || !strings.Contains(fmt.Sprint(record.Object["data"]), "Deployment.apps "+ns+"/web") {
		t.Errorf("what is left behind is not written down: %v, %v", record, err)
	}
	l.run()
	testwait.UntilNil(t, "its agent logs the removal on its return", logSays(l.log, "this cluster was removed from the hub", "what runs in it stays"))
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}
	if err := l.holdsDeployment(ns, true)(t.Context()); err != nil {
		t.Errorf("its agent let go unasked: %s", err)
	}
}

// A removal that is taken back leaves all where it was.
func TestARemovalIsTakenBack(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "takenback")
	l := newLeaver(t, "back-1")
	l.admit()
	apply(t, ns, strings.Replace(serviceManifests, "$CLUSTERS", "back-1", 1))
	pods := l.runningPods(ns)
	l.stop()
	runCLI(t, "remove", "back-1", "--clean", "--yes", "--no-wait")
	testwait.UntilNil(t, "it says what it waits for", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", "back-1", "Removing"); !strings.Contains(c, "0 of 1 bundles are gone") {
			return errors.New("the output is: " + c)
		}
		return nil
	})
	if out := runCLI(t, "remove", "back-1", "--cancel"); !strings.Contains(out, "cluster back-1 stays") {
		t.Fatal(out)
	}
	testwait.UntilNil(t, "nothing is said of it any more", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", "back-1", "Removing"); c != "no condition Removing" {
			return errors.New("the output is: " + c)
		}
		return nil
	})
	testwait.UntilNil(t, "its row stays", wantPhases(t, ns, map[string]int{"Active": 1}))
	l.run()
	testwait.UntilNil(t, "its agent is back", logSays(l.log, "linked to the hub"))
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}
}

// A member goes on to another hub, which has the same templates under a policy of another name:
// it lets go of the first, and what both have in common runs on. So it does when it is removed from
// that one and comes back to the first, where another policy has them by now.
func TestAMemberGoesOnToAnotherHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "tohub")
	l := newLeaver(t, "first-1")
	l.admit()
	apply(t, ns, strings.Replace(serviceManifests, "$CLUSTERS", "first-1", 1))
	pods := l.runningPods(ns)

	dir := t.TempDir()
	_, _ = start(t, "atoll-hub", "--data-dir", dir, "--port", strconv.Itoa(freePort(t)), "--gateway-port", strconv.Itoa(freePort(t)))
	admin := filepath.Join(dir, "hub.kubeconfig")
	other := func(stdin string, args ...string) string {
		return binaryOutput(t, stdin, args[0], append(args[1:], "--kubeconfig", admin)...)
	}
	var i tokenInvitation
	testwait.UntilNilWithin(t, 3*testwait.HangLimit, "the other hub is there", func(context.Context) error {
		if _, err := os.Stat(admin); err != nil {
			return err
		}
		out := other("", "atoll", "token", "create", "--auto-accept", "-o", "json")
		if err := json.Unmarshal([]byte(out), &i); err != nil {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	text := strings.NewReplacer("metadata: {name: web, namespace: $NS}\nspec:\n  resourceSelectors", "metadata: {name: sea, namespace: "+ns+"}\nspec:\n  resourceSelectors", "$CLUSTERS", "second-1", "$NS", ns).Replace("apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}\n---" + serviceManifests)
	if out := other(text, "atoll-lab", "kubectl", "apply", "-f", "-"); strings.Contains(out, "rror") {
		t.Fatal(out)
	}
	l.stop()
	l.name, l.tokenInvitation = "second-1", i
	l.run()
	testwait.UntilNil(t, "it is in", logSays(l.log, "letting go of what another hub placed here", "linked to the hub"))
	other("", "atoll-lab", "kubectl", "patch", "cluster", "second-1", "--type", "merge", "-p", `{"spec":{"taints":null}}`)
	testwait.UntilNil(t, "the other hub holds it", func(ctx context.Context) error {
		if out := other("", "atoll", "get", "rows", "-n", ns); !strings.Contains(out, "Ready") || strings.Contains(out, "Conflict") {
			return errors.New("the output is: " + out)
		}
		return l.holdsDeployment(ns, true)(ctx)
	})
	if out := other("", "atoll", "get", "bundles", "-n", ns); !strings.Contains(out, "sea") {
		t.Errorf("the other hub's Bundle is another policy's:\n%s", out)
	}
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}

	if out := other("", "atoll", "remove", "second-1", "--orphan", "--timeout", "1m"); !strings.Contains(out, "cluster second-1 has left the fleet") {
		t.Fatalf("orphaned:\n%s", out)
	}
	kubectlOutput(t, "", "-n", ns, "delete", "propagationpolicy", "web")
	apply(t, ns, strings.NewReplacer("metadata: {name: web, namespace: $NS}\nspec:\n  resourceSelectors", "metadata: {name: land, namespace: $NS}\nspec:\n  resourceSelectors", "$CLUSTERS", "third-1").Replace(serviceManifests))
	l.joinAs("third-1", createToken(t, "--auto-accept"))
	l.admit()
	testwait.UntilNil(t, "the first hub holds it again", func(ctx context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns); !strings.Contains(out, "third-1") || !strings.Contains(out, "Ready") || strings.Contains(out, "Conflict") {
			return errors.New("the output is: " + out)
		}
		return l.holdsDeployment(ns, true)(ctx)
	})
	if now := l.runningPods(ns); now != pods {
		t.Errorf("pods are %s, were %s", now, pods)
	}
}

// Every accepted cluster is in the inventory that other tools read, and no other one.
func TestClustersAreInTheInventory(t *testing.T) {
	t.Parallel()
	profile := func(ctx context.Context, name string) string {
		o, err := get(ctx, "hub", "multicluster.x-k8s.io/v1alpha1", "ClusterProfile", "atoll-inventory", name)
		if err != nil || o == nil {
			return fmt.Sprintf("none (%v)", err)
		}
		text, err := json.Marshal(o.Object)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	testwait.UntilNil(t, "the members are published", func(ctx context.Context) error {
		for _, m := range memberNames {
			p := profile(ctx, m)
			for _, want := range []string{`"x-k8s.io/cluster-manager":"atoll"`, `"clusterManager":{"name":"atoll"}`, `"type":"ControlPlaneHealthy"`, `"kubernetes":"v`, "/apis/atoll.dev/v1alpha1/clusters/" + m + "/proxy"} {
				if !strings.Contains(p, want) {
					return fmt.Errorf("%s lacks %s: %s", m, want, p)
				}
			}
		}
		return nil
	})
	if p := profile(t.Context(), memberNames[0]); len(p) > 2560 { // of which the CA is most
		t.Errorf("a profile has %d bytes: %s", len(p), p)
	} else {
		t.Logf("a profile has %d bytes", len(p))
	}
	out := binaryOutput(t, "", "atoll-lab", "kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "get", "clusterprofiles", "-n", "atoll-inventory", "-l", "x-k8s.io/cluster-manager=atoll")
	if !strings.Contains(out, "member1") || !strings.Contains(out, "atoll") {
		t.Errorf("kubectl lists:\n%s", out)
	}
	apply(t, "profiled", `{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: profiled}, spec: {accepted: true, taints: [{key: away, effect: NoSchedule}]}}`)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "profiled", "--ignore-not-found")
	})
	testwait.UntilNil(t, "one that is accepted comes", func(ctx context.Context) error {
		if p := profile(ctx, "profiled"); !strings.Contains(p, `"displayName":"profiled"`) {
			return fmt.Errorf("its profile is: %s", p)
		}
		return nil
	})
	patch(t, "atoll.dev/v1alpha1", "Cluster", "", "profiled", `{"spec":{"accepted":false}}`)
	testwait.UntilNil(t, "and goes when it is denied", func(ctx context.Context) error {
		if p := profile(ctx, "profiled"); p != "none (<nil>)" {
			return fmt.Errorf("its profile is: %s", p)
		}
		return nil
	})
}
