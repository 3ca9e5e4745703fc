package push

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/addressguard"
)

const (
	// handshakeTimeout and idleConnections are those of client-go.
	handshakeTimeout = 10 * time.Second
	idleConnections  = 25
)

// newTransport returns a transport to the member's API. The guard checks the address of the API, or of the proxy
// that the credentials name, and not the hub's own proxy.
func newTransport(g addressguard.Guard, c *rest.Config) (*http.Transport, error) {
	security, err := rest.TLSConfigFor(c)
	if err != nil {
		return nil, fmt.Errorf("ca.crt: %w", err)
	}
	dial, proxy := g.DialAddress, c.Proxy
	if proxy == nil {
		server, err := url.Parse(c.Host)
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		through, own, err := g.ChooseProxy(server)
		if err != nil {
			return nil, err
		}
		dial, proxy = through, http.ProxyURL(own)
	}
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: security,
		TLSHandshakeTimeout: handshakeTimeout, MaxIdleConnsPerHost: idleConnections,
	}), nil
}
