package keys

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/trust"
)

// Authorities are the CAs by which a hub, its users and its agents identify each other, at one time.
// The first are those of the key set's files; each rotation replaces them. Immutable, and safe for
// concurrent use.
//
// The cluster CA identifies the hub. Its new key is also certified by the one before, so that a
// client with an older CA can follow the chain that the hub shows, also long after the older key
// is gone. The agent CA identifies agents: the former one counts until the rotation is finished.
type Authorities struct {
	// Generation counts from 1; each rotation begins the next.
	Generation int
	// Cluster and Agent sign whatever is signed now.
	Cluster, Agent *Authority
	// Began is when the rotation that is under way did; zero: none is.
	Began time.Time

	former []former // the latest first
}

// former authorities: their certificates, without their keys.
type former struct {
	cluster, agent *x509.Certificate
	// cross certifies the cluster CA that came next, by this one's key.
	cross *x509.Certificate
}

// formerMost is how many former CAs the hub's chain goes back to.
const formerMost = 8

var (
	// ErrRotating refuses a rotation while one is under way.
	ErrRotating = errors.New("a rotation of the hub's CAs is under way; finish it first: atoll ca finish")
	// ErrNotRotating refuses the end of a rotation that was not begun.
	ErrNotRotating = errors.New("no rotation of the hub's CAs is under way; begin one: atoll ca rotate")
)

// FileAuthorities returns the authorities that the files of the set hold.
func (s *KeySet) FileAuthorities() *Authorities {
	return &Authorities{Generation: 1, Cluster: s.ClusterCA, Agent: s.AgentCA}
}

// IsRotating reports whether former CAs count beside the new ones.
func (a *Authorities) IsRotating() bool { return !a.Began.IsZero() }

// TrustEdition grows whenever what agents are to trust, or are to be trusted by, changes.
func (a *Authorities) TrustEdition() int {
	if a.IsRotating() {
		return 2*a.Generation - 1
	}
	return 2 * a.Generation
}

// BeginRotation begins a rotation: new CAs sign from now on, and the former count beside them.
func (a *Authorities) BeginRotation(now time.Time) (*Authorities, error) {
	if a.IsRotating() {
		return nil, ErrRotating
	}
	next := &Authorities{Generation: a.Generation + 1, Began: now.UTC().Truncate(time.Second)}
	var err error
	if next.Cluster, err = newAuthority(fmt.Sprintf("atoll-cluster-ca-%d", next.Generation), now); err != nil {
		return nil, err
	}
	if next.Agent, err = newAuthority(fmt.Sprintf("atoll-agent-ca-%d", next.Generation), now); err != nil {
		return nil, err
	}
	cross, err := a.Cluster.crossCertify(next.Cluster.Cert)
	if err != nil {
		return nil, err
	}
	next.former = append(next.former, former{a.Cluster.Cert, a.Agent.Cert, cross})
	for _, f := range a.former[:min(len(a.former), formerMost-1)] {
		if now.Before(f.cluster.NotAfter) {
			next.former = append(next.former, f)
		}
	}
	return next, nil
}

// FinishRotation ends a rotation: the former CAs do not count any more.
func (a *Authorities) FinishRotation() (*Authorities, error) {
	if !a.IsRotating() {
		return nil, ErrNotRotating
	}
	next := *a
	next.Began = time.Time{}
	return &next, nil
}

// ClusterCABundlePEM returns the CAs in PEM by which agents and kubeconfigs recognise the hub.
// While a rotation is under way the former one is among them.
func (a *Authorities) ClusterCABundlePEM() []byte {
	out := bytes.Clone(a.Cluster.CertPEM)
	if a.IsRotating() {
		out = append(out, certificatePEM(a.former[0].cluster)...)
	}
	return out
}

// ChainPEM is the chain after a certificate that the cluster CA has signed, in PEM. It leads to
// each CA by which a client may verify the hub, and includes that CA itself, for clients that pin a
// CA by its hash.
func (a *Authorities) ChainPEM() []byte {
	out := bytes.Clone(a.Cluster.CertPEM)
	for _, f := range a.former {
		out = append(out, certificatePEM(f.cross)...)
		out = append(out, certificatePEM(f.cluster)...)
	}
	return out
}

// AgentCAPool is what agents' certificates are verified by.
func (a *Authorities) AgentCAPool() *x509.CertPool {
	p := a.Agent.CertPool()
	if a.IsRotating() {
		p.AddCert(a.former[0].agent)
	}
	return p
}

// ClusterCAPool is what the hub's own certificates are verified by.
func (a *Authorities) ClusterCAPool() *x509.CertPool {
	p := a.Cluster.CertPool()
	if a.IsRotating() {
		p.AddCert(a.former[0].cluster)
	}
	return p
}

// AgentCAGeneration is the generation of the agent CA that a verified chain ends in; 0 for one that
// is not known.
func (a *Authorities) AgentCAGeneration(root *x509.Certificate) int {
	if root.Equal(a.Agent.Cert) {
		return a.Generation
	}
	for i, f := range a.former {
		if root.Equal(f.agent) {
			return a.Generation - 1 - i
		}
	}
	return 0
}

// RetiresCertificate reports whether the former cluster CA has signed a certificate, while it
// counts beside the present one.
func (a *Authorities) RetiresCertificate(c *x509.Certificate) bool {
	if !a.IsRotating() {
		return false
	}
	by := a.former[0].cluster
	return bytes.Equal(c.AuthorityKeyId, by.SubjectKeyId) && c.CheckSignatureFrom(by) == nil
}

// CAPins returns the hashes of the present and the former cluster CAs, the present CA first.
func (a *Authorities) CAPins() []string {
	out := []string{trust.CertificateKeyHash(a.Cluster.Cert)}
	for _, f := range a.former {
		out = append(out, trust.CertificateKeyHash(f.cluster))
	}
	return out
}

// Equal authorities are of one generation and one stage of its rotation.
func (a *Authorities) Equal(b *Authorities) bool {
	return a.TrustEdition() == b.TrustEdition() && a.Cluster.Cert.Equal(b.Cluster.Cert) && a.Agent.Cert.Equal(b.Agent.Cert)
}
