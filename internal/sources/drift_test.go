package sources

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
)

// newOwnership returns an entry of managedFields that owns the data of an object.
func newOwnership(manager string, operation metav1.ManagedFieldsOperationType, o *unstructured.Unstructured) metav1.ManagedFieldsEntry {
	data, _, _ := unstructured.NestedMap(o.Object, "data")
	keys := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		keys["f:"+key] = map[string]any{}
	}
	raw, err := json.Marshal(map[string]any{"f:data": keys})
	if err != nil {
		panic(err)
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw))}
}

// editObject sets a key of a ConfigMap on the hub as a person does. The person owns the key then.
func (h *hub) editObject(name, key, value, manager string) {
	h.t.Helper()
	was, _ := h.findObject("configmaps/" + name)
	o := was.DeepCopy()
	if err := unstructured.SetNestedField(o.Object, value, "data", key); err != nil {
		h.t.Fatal(err)
	}
	edited := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{key: value}}}
	managers := []metav1.ManagedFieldsEntry{newOwnership(manager, metav1.ManagedFieldsOperationUpdate, edited)}
	for _, m := range was.GetManagedFields() {
		without := strings.NewReplacer(`"f:`+key+`":{},`, "", `,"f:`+key+`":{}`, "", `"f:`+key+`":{}`, "")
		m.FieldsV1 = metav1.NewFieldsV1(without.Replace(string(m.FieldsV1.GetRawBytes())))
		managers = append(managers, m)
	}
	o.SetManagedFields(managers)
	h.storeObject("configmaps/"+name, o, "")
}

// watchObject lets the watches have an object as the hub has it.
func (h *hub) watchObject(key atoll.ItemKey) {
	o, _ := h.findObject("configmaps/" + key.Name)
	h.watched.mu.Lock()
	defer h.watched.mu.Unlock()
	h.watched.objects[key] = o
}

// expectFound lets the hub look for drift, and checks how many objects the next check compares.
func (h *hub) expectFound(when string, objects int) {
	h.t.Helper()
	if _, err := h.r.findDrift(h.t.Context(), sourceKey); err != nil {
		h.t.Fatal(err)
	}
	if got := len(h.r.drift.listFoundOf([]*v1alpha1.Source{h.readSource()})["web"]); got != objects {
		h.t.Errorf("%s: %d objects found, want %d", when, got, objects)
	}
}

// listDrift returns the drift of the status.
func (h *hub) listDrift() string {
	var out []string
	s := h.readSource()
	for _, o := range s.Status.Drift {
		if o.Since.IsZero() {
			h.t.Error("drift without a time")
		}
		text := fmt.Sprintf("%s %s/%s %v by %v", o.Kind, o.Namespace, o.Name, o.Fields, o.Managers)
		if o.Deleted {
			text += " deleted"
		}
		if o.Message != "" {
			text += " " + o.Message
		}
		out = append(out, text)
	}
	return fmt.Sprintf("%d: %s", s.Status.Objects.Drifted, strings.Join(out, "; "))
}

func (h *hub) expectDrift(when, want string) {
	h.t.Helper()
	if got := h.listDrift(); got != want {
		h.t.Errorf("%s: drift %q, want %q", when, got, want)
	}
}

const (
	differs   = "Applied=True/Applied InSync=False/ChangedOnHub Ready=False/Nowhere Rendered=True/Rendered"
	noDrift   = "0: "
	corrects  = "{repository: repo, ref: {branch: main}, drift: {mode: Correct}}"
	allowsHPA = "{repository: repo, ref: {branch: main}, drift: {mode: Correct, allow: [{kind: ConfigMap, name: a, managers: [hpa]}, {paths: [/data/log]}]}}"
)

// An edit and a deletion on the hub are reported, by field and manager, and nothing is written but the status.
func TestDriftIsReported(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.expectCheck("the first commit", "apply a, apply b", good)
	h.expectFound("nothing changed", 0)
	h.expectDrift("nothing changed", noDrift)

	h.editObject("a", "v", "2", "kubectl-edit")
	h.expectFound("an edit", 1)
	h.expectCheck("an edit", "", differs)
	h.expectDrift("an edit", "1: ConfigMap shop/a [/data/v] by [kubectl-edit]")
	if w := h.readSource().Status.WaitsFor; w != "ChangedOnHub" {
		t.Errorf("waits for %q", w)
	}
	if len(h.events) != 1 || !strings.Contains(h.events[0], "Source/web ChangedOnHub ConfigMap a has other values at /data/v, managed by kubectl-edit") {
		t.Errorf("events: %q", h.events)
	}
	since := h.readSource().Status.Drift[0].Since
	h.expectFound("an edit that is known", 0)

	delete(h.objects, "configmaps/b")
	h.expectFound("a deletion", 1)
	h.expectCheck("a deletion", "", differs)
	h.expectDrift("a deletion", "2: ConfigMap shop/a [/data/v] by [kubectl-edit]; ConfigMap shop/b [] by [] deleted")
	if got := h.readSource().Status.Drift[0].Since; !got.Equal(&since) {
		t.Errorf("the time of the first drift changed from %v to %v", since, got)
	}

	// A new Reconciler, as after a restart, finds nothing that is not known.
	h.expectFound("known drift", 0)
	// A commit that changes an object applies it, where no other client owns it.
	h.objects["configmaps/a"].SetManagedFields(nil)
	h.setCommit("c2", "a=3", "b=1")
	h.expectCheck("another commit", "apply a", differs)
	h.expectDrift("another commit", "1: ConfigMap shop/b [] by [] deleted")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Drift = &v1alpha1.SourceDrift{Mode: v1alpha1.SourceDriftCorrect} })
	h.expectCheck("corrections are stated", "apply b", good)
	h.expectDrift("corrections are stated", noDrift)
}

