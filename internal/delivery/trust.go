package delivery

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/wakeup"
)

// Trust is the certificates and CAs by which a hub and its agents authenticate each other.
// It is immutable. Another Trust has another address.
type Trust struct {
	// Serving is the certificate of the gateway. Its chain contains and leads to each CA that
	// agents may pin.
	Serving tls.Certificate
	// HubCA are the CAs, in PEM, that agents must trust from now on.
	HubCA []byte
	// AgentCAs verify agents.
	AgentCAs *x509.CertPool
	// Sign returns a client certificate in PEM, with its chain, for an agent's key.
	Sign func(public crypto.PublicKey, commonName, organization string, lifetime time.Duration) ([]byte, error)
	// SignedBy returns the generation of the CA that a verified chain ends in. Generation is
	// that of the CA that signs now. Generations grow.
	SignedBy   func(root *x509.Certificate) int
	Generation int
	// Edition grows whenever HubCA, AgentCAs or Sign change. All connected agents then get new
	// certificates.
	Edition int
}

func (t *Trust) isComplete() bool {
	return len(t.Serving.Certificate) > 0 && t.AgentCAs != nil && t.Sign != nil && t.SignedBy != nil
}

// TrustChanged must be called when Options.Trust returns another Trust. Connected agents
// then get new certificates, at the rate pace.Reissues. New connections use the new Trust at once.
func (g *Gateway) TrustChanged() { wakeup.WakeReader(g.trustChanged) }

// reissueOnTrustChange issues new certificates after each change of trust, until ctx ends.
func (g *Gateway) reissueOnTrustChange(ctx context.Context) {
	limiter := pace.Reissues.NewLimiter()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.trustChanged:
		}
		edition, given := g.options.Trust().Edition, 0
		for _, s := range g.sessions.listAll() {
			if g.certificates.trustEditionOf(s) >= edition {
				continue
			}
			if limiter.Wait(ctx) != nil {
				return
			}
			s.reissueCertificate()
			given++
		}
		if given > 0 {
			g.log.Info("connected agents got new certificates, because the hub's CAs have changed", "agents", given)
		}
	}
}

// reissueCertificate sends the agent a certificate without a request: for its key, by the
// present CA, and with the CAs that the agent must trust.
func (s *agentSession) reissueCertificate() {
	v, ok := peerAuthFrom(s.grpc.Context())
	if !ok {
		return
	}
	shown := v.tlsConn.ConnectionState().PeerCertificates
	if _, refused := s.gateway.admitIdentity(s.id); refused != nil || len(shown) == 0 {
		return
	}
	s.sendCertificate(shown[0].PublicKey, "rotation")
}

// hasFormerCA reports whether the agent connected with a certificate of a CA that no
// longer signs.
func (s *agentSession) hasFormerCA() bool {
	v, ok := peerAuthFrom(s.grpc.Context())
	return ok && int(v.certificate.generation) < s.gateway.options.Trust().Generation
}

// sendCertificate signs a certificate for the agent's key and sends it. The present
// certificate stays valid until its end.
func (s *agentSession) sendCertificate(key crypto.PublicKey, why string) {
	t := s.gateway.options.Trust()
	certPEM, cert, err := s.gateway.signCertificate(t, key, s.id.uid)
	if err != nil {
		s.sessionLog().Error("cannot give the agent a new certificate; the agent will request it again", "err", err)
		return
	}
	s.gateway.metrics.issued.WithLabelValues(why).Inc()
	s.gateway.certificates.updateCertificate(s, newCertificateInfo(cert, t.Generation, t.Edition))
	s.queueControl(&pb.FromHub{Frame: &pb.FromHub_Renewed{Renewed: &pb.Renewed{Certificate: certPEM, HubCa: t.HubCA}}})
}

// signCertificate signs a certificate of the agent of that UID.
func (g *Gateway) signCertificate(t *Trust, key crypto.PublicKey, uid string) ([]byte, *x509.Certificate, error) {
	certPEM, err := t.Sign(key, atoll.UserClusterPrefix+uid, atoll.GroupAgents, g.options.CertificateLifetime)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of cluster %s: %w", uid, err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, nil, errors.New("the signer returned no certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the signed certificate: %w", err)
	}
	return certPEM, cert, nil
}

// certificateInfo is what is known of an agent's newest certificate.
type certificateInfo struct {
	notAfter, overdueAt int64 // Unix seconds
	generation          int32 // of the CA that signed it
	edition             int32 // of the trust that came with it
}

func newCertificateInfo(c *x509.Certificate, generation, edition int) certificateInfo {
	return certificateInfo{notAfter: c.NotAfter.Unix(), overdueAt: trust.RenewalOverdueAt(c).Unix(), generation: int32(generation), edition: int32(edition)}
}
