package bundlestatus

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/state"
)

var (
	webKey    = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	configKey = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
)

func webTemplate() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{
			"name": "web", "namespace": "shop", "uid": "u1", "generation": int64(1),
			"labels": map[string]any{"content": "h1"}, "finalizers": []any{atoll.Finalizer},
		},
		"spec": map[string]any{"replicas": int64(2)},
	}}
}

// deploymentStatus is what a member's Deployment reflects when so many of 2 are available.
func deploymentStatus(available int64) json.RawMessage {
	turned, reason := "False", "ReplicaSetUpdated"
	if available == 2 {
		turned, reason = "True", "NewReplicaSetAvailable"
	}
	return kinds.ReflectStatus(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "generation": int64(1)},
		"spec": map[string]any{"replicas": int64(2)},
		"status": map[string]any{
			"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2), "readyReplicas": available, "availableReplicas": available,
			"conditions": []any{
				map[string]any{"type": "Available", "status": turned},
				map[string]any{"type": "Progressing", "status": "True", "reason": reason},
			},
		},
	}})
}

// reportAvailable that the cluster has applied its generation and has so many available.
func (m *memory) reportAvailable(cluster string, available int64) {
	m.setRow("b", cluster, func(r *state.Row) {
		health, st := atoll.Progressing, atoll.RowProgressing
		if available == 2 {
			health, st = atoll.Healthy, atoll.RowReady
		}
		r.Status = &atoll.RowStatus{
			UID: r.Spec.UID, Generation: r.Spec.Generation, Applied: true, State: st, Total: 1,
			Items: []atoll.ItemStatus{{Key: webKey, Health: health, ReflectedStatus: deploymentStatus(available)}},
		}
	})
}

func webContent(hash string) *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{Key: webKey, UID: "u1", Hash: hash}}}
}

// apply the Deployment and place it on the clusters.
func (m *memory) apply(clusters ...string) {
	m.setTemplate(webTemplate())
	m.setBundle("b", nil)
	rev := m.cutRevision("b", webContent("h1"))
	for _, c := range clusters {
		m.setRow("b", c, func(r *state.Row) { r.Spec.Revision = rev })
	}
}

func (m *memory) webStatus() map[string]any {
	t, _ := memTemplates{m}.Get(webKey)
	st, _ := t.Object["status"].(map[string]any)
	return st
}

func (m *memory) getBundle() state.Bundle {
	b, _ := memBundles{m}.Get("b")
	return b
}

// From apply to all healthy over three clusters, reports trickling in: at most two
// writes of the Bundle's status and three of the template's.
func TestWritesOfOneDeploymentOverThreeClusters(t *testing.T) {
	m := newMemory()
	for _, c := range []string{"a", "b", "c"} {
		m.addCluster(c)
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply("a", "b", "c")
		step(300 * time.Millisecond)
		if got := m.getBundle().Status.WaitsFor; !strings.HasPrefix(got, "a: the latest change to be applied") {
			t.Errorf("the first words come late: %q", got)
		}
		b := m.getBundle()
		for _, is := range atoll.ConditionTypes["Bundle"] {
			if c := meta.FindStatusCondition(b.Status.Conditions, is.Type); !is.Temporary && (atoll.IsUndetermined(c) || c.Reason == "" || c.Message == "" || c.ObservedGeneration != b.Meta.Generation || c.LastTransitionTime.IsZero()) {
				t.Errorf("condition %s of a new Bundle: %+v", is.Type, c)
			}
		}
		if w := b.Status.Wait; w == nil || w.Reason != "WaitsForApply" || w.Actor != "the agent" || w.Cluster != "a" || w.Since.IsZero() {
			t.Errorf("the wait of a new Bundle: %+v", w)
		}
		for _, available := range []int64{0, 1, 2} {
			for i, c := range []string{"a", "b", "c"} {
				m.reportAvailable(c, available)
				step(time.Duration(40*(i+1)) * time.Millisecond)
			}
			step(900 * time.Millisecond)
			if observed := m.webStatus()["observedGeneration"]; observed != int64(1) {
				t.Errorf("with %d available in each, the observed generation is %v", available, observed)
			}
		}
		if got := m.getBundle().Status; got.WaitsFor != "" || got.Wait != nil || got.Clusters.Summary != "3/3" || got.Replicas != 6 || got.ReadyReplicas != 6 {
			t.Errorf("the Bundle's status in the end: %+v", got)
		}
		if got := m.webStatus(); got["readyReplicas"] != int64(2) || got["unavailableReplicas"] != nil {
			t.Errorf("the template's status in the end: %v", got)
		}
		step(time.Minute)
		if n := m.countWrites("bundle"); n > 2 {
			t.Errorf("%d writes of the Bundle's status", n)
		}
		if n := m.countWrites("template"); n > 3 {
			t.Errorf("%d writes of the template's status", n)
		}
		if len(m.writes) > 0 {
			t.Errorf("further writes: %q", m.writes)
		}
	})
}

