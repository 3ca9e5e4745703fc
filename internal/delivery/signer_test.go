package delivery

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"log/slog"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// newTrustRequest is a request for a certificate by a key of its own.
func newTrustRequest(t *testing.T) trust.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := trust.NewCertificateRequest(key, "whatever")
	if err != nil {
		t.Fatal(err)
	}
	request, err := trust.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// TestWhichRequestsAreSigned: those alone that an administrator approved, of a Cluster that is
// accepted, by the key of its request to join, and for that Cluster and no other.
func TestWhichRequestsAreSigned(t *testing.T) {
	set, err := keys.LoadOrCreate(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	hubKey, request := []byte("0123456789abcdef0123456789abcdef"), newTrustRequest(t)
	seals := func(name string) string { return trust.SealKeyHash(hubKey, name, request.KeyHash) }
	type world struct {
		csr     *certificatesv1.CertificateSigningRequest
		cluster *v1alpha1.Cluster
	}
	decide := func(w *world, c certificatesv1.RequestConditionType) {
		w.csr.Status.Conditions = append(w.csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue})
	}
	for name, c := range map[string]struct {
		change func(*world)
		signed bool
		failed string // why it never will be; "": it may be one day
		waits  bool   // for its Cluster to change
	}{
		"as it should be": {change: func(*world) {}, signed: true},
		"by the next key": {change: func(w *world) {
			w.cluster.Annotations = map[string]string{handshake.AnnotationAgentKey: trust.SealKeyHash(hubKey, "tokyo", "sha256:old"), handshake.AnnotationNextKey: seals("tokyo")}
		}, signed: true},
		"for another signer":       {change: func(w *world) { w.csr.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName }},
		"without an approval":      {change: func(w *world) { w.csr.Status.Conditions = nil }},
		"that was denied since":    {change: func(w *world) { decide(w, certificatesv1.CertificateDenied) }},
		"that is signed":           {change: func(w *world) { w.csr.Status.Certificate = []byte("there") }},
		"of what is no request":    {change: func(w *world) { w.csr.Spec.Request = []byte("no PEM") }, failed: "it is no PEM block"},
		"of a Cluster that waits":  {change: func(w *world) { w.cluster.Spec.Accepted = false }, waits: true},
		"of no Cluster":            {change: func(w *world) { w.csr.Labels[handshake.LabelCluster] = "rome" }, failed: "its Cluster is gone"},
		"of another of that name":  {change: func(w *world) { w.csr.Annotations[handshake.AnnotationUID] = "former" }, failed: "its Cluster is gone"},
		"by an unknown key":        {change: func(w *world) { w.cluster.Annotations = nil }, failed: "its key is not one by which an agent requested to join as tokyo"},
		"by a key of another":      {change: func(w *world) { w.cluster.Annotations[handshake.AnnotationAgentKey] = seals("rome") }, failed: "its key is not one"},
		"by a key that was put in": {change: func(w *world) { w.cluster.Annotations[handshake.AnnotationAgentKey] = request.KeyHash + ".00" }, failed: "its key is not one"},
		"by a next key of another": {change: func(w *world) { w.cluster.Annotations = map[string]string{handshake.AnnotationNextKey: seals("rome")} }, failed: "its key is not one"},
		"by another than is stated": {change: func(w *world) {
			w.cluster.Annotations[handshake.AnnotationAgentKey] = trust.SealKeyHash(hubKey, "tokyo", "sha256:x")
		}, failed: "its key is not one"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{csr: handshake.NewRequest("tokyo", "u1", "203.0.113.7:4711", request, 3600), cluster: &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}}
			w.cluster.Name, w.cluster.UID, w.cluster.Annotations = "tokyo", "u1", map[string]string{handshake.AnnotationAgentKey: seals("tokyo")}
			decide(w, certificatesv1.CertificateApproved)
			c.change(w)
			csrs := memRequests{fake.NewClientset(w.csr.DeepCopy()).CertificatesV1().CertificateSigningRequests()}
			var as []string
			g := &Gateway{log: slog.New(slog.DiscardHandler), options: Options{
				Requests: csrs, HubKey: hubKey, CertificateLifetime: time.Hour,
				Client: ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(w.cluster).Build(),
				Trust: func() *Trust {
					return &Trust{Sign: func(public crypto.PublicKey, cn, org string, lifetime time.Duration) ([]byte, error) {
						as = append(as, cn, org)
						return set.FileAuthorities().Agent.SignKey(public, keys.Request{CommonName: cn, Organization: []string{org}, NotBefore: time.Now(), Lifetime: lifetime})
					}}
				},
			}}
			g.approvedRequests = g.newApprovedRequests()
			g.approvedRequests.loop.AcceptKeys()
			defer g.approvedRequests.loop.Close()
			if err := g.signRequest(t.Context(), w.csr.Name); err != nil {
				t.Fatal(err)
			}
			is, err := csrs.Get(t.Context(), w.csr.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, c := range is.Status.Conditions {
				if c.Type == certificatesv1.CertificateFailed {
					said = c.Message
				}
			}
			if signed := len(as) > 0 && len(is.Status.Certificate) > 0; signed != c.signed || (said == "") != (c.failed == "") || !strings.Contains(said, c.failed) {
				t.Errorf("signed %t, failed: %s", signed, said)
			}
			if c.signed && strings.Join(as, " ") != atoll.UserClusterPrefix+"u1 "+atoll.GroupAgents {
				t.Errorf("signed for %q", as)
			}
			g.approvedRequests.requeueWaiting("tokyo")
			if waits := g.approvedRequests.loop.CountReady() > 0; c.waits && !waits {
				t.Error("the request is not checked again when its Cluster is accepted")
			}
			var now v1alpha1.Cluster
			if err := g.options.Client.Get(t.Context(), client.ObjectKeyFromObject(w.cluster), &now); err != nil {
				t.Fatal(err)
			}
			if key, ok := trust.OpenKeyHash(hubKey, "tokyo", now.Annotations[handshake.AnnotationAgentKey]); c.signed && (!ok || key != request.KeyHash || now.Annotations[handshake.AnnotationNextKey] != "") {
				t.Errorf("its key is %s of %v", key, now.Annotations)
			}
		})
	}
}
