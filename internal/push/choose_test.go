package push

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/trust/handshake"
)

func TestWhichSecretCounts(t *testing.T) {
	type edit func(*corev1.Secret)
	secret := func(name string, age time.Duration, edits ...edit) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{handshake.LabelPush: "oslo"},
				CreationTimestamp: metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age)),
				OwnerReferences:   []metav1.OwnerReference{handshake.PushOwner("oslo", "u1")},
			},
			Type: handshake.PushSecretType,
		}
		for _, e := range edits {
			e(s)
		}
		return s
	}
	for name, c := range map[string]struct {
		secrets   []*corev1.Secret
		want      string // names: the one that counts, then the outdated
		unadopted bool
	}{
		"none":              {},
		"one":               {secrets: []*corev1.Secret{secret("a", 0)}, want: "a"},
		"the newest":        {secrets: []*corev1.Secret{secret("a", time.Hour), secret("b", 0), secret("c", time.Minute)}, want: "b c a"},
		"of the same time":  {secrets: []*corev1.Secret{secret("a", 0), secret("b", 0)}, want: "b a"},
		"of no owner":       {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.OwnerReferences = nil })}, want: "a", unadopted: true},
		"another's owner":   {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.OwnerReferences[0].Kind = "ConfigMap" })}, want: "a", unadopted: true},
		"of another group":  {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.OwnerReferences[0].APIVersion = "acme.dev/v1" })}, want: "a", unadopted: true},
		"an earlier UID":    {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.OwnerReferences[0].UID = "u0" })}},
		"another type":      {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque })}},
		"another cluster's": {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.Labels[handshake.LabelPush] = "lima" })}},
		"about to go":       {secrets: []*corev1.Secret{secret("a", 0, func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{} }), secret("b", time.Hour)}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := chooseCredentials("oslo", "u1", c.secrets)
			var names []string
			if got.secret != nil {
				names = append(names, got.secret.Name)
			}
			for _, s := range got.outdated {
				names = append(names, s.Name)
			}
			if has := strings.Join(names, " "); has != c.want || got.unowned != c.unadopted {
				t.Errorf("chose %q (unowned: %t), want %q (%t)", has, got.unowned, c.want, c.unadopted)
			}
		})
	}
}

// acceptError for something of a member, which failed so.
func acceptError(err error) error {
	return fmt.Errorf("make something in the member: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api/v1", Err: err})
}

func TestWhatIsToldOfAStage(t *testing.T) {
	credentials := handshake.Credentials{Server: "https://10.0.0.1:6443", Token: "hush"}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	lease := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, c := range map[string]struct {
		stage  agent.Stage
		reason atoll.Reason
		ok     bool
		says   []string
	}{
		"works":       {agent.Stage{Works: true}, atoll.ReasonAgentWorks, true, nil},
		"stands by":   {agent.Stage{Holder: "node-7_uid_boot_1_2_X"}, atoll.ReasonStandsBy, true, []string{"on host node-7;"}},
		"refused":     {agent.Stage{Err: apierrors.NewUnauthorized("no")}, atoll.ReasonCredentialsRefused, false, []string{"since 2030-01-02T03:04:05Z", "https://10.0.0.1:6443", "atoll join oslo --push"}},
		"not allowed": {agent.Stage{Err: apierrors.NewForbidden(lease, "atoll-agent", errors.New("no rule"))}, atoll.ReasonNotAllowedInMember, false, []string{"leases", "ClusterRole atoll-agent"}},
		"no answer":   {agent.Stage{Err: acceptError(errors.New("dial tcp 10.0.0.1:6443: connection refused"))}, atoll.ReasonMemberUnreachable, false, []string{"connection refused", "since 2030-01-02T03:04:05Z"}},
		"another CA": {agent.Stage{Err: acceptError(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}, atoll.ReasonMemberNotVerified, false,
			[]string{"https://10.0.0.1:6443", "signed by unknown authority", "atoll join oslo --push", "another server"}},
		"another name": {agent.Stage{Err: acceptError(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"lima"}}, Host: "oslo"}})}, atoll.ReasonMemberNotVerified, false,
			[]string{"valid for lima, not oslo"}},
		"an address that is not dialled": {agent.Stage{Err: acceptError(&net.OpError{Op: "dial", Err: &addressguard.RefusedAddressError{Address: netip.MustParseAddr("127.0.0.1"), Kind: "loopback"}})}, atoll.ReasonAddressRefused, false,
			[]string{"the loopback address 127.0.0.1", "--push-allowed-cidrs", "--member-server"}},
		"no such host": {agent.Stage{Err: acceptError(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "oslo.example", IsNotFound: true}})}, atoll.ReasonMemberUnreachable, false,
			[]string{"lookup oslo.example: no such host", "--member-server"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := stageCondition("oslo", credentials, c.stage, at)
			if got.Reason != c.reason || got.OK != c.ok {
				t.Errorf("reported %+v", got)
			}
			for _, want := range c.says {
				if !strings.Contains(got.Message, want) {
					t.Errorf("%q does not say %q", got.Message, want)
				}
			}
			if strings.Contains(got.Message, "/api/v1") {
				t.Errorf("%q tells what was asked for, which is nothing to people", got.Message)
			}
			if strings.Contains(got.Message, "hush") {
				t.Errorf("%q tells the token", got.Message)
			}
		})
	}
}

