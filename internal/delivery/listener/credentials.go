package listener

import (
	"cmp"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/peer"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// servingLifetime of the gateway's certificate where the options have none.
	servingLifetime = 365 * 24 * time.Hour
	// peerLifetime of the certificate that a hub shows to another: it is made for one call.
	peerLifetime = 24 * time.Hour
)

// handleCertificateChange renews the trust, and signals the change.
func (l *GatewayListener) handleCertificateChange() {
	if err := l.renewTrust(time.Now()); err != nil {
		l.options.Logger.Error("cannot renew the gateway's certificate; the present one is used on", "err", err)
		return
	}
	wakeup.WakeReader(l.changed)
}

// renewTrust renews the certificate that agents see, and the CAs that agents are verified with.
func (l *GatewayListener) renewTrust(now time.Time) error {
	a := l.authorities.CurrentAuthorities()
	serving, err := l.issueServingCertificate(a, now)
	if err != nil {
		return err
	}
	l.trust.Store(&delivery.Trust{
		Serving: serving, HubCA: a.ClusterCABundlePEM(), AgentCAs: a.AgentCAPool(), Sign: agentCertificateSigner(a.Agent),
		SignedBy: a.AgentCAGeneration, Generation: a.Generation, Edition: a.TrustEdition(),
	})
	return nil
}

// issueServingCertificate issues the serving certificate of the gateway, with the chain to the CAs
// that agents pin.
func (l *GatewayListener) issueServingCertificate(a *keys.Authorities, now time.Time) (tls.Certificate, error) {
	r := keys.Request{
		CommonName: "atoll-gateway", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: now, Lifetime: cmp.Or(l.options.CertificateLifetime, servingLifetime),
		DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	names := slices.Clone(l.options.ExtraSANs)
	for one := range strings.SplitSeq(l.SelfAddress()+","+l.AdvertisedAddress()+","+l.LocalAddress(), ",") {
		host, _, err := net.SplitHostPort(one)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("--gateway-address: %q is not HOST:PORT: %w", one, err)
		}
		names = append(names, host)
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			r.IPs = append(r.IPs, ip)
		} else {
			r.DNSNames = append(r.DNSNames, name)
		}
	}
	cert, key, err := a.Cluster.IssueCertificate(r)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("issue the gateway's certificate: %w", err)
	}
	return tls.X509KeyPair(append(cert, a.ChainPEM()...), key)
}

// issuePeerCertificate issues the certificate that identifies this hub to other hubs. Its CA is
// trusted by gateways alone, so that the certificate opens nothing else.
func issuePeerCertificate(ca *keys.Authority, now time.Time) (*tls.Certificate, error) {
	cert, key, err := ca.IssueCertificate(keys.Request{
		CommonName: peer.CommonName, Organization: []string{peer.Organization},
		Usages:    []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: now, Lifetime: peerLifetime,
	})
	if err != nil {
		return nil, fmt.Errorf("issue this hub's certificate for other hubs: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("this hub's certificate for other hubs: %w", err)
	}
	return &pair, nil
}

// agentCertificateSigner returns the function that signs agents' certificates.
func agentCertificateSigner(ca *keys.Authority) func(crypto.PublicKey, string, string, time.Duration) ([]byte, error) {
	return func(public crypto.PublicKey, commonName, organization string, lifetime time.Duration) ([]byte, error) {
		return ca.SignKey(public, keys.Request{CommonName: commonName, Organization: []string{organization}, NotBefore: time.Now(), Lifetime: lifetime})
	}
}
