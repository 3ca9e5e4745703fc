package e2e

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAMemberBehindALoadBalancer: one that terminates TLS by a CA of its own and speaks
// HTTP/1.1 alone. Its agent joins, gets what is placed, and lets people reach the member,
// watches among them, without being told of it; without its CA the agent says what is wrong.
func TestAMemberBehindALoadBalancer(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "balanced")
	auditLog := filepath.Join(t.TempDir(), "audit.log")
	kubeconfig := stranger(t, "--audit-log", auditLog)
	i := invite(t, "--auto-accept", "--uses", "2")
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
	eventually(t, converge, "it says what is wrong", says(log, "nor is the hub reached by WebSocket at wss://", "unknown authority"))
	stop()

	log, _ = start(t, "atoll", append(args, "--balancer-ca", ca)...)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cluster", "balanced", "--ignore-not-found")
	})
	eventually(t, converge, "it joins", says(log, "by WebSocket", "joined"))
	eventually(t, converge, "it is in", func(ctx context.Context) string {
		if c := condition(ctx, "atoll.dev/v1alpha1", "Cluster", "", "balanced", "Ready"); !strings.HasPrefix(c, "True") {
			return c
		}
		return ""
	})
	patch(t, "atoll.dev/v1alpha1", "Cluster", "", "balanced", `{"spec":{"taints":null}}`) // that nobody has looked at it
	apply(t, ns, selecting("web", "", "balanced")+"---"+settings)
	eventually(t, converge, "delivery", func(context.Context) string {
		if out := at(t, kubeconfig, "", "get configmap -n "+ns+" web -o jsonpath={.data.colour}"); out != "blue" {
			return out
		}
		return ""
	})
	if out := at(t, kubeconfig, "", "create clusterrolebinding reach --clusterrole cluster-admin --group atoll:masters"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	via := through(t, "balanced")
	expect(t, "get", at(t, via, "", "get nodes -o name"), "node/")
	sees := watching(t, via)
	eventually(t, converge, "the watch begins", sees("configmap/kube-root-ca.crt"))
	expect(t, "create", at(t, via, "", "create configmap seen -n default"), "created")
	eventually(t, converge, "the watch shows what is new", sees("configmap/seen"))
	eventually(t, converge, "the member's audit log names who asked", func(context.Context) string {
		raw, err := os.ReadFile(auditLog)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if strings.Contains(line, `"verb":"create"`) && strings.Contains(line, `"name":"seen"`) && strings.Contains(line, `"impersonatedUser":{"username":"atoll-admin"`) {
				return ""
			}
		}
		return "it does not"
	})
	giveUp(t, ns, "balanced")
}
