package sources

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// newVariantHub returns a hub whose Source takes versions of a chart, with a variant.
func newVariantHub(t *testing.T) *hub {
	t.Helper()
	h := newChartHub(t)
	h.editSource(func(s *v1alpha1.SourceSpec) {
		s.Variants = []v1alpha1.SourceVariant{{Name: "one", TargetCluster: v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}}}}
	})
	return h
}

// setVariantsOfVersion brings a version of the chart, with values as setVariants has.
func (h *hub) setVariantsOfVersion(version, value, variant string) {
	h.setVariants("shop:"+version+"@sha256:0123456789abcdef", value, variant)
}

// A registry that lost a version gives an earlier one, which no person stated. It takes no object out of the clusters of a variant, until a
// person states it or the later version is there again.
func TestAWithdrawnVersionExcludesNothing(t *testing.T) {
	withdraw := func(t *testing.T) *hub {
		h := newVariantHub(t)
		h.setVariantsOfVersion("1.1.0", "1", "3")
		h.runCheck()
		h.descends = false
		h.setVariantsOfVersion("1.0.0", "1", "-")
		for range 2 {
			if got := h.runInOrder(); got != "" || len(h.readSource().Status.Errors) == 0 || !strings.Contains(h.readSource().Status.Errors[0].Message, "would take its object out of clusters") {
				t.Errorf("an earlier version: %s; %+v", got, h.readSource().Status.Errors)
			}
		}
		return h
	}
	h := withdraw(t)
	h.descends = true
	h.setVariantsOfVersion("1.1.0", "1", "3")
	if got := h.runInOrder(); got != "" || h.readSource().Status.WaitsFor != "" && !strings.Contains(h.readSource().Status.WaitsFor, "no policy") {
		t.Errorf("the later version is there again: %s; %s", got, h.readSource().Status.WaitsFor)
	}
	h.setVariantsOfVersion("1.2.0", "1", "-")
	if h.runInOrder(); strings.Join(h.listPolicies(), " ") != "map[notHere:true]" {
		t.Errorf("a later version: %v", h.listPolicies())
	}
	h = withdraw(t)
	now := metav1.Now().Rfc3339Copy()
	h.editSource(func(s *v1alpha1.SourceSpec) { s.SyncRequest = &now })
	if h.runInOrder(); strings.Join(h.listPolicies(), " ") != "map[notHere:true]" {
		t.Errorf("a sync: %v", h.listPolicies())
	}
	h = newVariantHub(t)
	h.setVariantsOfVersion("1.1.0", "1", "3")
	h.runCheck()
	h.descends = false
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Ref.Version = "1.0.0" })
	h.setVariantsOfVersion("1.0.0", "1", "-")
	if h.runInOrder(); strings.Join(h.listPolicies(), " ") != "map[notHere:true]" {
		t.Errorf("a version that a person states: %v", h.listPolicies())
	}
}

// Content that is bad does not hide that the Repository became one of another type, which only an edit mends.
func TestRefsOfAnotherTypeAfterBadContent(t *testing.T) {
	h := newHub(t, chartRef)
	h.editSource(func(s *v1alpha1.SourceSpec) { s.Ref = v1alpha1.SourceRef{Branch: "main"} })
	h.setCommit("c1", "a=1")
	h.commit.Problems = []render.Problem{{File: "a.yaml", Line: 1, Message: "no"}}
	h.runCheck()
	if got := h.readRendered().Reason; got != string(atoll.ReasonContentInvalid) {
		t.Fatal(got)
	}
	h.editRepository(func(spec *v1alpha1.RepositorySpec) {
		spec.Git, spec.Helm = nil, &v1alpha1.HelmRepository{URL: "https://charts.example.com"}
	})
	h.runCheck()
	if got := h.readRendered().Reason; got != string(atoll.ReasonRefUnsupported) || h.r.mayRetryInputs(h.readSource()) {
		t.Errorf("%s, repeated %v", got, h.r.mayRetryInputs(h.readSource()))
	}
	h.editRepository(func(spec *v1alpha1.RepositorySpec) {
		spec.Git, spec.Helm = &v1alpha1.GitRepository{URL: "https://git.example.com/shop.git"}, nil
	})
	h.runCheck()
	if got := h.readRendered().Reason; got != string(atoll.ReasonContentInvalid) {
		t.Errorf("back again: %s", got)
	}
}
