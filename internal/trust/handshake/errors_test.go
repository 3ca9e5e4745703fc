package handshake

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/trust"
)

// failWith makes the hub refuse a verb on a resource.
func (a Admin) failWith(verb, resource string, err error) {
	a.Hub.(*dynamicfake.FakeDynamicClient).PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// A refusal by the hub is an error that says what was to be done.
func TestErrorsSayWhatWasToBeDone(t *testing.T) {
	refused := errors.New("no right")
	accept := func(a Admin) error { _, err := a.AcceptCluster(t.Context(), "tokyo"); return err }
	deny := func(a Admin) error { return a.DenyCluster(t.Context(), "tokyo") }
	create := func(a Admin) error {
		token, err := a.CreateToken(t.Context(), TokenSpec{Lifetime: time.Hour, Uses: 1}, time.Now())
		if token != (trust.Token{}) {
			t.Error("a token that is not stored is returned")
		}
		return err
	}
	list := func(a Admin) error { _, err := a.ListTokens(t.Context()); return err }
	remove := func(a Admin) error { return a.DeleteToken(t.Context(), "x") }
	for name, c := range map[string]struct {
		verb, resource string
		do             func(Admin) error
		want           string
	}{
		"a Cluster to accept is not found": {"get", "clusters", accept, "find cluster tokyo: no right"},
		"a Cluster to deny is not found":   {"get", "clusters", deny, "find cluster tokyo: no right"},
		"requests are not listed":          {"list", "certificatesigningrequests", accept, "list certificate requests of cluster tokyo: no right"},
		"requests to deny are not listed":  {"list", "certificatesigningrequests", deny, "list certificate requests of cluster tokyo: no right"},
		"a Cluster is not accepted":        {"patch", "clusters", accept, "set spec.accepted of cluster tokyo to true: no right"},
		"a request is not approved":        {"update", "certificatesigningrequests", accept, "decide on certificate request "},
		"a request is not denied":          {"update", "certificatesigningrequests", deny, "decide on certificate request "},
		"a token is not stored":            {"create", "secrets", create, "store the join token on the hub: no right"},
		"tokens are not listed":            {"list", "secrets", list, "list join tokens: no right"},
		"a token is not deleted":           {"delete", "secrets", remove, "delete join token x: no right"},
	} {
		a := newAdmin(t, "tokyo")
		a.storeRequest(t, "tokyo", "uid-of-tokyo")
		a.failWith(c.verb, c.resource, refused)
		if err := c.do(a); err == nil || !strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, refused) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	accepted := newAdmin(t, "tokyo")
	if err := accept(accepted); err != nil {
		t.Fatal(err)
	}
	accepted.failWith("patch", "clusters", refused)
	if err := deny(accepted); err == nil || err.Error() != "set spec.accepted of cluster tokyo to false: no right" {
		t.Errorf("a Cluster is not denied: %v", err)
	}
	gone := newAdmin(t, "tokyo")
	gone.storeRequest(t, "tokyo", "uid-of-tokyo")
	gone.failWith("update", "certificatesigningrequests", apierrors.NewNotFound(requests.GroupResource(), "r"))
	if err := deny(gone); err != nil {
		t.Errorf("a request that is gone: %v", err)
	}
}

// A request that cannot be read is no key that people could compare, and is not approved.
func TestRequestsThatCannotBeReadAreNotApproved(t *testing.T) {
	a := newAdmin(t, "tokyo")
	csr := NewRequest("tokyo", "uid-of-tokyo", "203.0.113.7:4711", trust.CertificateRequest{DER: []byte("text"), KeyHash: "sha256:0123456789abcdef"}, 3600)
	u, err := toUnstructured(csr, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Hub.Resource(requests).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	keys, err := a.AcceptCluster(t.Context(), "tokyo")
	if err == nil || !strings.HasPrefix(err.Error(), "request atoll-tokyo-0123456789ab of cluster tokyo: read the certificate request: ") || len(keys) > 0 {
		t.Errorf("%v, %v", keys, err)
	}
	if got := a.getDecision(t, csr.Name); got != Undecided {
		t.Errorf("it is %s", got)
	}
	list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "r", "labels": map[string]any{LabelCluster: "tokyo"}}, "spec": "text"}}}}
	a.Hub.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "certificatesigningrequests", func(clienttesting.Action) (bool, runtime.Object, error) { return true, list, nil })
	if _, err := a.AcceptCluster(t.Context(), "tokyo"); err == nil || !strings.HasPrefix(err.Error(), "read certificate request r: ") {
		t.Errorf("a request of another shape: %v", err)
	}
}

