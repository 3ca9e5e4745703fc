package reach

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
)

// TestAnAgentThatAnswersGarbage: its connection is closed, and who asked is told.
func TestAnAgentThatAnswersGarbage(t *testing.T) {
	for what, answer := range map[string]string{
		"an upgrade that nobody asked for": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: spdy\r\n\r\n",
		"an upgrade to nothing":            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"no HTTP":                          "\x00\x01\x02 go away\r\n\r\n",
		"a header without end":             "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 2000) + "\r\n",
	} {
		closed := make(chan error, 1)
		h := hub(t, hijacked(t, answer, closed), func(string) error { return nil }, true)
		if code, text := ask(t, h, "tokyo/proxy/api", jane()); code != 503 || !strings.Contains(text, "the connection to its agent broke") {
			t.Errorf("%s: %d %s", what, code, text)
		}
		if err := <-closed; err != nil {
			t.Errorf("%s: the connection is kept: %v", what, err)
		}
	}
}

// hijacked answers with bytes, and waits for the connection's end.
func hijacked(t *testing.T, answer string, closed chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, answer)
		_, err = io.Copy(io.Discard, conn)
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			err = nil
		}
		closed <- err
	})
}

// TestNobodyAsksInTheHubsName: agents know the hub's own requests by their host name, and by
// that they are made in nobody's name; whatever a person says, his have neither.
func TestNobodyAsksInTheHubsName(t *testing.T) {
	got := make(chan *http.Request, 1)
	h := hub(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }), func(string) error { return nil }, true)
	for _, c := range []struct{ path, host, field, value string }{
		{"tokyo/proxy/api/v1/pods", atoll.LiveHost, "", ""},
		{"tokyo/proxy//" + atoll.LiveHost + "/api/v1/pods", "", "", ""},
		{"tokyo/proxy/http://" + atoll.LiveHost + "/api/v1/pods", "", "", ""},
		{"tokyo/proxy/api/v1/pods", "", "X-Forwarded-Host", atoll.LiveHost},
		{"tokyo/proxy/api/v1/pods", atoll.LiveHost, "Connection", "Impersonate-User, Host"},
		{"tokyo/proxy/api/v1/pods", atoll.LiveHost, "Impersonate-User", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/apis/atoll.dev/v1alpha1/clusters/"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = jane()
		r.Host = c.host
		if c.field != "" {
			r.Header.Set(c.field, c.value)
		}
		answer, err := h.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		select {
		case r := <-got:
			if r.Host != "uid-tokyo" || r.Header.Get("Impersonate-User") != "jane" {
				t.Errorf("%+v: the agent is asked under %q in the name of %q", c, r.Host, r.Header.Get("Impersonate-User"))
			}
		default:
			if answer.StatusCode < 400 {
				t.Errorf("%+v: %s, and the agent was not asked", c, answer.Status)
			}
		}
	}
}
