package addressguard

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// TransportOptions are the bounds of a transport to a server that a user states.
type TransportOptions struct {
	// Roots by which the server's certificate is verified; nil: those of the hub's system.
	Roots *x509.CertPool
	// ConnectTimeout bounds a connection, and its handshake. AnswerTimeout bounds the wait for the first bytes of an answer.
	ConnectTimeout, AnswerTimeout time.Duration
}

// maxHeaderBytes is the largest header of an answer.
const maxHeaderBytes = 64 << 10

// NewTransport returns a transport to a server, which dials what the guard allows. The error is a *RefusedAddressError, or
// about the hub's own proxy, whose URL may have a password.
func (g Guard) NewTransport(server *url.URL, o TransportOptions) (*http.Transport, error) {
	dial, proxy, err := g.ChooseProxy(server)
	if err != nil {
		return nil, err
	}
	soon := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
		defer cancel()
		return dial(ctx, network, address)
	}
	return &http.Transport{
		DialContext: soon, Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots}, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeaderBytes,
		TLSHandshakeTimeout: o.ConnectTimeout, ResponseHeaderTimeout: o.AnswerTimeout,
	}, nil
}

// ListOwnAddresses returns the addresses of this machine.
func ListOwnAddresses() (out []netip.Addr, err error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}

// DescribeCertificateError returns why a certificate is refused, without the names that the server wrote into it.
func DescribeCertificateError(err error) string {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return "it is of a CA that the hub does not trust"
	case errors.As(err, &host):
		return "it is of another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "it is not valid now"
	}
	return "it is of no valid form"
}

// DescribeFailedOperation returns why a connection failed. An error of the hub's proxy has the proxy's address around its cause,
// which is left out.
func DescribeFailedOperation(operation *net.OpError) string {
	inner := operation
	for errors.As(operation.Err, &inner) {
		operation = inner
	}
	return "the connection fails: " + operation.Err.Error()
}
