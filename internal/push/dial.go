package push

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// dialTimeout, handshakeTimeout and idleConnections are those of client-go.
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleConnections  = 25
)

// metadataAddresses are services of clouds that give credentials to any program of a machine, outside of the
// link-local networks.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// refusedAddressError is returned for an address that the hub does not dial.
type refusedAddressError struct {
	address netip.Addr
	kind    string
}

// Error names the address and its kind.
func (e *refusedAddressError) Error() string {
	return fmt.Sprintf("the hub does not dial the %s address %s", e.kind, e.address)
}

// addressGuard refuses addresses by which the author of a Secret would reach the hub's own machine, or its cloud's
// services for machines. The hub's operator allows networks.
type addressGuard struct {
	allowed []netip.Prefix
	// ownProxy is the proxy of the hub's environment, which its operator chose; nil: there is none.
	ownProxy func(*http.Request) (*url.URL, error)
}

// ParseNetworks reads networks in CIDR notation.
func ParseNetworks(texts []string) (out []netip.Prefix, err error) {
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no network such as 127.0.0.0/8 or fe80::/10", text)
		}
		out = append(out, network)
	}
	return out, nil
}

// checkAddress returns an error for an address that is not to be dialled.
func (g addressGuard) checkAddress(a netip.Addr) error {
	a = a.Unmap()
	if slices.ContainsFunc(g.allowed, func(p netip.Prefix) bool { return p.Contains(a.WithZone("")) }) {
		return nil
	}
	kind := ""
	switch {
	case a.IsLoopback():
		kind = "loopback"
	case a.IsLinkLocalUnicast():
		kind = "link-local"
	case a.IsUnspecified():
		kind = "unspecified"
	case a.IsMulticast():
		kind = "multicast"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		kind = "broadcast"
	case slices.Contains(metadataAddresses, a):
		kind = "cloud metadata"
	default:
		return nil
	}
	return &refusedAddressError{a, kind}
}

// dialAddress dials a name or an address. Each address is checked after the name is resolved.
func (g addressGuard) dialAddress(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout, Control: func(_, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return fmt.Errorf("dial %s: %w", resolved, err)
		}
		return g.checkAddress(at.Addr())
	}}
	return dialer.DialContext(ctx, network, address)
}

// newTransport returns a transport to the member's API. The guard checks the address of the API, or of the proxy
// that the credentials name, and not the hub's own proxy.
func (g addressGuard) newTransport(c *rest.Config) (*http.Transport, error) {
	security, err := rest.TLSConfigFor(c)
	if err != nil {
		return nil, fmt.Errorf("ca.crt: %w", err)
	}
	dial, proxy := g.dialAddress, c.Proxy
	if proxy == nil && g.ownProxy != nil {
		server, err := url.Parse(c.Host)
		if err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		own, err := g.ownProxy(&http.Request{URL: server})
		if err != nil {
			return nil, fmt.Errorf("the proxy of the hub's environment: %w", err)
		}
		if own != nil {
			proxy, dial = http.ProxyURL(own), (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
		}
	}
	if proxy == nil {
		proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // otherwise a default of the transport
	}
	return utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, DialContext: dial, TLSClientConfig: security,
		TLSHandshakeTimeout: handshakeTimeout, MaxIdleConnsPerHost: idleConnections,
	}), nil
}
