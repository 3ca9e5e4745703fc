package admission

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	testingclock "k8s.io/utils/clock/testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// bundleOf a policy, with annotations in pairs.
func bundleOf(source string, annotations ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "Bundle", "metadata": map[string]any{"name": "web", "namespace": "shop"},
		"spec": map[string]any{"source": map[string]any{"kind": source, "name": "web"}},
	}}
	for i := 0; i < len(annotations); i += 2 {
		_ = unstructured.SetNestedField(u.Object, annotations[i+1], "metadata", "annotations", annotations[i])
	}
	return u
}

// A user that may write the policy may request that its Bundle be placed from scratch, with a
// present time, and change nothing else by it.
func TestWhoMayRebalance(t *testing.T) {
	clock := time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return atoll.FormatRebalanceTime(clock.Add(d)) }
	rights := map[string]bool{
		"author update propagationpolicies/web in shop":      true,
		"fleet update propagationpolicies/web in shop":       true,
		"fleet update clusterpropagationpolicies/web in ":    true,
		"author patch bundles/web in shop":                   true,
		"viewer get bundles/web in shop":                     true,
		"confirmer patch bundles/web in shop":                true,
		"confirmer update propagationpolicies/other in shop": true,
	}
	p := New(Options{Own: func(user.Info) bool { return false }, Clock: testingclock.NewFakePassiveClock(clock)})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if rights[a.GetUser().GetName()+" "+a.GetVerb()+" "+a.GetResource()+"/"+a.GetName()+" in "+a.GetNamespace()] {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	const pp, cpp = v1alpha1.SourcePropagationPolicy, v1alpha1.SourceClusterPropagationPolicy
	ask := atoll.AnnotationRebalance
	for name, tc := range map[string]struct {
		who         string
		before, now *unstructured.Unstructured
		want        string
	}{
		"the policy's author":        {"author", bundleOf(pp), bundleOf(pp, ask, at(-time.Minute)), ""},
		"again, later":               {"author", bundleOf(pp, ask, at(-time.Hour)), bundleOf(pp, ask, at(0)), ""},
		"beside an older answer":     {"author", bundleOf(pp, atoll.AnnotationConfirm, "x"), bundleOf(pp, atoll.AnnotationConfirm, "x", ask, at(0)), ""},
		"of an annotation":           {"confirmer", bundleOf(v1alpha1.SourceAnnotation), bundleOf(v1alpha1.SourceAnnotation, ask, at(0)), ""},
		"taken back":                 {"author", bundleOf(pp, ask, at(-time.Hour)), bundleOf(pp), ""},
		"a cluster policy, by fleet": {"fleet", bundleOf(cpp), bundleOf(cpp, ask, at(0)), ""},
		"a cluster policy":           {"author", bundleOf(cpp), bundleOf(cpp, ask, at(0)), "must be able to update that"},
		"another's policy":           {"confirmer", bundleOf(pp), bundleOf(pp, ask, at(0)), "must be able to update that"},
		"no time":                    {"author", bundleOf(pp), bundleOf(pp, ask, "now"), "must be a time such as 2026-11-22T13:00:00.000Z"},
		"a time to come":             {"author", bundleOf(pp), bundleOf(pp, ask, at(time.Hour)), "must be a time of the last 10m"},
		"a time long ago":            {"author", bundleOf(pp), bundleOf(pp, ask, at(-time.Hour)), "must be a time of the last 10m"},
		"earlier than the last":      {"author", bundleOf(pp, ask, at(0)), bundleOf(pp, ask, at(-time.Second)), "must be later than the last one"},
		"with another change":        {"author", bundleOf(pp), bundleOf(cpp, ask, at(0)), "only the annotation"},
		"two at a time":              {"author", bundleOf(pp), bundleOf(pp, ask, at(0), atoll.AnnotationConfirm, "x"), "one at a time"},
		"a confirmation, as ever":    {"confirmer", bundleOf(pp), bundleOf(pp, atoll.AnnotationConfirm, "x"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: "Bundle"}
			a := admission.NewAttributesRecord(tc.now, tc.before, gvk, "shop", "web", gvk.GroupVersion().WithResource("bundles"), "", admission.Update, nil, false, &user.DefaultInfo{Name: tc.who})
			err := p.Validate(t.Context(), a, nil)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			wantReason(t, err)
		})
	}
	may := func(who, kind string) bool {
		return p.MayRebalance(t.Context(), &user.DefaultInfo{Name: who}, "shop", "web", v1alpha1.BundleSource{Kind: kind, Name: "web"}) == nil
	}
	if !may("author", pp) || may("author", cpp) || may("viewer", pp) || may("fleet", pp) || may("confirmer", pp) || !may("confirmer", v1alpha1.SourceAnnotation) {
		t.Error("a preview promises what a write is refused, or the other way round")
	}
}
