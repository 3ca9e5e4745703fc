package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

var (
	configMaps    = schema.GroupResource{Resource: "configmaps"}
	secretKey     = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}
	configMapKind = schema.GroupKind{Kind: "ConfigMap"}
)

// withCauses returns the error with causes; each is a type and a field.
func withCauses(err *apierrors.StatusError, causes ...[2]string) *apierrors.StatusError {
	err.ErrStatus.Details = &metav1.StatusDetails{}
	for _, c := range causes {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(c[0]), Field: c[1]})
	}
	return err
}

// withoutDetails returns the error without its details.
func withoutDetails(err *apierrors.StatusError) *apierrors.StatusError {
	err.ErrStatus.Details = nil
	return err
}

// A member that did not answer, or that asks to try later, is tried again soon. No object is blamed.
func TestAMemberThatDoesNotAnswerIsUnavailable(t *testing.T) {
	for name, err := range map[string]error{
		"the deadline passed":    context.DeadlineExceeded,
		"the request was ended":  context.Canceled,
		"the network failed":     &net.OpError{Op: "dial", Err: errors.New("no route")},
		"the request failed":     &url.Error{Op: "Get", URL: "https://member", Err: errors.New("no route")},
		"the port is closed":     fmt.Errorf("dial: %w", syscall.ECONNREFUSED),
		"the member hung up":     fmt.Errorf("read: %w", syscall.ECONNRESET),
		"the answer ends early":  io.EOF,
		"the server's timeout":   apierrors.NewServerTimeout(configMaps, "get", 1),
		"too many requests":      apierrors.NewTooManyRequests("slow down", 1),
		"the service is down":    apierrors.NewServiceUnavailable("down"),
		"the request's timeout":  apierrors.NewTimeoutError("late", 1),
		"the token ran out":      apierrors.NewUnauthorized("expired"),
		"a wrapped server error": fmt.Errorf("apply: %w", apierrors.NewServiceUnavailable("down")),
	} {
		t.Run(name, func(t *testing.T) {
			expectFailure(t, failureFromError(err, confKey), &Failure{
				Reason: atoll.ReasonMemberUnavailable, Transport: true, Most: 10 * time.Second, Message: err.Error(),
			})
		})
	}
}

// A refusal by the member has the reason of the refusal, and the member's words.
func TestARefusalHasItsReason(t *testing.T) {
	const right = `User "system:serviceaccount:atoll-system:atoll-agent" cannot patch resource "configmaps" in API group ""`
	named := errors.New("why")
	webhook := apierrors.NewForbidden(configMaps, "conf", errors.New(`admission webhook "x" denied it`))
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")
	missing.ErrStatus.Details.Kind = "namespaces"
	for name, c := range map[string]struct {
		err  error
		want Failure
	}{
		"an error of the agent itself":        {errors.New("two\n words"), Failure{Reason: atoll.ReasonApplyFailed, Message: "two words"}},
		"an error that no rule knows":         {apierrors.NewResourceExpired("gone"), Failure{Reason: atoll.ReasonApplyFailed, Message: "gone"}},
		"the namespace is being deleted":      {withCauses(apierrors.NewForbidden(configMaps, "conf", named), [2]string{string(corev1.NamespaceTerminatingCause), ""}), Failure{Reason: atoll.ReasonNamespaceTerminating, Waits: true, Most: 10 * time.Second, Message: "namespace shop is being deleted in the member: waiting for its end"}},
		"the object is invalid":               {apierrors.NewInvalid(configMapKind, "conf", nil), Failure{Reason: atoll.ReasonInvalid}},
		"a webhook denies it":                 {webhook, Failure{Reason: atoll.ReasonAdmissionDenied}},
		"an admission policy denies it":       {apierrors.NewForbidden(configMaps, "conf", errors.New("ValidatingAdmissionPolicy 'x' denied it")), Failure{Reason: atoll.ReasonAdmissionDenied}},
		"it is forbidden":                     {apierrors.NewForbidden(configMaps, "conf", named), Failure{Reason: atoll.ReasonForbidden}},
		"a right is missing":                  {apierrors.NewForbidden(configMaps, "conf", errors.New(right)), Failure{Reason: atoll.ReasonForbidden, Message: missingRightAdvice(right)}},
		"it is too large":                     {apierrors.NewRequestEntityTooLargeError("limit"), Failure{Reason: atoll.ReasonTooLarge}},
		"another writer came first":           {apierrors.NewConflict(configMaps, "conf", named), Failure{Reason: atoll.ReasonConflict}},
		"the namespace is missing":            {missing, Failure{Reason: atoll.ReasonNamespaceMissing, Most: 10 * time.Second}},
		"the kind is not served":              {apierrors.NewNotFound(configMaps, "conf"), Failure{Reason: atoll.ReasonNotServed, Most: 5 * time.Minute}},
		"the kind is not served, no details":  {withoutDetails(apierrors.NewNotFound(configMaps, "conf")), Failure{Reason: atoll.ReasonNotServed, Most: 5 * time.Minute}},
		"a namespace is named, but not found": {withNamespaceKind(apierrors.NewConflict(configMaps, "conf", named)), Failure{Reason: atoll.ReasonConflict}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want.Message == "" {
				c.want.Message = c.err.Error()
			}
			expectFailure(t, failureFromError(c.err, confKey), &c.want)
		})
	}
}

