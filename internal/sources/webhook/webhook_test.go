package webhook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/delivery/fairness"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/state"
)

const (
	token = "a token of 25 characters."
	path  = "/webhooks/shop/web"
)

var key = types.NamespacedName{Namespace: "shop", Name: "web"}

// testHub has one Repository, with a webhook.
type testHub struct {
	*Receiver
	repositories map[types.NamespacedName]*v1alpha1.Repository
	client       client.Client
	writes       atomic.Int32
	starting     bool
	// readTable is true for a table that has the writes of the status.
	readTable bool
	// readSecret is called before each read of a Secret; nil for nothing.
	readSecret func(context.Context) error
}

func (h *testHub) Get(key types.NamespacedName) (*v1alpha1.Repository, bool) {
	if h.readTable {
		var repo v1alpha1.Repository
		return &repo, h.client.Get(context.Background(), key, &repo) == nil
	}
	repo, ok := h.repositories[key]
	return repo, ok
}

func newTestHub(t *testing.T) *testHub {
	t.Helper()
	repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	repo.Spec.Webhook = &v1alpha1.RepositoryWebhook{SecretRef: v1alpha1.RepositorySecretRef{Name: "hook"}}
	silent := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "silent"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hook"}, Data: map[string][]byte{"token": []byte(token + "\n")}}
	h := &testHub{repositories: map[types.NamespacedName]*v1alpha1.Repository{key: repo, {Namespace: "shop", Name: "silent"}: silent}}
	h.client = ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithObjects(repo, silent, secret).WithStatusSubresource(repo).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			h.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, isSecret := obj.(*corev1.Secret); isSecret && h.readSecret != nil {
				if err := h.readSecret(ctx); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
	}).Build()
	h.Receiver = New(Options{Hub: func() (Hub, bool) { return Hub{h, h.client}, !h.starting }, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	return h
}

// send sends a POST with a header, as NAME: VALUE, from an address.
func (h *testHub) send(path, header, body, address string) int {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if name, value, ok := strings.Cut(header, ": "); ok {
		r.Header.Set(name, value)
	}
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func signBody(token, body string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// Each server proves the token in its own way, and nothing else proves it.
func TestRequestsProveTheToken(t *testing.T) {
	const body = `{"ref": "refs/heads/main"}`
	signed := signBody(token, body)
	basic := func(password string) string {
		r := httptest.NewRequest("POST", "/", nil)
		r.SetBasicAuth("any", password)
		return "Authorization: " + r.Header.Get("Authorization")
	}
	for name, tc := range map[string]struct {
		header, body string
		want         bool
	}{
		"GitHub":                   {"X-Hub-Signature-256: sha256=" + signed, body, true},
		"Bitbucket":                {"X-Hub-Signature: sha256=" + signed, body, true},
		"Gitea":                    {"X-Gitea-Signature: " + signed, body, true},
		"Forgejo":                  {"X-Forgejo-Signature: " + signed, body, true},
		"GitLab":                   {"X-Gitlab-Token: " + token, body, true},
		"Azure DevOps":             {basic(token), body, true},
		"a script":                 {"Authorization: Bearer " + token, "", true},
		"no proof":                 {"", body, false},
		"another body":             {"X-Hub-Signature-256: sha256=" + signed, body + " ", false},
		"another token":            {"X-Hub-Signature-256: sha256=" + signBody("other", body), body, false},
		"an empty signature":       {"X-Hub-Signature-256: sha256=", body, false},
		"a signature cut short":    {"X-Hub-Signature-256: sha256=" + signed[:62], body, false},
		"no hexadecimal signature": {"X-Hub-Signature-256: sha256=" + strings.Repeat("z", 64), body, false},
		"SHA-1":                    {"X-Hub-Signature: sha1=" + signed[:40], body, false},
		"a token cut short":        {"X-Gitlab-Token: " + token[:20], body, false},
		"an empty password":        {basic(""), body, false},
	} {
		h := newTestHub(t)
		want := http.StatusForbidden
		if tc.want {
			want = http.StatusAccepted
		}
		if got := h.send(path, tc.header, tc.body, "192.0.2.1:5"); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// All refusals are one answer, so that strangers learn no names.
func TestRefusals(t *testing.T) {
	answer := func(h *testHub, method, path, header string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	_, wrong := answer(newTestHub(t), "POST", path, "Bearer wrong")
	for name, tc := range map[string]struct {
		path  string
		setUp func(h *testHub)
	}{
		"an unknown Repository": {"/webhooks/shop/other", nil},
		"no webhook":            {"/webhooks/shop/silent", nil},
		"no name":               {"/webhooks/shop", nil},
		"a longer path":         {path + "/more", nil},
		"no Secret":             {path, func(h *testHub) { h.repositories[key].Spec.Webhook.SecretRef.Name = "missing" }},
		"a short token": {path, func(h *testHub) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hook"}, Data: map[string][]byte{"token": []byte("short")}}
			if err := h.client.Update(context.Background(), secret); err != nil {
				panic(err)
			}
		}},
		"the Secret of no Repository": {"/webhooks/shop/silent", func(h *testHub) {
			absent := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: absentRepository.Namespace, Name: absentRepository.Spec.Webhook.SecretRef.Name}, Data: map[string][]byte{"token": []byte(token)}}
			if err := h.client.Create(context.Background(), absent); err != nil {
				panic(err)
			}
		}},
		"a Repository that is deleted": {path, func(h *testHub) { h.repositories[key].DeletionTimestamp = &metav1.Time{} }},
	} {
		h := newTestHub(t)
		if tc.setUp != nil {
			tc.setUp(h)
		}
		for _, header := range []string{"Bearer " + token, "Bearer short", "Bearer "} {
			if code, text := answer(h, "POST", tc.path, header); code != http.StatusForbidden || text != wrong {
				t.Errorf("%s, %s: %d %s", name, header, code, text)
			}
		}
	}
	h := newTestHub(t)
	if code, _ := answer(h, "GET", path, "Bearer "+token); code != http.StatusMethodNotAllowed {
		t.Errorf("a GET: %d", code)
	}
	h.starting = true
	if code, _ := answer(h, "POST", path, "Bearer "+token); code != http.StatusTooManyRequests {
		t.Errorf("a hub that starts: %d", code)
	}
}

// A signed request of any size takes the same way for every name, and counts as an attempt.
func TestSignedRequestsReportNoNames(t *testing.T) {
	for _, size := range []int{0, 1 << 20, maxBodyBytes + 1} {
		want := ""
		for _, p := range []string{path, "/webhooks/shop/silent", "/webhooks/shop/other", "/webhooks/shop"} {
			h := newTestHub(t)
			h.refusals = fairness.NewRequestLimiter(pace.Rate{Interval: time.Hour, Burst: 1}, allRefusals)
			secrets := 0
			h.readSecret = func(context.Context) error { secrets++; return nil }
			body, w := &zeros{left: size}, httptest.NewRecorder()
			r := httptest.NewRequest("POST", p, body)
			r.Header.Set("X-Hub-Signature-256", "sha256="+signBody("other", ""))
			h.ServeHTTP(w, r)
			got := fmt.Sprintf("%d %s after %d bytes and %d Secrets", w.Code, w.Body, body.read, secrets)
			if want = cmp.Or(want, got); got != want || w.Code == http.StatusAccepted {
				t.Errorf("%s, %d bytes: %s, want as of a Repository: %s", p, size, got, want)
			}
			if code := h.send(p, "", "", r.RemoteAddr); code != http.StatusTooManyRequests {
				t.Errorf("%s, %d bytes: the request is no attempt, the next one is answered %d", p, size, code)
			}
		}
	}
}

// An error of the store is no refusal, so that a server may repeat its request.
func TestAFailedReadIsNoRefusal(t *testing.T) {
	h := newTestHub(t)
	h.readSecret = func(context.Context) error { return errors.New("the store is away") }
	for _, p := range []string{path, "/webhooks/shop/other"} {
		if code := h.send(p, "X-Gitlab-Token: "+token, "", "192.0.2.1:5"); code != http.StatusTooManyRequests {
			t.Errorf("%s: %d", p, code)
		}
	}
}

// A request that waits for its token ends for another one, and after requestTime.
func TestRequestsThatWaitForTheStoreAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		h.now = time.Now
		h.readSecret = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		var ended atomic.Int32
		var all sync.WaitGroup
		for i := range maxRequests + 3 {
			all.Go(func() {
				h.send(path, "X-Gitlab-Token: "+token, "", fmt.Sprintf("192.0.%d.1:5", i))
				ended.Add(1)
			})
		}
		synctest.Wait()
		if n := ended.Load(); n != 3 {
			t.Errorf("%d requests ended for others, want 3", n)
		}
		time.Sleep(requestTime)
		synctest.Wait()
		if n := ended.Load(); n != maxRequests+3 {
			t.Errorf("%d requests ended after %s, want all", n, requestTime)
		}
		all.Wait()
	})
}

