package apply

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// Failure returns why an object is not as it should be.
type Failure struct {
	Reason  atoll.Reason
	Message string
	// Waits: nothing is wrong, something has to happen first.
	Waits bool
	// Transport: the member did not answer.
	Transport bool
	// First and Most bound the time until the next try.
	First, Most time.Duration
}

// retryDelay returns the delay until the next try, after n failures in a row: doubled each time, and
// spread by a quarter.
func (f *Failure) retryDelay(n int) time.Duration {
	first, most := f.First, f.Most
	if first == 0 {
		first = time.Second
	}
	if most == 0 {
		most = time.Minute
	}
	d := most
	if n < 16 {
		d = min(most, first<<max(0, n-1))
	}
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// maxText bounds messages that go into reports.
const maxText = 256

// failureFromError turns an error of the member's API into what people read.
func failureFromError(err error, key atoll.ItemKey) *Failure {
	status := apierrors.APIStatus(nil)
	f := &Failure{Reason: atoll.ReasonApplyFailed}
	switch {
	case isTransportError(err):
		f = &Failure{Reason: atoll.ReasonMemberUnavailable, Transport: true, Most: 10 * time.Second}
	case !errors.As(err, &status):
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		f = &Failure{Reason: atoll.ReasonNamespaceTerminating, Waits: true, Most: 10 * time.Second}
		f.Message = fmt.Sprintf("namespace %s is being deleted in the member: waiting for its end", key.Namespace)
		return f
	case apierrors.IsInvalid(err):
		f.Reason = atoll.ReasonInvalid
	case strings.Contains(err.Error(), "admission webhook") || strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		f.Reason = atoll.ReasonAdmissionDenied
	case apierrors.IsForbidden(err):
		f.Reason = atoll.ReasonForbidden
	case apierrors.IsRequestEntityTooLargeError(err):
		f.Reason = atoll.ReasonTooLarge
	case apierrors.IsConflict(err):
		f.Reason = atoll.ReasonConflict
	case isNamespaceMissing(err, status):
		f.Reason, f.Most = atoll.ReasonNamespaceMissing, 10*time.Second
	case apierrors.IsNotFound(err):
		f.Reason, f.Most = atoll.ReasonNotServed, 5*time.Minute
	}
	f.Message = errorText(err, status, key)
	return f
}

// errorText returns the text of the error. Values of Secrets never get into it.
func errorText(err error, status apierrors.APIStatus, key atoll.ItemKey) string {
	if apierrors.IsForbidden(err) {
		if advice := missingRightAdvice(err.Error()); advice != "" {
			return truncateText(advice)
		}
	}
	if key.Group == "" && key.Kind == "Secret" && status != nil {
		var fields []string
		if d := status.Status().Details; d != nil {
			for _, c := range d.Causes {
				fields = append(fields, c.Field)
			}
		}
		return truncateText(fmt.Sprintf("the member refuses the Secret: %s %s", status.Status().Reason, strings.Join(fields, ", ")))
	}
	return truncateText(err.Error())
}

// isNamespaceMissing reports whether the member has no such namespace.
func isNamespaceMissing(err error, status apierrors.APIStatus) bool {
	return apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// isTransportError reports whether the member did not answer, or refused temporarily.
func isTransportError(err error) bool {
	var netErr net.Error // also a passed deadline, and a connection that is refused or reset
	return errors.As(err, &netErr) || errors.Is(err, context.Canceled) ||
		utilnet.IsProbableEOF(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsUnauthorized(err)
}

func truncateText(s string) string {
	return phrase.TruncateText(strings.Join(strings.Fields(s), " "), maxText)
}

// isUIDMismatch reports whether the error means that the object has another UID.
func isUIDMismatch(err error) bool {
	if apierrors.IsConflict(err) {
		return !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict)
	}
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, c := range status.Status().Details.Causes {
		if c.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
