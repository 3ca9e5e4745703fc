package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// clusterOn returns a check that a Cluster's removal status on a hub has the words; without
// words, that the Cluster is gone.
func clusterOn(s *sharedHub, name string, words ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		c := &unstructured.Unstructured{}
		c.SetAPIVersion("atoll.dev/v1alpha1")
		c.SetKind("Cluster")
		c.SetName(name)
		found, err := getIfExists(ctx, s.client, c)
		switch {
		case err != nil:
			return err
		case found == nil && len(words) == 0:
			return nil
		case found == nil:
			return errors.New("it is gone")
		}
		removal, _, _ := unstructured.NestedMap(found.Object, "status", "removal")
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
		said := ""
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == "Removing" {
				said = fmt.Sprint(m["reason"], ": ", m["message"])
			}
		}
		for _, w := range words {
			if !strings.Contains(said, w) {
				return fmt.Errorf("%s; %v", said, removal)
			}
		}
		if len(words) == 0 {
			return errors.New("it is there: " + said)
		}
		return nil
	}
}

// TestTheLeadingHubIsKilledWhileClustersLeave: one is cleaned and one is orphaned, by
// requests to the other hub. The leading hub is killed in the middle of both. The other
// leads, requires no new confirmation, and ends both.
func TestTheLeadingHubIsKilledWhileClustersLeave(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts hubs")
	}
	h := twoHubs(t)
	h.waitUntilLeading(t, h.a)
	cleaned, orphaned := h.at["member1"], h.at["member2"]
	for ns, member := range map[string]string{"cleaned": "member1", "orphaned": "member2"} {
		h.a.apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}\n---"+strings.Replace(serviceManifests, "$CLUSTERS", member, 1))
		testwait.UntilNilWithin(t, 2*testwait.HangLimit, "what is placed runs in "+member, twoPods(h.at[member], ns))
	}
	pods, err := podsOf(t.Context(), orphaned, "orphaned")
	if err != nil {
		t.Fatal(err)
	}
	// The administrator's finalizer keeps the one in the middle, and the other's agent is
	// stopped.
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "cleaned", Name: "web"}}
	finalizers := func(list string) {
		t.Helper()
		if err := cleaned.Patch(t.Context(), conf, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(`["lab.atoll.dev/stays"]`)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "cleaned", Name: "foreign"}}
	if err := cleaned.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	h.agents["member2"].sendSignal(t, syscall.SIGSTOP)
	runCommand(t, "atoll", "--kubeconfig", h.b.kubeconfig, "remove", "member1", "--clean", "--yes", "--no-wait")
	runCommand(t, "atoll", "--kubeconfig", h.b.kubeconfig, "remove", "member2", "--orphan", "--no-wait")
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "cleaned", Name: "web"}}
	testwait.UntilNil(t, "the one is in the middle", func(ctx context.Context) error {
		if err := cleaned.Get(ctx, client.ObjectKeyFromObject(web), &appsv1.Deployment{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("its Deployment is there (%v)", err)
		}
		return clusterOn(h.b, "member1", "WaitsForMember", "lab.atoll.dev/stays")(ctx)
	})
	testwait.UntilNil(t, "so is the other", clusterOn(h.b, "member2", "0 of 1 bundles are gone"))

	h.a.sendSignal(t, syscall.SIGKILL)
	testwait.UntilNil(t, "the other hub leads", func(ctx context.Context) error {
		if holder, err := h.b.leaseHolder(ctx); err != nil || !strings.HasPrefix(holder, h.b.gateway+"_") {
			return fmt.Errorf("held by %s (%v)", holder, err)
		}
		return nil
	})
	h.agents["member2"].sendSignal(t, syscall.SIGCONT)
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "the orphaned cluster has left", clusterOn(h.b, "member2"))
	if now, err := podsOf(t.Context(), orphaned, "orphaned"); err != nil || now != pods {
		t.Errorf("pods are %s (%v), were %s", now, err, pods)
	}
	var left appsv1.Deployment
	if err := orphaned.Get(t.Context(), client.ObjectKey{Namespace: "orphaned", Name: "web"}, &left); err != nil || left.Labels["atoll.dev/bundle-uid"] != "" || left.Labels["atoll.dev/template-uid"] != "" {
		t.Errorf("Atoll's marks are left: %v (%v)", left.Labels, err)
	}
	testwait.UntilNil(t, "the new leader says what the other waits for", clusterOn(h.b, "member1", "WaitsForMember", "lab.atoll.dev/stays"))
	finalizers("null")
	testwait.UntilNil(t, "the cleaned cluster has left", clusterOn(h.b, "member1"))
	for _, o := range []client.Object{web, conf} {
		if err := cleaned.Get(t.Context(), client.ObjectKeyFromObject(o), o); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%T %s is there (%v)", o, o.GetName(), err)
		}
	}
	if err := cleaned.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("what others made: %v", err)
	}
	var record corev1.ConfigMap
	if err := h.b.client.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: "removed-member1"}, &record); err != nil || !strings.Contains(record.Data["behind"], "Namespace cleaned is kept") {
		t.Errorf("what stays is not written down: %v (%v)", record.Data, err)
	}
}