// Steady requests are one write a second, whichever hub receives them.
func TestSteadyRequestsAreOneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		h.readTable = true
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = h.Run(ctx) })
		synctest.Wait()
		for range 40 {
			if code := h.send(path, "X-Gitlab-Token: "+token, "", "192.0.2.2:6"); code != http.StatusAccepted {
				t.Fatalf("%d", code)
			}
			time.Sleep(250 * time.Millisecond)
		}
		last := time.Now().Add(-250 * time.Millisecond)
		time.Sleep(writeInterval)
		synctest.Wait()
		if n := h.writes.Load(); n < 10 || n > 12 {
			t.Errorf("40 requests in ten seconds are %d writes", n)
		}
		if repo, _ := h.Get(key); repo.Status.WebhookTime.Time.Before(last) {
			t.Errorf("the last write is of %s, the last request of %s", repo.Status.WebhookTime, last)
		}
		stop()
		running.Wait()
	})
}

// zeros is a body of so many bytes, which counts those that are read.
type zeros struct{ left, read int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), z.left)
	clear(p[:n])
	z.left, z.read = z.left-n, z.read+n
	return n, nil
}

func TestBodiesAreBounded(t *testing.T) {
	h := newTestHub(t)
	post := func(header string, size int) (code, read int) {
		body := &zeros{left: size}
		r := httptest.NewRequest("POST", path, body)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, body.read
	}
	if code, read := post("X-Hub-Signature-256: sha256="+signBody(token, ""), 1<<40); code != http.StatusRequestEntityTooLarge || read > maxBodyBytes+1<<20 {
		t.Errorf("a large signed body: %d after %d bytes", code, read)
	}
	if code, read := post("X-Gitlab-Token: "+token, 1<<40); code != http.StatusAccepted || read != 0 {
		t.Errorf("a body that is not signed: %d after %d bytes", code, read)
	}
	if code, read := post("X-Hub-Signature-256: sha256=zz", 1<<40); code != http.StatusForbidden || read != 0 {
		t.Errorf("a malformed signature: %d after %d bytes", code, read)
	}
}

