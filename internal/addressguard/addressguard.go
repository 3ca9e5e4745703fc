// Package addressguard dials the addresses that users state, and refuses those by which a user would reach the hub's
// own machine, or its cloud's services for machines.
//
// Contract: each address is checked after its name is resolved, so a name that resolves to another address
// later gains nothing. The hub's operator allows networks. Values are immutable and safe for concurrent use.
package addressguard

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
)

// dialTimeout is that of client-go.
const dialTimeout = 30 * time.Second

// metadataAddresses are services of clouds that give credentials to any program of a machine, outside of the
// link-local networks.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
}

// RefusedAddressError is the error for an address that the hub does not dial.
type RefusedAddressError struct {
	Address netip.Addr
	Kind    string
}

// Error names the address and its kind.
func (e *RefusedAddressError) Error() string {
	return fmt.Sprintf("the hub does not dial the %s address %s", e.Kind, e.Address)
}

// Guard refuses addresses. The zero value allows no network of those that are refused.
type Guard struct {
	Allowed []netip.Prefix
	// HubAddresses are addresses of the hub's machine, which are refused, too.
	HubAddresses []netip.Addr
	// OwnProxy is the proxy of the hub's environment, which its operator chose; nil: there is none.
	OwnProxy func(*http.Request) (*url.URL, error)
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

// CheckAddress returns an error for an address that is not to be dialled.
func (g Guard) CheckAddress(a netip.Addr) error {
	a = a.Unmap()
	if slices.ContainsFunc(g.Allowed, func(p netip.Prefix) bool { return p.Contains(a.WithZone("")) }) {
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
	case slices.Contains(g.HubAddresses, a.WithZone("")):
		kind = "hub's own"
	default:
		return nil
	}
	return &RefusedAddressError{a, kind}
}

// DialAddress dials a name or an address. Each address is checked after the name is resolved.
func (g Guard) DialAddress(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout, Control: func(_, resolved string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return fmt.Errorf("dial %s: %w", resolved, err)
		}
		return g.CheckAddress(at.Addr())
	}}
	return dialer.DialContext(ctx, network, address)
}

// ChooseProxy returns how a server is dialled, and through which proxy; nil: through none. The guard does not check
// the hub's own proxy.
func (g Guard) ChooseProxy(server *url.URL) (dial func(context.Context, string, string) (net.Conn, error), proxy *url.URL, err error) {
	if g.OwnProxy == nil {
		return g.DialAddress, nil, nil
	}
	proxy, err = g.OwnProxy(&http.Request{URL: server})
	if err != nil {
		return nil, nil, fmt.Errorf("the proxy of the hub's environment: %w", err)
	}
	if proxy == nil {
		return g.DialAddress, nil, nil
	}
	return (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext, proxy, nil
}
