package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/testwait"
)

// pearlDefinition is a kind of the test's own with one object of it, which takes its
// definition along.
const pearlDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pearls.$NS.example}
spec:
  group: $NS.example
  scope: Namespaced
  names: {kind: Pearl, plural: pearls, singular: pearl}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer}}}}
`

const onePearl = `
apiVersion: $NS.example/v1
kind: Pearl
metadata: {name: first, namespace: $NS}
spec: {size: 3}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: $NS.example/v1, kind: Pearl}]
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [member1]}}
`

// rowClusters returns the clusters that have a row of any Bundle in the namespace.
func rowClusters(ctx context.Context, ns string) (string, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(enginev1.GroupVersion.WithKind("TargetSliceList"))
	if err := hubClient().List(ctx, &list); err != nil {
		return "", err
	}
	var out []string
	for i := range list.Items {
		of, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "bundle", "namespace")
		name, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "bundle", "name")
		if of == ns && name != "" { // without a name they say where the namespace stays
			rows, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "rows")
			for _, l := range rowcodec.SplitLines(rows) {
				out = append(out, l.Cluster)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ","), nil
}

func rowsAre(ns, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		got, err := rowClusters(ctx, ns)
		if err != nil || got != want {
			return fmt.Errorf("rows in %s: %q (%v), want %q", ns, got, err, want)
		}
		return nil
	}
}

// uidIn returns the object's UID in a cluster; empty when it is not there.
func uidIn(t *testing.T, cluster, apiVersion, kind, ns, name string) string {
	t.Helper()
	o, err := get(t.Context(), cluster, apiVersion, kind, ns, name)
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		return ""
	}
	return string(o.GetUID())
}

func TestADefinitionTravelsAndIsMadeAgain(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "pearls")
	kind, crd := ns+".example/v1", "pearls."+ns+".example"
	definition := func(cluster string, want bool) func(ctx context.Context) error {
		return inCluster(cluster, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd, want)
	}
	apply(t, ns, pearlDefinition)
	testwait.UntilNil(t, "the hub serves the kind", func(ctx context.Context) error {
		for _, o := range decodeObjects(t, ns, onePearl) {
			if err := hubClient().Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")); err != nil {
				return err
			}
		}
		return nil
	})
	testwait.UntilNil(t, "delivery with the definition", allChecks(
		definition("member1", true), definition("member2", false),
		inCluster("member1", kind, "Pearl", ns, "first", true), rowsAre(ns, "member1"),
	))

	first := uidIn(t, "member1", kind, "Pearl", ns, "first")
	var o unstructured.Unstructured
	o.SetAPIVersion("apiextensions.k8s.io/v1")
	o.SetKind("CustomResourceDefinition")
	o.SetName(crd)
	if err := sharedWorld.clients["member1"].Delete(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "definition and object are made again", func(ctx context.Context) error {
		o, err := get(ctx, "member1", kind, "Pearl", ns, "first")
		if err != nil || o == nil || string(o.GetUID()) == first {
			return fmt.Errorf("not made again (%v)", err)
		}
		return nil
	})
	if err := allChecks(rowsAre(ns, "member1"), inCluster("hub", kind, "Pearl", ns, "first", true))(t.Context()); err != nil {
		t.Fatalf("what was deleted in a member counts as removed: %v", err)
	}

	placeOn(t, ns, "web", "member2")
	testwait.UntilNil(t, "the move", allChecks(
		inCluster("member2", kind, "Pearl", ns, "first", true), inCluster("member1", kind, "Pearl", ns, "first", false), rowsAre(ns, "member2"),
	))
	if err := definition("member1", true)(t.Context()); err != nil {
		t.Fatalf("a definition went as a dependency: %v", err)
	}
	remove(t, kind, "Pearl", ns, "first")
	testwait.UntilNil(t, "removal", allChecks(inCluster("hub", kind, "Pearl", ns, "first", false), inCluster("member2", kind, "Pearl", ns, "first", false)))
}

// A killed agent that starts again works at once: its own lease does not delay it.
func TestAKilledAgentWorksAtOnce(t *testing.T) {
	ns := createNamespace(t, "reborn")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", inCluster("member1", "v1", "ConfigMap", ns, "web", true))
	for range 3 {
		takeDown(t, "agent/member1")
		o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, "web")
		if err != nil || o == nil {
			t.Fatalf("member1 has no ConfigMap: %v", err)
		}
		if err := sharedWorld.clients["member1"].Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		bringBack(t, "agent/member1")
		// Its lease lasts 15 seconds; on an idle machine this takes less than one.
		testwait.UntilNilWithin(t, 12*time.Second, "the new agent heals", inCluster("member1", "v1", "ConfigMap", ns, "web", true))
		t.Logf("healed %s after the start", time.Since(begin).Round(time.Millisecond))
	}
}

// An agent's stored state may be deleted by hand: no object vanishes by it, and later
// removals by users still work.
func TestTheAgentsStateIsDeletedByHand(t *testing.T) {
	ns := createNamespace(t, "amnesia")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", fieldIs("hub", ns, "web", "status.availableReplicas", 2))
	before := uidIn(t, "member2", "apps/v1", "Deployment", ns, "web")
	takeDown(t, "agent/member2")
	forgetState(t, "member2")
	remove(t, "v1", "ConfigMap", ns, "web")
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":3}}`)
	bringBack(t, "agent/member2")
	testwait.UntilNil(t, "the agent goes on where it was", allChecks(
		fieldIs("member2", ns, "web", "status.availableReplicas", 3), inCluster("member2", "v1", "ConfigMap", ns, "web", false),
	))
	if after := uidIn(t, "member2", "apps/v1", "Deployment", ns, "web"); after != before {
		t.Fatalf("the Deployment is %s, and was %s", after, before)
	}

	takeDown(t, "agent/member2")
	forgetState(t, "member2")
	remove(t, "v1", "Namespace", "", ns)
	bringBack(t, "agent/member2")
	testwait.UntilNil(t, "nothing is left behind", inCluster("member2", "v1", "Namespace", "", ns, false))
}

