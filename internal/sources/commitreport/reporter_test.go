package commitreport

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/api/v1alpha1"
)

const commit = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

var key = types.NamespacedName{Namespace: "shop", Name: "web"}

// gitServer takes statuses of commits, and remembers them.
type gitServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	status   int
	location string
}

func newGitServer(t *testing.T) *gitServer {
	t.Helper()
	g := &gitServer{status: http.StatusCreated}
	g.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.requests = append(g.requests, r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Authorization")+" "+string(body))
		if g.location != "" {
			w.Header().Set("Location", g.location)
		}
		w.WriteHeader(g.status)
		_, _ = io.WriteString(w, "a text of the server with \x1b[31mcolours")
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gitServer) setAnswer(status int, location string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status, g.location, g.requests = status, location, nil
}

func (g *gitServer) listRequests() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.requests...)
}

// tables are one Source and its Repository.
type tables struct {
	source *v1alpha1.Source
	repo   *v1alpha1.Repository
}

func (x *tables) Get(key types.NamespacedName) (*v1alpha1.Source, bool) {
	return x.source, x.source != nil && key.Name == x.source.Name
}

func (x *tables) InNamespace(string) []*v1alpha1.Source { return []*v1alpha1.Source{x.source} }

type repositories struct{ *tables }

func (x repositories) Get(key types.NamespacedName) (*v1alpha1.Repository, bool) {
	return x.repo, x.repo != nil && key.Name == x.repo.Name
}