func TestObservedGenerationWaitsForEveryReachableCluster(t *testing.T) {
	m := newMemory()
	for _, c := range []string{"a", "b", "far"} {
		m.addCluster(c)
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply("a", "b", "far")
		for _, c := range []string{"a", "b", "far"} {
			m.reportAvailable(c, 2)
		}
		step(time.Minute)
		m.setStream("far", false)
		m.setReady("far", metav1.ConditionUnknown)
		step(time.Minute)
		m.countWrites("template")
		if got := m.getBundle().Status; got.Clusters.Away != 1 || got.Clusters.Summary != "2/3" || got.WaitsFor != "" {
			t.Errorf("with one away: %+v", got)
		}
		// The user edits; bind has not cut yet, so what rows applied is not it.
		m.editTemplate(webKey, func(t *unstructured.Unstructured) {
			t.SetGeneration(2)
			t.SetLabels(map[string]string{"content": "h2"})
		})
		step(time.Minute)
		rev := m.cutRevision("b", webContent("h2"))
		for _, c := range []string{"a", "b", "far"} {
			m.setRow("b", c, func(r *state.Row) { r.Spec.Revision, r.Spec.Generation = rev, 2 })
		}
		step(time.Minute)
		m.reportAvailable("a", 2)
		step(time.Minute)
		if got := m.webStatus()["observedGeneration"]; got != int64(1) || m.countWrites("template") != 0 {
			t.Errorf("observed %v before every reachable cluster applied it", got)
		}
		m.reportAvailable("b", 2)
		step(time.Second)
		if got := m.webStatus()["observedGeneration"]; got != int64(2) {
			t.Errorf("observed %v after every reachable cluster applied it", got)
		}
	})
}

// An edit that states nothing new is observed without any row moving.
func TestAnEditWithoutNewContentIsObserved(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		m.reportAvailable("a", 2)
		step(time.Minute)
		m.editTemplate(webKey, func(t *unstructured.Unstructured) { t.SetGeneration(2) })
		step(time.Second)
		if got := m.webStatus()["observedGeneration"]; got != int64(2) {
			t.Errorf("observed %v", got)
		}
	})
}

// Counts alone are written rarely: a watcher of one cluster sees them every second, and of many
// clusters every two.
func TestCountsAloneAreWrittenSeldom(t *testing.T) {
	for clusters, most := range map[int]int{1: 20, 100: 12} {
		m := newMemory()
		for i := range clusters {
			m.addCluster(fmt.Sprintf("c%d", i))
		}
		run(t, m, func(step func(time.Duration)) {
			for i := range clusters {
				m.apply(fmt.Sprintf("c%d", i))
				m.reportAvailable(fmt.Sprintf("c%d", i), 0)
			}
			step(6 * time.Second)
			m.countWrites("template")
			for i := range 40 {
				m.reportAvailable("c0", int64(i%2))
				step(500 * time.Millisecond)
			}
			step(6 * time.Second)
			if n := m.countWrites("template"); n < 2 || n > most {
				t.Errorf("20 s of flapping counts of %d clusters cost %d writes, want at most %d", clusters, n, most)
			}
			if got := m.webStatus()["readyReplicas"]; clusters == 1 && got != int64(1) {
				t.Errorf("the last count is lost: %v", got)
			}
		})
	}
}