// forgetState deletes the state of a member's agent, without its identity.
func forgetState(t *testing.T, member string) {
	t.Helper()
	var list corev1.SecretList
	if err := sharedWorld.clients[member].List(t.Context(), &list, client.InNamespace("atoll-system"), client.HasLabels{"atoll.dev/agent-state"}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == "atoll-agent-identity" {
			continue
		}
		if err := client.IgnoreNotFound(sharedWorld.clients[member].Delete(t.Context(), &list.Items[i])); err != nil {
			t.Fatal(err)
		}
	}
}

// One of two agents of a cluster works. The other takes over when that one dies.
func TestASecondAgentWaitsForTheFirst(t *testing.T) {
	ns := createNamespace(t, "twins")
	apply(t, ns, everywherePolicy+"---\n"+webDeployment)
	testwait.UntilNil(t, "delivery", inCluster("member3", "v1", "ConfigMap", ns, "web", true))
	first := leaseHolder(t, "member3")
	args := agentArgs(t, "member3")
	second := exec.CommandContext(t.Context(), args[0], args[1:]...)
	endWithTest(second)
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = second.Process.Kill()
		_ = second.Wait()
		if err := sharedWorld.lab.StartComponent(context.WithoutCancel(t.Context()), "agent/member3"); err != nil {
			t.Error(err)
		}
	})
	for n := range 3 {
		patch(t, "v1", "ConfigMap", ns, "web", fmt.Sprintf(`{"data":{"colour":"c%d"}}`, n))
		testwait.UntilNil(t, "edits arrive", colourIs("member3", ns, fmt.Sprintf("c%d", n)))
	}
	if now := leaseHolder(t, "member3"); now != first {
		t.Fatalf("%s works on the member, and %s did; the first one lives", now, first)
	}
	if err := sharedWorld.lab.KillComponent(t.Context(), "agent/member3"); err != nil {
		t.Fatal(err)
	}
	patch(t, "v1", "ConfigMap", ns, "web", `{"data":{"colour":"last"}}`)
	testwait.UntilNil(t, "the second one takes over", colourIs("member3", ns, "last"))
	if pid := "_" + strconv.Itoa(second.Process.Pid) + "_"; !strings.Contains(leaseHolder(t, "member3"), pid) {
		t.Fatalf("%s works on the member, not process %s", leaseHolder(t, "member3"), pid)
	}
}

func colourIs(cluster, ns, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, cluster, "v1", "ConfigMap", ns, "web")
		if err != nil || o == nil {
			return fmt.Errorf("%s has no ConfigMap (%v)", cluster, err)
		}
		if got, _, _ := unstructured.NestedString(o.Object, "data", "colour"); got != want {
			return fmt.Errorf("%s: colour is %s, want %s", cluster, got, want)
		}
		return nil
	}
}

// leaseHolder returns the holder of the lease of a member's agent.
func leaseHolder(t *testing.T, member string) string {
	t.Helper()
	o, err := get(t.Context(), member, "coordination.k8s.io/v1", "Lease", "atoll-system", "atoll-agent")
	if err != nil || o == nil {
		t.Fatalf("%s has no lease: %v", member, err)
	}
	holder, _, _ := unstructured.NestedString(o.Object, "spec", "holderIdentity")
	return holder
}

// agentArgs is the command line of the running agent of a member.
func agentArgs(t *testing.T, member string) []string {
	t.Helper()
	status, err := sharedWorld.lab.ReadStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.Components {
		if c.Name == "agent/"+member {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.PID))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		}
	}
	t.Fatalf("the lab has no agent of %s", member)
	return nil
}
