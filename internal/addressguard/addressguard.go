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

// carriesIPv4 are networks whose addresses have an IPv4 address in them, from a byte on.
var carriesIPv4 = []struct {
	network netip.Prefix
	at      int
}{
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},  // NAT64 of a site, in its usual form
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
}

// CheckAddress returns an error for an address that is not to be dialled. A zone is of no account, and the IPv4 address
// in an IPv6 one counts as the address itself.
func (g Guard) CheckAddress(a netip.Addr) error {
	a = a.WithZone("").Unmap()
	if slices.ContainsFunc(g.Allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	kind := g.kindOf(a)
	for _, c := range carriesIPv4 {
		if kind == "" && c.network.Contains(a) {
			raw := a.As16()
			inner := netip.AddrFrom4([4]byte(raw[c.at : c.at+4]))
			if !slices.ContainsFunc(g.Allowed, func(p netip.Prefix) bool { return p.Contains(inner) }) {
				kind = g.kindOf(inner)
			}
		}
	}
	if kind == "" {
		return nil
	}
	return &RefusedAddressError{a, kind}
}

// kindOf returns the kind of an address that is refused; empty for one that is dialled.
func (g Guard) kindOf(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "loopback"
	case a.IsLinkLocalUnicast():
		return "link-local"
	case a.IsUnspecified() || a.Is4() && a.As4()[0] == 0:
		return "unspecified"
	case a.IsMulticast():
		return "multicast"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "broadcast"
	case slices.Contains(metadataAddresses, a):
		return "cloud metadata"
	case slices.Contains(g.HubAddresses, a):
		return "hub's own"
	}
	return ""
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
// the hub's own proxy, which resolves names itself. A URL with an address in place of a name is checked.
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
	if a, err := netip.ParseAddr(server.Hostname()); err == nil {
		if err := g.CheckAddress(a); err != nil {
			return nil, nil, err
		}
	}
	return (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext, proxy, nil
}
