package addressguard

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
)

// Addresses of the hub's machine are refused where the guard has them, and a network that the operator allows is not.
func TestAddressesOfTheHubsMachine(t *testing.T) {
	own := netip.MustParseAddr("10.1.2.3")
	for name, c := range map[string]struct {
		guard   Guard
		refused string
	}{
		"unknown": {Guard{}, ""},
		"own":     {Guard{HubAddresses: []netip.Addr{own}}, "hub's own"},
		"allowed": {Guard{HubAddresses: []netip.Addr{own}, Allowed: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/32")}}, ""},
	} {
		var refused *RefusedAddressError
		err := c.guard.CheckAddress(netip.MustParseAddr("::ffff:10.1.2.3"))
		if c.refused == "" && err != nil || c.refused != "" && (!errors.As(err, &refused) || refused.Kind != c.refused || refused.Address != own) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A zone, and a form of IPv6 that carries an IPv4 address, hide no address that is refused.
func TestHiddenAddressesAreRefused(t *testing.T) {
	guard := Guard{HubAddresses: []netip.Addr{netip.MustParseAddr("10.1.2.3")}, Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32"), netip.MustParsePrefix("fe80::/10")}}
	for address, kind := range map[string]string{
		"::%lo": "unspecified", "::1%lo": "loopback", "fd00:ec2::254%eth0": "cloud metadata", "fd20:ce::254%1": "cloud metadata", "ff02::1%eth0": "multicast",
		"64:ff9b::a9fe:a9fe": "link-local", "64:ff9b::7f00:1": "loopback", "64:ff9b::6464:64c8": "cloud metadata", "64:ff9b:1::a9fe:a9fe": "link-local",
		"::7f00:1": "loopback", "::a01:203": "hub's own", "::ffff:0:7f00:1": "loopback", "2002:7f00:1::": "loopback", "2002:a9fe:a9fe::1": "link-local", "0.1.2.3": "unspecified",
		"64:ff9b::808:808": "", "2002:808:808::1": "", "::8.8.8.8": "", "64:ff9b::7f00:2": "", "fe80::1%eth0": "", "2001:db8::1%eth0": "",
	} {
		got := ""
		var refused *RefusedAddressError
		if errors.As(guard.CheckAddress(netip.MustParseAddr(address)), &refused) {
			got = refused.Kind
		}
		if got != kind {
			t.Errorf("%s is %q, want %q", address, got, kind)
		}
	}
}

// The hub's own proxy is dialled without the guard, and only for servers that it is for.
func TestTheHubsOwnProxy(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "127.0.0.1:3128"}
	g := Guard{OwnProxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Hostname() == "inside" {
			return nil, nil
		}
		return proxy, nil
	}}
	for host, want := range map[string]*url.URL{"outside": proxy, "inside": nil} {
		dial, got, err := g.ChooseProxy(&url.URL{Scheme: "https", Host: host})
		if err != nil || got != want {
			t.Fatalf("%s: %v, %v", host, got, err)
		}
		_, err = dial(t.Context(), "tcp", "127.0.0.1:0")
		if refused := (*RefusedAddressError)(nil); errors.As(err, &refused) != (want == nil) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for host, refused := range map[string]bool{"169.254.169.254": true, "[::1]:80": true, "[::ffff:127.0.0.1]": true, "203.0.113.7": false} {
		_, _, err := g.ChooseProxy(&url.URL{Scheme: "https", Host: host})
		if got := (*RefusedAddressError)(nil); errors.As(err, &got) != refused {
			t.Errorf("the address %s through the proxy: %v", host, err)
		}
	}
}
