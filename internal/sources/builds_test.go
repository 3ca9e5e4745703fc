package sources

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// readRendered returns the condition Rendered of the Source.
func (h *hub) readRendered() metav1.Condition {
	h.t.Helper()
	return *meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceRendered)
}

// The status has the paths that were built, and the hooks that are left out, also after a commit that changes nothing.
func TestBuildsAreReported(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1")
	h.commit.Builds = []render.Build{{Type: render.Helm, Dir: "", Chart: "shop-1.0.0\n"}, {Type: render.Kustomize, Dir: "over"}}
	h.commit.Omitted = 2
	h.runCheck()
	want := []v1alpha1.SourceBuilt{{Path: ".", Type: v1alpha1.BuildHelm, Chart: `shop-1.0.0\x0a`}, {Path: "over", Type: v1alpha1.BuildKustomize}}
	st := h.readSource().Status
	if len(st.Builds) != 2 || st.Builds[0] != want[0] || st.Builds[1] != want[1] || st.Objects.Omitted != 2 {
		t.Errorf("%+v", st)
	}
	h.commit.Commit = "c2"
	if h.runCheck() != "" || !strings.Contains(h.readRendered().Message, "2 hooks of Helm left out") {
		t.Errorf("%+v", h.readRendered())
	}
	h.setCommit("c3", "a=2")
	h.runCheck()
	if st := h.readSource().Status; len(st.Builds) != 0 || st.Objects.Omitted != 0 || strings.Contains(h.readRendered().Message, "hooks") {
		t.Errorf("plain files again: %+v", st)
	}
}

// Content that cannot be rendered as it is removes nothing, and is not read again until another commit arrives. Content
// that another try may mend is read again.
func TestContentThatIsNotRenderedRemovesNothing(t *testing.T) {
	for reason, settles := range map[atoll.Reason]bool{atoll.ReasonHooksUnsupported: true, atoll.ReasonNotReproducible: true, atoll.ReasonBuildFailed: false} {
		h := newHub(t, branch)
		h.setCommit("c1", "a=1", "b=1")
		h.runCheck()
		h.commit = fetch.Content{Commit: "c2", Digest: "d", Result: render.Result{Failure: &render.Failure{Reason: reason, Message: "no"}}}
		if writes := h.runCheck(); writes != "" {
			t.Errorf("%s: %s", reason, writes)
		}
		c, s := h.readRendered(), h.readSource()
		if isSettled(s) && isContentBad(s) != settles || settles && c.Reason != string(reason) {
			t.Errorf("%s: settled %v, %+v", reason, isSettled(s), c)
		}
		h.setCommit("c3", "a=1")
		if writes := h.runCheck(); writes != "delete b" {
			t.Errorf("%s: the next commit: %q", reason, writes)
		}
	}
}

// Another version of what renders, or another type of a path, removes nothing. A Source without a build keeps its settings.
func TestAnotherProgramRemovesNothing(t *testing.T) {
	helm := []render.Build{{Type: render.Helm, Dir: "a", Chart: "a-1"}}
	for name, next := range map[string]render.Result{
		"another program": {Builds: helm, Program: "helm@5"}, "another type": {Builds: []render.Build{{Type: render.Kustomize, Dir: "a"}}, Program: "helm@4"}, "plain files": {},
		"another version of a chart": {Builds: []render.Build{{Type: render.Helm, Dir: "a", Chart: "a-2"}}, Program: "helm@4"},
	} {
		h := newHub(t, branch)
		h.setCommit("c1", "a=1", "b=1")
		h.commit.Builds, h.commit.Program = helm, "helm@4"
		h.runCheck()
		h.setCommit("c2", "a=2")
		h.commit.Builds, h.commit.Program = next.Builds, next.Program
		writes := h.runCheck()
		if name == "another version of a chart" {
			if writes != "apply a, delete b" {
				t.Errorf("%s: %s", name, writes)
			}
			continue
		}
		if o := h.readSource().Status.Inventory[1]; writes != "apply a" || o.Name != "b" || o.Kept != string(atoll.ReasonSettingsChanged) {
			t.Errorf("%s: %s, %+v", name, writes, o)
		}
	}
	h := newHub(t, branch)
	before := changes.DigestSettings(h.readSource(), "", render.Result{}, "")
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Build = &v1alpha1.SourceBuild{Type: v1alpha1.BuildHelm} })
	if changes.DigestSettings(h.readSource(), "", render.Result{}, "") == before {
		t.Error("another build has the same settings")
	}
}

// An object that Helm's annotation keeps stays when a commit drops it.
func TestHelmsAnnotationKeeps(t *testing.T) {
	h := newHub(t, branch)
	h.setCommit("c1", "a=1", "b=1")
	h.commit.Objects[1].Fields["metadata"].(map[string]any)["annotations"] = map[string]any{"helm.sh/resource-policy": "keep"}
	h.runCheck()
	h.setCommit("c2", "a=1")
	if writes := h.runCheck(); writes != "" {
		t.Error(writes)
	}
	if o := h.readSource().Status.Inventory[1]; o.Name != "b" || o.Kept != string(atoll.ReasonPolicyKeeps) {
		t.Errorf("%+v", o)
	}
}