// Correct applies what others changed or deleted, and an object that a commit changes at the same time.
func TestDriftIsCorrected(t *testing.T) {
	h := newHub(t, corrects)
	h.setCommit("c1", "a=1", "b=1")
	h.expectCheck("the first commit", "apply a, apply b", good)
	uid := h.objects["configmaps/b"].GetUID()
	h.editObject("a", "v", "2", "kubectl-edit")
	delete(h.objects, "configmaps/b")
	h.expectFound("an edit and a deletion", 2)
	h.expectCheck("an edit and a deletion", "apply a, apply b", good)
	h.expectDrift("an edit and a deletion", noDrift)
	if v, _, _ := unstructured.NestedString(h.objects["configmaps/a"].Object, "data", "v"); v != "1" {
		t.Errorf("the value is %q", v)
	}
	for _, o := range h.readSource().Status.Inventory {
		if o.Name == "b" && (o.UID == uid || o.UID != h.objects["configmaps/b"].GetUID()) {
			t.Errorf("the inventory has the UID %q of the object that was made again", o.UID)
		}
	}
	if len(h.events) != 2 || !strings.Contains(h.events[1], "DriftCorrected ConfigMap b was deleted; the Source applied it again") {
		t.Errorf("events: %q", h.events)
	}

	h.editObject("a", "v", "3", "kubectl-edit")
	h.expectFound("less than a minute later", 0)

	h.refuse["a"] = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf("conflict with kubectl-edit"))
	h.setCommit("c2", "a=4", "b=1")
	h.expectCheck("a commit of an edited object", "apply a", good)
}

// A commit keeps an allowed value also where the hub would take the commit's, such as a number of replicas that no client owns. A field that
// the commit states for the first time is not taken from its owner.
func TestCommitsKeepAllowedValues(t *testing.T) {
	h := newHub(t, allowsHPA)
	h.setCommit("c1", "a=1", "b=1")
	h.expectCheck("the first commit", "apply a, apply b", good)
	h.editObject("a", "v", "2", "hpa")
	h.expectFound("an allowed edit", 1)
	h.expectCheck("an allowed edit", "", good)
	h.setCommit("c2", "a=1", "b=1")
	h.commit.Digest = "c2"
	h.commit.Objects[0].Fields["data"].(map[string]any)["more"] = "yes"
	h.expectCheck("a commit of another field", "apply a", good)
	if data, _, _ := unstructured.NestedStringMap(h.objects["configmaps/a"].Object, "data"); data["v"] != "2" || data["more"] != "yes" {
		t.Errorf("after the commit: %v", data)
	}

	h.refuse["b"] = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "b", fmt.Errorf("conflict with an operator"))
	h.setCommit("c3", "a=1", "b=3")
	h.commit.Objects[0].Fields["data"].(map[string]any)["more"] = "yes"
	h.expectCheck("a commit of a field that an operator owns", "", "Applied=False/OwnedByOthers")
}

// Another Source that owns the fields is not overwritten, in a correction and by a commit.
func TestSourcesDoNotCorrectEachOther(t *testing.T) {
	h := newHub(t, corrects)
	h.setCommit("c1", "a=1")
	h.expectCheck("the first commit", "apply a", good)
	h.editObject("a", "v", "2", "atoll-source:shop/other")
	h.expectFound("the edit of another Source", 1)
	h.expectCheck("the edit of another Source", "", differs)
	h.expectDrift("the edit of another Source", "1: ConfigMap shop/a [/data/v] by [atoll-source:shop/other] it is not corrected, because another Source (atoll-source:shop/other) states the same fields; remove them on one side")
	h.refuse["a"] = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", fmt.Errorf("conflict with atoll-source:shop/other"))
	h.setCommit("c2", "a=3")
	h.expectCheck("a commit of the object", "", "Applied=False/OwnedByOthers")
}

