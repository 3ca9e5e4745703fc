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

// TestAnUnhealthyApplicationMoves checks that a copy that is unhealthy by its status in the member moves to another one after its toleration,
// that the old copy goes when the new one is healthy, and that it does not come back within its backoff, even if nothing else is left.
func TestAnUnhealthyApplicationMoves(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "unhealthy")
	apply(t, ns, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: $NS}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Service, name: web}]
  groupBy: {type: Object}
  failover: {application: {decisionConditions: {tolerationSeconds: 10}, purgeMode: Graciously, gracePeriodSeconds: 3600, backoffSeconds: 3600}}
  placement:
    clusterAffinity: {clusterNames: [member1, member2, member3]}
    maxClusters: 1
    scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [member3]}}]
`)
	// setAddress makes the copy in a member healthy, or unhealthy without an address.
	setAddress := func(member, ip string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, member, "v1", "Service", ns, "web")
			if err != nil || o == nil {
				return fmt.Errorf("%s: no Service (%w)", member, err)
			}
			ingress := []any{}
			if ip != "" {
				ingress = append(ingress, map[string]any{"ip": ip})
			}
			if err := unstructured.SetNestedSlice(o.Object, ingress, "status", "loadBalancer", "ingress"); err != nil {
				return err
			}
			return sharedWorld.clients[member].Status().Update(ctx, o, client.FieldOwner("balancer"))
		}
	}
	holders := func(ctx context.Context) (out []string, err error) {
		for _, member := range []string{"member1", "member2", "member3"} {
			o, err := get(ctx, member, "v1", "Service", ns, "web")
			if err != nil {
				return nil, err
			}
			if o != nil {
				out = append(out, member)
			}
		}
		return out, nil
	}
	place := ""
	isAlone := func(ctx context.Context) error {
		in, err := holders(ctx)
		if err != nil || len(in) != 1 {
			return fmt.Errorf("it is in %v (%w)", in, err)
		}
		place = in[0]
		return nil
	}
	healthy := func(revision string) func(context.Context) error {
		return func(context.Context) error {
			if out := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.clusters.summary} {.items[*].status.failover.healthyRevision}"); !strings.HasPrefix(out, "1/1 ") || !strings.Contains(out, revision) {
				return fmt.Errorf("the Bundle is %s", out)
			}
			return nil
		}
	}

	testwait.UntilNil(t, "delivery", setAddress("member3", "192.0.2.3"))
	testwait.UntilNil(t, "it is healthy", healthy("-1-"))
	testwait.UntilNil(t, "it is in the preferred member alone", isAlone)
	if place != "member3" {
		t.Fatalf("it is in %s", place)
	}
	testwait.UntilNil(t, "it becomes unhealthy", setAddress("member3", ""))
	testwait.UntilNil(t, "a replacement comes", func(ctx context.Context) error {
		in, err := holders(ctx)
		if err != nil || len(in) != 2 || in[1] != "member3" {
			return fmt.Errorf("it is in %v (%w)", in, err)
		}
		place = in[0]
		return nil
	})
	testwait.UntilNil(t, "explain names the failure", explanationMatches("service/web -n "+ns, `^ +member3 +the application failed here at `, `^  Clusters before the last failover: member3\.$`))
	first := place
	testwait.UntilNil(t, "the replacement becomes healthy", setAddress(first, "192.0.2.1"))
	testwait.UntilNil(t, "the old copy goes", isAlone)
	if place != first {
		t.Fatalf("it went from %s to %s", first, place)
	}
	if out := kubectlOutput(t, "", "get", "events", "-n", ns, "--field-selector=reason=ApplicationFailed", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, "the application is unhealthy in member3 since ") {
		t.Errorf("the Events are %q", out)
	}

	// It fails in all members: each is avoided, and the last copy stays.
	testwait.UntilNil(t, "it becomes unhealthy again", setAddress(first, ""))
	testwait.UntilNil(t, "the last member has a copy", func(ctx context.Context) error {
		in, err := holders(ctx)
		if err != nil || len(in) != 2 {
			return fmt.Errorf("it is in %v (%w)", in, err)
		}
		if place = in[0]; place == first {
			place = in[1]
		}
		return nil
	})
	if place == "member3" {
		t.Fatal("it came back to member3 within its backoff")
	}
	last := place
	testwait.UntilNil(t, "the copy that nothing replaces stays", explanationMatches("service/web -n "+ns, `^ +`+last+` +unhealthy, and keeps its copy: no other cluster can take its place`))
	if in, err := holders(t.Context()); err != nil || len(in) != 2 || in[1] == "member3" {
		t.Errorf("it is in %v (%v)", in, err)
	}
	testwait.UntilNil(t, "it recovers", setAddress(last, "192.0.2.2"))
	testwait.UntilNil(t, "it stays there alone", isAlone)
	if place != last {
		t.Errorf("it is in %s, want %s", place, last)
	}
}
