package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// world is a Server before an API server, and a client that comes by tunnels.
type world struct {
	*http.Client
	member *httptest.Server
	server *MemberAPIProxy
	// policy of the member's administrator; see limit.
	policy atomic.Pointer[policy.Policy]
}

func newWorld(t *testing.T, api http.HandlerFunc) *world {
	t.Helper()
	w := &world{member: httptest.NewUnstartedServer(api)}
	w.member.EnableHTTP2 = true
	w.member.StartTLS()
	t.Cleanup(w.member.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.member.Certificate().Raw})
	config := &rest.Config{Host: w.member.URL + "/base", BearerToken: "agent", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	transport, err := NewTransport(config)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Config: config, Transport: transport, Policy: w.policy.Load, Log: slog.New(slog.DiscardHandler),
		Live: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "live ", r.URL.Path) })})
	if err != nil {
		t.Fatal(err)
	}
	w.server = s
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	w.Client = &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			hub, agent := net.Pipe()
			go s.ServeTunnel(agent)
			return hub, nil
		},
	}}
	return w
}

// sendRequest in the name of jane, unless header states otherwise.
func (w *world) sendRequest(t *testing.T, ctx context.Context, path string, header map[string]string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://member"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Impersonate-User", "jane")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := w.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	return answer
}

func TestRequestsAreMadeInTheNameOfWhoAsks(t *testing.T) {
	seen := make(chan *http.Request, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		seen <- r
		rw.Header().Set("Warning", `299 - "mind this"`)
		rw.WriteHeader(http.StatusTeapot)
		fmt.Fprint(rw, "short and stout")
	})
	answer := w.sendRequest(t, t.Context(), "/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db&limit=3", map[string]string{
		"Impersonate-Group": "dev", "Authorization": "Bearer stolen", "Impersonate-Uid": "0", "X-Remote-User": "root", "Audit-Id": "4711", "User-Agent": "kubectl",
	})
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "short and stout" || answer.StatusCode != http.StatusTeapot || answer.Header.Get("Warning") == "" {
		t.Errorf("the answer: %d %q, %v", answer.StatusCode, body, err)
	}
	r := <-seen
	if r.URL.EscapedPath() != "/base/api/v1/namespaces/a%2Fb/pods" || r.URL.RawQuery != "labelSelector=a%3Db&limit=3" {
		t.Errorf("asked for %s", r.URL)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer agent", "Impersonate-User": "jane", "Impersonate-Group": "dev", "Audit-Id": "4711", "User-Agent": "kubectl",
		"Impersonate-Uid": "", "X-Remote-User": "", "X-Forwarded-For": "",
	} {
		if got := strings.Join(r.Header.Values(name), ","); got != want {
			t.Errorf("%s: %q, wanted %q", name, got, want)
		}
	}
}

func TestNobodyIsImpersonatedWhoMustNotBe(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("the request came through") })
	for _, header := range []map[string]string{
		{"Impersonate-User": ""}, {"Impersonate-User": "system:admin"}, {"Impersonate-Group": "system:masters"},
		{"Impersonate-User": "system:serviceaccount:kube-system:default"},
	} {
		answer := w.sendRequest(t, t.Context(), "/api", header)
		var status metav1.Status
		if err := json.NewDecoder(answer.Body).Decode(&status); err != nil || answer.StatusCode != http.StatusForbidden || status.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%v: %d %+v, %v", header, answer.StatusCode, status, err)
		}
	}
}

// TestOnlyTheHubItselfIsShownWhatRuns: its requests have a host name that people's requests do not
// have, and no user.
func TestOnlyTheHubItselfIsShownWhatRuns(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "people ", r.URL.Path) })
	for _, c := range []struct {
		what, host string
		header     map[string]string
		code       int
		says       string
	}{
		{"the hub", atoll.FleetViewHost, nil, http.StatusOK, "live /base/x"},
		{"a person", "uid", map[string]string{"Impersonate-User": "jane"}, http.StatusOK, "people /base/base/x"},
		{"a person under the hub's host name", atoll.FleetViewHost, map[string]string{"Impersonate-User": "jane"}, http.StatusForbidden, "must have no user"},
		{"a group under the hub's host name", atoll.FleetViewHost, map[string]string{"Impersonate-Group": "dev"}, http.StatusForbidden, "must have no user"},
		{"no user under another host name", "uid", nil, http.StatusForbidden, "names nobody"},
		{"no user under a similar host name", atoll.FleetViewHost + ":80", nil, http.StatusForbidden, "names nobody"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://member/base/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		for name, value := range c.header {
			r.Header.Set(name, value)
		}
		answer, err := w.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.says) {
			t.Errorf("%s: %d %s, %v", c.what, answer.StatusCode, body, err)
		}
	}
}

// TestNobodyLeavesTheAPI: where it stands below a path, what is beside it would take the
// agent's credentials for its own.
func TestNobodyLeavesTheAPI(t *testing.T) {
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s came through", r.RequestURI) })
	for _, path := range []string{"/../admin", "/api/../../admin", "/%2e%2e/admin", "/api/v1/..", "/..%2fadmin"} {
		if answer := w.sendRequest(t, t.Context(), path, nil); answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
}

func TestConnectionsMayBecomeOthers(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || !slices.Contains(r.Header.Values("Connection"), "Upgrade") || r.Header.Get("Impersonate-User") != "jane" {
			t.Errorf("%s %v", r.Proto, r.Header)
		}
		rw.Header().Set("Connection", "Upgrade")
		rw.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		rw.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, buffered)
	})
	answer := w.sendRequest(t, t.Context(), "/exec", map[string]string{"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Fatalf("%d %v", answer.StatusCode, answer.Header)
	}
	duplex := answer.Body.(io.ReadWriteCloser)
	if _, err := io.WriteString(duplex, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(duplex).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	duplex.Close()
}

// TestWhatComesIsHandedOnAtOnce: and a request ends in the member when its client goes.
func TestWhatComesIsHandedOnAtOnce(t *testing.T) {
	ended := make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		defer close(ended)
		fmt.Fprintln(rw, "first")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answer := w.sendRequest(t, ctx, "/logs", nil)
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(testwait.HangLimit):
		t.Error("the request goes on in the member although its client has gone")
	}
}

func TestAMemberThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.member.Close()
	answer := w.sendRequest(t, t.Context(), "/api", nil)
	var status metav1.Status
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil || answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(status.Message, "does not answer its agent") {
		t.Errorf("%d %+v, %v", answer.StatusCode, status, err)
	}
}
