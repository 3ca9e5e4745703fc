// Package issuer signs people in at the OpenID Connect issuer that the hub's API trusts: authorisation code with
// PKCE, renewal, and the end of a sign-in.
//
// Contract: it dials the issuer alone, by https and with bounds, once a caller asks. A token that it returns is
// verified, but only the hub's API decides what it is worth. All methods are safe for concurrent use.
package issuer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	// metadataTime is how long the issuer's document counts, and retryTime how long a failure to read it.
	metadataTime = time.Hour
	retryTime    = 5 * time.Second
	// maxEndpoint bounds the URL of an endpoint.
	maxEndpoint = 2048
)

// signingAlgorithms are those that the hub's API accepts.
var signingAlgorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512}

// Client is a client of one issuer. Make it with NewClient.
type Client struct {
	settings settings
	http     *http.Client
	now      func() time.Time

	mu       sync.Mutex
	known    *provider // nil until the issuer has answered
	failure  *Failure  // of the last attempt; nil: it succeeded
	tried    time.Time // when the last attempt ended; zero: there was none
	since    time.Time // when attempts began to succeed, or to fail
	inFlight chan struct{}
}

// provider is what the issuer's document states.
type provider struct {
	verifier *oidc.IDTokenVerifier
	endpoints
	readTime time.Time
}

// endpoints are the addresses in the issuer's document that the console uses.
type endpoints struct {
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Keys          string   `json:"jwks_uri"`
	EndSession    string   `json:"end_session_endpoint"`
	Revocation    string   `json:"revocation_endpoint"`
	PKCEMethods   []string `json:"code_challenge_methods_supported"`
	ClientMethods []string `json:"token_endpoint_auth_methods_supported"`
}

// Tokens are what a sign-in or a renewal returns.
type Tokens struct {
	IDToken string
	Expiry  time.Time
	// Refresh renews the ID token; "": the issuer gave none.
	Refresh string
}

// NewClient returns a client for the options, which are those of an issuer in the AuthenticationConfiguration of the path. It
// dials nothing.
func NewClient(o Options, authenticationConfig string) (*Client, error) {
	s, err := readSettings(o, authenticationConfig)
	if err != nil {
		return nil, err
	}
	h, err := newHTTPClient(s)
	if err != nil {
		return nil, err
	}
	return &Client{settings: s, http: h, now: time.Now}, nil
}

// Host returns the host of the issuer.
func (c *Client) Host() string { return c.settings.host }

// Address returns the address of the console at which the issuer sends a browser back; "": the one that the browser uses.
func (c *Client) Address() string { return c.settings.address }

// Status is whether the issuer answers.
type Status struct {
	// State is Ready, Unreachable, or Checking while the first answer is awaited.
	State string
	// Since is when the state was first seen; zero: while the first answer is awaited.
	Since time.Time
	// Message is why the issuer is unreachable.
	Message string
}

// CheckStatus returns whether the issuer answers. It waits for a first answer until ctx ends.
func (c *Client) CheckStatus(ctx context.Context) Status {
	_, _ = c.findProvider(ctx) // its error is the state
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.tried.IsZero():
		return Status{State: "Checking"}
	case c.failure != nil:
		return Status{State: "Unreachable", Since: c.since, Message: c.failure.Message}
	}
	return Status{State: "Ready", Since: c.since}
}

