package admission

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/internal/atoll"
)

// A new value of atoll.dev/clusters is refused where it cannot be honoured, where it names a cluster outside of
// the namespace's sets, and where its writer may not read what is placed. An unchanged value is not checked again.
func TestClustersAnnotationsThatAreRefused(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Sets: fakeSets{}})})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "reader" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	on := func(clusters string) *unstructured.Unstructured {
		return newThing("shop", map[string]string{atoll.AnnotationClusters: clusters})
	}
	inBlog := func(clusters string) *unstructured.Unstructured {
		return newThing("blog", map[string]string{atoll.AnnotationClusters: clusters})
	}
	for name, tc := range map[string]struct {
		user        string
		now, before *unstructured.Unstructured
		want        string
	}{
		"no annotation":                {"ann", newThing("shop", nil), nil, ""},
		"a cluster of its sets":        {"reader", on("tokyo"), nil, ""},
		"another cluster":              {"reader", on("oslo"), nil, `annotation atoll.dev/clusters: no cluster "oslo"`},
		"an edit to another cluster":   {"reader", on("oslo"), on("tokyo"), `annotation atoll.dev/clusters: no cluster "oslo"`},
		"no name":                      {"reader", on("Tokyo!"), nil, `metadata.annotations[atoll.dev/clusters]: Invalid value: "Tokyo!"`},
		"no name, as before":           {"reader", on("Tokyo!"), on("Tokyo!"), ""},
		"a writer that may not read":   {"ann", on("tokyo"), nil, "annotation atoll.dev/clusters: "},
		"the same, as before":          {"ann", on("tokyo"), on("tokyo"), ""},
		"on no cluster":                {"ann", on(""), nil, ""},
		"on no cluster any more":       {"ann", on(""), on("tokyo"), ""},
		"of a namespace without sets":  {"reader", inBlog("*"), nil, `annotation atoll.dev/clusters: namespace "blog" may place on no cluster`},
		"the same, kept before":        {"reader", inBlog("*"), inBlog(""), `annotation atoll.dev/clusters: namespace "blog" may place on no cluster`},
		"the same, malformed before":   {"reader", inBlog("*"), inBlog("Tokyo!"), `annotation atoll.dev/clusters: namespace "blog" may place on no cluster`},
		"the same, placed before":      {"reader", inBlog("*"), inBlog("tokyo"), ""},
		"a value where there was none": {"ann", on("tokyo"), newThing("shop", nil), "annotation atoll.dev/clusters: "},
	} {
		err := p.validateClustersAnnotation(t.Context(), thingAttributes(tc.user, tc.now, tc.before))
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, tc.want)
		}
	}
	of := func(kind string, o runtime.Object) admission.Attributes {
		gvk := schema.GroupVersionKind{Group: "atoll.dev", Version: "v1alpha1", Kind: kind}
		return admission.NewAttributesRecord(o, nil, gvk, "shop", "t", schema.GroupVersionResource{}, "", admission.Create, nil, false, &user.DefaultInfo{Name: "reader"})
	}
	if err := p.validateClustersAnnotation(t.Context(), of("Placement", on("tokyo"))); err == nil || !strings.Contains(err.Error(), "a Placement cannot be placed") {
		t.Errorf("a kind of the hub: %v", err)
	}
	if err := p.validateClustersAnnotation(t.Context(), of("Review", &metav1.Status{})); err != nil {
		t.Errorf("an object that is not stored: %v", err)
	}
}
