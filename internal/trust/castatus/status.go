// Package castatus reports what the hub's administrator must know about the hub's CAs, its
// certificates and those of its agents: as endpoints, as conditions of the HubSettings and as
// metrics. It also serves the rotation of the CAs.
//
// Contract: a Reporter reads, and writes nothing but the HubSettings. A condition is there while
// it is true, and nothing is written while nothing changes. The HubSettings are created with the
// first condition. RunConditions belongs to the leader of several hubs. Agents are counted only for
// an endpoint, or while a rotation is under way. All types are safe for concurrent use.
package castatus

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/trust/standing"
	"atoll.dev/atoll/internal/wakeup"
)

// maxExampleClusters is how many clusters a Standing names of a kind.
const maxExampleClusters = 20

// conditionsInterval is how often the hub checks whether its credentials need a person.
const conditionsInterval = time.Minute

// Authorities are the CAs of the hub, and the certificates of its API.
type Authorities interface {
	CurrentAuthorities() *keys.Authorities
	ListCertificates() []standing.Certificate
	// FormerUsers lists the users of client certificates that end with the present rotation.
	FormerUsers() []standing.FormerUser
}

// Rotation changes the CAs.
type Rotation interface {
	RotateAuthorities(ctx context.Context) (*keys.Authorities, error)
	FinishRotation(ctx context.Context) (*keys.Authorities, error)
	// UsesRetiringCertificate reports whether the request used a certificate of the former CA.
	UsesRetiringCertificate(r *http.Request) bool
}

// Clusters is the table of members.
type Clusters interface {
	List() []*v1alpha1.Cluster
	IsOnline(uid string) bool
}

// Agents is what is known of agents' connections, on this hub and on others.
type Agents interface {
	// CertificateOf returns the end of an agent's certificate and the generation of its CA.
	CertificateOf(uid string) (ends time.Time, generation int, ok bool)
	// TransportOf returns the transport of the present connection; empty without one.
	TransportOf(uid string) string
}

// Settings are the HubSettings in memory.
type Settings interface {
	Subscribe(fn func(name string))
}

// CAReporter reports on the certificates of a hub.
type CAReporter struct {
	Authorities Authorities
	Rotation    Rotation
	Clusters    Clusters
	Agents      Agents
	// Settings, when they change, need their conditions at once.
	Settings Settings
	// GatewayCertificate returns the certificate of the gateway.
	GatewayCertificate func() standing.Certificate
	// IsComplete reports whether every other hub has sent the list of its agents.
	IsComplete func() bool
}

// Status returns the status of the hub's CAs now; with all, it also counts the agents by CA. With
// all, it counts agents.
func (r *CAReporter) Status(now time.Time, all bool) standing.CAStatus {
	a := r.Authorities.CurrentAuthorities()
	pins := a.CAPins()
	s := standing.CAStatus{
		Generation: a.Generation, CAHash: pins[0], FormerHashes: pins[1:], FormerUsers: r.Authorities.FormerUsers(),
		Certificates: append(r.Authorities.ListCertificates(), r.GatewayCertificate()),
	}
	if a.IsRotating() {
		s.RotatingSince = &a.Began
	}
	for _, one := range s.Certificates {
		if w := one.WarningText(now); w != "" {
			s.Warnings = append(s.Warnings, w)
		}
	}
	if all {
		s.Agents = r.countAgents(a.Generation, a.IsRotating())
	}
	return s
}

// countAgents counts accepted Clusters by the CA of their agents' certificates.
func (r *CAReporter) countAgents(generation int, rotating bool) (out standing.AgentCertificateCounts) {
	for _, c := range r.Clusters.List() {
		if !c.Spec.Accepted {
			continue
		}
		ends, by, known := r.Agents.CertificateOf(string(c.UID))
		r.countByCA(&out, c, known && by >= generation, rotating)
		if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring) {
			out.Overdue++
			out.OverdueClusters = appendExample(out.OverdueClusters, c.Name)
		}
		if known && (out.Soonest == nil || ends.Before(*out.Soonest)) {
			out.Soonest = &ends
		}
	}
	return out
}

// countByCA counts one agent. While no rotation is under way, only certificates of the present CA
// are accepted.
func (r *CAReporter) countByCA(out *standing.AgentCertificateCounts, c *v1alpha1.Cluster, current, rotating bool) {
	online := r.Clusters.IsOnline(string(c.UID))
	switch {
	case current || online && !rotating:
		out.Current++
	case online:
		out.Former++
		out.FormerClusters = appendExample(out.FormerClusters, c.Name)
	case meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined):
		out.Away++
	}
}

func appendExample(names []string, name string) []string {
	if len(names) < maxExampleClusters {
		names = append(names, name)
	}
	return names
}

// currentStatus counts agents only while a rotation is under way.
func (r *CAReporter) currentStatus(now time.Time) standing.CAStatus {
	return r.Status(now, r.Authorities.CurrentAuthorities().IsRotating())
}

// listAgentCertificates returns the ends of agents' certificates, and their transports.
func (r *CAReporter) listAgentCertificates() standing.Certificates {
	out := standing.Certificates{Ends: map[string]time.Time{}, Carriage: map[string]string{}}
	for _, c := range r.Clusters.List() {
		if ends, _, ok := r.Agents.CertificateOf(string(c.UID)); ok {
			out.Ends[c.Name] = ends.UTC()
		}
		if how := r.Agents.TransportOf(string(c.UID)); how != "" {
			out.Carriage[c.Name] = how
		}
	}
	return out
}

// RunConditions keeps the conditions of the HubSettings true until ctx ends. New or edited HubSettings
// get theirs at once.
func (r *CAReporter) RunConditions(ctx context.Context, c client.Client, log *slog.Logger) error {
	edited := make(chan struct{}, 1)
	r.Settings.Subscribe(func(string) { wakeup.WakeReader(edited) })
	var logged []string
	for {
		s := r.currentStatus(time.Now())
		if !slices.Equal(logged, s.Warnings) {
			logged = s.Warnings
			for _, w := range logged {
				log.Warn("one of the hub's certificates needs a person: " + w)
			}
		}
		if err := UpdateHubSettingsStatus(ctx, c, s, metav1.Now()); err != nil && ctx.Err() == nil {
			log.Error("cannot write the hub's conditions; the hub tries again", "after", conditionsInterval, "err", err)
		}
		if !pause.WaitForWakeup(ctx, edited, conditionsInterval) {
			return nil
		}
	}
}
