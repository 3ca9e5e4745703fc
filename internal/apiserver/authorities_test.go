package apiserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/testwait"
)

// shownBy the address, to a client that trusts these CAs.
func shownBy(address string, roots *x509.CertPool) (*x509.Certificate, error) {
	d := &net.Dialer{Timeout: 5 * time.Second}
	conn, err := tls.DialWithDialer(d, "tcp", address, &tls.Config{RootCAs: roots})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// TestRotation: new CAs count at once, without a restart. A client with the former CA still
// recognises the hub. Client certificates of the former CA count until the rotation is finished. A
// hub that restarts, or starts with the same etcd and keys, has the new CAs.
func TestRotation(t *testing.T) {
	t.Parallel()
	o := testOptions(t.TempDir())
	s := start(t, o)
	before := read(t, s.AdminKubeconfigPath())
	first := s.CurrentAuthorities()
	handed := handedOut(t, s)
	handed(first)
	done := make(chan struct{}, 8)
	s.OnAuthorityChangeOrRenewal(func() { done <- struct{}{} })
	if _, err := s.FinishRotation(t.Context()); !errors.Is(err, keys.ErrNotRotating) {
		t.Errorf("finished what was not begun: %v", err)
	}
	second, err := s.RotateAuthorities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if !s.CurrentAuthorities().Equal(second) || second.Generation != 2 {
		t.Fatalf("generation %d counts", s.CurrentAuthorities().Generation)
	}
	if _, err := s.RotateAuthorities(t.Context()); !errors.Is(err, keys.ErrRotating) {
		t.Errorf("rotated twice: %v", err)
	}
	testwait.Until(t, "the new CA's certificate is shown, to clients of either CA", func(context.Context) (bool, string) {
		for _, a := range []*keys.Authorities{first, second} {
			c, err := shownBy(s.LocalAddress(), a.Cluster.CertPool())
			if err != nil {
				return false, err.Error()
			}
			if err := c.CheckSignatureFrom(second.Cluster.Cert); err != nil {
				return false, err.Error()
			}
		}
		return true, ""
	})
	handed(second)
	asks := newRequester(t)
	after := read(t, s.AdminKubeconfigPath())
	if after == before {
		t.Error("hub.kubeconfig is the old one")
	}
	testwait.Until(t, "both kubeconfigs are good", func(context.Context) (bool, string) {
		err := errors.Join(asks(before), asks(after))
		return err == nil, errText(err)
	})
	toldInTime(t, s, before, after)
	third, err := s.FinishRotation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the old kubeconfig is good no more", func(context.Context) (bool, string) {
		err := asks(before)
		return err != nil && (strings.Contains(err.Error(), "Unauthorized") || strings.Contains(err.Error(), "provide credentials") || strings.Contains(err.Error(), "forbidden")), errText(err)
	})
	if err := asks(read(t, s.AdminKubeconfigPath())); err != nil {
		t.Errorf("the new kubeconfig: %v", err)
	}
	if users := s.FormerUsers(); len(users) > 0 {
		t.Errorf("after its end %+v is reported", users)
	}
	handed(third)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := start(t, o)
	if !again.CurrentAuthorities().Equal(third) {
		t.Errorf("generation %d counts after a restart", again.CurrentAuthorities().Generation)
	}
	if _, err := shownBy(again.LocalAddress(), first.Cluster.CertPool()); err != nil {
		t.Errorf("a client of the CA before the rotation, after a restart: %v", err)
	}
}

// handedOut returns a check that the server hands out these CAs to what runs in a namespace.
func handedOut(t *testing.T, s *apiserver.Server) func(*keys.Authorities) {
	t.Helper()
	token := &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}
	token.Name, token.Annotations = "token-with-ca", map[string]string{corev1.ServiceAccountNameKey: "default"}
	core := newAdmin(t, s).kube.CoreV1()
	testwait.Until(t, "a token is asked for", func(ctx context.Context) (bool, string) {
		if _, err := core.ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return false, err.Error() // a token without a ServiceAccount is deleted
		}
		_, err := core.Secrets("default").Create(ctx, token, metav1.CreateOptions{})
		return err == nil, errText(err)
	})
	return func(want *keys.Authorities) {
		t.Helper()
		core := newAdmin(t, s).kube.CoreV1() // whose certificate is a new one each time
		testwait.Until(t, "the CAs are handed out", func(ctx context.Context) (bool, string) {
			published, err := core.ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			secret, err := core.Secrets("default").Get(ctx, token.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			ca := string(want.ClusterCABundlePEM())
			return published.Data["ca.crt"] == ca && string(secret.Data["ca.crt"]) == ca, "the ConfigMap has " + published.Data["ca.crt"] + ", the Secret " + string(secret.Data["ca.crt"])
		})
	}
}

