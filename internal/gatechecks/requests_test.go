package gatechecks

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/standardwebhook"
	"atoll.dev/atoll/internal/state"
)

// secretStore has Secrets by namespace/name.
type secretStore map[string]map[string][]byte

func (s secretStore) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	data, has := s[key.String()]
	if !has {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	obj.(*corev1.Secret).Data = data
	return nil
}

func (secretStore) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

var loopback = []string{"127.0.0.0/8", "::1/128"}

func newBundle(kind string) state.Bundle {
	return state.Bundle{
		Ref:  enginev1.BundleRef{UID: "web", Namespace: "shop", Name: "web"},
		Spec: v1alpha1.BundleSpec{Source: v1alpha1.BundleSource{Kind: kind, Name: "web"}},
	}
}

func describeOutcome(o rollout.Outcome) string {
	return map[rollout.OutcomeKind]string{rollout.OutcomeNoData: "no data", rollout.OutcomeUndecided: "wait", rollout.OutcomeSuccess: "success", rollout.OutcomeFailure: "failure"}[o.Kind] + ": " + o.Text
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func newVectorAnswer(values ...string) string {
	var all []string
	for _, v := range values {
		all = append(all, `{"metric":{"job":"web"},"value":[1700000000.1,"`+v+`"]}`)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(all, ",") + `]}}`
}

// Servers that are hostile or broken give no data, with a reason.
func TestQueriesToServers(t *testing.T) {
	var asked []string
	handler := http.NewServeMux()
	handle := func(path string, fn func(w http.ResponseWriter, r *http.Request)) {
		handler.HandleFunc(path+"/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			user, password, _ := r.BasicAuth()
			asked = append(asked, r.Method+" "+r.Form.Get("query")+" "+user+password+r.Header.Get("Authorization"))
			fn(w, r)
		})
	}
	handle("", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, 200, newVectorAnswer("0.25")) })
	handle("/huge", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 200, newVectorAnswer("0.25")+strings.Repeat(" ", maxAnswerBytes))
	})
	handle("/text", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, newVectorAnswer("0.25")) })
	handle("/moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/api/v1/query", http.StatusTemporaryRedirect)
	})
	handle("/error", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, 422, `{"status":"error","errorType":"execution","error":"hush"}`)
	})
	handle("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		answerJSON(w, 200, newVectorAnswer("0.25"))
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	gone := httptest.NewServer(handler)
	gone.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	secrets := secretStore{
		"shop/both": {"username": []byte("u"), "password": []byte("p"), "ca.crt": ca}, "shop/token": {"token": []byte("hush\n"), "ca.crt": ca}, "shop/ca": {"ca.crt": ca},
		"shop/empty": {}, "shop/bad": {"ca.crt": []byte("x"), "token": []byte("hush")}, "ops/far": {"token": []byte("far"), "ca.crt": ca},
	}
	for _, c := range []struct {
		server, secret, namespace, kind, strategy string
		allowed                                   []string
		want, asked                               string
	}{
		{server: plain.URL, want: "success: 0.25", asked: "POST up "},
		{server: plain.URL + "/", want: "success: 0.25", asked: "POST up "},
		{server: plain.URL, allowed: []string{}, want: "no data: the hub does not dial the loopback address 127.0.0.1; the hub's operator allows it by --gate-allowed-cidrs"},
		{server: plain.URL + "/huge", want: "no data: the server answers with more than 64 KiB", asked: "POST up "},
		{server: plain.URL + "/text", want: "no data: the server answers with status 200, and not with JSON", asked: "POST up "},
		{server: plain.URL + "/none", want: "no data: the server answers with status 404, and not with JSON"},
		{server: plain.URL + "/moved", want: "no data: the server redirects; state the URL that it leads to", asked: "POST up "},
		{server: plain.URL + "/error", want: "no data: the server answers with status 422 and the error execution", asked: "POST up "},
		{server: plain.URL + "/short", want: "no data: the server's answer ends early or is damaged", asked: "POST up "},
		{server: gone.URL, want: "no data: the connection fails: connect: connection refused"},
		{server: "http://name.invalid", want: "no data: the name of the host"},
		{server: secure.URL, want: "no data: the server's certificate cannot be verified: it is of a CA that the hub does not trust; see ca.crt of the Secret"},
		{server: secure.URL, secret: "both", want: "success: 0.25", asked: "POST up upBasic dTpw"},
		{server: secure.URL, secret: "token", want: "success: 0.25", asked: "POST up Bearer hush"},
		{server: secure.URL, secret: "ca", want: "success: 0.25", asked: "POST up "},
		{server: strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), secret: "token", want: "no data: the server's certificate cannot be verified: it is of another host; see ca.crt of the Secret"},
		{server: plain.URL, secret: "token", want: "no data: credentials are sent over TLS alone"},
		{server: secure.URL, secret: "empty", want: "no data: the Secret empty has neither username and password nor token nor ca.crt"},
		{server: secure.URL, secret: "bad", want: "no data: ca.crt of the Secret has no certificate in PEM"},
		{server: secure.URL, secret: "none", want: "no data: the Secret none does not exist"},
		{server: secure.URL, secret: "far", namespace: "ops", kind: v1alpha1.SourceClusterPropagationPolicy, want: "success: 0.25", asked: "POST up Bearer far"},
		{server: secure.URL, secret: "far", namespace: "ops", want: "no data: secretRef states a namespace, which a PropagationPolicy may not"},
		{server: secure.URL, secret: "token", kind: v1alpha1.SourceClusterPropagationPolicy, want: "no data: the namespace of the Secret is not known"},
		{server: secure.URL, secret: "token", kind: v1alpha1.SourceClusterPropagationPolicy, strategy: v1alpha1.KindRolloutStrategy, want: "success: 0.25", asked: "POST up Bearer hush"},
		{server: secure.URL, secret: "far", namespace: "ops", strategy: v1alpha1.KindClusterRolloutStrategy, want: "success: 0.25", asked: "POST up Bearer far"},
		{server: secure.URL, secret: "far", namespace: "ops", kind: v1alpha1.SourceAnnotation, strategy: v1alpha1.KindClusterRolloutStrategy, want: "success: 0.25", asked: "POST up Bearer far"},
		{server: secure.URL, secret: "far", namespace: "ops", strategy: v1alpha1.KindRolloutStrategy, want: "no data: secretRef states a namespace, which a RolloutStrategy may not"},
		{server: secure.URL, secret: "token", strategy: v1alpha1.KindClusterRolloutStrategy, want: "no data: the namespace of the Secret is not known"},
		{server: secure.URL, secret: "token", kind: v1alpha1.SourceAnnotation, want: "no data: the namespace of the Secret is not known"},
	} {
		asked = nil
		if c.allowed == nil {
			c.allowed = loopback
		}
		if c.kind == "" {
			c.kind = v1alpha1.SourcePropagationPolicy
		}
		g := &v1alpha1.RolloutGate{Name: "errors", Prometheus: &v1alpha1.PrometheusGate{Server: c.server, Query: "up", SuccessCondition: "result < 0.5"}}
		if c.secret != "" {
			g.Prometheus.SecretRef = &v1alpha1.GateSecretRef{Name: c.secret, Namespace: c.namespace}
		}
		checker := &Checker{Config: Config{Secrets: secrets, AllowedNetworks: c.allowed}}
		bundle := newBundle(c.kind)
		if c.strategy != "" {
			bundle.Spec.RolloutStrategy = &v1alpha1.AppliedStrategy{Kind: c.strategy, Name: "careful"}
		}
		got := describeOutcome(checker.takeMeasurement(t.Context(), bundle, gateID{}, g))
		if !strings.HasPrefix(got, c.want) || strings.Join(asked, ";") != c.asked || strings.Contains(got, "hush") {
			t.Errorf("%s %s: %s after %q, want %s after %q", c.server, c.secret, got, asked, c.want, c.asked)
		}
	}
}

