package memberproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubesets "k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/testwait"
)

type table map[string]*v1alpha1.Cluster

func (t table) Get(name string) (*v1alpha1.Cluster, bool) { c, ok := t[name]; return c, ok }

func newCluster(name string, change ...func(*v1alpha1.Cluster)) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{}
	c.Name, c.UID, c.Spec.Accepted = name, types.UID("uid-"+name), true
	for _, f := range change {
		f(c)
	}
	return c
}

// newHandler is one before an agent.
func newHandler(t *testing.T, agent http.Handler, dial func(uid string) error, may bool) *ProxyHandler {
	t.Helper()
	agents := httptest.NewServer(agent)
	t.Cleanup(agents.Close)
	clusters := table{}
	for _, c := range []*v1alpha1.Cluster{
		newCluster("tokyo"),
		newCluster("denied", func(c *v1alpha1.Cluster) { c.Spec.Accepted = false }),
		newCluster("edge", func(c *v1alpha1.Cluster) {
			c.Spec.Connection = &v1alpha1.ClusterConnection{Type: v1alpha1.ConnectionCheckIn}
		}),
	} {
		clusters[c.Name] = c
	}
	return New(Options{
		Clusters: clusters, Log: slog.New(slog.DiscardHandler),
		Dial: func(ctx context.Context, uid string) (net.Conn, error) {
			if err := dial(uid); err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", agents.Listener.Addr().String())
		},
		May: func(_ context.Context, _ user.Info, verb, cluster string) bool {
			return may && verb == "create" && cluster == "tokyo"
		},
		Refuse: func(w http.ResponseWriter, err error) {
			var known apierrors.APIStatus
			if !errors.As(err, &known) {
				t.Errorf("%v is no Status", err)
				return
			}
			w.WriteHeader(int(known.Status().Code))
			_ = json.NewEncoder(w).Encode(known.Status())
		},
	})
}

// startHub serves a Handler, in the name of a header's user, as the API server would.
func startHub(t *testing.T, agent http.Handler, dial func(uid string) error, may bool) *httptest.Server {
	t.Helper()
	h := newHandler(t, agent, dial, may)
	resolver := &request.RequestInfoFactory{APIPrefixes: kubesets.NewString("api", "apis"), GrouplessAPIPrefixes: kubesets.NewString("api")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.NewRequestInfo(r)
		if err != nil || !IsProxyRequest(info) {
			t.Errorf("%s is not the Handler's: %+v, %v", r.URL, info, err)
		}
		ctx := request.WithRequestInfo(r.Context(), info)
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: r.Header.Get("Test-User"), Groups: r.Header.Values("In")})
		h.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(server.Close)
	return server
}

func sendRequest(t *testing.T, h *httptest.Server, path string, header http.Header) (int, string) {
	t.Helper()
	return askBy(t, http.MethodGet, h, path, header)
}

func askBy(t *testing.T, method string, h *httptest.Server, path string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/apis/atoll.dev/v1alpha1/clusters/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	answer, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var s metav1.Status
	if json.Unmarshal(body, &s) == nil && s.Message != "" {
		return answer.StatusCode, s.Message
	}
	return answer.StatusCode, string(body)
}

func janeHeader() http.Header {
	return http.Header{"Test-User": {"jane"}, "In": {"dev", "system:authenticated"}}
}

func TestPathsAndPeopleAreCarriedOver(t *testing.T) {
	var mu sync.Mutex
	var got *http.Request
	var dialled string
	h := startHub(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = r
		w.WriteHeader(http.StatusAccepted)
	}), func(uid string) error { dialled = uid; return nil }, false)
	for path, want := range map[string]string{
		"tokyo/proxy":                          "/",
		"tokyo/proxy/":                         "/",
		"tokyo/proxy/api/v1/pods?watch=true":   "/api/v1/pods?watch=true",
		"tokyo/proxy/api/v1/x/a%2Fb":           "/api/v1/x/a%2Fb",
		"tokyo/proxy/clusters/tokyo/proxy/api": "/clusters/tokyo/proxy/api",
	} {
		header := janeHeader()
		header.Set("Authorization", "Bearer hub")
		header.Set("Impersonate-User", "system:admin")
		if code, text := sendRequest(t, h, path, header); code != http.StatusAccepted {
			t.Fatalf("%s: %d %s", path, code, text)
		}
		mu.Lock()
		if got.RequestURI != want || got.Header.Get("Authorization") != "" || got.Header.Get("Impersonate-User") != "jane" || strings.Join(got.Header.Values("Impersonate-Group"), ",") != "dev" {
			t.Errorf("%s: the agent is asked for %s with %v", path, got.RequestURI, got.Header)
		}
		mu.Unlock()
	}
	if dialled != "uid-tokyo" {
		t.Errorf("dialled %q", dialled)
	}
}