func TestConflictsAreTriedAgain(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.failing["bundle"], m.failing["template"] = conflictError("bundles"), conflictError("deployments")
		m.apply("a")
		m.reportAvailable("a", 2)
		step(5 * time.Second)
		if m.getBundle().Status.Clusters.Ready != 1 || m.webStatus()["readyReplicas"] != int64(2) {
			t.Errorf("not written after a conflict: %+v, %v", m.getBundle().Status, m.webStatus())
		}
	})
}

func TestAStatusThatIsRefusedIsSentOnce(t *testing.T) {
	for name, err := range map[string]error{
		"no subresource": ErrNoStatus,
		"invalid":        apierrors.NewInvalid(webTemplate().GroupVersionKind().GroupKind(), "web", nil),
		"bad request":    &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.addCluster("a")
			run(t, m, func(step func(time.Duration)) {
				m.failing["template"] = err
				m.apply("a")
				m.reportAvailable("a", 2)
				step(time.Minute)
				m.setRow("b", "a", func(r *state.Row) { r.Status.Seq++ })
				step(time.Minute)
				if n := m.countWrites("template"); n != 0 {
					t.Errorf("sent %d times again", n)
				}
			})
		})
	}
}

// Only the Bundle whose policy chose a template speaks for it, not one that needs it.
func TestOneBundleSpeaksForATemplate(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		m.setBundle("a-first", nil)
		dependency := webContent("h1")
		dependency.Items[0].Dependency = true
		rev := m.cutRevision("a-first", dependency)
		m.reportAvailable("a", 2)
		m.setRow("a-first", "a", func(r *state.Row) {
			r.Spec.Revision = rev
			r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: 1, Applied: true, State: atoll.RowProgressing,
				Items: []atoll.ItemStatus{{Key: webKey, Health: atoll.Progressing, ReflectedStatus: deploymentStatus(0)}}}
		})
		step(time.Minute)
		if got := m.webStatus()["readyReplicas"]; got != int64(2) {
			t.Errorf("the status is not the choosing Bundle's: %v", m.webStatus())
		}
	})
}

func TestARecreatedTemplateGetsNoOldStatus(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		again := webTemplate()
		again.SetUID(types.UID("u2"))
		m.setTemplate(again)
		m.reportAvailable("a", 2)
		step(time.Minute)
		if got := m.webStatus(); got != nil {
			t.Errorf("it got %v", got)
		}
	})
}

func TestRefusalsAreSaidOnce(t *testing.T) {
	m := newMemory()
	for _, c := range []string{"a", "b", "c"} {
		m.addCluster(c)
	}
	refuse := func(c string) {
		m.setRow("b", c, func(r *state.Row) {
			r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: 1, State: atoll.RowFailed,
				Items: []atoll.ItemStatus{{Key: webKey, Health: atoll.Degraded, Reason: "Conflict", Message: "another manager made it", Error: true}}}
		})
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply("a", "b", "c")
		refuse("b")
		refuse("c")
		step(time.Second)
		refuse("a")
		step(time.Minute)
		want := "apps/Deployment/shop/web Conflict: cluster b: another manager made it (and 1 cluster more)"
		if len(m.said) != 1 || m.said[0] != want {
			t.Errorf("said %q\nwant %q", m.said, want)
		}
		for _, c := range []string{"a", "b", "c"} {
			m.reportAvailable(c, 2)
		}
		step(20 * time.Minute)
		m.setRow("b", "a", func(r *state.Row) { r.Status.Seq++ })
		step(time.Minute)
		refuse("a")
		step(time.Minute)
		if len(m.said) != 2 {
			t.Errorf("after it was gone for long, said %q", m.said)
		}
	})
}