// newReporter returns a Reporter of a Source that is ready, with the server as GitHub.
func newReporter(t *testing.T, g *gitServer) (*Reporter, *tables) {
	t.Helper()
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw})
	x := &tables{
		source: &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.SourceSpec{Repository: "repo"}},
		repo: &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "repo"}, Spec: v1alpha1.RepositorySpec{
			Git:          &v1alpha1.GitRepository{URL: "https://git.example.com/shop/web.git", CABundle: string(bundle)},
			CommitStatus: &v1alpha1.RepositoryCommitStatus{Server: v1alpha1.GitServerGitHub, URL: g.URL + "/api/v3", SecretRef: v1alpha1.RepositorySecretRef{Name: "token"}},
		}},
	}
	x.source.Status.SeenCommit, x.source.Status.AttemptedCommit = commit, commit
	x.source.Status.Conditions = []metav1.Condition{{Type: "Applied", Status: "True"}, {Type: "Ready", Status: "True"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token"}, Data: map[string][]byte{"token": []byte("hush\n")}}
	r := New(Config{
		Sources: x, Repositories: repositories{x}, Secrets: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(secret).Build(), AllowedNetworks: []string{"127.0.0.0/8", "::1/128"},
		Update: func(_ context.Context, s *v1alpha1.Source, change func(now *v1alpha1.Source)) error {
			x.source = s.DeepCopy()
			change(x.source)
			return nil
		},
	})
	return r, x
}

// reportOnce reports the Source once, and returns the wait before the next try.
func reportOnce(t *testing.T, r *Reporter) time.Duration {
	t.Helper()
	again, err := r.reportSource(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// endWait lets the wait of a report end.
func endWait(r *Reporter) {
	f := r.failures[key]
	f.notBefore = time.Time{}
	r.failures[key] = f
}

// A report is sent once for each commit and state, and the status has what the server took.
func TestReportsAreSentOnce(t *testing.T) {
	g := newGitServer(t)
	r, x := newReporter(t, g)
	for range 3 {
		if again := reportOnce(t, r); again != 0 {
			t.Errorf("tries again after %s", again)
		}
	}
	want := `POST /api/v3/repos/shop/web/statuses/` + commit + ` Bearer hush {"context":"atoll/shop/web","description":"applied, and ready in its clusters","state":"success"}`
	if got := g.listRequests(); len(got) != 1 || got[0] != want {
		t.Errorf("requests %q, want %q", got, want)
	}
	if c := x.source.Status.CommitStatus; c == nil || c.Commit != commit || c.State != v1alpha1.CommitSuccess || c.Time.IsZero() || c.Problem != "" {
		t.Errorf("recorded %+v", c)
	}
	x.source.Status.Conditions[1].Status = "False"
	reportOnce(t, r)
	x.source.Status.Conditions[0].Status = "False"
	reportOnce(t, r)
	if got := g.listRequests(); len(got) != 2 || !strings.Contains(got[1], `"state":"failure"`) {
		t.Errorf("requests %q", got)
	}
	x.repo.Spec.CommitStatus = nil
	if reportOnce(t, r); x.source.Status.CommitStatus != nil || len(g.listRequests()) != 2 {
		t.Errorf("without commitStatus: %+v", x.source.Status.CommitStatus)
	}
}

// A report that a server does not take is recorded without a text of the server, and sent again after longer and longer waits.
func TestReportsThatFail(t *testing.T) {
	g := newGitServer(t)
	for name, c := range map[string]struct {
		spoil func(x *tables, r *Reporter)
		want  string
	}{
		"no right":      {func(*tables, *Reporter) { g.setAnswer(http.StatusForbidden, "") }, "status 403: the token is not valid, or lacks the right"},
		"no repository": {func(*tables, *Reporter) { g.setAnswer(http.StatusNotFound, "") }, "status 404"},
		"a redirect":    {func(*tables, *Reporter) { g.setAnswer(http.StatusFound, g.URL+"/elsewhere") }, "redirects"},
		"no Secret":     {func(x *tables, _ *Reporter) { x.repo.Spec.CommitStatus.SecretRef.Name = "none" }, "Secret none does not exist"},
		"another CA":    {func(x *tables, _ *Reporter) { x.repo.Spec.Git.CABundle = "" }, "certificate cannot be verified"},
		"no bundle":     {func(x *tables, _ *Reporter) { x.repo.Spec.Git.CABundle = "none" }, "no certificate in PEM"},
		"loopback":      {func(_ *tables, r *Reporter) { r.AllowedNetworks = nil }, "the hub does not dial"},
	} {
		t.Run(name, func(t *testing.T) {
			g.setAnswer(http.StatusCreated, "")
			r, x := newReporter(t, g)
			c.spoil(x, r)
			reportOnce(t, r)
			if n := r.failures[key].inARow; n != 1 {
				t.Errorf("%d tries", n)
			}
			if again := reportOnce(t, r); again <= 0 || again > firstRetry {
				t.Errorf("an event of the recorded problem tries again after %s", again)
			}
			got := x.source.Status.CommitStatus
			if got == nil || !strings.Contains(got.Problem, c.want) || got.ProblemSince.IsZero() || got.Commit != "" || strings.Contains(got.Problem, "colours") {
				t.Fatalf("recorded %+v, want %q", got, c.want)
			}
			since := *got.ProblemSince
			endWait(r)
			reportOnce(t, r)
			if n := r.failures[key].inARow; n != 2 || !x.source.Status.CommitStatus.ProblemSince.Equal(&since) {
				t.Errorf("the second try: %d, %+v", n, x.source.Status.CommitStatus)
			}
			for _, request := range g.listRequests() {
				if strings.Contains(request, "elsewhere") {
					t.Errorf("a redirect is followed: %s", request)
				}
			}
		})
	}
}

// The waits double up to their bound.
func TestRetriesAreLaterAndLater(t *testing.T) {
	for tries, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 5: 8 * time.Minute, 6: 10 * time.Minute, 1000: 10 * time.Minute} {
		if got := retryAfter(tries); got != want {
			t.Errorf("%d tries: %s, want %s", tries, got, want)
		}
	}
}

// A namespace whose server does not answer leaves workers to the others.
func TestANamespaceHasAPartOfTheWorkers(t *testing.T) {
	g := newGitServer(t)
	r, _ := newReporter(t, g)
	r.sending["shop"] = namespaceReports
	if again := reportOnce(t, r); again != namespacePause || len(g.listRequests()) != 0 {
		t.Errorf("one more report of the namespace waits %s, requests %q", again, g.listRequests())
	}
	r.sending["shop"] = namespaceReports - 1
	if reportOnce(t, r); len(g.listRequests()) != 1 || r.sending["shop"] != namespaceReports-1 {
		t.Errorf("requests %q, and %d are being sent", g.listRequests(), r.sending["shop"])
	}
}

// Nothing is sent for a suspended Repository, and for one that does not exist.
func TestNothingIsSent(t *testing.T) {
	g := newGitServer(t)
	r, x := newReporter(t, g)
	x.repo.Spec.Suspend = true
	reportOnce(t, r)
	x.repo = nil
	reportOnce(t, r)
	x.source = nil
	reportOnce(t, r)
	if got := g.listRequests(); len(got) != 0 {
		t.Errorf("requests %q", got)
	}
}