func TestWhatCannotBeReachedSaysWhy(t *testing.T) {
	var fails error
	h := startHub(t, http.NotFoundHandler(), func(string) error { return fails }, false)
	upgrade := janeHeader()
	upgrade.Set("Connection", "Upgrade")
	upgrade.Set("Upgrade", "websocket")
	for _, c := range []struct {
		what, path string
		header     http.Header
		dial       error
		code       int
		says       string
	}{
		{"no such cluster", "mars/proxy/api", janeHeader(), nil, 404, `"mars" not found`},
		{"one that is not accepted", "denied/proxy/api", janeHeader(), nil, 503, "atoll accept denied"},
		{"one that checks in", "edge/proxy/api", janeHeader(), nil, 503, "checks in every 15m0s and holds no stream"},
		{"one that is away", "tokyo/proxy/api", janeHeader(), status.Error(codes.NotFound, ""), 503, "its agent is not connected to the hub"},
		{"an old agent", "tokyo/proxy/api", janeHeader(), status.Error(codes.Unimplemented, "update it"), 503, "update it"},
		{"an agent that does not answer", "tokyo/proxy/api", janeHeader(), status.Error(codes.DeadlineExceeded, "not in time"), 503, "not in time"},
		{"a full one", "tokyo/proxy/api", janeHeader(), status.Error(codes.ResourceExhausted, "as many as may be"), 429, "as many as may be"},
		{"a broken connection", "tokyo/proxy/api", janeHeader(), errors.New("reset"), 503, "the connection to its agent broke: reset"},
		{"a component of the hub", "tokyo/proxy/api", http.Header{"Test-User": {"system:kube-scheduler"}}, nil, 403, "a cluster's own"},
		{"without a login", "tokyo/proxy/api", http.Header{"Test-User": {"system:anonymous"}}, nil, 403, "the request has no user"},
		{"an upgrade to something else", "tokyo/proxy/api", http.Header{"Test-User": {"jane"}, "Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, nil, 400, "and to nothing else"},
		{"an upgrade to two things", "tokyo/proxy/api", http.Header{"Test-User": {"jane"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket", "h2c"}}, nil, 400, "and to nothing else"},
		{"an upgrade without the right to", "tokyo/proxy/exec", upgrade, nil, 403, "needs the verb create"},
	} {
		fails = c.dial
		if code, text := sendRequest(t, h, c.path, c.header); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %q; wanted %d with %q", c.what, code, text, c.code, c.says)
		}
	}
}

func TestOneUserDoesNotTakeAllOfACluster(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan struct{}, DefaultLimits.PerUser)
	h := startHub(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Impersonate-User") == "jane" {
			arrived <- struct{}{}
			<-release
		}
	}), func(string) error { return nil }, false)
	var all sync.WaitGroup
	for range DefaultLimits.PerUser {
		all.Go(func() { sendRequest(t, h, "tokyo/proxy/logs", janeHeader()) })
	}
	for range DefaultLimits.PerUser {
		<-arrived
	}
	if code, text := sendRequest(t, h, "tokyo/proxy/logs", janeHeader()); code != 429 || !strings.Contains(text, "as many requests under way") {
		t.Errorf("one more of the same: %d %s", code, text)
	}
	if code, text := sendRequest(t, h, "tokyo/proxy/api", http.Header{"Test-User": {"joe"}}); code != 200 {
		t.Errorf("another user: %d %s", code, text)
	}
	close(release)
	all.Wait()
	if code, text := sendRequest(t, h, "tokyo/proxy/api", janeHeader()); code != 200 {
		t.Errorf("afterwards: %d %s", code, text)
	}
}

// TestNobodyTakesAllOfAHub: what one user, and all, have under way at many clusters has a
// bound, and what ends makes room.
func TestNobodyTakesAllOfAHub(t *testing.T) {
	most := RequestLimits{PerUser: 20, PerUserAll: 300, All: 700}
	p := requestSlots{limits: most, usedPlaces: map[requestSlot]int{}}
	at := func(user string, n int) requestSlot { return requestSlot{user, fmt.Sprint("c", n%100)} }
	for i := range most.PerUserAll {
		if full := p.acquireSlot(at("jane", i)); full != "" {
			t.Fatalf("request %d: %s", i, full)
		}
	}
	if full := p.acquireSlot(requestSlot{"jane", "another"}); !strings.Contains(full, "at all clusters together") {
		t.Errorf("one more: %q", full)
	}
	for i := range most.All - most.PerUserAll {
		if full := p.acquireSlot(at(fmt.Sprint("u", i), i)); full != "" {
			t.Fatalf("request %d of others: %s", i, full)
		}
	}
	if full := p.acquireSlot(at("joe", 0)); !strings.Contains(full, "at this hub") {
		t.Errorf("one more of another user: %q", full)
	}
	p.releaseSlot(at("jane", 0))
	if full := p.acquireSlot(at("joe", 0)); full != "" {
		t.Errorf("after one has ended: %s", full)
	}
	p.releaseSlot(at("joe", 0))
	for i := range most.PerUserAll - 1 {
		p.releaseSlot(at("jane", i+1))
	}
	for i := range most.All - most.PerUserAll {
		p.releaseSlot(at(fmt.Sprint("u", i), i))
	}
	if len(p.usedPlaces) != 0 || p.all != 0 {
		t.Errorf("left of all: %d, %v", p.all, p.usedPlaces)
	}
}

