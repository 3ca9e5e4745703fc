package issuer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// requestTime bounds one request to the issuer, and maxAnswer and maxAnswerHeader its answer.
	requestTime     = 10 * time.Second
	maxAnswer       = 1 << 20
	maxAnswerHeader = 64 << 10
	wellKnownPath   = "/.well-known/openid-configuration"
)

var (
	errNotHTTPS = errors.New("the address of the issuer is not https")
	errRedirect = errors.New("the issuer redirects, which is not followed")
)

// newHTTPClient returns a client for the issuer alone: https, bounded answers, no redirects.
func newHTTPClient(s settings) (*http.Client, error) {
	var roots *x509.CertPool
	if s.certificateAuthority != "" {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM([]byte(s.certificateAuthority)) {
			return nil, errors.New("--authentication-config: the issuer's certificateAuthority has no certificate")
		}
	}
	return &http.Client{
		Timeout:       requestTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
		Transport: &boundedTransport{
			base: &http.Transport{
				Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: requestTime,
				MaxResponseHeaderBytes: maxAnswerHeader, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			},
			wellKnown: strings.TrimSuffix(s.url, "/") + wellKnownPath, discoveryURL: s.discoveryURL,
		},
	}, nil
}

// boundedTransport refuses requests without TLS, and bounds answers. It reads the discovery document where the
// AuthenticationConfiguration has another place for it.
type boundedTransport struct {
	base                    http.RoundTripper
	wellKnown, discoveryURL string
}

func (t *boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.discoveryURL != "" && r.URL.String() == t.wellKnown {
		moved, err := http.NewRequestWithContext(r.Context(), r.Method, t.discoveryURL, http.NoBody)
		if err != nil {
			return nil, err
		}
		r = moved
	}
	if r.URL.Scheme != "https" {
		return nil, errNotHTTPS
	}
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	return answer, nil
}