// Guesses are limited by their network, and those of one network keep no other from its webhook.
func TestGuessesAreLimited(t *testing.T) {
	h := newTestHub(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h.now = func() time.Time { return now }
	for i := range refusalsOfNetwork.Burst {
		if code := h.send(path, "X-Gitlab-Token: guess", "", "192.0.2.1:5"); code != http.StatusForbidden {
			t.Fatalf("guess %d: %d", i, code)
		}
	}
	if code := h.send(path, "X-Gitlab-Token: "+token, "", "192.0.2.1:6"); code != http.StatusTooManyRequests {
		t.Errorf("after so many guesses: %d", code)
	}
	for range 1000 {
		if code := h.send(path, "X-Gitlab-Token: "+token, "", "192.0.2.2:6"); code != http.StatusAccepted {
			t.Fatalf("requests that prove the token: %d", code)
		}
	}
	now = now.Add(refusalsOfNetwork.Interval)
	if code := h.send(path, "X-Gitlab-Token: "+token, "", "192.0.2.1:6"); code != http.StatusAccepted {
		t.Errorf("after a while: %d", code)
	}
}

// A storm of requests is a few writes, and a request after a write is never lost.
func TestRequestsOfAMomentAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.Run(ctx) }()
		synctest.Wait()
		requested := func() time.Time {
			var repo v1alpha1.Repository
			if err := h.client.Get(ctx, key, &repo); err != nil {
				t.Fatal(err)
			}
			if repo.Status.WebhookTime == nil {
				return time.Time{}
			}
			return repo.Status.WebhookTime.Time
		}
		for range 1000 {
			if code := h.send(path, "X-Gitlab-Token: "+token, "", "192.0.2.2:6"); code != http.StatusAccepted {
				t.Fatalf("%d", code)
			}
			time.Sleep(time.Millisecond)
		}
		last := time.Now()
		time.Sleep(maxDebounce)
		synctest.Wait()
		if n := h.writes.Load(); n < 1 || n > 4 {
			t.Errorf("1,000 requests in a second are %d writes", n)
		}
		if at := requested(); at.Before(last.Add(-2 * time.Millisecond)) {
			t.Errorf("the last write is of %s, the last request of %s", at, last)
		}
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestOtherPathsGoOn(t *testing.T) {
	h := newTestHub(t)
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the API") })
	console := func(hubKey []byte) (func(http.Handler) http.Handler, error) {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, string(hubKey)+" before ")
				next.ServeHTTP(w, r)
			})
		}, nil
	}
	for name, tc := range map[string]struct {
		front func([]byte) (func(http.Handler) http.Handler, error)
		path  string
		want  string
	}{
		"alone":             {nil, "/api", "the API"},
		"with a console":    {console, "/webhooksx", "key before the API"},
		"a webhook is ours": {console, "/webhooks/x", "a webhook is a POST\n"},
	} {
		wrap, err := h.WrapFront(tc.front)([]byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		wrap(api).ServeHTTP(w, httptest.NewRequest("GET", tc.path, nil))
		if w.Body.String() != tc.want {
			t.Errorf("%s: %q", name, w.Body.String())
		}
	}
}