// TestLimitsOfAHub: as its flags say them.
func TestLimitsOfAHub(t *testing.T) {
	for l, want := range map[RequestLimits]bool{
		DefaultLimits: true, {1, 1, 1}: true, {500, 2000, 40000}: true,
		{}: false, {0, 1, 1}: false, {-1, 1, 1}: false, {2, 1, 3}: false, {1, 3, 2}: false,
	} {
		if err := l.ValidateLimits(); (err == nil) != want {
			t.Errorf("%+v: %v", l, err)
		}
	}
	h := New(Options{Limits: RequestLimits{PerUser: 1, PerUserAll: 1, All: 1}, Log: slog.New(slog.DiscardHandler)})
	if full := h.places.acquireSlot(requestSlot{"jane", "oslo"}); full != "" {
		t.Error(full)
	}
	if full := h.places.acquireSlot(requestSlot{"jane", "oslo"}); full == "" || h.MaxRequestsPerUser() != 1 {
		t.Error("a hub whose limit is 1 takes two")
	}
}

// rules is an authorizer by "verb resource name".
type rules map[string]bool

func (r rules) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if r[a.GetVerb()+" "+a.GetResource()+"/"+a.GetSubresource()+" "+a.GetName()] {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", nil
}

type inSets map[string][]string

func (s inSets) OfCluster(name string) []string { return s[name] }

func TestWhoMayReachASetMayReachItsClusters(t *testing.T) {
	a := AuthorizeByClusterSet(rules{"get clusters/proxy oslo": true, "get clustersets/proxy asia": true, "create clustersets/proxy eu": true},
		func(context.Context) (Sets, error) { return inSets{"tokyo": {"all", "asia"}, "oslo": {"eu"}}, nil })
	for _, c := range []struct {
		verb, resource, subresource, name string
		want                              bool
	}{
		{"get", "clusters", "proxy", "tokyo", true},
		{"create", "clusters", "proxy", "tokyo", false},
		{"get", "clusters", "proxy", "oslo", true},
		{"create", "clusters", "proxy", "oslo", true},
		{"delete", "clusters", "proxy", "oslo", false},
		{"get", "clusters", "proxy", "mars", false},
		{"get", "clusters", "", "tokyo", false},
		{"get", "clusters", "status", "tokyo", false},
		{"get", "pods", "proxy", "tokyo", false},
	} {
		got, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "jane"}, Verb: c.verb, APIGroup: "atoll.dev", Resource: c.resource, Subresource: c.subresource, Name: c.name, ResourceRequest: true,
		})
		if err != nil || (got == authorizer.DecisionAllow) != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

// TestASetGivesNothingElse: not a denied request, nor other groups; and a failed question about a set gives nothing.
func TestASetGivesNothingElse(t *testing.T) {
	get := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "get", APIGroup: "atoll.dev", Resource: "clusters", Subresource: "proxy", Name: "tokyo", ResourceRequest: true}
	other, nameless := get, get
	other.APIGroup, nameless.Name = "acme.dev", ""
	for what, c := range map[string]struct {
		asked    authorizer.AttributesRecord
		cluster  authorizer.Decision
		failed   error
		decision authorizer.Decision
	}{
		"an unstated group":            {asked: get, cluster: authorizer.DecisionNoOpinion, decision: authorizer.DecisionAllow},
		"what is denied":               {asked: get, cluster: authorizer.DecisionDeny, decision: authorizer.DecisionDeny},
		"another group's":              {asked: other, cluster: authorizer.DecisionNoOpinion, decision: authorizer.DecisionNoOpinion},
		"all clusters":                 {asked: nameless, cluster: authorizer.DecisionNoOpinion, decision: authorizer.DecisionNoOpinion},
		"where the set's rules failed": {asked: get, failed: errors.New("broken"), cluster: authorizer.DecisionNoOpinion, decision: authorizer.DecisionNoOpinion},
	} {
		a := AuthorizeByClusterSet(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetResource() == "clustersets" {
				return authorizer.DecisionAllow, "", c.failed
			}
			return c.cluster, "", nil
		}), func(context.Context) (Sets, error) { return inSets{"tokyo": {"all"}, "": {"all"}}, nil })
		if got, _, _ := a.Authorize(t.Context(), c.asked); got != c.decision {
			t.Errorf("%s: %v, want %v", what, got, c.decision)
		}
	}
}

