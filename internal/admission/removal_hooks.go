package admission

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/atoll"
)

// validateRemovalHooks refuses an order about the hooks of removals that has no meaning. An order can be taken back.
func validateRemovalHooks(a admission.Attributes) error {
	bundle, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	order, stated := bundle.GetAnnotations()[atoll.AnnotationRemovalHooks]
	if !stated {
		return nil
	}
	if err := atoll.CheckRemovalHooks(order); err != nil {
		at := field.NewPath("metadata", "annotations").Key(atoll.AnnotationRemovalHooks)
		return refuseFields(a, atoll.ReasonInvalidField, field.Invalid(at, "", err.Error()))
	}
	return nil
}
