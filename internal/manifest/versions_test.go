package manifest_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/schedule"
)

// fakeVersions are versions of a cluster that serves Jobs as batch/v2 and batch/v0. Fields of refused, by
// version, cannot be converted.
type fakeVersions struct {
	refused     map[string]string
	conversions int
	panics      bool
}

func (f *fakeVersions) ListReplacements(apiVersion, kind string) []string {
	return f.ListOtherVersions(apiVersion, kind)
}

func (f *fakeVersions) ListOtherVersions(apiVersion, kind string) []string {
	if apiVersion == "batch/v1" && kind == "Job" {
		return []string{"batch/v2", "batch/v0"}
	}
	return nil
}

func (f *fakeVersions) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	f.conversions++
	if f.panics {
		panic("a defect")
	}
	if field := f.refused[apiVersion]; field != "" {
		return nil, errors.New("cannot hold " + field)
	}
	out := maps.Clone(object)
	out["apiVersion"] = apiVersion
	return out, nil
}

// versionedContent is newContent as this hub reads it.
func versionedContent(rules ...atoll.Rule) *atoll.Content {
	c := newContent(rules...)
	for i := range c.Items {
		c.Items[i].VersionChoice = atoll.CurrentVersionChoice
	}
	return c
}

func viewWith(name string, v atoll.MemberVersions) *atoll.ClusterView {
	return &atoll.ClusterView{Name: name, Versions: v}
}

func apiVersionIn(t *testing.T, object json.RawMessage) string {
	t.Helper()
	var o struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		t.Fatal(err)
	}
	return o.APIVersion
}

func TestAnItemComesInTheVersionThatTheClusterServes(t *testing.T) {
	c := versionedContent()
	plain, _ := renderedItem(t, c, manifest.RenderInput{Cluster: viewWith("a", nil)}, jobKey)
	for name, tc := range map[string]struct {
		versions *fakeVersions
		want     string
	}{
		"the best":               {&fakeVersions{}, "batch/v2"},
		"the best loses a field": {&fakeVersions{refused: map[string]string{"batch/v2": "/spec/x"}}, "batch/v0"},
	} {
		t.Run(name, func(t *testing.T) {
			r, notes := renderedItem(t, c, manifest.RenderInput{Cluster: viewWith("a", tc.versions)}, jobKey)
			if r.Failed() || r.APIVersion != tc.want || apiVersionIn(t, r.Object) != tc.want || r.Hash == plain.Hash || r.Key != jobKey {
				t.Errorf("got %+v", r)
			}
			want := []overrides.Provenance{{Item: jobKey, Path: "/apiVersion", Policy: overrides.PolicyServedVersions, Value: tc.want}}
			if !reflect.DeepEqual(notes, want) {
				t.Errorf("notes %v", notes)
			}
			if web, _ := renderedItem(t, c, manifest.RenderInput{Cluster: viewWith("a", tc.versions)}, webKey); web.APIVersion != "apps/v1" {
				t.Errorf("the Deployment is %s", web.APIVersion)
			}
		})
	}
}

// Clusters that serve the same share one conversion, and those with other versions have other variants.
func TestVersionsAreConvertedOnceAndNameVariants(t *testing.T) {
	c, shared := versionedContent(), &fakeVersions{}
	renderer := manifest.NewRenderer(c)
	cache := manifest.NewVariantCache(c)
	var variants []string
	for _, cluster := range []string{"a", "b", "c"} {
		view := viewWith(cluster, shared)
		rules, variant := renderer.MatchRules(view)
		_, again := manifest.MatchRules(c, *view)
		if third := cache.VariantOf(*view); variant == "" || variant != again || variant != third {
			t.Errorf("%s has the variants %q, %q and %q", cluster, variant, again, third)
		}
		renderer.RenderItems(manifest.RenderInput{Rules: rules, Cluster: view})
		variants = append(variants, variant)
	}
	if shared.conversions != 1 || len(slices.Compact(variants)) != 1 {
		t.Errorf("%d conversions, variants %v", shared.conversions, variants)
	}
	if _, variant := renderer.MatchRules(viewWith("d", nil)); variant != "" {
		t.Errorf("a cluster that serves all versions has the variant %q", variant)
	}
}

// The versions count beside the rules that match a cluster.
func TestAVariantHasRulesAndVersions(t *testing.T) {
	rule := newRule("OverridePolicy/shop/p", plaintextOverriders(v1alpha1.OverrideAdd, "/metadata/labels", `{"a":"b"}`), jobKey)
	rule.Target = &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"a", "b"}}}
	c, v := versionedContent(rule), &fakeVersions{}
	seen := map[string]string{}
	for name, view := range map[string]*atoll.ClusterView{
		"rule": viewWith("a", nil), "rule and versions": viewWith("b", v), "versions": viewWith("c", v), "none": viewWith("d", nil),
	} {
		_, variant := manifest.MatchRules(c, *view)
		if other := seen[variant]; other != "" {
			t.Errorf("%s and %s have one variant", name, other)
		}
		seen[variant] = name
	}
	r, notes := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}, Cluster: viewWith("b", v)}, jobKey)
	if !strings.Contains(string(r.Object), `"labels":{"a":"b"}`) || r.APIVersion != "batch/v2" || len(notes) != 2 {
		t.Errorf("got %s, notes %v", r.Object, notes)
	}
}

