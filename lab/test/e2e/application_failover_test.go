package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// balancedService is a Service of type LoadBalancer, which is healthy in a member while its status has an address there. No controller of the member
// assigns one, because of its class.
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

// isIn checks that these members have it, and no others. The members are sorted.
func (s balancedService) isIn(members ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		in, err := s.listHolders(ctx)
		if err != nil || !slices.Equal(in, members) {
			return fmt.Errorf("it is in %v, want %v (%w)", in, members, err)
		}
		return nil
	}
}

// TestAnUnhealthyApplicationMoves checks that a copy that is unhealthy by its status in the member moves to another one after its toleration,
// that the old copy goes when the new one is healthy, and that it does not come back within its backoff, even if nothing else is left.
func TestAnUnhealthyApplicationMoves(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "unhealthy")
	s := balancedService{ns}
	policy := func(clusters, rest string) string {
		return fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Service, name: web}]
  groupBy: {type: Object}
  placement: {clusterAffinity: {clusterNames: [%s]}, maxClusters: 1, scores: [{name: ClusterAffinity, clusterAffinity: {clusterNames: [member3]}}]}
%s
---
`, clusters, rest)
	}
	const two, three = "member2, member3", "member1, member2, member3"
	// With movesOnce, the replacement does not count as failed before the test makes it healthy.
	const terms = "  failover: {application: {decisionConditions: {tolerationSeconds: 10}, purgeMode: Graciously, gracePeriodSeconds: 3600, backoffSeconds: 3600"
	const moves, movesOnce = terms + "}}", terms + ", maxAvoidedClusters: 1}}"
	apply(t, ns, policy(two, "")+`
apiVersion: v1
kind: Service
metadata: {name: web, namespace: $NS}
spec: {type: LoadBalancer, loadBalancerClass: example.com/by-hand, selector: {app: web}, ports: [{port: 80}]}
`)
	testwait.UntilNil(t, "delivery", s.setAddress("member3", "192.0.2.3"))
	ready := func(want string) func(context.Context) error {
		return func(context.Context) error {
			if out := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.clusters.summary}"); out != want {
				return fmt.Errorf("the Bundle is %s, want %s", out, want)
			}
			return nil
		}
	}
	testwait.UntilNil(t, "it is healthy", ready("1/1"))
	apply(t, ns, policy(two, movesOnce))
	testwait.UntilNil(t, "its health is stored", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "bundles", "-n", ns, "-o", "jsonpath={.items[*].status.failover.healthyRevision}"); out == "" {
			return errors.New("no revision is stored as healthy")
		}
		return nil
	})
	testwait.UntilNil(t, "it is in the preferred member alone", s.isIn("member3"))
	testwait.UntilNil(t, "it becomes unhealthy", s.setAddress("member3", ""))
	testwait.UntilNil(t, "a replacement comes", s.isIn("member2", "member3"))
	testwait.UntilNil(t, "explain names the failure", explanationMatches("service/web -n "+ns, `^ +member3 +the application failed here at `, `^  Clusters before the last failover: member3\.$`))
	testwait.UntilNil(t, "the replacement becomes healthy", s.setAddress("member2", "192.0.2.2"))
	testwait.UntilNil(t, "the old copy goes", s.isIn("member2"))
	if out := kubectlOutput(t, "", "get", "events", "-n", ns, "--field-selector=reason=ApplicationFailed", "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, "the application is unhealthy in member3 since ") {
		t.Errorf("the Events are %q", out)
	}

	apply(t, ns, policy(two, moves))
	testwait.UntilNil(t, "it becomes unhealthy again", s.setAddress("member2", ""))
	testwait.UntilNil(t, "the copy that nothing replaces stays", explanationMatches("service/web -n "+ns, `^ +member2 +unhealthy, and keeps its copy: no other cluster can take its place`, `the application left member3 for its health \(1 time\), and does not come back before `, `^  Clusters before the last failover: member2\.$`))
	testwait.UntilNil(t, "member3 is avoided", s.isIn("member2"))
	apply(t, ns, policy(three, moves))
	testwait.UntilNil(t, "another member is there", s.isIn("member1", "member2"))
	testwait.UntilNil(t, "it is healthy there", s.setAddress("member1", "192.0.2.1"))
	testwait.UntilNil(t, "it stays there alone", s.isIn("member1"))
	testwait.UntilNil(t, "it is done", ready("1/1"))
}
