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
}
