package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// needyDeployment is a Deployment that needs all kinds of dependencies.
const needyDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: $NAME, namespace: $NS, labels: {app: $NAME}}
spec:
  replicas: 1
  selector: {matchLabels: {app: $NAME}}
  template:
    metadata: {labels: {app: $NAME}}
    spec:
      serviceAccountName: shared
      volumes:
      - {name: conf, configMap: {name: shared}}
      - {name: data, persistentVolumeClaim: {claimName: shared}}
      containers:
      - name: web
        image: registry.example/web:1
        envFrom: [{secretRef: {name: shared}}]
`

const sharedObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: shared, namespace: $NS}
data: {colour: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: shared, namespace: $NS}
stringData: {password: hunter2}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shared, namespace: $NS}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared, namespace: $NS}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// dependenciesAre returns a check of which copies of what is shared a member has.
func dependenciesAre(cluster, ns string, config, volume bool) func(ctx context.Context) error {
	return allChecks(
		inCluster(cluster, "v1", "ConfigMap", ns, "shared", config),
		inCluster(cluster, "v1", "Secret", ns, "shared", config),
		inCluster(cluster, "v1", "ServiceAccount", ns, "shared", config),
		inCluster(cluster, "v1", "PersistentVolumeClaim", ns, "shared", volume),
	)
}

// objectUIDs returns the UIDs of the objects in a member, and of its pods.
func objectUIDs(ctx context.Context, t *testing.T, cluster, ns string, kinds ...string) string {
	t.Helper()
	out := ""
	for _, k := range append(kinds, "v1/Pod") {
		var list unstructured.UnstructuredList
		i := strings.LastIndex(k, "/")
		list.SetAPIVersion(k[:i])
		list.SetKind(k[i+1:] + "List")
		if err := sharedWorld.clients[cluster].List(ctx, &list, client.InNamespace(ns)); err != nil {
			t.Fatalf("%s: list %s: %v", cluster, k, err)
		}
		for _, o := range list.Items {
			if o.GetName() != "kube-root-ca.crt" && o.GetName() != "default" {
				out += fmt.Sprintf("%s/%s %s\n", o.GetKind(), o.GetName(), o.GetUID())
			}
		}
	}
	return out
}

var sharedKinds = []string{"apps/v1/Deployment", "v1/ConfigMap", "v1/Secret", "v1/ServiceAccount", "v1/PersistentVolumeClaim"}

func TestDependenciesAreSharedAndGoWithTheLastUser(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "shared")
	a, b := strings.ReplaceAll(needyDeployment, "$NAME", "a"), strings.ReplaceAll(needyDeployment, "$NAME", "b")
	policy := func(name, clusters string) string {
		return fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: %s}]
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [%s]}}
`, name, name, clusters)
	}
	apply(t, ns, policy("a", "member1, member2")+"---"+policy("b", "member2, member3")+"---"+a+"---"+b+"---"+sharedObjects)
	ready := func(m, name string) func(ctx context.Context) error {
		return fieldIs(m, ns, name, "status.availableReplicas", 1)
	}
	testwait.UntilNil(t, "both run, with what they need", allChecks(
		ready("member1", "a"), ready("member2", "a"), ready("member2", "b"), ready("member3", "b"),
		dependenciesAre("member1", ns, true, true), dependenciesAre("member2", ns, true, true), dependenciesAre("member3", ns, true, true),
	))
	patch(t, "v1", "ConfigMap", ns, "shared", `{"data":{"colour":"red"}}`)
	testwait.UntilNil(t, "an edit reaches all", allChecks(colourIn("member1", ns, "shared", "red"), colourIn("member2", ns, "shared", "red"), colourIn("member3", ns, "shared", "red")))

	before := objectUIDs(t.Context(), t, "member2", ns, sharedKinds[1:]...)
	remove(t, "apps/v1", "Deployment", ns, "a")
	testwait.UntilNil(t, "one user goes", allChecks(
		existsIn("apps/v1", "Deployment", ns, "a"),
		dependenciesAre("member1", ns, false, true), dependenciesAre("member2", ns, true, true), dependenciesAre("member3", ns, true, true),
	))
	after := objectUIDs(t.Context(), t, "member2", ns, sharedKinds[1:]...)
	for line := range strings.Lines(before) {
		if !strings.Contains(line, "/a-") && !strings.Contains(after, line) {
			t.Errorf("%s was replaced or deleted although it has a user", strings.TrimSpace(line))
		}
	}
	remove(t, "apps/v1", "Deployment", ns, "b")
	testwait.UntilNil(t, "the last user goes", allChecks(
		existsIn("apps/v1", "Deployment", ns, "b"),
		dependenciesAre("member2", ns, false, true), dependenciesAre("member3", ns, false, true), dependenciesAre("hub", ns, true, true),
		inCluster("member2", "v1", "Namespace", "", ns, true),
	))
}