// findProvider returns the issuer's document, which it reads in the background when it is old. One that could
// not be read again still counts.
func (c *Client) findProvider(ctx context.Context) (*provider, error) {
	c.mu.Lock()
	now := c.now()
	isFresh := c.known != nil && now.Sub(c.known.readTime) < metadataTime
	isFailed := c.failure != nil && now.Sub(c.tried) < retryTime
	if !isFresh && !isFailed && c.inFlight == nil {
		c.inFlight = make(chan struct{})
		go c.readMetadata(context.WithoutCancel(ctx), c.inFlight)
	}
	known, failure, awaited := c.known, c.failure, c.inFlight
	c.mu.Unlock()
	if known != nil {
		return known, nil
	}
	if awaited == nil {
		return nil, failure
	}
	select {
	case <-awaited:
	case <-ctx.Done():
		return nil, describeError("the issuer "+c.settings.host, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		return nil, c.failure
	}
	return c.known, nil
}

// readMetadata reads the issuer's document once, and closes done.
func (c *Client) readMetadata(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	found, failure := c.requestMetadata(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.tried.IsZero() || (c.failure == nil) != (failure == nil) {
		c.since = now
	}
	c.failure, c.tried, c.inFlight = failure, now, nil
	if failure == nil {
		found.readTime = now
		c.known = found
	}
	close(done)
}

func (c *Client) requestMetadata(ctx context.Context) (*provider, *Failure) {
	what := "the issuer " + c.settings.host
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, c.http), c.settings.url)
	if err != nil {
		return nil, describeError(what, err)
	}
	p := &provider{}
	if err := found.Claims(&p.endpoints); err != nil {
		return nil, describeError(what, err)
	}
	for _, required := range []string{p.Authorization, p.Token, p.Keys} {
		if !isEndpoint(required) {
			return nil, &Failure{Kind: Unreachable, Message: what + ": its document has no https URL for sign-in, tokens or keys"}
		}
	}
	if len(p.PKCEMethods) > 0 && !slices.Contains(p.PKCEMethods, "S256") {
		return nil, &Failure{Kind: Unreachable, Message: what + ": it does not support PKCE with S256"}
	}
	// Several audiences are compared by verifyToken.
	p.verifier = found.VerifierContext(oidc.ClientContext(ctx, c.http), &oidc.Config{SkipClientIDCheck: true, SupportedSigningAlgs: signingAlgorithms, Now: c.now})
	return p, nil
}

func isEndpoint(text string) bool {
	u, err := url.Parse(text)
	return len(text) <= maxEndpoint && err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil
}

func (c *Client) configFor(p *provider, redirectURL string) *oauth2.Config {
	endpoint := oauth2.Endpoint{AuthURL: p.Authorization, TokenURL: p.Token, AuthStyle: oauth2.AuthStyleInParams}
	if c.sendsBasicAuth(p) {
		endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	return &oauth2.Config{ClientID: c.settings.clientID, ClientSecret: c.settings.clientSecret, Endpoint: endpoint, RedirectURL: redirectURL, Scopes: c.settings.scopes}
}

// sendsBasicAuth reports whether the client's secret goes into the header, which is the default of OpenID Connect.
func (c *Client) sendsBasicAuth(p *provider) bool {
	return c.settings.clientSecret != "" && (len(p.ClientMethods) == 0 || slices.Contains(p.ClientMethods, "client_secret_basic"))
}

// SignIn is one sign-in under way. State, Nonce and Verifier are random.
type SignIn struct {
	State, Nonce, Verifier, RedirectURL string
}

// NewSignIn returns a sign-in with random values, which ends at a console of the host.
func NewSignIn(host string) SignIn {
	return SignIn{State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier(), RedirectURL: "https://" + host + CallbackPath}
}

// AuthorizeURL returns where a browser goes to sign in.
func (c *Client) AuthorizeURL(ctx context.Context, s SignIn) (string, error) {
	p, err := c.findProvider(ctx)
	if err != nil {
		return "", err
	}
	return c.configFor(p, s.RedirectURL).AuthCodeURL(s.State, oidc.Nonce(s.Nonce), oauth2.S256ChallengeOption(s.Verifier)), nil
}

// IsIssuer reports whether a text is the URL of the issuer.
func (c *Client) IsIssuer(text string) bool { return text == c.settings.url }

// ExchangeCode returns the tokens for the code of a sign-in.
func (c *Client) ExchangeCode(ctx context.Context, s SignIn, code string) (Tokens, error) {
	p, err := c.findProvider(ctx)
	if err != nil {
		return Tokens{}, err
	}
	answer, err := c.configFor(p, s.RedirectURL).Exchange(oidc.ClientContext(ctx, c.http), code, oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return Tokens{}, describeError("the issuer "+c.settings.host, err)
	}
	tokens, verified, err := c.verifyAnswer(ctx, p, answer)
	if err != nil {
		return Tokens{}, err
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(s.Nonce)) != 1 {
		return Tokens{}, &Failure{Kind: Unverified, Message: "the issuer's token is of another sign-in: its nonce differs"}
	}
	return tokens, nil
}

// RenewTokens returns tokens in place of an ID token, for the same subject. idToken is one that this client returned.
func (c *Client) RenewTokens(ctx context.Context, idToken, refresh string) (Tokens, error) {
	p, err := c.findProvider(ctx)
	if err != nil {
		return Tokens{}, err
	}
	ctx = oidc.ClientContext(ctx, c.http)
	answer, err := c.configFor(p, "").TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Tokens{}, describeError("the issuer "+c.settings.host, err)
	}
	tokens, verified, err := c.verifyAnswer(ctx, p, answer)
	if err != nil {
		return Tokens{}, err
	}
	before := readClaims(idToken)
	if verified.Subject != before.Subject || verified.Issuer != before.Issuer || verified.Nonce != "" && verified.Nonce != before.Nonce {
		return Tokens{}, &Failure{Kind: Unverified, Message: "the issuer's new token is of another sign-in"}
	}
	return tokens, nil
}

