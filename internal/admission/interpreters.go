package admission

import (
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/interpret/script"
)

// validateInterpreter compiles what a ResourceInterpreter says: what does not compile is
// refused with line and column.
func validateInterpreter(a admission.Attributes) error {
	now, before, err := typed[v1alpha1.ResourceInterpreter](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil || before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return nil
	}
	var errs field.ErrorList
	for _, e := range script.Check(now.Spec) {
		at, why := e.Script, *e
		if at == "" {
			at = "spec"
		}
		why.Script = ""
		errs = append(errs, field.Invalid(field.NewPath(at), field.OmitValueType{}, strings.TrimPrefix(why.Error(), ", ")))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs)
	}
	return nil
}
