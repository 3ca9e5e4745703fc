package view

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// TestErrorsOfMembersAreErrors: whatever code they bring.
func TestErrorsOfMembersAreErrors(t *testing.T) {
	m := &member{Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}}
	for code, want := range map[int32]int32{0: 502, 7: 502, 101: 502, 200: 502, 302: 502, 401: 502, 403: 403, 404: 404, 410: 410, 503: 503, 600: 502, -1: 502} {
		err := m.failed(&metav1.Status{Status: "who knows", Code: code, Message: "because"})
		s := err.(apierrors.APIStatus).Status()
		if s.Code != want || s.Status != metav1.StatusFailure || !strings.HasPrefix(s.Message, "cluster oslo: ") || !strings.HasSuffix(s.Message, "because") {
			t.Errorf("%d: %+v, wanted %d", code, s, want)
		}
	}
}
