package fetch

import (
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/atoll"
)

// errMoved ends a redirect to another origin.
var errMoved = errors.New("the server redirects to another host")

// errTooLarge ends content, and errTextTooLarge a list of refs, that is larger than it may be.
var (
	errTooLarge     = errors.New("the server sends more than a fetch may read")
	errTextTooLarge = errors.New("the server sends a longer list of refs than a fetch may read")
)

// isServerURL reports whether a URL names a server, without credentials and without a zone or an escape in its host.
func isServerURL(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && !strings.Contains(u.Host, "%") && u.User == nil
}

// newTransport returns a transport that dials what the guard allows, with the CAs that the Repository states.
func newTransport(server *url.URL, r Request) (*http.Transport, error) {
	var roots *x509.CertPool
	if r.CABundle != "" {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(r.CABundle)) {
			return nil, newFailure(atoll.ReasonInvalidField, "caBundle has no certificate in PEM")
		}
	}
	return newTransportWith(server, r, roots)
}

// newTransportWith returns a transport that dials what the guard allows. Without roots, those of the hub's system count.
func newTransportWith(server *url.URL, r Request, roots *x509.CertPool) (*http.Transport, error) {
	guard, err := newGuard(r)
	if err != nil {
		return nil, err
	}
	guard.OwnProxy = http.ProxyFromEnvironment
	transport, err := guard.NewTransport(server, addressguard.TransportOptions{Roots: roots, ConnectTimeout: connectTimeout, AnswerTimeout: answerTimeout})
	var refused *addressguard.RefusedAddressError
	if errors.As(err, &refused) {
		return nil, err
	}
	if err != nil {
		// The error has the proxy's URL, which may have a password.
		return nil, newFailure(atoll.ReasonFetchFailed, "the proxy in the hub's environment is not a URL; its operator must correct it")
	}
	return transport, nil
}

// newGuard returns what refuses addresses, without a proxy.
func newGuard(r Request) (addressguard.Guard, error) {
	allowed, err := addressguard.ParseNetworks(r.AllowedNetworks)
	if err != nil {
		return addressguard.Guard{}, err
	}
	own, err := addressguard.ListOwnAddresses()
	if err != nil {
		return addressguard.Guard{}, newFailure(atoll.ReasonFetchFailed, "the hub cannot list the addresses of its machine, which are refused: %v", err)
	}
	return addressguard.Guard{Allowed: allowed, HubAddresses: own}, nil
}

// boundedBody is read by one goroutine. It fails when more is read than it may have.
type boundedBody struct {
	io.ReadCloser
	left *int64
	full error
}

// Read reads, and fails beyond the bound.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, b.full
	}
	return n, err
}

// originTransport sends the requests of a Repository of archives. Credentials go to the host of the Repository, and to the token host of
// a registry, alone. All bodies together have one bound. One goroutine uses it.
type originTransport struct {
	origin  *url.URL
	request Request
	own     *http.Transport
	// others are the transports of other hosts, which have archives.
	others map[string]*http.Transport
	// tokens is where else credentials go; empty for other servers than registries.
	tokens tokenGrant
	left   int64
	full   error
}

// newOriginTransport returns the transport of a Repository, with the most bytes of all answers, and the error beyond.
func newOriginTransport(origin *url.URL, r Request, most int64, full error) (*originTransport, error) {
	own, err := newTransport(origin, r)
	if err != nil {
		return nil, err
	}
	return &originTransport{origin: origin, request: r, own: own, others: map[string]*http.Transport{}, left: most, full: full}, nil
}

// isOrigin reports whether a URL is of the Repository's own server.
func (t *originTransport) isOrigin(u *url.URL) bool {
	return u.Scheme == t.origin.Scheme && u.Host == t.origin.Host
}

// RoundTrip sends a request. The text of an error is not read.
func (t *originTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	through := t.own
	if !t.isOrigin(r.URL) {
		other, err := t.transportOf(r.URL)
		if err != nil {
			return nil, err
		}
		through = other
		isOwn := r.Header.Get("Authorization") != "" && r.Response == nil // and not of a redirect
		if isOwn {
			if err := t.tokens.checkRequest(r); err != nil {
				return nil, err
			}
		}
		r = r.Clone(r.Context())
		for _, name := range []string{"Authorization", "Cookie", "Referer"} {
			if name != "Authorization" || !isOwn {
				r.Header.Del(name)
			}
		}
	}
	resp, err := through.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		resp.Body.Close()
		resp.Body = http.NoBody
		return resp, nil
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: &t.left, full: t.full}
	return resp, nil
}

// transportOf returns the transport of another host. Its certificate may be of the hub's system or of caBundle. A server
// over TLS leads to none without.
func (t *originTransport) transportOf(u *url.URL) (*http.Transport, error) {
	if !isServerURL(u) || u.Scheme != "https" && t.origin.Scheme == "https" {
		return nil, errMoved
	}
	key := u.Scheme + "://" + u.Host
	if known := t.others[key]; known != nil {
		return known, nil
	}
	var roots *x509.CertPool
	if t.request.CABundle != "" {
		var err error
		if roots, err = x509.SystemCertPool(); err != nil {
			roots = x509.NewCertPool()
		}
		roots.AppendCertsFromPEM([]byte(t.request.CABundle))
	}
	made, err := newTransportWith(u, t.request, roots)
	if err == nil {
		t.others[key] = made
	}
	return made, err
}

func (t *originTransport) closeIdle() {
	t.own.CloseIdleConnections()
	for _, other := range t.others {
		other.CloseIdleConnections()
	}
}

// maxRedirects is how many redirects one request follows.
const maxRedirects = 5

// newClient returns a client. A request that mayMove allows is redirected to other hosts, without credentials.
func (t *originTransport) newClient(mayMove func(*http.Request) bool) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || !t.isOrigin(to.URL) && !mayMove(via[0]) {
			return errMoved
		}
		return nil
	}}
}
