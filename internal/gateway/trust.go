package gateway

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/trust"
)

// Trust is by whom a hub and its agents know each other. Immutable; another one has
// another address.
type Trust struct {
	// Serving is the certificate that agents see. Its chain leads to, and has in it, each
	// CA that agents may pin.
	Serving tls.Certificate
	// HubCA are the CAs, in PEM, that agents trust from now on.
	HubCA []byte
	// AgentCAs verify agents.
	AgentCAs *x509.CertPool
	// Sign gives a client certificate in PEM, with chain, for an agent's key.
	Sign func(public crypto.PublicKey, commonName, organization string, lifetime time.Duration) ([]byte, error)
	// SignedBy is the generation of the CA that a verified chain ends in, Generation that
	// of the one that signs now. They grow.
	SignedBy   func(root *x509.Certificate) int
	Generation int
	// Edition grows whenever HubCA, AgentCAs or Sign change: all agents that are there
	// are given new certificates then.
	Edition int
}

func (t *Trust) complete() bool {
	return len(t.Serving.Certificate) > 0 && t.AgentCAs != nil && t.Sign != nil && t.SignedBy != nil
}

// reissuesPerSecond of certificates that no agent has asked for. At that rate 100,000
// take 17 minutes and a twentieth of a core.
const reissuesPerSecond = 100

// TrustChanged tells that Options.Trust gives another Trust from now on. Agents that are
// here are given certificates by it, at a pace; new connections know nothing else.
func (g *Gateway) TrustChanged() {
	select {
	case g.trustChanged <- struct{}{}:
	default:
	}
}

// reissues certificates after each change of trust, until ctx ends.
func (g *Gateway) reissues(ctx context.Context) {
	pace := rate.NewLimiter(reissuesPerSecond, 1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.trustChanged:
		}
		edition, given := g.o.Trust().Edition, 0
		for _, s := range g.sessions.all() {
			if g.certificates.edition(s) >= edition {
				continue
			}
			if pace.Wait(ctx) != nil {
				return
			}
			s.reissue()
			given++
		}
		if given > 0 {
			g.log.Info("agents that are connected were given new certificates, since the hub's CAs have changed", "agents", given)
		}
	}
}

// reissue gives the session's agent a certificate that it has not asked for: for its key,
// by the CA that signs now, and with it the CAs that it is to trust.
func (s *stream) reissue() {
	v, ok := visitorIn(s.grpc.Context())
	if !ok {
		return
	}
	shown := v.conn.ConnectionState().PeerCertificates
	if _, refused := s.g.admit(s.id); refused != nil || len(shown) == 0 {
		return
	}
	s.certify(shown[0].PublicKey, "rotation")
}

// formerly tells whether the agent came by a certificate of a CA that does not sign any
// more.
func (s *stream) formerly() bool {
	v, ok := visitorIn(s.grpc.Context())
	return ok && int(v.certificate.generation) < s.g.o.Trust().Generation
}

// certify the agent's key and send what came of it. The present certificate is good until
// its own end.
func (s *stream) certify(key crypto.PublicKey, why string) {
	t := s.g.o.Trust()
	certPEM, cert, err := s.g.sign(t, key, s.id.uid)
	if err != nil {
		s.log().Error("cannot give the agent a new certificate; it will ask again", "err", err)
		return
	}
	s.g.metrics.issued.WithLabelValues(why).Inc()
	s.g.certificates.renewed(s, certifiedBy(cert, t.Generation, t.Edition))
	s.control(&pb.FromHub{Frame: &pb.FromHub_Renewed{Renewed: &pb.Renewed{Certificate: certPEM, HubCa: t.HubCA}}})
}

// sign a certificate of the agent of that UID.
func (g *Gateway) sign(t *Trust, key crypto.PublicKey, uid string) ([]byte, *x509.Certificate, error) {
	certPEM, err := t.Sign(key, atoll.UserClusterPrefix+uid, atoll.GroupAgents, g.o.CertificateLifetime)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of cluster %s: %w", uid, err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, nil, errors.New("what was signed is no certificate in PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read what was signed: %w", err)
	}
	return certPEM, cert, nil
}

// certified is what is known of an agent's newest certificate.
type certified struct {
	ends, overdue int64 // Unix seconds
	generation    int32 // of the CA that signed it
	edition       int32 // of the trust that came with it
}

func certifiedBy(c *x509.Certificate, generation, edition int) certified {
	return certified{ends: c.NotAfter.Unix(), overdue: trust.Overdue(c).Unix(), generation: int32(generation), edition: int32(edition)}
}
