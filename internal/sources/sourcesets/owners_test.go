package sourcesets

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
)

// listOf returns a spec of a list of names.
func listOf(names ...string) string {
	return "{generators: [{list: {elements: [" + elementsOf(names...) + "]}}], template: {metadata: {name: '{{.name}}'}, spec: {repository: repo, ref: {branch: main}, paths: ['{{.name}}']}}}"
}

func elementsOf(names ...string) string {
	var out []string
	for _, name := range names {
		out = append(out, "{name: "+name+"}")
	}
	return strings.Join(out, ", ")
}

// setElements edits the list of the first generator.
func (h *hub) setElements(names ...string) {
	h.t.Helper()
	list := parseSpec(h.t, listOf(names...)).Generators[0].List
	h.editSet(func(s *v1alpha1.SourceSetSpec) { s.Generators[0].List = list })
}

// An edit of a list makes and removes. A list that is emptied, or has none of its former elements, removes nothing.
func TestEditsOfAList(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	h.expectStep("two", h.runReconcile(), "apply a, apply b", good)
	h.setElements("b", "c")
	h.expectStep("another one", h.runReconcile(), "apply c, delete a", good)
	h.expectStep("again", h.runReconcile(), "", good)
	h.setElements()
	h.expectStep("none", h.runReconcile(), "", "Applied=True/Applied Generated=False/GeneratorEmpty b GeneratorEmpty c GeneratorEmpty")
	h.setElements("c")
	h.expectStep("one is back", h.runReconcile(), "", good+" b GeneratorEmpty")
	h.setElements("d")
	h.expectStep("all others", h.runReconcile(), "apply d", good+" b GeneratorEmpty c EntriesReplaced")
	if n := h.readSet().Status.Sources; n.Generated != 1 || n.Kept != 2 {
		t.Errorf("%+v", n)
	}
	delete(h.store.objects, "b")
	h.expectStep("a kept one is deleted by hand", h.runReconcile(), "", good+" c EntriesReplaced")
	h.setElements("c", "d")
	h.expectStep("a kept one is generated again", h.runReconcile(), "", good)
}

// The name of a person's Source, or of another SourceSet's, is refused, and nothing of it changes. Nothing is deleted then.
func TestNamesOfOthersAreRefused(t *testing.T) {
	h := newHub(t, listOf("a", "b", "x"))
	h.store.objects["a"] = newOther("a", "")
	const refused = "Applied=False/NameTaken Generated=True/Generated"
	h.expectStep("a person's", h.runReconcile(), "apply b, apply x", refused)
	st := h.readSet().Status
	if len(st.Errors) != 1 || !strings.Contains(st.Errors[0].Message, "Source a is of no SourceSet") || !strings.Contains(st.Errors[0].Message, "SourceSet apps gives the name") || st.WaitsFor != "NameTaken" || st.Sources.Applied != 2 {
		t.Errorf("%+v", st)
	}
	h.store.objects["a"] = newOther("a", "others")
	h.expectStep("another SourceSet's", h.runReconcile(), "", refused)
	if !strings.Contains(h.readSet().Status.Errors[0].Message, "SourceSet others") {
		t.Errorf("%+v", h.readSet().Status.Errors)
	}
	h.setElements("a", "c", "x")
	h.expectStep("a removal is held", h.runReconcile(), "apply c", refused)
	delete(h.store.objects, "a")
	h.expectStep("the name is free", h.runReconcile(), "apply a, delete b", good)

	// A table that lags behind the API shows no owner. The API is read before each write.
	lagging := newHub(t, listOf("a"))
	lagging.store.objects["a"] = newOther("a", "others")
	lagging.r.Made = emptyTable{lagging.store}
	lagging.expectStep("a table without it", lagging.runReconcile(), "", refused)
}

// emptyTable is a table that has no Source yet.
type emptyTable struct{ *sourceStore }

func (emptyTable) InNamespace(string) []*v1alpha1.Source { return nil }

func newOther(name, set string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "atoll.dev/v1alpha1", "kind": "Source", "metadata": map[string]any{"name": name, "namespace": "shop", "uid": "other", "resourceVersion": "7"}, "spec": map[string]any{"repository": "theirs"}}}
	if set != "" {
		u.SetLabels(map[string]string{v1alpha1.LabelSourceSet: set})
	}
	return u
}

