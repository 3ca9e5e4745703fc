package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"atoll.dev/atoll/internal/testwait"
)

// TestAMemberBehindALoadBalancer: the balancer terminates TLS by a CA of its own and speaks
// HTTP/1.1 alone. The agent joins without extra configuration, receives its content, and
// people reach the member, watches among them. Without the CA the agent logs the cause. The
// audit logs of both ends name the user.
func TestAMemberBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "balanced")
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	kubeconfig := startStranger(t, "--audit-log", auditLog)
	i := createToken(t, "--auto-accept", "--uses", "2")
	balancer := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: i.Hub}) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}},
	})
	t.Cleanup(balancer.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: balancer.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"agent", "--name", "balanced", "--hub", balancer.Listener.Addr().String(), "--ca-hash", i.CAHash, "--token", i.Token, "--kubeconfig", kubeconfig}
	log, stop := start(t, "atoll", args...)
	testwait.UntilNil(t, "it says what is wrong", logSays(log, "nor is the hub reached by WebSocket at wss://", "unknown authority"))
	stop()

	log, stop = start(t, "atoll", append(args, "--balancer-ca", ca)...)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "balanced", "--ignore-not-found")
	})
	testwait.UntilNil(t, "it joins", logSays(log, "by WebSocket", "joined"))
	testwait.UntilNil(t, "it is in", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Cluster", "", "balanced", "Ready"); !strings.HasPrefix(c, "True") {
			return errors.New("the output is: " + c)
		}
		return nil
	})
	expectOutput(t, "get", runCLI(t, "get", "clusters", "balanced", "-o", "wide"), "CARRIAGE", "WebSocket")
	patch(t, "atoll.dev/v1alpha1", "Cluster", "", "balanced", `{"spec":{"taints":null}}`) // the taint of an unreviewed cluster
	apply(t, ns, selectingPolicy("web", "", "balanced")+"---"+settingsObject)
	testwait.UntilNil(t, "delivery", func(context.Context) error {
		if out := kubectlAt(t, kubeconfig, "", "get configmap -n "+ns+" web -o jsonpath={.data.colour}"); out != "blue" {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	if out := kubectlAt(t, kubeconfig, "", "create clusterrolebinding reach --clusterrole cluster-admin --group atoll:masters"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	via := proxiedKubeconfig(t, "balanced")
	expectOutput(t, "get", kubectlAt(t, via, "", "get nodes -o name"), "node/")
	sees := watchConfigMaps(t, via)
	testwait.UntilNil(t, "the watch begins", sees("configmap/kube-root-ca.crt"))
	expectOutput(t, "create", kubectlAt(t, via, "", "create configmap seen -n default"), "created")
	testwait.UntilNil(t, "the watch shows what is new", sees("configmap/seen"))
	bothLogsName(t, ns, "balanced", auditLog, via)
	stop()
	throughProducts(t, i, kubeconfig, via)
	start(t, "atoll", append(args, "--balancer-ca", ca)...)
	giveUp(t, ns, "balanced")
}

// throughProducts: the joined agent reaches its hub, and people reach its member, through
// the installed balancers, configured as in docs/reach.md.
func throughProducts(t *testing.T, i tokenInvitation, kubeconfig, via string) {
	t.Helper()
	for name, run := range map[string][]string{
		"nginx":   {"nginx", "-p", ".", "-e", "stderr", "-c", "conf"},
		"haproxy": {"haproxy", "-db", "-f", "conf"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(run[0])
			if err != nil {
				t.Skipf("not tried: %v", err)
			}
			dir, port := t.TempDir(), strconv.Itoa(freePort(t))
			ca := balancerFiles(t, dir)
			conf := strings.NewReplacer("HUB:6444", i.Hub, "listen 443", "listen 127.0.0.1:"+port, "bind :443", "bind 127.0.0.1:"+port).Replace(documentedConfig(t, name))
			if name == "nginx" {
				conf = "daemon off; master_process off; pid pid;\nevents {}\nhttp {\naccess_log off; client_body_temp_path tmp; proxy_temp_path tmp;" +
					" fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;\n" + conf + "}\n"
			}
			if err := os.WriteFile(filepath.Join(dir, "conf"), []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			product := exec.Command(path, run[1:]...)
			said := &bytes.Buffer{}
			product.Dir, product.Stdout, product.Stderr = dir, said, said
			endWithTest(product)
			if err := product.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = product.Process.Kill() // it may have ended
				_ = product.Wait()         // as it was killed
				if t.Failed() {
					t.Logf("%s says:\n%s", name, said)
				}
			})
			log, stop := start(t, "atoll", "agent", "--name", "balanced", "--hub", "127.0.0.1:"+port, "--ca-hash", i.CAHash, "--kubeconfig", kubeconfig, "--balancer-ca", ca)
			defer stop()
			testwait.UntilNil(t, "the agent comes back", logSays(log, "by WebSocket", "linked to the hub"))
			expectOutput(t, "get", kubectlAt(t, via, "", "get nodes -o name"), "node/")
			sees := watchConfigMaps(t, via)
			testwait.UntilNil(t, "a watch begins", sees("configmap/kube-root-ca.crt"))
			expectOutput(t, "create", kubectlAt(t, via, "", "create configmap seen-through-"+name+" -n default"), "created")
			testwait.UntilNil(t, "the watch shows what is new", sees("configmap/seen-through-"+name))
		})
	}
}

// documentedConfig is the configuration of a product in docs/reach.md.
func documentedConfig(t *testing.T, product string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reach.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```"+product+"\n")
	conf, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("docs/reach.md says nothing of %s", product)
	}
	return conf
}

// balancerFiles are a balancer's certificate and key, and the CA of the hub; it gives the
// file of the balancer's CA.
func balancerFiles(t *testing.T, dir string) (ca string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // whose certificate is for 127.0.0.1, and its own CA
	server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	hub, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"balancer.pem": certPEM, "balancer.key": keyPEM, "balancer.both.pem": slices.Concat(certPEM, keyPEM), "hub-ca.pem": hub.CAData,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "balancer.pem")
}
