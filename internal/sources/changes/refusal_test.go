package changes

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
)

// typeError is the answer of the API to a number in place of a text.
const typeError = `failed to create typed patch object (shop/cred; /v1, Kind=Secret): .stringData.pin: expected string, got &value.valueUnstructured{Value:4711}`

func newStatus(code int32, reason metav1.StatusReason, text string, causes ...metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: text, Details: &metav1.StatusDetails{Causes: causes}}}
}

func TestErrorsAtSecretsHaveNoValues(t *testing.T) {
	secret := v1alpha1.SourceObject{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: "cred"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a type": {newStatus(500, "", typeError), ".stringData.pin: expected string"},
		"two types": {newStatus(500, "", "failed: errors:\n  .data.a: expected string, got 4711\n  .data.b: expected string, got 4711\n"),
			".data.a: expected string"},
		"a field": {newStatus(422, metav1.StatusReasonInvalid, `Invalid value: "4711"`, metav1.StatusCause{Field: "data[a]", Type: metav1.CauseTypeFieldValueInvalid, Message: `Invalid value: "4711"`}),
			"data[a]: FieldValueInvalid"},
		"a whole patch": {newStatus(422, metav1.StatusReasonInvalid, "4711", metav1.StatusCause{Field: "patch", Message: "4711"}), "left out"},
		"malformed":     {newStatus(400, metav1.StatusReasonBadRequest, "illegal data in 4711"), "left out"},
		"forbidden":     {apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "cred", errors.New("no right")), "no right"},
	} {
		if got := DescribeError(newReader(), secret, tc.err); !strings.Contains(got, tc.want) || strings.Contains(got, "4711") {
			t.Errorf("%s: %s", name, got)
		}
	}
	settings := v1alpha1.SourceObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "cred"}
	if got := DescribeError(newReader("ConfigMap/a/"), settings, newStatus(500, "", typeError)); got != typeError {
		t.Errorf("a ConfigMap: %s", got)
	}
	// Any object can be made of a value of a Secret that the Source reads.
	if got := DescribeError(newReader("Secret/a/"), settings, newStatus(500, "", typeError)); !strings.Contains(got, ".stringData.pin") || strings.Contains(got, "4711") {
		t.Errorf("a ConfigMap of a Source that reads Secrets: %s", got)
	}
}

func TestRefusalsAreOfTheObject(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"a type":             {newStatus(500, "", typeError), true},
		"a failed hook":      {newStatus(500, metav1.StatusReasonInternalError, "failed calling webhook"), true},
		"a kind of no patch": {newStatus(405, metav1.StatusReasonMethodNotAllowed, "no patch"), true},
		"forbidden":          {newStatus(403, metav1.StatusReasonForbidden, "no right"), true},
		"no credentials":     {newStatus(401, metav1.StatusReasonUnauthorized, "log in"), false},
		"too many requests":  {newStatus(429, metav1.StatusReasonTooManyRequests, "wait"), false},
		"a hub that starts":  {newStatus(503, metav1.StatusReasonServiceUnavailable, "wait"), false},
		"a late answer":      {newStatus(504, metav1.StatusReasonTimeout, "late"), false},
		"no answer":          {http.ErrServerClosed, false},
	} {
		if got := IsRefusal(tc.err); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
