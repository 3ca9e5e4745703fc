package refusal

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/internal/atoll"
)

func TestReasonsAreReadBack(t *testing.T) {
	plain := errors.New("no right")
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Cluster"}, "m1", field.ErrorList{field.Required(field.NewPath("spec"), "give one")})
	for _, tc := range []struct {
		name string
		err  error
		want atoll.Reason
	}{
		{"a wrapped error", fmt.Errorf("rule 1: %w", WithReason(atoll.ReasonPermissionMissing, plain)), atoll.ReasonPermissionMissing},
		{"an API status", WithReason(atoll.ReasonProtected, apierrors.NewForbidden(schema.GroupResource{}, "x", plain)), atoll.ReasonProtected},
		{"an API status without details", WithReason(atoll.ReasonHubStarting, apierrors.NewServiceUnavailable("starting")), atoll.ReasonHubStarting},
		{"an API status with causes of Kubernetes", WithReason(atoll.ReasonInvalidField, invalid), atoll.ReasonInvalidField},
		{"an error without a reason", plain, atoll.ReasonRefused},
		{"a cause that is no reason", &apierrors.StatusError{ErrStatus: metav1.Status{Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid}}}}}, atoll.ReasonRefused},
	} {
		if got := ReasonOf(tc.err, atoll.ReasonRefused); got != tc.want {
			t.Errorf("%s: the reason is %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAReasonKeepsTheSentence(t *testing.T) {
	if plain := errors.New("no right"); WithReason(atoll.ReasonProtected, plain).Error() != plain.Error() || !errors.Is(WithReason(atoll.ReasonProtected, plain), plain) {
		t.Error("a wrapped error has another sentence, or is another error")
	}
	err := apierrors.NewInvalid(schema.GroupKind{Kind: "Cluster"}, "m1", field.ErrorList{field.Required(field.NewPath("spec"), "give one")})
	before, causes := err.Error(), err.ErrStatus.Details.Causes
	if WithReason(atoll.ReasonInvalidField, err).Error() != before {
		t.Errorf("the sentence %q became %q", before, err)
	}
	last := err.ErrStatus.Details.Causes[len(causes)]
	if last.Type != metav1.CauseType(atoll.ReasonInvalidField) || last.Field != causes[0].Field || last.Message != causes[0].Message {
		t.Errorf("the cause %+v does not repeat field and message of %+v", last, causes[0])
	}
}