// TestAMemberLeadsTheHubNowhere: a redirect of the member's API is not followed, so that only a
// writer of credentials decides where the hub dials.
func TestAMemberLeadsTheHubNowhere(t *testing.T) {
	inner := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the hub came where the member has sent it") }))
	defer inner.Close()
	asked := 0
	member := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if got := r.Header.Get("Authorization"); got != "Bearer hush" {
			t.Errorf("the hub shows %q", got)
		}
		http.Redirect(w, r, inner.URL, http.StatusFound)
	}))
	defer member.Close()
	c, err := memberConfig(handshake.Credentials{Server: member.URL, Token: "hush", CA: caOf(member)}, loopbackAllowed)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Get(member.URL + "/version")
	host, _ := url.Parse(inner.URL)
	if asked != 1 || err == nil || !strings.Contains(err.Error(), "which is not followed") || !strings.Contains(err.Error(), host.Host) {
		t.Errorf("asked %d times: %v", asked, err)
	}
	// Nor to itself without TLS, which would expose the token.
	if _, err := client.Get("http" + strings.TrimPrefix(member.URL, "https")); err == nil || !strings.Contains(err.Error(), "which is not followed") {
		t.Errorf("without TLS: %v", err)
	}
	// An unsent body is closed, as a RoundTripper must.
	body := &given{Reader: strings.NewReader("x")}
	if _, err := client.Post(inner.URL, "text/plain", body); err == nil || !body.back {
		t.Errorf("of what is not sent: %v, closed: %t", err, body.back)
	}
}

// TestAMemberIsReachedAsItsCredentialsSay: by the proxy, under the name and with the CA that they
// name.
func TestAMemberIsReachedAsItsCredentialsSay(t *testing.T) {
	member := httptest.NewTLSServer(http.NotFoundHandler())
	defer member.Close()
	c, err := memberConfig(handshake.Credentials{Server: "https://10.0.0.1:6443", Token: "hush", CA: caOf(member), ProxyURL: "http://proxy:3128", ServerName: "kube"}, addressguard.Guard{})
	if err != nil {
		t.Fatal(err)
	}
	own := c.Transport.(*http.Transport)
	if c.Host != "https://10.0.0.1:6443" || c.BearerToken != "hush" || own.TLSClientConfig.RootCAs == nil || own.TLSClientConfig.ServerName != "kube" || own.TLSClientConfig.InsecureSkipVerify {
		t.Errorf("it is reached by %v", c)
	}
	if at, err := own.Proxy(httptest.NewRequest(http.MethodGet, "https://10.0.0.1:6443/api", nil)); err != nil || at.String() != "http://proxy:3128" {
		t.Errorf("its proxy is %v, %v", at, err)
	}
	for _, bad := range []handshake.Credentials{{Server: "https://%zz"}, {Server: "https://a", ProxyURL: "http://%zz"}, {Server: "https://a", CA: "pem"}} {
		if c, err := memberConfig(bad, addressguard.Guard{}); err == nil {
			t.Errorf("it is reached by %v", c)
		}
	}
}

// given body.
type given struct {
	io.Reader
	back bool
}

func (g *given) Close() error { g.back = true; return nil }