func TestAnObjectThatNoVersionHoldsHasAnError(t *testing.T) {
	c := versionedContent()
	lossy := &fakeVersions{refused: map[string]string{"batch/v2": "/spec/x", "batch/v0": "/spec/y"}}
	for name, tc := range map[string]struct {
		versions *fakeVersions
		want     []string
	}{
		"lossy":  {lossy, []string{"batch/v1", "batch/v2 cannot hold /spec/x", "batch/v0 cannot hold /spec/y"}},
		"panics": {&fakeVersions{panics: true}, []string{"a defect of Atoll"}},
	} {
		items, _ := manifest.RenderItems(c, manifest.RenderInput{Cluster: viewWith("a", tc.versions)})
		for _, r := range items {
			if r.Key != jobKey {
				if r.Failed() {
					t.Errorf("%s: %s failed, too", name, r.Key)
				}
				continue
			}
			if !r.Failed() || r.Object != nil || r.ErrorReason != atoll.ReasonVersionLosesFields {
				t.Errorf("%s: %+v", name, r)
			}
			for _, part := range tc.want {
				if !strings.Contains(r.Error, part) {
					t.Errorf("%s: the error %q lacks %q", name, r.Error, part)
				}
			}
		}
	}
}

// A field that the member owns must be the same field in the other version.
func TestMemberOwnedFieldsOfAnotherVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		treatment *atoll.Treatment
		failed    bool
	}{
		"the same field":     {&atoll.Treatment{IgnoreFields: []string{"/spec/template"}}, false},
		"a field that moves": {&atoll.Treatment{IgnoreFields: []string{"/apiVersion"}}, true},
	} {
		c := versionedContent()
		c.Items[2].Treatment = tc.treatment
		r, _ := renderedItem(t, c, manifest.RenderInput{Cluster: viewWith("a", &fakeVersions{})}, jobKey)
		if r.Failed() != tc.failed {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestFindVersionLosses(t *testing.T) {
	c := versionedContent()
	if got := manifest.FindVersionLosses(newContent(), &fakeVersions{}); got != nil {
		t.Errorf("of templates that an older hub read: %v", got)
	}
	second := newItem(atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "k"}, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"k"}}`)
	second.VersionChoice = atoll.CurrentVersionChoice
	c.Items = append(c.Items, second)
	v := &fakeVersions{refused: map[string]string{"batch/v2": "/spec/x"}}
	got := manifest.FindVersionLosses(c, v)
	want := schedule.VersionLosses{"batch/v1/Job": {"batch/v2": "cannot hold /spec/x", "batch/v0": ""}}
	if !reflect.DeepEqual(got, want) || v.conversions != 4 {
		t.Errorf("got %v by %d conversions", got, v.conversions)
	}
	if got := manifest.FindVersionLosses(c, nil); got != nil {
		t.Errorf("no cluster: %v", got)
	}
}

// A hub that newly converts a kind changes nothing that members have: items whose templates an older hub read keep their
// version and their variant until a user edits them.
func TestItemsOfAnOlderHubKeepTheirVersion(t *testing.T) {
	c, v := newContent(), &fakeVersions{}
	if _, variant := manifest.MatchRules(c, *viewWith("a", v)); variant != "" {
		t.Errorf("the variant is %q", variant)
	}
	if r, _ := renderedItem(t, c, manifest.RenderInput{Cluster: viewWith("a", v)}, jobKey); r.APIVersion != "batch/v1" || v.conversions != 0 {
		t.Errorf("got %+v", r)
	}
	if got := manifest.ListFixedKinds(c, v); !slices.Equal(got, []string{"batch/v1/Job"}) {
		t.Errorf("fixed: %v", got)
	}
	if got := manifest.ListFixedKinds(versionedContent(), v); len(got) > 0 {
		t.Errorf("fixed though this hub read them: %v", got)
	}
}

// A content that brings the definition of a kind waits for it in the member. It does not go there in an older version first, which may
// lack its fields.
func TestAnItemWhoseDefinitionComesAlongKeepsItsVersion(t *testing.T) {
	for name, tc := range map[string]struct{ version, want string }{
		"its version": {"v1", "batch/v1"}, "another version": {"v3", "batch/v2"},
	} {
		c, v := versionedContent(), &fakeVersions{}
		c.Items = append(c.Items, newItem(atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "jobs.batch"},
			`{"spec":{"group":"batch","names":{"kind":"Job"},"versions":[{"name":"`+tc.version+`"}]}}`))
		if r, _ := renderedItem(t, c, manifest.RenderInput{Cluster: viewWith("a", v)}, jobKey); r.APIVersion != tc.want {
			t.Errorf("%s comes along: got %+v", name, r)
		}
		if _, variant := manifest.MatchRules(c, *viewWith("a", v)); (variant == "") != (tc.want == "batch/v1") {
			t.Errorf("%s comes along: the variant is %q", name, variant)
		}
	}
}
