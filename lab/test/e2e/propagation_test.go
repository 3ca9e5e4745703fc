package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

const webDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example/web:1
        envFrom: [{configMapRef: {name: web}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS}
data: {colour: blue}
`

const everywherePolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}}
`

// patch merges JSON into an object on the hub.
func patch(t *testing.T, apiVersion, kind, ns, name, json string) {
	t.Helper()
	var o unstructured.Unstructured
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(ns)
	o.SetName(name)
	if err := hubClient().Patch(t.Context(), &o, client.RawPatch(types.MergePatchType, []byte(json))); err != nil {
		t.Fatalf("patch %s %s/%s: %v", kind, ns, name, err)
	}
}

// remove deletes an object on the hub.
func remove(t *testing.T, apiVersion, kind, ns, name string) {
	t.Helper()
	var o unstructured.Unstructured
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(ns)
	o.SetName(name)
	if err := hubClient().Delete(t.Context(), &o); err != nil {
		t.Fatalf("delete %s %s/%s: %v", kind, ns, name, err)
	}
}

func TestApplyReachesEveryMemberAndReportsBack(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "spine")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", allChecks(
		inCluster("member1", "apps/v1", "Deployment", ns, "web", true),
		inCluster("member2", "apps/v1", "Deployment", ns, "web", true),
		inCluster("member3", "apps/v1", "Deployment", ns, "web", true),
		inCluster("member3", "v1", "ConfigMap", ns, "web", true),
	))
	testwait.UntilNil(t, "status on the hub", allChecks(
		fieldIs("hub", ns, "web", "status.availableReplicas", 2),
		fieldIs("hub", ns, "web", "status.observedGeneration", 1),
	))

	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":3}}`)
	testwait.UntilNil(t, "scale", allChecks(
		fieldIs("member1", ns, "web", "status.availableReplicas", 3),
		fieldIs("hub", ns, "web", "status.availableReplicas", 3),
		fieldIs("hub", ns, "web", "status.observedGeneration", 2),
	))

	remove(t, "apps/v1", "Deployment", ns, "web")
	for _, c := range append([]string{"hub"}, memberNames...) {
		testwait.UntilNil(t, "removal", inCluster(c, "apps/v1", "Deployment", ns, "web", false))
	}
	testwait.UntilNil(t, "the dependency follows its last user", inCluster("member1", "v1", "ConfigMap", ns, "web", false))
	if o, err := get(t.Context(), "hub", "v1", "ConfigMap", ns, "web"); err != nil || o == nil {
		t.Fatalf("the hub's own ConfigMap was to stay: %v", err)
	}
}

func TestDividedSharesByWeight(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "divided")
	apply(t, ns, `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  propagateDeps: true
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      weightPreference:
        staticWeightList:
        - {targetCluster: {clusterNames: [member1]}, weight: 2}
        - {targetCluster: {clusterNames: [member2]}, weight: 1}
---`+webDeployment)
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":6}}`)
	testwait.UntilNil(t, "shares", allChecks(
		fieldIs("member1", ns, "web", "status.readyReplicas", 4),
		fieldIs("member2", ns, "web", "status.readyReplicas", 2),
		fieldIs("hub", ns, "web", "status.readyReplicas", 6),
	))
}

func TestMovingIsEditingOneAttribute(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "moving")
	apply(t, ns, webDeployment)
	patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
	testwait.UntilNil(t, "first place", fieldIs("hub", ns, "web", "status.availableReplicas", 2))

	least, stop := leastHealthy(t, ns)
	patch(t, "apps/v1", "Deployment", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member2"}}}`)
	testwait.UntilNil(t, "second place", allChecks(
		fieldIs("member2", ns, "web", "status.availableReplicas", 2),
		inCluster("member1", "apps/v1", "Deployment", ns, "web", false),
		inCluster("member1", "v1", "ConfigMap", ns, "web", false),
		inCluster("member2", "v1", "ConfigMap", ns, "web", true),
	))
	stop()
	if n := <-least; n < 2 {
		t.Fatalf("while moving there were but %d healthy replicas, 2 before", n)
	}
}

// leastHealthy samples the healthy replicas of Deployment web over all members until
// stop is called, and then gives the least.
func leastHealthy(t *testing.T, ns string) (least <-chan int64, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan int64, 1)
	go func() {
		low := int64(1 << 30)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				out <- low
				return
			case <-tick.C:
			}
			sum, whole := int64(0), true
			for _, m := range memberNames {
				o, err := get(ctx, m, "apps/v1", "Deployment", ns, "web")
				if whole = whole && err == nil; o != nil {
					n, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
					sum += n
				}
			}
			if whole {
				low = min(low, sum)
			}
		}
	}()
	return out, cancel
}

