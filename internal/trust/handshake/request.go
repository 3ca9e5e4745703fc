package handshake

import (
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/trust"
)

const (
	// SignerName of agents' certificate requests.
	SignerName = "atoll.dev/agent"
	// LabelCluster, on a certificate request, holds the name of the Cluster.
	LabelCluster = "atoll.dev/cluster"
	// LabelSet, on a Cluster, holds the exclusive set that its token named.
	LabelSet = v1alpha1.LabelClusterSet
	// TaintUnreviewed keeps work off a Cluster that no administrator has reviewed.
	TaintUnreviewed = "atoll.dev/unreviewed"

	// AnnotationUID, on a certificate request, holds the UID of the Cluster.
	AnnotationUID = "atoll.dev/cluster-uid"
	// AnnotationFrom, on a certificate request, holds the address from which the hub got it, for people.
	AnnotationFrom = "atoll.dev/requested-from"
	// AnnotationAgentKey, on a Cluster, holds its agent's key, sealed by the hub.
	AnnotationAgentKey = "atoll.dev/agent-key"
	// AnnotationNextKey, on a Cluster, holds the key of an agent that requested to take the joined
	// agent's place, sealed by the hub.
	AnnotationNextKey = "atoll.dev/next-agent-key"
)

// RequestName returns the name of the request for that key under that Cluster.
func RequestName(cluster, keyHash string) string {
	_, digits, _ := strings.Cut(keyHash, ":")
	return "atoll-" + cluster + "-" + digits[:min(12, len(digits))]
}

// expirationLeast is the shortest lifetime, in seconds, that Kubernetes accepts in a request.
// The signer can issue a shorter one.
const expirationLeast = 600

// NewRequest returns the CertificateSigningRequest that an administrator approves. It requests
// that lifetime, or the shortest that Kubernetes accepts. from is the address of the agent.
func NewRequest(cluster, uid, from string, r trust.CertificateRequest, lifetimeSeconds int32) *certificatesv1.CertificateSigningRequest {
	lifetimeSeconds = max(lifetimeSeconds, expirationLeast)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name:        RequestName(cluster, r.KeyHash),
			Labels:      map[string]string{LabelCluster: cluster},
			Annotations: map[string]string{AnnotationUID: uid, AnnotationFrom: from},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           r.PEM(),
			SignerName:        SignerName,
			ExpirationSeconds: &lifetimeSeconds,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}
}

// Decision is an administrator's decision about a request.
type Decision string

// The decisions.
const (
	Undecided Decision = ""
	Approved  Decision = "Approved"
	Denied    Decision = "Denied"
)

// DecisionOn returns the decision about a request. A denial outweighs an approval.
func DecisionOn(r *certificatesv1.CertificateSigningRequest) Decision {
	d := Undecided
	for _, c := range r.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return Denied
		case certificatesv1.CertificateApproved:
			d = Approved
		}
	}
	return d
}
