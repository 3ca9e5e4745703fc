package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/command/client"
)

// A refusal by the hub is printed in the hub's own words.
func TestTheHubsOwnWordsAreKept(t *testing.T) {
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/good" {
			_, _ = w.Write([]byte("{}"))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "3 agents would be cut off",
		})
	}))
	defer hub.Close()
	at := kubernetes.NewForConfigOrDie(&rest.Config{Host: hub.URL}).CoreV1().RESTClient()
	if _, err := client.ReadAnswer(at.Post().AbsPath("/bad").Do(t.Context())); err == nil || !strings.Contains(err.Error(), "3 agents would be cut off") {
		t.Errorf("people read %v", err)
	}
	if text, err := client.ReadAnswer(at.Get().AbsPath("/good").Do(t.Context())); err != nil || string(text) != "{}" {
		t.Errorf("the answer is %q, %v", text, err)
	}
}