// A Source that a person labelled is taken over, and never deleted.
func TestALabelHandsASourceOver(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	h.store.objects["a"] = newOther("a", "apps")
	h.expectStep("it is applied", h.runReconcile(), "apply a, apply b", good)
	if spec := h.store.objects["a"].Object["spec"].(map[string]any); spec["repository"] != "repo" {
		t.Error(spec)
	}
	h.setElements("b")
	h.expectStep("it is dropped", h.runReconcile(), "", good+" a Adopted")
}

// A hub that ends between the creation of a Source and the status finds by the Source itself that it created it.
func TestACreatedSourceShowsItsOwner(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	before := h.readSet().DeepCopy()
	h.runReconcile()
	set := h.readSet().DeepCopy()
	set.Status = before.Status
	if err := h.r.Client.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	h.refreshSet()
	h.expectStep("no status was written", h.runReconcile(), "apply a, apply b", good)
	h.setElements("b")
	h.expectStep("it is dropped", h.runReconcile(), "delete a", good)

	// A copy by another writer has the annotation, and is none that the SourceSet created.
	u := h.store.objects["b"].DeepCopy()
	u.SetName("c")
	u.SetUID("other")
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply}})
	h.store.objects["c"] = u
	h.setElements("b", "c")
	h.expectStep("a copy", h.runReconcile(), "apply c", good)
	h.setElements("b")
	h.expectStep("the copy is dropped", h.runReconcile(), "", good+" c Adopted")
}

// A Source that another client makes just before the apply, without a conflict of fields, is given back.
func TestANewNameIsNotTakenOverInARace(t *testing.T) {
	h := newHub(t, listOf("a"))
	other := newOther("a", "")
	other.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	h.store.raced = map[string]*unstructured.Unstructured{"a": other}
	const refused = "Applied=False/NameTaken Generated=True/Generated"
	h.expectStep("a race", h.runReconcile(), "apply a, release a", refused)
	if labels := h.store.objects["a"].GetLabels(); len(labels) > 0 || len(h.readSet().Status.Inventory) > 0 {
		t.Errorf("labels %v, %+v", labels, h.readSet().Status.Inventory)
	}
	h.expectStep("afterwards", h.runReconcile(), "", refused)
}

// Labels and annotations of a Source are noted, so that their change is noticed and another change of the status is not.
func TestMetadataOfSourcesIsNoted(t *testing.T) {
	h := newHub(t, listOf("a"))
	h.runReconcile()
	h.runReconcile() // as the table notifies of what was made
	key := types.NamespacedName{Namespace: "shop", Name: "a"}
	if h.r.noteMetadata(key) {
		t.Error("no change is one")
	}
	h.store.editSource("a", func(_ map[string]any, u *unstructured.Unstructured) { u.SetLabels(map[string]string{"x": "y"}) })
	if !h.r.noteMetadata(key) || h.r.noteMetadata(key) {
		t.Error("a label is not noticed once")
	}
	h.store.editSource("a", func(_ map[string]any, u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"x": "y"}) })
	if !h.r.noteMetadata(key) {
		t.Error("an annotation is not noticed")
	}
	h.store.objects["z"] = newOther("z", "")
	if other := (types.NamespacedName{Namespace: "shop", Name: "z"}); h.r.noteMetadata(other) || len(h.r.metadata) != 1 {
		t.Errorf("a Source of no SourceSet is noted: %v", h.r.metadata)
	}
	if h.r.forgetSet(setKey); len(h.r.metadata) > 0 {
		t.Errorf("left: %v", h.r.metadata)
	}
}