// newRequester the hub by a kubeconfig, on a connection of its own.
func newRequester(t *testing.T) func(kubeconfig string) error {
	return func(kubeconfig string) error {
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
		if err != nil {
			t.Fatal(err)
		}
		config.TLSClientConfig.NextProtos = []string{"http/1.1"} // a connection of its own
		_, err = kubernetes.NewForConfigOrDie(withoutReuse(config)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	}
}

// warnedInTime: users of certificates that end with the rotation are warned, and no others; a
// query lists them.
func toldInTime(t *testing.T, s *apiserver.Server, before, after string) {
	t.Helper()
	users := s.FormerUsers()
	if len(users) != 1 || users[0].Name != "atoll-admin" || time.Since(users[0].Last) > time.Minute {
		t.Errorf("by certificates of the former CA came %+v", users)
	}
	if got := warnedOf(t, before); !strings.Contains(got, "your client certificate ends when that is finished") {
		t.Errorf("the user of the old kubeconfig gets %q", got)
	}
	if got := warnedOf(t, after); got != "" {
		t.Errorf("the user of the new kubeconfig gets %q", got)
	}
}

// warnedOf is what the hub warns a user of it of.
func warnedOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	said := &warnings{}
	config.WarningHandler = said
	if _, err := kubernetes.NewForConfigOrDie(withoutReuse(config)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	return said.takeText()
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// withoutReuse of connections that other clients of the configuration have made.
func withoutReuse(c *rest.Config) *rest.Config {
	c.Dial = (&net.Dialer{}).DialContext
	return c
}

// TestCertificatesRenewWithoutARestart: the hub's own in time, and the operator's when
// their files are replaced.
func TestCertificatesRenewWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, err := keys.LoadOrCreate(filepath.Join(dir, "other-keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(filepath.Join(dir, "hub"))
	o.CertificateLifetime = time.Minute // renewed every 5 s
	o.ServingCert, o.ServingKey = filepath.Join(dir, "serving.crt"), filepath.Join(dir, "serving.key")
	provide := func() {
		t.Helper()
		cert, key, err := other.ClusterCA.IssueCertificate(keys.Request{CommonName: "hub.example.com", IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
			Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: time.Now(), Lifetime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for path, content := range map[string][]byte{o.ServingKey: key, o.ServingCert: cert} {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	provide()
	s := start(t, o)
	serial := func(roots *x509.CertPool, name string) string {
		conn, err := tls.Dial("tcp", s.LocalAddress(), &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			return ""
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	const inner = "hub.atoll.internal"
	ownFirst, theirFirst := serial(s.CurrentAuthorities().Cluster.CertPool(), inner), serial(other.ClusterCA.CertPool(), "127.0.0.1")
	if ownFirst == "" || theirFirst == "" {
		t.Fatalf("shown at first: %q and %q", ownFirst, theirFirst)
	}
	provide()
	testwait.Until(t, "both are others", func(context.Context) (bool, string) {
		own, their := serial(s.CurrentAuthorities().Cluster.CertPool(), inner), serial(other.ClusterCA.CertPool(), "127.0.0.1")
		return own != "" && own != ownFirst && their != "" && their != theirFirst, own + " and " + their
	})
	names := map[string]bool{}
	for _, c := range s.ListCertificates() {
		if !strings.HasSuffix(c.Name, " CA") {
			names[c.Name] = c.Own
		}
	}
	if len(names) != 2 || !names["API"] || names["API, of --tls-cert-file"] {
		t.Errorf("the hub tells of %v", names)
	}
}
