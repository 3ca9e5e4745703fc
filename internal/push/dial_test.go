package push

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/agent/proxy"
	"atoll.dev/atoll/internal/trust/handshake"
)

// loopbackAllowed lets tests dial their own servers.
var loopbackAllowed = addressguard.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

// caOf returns the certificate of a server, in PEM.
func caOf(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func TestWhichAddressesAreDialled(t *testing.T) {
	allowed, err := addressguard.ParseNetworks([]string{"127.0.0.2/32", "fe80::/10"})
	if err != nil {
		t.Fatal(err)
	}
	for address, kind := range map[string]string{
		"127.0.0.1": "loopback", "127.9.9.9": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"169.254.169.254": "link-local", "::ffff:169.254.169.254": "link-local",
		"0.0.0.0": "unspecified", "::": "unspecified", "::ffff:0.0.0.0": "unspecified",
		"224.0.0.1": "multicast", "239.1.2.3": "multicast", "ff02::1": "multicast", "ff01::1": "multicast", "255.255.255.255": "broadcast",
		"fd00:ec2::254": "cloud metadata", "100.100.100.200": "cloud metadata", "168.63.129.16": "cloud metadata",
		"10.0.0.1": "", "192.168.1.1": "", "203.0.113.7": "", "2001:db8::1": "", "fd00::1": "",
		"127.0.0.2": "", "::ffff:127.0.0.2": "", "fe80::1": "", "fe80::1%eth0": "",
	} {
		got := ""
		var refused *addressguard.RefusedAddressError
		if errors.As(addressguard.Guard{Allowed: allowed}.CheckAddress(netip.MustParseAddr(address)), &refused) {
			got = refused.Kind
		}
		if got != kind {
			t.Errorf("%s is %q, want %q", address, got, kind)
		}
	}
	if err := (addressguard.Guard{}).CheckAddress(netip.MustParseAddr("fe80::1%eth0")); err == nil {
		t.Error("a link-local address is dialled")
	}
	if _, err := addressguard.ParseNetworks([]string{"127.0.0.1"}); err == nil || !strings.Contains(err.Error(), "127.0.0.0/8") {
		t.Errorf("an address is a network: %v", err)
	}
}

// The address that a name stands for is checked, of the API and of the proxy that the Secret names, and by both
// transports of an agent.
func TestLoopbackIsNotDialled(t *testing.T) {
	asked := 0
	member := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer hush" {
			t.Errorf("the request has the authorization %q", r.Header.Get("Authorization"))
		}
	}))
	member.EnableHTTP2 = true
	member.StartTLS()
	defer member.Close()
	tunnel := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy is asked for %s", r.Host)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer tunnel.Close()
	at, err := url.Parse(member.URL)
	if err != nil {
		t.Fatal(err)
	}
	named := "https://localhost:" + at.Port()
	for what, c := range map[string]struct {
		credentials handshake.Credentials
		guard       addressguard.Guard
		works       bool
	}{
		"an address":         {handshake.Credentials{Server: member.URL}, addressguard.Guard{}, false},
		"a name":             {handshake.Credentials{Server: named, ServerName: "example.com"}, addressguard.Guard{}, false},
		"a proxy":            {handshake.Credentials{Server: "https://203.0.113.7", ProxyURL: tunnel.URL}, addressguard.Guard{}, false},
		"a proxy of SOCKS":   {handshake.Credentials{Server: "https://203.0.113.7", ProxyURL: "socks5" + strings.TrimPrefix(tunnel.URL, "http")}, addressguard.Guard{}, false},
		"an allowed address": {handshake.Credentials{Server: member.URL}, loopbackAllowed, true},
		"an allowed name":    {handshake.Credentials{Server: named, ServerName: "example.com"}, loopbackAllowed, true},
	} {
		c.credentials.CA, c.credentials.Token = caOf(member), "hush"
		config, err := memberConfig(c.credentials, c.guard)
		if err != nil {
			t.Fatal(err)
		}
		multiplexed, err := rest.TransportFor(config)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := proxy.NewTransport(config)
		if err != nil {
			t.Fatal(err)
		}
		for protocol, transport := range map[string]http.RoundTripper{"HTTP/2.0": multiplexed, "HTTP/1.1": plain} {
			asked = 0
			answer, err := (&http.Client{Transport: transport}).Get(c.credentials.Server + "/version")
			if c.works {
				if err != nil || asked != 1 || answer.Proto != protocol {
					t.Errorf("%s by %s: %v, %d requests, %+v", what, protocol, err, asked, answer)
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body) // it is empty
				answer.Body.Close()
				continue
			}
			if refused := (*addressguard.RefusedAddressError)(nil); !errors.As(err, &refused) || refused.Kind != "loopback" || asked != 0 {
				t.Errorf("%s by %s: %v, %d requests", what, protocol, err, asked)
			}
		}
		closeIdleConnections(config)
	}
}

// The proxy of the hub's environment is its operator's, so that any address of it is dialled. The member is dialled by
// that proxy alone.
func TestTheHubsOwnProxyIsDialled(t *testing.T) {
	asked := ""
	tunnel := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Host
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer tunnel.Close()
	at, err := url.Parse(tunnel.URL)
	if err != nil {
		t.Fatal(err)
	}
	config, err := memberConfig(handshake.Credentials{Server: "https://203.0.113.7:6443", Token: "hush"}, addressguard.Guard{OwnProxy: http.ProxyURL(at)})
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&http.Client{Transport: transport}).Get("https://203.0.113.7:6443/version"); err == nil || asked != "203.0.113.7:6443" {
		t.Errorf("the proxy is asked for %q: %v", asked, err)
	}
}
