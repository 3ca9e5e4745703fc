package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vocabulary "atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/testwait"
)

// configMap returns a ConfigMap that users place by the annotation.
func configMap(ns, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("ConfigMap")
	o.SetNamespace(ns)
	o.SetName(name)
	return o
}

func annotatedConfigMap(name, clusters, value string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: $NS, annotations: {atoll.dev/clusters: %q}}
data: {value: %q}
`, name, clusters, value)
}

// membersHold checks what users want of ConfigMaps: by member and name, the value, or ""
// for one that must not be there.
func (h *hubPair) membersHold(ns string, want map[string]map[string]string) func(context.Context) error {
	return func(ctx context.Context) error {
		for member, values := range want {
			for name, value := range values {
				o, err := getIfExists(ctx, h.at[member], configMap(ns, name))
				if err != nil {
					return err
				}
				has := ""
				if o != nil {
					has, _, _ = unstructured.NestedString(o.Object, "data", "value")
				}
				if has != value {
					return fmt.Errorf("%s has %s=%q, want %q", member, name, has, value)
				}
			}
		}
		return nil
	}
}

// storedSlice is a slice of rows in the store.
type storedSlice struct {
	name     string
	texts    map[string]string // specs as they are written
	specs    map[string]vocabulary.RowSpec
	statuses map[string]vocabulary.RowStatus
}

// storedSlices returns the slices of all Bundles in the store.
func (s *sharedHub) storedSlices(ctx context.Context) (out []storedSlice, err error) {
	var list unstructured.UnstructuredList
	list.SetAPIVersion("engine.atoll.dev/v1alpha1")
	list.SetKind("TargetSliceList")
	if err := s.client.List(ctx, &list); err != nil {
		return nil, err
	}
	for _, o := range list.Items {
		one := storedSlice{o.GetName(), map[string]string{}, map[string]vocabulary.RowSpec{}, map[string]vocabulary.RowStatus{}}
		lines, _, _ := unstructured.NestedString(o.Object, "spec", "rows")
		words, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "words")
		for _, l := range rowcodec.SplitLines(lines) {
			one.texts[l.Cluster] = rowcodec.ExpandWords(l.Text, words)
			if one.specs[l.Cluster], err = rowcodec.DecodeSpec(l.Text, words...); err != nil {
				return nil, err
			}
		}
		lines, _, _ = unstructured.NestedString(o.Object, "status", "rows")
		words, _, _ = unstructured.NestedStringSlice(o.Object, "status", "words")
		for _, l := range rowcodec.SplitLines(lines) {
			if one.statuses[l.Cluster], err = rowcodec.DecodeStatus(l.Text, "", words...); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// storedRows returns the rows of all Bundles in the store: specs, and seqs of statuses.
func (s *sharedHub) storedRows(ctx context.Context) (specs map[string]string, seqs map[string]int64, err error) {
	list, err := s.storedSlices(ctx)
	if err != nil {
		return nil, nil, err
	}
	specs, seqs = map[string]string{}, map[string]int64{}
	for _, one := range list {
		for cluster, text := range one.texts {
			specs[one.name+" "+cluster] = text
		}
		for cluster, st := range one.statuses {
			seqs[one.name+" "+cluster] = st.Seq
		}
	}
	return specs, seqs, nil
}

func (s *sharedHub) leaseHolder(ctx context.Context) (string, error) {
	lease := &unstructured.Unstructured{}
	lease.SetAPIVersion("coordination.k8s.io/v1")
	lease.SetKind("Lease")
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "atoll-hub"}, lease); err != nil {
		return "", err
	}
	holder, _, err := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return holder, err
}

// waitUntilLeading waits until the hub holds the lease and serves agents.
func (h *hubPair) waitUntilLeading(t *testing.T, s *sharedHub) {
	t.Helper()
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, s.gateway+" leads", func(ctx context.Context) error {
		holder, err := s.leaseHolder(ctx)
		switch {
		case err != nil:
			return err
		case !strings.HasPrefix(holder, s.gateway+"_"):
			return errors.New("the lease is held by " + holder)
		}
		return nil
	})
	testwait.UntilNilWithin(t, 2*testwait.HangLimit, "agents are with "+s.gateway, func(ctx context.Context) error {
		for member := range h.at {
			c := &unstructured.Unstructured{}
			c.SetAPIVersion("atoll.dev/v1alpha1")
			c.SetKind("Cluster")
			if err := s.client.Get(ctx, client.ObjectKey{Name: member}, c); err != nil {
				return err
			}
			if ready := conditionOf(c, "Ready"); ready != "True" {
				return errors.New(member + " is Ready=" + ready)
			}
		}
		return nil
	})
}

func conditionOf(o *unstructured.Unstructured, kind string) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return fmt.Sprint(m["status"])
		}
	}
	return "missing"
}

// TestAStaleLeaderAndItsGatewayWriteNothing stops the process of the hub that leads
// for longer than its lease, lets another hub take over and users change things
// there, and lets the first go on.
func TestAStaleLeaderAndItsGatewayWriteNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts clusters")
	}
	h := twoHubs(t)
	const ns = "shared"
	h.a.apply(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}")
	for name, clusters := range map[string]string{"stays": "*", "gone": "*", "moves": "member1", "edited": "*", "again": "member1"} {
		h.a.apply(t, ns, annotatedConfigMap(name, clusters, "1"))
	}
	h.b.apply(t, ns, strings.Replace(webDeployment, "labels: {app: web}}\nspec", "labels: {app: web}, annotations: {atoll.dev/clusters: member1}}\nspec", 1))
	testwait.UntilNil(t, "delivery", allChecks(
		h.membersHold(ns, map[string]map[string]string{
			"member1": {"stays": "1", "gone": "1", "moves": "1", "edited": "1", "again": "1"},
			"member2": {"stays": "1", "gone": "1", "moves": "", "edited": "1", "again": ""},
		}),
		h.b.availableIs(ns, 2),
	))
	t.Run("a follower refuses what the leader does", func(t *testing.T) { h.followerRefuses(t, ns) })

	h.a.sendSignal(t, syscall.SIGSTOP)
	h.disturbReports(t, ns) // its gateway will find late reports in its sockets
	h.waitUntilLeading(t, h.b)
	for _, name := range []string{"gone", "again"} {
		if err := h.b.client.Delete(t.Context(), configMap(ns, name)); err != nil {
			t.Fatal(err)
		}
	}
	h.b.patch(t, configMap(ns, "moves"), `{"metadata":{"annotations":{"atoll.dev/clusters":"member2"}}}`)
	h.b.patch(t, configMap(ns, "edited"), `{"data":{"value":"2"}}`)
	h.b.apply(t, ns, annotatedConfigMap("new", "member2", "1"))
	testwait.UntilNil(t, "the old object is gone", func(ctx context.Context) error {
		if o, err := getIfExists(ctx, h.b.client, configMap(ns, "again")); err != nil || o != nil {
			return fmt.Errorf("it is still there (%v)", err)
		}
		return nil
	})
	h.b.apply(t, ns, annotatedConfigMap("again", "member2", "3"))
	now := map[string]map[string]string{
		"member1": {"stays": "1", "gone": "", "moves": "", "edited": "2", "again": "", "new": ""},
		"member2": {"stays": "1", "gone": "", "moves": "1", "edited": "2", "again": "3", "new": "1"},
	}
	testwait.UntilNil(t, "the second hub's orders", allChecks(h.membersHold(ns, now), h.b.availableIs(ns, 2)))
	h.waitUntilSettled(t)
	specs, seqs, err := h.b.storedRows(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	h.a.sendSignal(t, syscall.SIGCONT)
	if code := h.a.waitExit(t); code != 1 {
		t.Errorf("the stale leader ended with exit code %d, want 1", code)
	}
	h.a.waitForLog(t, "this hub lost its lease kube-system/atoll-hub")
	h.checkUnchanged(t, ns, now, specs, seqs)

	// It ends with the whole test, not with the part that starts it.
	h.a = h.startHub(t, "a", h.doors[0])
	t.Run("it comes back as a follower", func(t *testing.T) {
		h.a.awaitReady(t)
		if holder, err := h.b.leaseHolder(t.Context()); err != nil || !strings.HasPrefix(holder, h.b.gateway+"_") {
			t.Errorf("the lease is held by %q: %v", holder, err)
		}
		h.a.patch(t, configMap(ns, "edited"), `{"data":{"value":"4"}}`)
		now["member1"]["edited"], now["member2"]["edited"] = "4", "4"
		testwait.UntilNil(t, "what users write through a follower", h.membersHold(ns, now))
	})
	t.Run("a leader that stops hands over", func(t *testing.T) {
		h.b.sendSignal(t, syscall.SIGTERM)
		if code := h.b.waitExit(t); code != 0 {
			t.Errorf("the leader ended with exit code %d", code)
		}
		h.waitUntilLeading(t, h.a)
		h.a.patch(t, configMap(ns, "edited"), `{"data":{"value":"5"}}`)
		now["member1"]["edited"], now["member2"]["edited"] = "5", "5"
		testwait.UntilNil(t, "the first hub's orders", allChecks(h.membersHold(ns, now), h.a.availableIs(ns, 2)))
	})
	if raw, err := os.ReadFile(h.a.log); err != nil || strings.Contains(string(raw), "set back") {
		t.Errorf("taking turns looks like a restore: %v", err)
	}
}

// availableIs checks the status of Deployment web on the hub.
func (s *sharedHub) availableIs(ns string, want int64) func(context.Context) error {
	return func(ctx context.Context) error {
		d := configMap(ns, "web")
		d.SetAPIVersion("apps/v1")
		d.SetKind("Deployment")
		o, err := getIfExists(ctx, s.client, d)
		if err != nil || o == nil {
			return fmt.Errorf("no Deployment: %v", err)
		}
		if n, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas"); n != want {
			return fmt.Errorf("%d replicas are available, want %d", n, want)
		}
		return nil
	}
}

// followerRefuses: a hub that does not lead also refuses and defaults what depends on the
// placement.
func (h *hubPair) followerRefuses(t *testing.T, ns string) {
	o := configMap(ns, "finalized")
	o.SetAnnotations(map[string]string{"atoll.dev/clusters": "member1"})
	if err := h.b.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return strings.HasPrefix(f, "atoll.dev/") }) {
		t.Errorf("what was made through a follower has finalizers %v", o.GetFinalizers())
	}
	h.b.patch(t, configMap(ns, "stays"), `{"metadata":{"labels":{"atoll.dev/deletion-protected":"true"}}}`)
	namespace := configMap("", ns)
	namespace.SetKind("Namespace")
	for name, object := range map[string]*unstructured.Unstructured{"a protected object": configMap(ns, "stays"), "its namespace": namespace} {
		err := h.b.client.Delete(t.Context(), object, client.DryRunAll)
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("a follower lets users delete %s: %v", name, err)
		}
	}
	h.b.patch(t, configMap(ns, "stays"), `{"metadata":{"labels":{"atoll.dev/deletion-protected":null}}}`)
}

// disturbReports makes agents report while the hub that they are linked to stands still.
func (h *hubPair) disturbReports(t *testing.T, ns string) {
	t.Helper()
	pod := &unstructured.Unstructured{}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	if err := h.at["member1"].DeleteAllOf(t.Context(), pod, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if err := h.at["member1"].Delete(t.Context(), configMap(ns, "stays")); err != nil {
		t.Fatal(err)
	}
}

// waitUntilSettled waits until the rows have been the same for a while.
func (h *hubPair) waitUntilSettled(t *testing.T) {
	t.Helper()
	var last string
	same := time.Now()
	testwait.UntilNil(t, "rows come to rest", func(ctx context.Context) error {
		specs, seqs, err := h.b.storedRows(ctx)
		if err != nil {
			return err
		}
		if now := fmt.Sprint(specs, seqs); now != last {
			last, same = now, time.Now()
		}
		if time.Since(same) < 3*time.Second {
			return errors.New("they still change")
		}
		return nil
	})
}

// checkUnchanged looks for a while that the store and the members stay as they are.
func (h *hubPair) checkUnchanged(t *testing.T, ns string, want map[string]map[string]string, specs map[string]string, seqs map[string]int64) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		nowSpecs, nowSeqs, err := h.b.storedRows(ctx)
		wrong := h.membersHold(ns, want)(ctx)
		if ctx.Err() != nil {
			return false, nil // the time to look is over
		}
		if err != nil {
			return false, err
		}
		if !maps.Equal(specs, nowSpecs) {
			return false, fmt.Errorf("rows changed from\n%v\nto\n%v", specs, nowSpecs)
		}
		for row, seq := range seqs {
			if nowSeqs[row] < seq {
				return false, fmt.Errorf("the report of row %s went back from %d to %d", row, seq, nowSeqs[row])
			}
		}
		return false, wrong
	})
	if !wait.Interrupted(err) {
		t.Fatalf("after the stale leader went on: %v", err)
	}
}
