package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/testwait"
)

// oidcProvider is an OpenID Connect provider of one key.
type oidcProvider struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newProvider(t *testing.T) *oidcProvider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &oidcProvider{key: key}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		point, err := key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		answer := map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one", "x": encodeRaw64(point[1:33]), "y": encodeRaw64(point[33:]),
		}}}
		if strings.HasSuffix(r.URL.Path, "/openid-configuration") {
			answer = map[string]any{
				"issuer": p.URL, "jwks_uri": p.URL + "/keys", "response_types_supported": []string{"id_token"},
				"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func encodeRaw64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// signToken signs a token for a user and an audience.
func (p *oidcProvider) signToken(t *testing.T, user, audience string) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{
		"iss": p.URL, "sub": user, "aud": audience, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "groups": []string{"operators"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := encodeRaw64([]byte(`{"alg":"ES256","kid":"one"}`)) + "." + encodeRaw64(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encodeRaw64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// authenticationConfig is upstream's configuration for the provider.
func (p *oidcProvider) authenticationConfig(t *testing.T) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        map[string]any{"url": p.URL, "audiences": []string{"atoll"}, "certificateAuthority": string(ca)},
			"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": "oidc:"}, "groups": map[string]any{"claim": "groups", "prefix": "oidc:"}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const auditAll = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{resources: [secrets]}]}
- {level: RequestResponse, verbs: [create, update, patch, delete]}
`

const encryptionConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets, configmaps], providers: [{aescbc: {keys: [{name: mine, secret: c2l4dGVlbiBieXRlcyBvZiBrZXkuLi4uMTIzNDU2Nzg=}]}}, {identity: {}}]}]
`

const secretValue = "hush-3c1f9a"

// TestOperatorsFlags runs a hub with everything that its operator may give it, and
// looks for each from outside.
func TestOperatorsFlags(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a hub")
	}
	h := newHubs(t)
	file := func(name, content string) string {
		path := filepath.Join(h.dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	oidc, audit := newProvider(t), filepath.Join(h.dir, "audit.log")
	h.more = []string{
		"--authentication-config", file("authn.yaml", oidc.authenticationConfig(t)),
		"--audit-policy-file", file("audit.yaml", auditAll), "--audit-log-path", audit,
		"--encryption-provider-config", file("encryption.yaml", encryptionConfig),
		"--tls-san", "hub.example.com", "--tls-san", "192.0.2.7", "--log-format", "json",
	}
	h.a = h.startHub(t, "a", h.doors[0])
	h.a.awaitReady(t)
	h.a.apply(t, "operated", secretShop)
	testwait.UntilNil(t, "a Revision with a Secret", func(ctx context.Context) error {
		b, err := h.a.boundStateOf(ctx, "operated", "shop")
		if err != nil || b.items != 2 {
			return fmt.Errorf("%d items: %v", b.items, err)
		}
		return nil
	})
	t.Run("OpenID Connect", func(t *testing.T) { h.a.checkUsers(t, oidc) })
	t.Run("audit", func(t *testing.T) { checkAuditLog(t, audit) })
	t.Run("encryption", func(t *testing.T) { h.checkEncryption(t) })
	t.Run("names", func(t *testing.T) { h.a.answersTo(t, "hub.example.com", "192.0.2.7", "localhost", "127.0.0.1") })
	t.Run("endpoints", func(t *testing.T) { h.a.checkEndpoints(t) })
	t.Run("data directory in use", func(t *testing.T) {
		refusesToStart(t, []string{"--data-dir", h.a.dir}, "is in use by the process with id", fmt.Sprint(h.a.cmd.Process.Pid))
	})

	began := time.Now()
	h.a.sendSignal(t, syscall.SIGTERM)
	if code := h.a.waitExit(t); code != 0 {
		t.Errorf("after SIGTERM the hub ended with exit code %d", code)
	}
	t.Logf("stopped within %s of SIGTERM", time.Since(began).Round(10*time.Millisecond))
	checkStructuredLog(t, h.a.log)
	t.Run("newer etcd", func(t *testing.T) {
		if _, err := h.etcdClient(t).Put(t.Context(), "/atoll.dev/version", "v9.1.0"); err != nil {
			t.Fatal(err)
		}
		refusesToStart(t, append([]string{"--data-dir", h.a.dir}, h.etcd...), "the data in etcd", "was written by Atoll v9.1.0", "run v9.1.0 or newer")
	})
	t.Run("newer data directory", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(h.a.dir, "VERSION"), []byte("v9.2.0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		refusesToStart(t, []string{"--data-dir", h.a.dir}, "the data directory "+h.a.dir, "was written by Atoll v9.2.0", "run v9.2.0 or newer")
	})
}

const secretShop = `
apiVersion: v1
kind: Namespace
metadata: {name: $NS}
---
apiVersion: v1
kind: Secret
metadata: {name: shop, namespace: $NS, labels: {app: shop}}
stringData: {password: ` + secretValue + `}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shop, namespace: $NS, labels: {app: shop}}
data: {colour: blue}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: shop, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: Secret, name: shop}, {apiVersion: v1, kind: ConfigMap, name: shop}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
`

// checkUsers checks that the hub accepts users of the provider, and no others.
func (s *sharedHub) checkUsers(t *testing.T, p *oidcProvider) {
	ask := func(token string) (string, error) {
		cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		cfg.CertData, cfg.KeyData, cfg.BearerToken = nil, nil, token
		c, err := client.New(cfg, client.Options{})
		if err != nil {
			return "", err
		}
		review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
		if err := c.Create(t.Context(), review); err != nil {
			return "", err
		}
		name, _, _ := unstructured.NestedString(review.Object, "status", "userInfo", "username")
		return name, nil
	}
	if name, err := ask(p.signToken(t, "jane", "atoll")); err != nil || name != "oidc:jane" {
		t.Errorf("the provider's user is %q: %v", name, err)
	}
	for why, token := range map[string]string{"another audience": p.signToken(t, "jane", "other"), "another key": newProvider(t).signToken(t, "jane", "atoll")} {
		if name, err := ask(token); err == nil {
			t.Errorf("a token of %s is taken for %q", why, name)
		}
	}
}

// checkAuditLog checks that users' writes are there, and no Secret's value. The hub's own
// writes, such as Bundles and Revisions, are not logged.
func checkAuditLog(t *testing.T, file string) {
	var raw []byte
	testwait.UntilNil(t, "the audit log", func(context.Context) error {
		var err error
		if raw, err = os.ReadFile(file); err != nil {
			return err
		}
		for _, want := range []string{`"resource":"secrets"`, `"username":"atoll-admin"`} {
			if !bytes.Contains(raw, []byte(want)) {
				return errors.New("it lacks " + want)
			}
		}
		return nil
	})
	for _, value := range []string{secretValue, base64.StdEncoding.EncodeToString([]byte(secretValue))} {
		if i := bytes.Index(raw, []byte(value)); i >= 0 {
			t.Errorf("the audit log shows a Secret's value: ...%s...", raw[max(0, i-300):i+40])
		}
	}
}

func (h *hubPair) checkEncryption(t *testing.T) {
	c := h.etcdClient(t)
	for _, key := range []string{"/registry/secrets/operated/shop", "/registry/configmaps/operated/shop"} {
		resp, err := c.Get(t.Context(), key)
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%s: %v", key, err)
		}
		if !bytes.HasPrefix(resp.Kvs[0].Value, []byte("k8s:enc:aescbc:v1:mine:")) {
			t.Errorf("%s is stored as %.40q", key, resp.Kvs[0].Value)
		}
	}
}

// answersTo names and addresses by its serving certificate.
func (s *sharedHub) answersTo(t *testing.T, names ...string) {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(cfg.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	leaf := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	for _, name := range names {
		found := slices.Contains(leaf.DNSNames, name)
		if ip := net.ParseIP(name); ip != nil {
			found = slices.ContainsFunc(leaf.IPAddresses, ip.Equal)
		}
		if !found {
			t.Errorf("the serving certificate is not for %s but for %v %v", name, leaf.DNSNames, leaf.IPAddresses)
		}
	}
}

// checkEndpoints checks the endpoints for monitoring a hub.
func (s *sharedHub) checkEndpoints(t *testing.T) {
	raw := func(path string) string {
		return string(runCommand(t, "atoll-lab", "kubectl", "--kubeconfig", s.kubeconfig, "get", "--raw", path))
	}
	for _, path := range []string{"/readyz", "/livez"} {
		if got := raw(path); got != "ok" {
			t.Errorf("%s says %q", path, got)
		}
	}
	metrics := raw("/metrics")
	for _, name := range []string{
		"atoll_hub_leading 1", "atoll_hub_holding 0", "atoll_hub_unread_kinds 0", "atoll_gateway_streams 0",
		"# HELP atoll_hub_leading ", "# HELP atoll_gateway_renders_total ", "# HELP atoll_inventory_cluster_writes_total ",
		"apiserver_request_total", "etcd_request_duration_seconds", "process_resident_memory_bytes",
	} {
		if !strings.Contains(metrics, name) {
			t.Errorf("/metrics lacks %q", name)
		}
	}
}

// refusesToStart checks that the hub does not start, and prints the reason.
func refusesToStart(t *testing.T, args []string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.HangLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, builtBinary("atoll-hub"), args...).CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("atoll-hub %v is not refused: %s", args, out)
	}
	for _, word := range words {
		if !bytes.Contains(out, []byte(word)) {
			t.Errorf("the refusal does not contain %q: %s", word, out)
		}
	}
}

// checkStructuredLog: each line of the log is an object.
func checkStructuredLog(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Errorf("a line of the log is not JSON: %s", line)
		}
	}
}