// A decision has the reason and the message that people read on the request.
func TestDecisionsAreReasoned(t *testing.T) {
	a := newAdmin(t, "tokyo")
	approved := a.storeRequest(t, "tokyo", "uid-of-tokyo")
	if _, err := a.AcceptCluster(t.Context(), "tokyo"); err != nil {
		t.Fatal(err)
	}
	denied := a.storeRequest(t, "tokyo", "uid-of-tokyo")
	if err := a.DenyCluster(t.Context(), "tokyo"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]certificatesv1.CertificateSigningRequestCondition{
		approved: {Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AtollApproved", Message: "accepted with its cluster"},
		denied:   {Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "AtollDenied", Message: "denied with its cluster"},
	} {
		var csr certificatesv1.CertificateSigningRequest
		if a.getStored(t, requests, "", name, &csr); !slices.Equal(csr.Status.Conditions, []certificatesv1.CertificateSigningRequestCondition{want}) {
			t.Errorf("%+v, want %+v", csr.Status.Conditions, want)
		}
	}
}

// The name of a request has the beginning of its key's hash, so that another key makes another request.
func TestNamesOfRequests(t *testing.T) {
	for hash, want := range map[string]string{"sha256:0123456789abcdef": "atoll-tokyo-0123456789ab", "sha256:0123": "atoll-tokyo-0123", "0123": "atoll-tokyo-"} {
		if got := RequestName("tokyo", hash); got != want {
			t.Errorf("%s: %s, want %s", hash, got, want)
		}
	}
}

// All that is wrong with a token is said.
func TestTokensThatAreRefused(t *testing.T) {
	good := TokenSpec{Lifetime: time.Nanosecond, Uses: 1}
	interval := fmt.Sprintf("the time between check-ins must be from %s to %s", phrase.FormatDuration(v1alpha1.MinCheckIn), phrase.FormatDuration(v1alpha1.MaxCheckIn))
	for _, c := range []struct {
		change func(*TokenSpec)
		want   string
	}{
		{func(*TokenSpec) {}, "<nil>"},
		{func(s *TokenSpec) { s.Lifetime = 0 }, "the lifetime must be positive"},
		{func(s *TokenSpec) { s.Uses = 0 }, "the number of uses must be at least 1"},
		{func(s *TokenSpec) { s.NamePattern = "[" }, `the name pattern "[" is malformed: syntax error in pattern`},
		{func(s *TokenSpec) { s.Lifetime, s.Uses = -1, -1 }, "the lifetime must be positive\nthe number of uses must be at least 1"},
		{func(s *TokenSpec) { s.CheckIn = v1alpha1.MinCheckIn - 1 }, interval},
		{func(s *TokenSpec) { s.CheckIn = v1alpha1.MaxCheckIn + 1 }, interval},
	} {
		spec := good
		if c.change(&spec); fmt.Sprint(spec.Validate()) != c.want {
			t.Errorf("%v, want %s", spec.Validate(), c.want)
		}
	}
	for _, every := range []time.Duration{0, v1alpha1.MinCheckIn, v1alpha1.MaxCheckIn} {
		spec := good
		if spec.CheckIn = every; spec.Validate() != nil {
			t.Errorf("to check in every %s is refused", every)
		}
		s, err := NewTokenSecret(trust.NewToken(), spec, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		stored, err := ParseTokenSecret(s)
		if err != nil || stored.CheckIn != every {
			t.Errorf("%s is stored as %s, %v", every, stored.CheckIn, err)
		}
		if c := stored.ClusterConnection(); (c == nil) != (every == 0) || c != nil && (c.Type != v1alpha1.ConnectionCheckIn || c.Interval.Duration != every) {
			t.Errorf("%s: the connection is %+v", every, c)
		}
	}
}

// A token without a pattern allows each name, and a damaged pattern allows none.
func TestNamesThatATokenAllows(t *testing.T) {
	for pattern, want := range map[string]bool{"": true, "shop-*": true, "bank": false, "[": false} {
		if got := (StoredToken{Pattern: pattern}).AllowsCluster("shop-1"); got != want {
			t.Errorf("%q: %t", pattern, got)
		}
	}
	s := &corev1.Secret{Data: map[string][]byte{}}
	if SetRemainingUses(s, 2); string(s.Data["uses"]) != "2" {
		t.Errorf("%q uses", s.Data["uses"])
	}
}

// The credentials of a Secret are refused where they could not be used, with the Cluster's name.
func TestPushSecretsOfBadCredentialsAreRefused(t *testing.T) {
	s, err := NewPushSecret("oslo", "u", Credentials{Server: "http://a", Token: "hush"})
	if s != nil || err == nil || err.Error() != "credentials of cluster oslo: server: it is no URL such as https://10.0.0.1:6443" {
		t.Errorf("%v, %v", s, err)
	}
	s, err = NewPushSecret("oslo", "u", Credentials{Server: "https://a", Token: "hush"})
	if err != nil || len(s.Data) != 2 || s.Namespace != "atoll-system" || s.GenerateName != "push-oslo-" || s.OwnerReferences[0] != (metav1.OwnerReference{APIVersion: "atoll.dev/v1alpha1", Kind: "Cluster", Name: "oslo", UID: "u"}) {
		t.Errorf("%+v, %v", s, err)
	}
}
