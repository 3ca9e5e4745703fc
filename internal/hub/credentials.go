package hub

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/gateway"
	"atoll.dev/atoll/internal/hub/conditions"
	"atoll.dev/atoll/internal/peer"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/standing"
)

// peerLifetime of the certificate that a hub shows to another: it is made for one call.
const peerLifetime = 24 * time.Hour

// credentials are by whom this hub and its agents know each other, at any time: what the
// hub's CAs make of it, with a certificate for the gateway that is renewed in time.
type credentials struct {
	o         Options
	server    *apiserver.Server
	addresses string // that agents dial, by commas
	log       *slog.Logger
	now       atomic.Pointer[gateway.Trust]
	changed   chan struct{} // capacity 1: now is another
}

func newCredentials(o Options, server *apiserver.Server, addresses string) (*credentials, error) {
	c := &credentials{o: o, server: server, addresses: addresses, log: o.API.Logger, changed: make(chan struct{}, 1)}
	if err := c.renew(time.Now()); err != nil {
		return nil, err
	}
	server.OnCertificates(func() {
		if err := c.renew(time.Now()); err != nil {
			c.log.Error("cannot renew the gateway's certificate; the present one is used on", "err", err)
			return
		}
		select {
		case c.changed <- struct{}{}:
		default:
		}
	})
	return c, nil
}

// renew what agents see, and by whom they are known.
func (c *credentials) renew(now time.Time) error {
	a := c.server.Authorities()
	serving, err := servingCertificate(c.o, a, c.addresses, now)
	if err != nil {
		return err
	}
	c.now.Store(&gateway.Trust{
		Serving: serving, HubCA: a.ClusterPEM(), AgentCAs: a.AgentPool(), Sign: signer(a.Agent),
		SignedBy: a.SignedBy, Generation: a.Generation, Edition: a.Edition(),
	})
	return nil
}

// follow changes until ctx ends: the gateway is told, and so are those who read where
// agents dial, where this hub leads.
func (c *credentials) follow(ctx context.Context, p *parts) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		p.gateway.TrustChanged()
		if !p.leads() {
			continue
		}
		if err := c.publish(ctx, p); err != nil && ctx.Err() == nil {
			c.log.Error("what new clusters are to know the hub by is outdated until this hub is started again", "err", err)
		}
	}
}

// conditionsEvery is how often the hub looks whether its credentials need somebody.
const conditionsEvery = time.Minute

// warn keeps the hub's conditions true while this hub leads, until ctx ends. It looks at
// agents only while a rotation is under way.
func (c *credentials) warn(ctx context.Context, p *parts) error {
	said := []string(nil)
	for {
		s := p.standing(time.Now(), c.server.Authorities().Rotating())
		if !slices.Equal(said, s.Warnings) {
			said = s.Warnings
			for _, w := range said {
				c.log.Warn("one of the hub's certificates needs somebody: " + w)
			}
		}
		if err := conditions.Tell(ctx, p.state.Client, s, metav1.Now()); err != nil && ctx.Err() == nil {
			c.log.Error("cannot write the hub's conditions; the hub tries again", "after", conditionsEvery, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(conditionsEvery):
		}
	}
}

// certificates of the hub: its CAs, and what it shows.
func (c *credentials) certificates() []standing.Certificate {
	a := c.server.Authorities()
	front := c.server.Keys().FrontProxyCA.Cert
	out := []standing.Certificate{
		{Name: "cluster CA", Ends: a.Cluster.Cert.NotAfter, Issued: trust.Issued(a.Cluster.Cert)},
		{Name: "agent CA", Ends: a.Agent.Cert.NotAfter, Issued: trust.Issued(a.Agent.Cert)},
		{Name: "front proxy CA", Ends: front.NotAfter, Issued: trust.Issued(front)},
	}
	if leaf := c.now.Load().Serving.Leaf; leaf != nil {
		out = append(out, standing.Certificate{Name: "gateway", Ends: leaf.NotAfter, Issued: trust.Issued(leaf), Own: true})
	}
	for _, shown := range c.server.ServingCertificates() {
		out = append(out, standing.Certificate{Name: shown.Name, Ends: shown.Leaf.NotAfter, Issued: trust.Issued(shown.Leaf), Own: shown.Own})
	}
	return out
}

// publish where agents dial and what they pin.
func (c *credentials) publish(ctx context.Context, p *parts) error {
	a := c.server.Authorities()
	return publishInfo(ctx, p.state.Client, p.door.address, trust.CertificateHash(a.Cluster.Cert), a.ClusterPEM())
}

// toHub is how this hub dials another one.
func (c *credentials) toHub(host string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: c.server.Authorities().ClusterPool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return hubCertificate(c.server.Authorities().Agent, time.Now())
		},
	}
}

// hubCertificate is by what other hubs know this one. The CA is the one that only
// gateways trust, so that it opens nothing else.
func hubCertificate(ca *keys.Authority, now time.Time) (*tls.Certificate, error) {
	cert, key, err := ca.Issue(keys.Request{
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

// signer of agents' certificates.
func signer(ca *keys.Authority) func(crypto.PublicKey, string, string, time.Duration) ([]byte, error) {
	return func(public crypto.PublicKey, commonName, organization string, lifetime time.Duration) ([]byte, error) {
		return ca.Sign(public, keys.Request{CommonName: commonName, Organization: []string{organization}, NotBefore: time.Now(), Lifetime: lifetime})
	}
}
