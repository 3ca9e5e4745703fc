package link

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/testwait"
)

// startProxy starts a proxy that connects every request to the hub. It returns the requested
// addresses.
func startProxy(t *testing.T, hub net.Addr, user string) (address *url.URL, asked chan string) {
	t.Helper()
	asked = make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if name, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth(); user != "" && name+":"+password != user {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		asked <- r.Host
		there, err := net.Dial("tcp", hub.String())
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(there, here); there.Close() }()
		_, _ = io.Copy(here, there)
		here.Close()
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address, asked
}

// startEchoServer hub, which says nothing by itself.
func startEchoServer(t *testing.T) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr()
}

func TestAHubBehindAProxy(t *testing.T) {
	address, asked := startProxy(t, startEchoServer(t), "jane:secret")
	address.User = url.UserPassword("jane", "secret")
	t.Setenv("HTTPS_PROXY", address.String())
	t.Setenv("NO_PROXY", "inside.example")
	conn, err := dialTCPOrProxy(t.Context(), "hub.example:6444")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if host := <-asked; host != "hub.example:6444" {
		t.Errorf("the proxy is asked for %s", host)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(testwait.HangLimit))
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAProxyThatDoesNotHelp(t *testing.T) {
	closed := startEchoServer(t).(*net.TCPAddr)
	gone, err := net.ListenTCP("tcp", &net.TCPAddr{IP: closed.IP})
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.Addr()
	gone.Close()
	strict, _ := startProxy(t, closed, "jane:secret")
	useless, _ := startProxy(t, nobody, "")
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := mute.Accept(); err == nil {
			c.Close()
		}
	}()
	defer mute.Close()
	for what, c := range map[string]struct{ proxy, says string }{
		"wants a password":      {strict.String(), "give it a name and a password"},
		"cannot reach the hub":  {useless.String(), "502"},
		"is no proxy":           {web.URL, "404"},
		"is of another kind":    {"socks5://127.0.0.1:1", "of a kind that agents do not speak"},
		"is not there":          {"http://" + nobody.String(), "refused"},
		"hangs up":              {"http://" + mute.Addr().String(), "read its answer"},
		"has a secret, and not": {"http://jane:secret@" + nobody.String(), "jane:xxxxx@"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", c.proxy)
			conn, err := dialTCPOrProxy(t.Context(), "hub.example:6444")
			if err == nil {
				conn.Close()
				t.Fatal("a connection")
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), ":secret") {
				t.Errorf("%v, which does not say %q", err, c.says)
			}
		})
	}
}

func TestAHubThatNoProxyIsFor(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	hub := startEchoServer(t)
	conn, err := dialTCPOrProxy(t.Context(), hub.String()) // loopback is never proxied
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestAProxyByTLSIsVerified(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	t.Setenv("HTTPS_PROXY", server.URL)
	_, err := dialTCPOrProxy(t.Context(), "hub.example:6444")
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a proxy without a trusted certificate: %v", err)
	}
}
