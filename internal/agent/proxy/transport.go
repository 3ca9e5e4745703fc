package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// transport to the API server. Connections that change their protocol are HTTP/1.1 from
// the start.
type transport struct {
	plain, upgraded http.RoundTripper
}

func newTransport(config *rest.Config) (*transport, error) {
	plain := rest.CopyConfig(config)
	plain.DisableCompression = true // what is asked for compressed is handed over so
	upgraded := rest.CopyConfig(plain)
	upgraded.NextProtos = []string{"http/1.1"}
	var t transport
	var err error
	if t.plain, err = rest.TransportFor(plain); err == nil {
		t.upgraded, err = rest.TransportFor(upgraded)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the member's API for who asks through the hub: %w", err)
	}
	return &t, nil
}

// RoundTrip makes the request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.upgraded.RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

// refuse a request as API servers do.
func refuse(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonForbidden
	if code == http.StatusServiceUnavailable {
		reason = metav1.StatusReasonServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the only error is that the asker has gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