func TestOverrideInOneRegionOnly(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "override")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment+`
---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: us, namespace: $NS}
spec:
  overrideRules:
  - targetCluster: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [us]}]}}
    overriders: {imageOverrider: [{component: Registry, operator: replace, value: us.example}]}
`)
	image := func(cluster, want string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, cluster, "apps/v1", "Deployment", ns, "web")
			if err != nil || o == nil {
				return fmt.Errorf("%s: no Deployment (%v)", cluster, err)
			}
			cs, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if len(cs) != 1 || cs[0].(map[string]any)["image"] != want {
				return fmt.Errorf("%s: containers %v, want image %s", cluster, cs, want)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "images", allChecks(
		image("member1", "registry.example/web:1"), image("member2", "us.example/web:1"), image("member3", "registry.example/web:1"),
	))
	remove(t, "atoll.dev/v1alpha1", "OverridePolicy", ns, "us")
	testwait.UntilNil(t, "images without the policy", image("member2", "registry.example/web:1"))
}

func TestDeletingWhileAwayEndsWithTheNewObject(t *testing.T) {
	ns := createNamespace(t, "away")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", allChecks(fieldIs("hub", ns, "web", "status.availableReplicas", 2), fieldIs("member3", ns, "web", "status.availableReplicas", 2)))
	was, err := get(t.Context(), "member3", "apps/v1", "Deployment", ns, "web")
	if err != nil || was == nil {
		t.Fatalf("member3: %v", err)
	}
	if err := sharedWorld.lab.CutLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member3"); err != nil {
			t.Error(err)
		}
	})
	remove(t, "apps/v1", "Deployment", ns, "web")
	testwait.UntilNil(t, "the hub does not wait for a disconnected cluster", inCluster("hub", "apps/v1", "Deployment", ns, "web", false))
	if o, err := get(t.Context(), "member3", "apps/v1", "Deployment", ns, "web"); err != nil || o == nil {
		t.Fatalf("member3 lost its Deployment while it was cut off: %v", err)
	}
	apply(t, ns, webDeployment)
	if err := sharedWorld.lab.HealLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "exactly the new object", func(ctx context.Context) error {
		o, err := get(ctx, "member3", "apps/v1", "Deployment", ns, "web")
		switch {
		case err != nil || o == nil:
			return fmt.Errorf("member3 has no Deployment: %v", err)
		case o.GetUID() == was.GetUID():
			return errors.New("member3 still has the old one")
		}
		return nil
	})
}

func TestNamespaceDeletedOnTheHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "doomed")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", fieldIs("hub", ns, "web", "status.availableReplicas", 2))
	remove(t, "v1", "Namespace", "", ns)
	for _, c := range append([]string{"hub"}, memberNames...) {
		testwait.UntilNil(t, "namespace gone", inCluster(c, "v1", "Namespace", "", ns, false))
	}
}

func TestDriftIsCorrected(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "drift")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", inCluster("member1", "v1", "ConfigMap", ns, "web", true))
	o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(o.Object, "red", "data", "colour"); err != nil {
		t.Fatal(err)
	}
	if err := sharedWorld.clients["member1"].Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "an edit is undone", func(ctx context.Context) error {
		o, err := get(ctx, "member1", "v1", "ConfigMap", ns, "web")
		if err != nil || o == nil {
			return fmt.Errorf("no ConfigMap: %v", err)
		}
		if v, _, _ := unstructured.NestedString(o.Object, "data", "colour"); v != "blue" {
			return errors.New("colour is " + v)
		}
		return nil
	})
	if err := sharedWorld.clients["member1"].Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "a delete is undone", inCluster("member1", "v1", "ConfigMap", ns, "web", true))
}

func TestMembersHealThemselvesWithoutTheHub(t *testing.T) {
	ns := createNamespace(t, "hubless")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", inCluster("member1", "v1", "ConfigMap", ns, "web", true))
	takeDown(t, "hub")
	takeDown(t, "agent/member1")
	bringBack(t, "agent/member1")
	o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, "web")
	if err != nil || o == nil {
		t.Fatalf("member1 lost its ConfigMap with the hub: %v", err)
	}
	if err := sharedWorld.clients["member1"].Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "a restarted agent heals without the hub", inCluster("member1", "v1", "ConfigMap", ns, "web", true))
}