// TestARightOnASetWaitsForTheSets: a start refuses nothing that a set gives. The answer is an error,
// and no refusal, while the sets stay unknown.
func TestARightOnASetWaitsForTheSets(t *testing.T) {
	get := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "jane"}, Verb: "get", APIGroup: "atoll.dev", Resource: "clusters", Subresource: "proxy", Name: "tokyo", ResourceRequest: true}
	for name, c := range map[string]struct {
		readAfter, wantAfter time.Duration
		want                 authorizer.Decision
		wantErr              error
	}{
		"read":    {readAfter: 4 * time.Second, wantAfter: 4 * time.Second, want: authorizer.DecisionAllow},
		"unknown": {readAfter: time.Hour, wantAfter: setsPatience, want: authorizer.DecisionNoOpinion, wantErr: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := AuthorizeByClusterSet(rules{"get clustersets/proxy asia": true}, func(ctx context.Context) (Sets, error) {
					select {
					case <-time.After(c.readAfter):
						return inSets{"tokyo": {"asia"}}, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
				begin := time.Now()
				got, _, err := a.Authorize(t.Context(), get)
				if got != c.want || !errors.Is(err, c.wantErr) || time.Since(begin) != c.wantAfter {
					t.Errorf("decides %v, %v after %v; want %v, %v after %v", got, err, time.Since(begin), c.want, c.wantErr, c.wantAfter)
				}
			})
		})
	}
}

// TestWhoAsksForWhatIsShownIsToldWhoRefuses: the user sees one cluster, and is refused by
// another's RBAC. A request to a member by its name gets its own words.
func TestWhoAsksForWhatIsShownIsToldWhoRefuses(t *testing.T) {
	const denied = `pods "web-1" is forbidden: User "jane" cannot create resource "pods/exec" in API group "" in the namespace "shop"`
	agent := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 403, Message: denied})
	})
	reached := func(string) error { return nil }
	if code, text := sendRequest(t, startHub(t, agent, reached, true), "tokyo/proxy/api", janeHeader()); code != 403 || text != denied {
		t.Errorf("by the member's name: %d %s", code, text)
	}
	h := newHandler(t, agent, reached, true)
	w := httptest.NewRecorder()
	h.ServeAs(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/shop/pods/web-1.tokyo/exec", nil), &user.DefaultInfo{Name: "jane"}, newCluster("tokyo"), "/api/v1/namespaces/shop/pods/web-1/exec", "")
	var s metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 403 || s.Message != "cluster tokyo: "+denied+"; this is refused by the cluster's own RBAC, not by the hub's: its administrator can give you a role there" {
		t.Errorf("of what is shown: %d %s, %v", w.Code, w.Body, err)
	}
	const mayNot = `pods "web-1" is forbidden: User "system:serviceaccount:atoll-system:atoll-agent" cannot impersonate-on:user-info:create resource "pods/exec" in API group "" in the namespace "shop"`
	if text := AddRefusalHint(mayNot); !strings.HasPrefix(text, mayNot) || !strings.Contains(text, "atoll join --allow impersonate") {
		t.Errorf("of an agent that may not impersonate it is said: %s", text)
	}
	if text := AddRefusalHint(`admission webhook "x" denied the request`); strings.Contains(text, "RBAC") {
		t.Errorf("of a webhook it is said: %s", text)
	}
}

// TestWhatAPodRefusesComesWhole: 403 need not be an API's, and half of a page is none.
func TestWhatAPodRefusesComesWhole(t *testing.T) {
	page := strings.Repeat("you may not. ", 20_000)
	agent := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, page)
	})
	h := newHandler(t, agent, func(string) error { return nil }, true)
	w := httptest.NewRecorder()
	h.ServeAs(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/shop/pods/web-1.tokyo/proxy/", nil), &user.DefaultInfo{Name: "jane"}, newCluster("tokyo"), "/api/v1/namespaces/shop/pods/web-1/proxy", "/")
	if w.Code != 403 || w.Body.String() != page {
		t.Errorf("%d, %d bytes of %d", w.Code, w.Body.Len(), len(page))
	}
}

// TestWhoWatchesSomethingQuietIsAnsweredAtOnce: with the header alone, since there may be
// nothing else for hours.
func TestWhoWatchesSomethingQuietIsAnsweredAtOnce(t *testing.T) {
	member := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	h := startHub(t, member, func(string) error { return nil }, true)
	ctx, cancel := context.WithTimeout(t.Context(), testwait.HangLimit)
	defer cancel()
	for range 20 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = janeHeader()
		answer, err := h.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("%s, %v", answer.Status, err)
		}
	}
}