// TestNoClusterSpeaksOfAnotherBundlesTemplates: a row's report may name any object. An object that the
// Bundle does not hold gets no Event by it.
func TestNoClusterSpeaksOfAnotherBundlesTemplates(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	run(t, m, func(step func(time.Duration)) {
		m.apply("a")
		foreign := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "bank", Name: "vault"}
		m.setRow("b", "a", func(r *state.Row) {
			r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: 1, State: atoll.RowFailed, Items: []atoll.ItemStatus{
				{Key: foreign, Health: atoll.Degraded, Reason: "Conflict", Message: "poison", Error: true},
				{Key: webKey, Health: atoll.Degraded, Reason: "Conflict", Message: "another manager made it", Error: true},
			}}
		})
		step(time.Minute)
		if want := "apps/Deployment/shop/web Conflict: cluster a: another manager made it"; len(m.said) != 1 || m.said[0] != want {
			t.Errorf("said %q", m.said)
		}
	})
}

func TestAHubThatStartsWritesNothing(t *testing.T) {
	m := newMemory()
	for i := range 5 {
		m.addCluster(fmt.Sprintf("c%d", i))
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply("c0", "c1", "c2", "c3", "c4")
		for i := range 5 {
			m.reportAvailable(fmt.Sprintf("c%d", i), 2)
		}
		step(time.Minute)
	})
	m.writes = nil
	m.onBundle, m.onRows, m.onCluster, m.onRev, m.onTemplate = nil, nil, nil, nil, nil
	for i := range 5 {
		m.online[fmt.Sprintf("uid-c%d", i)] = false
	}
	run(t, m, func(step func(time.Duration)) {
		step(5 * time.Second)
		for i := range 5 {
			m.setStream(fmt.Sprintf("c%d", i), true)
		}
		step(time.Minute)
		if len(m.writes) > 0 {
			t.Errorf("it wrote %q", m.writes)
		}
	})
}