// A field that the template states is set back, at most once in a minute. Other fields stay as others set them.
func TestStatedFieldsAreSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, listOf("a", "b"))
		h.runReconcile()
		edit := func(field string, value any) {
			h.store.editSource("a", func(spec map[string]any, _ *unstructured.Unstructured) { spec[field] = value })
		}
		edit("suspend", true)
		h.expectStep("a field that is not stated", h.runReconcile(), "", good)
		edit("paths", []any{"theirs"})
		h.expectStep("a stated field", h.runReconcile(), "apply a", good)
		spec := h.store.objects["a"].Object["spec"].(map[string]any)
		if spec["suspend"] != true || spec["paths"].([]any)[0] != "a" {
			t.Error(spec)
		}
		if last := h.events[len(h.events)-1]; last != "SourceSet/apps SourcesSetBack set fields back that others had changed in 1 Source: a" {
			t.Error(last)
		}
		edit("paths", []any{"theirs"})
		wait, err := h.r.reconcileSet(t.Context(), setKey)
		if err != nil || wait <= 0 || wait > setBackPause || h.store.objects["a"].Object["spec"].(map[string]any)["paths"].([]any)[0] != "theirs" {
			t.Errorf("a second edit within a minute: %s, %v", wait, err)
		}
		h.store.editSource("b", func(_ map[string]any, u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{"x": "y"}) })
		h.setElements("a", "b", "c")
		h.expectStep("another change does not wait", h.runReconcile(), "apply c", good)
		time.Sleep(wait)
		h.expectStep("after the minute", h.runReconcile(), "apply a", good)
		h.store.editSource("b", func(_ map[string]any, u *unstructured.Unstructured) { u.SetLabels(nil) })
		h.expectStep("its label is gone", h.runReconcile(), "", "Applied=False/NameTaken Generated=True/Generated")
	})
}

// A Source that a person deleted is made again, because it is still generated.
func TestADeletedSourceIsMadeAgain(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	h.runReconcile()
	before := h.readSet().Status.Inventory[0].UID
	delete(h.store.objects, "a")
	h.expectStep("a deletion", h.runReconcile(), "apply a", good)
	if after := h.readSet().Status.Inventory[0].UID; after == before || after == "" {
		t.Errorf("%s, then %s", before, after)
	}
	h.setElements("b")
	h.expectStep("it is dropped", h.runReconcile(), "delete a", good)
}

// A Source that the API refuses has its reason, deletes nothing, and is tried again after a time.
func TestRefusedSources(t *testing.T) {
	resource := schema.GroupResource{Group: "atoll.dev", Resource: "sources"}
	for want, refusal := range map[string]error{
		"PermissionMissing": apierrors.NewForbidden(resource, "c", errors.New(`the verb impersonate on it is needed, which "system:serviceaccount:shop:atoll-sources" lacks`)),
		"NotApplied":        apierrors.NewInvalid(schema.GroupKind{Kind: "Source"}, "c", nil),
		"NotApplied ":       apierrors.NewConflict(resource, "c", errors.New("changed")),
		"NotApplied  ":      apierrors.NewForbidden(resource, "c", errors.New("exceeded quota")),
	} {
		h := newHub(t, listOf("a", "b"))
		h.runReconcile()
		h.store.refuse["c"] = refusal
		h.setElements("a", "c")
		status := "Applied=False/" + strings.TrimSpace(want) + " Generated=True/Generated"
		h.expectStep("a refusal", h.runReconcile(), "", status)
		first, err := h.r.reconcileSet(t.Context(), setKey)
		if err != nil {
			t.Fatal(err)
		}
		second, _ := h.r.reconcileSet(t.Context(), setKey)
		if first < firstRetry || second != 2*first {
			t.Errorf("%s: waits of %s and %s", want, first, second)
		}
		for range 10 {
			second, _ = h.r.reconcileSet(t.Context(), setKey)
		}
		if second != maxRetry {
			t.Errorf("%s: a wait of %s", want, second)
		}
		delete(h.store.refuse, "c")
		h.expectStep("then it passes", h.runReconcile(), "apply c, delete b", good)
		if again, _ := h.r.reconcileSet(t.Context(), setKey); again != 0 {
			t.Errorf("%s: it comes again after %s", want, again)
		}
	}
}

