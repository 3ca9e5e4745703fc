package accept_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/accept"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/trust"
)

const (
	tokyo   = "atoll.dev/clusters/tokyo"
	request = "certificates.k8s.io/certificatesigningrequests/"
)

func run(t *testing.T, h *clienttest.FakeHub, deny bool, args ...string) (out string, err error) {
	t.Helper()
	command := accept.NewCommand
	if deny {
		command = accept.NewDenyCommand
	}
	return clienttest.RunForOutput(t, h, command, args...)
}

// newRequest returns an agent's request of the Cluster with the UID, and the hash of its key.
func newRequest(t *testing.T, uid, conditions string) (text, keyHash string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	parsed, err := trust.ParseCertificateRequestPEM(block)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("{metadata: {labels: {atoll.dev/cluster: tokyo}, annotations: {atoll.dev/cluster-uid: %s}}, spec: {signerName: atoll.dev/agent, request: %s}, status: {conditions: [%s]}}",
		uid, base64.StdEncoding.EncodeToString(block), conditions), parsed.KeyHash
}

// Only requests of this very Cluster that wait are approved, and their keys are shown.
func TestAcceptApprovesTheAgentsRequest(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{tokyo: "{metadata: {uid: u1}, spec: {accepted: false}}"})
	waits, key := newRequest(t, "u1", "")
	h.Put(t, request+"waits", waits)
	former, _ := newRequest(t, "u0", "")
	h.Put(t, request+"former", former)
	denied, _ := newRequest(t, "u1", "{type: Denied, status: \"True\"}")
	h.Put(t, request+"denied", denied)
	out, err := run(t, h, false, "tokyo")
	if err != nil || !strings.Contains(out, "cluster tokyo accepted\n") || !strings.Contains(out, "approved the agent key "+key+"\n") {
		t.Errorf("%v: %s", err, out)
	}
	if want := []string{"patch " + tokyo, "put " + request + "waits/approval"}; !slices.Equal(h.Writes(), want) {
		t.Errorf("writes %q, want %q", h.Writes(), want)
	}
	if spec := h.Object(tokyo)["spec"].(map[string]any); spec["accepted"] != true {
		t.Errorf("its spec is %v", spec)
	}
}

func TestAcceptIsRepeated(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{tokyo: "{metadata: {uid: u1}, spec: {accepted: true}}"})
	out, err := run(t, h, false, "tokyo")
	if err != nil || out != "cluster tokyo was accepted already\n" || len(h.Writes()) > 0 {
		t.Errorf("%q, %v, writes %q", out, err, h.Writes())
	}
	if _, err := run(t, h, false, "oslo"); err == nil || !strings.Contains(err.Error(), `no cluster requested to join as "oslo"`) {
		t.Errorf("of one that did not ask: %v", err)
	}
}

func TestAcceptWaitsUntilReady(t *testing.T) {
	ready := func(status, uid string) string {
		return fmt.Sprintf("{metadata: {uid: %s}, spec: {accepted: true}, status: {conditions: [{type: Ready, status: %q, reason: AgentConnected, message: m}]}}", uid, status)
	}
	for name, c := range map[string]struct{ now, timeout, want string }{
		"it is ready":      {ready("True", "u1"), "30s", ""},
		"it is not":        {ready("False", "u1"), "700ms", "not Ready within 700ms: AgentConnected: m"},
		"it is another":    {ready("True", "u2"), "30s", "requested to join again"},
		"nothing is known": {"{metadata: {uid: u1}, spec: {accepted: true}}", "1ms", "its agent has sent nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			h := clienttest.NewFakeHub(t, map[string]string{tokyo: "{metadata: {uid: u1}, spec: {accepted: true}}"})
			reads := 0
			h.OnRequest = func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/clusters/tokyo") {
					if reads++; reads == 3 { // after those of accept
						h.Put(t, tokyo, c.now)
					}
				}
			}
			out, err := run(t, h, false, "tokyo", "--wait", "--timeout", c.timeout)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || strings.Contains(out, "is Ready") != (c.want == "") {
				t.Errorf("%v: %s, want %q", err, out, c.want)
			}
		})
	}
}

// A denied Cluster is cut off first; then its requests are refused.
func TestDenyCutsOff(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{tokyo: "{metadata: {uid: u1}, spec: {accepted: true}}"})
	waits, _ := newRequest(t, "u1", "")
	h.Put(t, request+"waits", waits)
	out, err := run(t, h, true, "tokyo")
	if want := []string{"patch " + tokyo, "put " + request + "waits/approval"}; err != nil || out != "cluster tokyo denied\n" || !slices.Equal(h.Writes(), want) {
		t.Errorf("%q, %v, writes %q", out, err, h.Writes())
	}
	if spec := h.Object(tokyo)["spec"].(map[string]any); spec["accepted"] != false {
		t.Errorf("its spec is %v", spec)
	}
}

// A race against the hub's own write is repeated.
func TestAConflictIsRepeated(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{tokyo: "{metadata: {uid: u1}, spec: {accepted: false}}"})
	h.Refuse = map[string]metav1.Status{"patch " + tokyo: {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}}
	tries := 0
	h.OnRequest = func(r *http.Request) {
		if r.Method == http.MethodPatch {
			if tries++; tries == 2 {
				h.Refuse = nil
			}
		}
	}
	if _, err := run(t, h, false, "tokyo"); err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
}
