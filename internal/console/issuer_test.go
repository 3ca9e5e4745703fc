package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"atoll.dev/atoll/internal/console/issuer"
)

const testAudience = "atoll"

// testIssuer is an OpenID Connect issuer with TLS, one key, and one person.
type testIssuer struct {
	t      *testing.T
	server *httptest.Server
	key    *ecdsa.PrivateKey

	mu       sync.Mutex
	codes    map[string]url.Values // the requests that they are for
	refresh  map[string]bool
	revoked  []string
	requests map[string]int
	// document and claims change what the issuer states, and answers replaces whole answers by their paths.
	document, claims map[string]any
	answers          map[string]http.HandlerFunc
}

func newTestIssuer(t *testing.T) *testIssuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &testIssuer{
		t: t, key: key, codes: map[string]url.Values{}, refresh: map[string]bool{}, requests: map[string]int{}, claims: map[string]any{}, answers: map[string]http.HandlerFunc{},
	}
	i.server = httptest.NewTLSServer(i)
	t.Cleanup(i.server.Close)
	at := func(path string) string { return i.server.URL + path }
	i.document = map[string]any{
		"issuer": i.server.URL, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"), "jwks_uri": at("/keys"), "revocation_endpoint": at("/revoke"),
		"end_session_endpoint": at("/end"), "code_challenge_methods_supported": []string{"S256"}, "id_token_signing_alg_values_supported": []string{"ES256"},
	}
	return i
}

func (i *testIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.requests[r.URL.Path]++
	answer := i.answers[r.URL.Path]
	i.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(i.document)
	case "/keys":
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	case "/token":
		i.serveToken(w, r)
	case "/revoke":
		i.revoked = append(i.revoked, r.PostFormValue("token"))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// serveToken answers a code, once, and a refresh token, once. It checks the client, the redirect URL and PKCE.
func (i *testIssuer) serveToken(w http.ResponseWriter, r *http.Request) {
	var nonce string
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		asked, ok := i.codes[r.PostFormValue("code")]
		delete(i.codes, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || r.PostFormValue("client_id") != testAudience || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuseGrant(w)
			return
		}
		nonce = asked.Get("nonce")
	case "refresh_token":
		if !i.refresh[r.PostFormValue("refresh_token")] {
			refuseGrant(w)
			return
		}
		delete(i.refresh, r.PostFormValue("refresh_token"))
	}
	refresh := fmt.Sprintf("refresh-%d", i.requests["/token"])
	i.refresh[refresh] = true
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "unused", "token_type": "Bearer", "expires_in": 60, "refresh_token": refresh, "id_token": i.signToken(nonce)})
}

func refuseGrant(w http.ResponseWriter) {
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprint(w, `{"error":"invalid_grant","error_description":"<b>used</b> \u202e `+strings.Repeat("long ", 200)+`"}`)
}

// signToken returns an ID token; those of a renewal have no nonce.
func (i *testIssuer) signToken(nonce string) string {
	claims := map[string]any{"iss": i.server.URL, "sub": "aiko", "aud": testAudience, "iat": time.Now().Unix(), "jti": rand.Text()}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	maps.Copy(claims, i.claims)
	text, err := json.Marshal(claims)
	if err != nil {
		i.t.Error(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "1"}}, nil)
	if err != nil {
		i.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		i.t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		i.t.Error(err)
	}
	return token
}

// allowSignIn signs the person in for a request, and returns the code.
func (i *testIssuer) allowSignIn(asked url.Values) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	code := rand.Text()
	i.codes[code] = asked
	return code
}

func (i *testIssuer) countRequests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests[path]
}

// newHub returns a hub whose API accepts all tokens with three parts, and whose console signs in at the issuer.
func (i *testIssuer) newHub(change func(*issuer.Options)) *testHub {
	i.t.Helper()
	o := issuer.Options{URL: i.server.URL, Scopes: []string{"groups"}}
	if change != nil {
		change(&o)
	}
	h := newTestHubOf(i.t, 1, Options{SignIn: o, AuthenticationConfig: i.writeConfig()})
	h.clock = time.Now().Truncate(time.Second)
	i.claims["exp"] = h.clock.Add(time.Hour).Unix()
	h.api.accepts = func(token string) bool { return strings.Count(token, ".") == 2 }
	return h
}

// writeConfig writes the AuthenticationConfiguration of a hub that trusts the issuer.
func (i *testIssuer) writeConfig() string {
	i.t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        map[string]any{"url": i.server.URL, "audiences": []string{testAudience}, "certificateAuthority": string(authority)},
			"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": ""}},
		}},
	})
	if err != nil {
		i.t.Fatal(err)
	}
	path := filepath.Join(i.t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		i.t.Fatal(err)
	}
	return path
}