// verifyAnswer verifies the ID token of an answer: signature, issuer, expiry, and audience.
func (c *Client) verifyAnswer(ctx context.Context, p *provider, answer *oauth2.Token) (Tokens, *oidc.IDToken, error) {
	text, _ := answer.Extra("id_token").(string)
	if text == "" {
		return Tokens{}, nil, &Failure{Kind: Unverified, Message: "the issuer's answer has no ID token"}
	}
	verified, err := p.verifier.Verify(ctx, text)
	if err != nil {
		return Tokens{}, nil, c.describeVerification(err)
	}
	var party struct {
		Authorized string `json:"azp"`
	}
	if err := verified.Claims(&party); err != nil || !c.isForConsole(verified.Audience, party.Authorized) {
		return Tokens{}, nil, &Failure{Kind: Unverified, Message: "the issuer's ID token is for another audience"}
	}
	return Tokens{IDToken: text, Expiry: verified.Expiry, Refresh: answer.RefreshToken}, verified, nil
}

// describeVerification returns why an ID token was not verified. Without the issuer's keys nothing is known about the token.
func (c *Client) describeVerification(err error) *Failure {
	if strings.HasPrefix(err.Error(), "failed to verify signature: fetching keys ") {
		return &Failure{Kind: Unreachable, Message: "the issuer " + c.settings.host + ": its keys cannot be read"}
	}
	return &Failure{Kind: Unverified, Message: "the issuer's ID token is forged, expired, or of another issuer"}
}

// isForConsole reports whether a token was made for the console's client, and has an audience that the hub's API accepts.
func (c *Client) isForConsole(audience []string, authorized string) bool {
	isClient := authorized == c.settings.clientID || authorized == "" && slices.Contains(audience, c.settings.clientID)
	return isClient && slices.ContainsFunc(audience, func(one string) bool { return slices.Contains(c.settings.audiences, one) })
}

// IsIssued reports whether a token states that it is of the issuer. It does not verify the token.
func (c *Client) IsIssued(token string) bool { return readClaims(token).Issuer == c.settings.url }

// RevokeToken has the issuer revoke a refresh token. It does nothing where the issuer has no endpoint for that.
func (c *Client) RevokeToken(ctx context.Context, refresh string) error {
	p, err := c.findProvider(ctx)
	if err != nil {
		return err
	}
	if !isEndpoint(p.Revocation) {
		return nil
	}
	form := url.Values{"token": {refresh}, "token_type_hint": {"refresh_token"}, "client_id": {c.settings.clientID}}
	if c.settings.clientSecret != "" && !c.sendsBasicAuth(p) {
		form.Set("client_secret", c.settings.clientSecret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if c.sendsBasicAuth(p) {
		r.SetBasicAuth(url.QueryEscape(c.settings.clientID), url.QueryEscape(c.settings.clientSecret))
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return describeError("revoke the session at the issuer "+c.settings.host, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return &Failure{Kind: Refused, Message: "the issuer does not revoke the session: " + http.StatusText(answer.StatusCode)}
	}
	return nil
}

// EndSessionURL returns where a browser ends the person's session at the issuer; "": the issuer states none, or does not answer.
func (c *Client) EndSessionURL(ctx context.Context) string {
	p, err := c.findProvider(ctx)
	if err != nil || !isEndpoint(p.EndSession) {
		return ""
	}
	u, _ := url.Parse(p.EndSession) // isEndpoint has parsed it
	q := u.Query()
	q.Set("client_id", c.settings.clientID)
	u.RawQuery = q.Encode()
	return u.String()
}

// tokenClaims are what a renewal compares.
type tokenClaims struct {
	Issuer  string `json:"iss"`
	Subject string `json:"sub"`
	Nonce   string `json:"nonce"`
}

// readClaims reads a token without verifying it. A text that is no token has no claims.
func readClaims(token string) tokenClaims {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return tokenClaims{}
	}
	var claims tokenClaims
	if err := json.Unmarshal(text, &claims); err != nil {
		return tokenClaims{}
	}
	return claims
}

// HashToken returns a short hash of a token, by which a renewal is bound to it.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
