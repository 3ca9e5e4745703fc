package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// TestApplicationsTogetherAndApart checks that members of a group go to different clusters, that one without a place names
// another and takes a cluster that becomes free, and that members of another group go to one cluster.
func TestApplicationsTogetherAndApart(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "together-and-apart")
	deployment := func(name, label string) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: $NS, labels: {%[2]s}}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "registry.example/web:1"}]}
---
`, name, label)
	}
	policy := func(name, key, term string) string {
		return fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %[1]s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchExpressions: [{key: %[2]s, operator: Exists}]}}]
  groupBy: {type: Object}
  placement: {clusterAffinity: {clusterNames: [member2, member3]}, maxClusters: 1, workloadAffinity: {%[3]s: {groupByLabelKey: %[2]s}}}
---
`, name, key, term)
	}
	// placesOf returns the members that have a Deployment.
	placesOf := func(ctx context.Context, name string) (out []string, err error) {
		for _, member := range []string{"member2", "member3"} {
			o, err := get(ctx, member, "apps/v1", "Deployment", ns, name)
			if err != nil {
				return nil, err
			}
			if o != nil {
				out = append(out, member)
			}
		}
		return out, nil
	}
	// placesBecome waits until the Deployments have one member each, and returns these.
	placesBecome := func(names ...string) (places []string) {
		t.Helper()
		testwait.UntilNil(t, "each has a member", func(ctx context.Context) error {
			places = nil
			for _, name := range names {
				in, err := placesOf(ctx, name)
				if err != nil || len(in) != 1 {
					return fmt.Errorf("%s is in %v (%v)", name, in, err)
				}
				places = append(places, in[0])
			}
			return nil
		})
		return places
	}

	apply(t, ns, policy("apart", "tier", "antiAffinity")+policy("together", "stack", "affinity")+deployment("db-0", "tier: db")+deployment("db-1", "tier: db"))
	places := placesBecome("db-0", "db-1")
	if places[0] == places[1] {
		t.Fatalf("both are in %s", places[0])
	}
	apply(t, ns, deployment("db-2", "tier: db"))
	testwait.UntilNil(t, "the third one waits, and names another", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("atoll.dev/v1alpha1")
		list.SetKind("BundleList")
		if err := hubClient().List(ctx, list, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, b := range list.Items {
			reason, _, _ := unstructured.NestedString(b.Object, "status", "wait", "reason")
			waitsFor, _, _ := unstructured.NestedString(b.Object, "status", "waitsFor")
			if reason == "KeptApart" && strings.Contains(waitsFor, "kept apart from Deployment "+ns+"/db-") {
				return nil
			}
		}
		return fmt.Errorf("no Bundle waits for its group: %d Bundles", len(list.Items))
	})
	testwait.UntilNil(t, "explain names the other one", explanationMatches("deployment/db-2 -n "+ns, `kept apart from Deployment `+ns+`/db-[01], which runs here`))
	mustKubectl(t, "", "delete deployment db-0 -n "+ns)
	if now := placesBecome("db-1", "db-2"); now[0] != places[1] || now[1] != places[0] {
		t.Errorf("db-1 and db-2 are in %v, want %s and %s", now, places[1], places[0])
	}

	var text string
	names := []string{"s-0", "s-1", "s-2", "s-3"}
	for _, name := range names {
		text += deployment(name, "stack: shop")
	}
	apply(t, ns, text)
	for _, place := range placesBecome(names...) {
		if first := placesBecome(names[0])[0]; place != first {
			t.Errorf("a member of the group is in %s, the first in %s", place, first)
		}
	}
}
