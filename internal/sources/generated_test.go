package sources

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// setRandomCommit brings a commit with ConfigMaps whose field v is another one in each rendering. The digest is of all other fields.
func (h *hub) setRandomCommit(hash, rendering string, names ...string) {
	h.setCommit(hash, names...)
	for i := range h.commit.Objects {
		h.commit.Objects[i].Fields["data"].(map[string]any)["v"] = rendering
		h.commit.Objects[i].Generated = []string{"/data/v"}
	}
	h.commit.Digest = fmt.Sprint(hash, names)
}

// readValue returns the value of a ConfigMap on the hub.
func (h *hub) readValue(name string) string {
	v, _, _ := unstructured.NestedString(h.objects["configmaps/"+name].Object, "data", "v")
	return v
}

// A value that a chart makes by itself is made once. The next rendering, another commit, a sync and another hub keep it.
func TestGeneratedFieldsAreKept(t *testing.T) {
	const warned = "Applied=True/Applied Ready=False/Nowhere Rendered=True/Rendered Reproducible=False/GeneratedFieldsKept"
	h := newHub(t, branch)
	h.setRandomCommit("c1", "first", "a")
	h.expectCheck("the first commit", "apply a", warned)
	if c := meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceReproducible); c.Message == "" || c.LastTransitionTime.IsZero() {
		t.Errorf("%+v", c)
	}
	h.setRandomCommit("c2", "second", "a")
	h.expectCheck("another rendering", "", warned)
	h.setRandomCommit("c3", "third", "a")
	h.commit.Objects[0].Fields["data"].(map[string]any)["w"] = "of the commit"
	h.commit.Program = "another"
	h.r = New(h.r.Config, h)
	h.expectCheck("another field, program and hub", "apply a", warned)
	if w, _, _ := unstructured.NestedString(h.objects["configmaps/a"].Object, "data", "w"); h.readValue("a") != "first" || w != "of the commit" {
		t.Errorf("%v", h.objects["configmaps/a"].Object)
	}
	h.editSource(func(s *v1alpha1.SourceSpec) { now := metav1.Now(); s.SyncRequest = &now })
	h.setRandomCommit("c3", "fourth", "a")
	h.expectCheck("a sync", "apply a", warned)
	if h.readValue("a") != "first" {
		t.Errorf("%v", h.objects["configmaps/a"].Object)
	}
	h.setRandomCommit("c3b", "fifth", "a")
	delete(h.commit.Objects[0].Fields["data"].(map[string]any), "v")
	h.commit.Objects[0].Fields["data"].(map[string]any)["w"], h.commit.Objects[0].Generated = "of the commit", nil
	h.expectCheck("the field is dropped", "apply a", good)
	if h.readValue("a") != "" {
		t.Errorf("%v", h.objects["configmaps/a"].Object)
	}
	h.setCommit("c4", "a=stated")
	h.expectCheck("a stated value", "apply a", good)
	if c := meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceReproducible); c != nil || h.readValue("a") != "stated" {
		t.Errorf("%+v, %v", c, h.objects["configmaps/a"].Object)
	}
	h.setRandomCommit("c5", "fifth", "a")
	h.expectCheck("random again", "apply a", warned)
	if h.readValue("a") != "stated" {
		t.Errorf("%v", h.objects["configmaps/a"].Object)
	}
}

// New objects with values that can belong together are created of one rendering, or not at all.
func TestNewGeneratedObjectsAreOfOneRendering(t *testing.T) {
	h := newHub(t, branch)
	h.refuse["b"] = errors.New("refused")
	h.setRandomCommit("c1", "first", "a", "b")
	h.expectCheck("one is refused", "", "Applied=False/NotApplied")
	if s := h.readSource(); len(h.objects) != 0 || len(s.Status.Errors) != 2 || s.Status.Inventory != nil {
		t.Errorf("%v, %+v", h.objects, s.Status)
	}
	delete(h.refuse, "b")
	h.setRandomCommit("c1", "second", "a", "b")
	h.expectCheck("none is refused", "apply a, apply b", "Applied=True/Applied")
	if h.readValue("a") != "second" || h.readValue("b") != "second" {
		t.Errorf("%v", h.objects)
	}
	// An object that is there keeps its value, and holds no new one.
	h.refuse["b"] = errors.New("refused")
	h.setRandomCommit("c2", "third", "a", "b", "c")
	h.commit.Objects[1].Fields["data"].(map[string]any)["w"] = "x"
	h.expectCheck("one that is there is refused", "apply c", "Applied=False/"+string(atoll.ReasonNotApplied))
	if h.readValue("b") != "second" || h.readValue("c") != "third" {
		t.Errorf("%v", h.objects)
	}
}

// New objects with such values are created together with the namespace that the same content brings.
func TestNewGeneratedObjectsComeWithTheirNamespace(t *testing.T) {
	h := newHub(t, branch)
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
	h.refuse["a"], h.refuse["b"] = missing, missing
	h.setRandomCommit("c1", "first", "a", "b")
	space := render.Object{File: "a.yaml", Fields: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	h.commit.Objects = append([]render.Object{space}, h.commit.Objects...)
	h.during = func() { h.refuse = map[string]error{} } // the namespace is there
	h.expectCheck("the first commit", "apply a, apply b, apply shop", "Applied=True/Applied")
}
