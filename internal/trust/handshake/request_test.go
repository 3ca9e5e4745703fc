package handshake

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/internal/trust"
)

// TestARequestAsksForALifeThatMayBeAskedFor: a request has a lifetime that Kubernetes accepts,
// however short the lifetimes of agents are.
func TestARequestAsksForALifeThatMayBeAskedFor(t *testing.T) {
	for seconds, want := range map[int32]int32{30: 600, 599: 600, 600: 600, 86400: 86400} {
		if got := NewRequest("oslo", "u1", "203.0.113.7:4711", trust.CertificateRequest{}, seconds).Spec.ExpirationSeconds; *got != want {
			t.Errorf("for %d seconds it asks for %d", seconds, *got)
		}
	}
}

// TestADenialOutweighsAnApproval: the order of conditions does not matter, and a condition with
// status False decides nothing.
func TestADenialOutweighsAnApproval(t *testing.T) {
	is := func(what certificatesv1.RequestConditionType, so corev1.ConditionStatus) certificatesv1.CertificateSigningRequestCondition {
		return certificatesv1.CertificateSigningRequestCondition{Type: what, Status: so}
	}
	approved, denied := is(certificatesv1.CertificateApproved, corev1.ConditionTrue), is(certificatesv1.CertificateDenied, corev1.ConditionTrue)
	for name, c := range map[string]struct {
		conditions []certificatesv1.CertificateSigningRequestCondition
		want       Decision
	}{
		"without a decision":         {nil, Undecided},
		"approved":                   {[]certificatesv1.CertificateSigningRequestCondition{approved}, Approved},
		"approved, by old APIs":      {[]certificatesv1.CertificateSigningRequestCondition{is(certificatesv1.CertificateApproved, "")}, Approved},
		"denied":                     {[]certificatesv1.CertificateSigningRequestCondition{denied}, Denied},
		"denied, and approved later": {[]certificatesv1.CertificateSigningRequestCondition{denied, approved}, Denied},
		"approved, and denied later": {[]certificatesv1.CertificateSigningRequestCondition{approved, denied}, Denied},
		"approved, and failed":       {[]certificatesv1.CertificateSigningRequestCondition{is(certificatesv1.CertificateFailed, corev1.ConditionTrue), approved}, Denied},
		"not approved":               {[]certificatesv1.CertificateSigningRequestCondition{is(certificatesv1.CertificateApproved, corev1.ConditionFalse)}, Undecided},
		"something else":             {[]certificatesv1.CertificateSigningRequestCondition{is("Seen", corev1.ConditionTrue)}, Undecided},
	} {
		t.Run(name, func(t *testing.T) {
			r := &certificatesv1.CertificateSigningRequest{Status: certificatesv1.CertificateSigningRequestStatus{Conditions: c.conditions}}
			if got := DecisionOn(r); got != c.want {
				t.Errorf("it is %q, want %q", got, c.want)
			}
		})
	}
}
