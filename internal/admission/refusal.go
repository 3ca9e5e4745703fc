package admission

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// refuseRequest refuses a request, with the enumerated reason among the causes.
func refuseRequest(a admission.Attributes, reason atoll.Reason, err error) error {
	return refusal.WithReason(reason, admission.NewForbidden(a, err))
}

// refuseFields refuses an object because of the values of its fields.
func refuseFields(a admission.Attributes, reason atoll.Reason, errs ...*field.Error) error {
	return refusal.WithReason(reason, apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs))
}
