package memberproxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// TestAnAgentThatAnswersGarbage: its connection is closed, and the client gets an error.
func TestAnAgentThatAnswersGarbage(t *testing.T) {
	for what, answer := range map[string]string{
		"an unrequested upgrade": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: spdy\r\n\r\n",
		"an upgrade to nothing":  "HTTP/1.1 101 Switching Protocols\r\n\r\n",
		"no HTTP":                "\x00\x01\x02 go away\r\n\r\n",
		"a header without end":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("x", 1000)+"\r\n", 2000) + "\r\n",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			closed := make(chan error, 1)
			h := startHub(t, hijackAnswer(t, answer, closed), func(string) error { return nil }, true)
			if code, text := askBy(t, method, h, "tokyo/proxy/api", janeHeader()); code != 503 || !strings.Contains(text, "the connection to its agent broke") {
				t.Errorf("%s, %s: %d %s", what, method, code, text)
			}
			if err := <-closed; err != nil {
				t.Errorf("%s, %s: the connection is kept: %v", what, method, err)
			}
		}
	}
}

// TestAnAgentWithAStatusOfItsOwn: no server can write it.
func TestAnAgentWithAStatusOfItsOwn(t *testing.T) {
	for _, status := range []string{"000", "007", "099"} {
		closed := make(chan error, 1)
		h := startHub(t, hijackAnswer(t, "HTTP/1.1 "+status+" Bond\r\nContent-Length: 2\r\n\r\nhi", closed), func(string) error { return nil }, true)
		if code, text := sendRequest(t, h, "tokyo/proxy/api", janeHeader()); code != 502 || !strings.Contains(text, "cluster tokyo: its agent answers with the status "+status) {
			t.Errorf("%s: %d %s", status, code, text)
		}
		<-closed
	}
}

// hijackAnswer answers with bytes, and waits for the connection's end.
func hijackAnswer(t *testing.T, answer string, closed chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(testwait.HangLimit))
		_, _ = io.WriteString(conn, answer)
		_, err = io.Copy(io.Discard, conn)
		if e, ok := err.(net.Error); !ok || !e.Timeout() {
			err = nil
		}
		closed <- err
	})
}

// TestNobodyAsksInTheHubsName: agents know the hub's own requests by their host name and their
// missing user; a person's requests have neither, whatever they contain.
func TestNobodyAsksInTheHubsName(t *testing.T) {
	got := make(chan *http.Request, 1)
	h := startHub(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }), func(string) error { return nil }, true)
	for _, c := range []struct{ path, host, field, value string }{
		{"tokyo/proxy/api/v1/pods", atoll.FleetViewHost, "", ""},
		{"tokyo/proxy//" + atoll.FleetViewHost + "/api/v1/pods", "", "", ""},
		{"tokyo/proxy/http://" + atoll.FleetViewHost + "/api/v1/pods", "", "", ""},
		{"tokyo/proxy/api/v1/pods", "", "X-Forwarded-Host", atoll.FleetViewHost},
		{"tokyo/proxy/api/v1/pods", atoll.FleetViewHost, "Connection", "Impersonate-User, Host"},
		{"tokyo/proxy/api/v1/pods", atoll.FleetViewHost, "Impersonate-User", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/apis/atoll.dev/v1alpha1/clusters/"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = janeHeader()
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

// TestAMemberLeadsNobodyElsewhere: clients follow redirections by themselves, with what they
// are known to the hub by; one leads to the same member, or nowhere.
func TestAMemberLeadsNobodyElsewhere(t *testing.T) {
	const other = "/apis/atoll.dev/v1alpha1/clusters/oslo/proxy/api/v1/namespaces/prod"
	for to, want := range map[string]string{
		"/api/v1/pods":           "DELETE /api/v1/pods",
		"../v1/pods?watch=true":  "DELETE /api/v1/pods?watch=true",
		"x%2Fy":                  "DELETE /api/v1/x%2Fy",
		"":                       "DELETE /api/v1/moved",
		other:                    "DELETE " + other, // of the member, which has none
		"http://127.0.0.1:1/api": "",
		"https:/api/v1/pods":     "",
		"https:api":              "",
		"//127.0.0.1:1/api":      "",
		"//jane@/api":            "",
		"/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/api/v1/namespaces/prod": "",
		"/%2e/api":                      "",
		"../../../../../../../../../..": "DELETE /",
		`/\127.0.0.1/api`:               "",
		"/api/%5c..%5c..":               "",
		"http://%zz":                    "",
	} {
		var reached []string
		h := startHub(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Again") == "" && r.RequestURI == "/api/v1/moved" && len(reached) == 0 {
				reached = append(reached, "")
				w.Header()["Location"] = []string{to}
				w.WriteHeader(http.StatusTemporaryRedirect)
				return
			}
			reached = append(reached, r.Method+" "+r.RequestURI)
		}), func(string) error { return nil }, true)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, h.URL+"/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy/api/v1/moved", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = janeHeader()
		answer, err := h.Client().Do(r)
		if err != nil {
			t.Errorf("%q: %v", to, err)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		switch got := strings.Join(reached[1:], ", "); {
		case got != want:
			t.Errorf("%q leads to %q, not to %q", to, got, want)
		case want == "" && (answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "which is not below the requested path")):
			t.Errorf("%q: %s %s", to, answer.Status, body)
		}
	}
}

// TestAPodRedirectsBelowItself: what is served of a pod on the hub stays below that pod.
func TestAPodRedirectsBelowItself(t *testing.T) {
	at := proxyRequest{at: "/api/v1/namespaces/shop/pods/web.tokyo/proxy", base: "/api/v1/namespaces/shop/pods/web/proxy", path: "/api/v1/namespaces/shop/pods/web/proxy/a/b"}
	for said, want := range map[string]string{
		"/api/v1/namespaces/shop/pods/web/proxy/login?to=%2Fa#x": "/api/v1/namespaces/shop/pods/web.tokyo/proxy/login?to=%2Fa#x",
		"c":                                      "/api/v1/namespaces/shop/pods/web.tokyo/proxy/a/c",
		"/api/v1/namespaces/shop/pods/web/proxy": "/api/v1/namespaces/shop/pods/web.tokyo/proxy",
		"/api/v1/namespaces/shop/pods/web/proxyfied": "",
		"/api/v1/namespaces/shop/secrets":            "",
		"../../../../secrets":                        "",
	} {
		if got, ok := at.hubLocation(said); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", said, got, ok)
		}
	}
}