func TestMovingBetweenBundlesRestartsNothing(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "handed")
	text := strings.ReplaceAll(needyDeployment, "$NAME", "web")
	apply(t, ns, text+"---"+sharedObjects+`---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: old, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
`)
	running := allChecks(fieldIs("member1", ns, "web", "status.availableReplicas", 1), fieldIs("member2", ns, "web", "status.availableReplicas", 1),
		dependenciesAre("member1", ns, true, true), dependenciesAre("member2", ns, true, true))
	testwait.UntilNil(t, "delivery", running)
	before := objectUIDs(t.Context(), t, "member1", ns, sharedKinds...) + objectUIDs(t.Context(), t, "member2", ns, sharedKinds...)

	// To a policy that preempts, then to an annotation, then back.
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: new, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  propagateDeps: true
  priority: 1
  preemption: Always
  placement: {clusterAffinity: {clusterNames: [member1, member2]}}
`)
	holds := func(bundle, image string) {
		t.Helper()
		testwait.UntilNil(t, bundle+" holds it", func(ctx context.Context) error {
			out, ready := runCLI(t, "get", "rows", "-n", ns), 0
			for line := range strings.Lines(out) {
				if strings.Contains(line, bundle) && strings.Contains(line, " Ready ") && strings.Contains(line, " 5/5 ") {
					ready++
				}
			}
			if ready != 2 {
				return errors.New("the output is: " + out)
			}
			return nil
		})
		patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"labels":{"by":"`+image+`"}}}`)
		testwait.UntilNil(t, "its edits arrive", func(ctx context.Context) error {
			for _, m := range []string{"member1", "member2"} {
				o, err := get(ctx, m, "apps/v1", "Deployment", ns, "web")
				if err != nil || o == nil || o.GetLabels()["by"] != image {
					return fmt.Errorf("%s: %v (%v)", m, o, err)
				}
			}
			return nil
		})
		if after := objectUIDs(t.Context(), t, "member1", ns, sharedKinds...) + objectUIDs(t.Context(), t, "member2", ns, sharedKinds...); after != before {
			t.Fatalf("the move replaced an object: before\n%safter\n%s", before, after)
		}
	}
	holds(" new ", "new")
	patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1,member2"}}}`)
	holds(" deployment-web-", "annotation")
	patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
	holds(" new ", "back")
}

// An edit that gives an object to another Bundle elsewhere is a move like any other:
// the old place goes when the new one is healthy, under the budget.
func TestMovingToAnotherBundleElsewhere(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "elsewhere")
	apply(t, ns, webDeployment+`---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [member1]}}
`)
	testwait.UntilNil(t, "first place", fieldIs("hub", ns, "web", "status.availableReplicas", 2))
	least, stop := leastHealthy(t, ns)
	patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member2"}}}`)
	testwait.UntilNil(t, "second place", allChecks(
		fieldIs("member2", ns, "web", "status.availableReplicas", 2),
		existsIn("apps/v1", "Deployment", ns, "web", "member2"),
		existsIn("v1", "ConfigMap", ns, "web", "member2"),
	))
	stop()
	if n := <-least; n < 2 {
		t.Errorf("while moving there were but %d healthy replicas, 2 before", n)
	}

	// If the new place does not become healthy, the old one stays.
	patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"nowhere-yet"}}}`)
	apply(t, ns, strings.Replace(settingsObject, "name: web", "name: later, annotations: {atoll.dev/clusters: member2}", 1))
	testwait.UntilNil(t, "a later object", colourIn("member2", ns, "later", "blue"))
	if err := existsIn("apps/v1", "Deployment", ns, "web", "member2")(t.Context()); err != nil {
		t.Fatalf("the old place went without a new one: %s", err)
	}
}

// Giving an object to a smaller Bundle takes it out of clusters as an edit of its
// placement does: the budget holds it.
func TestHandingOverIsUnderTheBudget(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "handed-budget")
	apply(t, ns, budgetedPolicy)
	three := existsIn("v1", "ConfigMap", ns, "web", "member1", "member2", "member3")
	testwait.UntilNil(t, "delivery", three)
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
	plan := heldPlan(t, "Bundle", ns, "web", "")
	if err := three(t.Context()); err != nil {
		t.Fatalf("what is held is gone: %s", err)
	}
	if out := runCLI(t, "confirm", "bundle/web", "-n", ns, "--plan", plan); !strings.Contains(out, "is released") {
		t.Fatalf("confirm: %s", out)
	}
	testwait.UntilNil(t, "what was confirmed goes", existsIn("v1", "ConfigMap", ns, "web", "member1"))
}
