package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWhyAnAPIWasNotSpokenTo is said in words that tell what to do.
func TestWhyAnAPIWasNotSpokenTo(t *testing.T) {
	c := &Connection{Config: &rest.Config{Host: "https://oslo:6443"}}
	for why, says := range map[error]string{
		errors.New("dial tcp: connection refused"):                                              "https://oslo:6443 does not answer: dial tcp: connection refused; is it running",
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}:                    "the server at https://oslo:6443 is not known by the certificate authority in the kubeconfig: x509: certificate signed by unknown authority;",
		errors.New("getting credentials: exec: executable eks not found\n\nIt looks like\nyou"): "https://oslo:6443 got no request: the kubeconfig logs in by a plugin, and that failed: exec: executable eks not found; install it",
	} {
		err := c.ExplainError(&url.Error{Op: "Get", URL: "https://oslo:6443/version", Err: why})
		if !strings.HasPrefix(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q; wanted %q", err, says)
		}
	}
}