// A script that fails for an object in a member is reported on its template, once for all
// clusters, beside the apply failures; any other health is not.
func TestAnInterpreterThatFailsInAMemberIsAnEvent(t *testing.T) {
	says := func(reason atoll.Reason, refused bool) *atoll.RowStatus {
		st := readyStatus()
		st.State, st.Items = atoll.RowProgressing, []atoll.ItemStatus{{Key: webKey, Health: atoll.Unknown, Reason: reason, Message: "it loops", Error: refused}}
		return st
	}
	failed := says(atoll.ReasonInterpreterFailed, false)
	found := collectRefusals([]Row{newRow("a", failed), newRow("b", failed), newRow("c", says("Interpreted", false)), newRow("d", says("Conflict", true))})
	if len(found) != 2 {
		t.Fatalf("found %v", found)
	}
	if got, want := found[refusal{webKey, atoll.ReasonInterpreterFailed}].refusersText(), "cluster a: it loops (and 1 cluster more)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Drift is an Event of its template, once for all clusters, and so is an object that a cluster does not have.
func TestDriftIsAnEvent(t *testing.T) {
	says := func(reason atoll.Reason, d *atoll.Drift) *atoll.RowStatus {
		st := readyStatus()
		st.Items = []atoll.ItemStatus{{Key: webKey, Health: atoll.Healthy, Reason: reason, Message: "cut", Drift: d}}
		return st
	}
	fields := &atoll.Drift{Total: 2, Fields: []atoll.DriftField{{Path: "/spec/a"}, {Path: "/spec/b"}}}
	got := map[refusal]string{}
	for key, by := range collectRefusals([]Row{
		newRow("a", says(atoll.ReasonDrifted, fields)), newRow("b", says(atoll.ReasonDrifted, fields)),
		newRow("c", says(atoll.ReasonMissing, &atoll.Drift{Missing: true})), newRow("d", says(atoll.ReasonMissing, nil)),
	}) {
		got[key] = by.refusersText()
	}
	if want := map[refusal]string{
		{webKey, atoll.ReasonDrifted}: "cluster a: 2 fields differ: /spec/a, /spec/b (and 1 cluster more)",
		{webKey, atoll.ReasonMissing}: "cluster c: the member does not have the object (and 1 cluster more)",
	}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A row that failed as a whole is reported once: by its items where they say why, else by itself.
func TestCollectRefusalsOfFailedRows(t *testing.T) {
	failed := func(reason atoll.Reason, message string, items ...atoll.ItemStatus) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: 5, State: atoll.RowFailed, Reason: reason, Message: message, Items: items}
	}
	item := func(refused bool, reason atoll.Reason, message string) atoll.ItemStatus {
		return atoll.ItemStatus{Key: webKey, Error: refused, Reason: reason, Message: message}
	}
	whole := func(reason atoll.Reason) refusal { return refusal{reason: reason} }
	late := failed("Denied", "no")
	late.Generation = 4
	older := failed("Denied", "no")
	older.State = atoll.RowProgressing
	for _, c := range []struct {
		name   string
		status *atoll.RowStatus
		want   map[refusal]string
	}{
		{"no report", nil, nil},
		{"a report of an older generation", late, nil},
		{"it is in progress", older, nil},
		{"the row says why", failed("Denied", "no"), map[refusal]string{whole("Denied"): "cluster a: no"}},
		{"nothing says why", failed("", ""), map[refusal]string{whole(ReasonFailed): "cluster a: the Bundle could not be applied"}},
		{"an item says why", failed("Denied", "no", item(true, "Conflict", "it is taken")), map[refusal]string{{webKey, "Conflict"}: "cluster a: it is taken"}},
		{"an item failed", failed("Denied", "no", item(true, "", "")), map[refusal]string{{webKey, ReasonFailed}: "cluster a: it could not be applied"}},
		{"an item is applied", failed("Denied", "no", item(false, "Conflict", "it was taken")), map[refusal]string{whole("Denied"): "cluster a: no"}},
		{"a rule of an item fails", failed("Denied", "no", item(false, atoll.ReasonHealthRuleFailed, "no such key")), map[refusal]string{
			whole("Denied"): "cluster a: no", {webKey, atoll.ReasonHealthRuleFailed}: "cluster a: no such key"}},
		{"an item's health is unknown", failed("Denied", "no", item(false, atoll.ReasonInterpreterFailed, "it loops")), map[refusal]string{
			whole("Denied"): "cluster a: no", {webKey, atoll.ReasonInterpreterFailed}: "cluster a: it loops"}},
	} {
		got := map[refusal]string{}
		for key, by := range collectRefusals([]Row{newRow("a", c.status)}) {
			got[key] = by.refusersText()
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A cluster that keeps an older revision since it is full is reported, once for all.
func TestNoCapacityIsAnEvent(t *testing.T) {
	full := atoll.RowReason{Reason: atoll.ReasonNoCapacity, Text: "capacity.replicas is 18"}.String()
	found := collectRefusals([]Row{newRow("a", readyStatus(), withPhase(atoll.RowActive, full)), newRow("b", readyStatus(), withPhase(atoll.RowActive, full)), newRow("c", readyStatus(), withPhase(atoll.RowRemoving, full))})
	if len(found) != 1 {
		t.Fatalf("found %v", found)
	}
	if got, want := found[refusal{reason: atoll.ReasonNoCapacity}].refusersText(), "cluster a: capacity.replicas is 18 (and 1 cluster more)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A cluster with drift does not have what the template states, so that no rollout is done there.
func TestARowWithDriftIsStale(t *testing.T) {
	report := &atoll.ItemStatus{Key: webKey, Health: atoll.Healthy}
	row := newRow("a", readyStatus())
	if rowItem(row, &atoll.Item{Key: webKey}, report).Stale {
		t.Error("a row without drift is stale")
	}
	report.Drift = &atoll.Drift{Total: 1}
	if !rowItem(row, &atoll.Item{Key: webKey}, report).Stale {
		t.Error("a row with drift is not stale")
	}
}