func withNamespaceKind(err *apierrors.StatusError) *apierrors.StatusError {
	err.ErrStatus.Details.Kind = "namespaces"
	return err
}

// The text of a refused Secret names the fields that are wrong, and none of the member's words: they quote values.
func TestNoValueOfASecretIsReported(t *testing.T) {
	quoting := func(err *apierrors.StatusError) *apierrors.StatusError {
		err.ErrStatus.Message = "value hunter2 is wrong"
		return err
	}
	invalid := func() *apierrors.StatusError {
		return quoting(withCauses(apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", nil), [2]string{"FieldValueInvalid", "data[a]"}, [2]string{"FieldValueInvalid", "type"}))
	}
	foreign := secretKey
	foreign.Group = "example.io"
	for name, c := range map[string]struct {
		err  error
		key  atoll.ItemKey
		want string
	}{
		"a Secret":                        {invalid(), secretKey, "the member refuses the Secret: Invalid data[a], type"},
		"a Secret without details":        {withoutDetails(quoting(apierrors.NewForbidden(configMaps, "s", nil))), secretKey, "the member refuses the Secret: Forbidden"},
		"a Secret that is not sent":       {errors.New("not sent"), secretKey, "not sent"},
		"another kind":                    {invalid(), confKey, "value hunter2 is wrong"},
		"a Secret of another group":       {invalid(), foreign, "value hunter2 is wrong"},
		"another kind of another group":   {invalid(), atoll.ItemKey{Group: "apps", Kind: "Deployment"}, "value hunter2 is wrong"},
		"a Secret with a missing right":   {withoutDetails(apierrors.NewForbidden(configMaps, "s", errors.New(`User "a" cannot patch resource "secrets" in API group ""`))), secretKey, missingRightAdvice(`User "a" cannot patch resource "secrets" in API group ""`)},
		"a text of a size without bounds": {errors.New(strings.Repeat("word ", 100)), confKey, truncateText(strings.Repeat("word ", 100))},
	} {
		t.Run(name, func(t *testing.T) {
			got := failureFromError(c.err, c.key).Message
			if got != c.want || len(got) > maxText {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

// An answer that the object has another UID is no answer that other managers own its fields.
func TestAnotherUIDIsToldApart(t *testing.T) {
	invalid := func() *apierrors.StatusError { return apierrors.NewInvalid(configMapKind, "conf", nil) }
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a conflict":                     {apierrors.NewConflict(configMaps, "conf", nil), true},
		"a conflict about fields":        {withCauses(apierrors.NewConflict(configMaps, "conf", nil), [2]string{string(metav1.CauseTypeFieldManagerConflict), "data"}), false},
		"an invalid UID":                 {withCauses(invalid(), [2]string{"FieldValueInvalid", "data"}, [2]string{"FieldValueInvalid", "metadata.uid"}), true},
		"another invalid field":          {withCauses(invalid(), [2]string{"FieldValueInvalid", "data"}), false},
		"invalid without details":        {withoutDetails(invalid()), false},
		"forbidden with a cause of UIDs": {withCauses(apierrors.NewForbidden(configMaps, "conf", nil), [2]string{"FieldValueInvalid", "metadata.uid"}), false},
		"no answer":                      {errors.New("no answer"), false},
	} {
		if got := isUIDMismatch(c.err); got != c.want {
			t.Errorf("%s: another UID is %t", name, got)
		}
	}
}

// Each failure in a row doubles the time until the next try, up to a bound. A quarter of it is left to chance.
func TestTriesWaitLongerAndLonger(t *testing.T) {
	for _, c := range []struct {
		f    Failure
		n    int
		want time.Duration
	}{
		{Failure{}, 0, time.Second},
		{Failure{}, 1, time.Second},
		{Failure{}, 2, 2 * time.Second},
		{Failure{}, 6, 32 * time.Second},
		{Failure{}, 7, time.Minute},
		{Failure{First: 100 * time.Millisecond, Most: time.Hour}, 3, 400 * time.Millisecond},
		{Failure{First: time.Millisecond, Most: time.Hour}, 15, 16384 * time.Millisecond},
		{Failure{First: time.Millisecond, Most: time.Hour}, 16, time.Hour},
		{Failure{First: time.Millisecond, Most: time.Hour}, 100, time.Hour},
		{Failure{First: 10 * time.Minute, Most: 10 * time.Minute}, 1, 10 * time.Minute},
	} {
		shortest, longest := time.Hour, time.Duration(0)
		for range 400 {
			d := c.f.retryDelay(c.n)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if longest > c.want || shortest < c.want-c.want/4 {
			t.Errorf("%+v waits %s to %s after failure %d, want %s less a quarter at most", c.f, shortest, longest, c.n, c.want)
		}
		if longest < c.want-c.want/16 || shortest > c.want-c.want*3/16 {
			t.Errorf("%+v waits %s to %s after failure %d, which are not spread over a quarter of %s", c.f, shortest, longest, c.n, c.want)
		}
	}
}
