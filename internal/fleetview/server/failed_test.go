package server

import (
	"encoding/json"
	"io"
	"net/http"
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
		err := m.translateStatus(&metav1.Status{Status: "an unknown user", Code: code, Message: "because"})
		s := err.(apierrors.APIStatus).Status()
		if s.Code != want || s.Status != metav1.StatusFailure || !strings.HasPrefix(s.Message, "cluster oslo: ") || !strings.HasSuffix(s.Message, "because") {
			t.Errorf("%d: %+v, wanted %d", code, s, want)
		}
	}
}

// TestRefusalsOfAgentsAreToldAsTheyAre: an update of an agent of this version would change
// nothing.
func TestRefusalsOfAgentsAreToldAsTheyAre(t *testing.T) {
	m := &member{Cluster: &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}}}
	for message, want := range map[string]struct {
		code int32
		says string
	}{
		"the cluster's agent refuses: AgentPolicy agent (generation 1) does not allow requests of the sort Logs through the hub (spec.reach.requests): ask this cluster's administrator": {403, "spec.reach.requests"},
		`pods "web" is forbidden: User "system:serviceaccount:atoll-system:atoll-agent" cannot get resource "pods/log" in API group "" in the namespace "shop"`:                          {403, "which does not let its agent show that"},
		"the cluster's agent refuses: the request names nobody to make it as":                                                                                                            {503, "update it"},
	} {
		body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: message})
		if err != nil {
			t.Fatal(err)
		}
		err = m.memberError(&http.Response{
			StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(body))),
		})
		s := err.(apierrors.APIStatus).Status()
		if s.Code != want.code || !strings.Contains(s.Message, want.says) || want.code == 403 && strings.Contains(s.Message, "update it") {
			t.Errorf("%s\nis passed on as %d: %s", message, s.Code, s.Message)
		}
	}
}
