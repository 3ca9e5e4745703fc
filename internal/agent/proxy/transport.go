package proxy

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// NewTransport returns a transport to the API server of a configuration. It uses HTTP/1.1:
// connections that change their protocol need that. Unread parts of an answer then wait at the API
// server. HTTP/2 would keep megabytes of each in the agent.
func NewTransport(config *rest.Config) (http.RoundTripper, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true // a compressed answer is handed over compressed
	config.NextProtos = []string{"http/1.1"}
	if own, ok := config.Transport.(*http.Transport); ok { // to which these settings do not apply
		config.Transport = newHTTP1Transport(own)
	}
	t, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the member's API for the hub's user: %w", err)
	}
	return t, nil
}

// newHTTP1Transport returns a transport as own is, for HTTP/1.1, that compresses nothing.
func newHTTP1Transport(own *http.Transport) *http.Transport {
	own = own.Clone()
	own.DisableCompression, own.ForceAttemptHTTP2 = true, false
	own.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if own.TLSClientConfig != nil {
		own.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return own
}

// writeFailureStatus refuses a request as API servers do.
func writeFailureStatus(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonForbidden
	switch code {
	case http.StatusServiceUnavailable:
		reason = metav1.StatusReasonServiceUnavailable
	case http.StatusTooManyRequests:
		reason = metav1.StatusReasonTooManyRequests
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the only error is that the asker has gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
