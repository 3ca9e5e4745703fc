package addressguard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"
)

// ClientOptions are the options of a client for a server that a user states.
type ClientOptions struct {
	// AllowedNetworks are networks in CIDR notation that are dialled although they are refused otherwise.
	AllowedNetworks []string
	// Bundle is PEM certificates of the CAs of the server; empty: those of the hub's system.
	Bundle []byte
	// ConnectTimeout bounds a connection, and Timeout the whole request.
	ConnectTimeout, Timeout time.Duration
}

// The errors of NewClient.
var (
	ErrBundle    = errors.New("the bundle has no certificate in PEM")
	ErrAddresses = errors.New("the hub cannot list the addresses of its machine, which are refused")
	ErrNetworks  = errors.New("the allowed networks are no networks")
	ErrProxy     = errors.New("the proxy in the hub's environment is not a URL; its operator must correct it")
)

// NewClient returns a client of one server that a user states, which dials what the guard allows and follows no redirect. The caller
// closes its idle connections. The error is a *RefusedAddressError, or one of those above.
func NewClient(server *url.URL, o ClientOptions) (*http.Client, error) {
	var roots *x509.CertPool
	if len(o.Bundle) > 0 {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(o.Bundle) {
			return nil, ErrBundle
		}
	}
	guard, err := NewGuard(o.AllowedNetworks)
	if err != nil {
		return nil, err
	}
	guard.OwnProxy = http.ProxyFromEnvironment
	transport, err := guard.NewTransport(server, TransportOptions{Roots: roots, ConnectTimeout: o.ConnectTimeout, AnswerTimeout: o.Timeout})
	if refused := (*RefusedAddressError)(nil); err != nil && !errors.As(err, &refused) {
		err = ErrProxy // the URL may have a password
	}
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: o.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// NewGuard returns a guard of this machine, which dials allowed networks in CIDR notation too, and uses no proxy. The error is ErrAddresses or
// ErrNetworks.
func NewGuard(allowedNetworks []string) (Guard, error) {
	own, err := ListOwnAddresses()
	if err != nil {
		return Guard{}, ErrAddresses
	}
	allowed, err := ParseNetworks(allowedNetworks)
	if err != nil { // the hub refuses to start with them
		return Guard{}, ErrNetworks
	}
	return Guard{Allowed: allowed, HubAddresses: own}, nil
}

// DescribeRequestError returns why a request to a server that a user states failed. No text that a server wrote is in it. flag is that of
// the hub by which networks are allowed, and bundle the field with the CAs.
func DescribeRequestError(err error, flag, bundle string) string {
	var refused *RefusedAddressError
	var certificate *tls.CertificateVerificationError
	var dns *net.DNSError
	var operation *net.OpError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, ErrBundle):
		return bundle + " has no certificate in PEM"
	case errors.Is(err, ErrNetworks):
		return flag + " has no networks"
	case errors.Is(err, ErrAddresses), errors.Is(err, ErrProxy):
		return err.Error()
	case errors.As(err, &refused):
		return refused.Error() + "; the hub's operator allows it by " + flag
	case errors.As(err, &certificate):
		return "the server's certificate cannot be verified: " + DescribeCertificateError(certificate.Err) + "; see " + bundle
	case errors.As(err, &dns):
		return "the name of the host, or of the hub's proxy, cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "the server does not answer in time"
	case errors.As(err, &operation):
		return DescribeFailedOperation(operation)
	}
	return "the server's answer ends early or is damaged"
}
