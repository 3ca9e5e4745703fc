package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// balancedService is a Service of type LoadBalancer, which is healthy in a member while its status has an address there.
type balancedService struct{ namespace string }

// setAddress makes the copy in a member healthy, or unhealthy without an address.
func (s balancedService) setAddress(member, ip string) func(context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, member, "v1", "Service", s.namespace, "web")
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

// listHolders lists the members that have the Service.
func (s balancedService) listHolders(ctx context.Context) (out []string, err error) {
	for _, member := range []string{"member1", "member2", "member3"} {
		o, err := get(ctx, member, "v1", "Service", s.namespace, "web")
		if err != nil {
			return nil, err
		}
		if o != nil {
			out = append(out, member)
		}
	}
	return out, nil
}

// isIn checks that as many members have it, and these among them.
func (s balancedService) isIn(count int, members ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		in, err := s.listHolders(ctx)
		if err != nil || len(in) != count || slices.ContainsFunc(members, func(m string) bool { return !slices.Contains(in, m) }) {
			return fmt.Errorf("it is in %v, want %d with %v (%w)", in, count, members, err)
		}
		return nil
	}
}

// otherHolder returns the other of two members that have it.
func (s balancedService) otherHolder(t *testing.T, than string) string {
	t.Helper()
	in, err := s.listHolders(t.Context())
	in = slices.DeleteFunc(in, func(m string) bool { return m == than })
	if err != nil || len(in) != 1 {
		t.Fatalf("beside %s it is in %v (%v)", than, in, err)
	}
	return in[0]
}

// TestAnUnhealthyApplicationMoves checks that a copy that is unhealthy by its status in the member moves to another one after its toleration,
// that the old copy goes when the new one is healthy, and that it does not come back within its backoff, even if nothing else is left.
func TestAnUnhealthyApplicationMoves(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "unhealthy")
	s := balancedService{ns}
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
	testwait.UntilNil(t, "delivery", s.setAddress("member3", "192.0.2.3"))
	testwait.UntilNil(t, "its health is stored", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.clusters.summary} {.items[*].status.failover.healthyRevision}"); !strings.HasPrefix(out, "1/1 ") || len(out) < 6 {
			return fmt.Errorf("the Bundle is %s", out)
		}
		return nil
	})
	testwait.UntilNil(t, "it is in the preferred member alone", s.isIn(1, "member3"))
	testwait.UntilNil(t, "it becomes unhealthy", s.setAddress("member3", ""))
	testwait.UntilNil(t, "a replacement comes", s.isIn(2, "member3"))
	testwait.UntilNil(t, "explain names the failure", explanationMatches("service/web -n "+ns, `^ +member3 +the application failed here at `, `^  Clusters before the last failover: member3\.$`))
	first := s.otherHolder(t, "member3")
	testwait.UntilNil(t, "the replacement becomes healthy", s.setAddress(first, "192.0.2.1"))
	testwait.UntilNil(t, "the old copy goes", s.isIn(1, first))
	if out := kubectlOutput(t, "", "get", "events", "-n", ns, "--field-selector=reason=ApplicationFailed", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, "the application is unhealthy in member3 since ") {
		t.Errorf("the Events are %q", out)
	}

	// It fails in all members: each is avoided, and the last copy stays.
	testwait.UntilNil(t, "it becomes unhealthy again", s.setAddress(first, ""))
	testwait.UntilNil(t, "the next replacement comes", s.isIn(2, first))
	last := s.otherHolder(t, first)
	if last == "member3" {
		t.Fatal("it came back to member3 within its backoff")
	}
	testwait.UntilNil(t, "the copy that nothing replaces stays", explanationMatches("service/web -n "+ns, `^ +`+last+` +unhealthy, and keeps its copy: no other cluster can take its place`))
	testwait.UntilNil(t, "member3 is avoided", s.isIn(2, first, last))
	testwait.UntilNil(t, "it recovers", s.setAddress(last, "192.0.2.2"))
	testwait.UntilNil(t, "it stays there alone", s.isIn(1, last))
}
