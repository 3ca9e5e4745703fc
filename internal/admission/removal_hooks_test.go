package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// An order about the hooks of removals is Skip or Retry. Each refusal names the annotation.
func TestOrdersAboutRemovalHooks(t *testing.T) {
	of := func(order string) *unstructured.Unstructured {
		u := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Bundle, metadata: {name: web, namespace: shop}, spec: {source: {kind: Annotation}}}")
		if order != "" {
			u.SetAnnotations(map[string]string{atoll.AnnotationRemovalHooks: order})
		}
		return u
	}
	const refused = " is neither Skip nor Retry, which a hyphen and up to 20 small letters and digits may follow"
	for order, want := range map[string]string{
		"": "", "Skip": "", "Retry": "", "Retry-2": "", "Retry-": refused, "skip": refused, "Never": refused, "Retry-A": refused,
	} {
		a := requestOf("ann", of(order), of("Retry-1"))
		wantRefusal(t, order, newGrantingPlugin(Hub{}).Validate(t.Context(), a, nil), atoll.ReasonInvalidField, want)
	}
}
