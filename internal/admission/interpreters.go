package admission

import (
	"fmt"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// validateInterpreter refuses an edit of what the hub made of a customization, since it
// would not last, and what does not compile.
func validateInterpreter(a admission.Attributes) error {
	now, before, err := typedObjects[v1alpha1.ResourceInterpreter](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil || before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return nil
	}
	if of := script.KarmadaSourceName(now); of != "" {
		return refuseRequest(a, atoll.ReasonWrittenByHub, fmt.Errorf("the hub makes it of the %s %s: edit that", karmada.CustomizationKind, of))
	}
	return refuseScriptErrors(a, script.CheckSpec(now.Spec))
}

// validateKarmadaCustomization refuses what would be refused as a ResourceInterpreter.
func validateKarmadaCustomization(a admission.Attributes) error {
	now, before, err := typedObjects[karmada.ResourceInterpreterCustomization](a)
	if err != nil {
		return err
	}
	if now.DeletionTimestamp != nil || before != nil && apiequality.Semantic.DeepEqual(before.Spec, now.Spec) {
		return nil
	}
	return refuseScriptErrors(a, script.CheckKarmada(now.Spec))
}

// refuseScriptErrors refuses with field, line and column.
func refuseScriptErrors(a admission.Attributes, found []*script.Error) error {
	var errs field.ErrorList
	for _, e := range found {
		at, why := e.Script, *e
		if at == "" {
			at = "spec"
		}
		why.Script = ""
		errs = append(errs, field.Invalid(field.NewPath(at), field.OmitValueType{}, strings.TrimPrefix(why.Error(), ", ")))
	}
	if len(errs) > 0 {
		return refuseFields(a, atoll.ReasonInvalidField, errs...)
	}
	return nil
}
