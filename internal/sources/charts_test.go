package sources

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

const chartRef = "{repository: repo, ref: {chart: shop, version: 1.x}, serviceAccountName: atoll-sources, prune: Remove}"

// newChartHub returns a hub whose Repository has charts.
func newChartHub(t *testing.T) *hub {
	t.Helper()
	h := newHub(t, chartRef)
	h.editRepository(func(spec *v1alpha1.RepositorySpec) {
		spec.Git, spec.Helm = nil, &v1alpha1.HelmRepository{URL: "oci://r.example.com/charts", SecretRef: &v1alpha1.RepositorySecretRef{Name: "token"}, CABundle: "pem"}
	})
	return h
}

// editRepository edits the spec of the Repository, as a user does.
func (h *hub) editRepository(change func(*v1alpha1.RepositorySpec)) {
	h.t.Helper()
	var repo v1alpha1.Repository
	if err := h.r.Client.Get(h.t.Context(), repoKey, &repo); err != nil {
		h.t.Fatal(err)
	}
	change(&repo.Spec)
	repo.Generation++
	if err := h.r.Client.Update(h.t.Context(), &repo); err != nil {
		h.t.Fatal(err)
	}
	h.refreshTables()
}

// setVersion brings a version of the chart with ConfigMaps, by NAME=VALUE.
func (h *hub) setVersion(version string, objects ...string) {
	h.setCommit("shop:"+version+"@sha256:0123456789abcdef", objects...)
	h.commit.Message, h.commit.Author = "", ""
}

// A version of a chart stands where a commit stands. A later one removes what it drops, also where the version is edited; an
// earlier one, and another archive of the same version, keep it.
func TestVersionsOfAChart(t *testing.T) {
	h := newChartHub(t)
	h.setVersion("1.0.0", "a=1", "b=1")
	h.expectCheck("the first version", "apply a, apply b", good)
	r := h.requests[0]
	if r.Type != fetch.TypeHelm || r.URL != "oci://r.example.com/charts" || r.Password != "hush" || r.CABundle != "pem" || r.Wants[0].Ref != "shop@1.x" {
		t.Errorf("%+v", r)
	}
	s := h.readSource()
	if s.Status.Commit != "shop:1.0.0@sha256:0123456789abcdef" || s.Status.ShortCommit != "1.0.0@0123456789ab" || s.Status.Message != "" {
		t.Errorf("%+v", s.Status)
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceApplied); c.Message != "2 objects on the hub as in the version" {
		t.Errorf("%+v", c)
	}
	repo, _ := h.tables.Repositories.Get(repoKey)
	if len(repo.Status.Refs) != 1 || repo.Status.Refs[0] != (v1alpha1.RepositoryRef{Ref: "shop@1.x", Commit: s.Status.Commit}) {
		t.Errorf("%+v", repo.Status.Refs)
	}
	h.setVersion("1.1.0", "a=1")
	h.expectCheck("a later version", "delete b", good)
	if got := strings.Join(h.events, "; "); !strings.Contains(got, "version 1.1.0@0123456789ab dropped ConfigMap b, deleted on the hub") {
		t.Errorf("events: %s", got)
	}
	h.editSource(func(spec *v1alpha1.SourceSpec) { spec.Ref.Version = "2.0.0" })
	h.setVersion("2.0.0", "c=1")
	h.expectCheck("a version that a person states", "apply c, delete a", good)
	h.descends = false
	h.setVersion("1.1.0", "a=1")
	h.expectCheck("an earlier version", "apply a", good)
	if s := h.readSource(); s.Status.Objects.Kept != 1 {
		t.Errorf("%+v", s.Status.Inventory)
	}
}

// A ref of another type of Repositories holds its Source, and an edit of either helps.
func TestRefsOfAnotherType(t *testing.T) {
	h := newChartHub(t)
	h.editSource(func(spec *v1alpha1.SourceSpec) { spec.Ref = v1alpha1.SourceRef{Branch: "main"} })
	h.setVersion("1.0.0", "a=1")
	h.runCheck()
	if got := meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceRendered); got.Reason != string(atoll.ReasonRefUnsupported) || !strings.Contains(got.Message, "state chart and version in spec.ref; what runs stays") {
		t.Errorf("%+v", got)
	}
	if s := h.readSource(); h.r.mayRetryInputs(s) {
		t.Error("the check is repeated although only an edit helps")
	}
	h.editSource(func(spec *v1alpha1.SourceSpec) { spec.Ref = v1alpha1.SourceRef{Chart: "shop", Version: "1.0.0"} })
	h.expectCheck("an edit of the Source", "apply a", good)
}

// A version that is missing, or is not as its digest states, removes nothing, and the reason is stated.
func TestMissingVersionsRemoveNothing(t *testing.T) {
	h := newChartHub(t)
	h.setVersion("1.0.0", "a=1")
	h.expectCheck("the first version", "apply a", good)
	for _, reason := range []atoll.Reason{atoll.ReasonVersionMissing, atoll.ReasonChartMissing, atoll.ReasonDigestMismatch} {
		h.commit = fetch.Content{Result: render.Result{Failure: render.NewFailure(reason, "no")}}
		h.expectCheck(string(reason), "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/"+string(reason))
	}
	h.setVersion("1.0.1")
	h.expectCheck("a chart without objects", "", "Applied=True/Applied Ready=False/Nowhere Rendered=False/ContentEmpty")
	if c := meta.FindStatusCondition(h.readSource().Status.Conditions, v1alpha1.SourceRendered); !strings.HasPrefix(c.Message, "version 1.0.1@0123456789ab: ") {
		t.Errorf("%+v", c)
	}
}
