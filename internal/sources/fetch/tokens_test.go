package fetch

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/chartstest"
)

// hostileServer notes the requests that it gets. No credentials belong there.
type hostileServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newHostileServer(t *testing.T) *hostileServer {
	t.Helper()
	h := &hostileServer{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.asked = append(h.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Authorization")))
		h.mu.Unlock()
		_, _ = w.Write([]byte(`{"token": "a"}`)) // the client notes an answer that is cut
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hostileServer) takeRequests() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := strings.Join(h.asked, ", ")
	h.asked = nil
	return out
}

// A registry with its tokens from another host is read when that host is stated. The credentials go there for tokens that read the URL,
// and nowhere else, whatever a registry or its token server answers.
func TestTokensOfAnotherHost(t *testing.T) {
	evil := newHostileServer(t)
	challenge := ""
	server, tokens, ca := chartstest.NewTokenRegistry(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if challenge != "" {
				w.Header().Set("WWW-Authenticate", challenge)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	chartstest.PushChart(t, server, chartstest.NewChart(t, "shop", "1.0.0"), "shop", "1.0.0")
	tokens.TakeRequests()
	tokenHost := strings.TrimPrefix(tokens.URL, "https://")
	const scope = "repository:charts/shop:pull"
	elsewhere := `Bearer realm="` + evil.URL + `/token",service="registry",scope="` + scope + `"`
	withScope := func(scope string) string {
		return `Bearer realm="` + tokens.URL + `/token",service="registry",scope="` + scope + `"`
	}
	for name, c := range map[string]struct {
		host, password, challenge, moved string
		want, message, asked             string
	}{
		"the stated host":       {host: tokenHost, password: chartstest.Password, want: "1.0.0", asked: "ann " + scope},
		"none is stated":        {password: chartstest.Password, want: "failure RedirectRefused", message: "another host than its own, " + tokenHost + ", which gets none; state tokenHost"},
		"another one":           {host: strings.TrimPrefix(evil.URL, "https://"), password: chartstest.Password, want: "failure RedirectRefused", message: tokenHost},
		"a wrong password":      {host: tokenHost, password: "secret-guess", want: "failure CredentialsRefused", asked: "ann " + scope},
		"a registry moves it":   {host: tokenHost, password: chartstest.Password, challenge: elsewhere, want: "failure RedirectRefused", message: strings.TrimPrefix(evil.URL, "https://")},
		"another port":          {host: "127.0.0.1", password: chartstest.Password, want: "failure RedirectRefused", message: tokenHost},
		"the host moves it":     {host: tokenHost, password: chartstest.Password, moved: evil.URL + "/token", want: "failure RedirectRefused", asked: "ann " + scope},
		"another repository":    {host: tokenHost, password: chartstest.Password, challenge: withScope("repository:secrets/shop:pull"), want: "failure RedirectRefused", message: "a token for more than to read"},
		"to push":               {host: tokenHost, password: chartstest.Password, challenge: withScope("repository:charts/shop:pull,push"), want: "failure RedirectRefused", message: "a token for more than to read"},
		"one with a longer end": {host: tokenHost, password: chartstest.Password, challenge: withScope("repository:charts-of-others:pull"), want: "failure RedirectRefused", message: "a token for more than to read"},
		"no host but a text":    {host: tokenHost, password: chartstest.Password, challenge: `Bearer realm="https://hush'<b>/token",service="registry"`, want: "failure"},
	} {
		challenge = c.challenge
		tokens.MoveTo(c.moved)
		r := Request{Type: TypeHelm, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/charts", Username: chartstest.Username, Password: c.password, CABundle: ca, TokenHost: c.host, Wants: []Want{wantChart("shop@1.0.0")}}
		content := fetchOne(t, r)
		if got := versionOf(content); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if f := content.Failure; f != nil && (!strings.Contains(f.Message, c.message) || strings.Contains(f.Message, "hush") || strings.Contains(f.Message, "secret-guess")) {
			t.Errorf("%s: %s, want %q", name, f.Message, c.message)
		}
		if got := tokens.TakeRequests(); got != c.asked {
			t.Errorf("%s: the token server is asked %q, want %q", name, got, c.asked)
		}
		if got := evil.takeRequests(); strings.Contains(got, "Basic") || c.moved == "" && got != "" {
			t.Errorf("%s: the hostile server is asked %q", name, got)
		}
	}
}

// The hosts of tokens of public registries are known, and a stated one goes before them.
func TestKnownTokenHosts(t *testing.T) {
	for _, c := range []struct{ registry, stated, want string }{
		{"docker.io", "", "auth.docker.io"}, {"registry-1.docker.io", "", "auth.docker.io"}, {"registry.gitlab.com", "", "gitlab.com"}, {"docker.io", "auth.example.com", "auth.example.com"},
		{"registry.example.com", "", ""}, {"evil.docker.io", "", ""}, {"docker.io.example.com", "", ""}, {"docker.io:8443", "", ""},
	} {
		g, err := openRegistry(&url.URL{Scheme: "https", Host: c.registry, Path: "/shop"}, Request{TokenHost: c.stated}, place{maxText: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.through.tokens.host; got != c.want {
			t.Errorf("%s: %q, want %q", c.registry, got, c.want)
		}
	}
}

func TestTokenGrants(t *testing.T) {
	for name, c := range map[string]struct {
		grant       tokenGrant
		method, url string
		want        string
	}{
		"the host":            {tokenGrant{"auth.h", "a"}, "GET", "https://auth.h/token?scope=repository:a:pull", ""},
		"the port of HTTPS":   {tokenGrant{"auth.h", "a"}, "GET", "https://AUTH.h:443/token?scope=repository:a/b:pull", ""},
		"a stated port":       {tokenGrant{"auth.h:443", "a"}, "GET", "https://auth.h/token", ""},
		"all of the registry": {tokenGrant{"auth.h", ""}, "GET", "https://auth.h/token?scope=repository:b:pull&scope=repository:c:pull", ""},
		"no host":             {tokenGrant{"", "a"}, "GET", "https://auth.h/token", "auth.h"},
		"a host with no name": {tokenGrant{"", "a"}, "GET", "https:///token", "refused"},
		"a longer host":       {tokenGrant{"auth.h", "a"}, "GET", "https://auth.h.evil/token", "auth.h.evil"},
		"another port":        {tokenGrant{"auth.h", "a"}, "GET", "https://auth.h:8443/token", "auth.h:8443"},
		"no TLS":              {tokenGrant{"auth.h", "a"}, "GET", "http://auth.h/token", "auth.h"},
		"another method":      {tokenGrant{"auth.h", "a"}, "POST", "https://auth.h/token", "auth.h"},
		"a second scope":      {tokenGrant{"auth.h", "a"}, "GET", "https://auth.h/token?scope=repository:a:pull&scope=repository:b:pull", "wide"},
		"scopes in one":       {tokenGrant{"auth.h", "a"}, "GET", "https://auth.h/token?scope=repository:a:pull+registry:catalog:*", "wide"},
		"to delete":           {tokenGrant{"auth.h", "a"}, "GET", "https://auth.h/token?scope=repository:a:delete", "wide"},
		"the catalogue":       {tokenGrant{"auth.h", ""}, "GET", "https://auth.h/token?scope=registry:catalog:*", "wide"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		err, got := c.grant.checkRequest(r), ""
		if err != nil {
			refused := err.(*tokenRefusal)
			f := failureOf(err)
			got = refused.host
			if refused.isWide {
				got = "wide"
			}
			if got == "" {
				got = "refused"
			}
			if f.Reason != atoll.ReasonRedirectRefused || refused.isWide == strings.Contains(f.Message, "tokenHost") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
