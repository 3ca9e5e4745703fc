package push

import (
	"fmt"
	"net/http"
	"net/url"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/trust/handshake"
)

// memberConfig returns the configuration that reaches the member. Redirects are not followed: the
// hub's administrators decide about its peers, not members.
func memberConfig(c handshake.Credentials, guard addressguard.Guard) (*rest.Config, error) {
	server, err := url.Parse(c.Server)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	out := &rest.Config{
		Host: c.Server, BearerToken: c.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(c.CA), ServerName: c.ServerName},
	}
	if c.ProxyURL != "" {
		proxy, err := url.Parse(c.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("proxy-url: %w", err)
		}
		out.Proxy = http.ProxyURL(proxy)
	}
	if out.Transport, err = newTransport(guard, out); err != nil {
		return nil, err
	}
	out.TLSClientConfig, out.Proxy = rest.TLSClientConfig{}, nil // the transport has them
	out.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &singleHostTransport{next: next, host: server.Host}
	})
	return out, nil
}

// closeIdleConnections closes unused connections to the member, which would be kept for a minute and a half.
func closeIdleConnections(member *rest.Config) {
	if transport, err := rest.TransportFor(member); err == nil { // the agent had it, too
		utilnet.CloseIdleConnectionsFor(transport)
	}
}

// singleHostTransport sends requests to one host alone.
type singleHostTransport struct {
	next http.RoundTripper
	host string
}

// RoundTrip refuses what is for another host, to which only an answer can have led.
func (o *singleHostTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != o.host || r.URL.Scheme != "https" {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must; it is not sent
		}
		return nil, fmt.Errorf("the member's API at %s sends the hub on to %s, which is not followed", o.host, r.URL.Host)
	}
	return o.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find what is below.
func (o *singleHostTransport) WrappedRoundTripper() http.RoundTripper { return o.next }
