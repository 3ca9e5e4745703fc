package apiserver_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/apiserver/backup"
	"atoll.dev/atoll/internal/apiserver/datadir"
	"atoll.dev/atoll/internal/apiserver/etcd"
	"atoll.dev/atoll/internal/apiserver/keys"
	"atoll.dev/atoll/internal/testwait"
)

func TestNewerDataDirIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "VERSION"), []byte("v0.2.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := tryStart(t, testOptions(dir))
	var newer *datadir.NewerError
	if !errors.As(err, &newer) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{dir, "v0.2.0", "v0.1.0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "keys")); err == nil {
		t.Error("something was written into it")
	}
}

func TestMissingKeysAreNotMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := tryStart(t, testOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	address := s.LocalAddress()
	if err := stop(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
		if s.EndError() != nil {
			t.Errorf("a stop is reported as a failure: %v", s.EndError())
		}
	default:
		t.Error("not done after Stop")
	}
	for _, name := range keys.KeyFiles() {
		info, err := os.Stat(filepath.Join(dir, "keys", name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if info, err := os.Stat(s.AdminKubeconfigPath()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig is not private: %v", err)
	}
	path := filepath.Join(dir, "keys", "encryption.key")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var missing *keys.MissingError
	if _, err := tryStart(t, testOptions(dir)); !errors.As(err, &missing) {
		t.Fatalf("started without the key that its Secrets need: %v", err)
	}
	other := []byte(strings.Repeat("00", 32) + "\n")
	if err := os.WriteFile(path, other, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tryStart(t, testOptions(dir)); err == nil || !strings.Contains(err.Error(), "key set") {
		t.Fatalf("started with another key than its Secrets were written with: %v", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, testOptions(dir))
	if again.LocalAddress() != address {
		t.Errorf("the port was %s and is %s", address, again.LocalAddress())
	}
}

// The advertised address is one that others can dial. A server that listens on all addresses
// advertises another one than this machine uses.
func TestOthersReachTheServerWhereItIsAdvertised(t *testing.T) {
	s := apiserver.Listening("127.0.0.1:6443", apiserver.Options{BindAddress: "0.0.0.0", AdvertiseAddress: "192.0.2.7"})
	if here, others := s.LocalAddress(), s.AdvertisedAddress(); here != "127.0.0.1:6443" || others != "192.0.2.7:6443" {
		t.Errorf("this machine reaches it at %s, others at %s", here, others)
	}
}

func TestBackupOfARunningHub(t *testing.T) {
	t.Parallel()
	u := newAdmin(t, hub)
	ns := u.createNamespace("backup")
	if err := u.createConfigMap(ns, "saved"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hub.tar")
	saved := backup.Options{DataDir: filepath.Dir(hub.AdminKubeconfigPath()), File: file, Version: "v0.1.0", Logger: testLogger()}
	if _, err := backup.SaveBackup(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	if err := u.createConfigMap(ns, "later"); err != nil {
		t.Fatal(err)
	}
	before, err := u.kube.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	restored := saved
	restored.DataDir = filepath.Join(t.TempDir(), "restored")
	if _, err := backup.RestoreDataDir(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	other := newAdmin(t, start(t, testOptions(restored.DataDir)))
	if _, err := other.kube.CoreV1().ConfigMaps(ns).Get(t.Context(), "saved", metav1.GetOptions{}); err != nil {
		t.Errorf("what was saved is lost: %v", err)
	}
	after, err := other.kube.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.ResourceVersion) <= len(before.ResourceVersion) {
		t.Errorf("resource versions went back from %s to %s: %v", before.ResourceVersion, after.ResourceVersion, err)
	}
	if _, err := other.kube.CoreV1().ConfigMaps(ns).Get(t.Context(), "later", metav1.GetOptions{}); err == nil {
		t.Error("what was written after the backup came with it")
	}
	if m, err := backup.ReadRestoreMarker(restored.DataDir); err != nil || m == nil {
		t.Errorf("no marker: %v", err)
	}
	// The same keys: credentials of before work on the restored hub.
	old, err := clientcmd.BuildConfigFromFlags("", hub.AdminKubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	old.Host = other.config.Host
	if _, err := newUser(t, old).kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("credentials of before do not work: %v", err)
	}
}

func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	store, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Stop)
	first := testOptions(t.TempDir())
	first.EtcdServers = []string{store.ClientEndpoint()}
	u := newAdmin(t, start(t, first))
	if err := u.createConfigMap("default", "shared"); err != nil {
		t.Fatal(err)
	}

	stranger := testOptions(t.TempDir())
	stranger.EtcdServers = first.EtcdServers
	if _, err := tryStart(t, stranger); err == nil || !strings.Contains(err.Error(), "key set") {
		t.Fatalf("a hub with other keys joined: %v", err)
	}
	file := filepath.Join(t.TempDir(), "keys.tar")
	o := backup.Options{DataDir: first.DataDir, File: file, Version: "v0.1.0", Logger: testLogger()}
	report, err := backup.SaveBackup(t.Context(), o)
	if err != nil || !report.KeysOnly {
		t.Fatalf("backup: %+v %v", report, err)
	}
	second := testOptions(filepath.Join(t.TempDir(), "second"))
	second.EtcdServers = first.EtcdServers
	second.NoControllers = true
	o.DataDir = second.DataDir
	if _, err := backup.RestoreDataDir(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	standby := start(t, second)
	if _, err := newAdmin(t, standby).kube.CoreV1().ConfigMaps("default").Get(t.Context(), "shared", metav1.GetOptions{}); err != nil {
		t.Errorf("the second hub does not see what the first wrote: %v", err)
	}
	leading, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- standby.RunControllers(leading) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("controllers run while leading: %v", err)
	}
}

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata, resources: [{resources: [configmaps]}]}]
`

const authenticationConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: false}
`

const identityEncryption = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{identity: {}}]}]
`

// TestOperatorsFiles passes upstream's files through: audit, authentication,
// encryption and a serving certificate of another authority.
func TestOperatorsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set, err := keys.LoadOrCreate(filepath.Join(dir, "other-keys"), true)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := set.ClusterCA.IssueCertificate(keys.Request{CommonName: "hub.example.com", DNSNames: []string{"hub.example.com"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: time.Now(), Lifetime: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(filepath.Join(dir, "hub"))
	o.ServingCert, o.ServingKey = write("serving.crt", string(cert)), write("serving.key", string(key))
	o.AuditPolicyFile, o.AuditLogPath = write("audit.yaml", auditPolicy), filepath.Join(dir, "audit.log")
	o.AuthenticationConfig = write("authn.yaml", authenticationConfig)
	o.EncryptionProviderConfig = write("encryption.yaml", identityEncryption)
	o.Handlers = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz/gateway" {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	s := start(t, o)
	u := newAdmin(t, s)
	if err := u.createConfigMap("default", "audited"); err != nil {
		t.Fatal(err)
	}
	if err := newUser(t, s.LoopbackConfig()).createConfigMap("default", "audited-inside"); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the writes are audited", func(context.Context) (bool, string) {
		content, err := os.ReadFile(o.AuditLogPath)
		return strings.Contains(string(content), `"name":"audited"`) && strings.Contains(string(content), `"name":"audited-inside"`), string(content) + errText(err)
	})
	var status int
	u.kube.RESTClient().Get().AbsPath("/healthz/gateway").Do(t.Context()).StatusCode(&status)
	if status != http.StatusTeapot {
		t.Errorf("the hub's own endpoint says %d", status)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: set.ClusterCA.CertPool()}}}
	response, err := client.Get("https://" + s.LocalAddress() + "/version")
	if err != nil {
		t.Fatalf("the operator's certificate does not serve: %v", err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("anonymous users are off, and one got %s", response.Status)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFailedStartLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	o := testOptions(t.TempDir())
	o.AuditPolicyFile = filepath.Join(o.DataDir, "no-such-file")
	if _, err := tryStart(t, o); err == nil {
		t.Fatal("started with an audit policy that does not exist")
	}
	o.AuditPolicyFile = ""
	start(t, o)
}
