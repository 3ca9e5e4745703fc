package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/session"
	"atoll.dev/atoll/internal/testwait"
)

// TestHubsShareTheMembersThatTheyPushTo: each runs the agent of its own member. When one is
// killed the other takes its member over, without a change of any condition, and returns it
// when that hub is back.
func TestHubsShareTheMembersThatTheyPushTo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts hubs")
	}
	h := hubsAndMembers(t)
	names := map[string]string{} // of Clusters, by member
	for i, member := range []string{"member1", "member2"} {
		for n := 0; names[member] == ""; n++ {
			if name := fmt.Sprintf("push-%d-%d", i, n); session.OrderHubs(name, h.doors)[0] == h.doors[i] {
				names[member] = name
			}
		}
		runCommand(t, "atoll", "join", names[member], "--push", "--accept", "--kubeconfig", h.lab.KubeconfigPath(member), "--hub-kubeconfig", h.b.kubeconfig, "--timeout", "90s")
	}
	worksAt := func(member, door string) {
		t.Helper()
		testwait.UntilNil(t, "the agent of "+member+" is that of the hub at "+door, func(ctx context.Context) error {
			var lease coordinationv1.Lease
			err := h.at[member].Get(ctx, client.ObjectKey{Namespace: "atoll-system", Name: "atoll-agent"}, &lease)
			if err != nil || lease.Spec.HolderIdentity == nil || !strings.Contains(*lease.Spec.HolderIdentity, "@"+door+"_") {
				return fmt.Errorf("held by %v (%v)", lease.Spec.HolderIdentity, err)
			}
			return nil
		})
	}
	edit := func(value string) {
		t.Helper()
		h.a.apply(t, "pushed", `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS, annotations: {atoll.dev/clusters: "*"}}
data: {colour: `+value+`}`)
		for member, c := range h.at {
			testwait.UntilNil(t, "an edit arrives in "+member, func(ctx context.Context) error {
				var got corev1.ConfigMap
				if err := c.Get(ctx, client.ObjectKey{Namespace: "pushed", Name: "web"}, &got); err != nil || got.Data["colour"] != value {
					return fmt.Errorf("%v (%v)", got.Data, err)
				}
				return nil
			})
		}
	}
	h.a.apply(t, "pushed", "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	worksAt("member1", h.doors[0])
	worksAt("member2", h.doors[1])
	edit("blue")
	var before string
	testwait.UntilNil(t, "it is ready", func(context.Context) error {
		if before = conditionTurns(t, h.a.client, names["member2"]); !strings.Contains(before, "ReadyTrue") {
			return fmt.Errorf("the conditions are:\n%s", before)
		}
		return nil
	})
	h.b.sendSignal(t, syscall.SIGKILL)
	worksAt("member2", h.doors[0])
	edit("red")
	if now := conditionTurns(t, h.a.client, names["member2"]); now != before {
		t.Errorf("conditions turned when another hub took over:\n%s\nbefore:\n%s", now, before)
	}
	h.b = h.startHub(t, "b", h.doors[1])
	worksAt("member2", h.doors[1])
	worksAt("member1", h.doors[0])
	edit("green")
	if now := conditionTurns(t, h.a.client, names["member2"]); now != before {
		t.Errorf("conditions turned when its hub came back:\n%s\nbefore:\n%s", now, before)
	}
}

// conditionTurns returns a Cluster's conditions with their times.
func conditionTurns(t *testing.T, hub client.Client, cluster string) string {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("atoll.dev/v1alpha1")
	o.SetKind("Cluster")
	if err := hub.Get(t.Context(), client.ObjectKey{Name: cluster}, o); err != nil {
		t.Fatal(err)
	}
	var out []string
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok {
			out = append(out, fmt.Sprint(m["type"], m["status"], m["reason"], m["lastTransitionTime"]))
		}
	}
	return strings.Join(out, "\n")
}
