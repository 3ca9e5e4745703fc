// Package refusal puts an enumerated reason beside the sentence of an error.
//
// Contract: pure. The reason of an API status is a cause in its details, so that clients get it; every
// other error is wrapped. WithReason changes the status that it gets; all else may be called concurrently.
package refusal

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
)

type reasonedError struct {
	reason atoll.Reason
	error
}

func (e reasonedError) Unwrap() error { return e.error }

// WithReason returns an error with an enumerated reason and the same sentence. In an API status the cause
// repeats field and message of the first cause, because kubectl prints equal causes once.
func WithReason(reason atoll.Reason, err error) error {
	status, isStatus := err.(*apierrors.StatusError)
	if !isStatus {
		return reasonedError{reason, err}
	}
	if status.ErrStatus.Details == nil {
		status.ErrStatus.Details = &metav1.StatusDetails{}
	}
	details := status.ErrStatus.Details
	cause := metav1.StatusCause{Message: status.ErrStatus.Message}
	if len(details.Causes) > 0 {
		cause = details.Causes[0]
	}
	cause.Type = metav1.CauseType(reason)
	details.Causes = append(details.Causes, cause)
	return err
}

// ReasonOf returns the enumerated reason of an error; otherwise for an error without one.
func ReasonOf(err error, otherwise atoll.Reason) atoll.Reason {
	var reasoned reasonedError
	if errors.As(err, &reasoned) {
		return reasoned.reason
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range slices.Backward(status.Status().Details.Causes) {
			if reason := atoll.Reason(cause.Type); atoll.IsReason(reason) {
				return reason
			}
		}
	}
	return otherwise
}