// The address of the hub's proxy is not shown.
func TestProblemsDoNotShowTheHubsProxy(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 3128}, Err: syscall.ECONNREFUSED}
	got := describeProblem(&url.Error{Op: "Post", URL: "https://prometheus", Err: &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial}})
	if got != "the connection fails: connection refused" {
		t.Error(got)
	}
}

// A webhook is asked by a signed request, and only its three verdicts decide.
func TestRequestsToWebhooks(t *testing.T) {
	key := []byte("0123456789abcdef")
	var problems []string
	release := make(chan struct{})
	answer := func(status int, body string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			body2, _ := io.ReadAll(r.Body)
			id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
			if r.Header.Get("webhook-signature") != standardwebhook.SignRequest(key, id, at, body2) {
				problems = append(problems, "the signature is "+r.Header.Get("webhook-signature"))
			}
			var q question
			if err := json.Unmarshal(body2, &q); err != nil || q.Bundle != "web" || q.Namespace != "shop" || q.Revision != "web-r7" || q.Stage != "canary" || q.Gate != "tests" || q.Attempt != id || q.Time.IsZero() {
				problems = append(problems, fmt.Sprintf("the body is %s: %v", body2, err))
			}
			answerJSON(w, status, body)
		}
	}
	handler := http.NewServeMux()
	for path, fn := range map[string]func(w http.ResponseWriter, r *http.Request){
		"/pass": answer(200, `{"verdict":"Pass"}`), "/wait": answer(200, `{"verdict":"Wait","message":"3 of 5"}`),
		"/fail": answer(200, `{"verdict":"Fail","message":"red\u001b[0m`+strings.Repeat("x", 300)+`"}`), "/lower": answer(200, `{"verdict":"pass"}`),
		"/empty": answer(200, `{}`), "/list": answer(200, `[]`), "/created": answer(201, `{"verdict":"Pass"}`), "/down": answer(503, `{"verdict":"Pass"}`),
		"/slow": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		},
	} {
		handler.HandleFunc(path, fn)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	defer close(release)
	secrets := secretStore{"shop/ci": {"hmac": append(key, '\n')}, "shop/std": {"hmac": []byte("whsec_MDEyMzQ1Njc4OWFiY2RlZg==")}, "shop/short": {"hmac": []byte("short")}, "shop/bad": {"hmac": []byte("whsec_!")}}
	for _, c := range []struct{ path, secret, want string }{
		{"/pass", "ci", "success: "},
		{"/pass", "std", "success: "},
		{"/wait", "ci", "wait: 3 of 5"},
		{"/fail", "ci", "failure: red"},
		{"/lower", "ci", "no data: the verdict of the answer is none of Pass, Wait and Fail"},
		{"/empty", "ci", "no data: the verdict of the answer is none of"},
		{"/list", "ci", "no data: the answer has another form"},
		{"/created", "ci", "no data: the service answers with status 201"},
		{"/down", "ci", "no data: the service answers with status 503"},
		{"/slow", "ci", "no data: the server does not answer in time"},
		{"/pass", "short", "no data: the Secret has no key hmac of at least 16 bytes"},
		{"/pass", "bad", "no data: the key hmac of the Secret begins with whsec_"},
		{"/pass", "none", "no data: the Secret none does not exist"},
	} {
		g := &v1alpha1.RolloutGate{Name: "tests", Webhook: &v1alpha1.WebhookGate{URL: server.URL + c.path, SecretRef: v1alpha1.GateSecretRef{Name: c.secret}}}
		if c.path == "/slow" {
			g.Webhook.Timeout = &metav1.Duration{Duration: 50 * time.Millisecond}
		}
		checker := &Checker{Config: Config{Secrets: secrets, AllowedNetworks: loopback}}
		o := checker.takeMeasurement(t.Context(), newBundle(v1alpha1.SourcePropagationPolicy), gateID{uid: "web", stage: "canary", name: "tests", revision: "web-r7"}, g)
		if got := describeOutcome(o); !strings.HasPrefix(got, c.want) || strings.ContainsRune(got, 0x1b) || len(o.Text) > maxTextBytes+8 {
			t.Errorf("%s %s: %q, want %s", c.path, c.secret, got, c.want)
		}
	}
	if len(problems) > 0 {
		t.Error(problems)
	}
}