// Allowed changes are no drift, and a correction of other fields leaves them alone.
func TestAllowedDriftStays(t *testing.T) {
	h := newHub(t, allowsHPA)
	h.setCommit("c1", "a=1", "b=1")
	for i := range h.commit.Objects {
		h.commit.Objects[i].Fields["data"].(map[string]any)["log"] = "info"
	}
	h.expectCheck("the first commit", "apply a, apply b", good)
	h.editObject("a", "v", "2", "hpa")
	h.editObject("b", "log", "debug", "kubectl-edit")
	h.expectFound("allowed edits", 2)
	h.expectCheck("allowed edits", "", good)
	h.expectDrift("allowed edits", noDrift)
	h.expectFound("allowed edits that are known", 0)

	h.editObject("b", "v", "2", "kubectl-edit")
	h.expectFound("another field", 1)
	h.expectCheck("another field", "apply b", good)
	data, _, _ := unstructured.NestedStringMap(h.objects["configmaps/b"].Object, "data")
	if data["v"] != "1" || data["log"] != "debug" {
		t.Errorf("after the correction: %v", data)
	}

	h.refuse["b"] = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "b", fmt.Errorf("conflict with kubectl-edit"))
	h.setCommit("c2", "a=1", "b=3")
	h.commit.Objects[1].Fields["data"].(map[string]any)["log"] = "info"
	h.commit.Objects[0].Fields["data"].(map[string]any)["log"] = "info"
	h.expectCheck("a commit of an object with an allowed edit", "apply b", good)
	if data, _, _ := unstructured.NestedStringMap(h.objects["configmaps/b"].Object, "data"); data["v"] != "3" || data["log"] != "debug" {
		t.Errorf("after the commit: %v", data)
	}

	h.editSource(func(s *v1alpha1.SourceSpec) { s.Drift.Allow = nil })
	h.expectCheck("nothing is allowed any more", "apply a, apply b", good)
}

// Nothing is compared in the mode Ignore, and drift that was known is forgotten.
func TestDriftIsIgnored(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1")
	h.expectCheck("the first commit", "apply a", good)
	h.editObject("a", "v", "2", "kubectl-edit")
	h.expectFound("an edit", 1)
	h.expectCheck("an edit", "", differs)
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Drift = &v1alpha1.SourceDrift{Mode: v1alpha1.SourceDriftIgnore} })
	h.expectCheck("Ignore", "", good)
	h.expectDrift("Ignore", noDrift)
	delete(h.objects, "configmaps/a")
	h.expectFound("a deletion", 0)
}

// Objects that cannot be read are no drift, and drift that cannot be compared is compared by a later check.
func TestDriftThatIsNotReadIsNoDrift(t *testing.T) {
	h := newHub(t, corrects)
	h.setCommit("c1", "a=1")
	h.commit.Objects[0].Fields["kind"] = "Secret"
	h.expectCheck("the first commit", "apply a", good)
	delete(h.objects, "secrets/a")
	h.expectFound("a kind that the watches do not have", 0)

	h = newHub(t, corrects)
	h.setCommit("c1", "a=1")
	h.expectCheck("the first commit", "apply a", good)
	h.editObject("a", "v", "2", "kubectl-edit")
	h.expectFound("an edit", 1)
	h.fails = &fetch.Failure{Reason: atoll.ReasonRepositoryUnreachable, Message: "the server is away"}
	h.expectCheck("no content", "", good)
	h.expectFound("no content", 1)
	h.fails = nil
	h.expectCheck("content again", "apply a", good)

	h.editSource(func(s *v1alpha1.SourceSpec) { s.Suspend = true })
	h.runCheck()
	h.editObject("a", "v", "3", "kubectl-edit")
	h.expectFound("a suspended Source", 0)
}

// A running Reconciler corrects an edit soon after its event, a second one of the same client after a minute, and renders nothing for
// events that change no field of the Source.
func TestEventsLeadToCorrections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, corrects)
		h.setCommit("c1", "a=1")
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := h.r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		expect := func(when string, applied int) {
			t.Helper()
			time.Sleep(2*maxDriftDebounce + maxChangeDebounce)
			synctest.Wait()
			if n := h.countWrites("apply a"); n != applied {
				t.Errorf("%s: applied %d times, want %d", when, n, applied)
			}
		}
		expect("the first commit", 1)
		checks := h.countRequests()
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
		h.watchObject(key)
		h.r.objectChanged(key)
		expect("an event without a change", 1)
		if got := h.countRequests(); got != checks {
			t.Errorf("an event without a change cost %d checks", got-checks)
		}
		h.editObject("a", "v", "2", "kubectl-edit")
		h.watchObject(key)
		h.r.objectChanged(key)
		expect("an edit", 2)
		h.editObject("a", "v", "3", "kubectl-edit")
		h.watchObject(key)
		h.r.objectChanged(key)
		expect("an edit right after", 2)
		time.Sleep(correctionPause)
		expect("a minute later", 3)
		stop()
		done.Wait()
	})
}