// A missing right costs a bounded number of requests, and each Source counts as failed.
func TestAMissingRightIsNotTriedForEachSource(t *testing.T) {
	var names []string
	for i := range 3 * maxDenied {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	h := newHub(t, listOf(names...))
	for _, name := range names {
		h.store.refuse[name] = apierrors.NewForbidden(schema.GroupResource{Group: "atoll.dev", Resource: "sources"}, name, errors.New(`User "system:serviceaccount:shop:atoll-sources" cannot create it`))
	}
	h.runReconcile()
	if h.store.refused != maxDenied {
		t.Errorf("%d writes were tried, want %d", h.store.refused, maxDenied)
	}
	applied := meta.FindStatusCondition(h.readSet().Status.Conditions, "Applied")
	if want := fmt.Sprintf("%d ", len(names)); applied == nil || applied.Reason != "PermissionMissing" || !strings.Contains(applied.Message, want) {
		t.Errorf("the condition is %+v", applied)
	}
}

// An error of the hub is returned. Sources that were made before it are in the inventory, so that they can be deleted later.
func TestAnErrorInBetweenForgetsNothing(t *testing.T) {
	h := newHub(t, listOf("a", "b", "c"))
	h.store.refuse["b"] = errors.New("the connection broke")
	if _, err := h.r.reconcileSet(t.Context(), setKey); err == nil || !strings.Contains(err.Error(), "Source b") {
		t.Errorf("an error of the hub: %v", err)
	}
	if st := h.readSet().Status; len(st.Inventory) != 1 || st.Inventory[0].UID == "" || st.ObservedGeneration != 0 {
		t.Errorf("%+v", st)
	}
	delete(h.store.refuse, "b")
	h.expectStep("it passes", h.runReconcile(), "apply b, apply c", good)
	h.setElements("b", "c")
	h.expectStep("the first one is dropped", h.runReconcile(), "delete a", good)
}

// Without its ServiceAccount nothing is written.
func TestAMissingServiceAccount(t *testing.T) {
	h := newHub(t, listOf("a"))
	h.editSet(func(s *v1alpha1.SourceSetSpec) { s.ServiceAccountName = "makers" })
	h.expectStep("no account", h.runReconcile(), "", "Applied=False/ServiceAccountMissing Generated=True/Generated")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "makers"}}
	if err := h.r.Client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	h.expectStep("it is there", h.runReconcile(), "apply a", good)
}

// A Source that cannot be deleted stays in the inventory, and is tried again.
func TestARefusedDeletion(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	h.runReconcile()
	h.store.refuse["b"] = apierrors.NewForbidden(schema.GroupResource{Resource: "sources"}, "b", errors.New("no"))
	h.setElements("a")
	h.expectStep("a refusal", h.runReconcile(), "", "Applied=False/NotApplied Generated=True/Generated")
	if st := h.readSet().Status; len(st.Inventory) != 2 || !strings.Contains(st.Errors[0].Message, "Source b is no longer generated") {
		t.Errorf("%+v", st)
	}
	delete(h.store.refuse, "b")
	h.expectStep("it passes", h.runReconcile(), "delete b", good)
}

// The SourceSet is read again before each deletion.
func TestASuspensionInBetweenDeletesNothing(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	h.runReconcile()
	h.setElements("a")
	set := h.readSet().DeepCopy()
	set.Spec.Suspend = true
	if err := h.r.Client.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	h.expectStep("a table that lags", h.runReconcile(), "", good)
	h.refreshSet()
	if n := len(h.store.objects); n != 2 {
		t.Errorf("%d Sources", n)
	}
}

// A SourceSet that is deleted leaves its Sources.
func TestADeletedSetLeavesItsSources(t *testing.T) {
	h := newHub(t, listOf("a", "b"))
	h.runReconcile()
	set := h.readSet().DeepCopy()
	set.DeletionTimestamp, set.ResourceVersion = &metav1.Time{Time: time.Now()}, "999999"
	h.tables.SourceSets.Put(set)
	if got := h.runReconcile(); got != "" || len(h.store.objects) != 2 {
		t.Errorf("wrote %s; %d Sources are left", got, len(h.store.objects))
	}
	for _, u := range h.store.objects {
		if len(u.GetOwnerReferences()) != 0 {
			t.Error("an owner reference would delete the Source with its SourceSet")
		}
	}
}

// The labels of accepted Clusters are noted, so that another change of a Cluster reconciles nothing.
func TestLabelsOfClustersAreNoted(t *testing.T) {
	h := newHub(t, "{generators: [{clusters: {}}], template: {metadata: {name: '{{.cluster.name}}'}, spec: {repository: repo}}}")
	h.clusters.setCluster("oslo", map[string]string{"set": "a"})
	seen := func() map[string]string { return h.r.clusterLabels["oslo"] }
	h.r.clusterChanged("oslo")
	if seen()["set"] != "a" {
		t.Errorf("noted %v", seen())
	}
	h.clusters["oslo"].Spec.Accepted = false
	h.r.clusterChanged("oslo")
	if seen() != nil {
		t.Errorf("a Cluster that is not accepted is noted: %v", seen())
	}
	h.clusters.setCluster("bergen", map[string]string{"set": "a"})
	if h.r.enqueueAll(); h.r.noteLabels("bergen") {
		t.Error("the first event of a Cluster after the start is news")
	}
}
