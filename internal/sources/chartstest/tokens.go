package chartstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/token" // what the configuration names
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// The names that a registry and its token server have for each other.
const (
	tokenIssuer  = "lab"
	tokenService = "registry"
	tokenKey     = "one"
)

// TokenServer issues the tokens of a registry to the user with the password. It is safe for concurrent use.
type TokenServer struct {
	*httptest.Server
	signer   jose.Signer
	mu       sync.Mutex
	requests []string
	moved    string
}

// NewTokenRegistry starts a registry of the distribution project with TLS that has its tokens from another server. wrap may be nil.
func NewTokenRegistry(t testing.TB, wrap func(http.Handler) http.Handler) (server *httptest.Server, tokens *TokenServer, ca string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tokens = &TokenServer{}
	if tokens.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: tokenKey}}, nil); err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: tokenKey, Algorithm: string(jose.ES256), Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	tokens.Server = httptest.NewTLSServer(tokens)
	t.Cleanup(tokens.Close)
	server, ca = startRegistry(t, configuration.Auth{"token": configuration.Parameters{"realm": tokens.URL + "/token", "service": tokenService, "issuer": tokenIssuer, "jwks": file}}, wrap)
	return server, tokens, ca
}

// TakeRequests returns the users and the scopes of the requests since the last call.
func (s *TokenServer) TakeRequests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.requests, ", ")
	s.requests = nil
	return out
}

// MoveTo lets the server redirect all requests to another one; empty: it answers them.
func (s *TokenServer) MoveTo(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = url
}

// ServeHTTP answers a request for a token.
func (s *TokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	scopes := strings.Fields(strings.Join(r.URL.Query()["scope"], " "))
	s.mu.Lock()
	s.requests = append(s.requests, strings.TrimSpace(user+" "+strings.Join(scopes, " ")))
	moved := s.moved
	s.mu.Unlock()
	if moved != "" {
		http.Redirect(w, r, moved, http.StatusTemporaryRedirect)
		return
	}
	if user != Username || password != Password {
		http.Error(w, "the password is not "+password, http.StatusUnauthorized)
		return
	}
	token, err := s.issueToken(user, scopes)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"token": token}) // the client notes an answer that is cut
}

// issueToken returns a token with all access that is requested.
func (s *TokenServer) issueToken(user string, scopes []string) (string, error) {
	access := []map[string]any{}
	for _, scope := range scopes {
		if parts := strings.Split(scope, ":"); len(parts) == 3 {
			access = append(access, map[string]any{"type": parts[0], "name": parts[1], "actions": strings.Split(parts[2], ",")})
		}
	}
	now := time.Now()
	return jwt.Signed(s.signer).Claims(map[string]any{
		"iss": tokenIssuer, "aud": tokenService, "sub": user, "iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(), "access": access,
	}).Serialize()
}
