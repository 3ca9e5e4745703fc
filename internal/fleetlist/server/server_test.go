package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

// rights are what users may do: VERB RESOURCE, or VERB RESOURCE NAMESPACE.
type rights struct {
	mu     sync.Mutex
	byUser map[string][]string
}

func (r *rights) set(user string, all ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byUser[user] = all
}

// Authorize allows what a user may do in a namespace there, and what a user may do in all namespaces everywhere.
func (r *rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.IsResourceRequest() || a.GetAPIGroup() != "atoll.dev" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	right := a.GetVerb() + " " + a.GetResource()
	for _, own := range r.byUser[a.GetUser().GetName()] {
		if own == "*" || own == right || own == right+" "+a.GetNamespace() {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// testServer serves tables to aiko, with all rights, and to others by their rights.
type testServer struct {
	*Server
	t       *testing.T
	tables  *state.HubTables
	rights  *rights
	version int
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&enginev1.TargetSlice{}).Build()
	s := &testServer{t: t, tables: statetest.NewTables(t, c), rights: &rights{byUser: map[string][]string{"aiko": {"*"}}}}
	s.Server = New(Options{Tables: func() (*state.HubTables, bool) { return s.tables, true }, Authorizer: func() authorizer.Authorizer { return s.rights }})
	return s
}

// putCluster stores a Cluster in a region, ready or not.
func (s *testServer) putCluster(name, region string, ready bool) {
	s.version++
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
	}
	s.tables.FeedObject(&v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(s.version), Labels: map[string]string{"env": "prod"}},
		Spec:       v1alpha1.ClusterSpec{Accepted: true, Region: region},
		Status:     v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: status, Reason: "Some"}}},
	}, false)
}

func (s *testServer) removeCluster(name string) {
	s.tables.FeedObject(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}, true)
}

func (s *testServer) putSource(namespace, name, commit string) {
	s.version++
	s.tables.Sources.Put(&v1alpha1.Source{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: fmt.Sprint(s.version)},
		Status:     v1alpha1.SourceStatus{Commit: commit, Inventory: []v1alpha1.SourceObject{{Name: "inventory"}}},
	})
}

// reportDrift stores the report of an application in a cluster, of which so many objects differ.
func (s *testServer) reportDrift(cluster string, objects int32) {
	s.t.Helper()
	ref, uid := enginev1.BundleRef{UID: "bundle", Namespace: "shop", Name: "web"}, "uid-"+cluster
	if !s.tables.Rows.HasRow(ref.UID, cluster) {
		if err := s.tables.Rows.WriteSpecs(s.t.Context(), ref, nil, map[string]*atoll.RowSpec{cluster: {UID: uid, Generation: 1, Phase: atoll.RowActive}}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.version++
	report := atoll.RowStatus{Generation: 1, Seq: int64(s.version), State: atoll.RowReady, Applied: true, Drifted: objects}
	if err := s.tables.Rows.WriteStatuses(s.t.Context(), ref.UID, map[string]atoll.RowStatus{uid: report}); err != nil {
		s.t.Fatal(err)
	}
}

func requestAs(ctx context.Context, name, address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, address, nil)
	if name == "" {
		return r.WithContext(ctx)
	}
	return r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: name}))
}

// serveRequest leads a request to its endpoint, as the hub does.
func (s *testServer) serveRequest(w http.ResponseWriter, r *http.Request) {
	map[string]http.HandlerFunc{
		atoll.FleetCountsPath: s.ServeCounts, atoll.FleetClustersPath: s.ServeClusters, atoll.FleetSourcesPath: s.ServeSources, atoll.FleetSearchPath: s.ServeSearch,
	}[r.URL.Path](w, r)
}

// getAs returns the status and the body of an answer, without its end of line.
func (s *testServer) getAs(name, address string) (int, string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.serveRequest(w, requestAs(s.t.Context(), name, address))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func TestCountsAreServed(t *testing.T) {
	s := newTestServer(t)
	s.putCluster("oslo", "eu", true)
	s.putCluster("rome", "eu", false)
	s.putCluster("york", "us", true)
	code, got := s.getAs("aiko", atoll.FleetCountsPath+"?by=region&status=Ready")
	if want := `{"by":"region","all":3,"matching":2,"states":{"NotReady":1,"Ready":2},"groups":[{"value":"eu","clusters":1,"states":{"Ready":1}},{"value":"us","clusters":1,"states":{"Ready":1}}]}`; code != http.StatusOK || got != want {
		t.Errorf("%d %s\nwant %s", code, got, want)
	}
	s.removeCluster("york")
	s.putCluster("rome", "eu", true)
	if _, got = s.getAs("aiko", atoll.FleetCountsPath+"?limit=1"); got != `{"all":2,"matching":2,"states":{"Ready":2},"groups":[]}` {
		t.Errorf("after changes: %s", got)
	}
}

func TestPagesAreServed(t *testing.T) {
	s := newTestServer(t)
	for i := range 5 {
		s.putCluster(fmt.Sprint("c", i), "eu", i != 3)
	}
	var names []string
	address := atoll.FleetClustersPath + "?limit=2&view=tiles&by=region"
	for token := ""; ; {
		code, body := s.getAs("aiko", address+"&continue="+token)
		var page pageAnswer2
		if err := json.Unmarshal([]byte(body), &page); err != nil || code != http.StatusOK {
			t.Fatalf("%d %v %s", code, err, body)
		}
		if page.Before != len(names) || page.All != 5 || page.Matching != 5 || page.States["NotReady"] != 1 {
			t.Errorf("%s", body)
		}
		for _, c := range page.Clusters {
			names = append(names, c.Name+"/"+c.State+"/"+strings.Join(c.Groups, ","))
		}
		if token = page.Continue; token == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "c3/NotReady/eu c0/Ready/eu c1/Ready/eu c2/Ready/eu c4/Ready/eu" {
		t.Errorf("%q", got)
	}
}

// pageAnswer2 is a page as a client reads it.
type pageAnswer2 struct {
	Clusters []struct {
		Name, State string
		Groups      []string
		Drifted     int
	}
	All, Before, Matching int
	States                map[string]int
	Continue              string
	Order                 []string
}

func TestRefusedRequests(t *testing.T) {
	s := newTestServer(t)
	s.rights.set("lister", "list clusters", "list sources shop")
	counts, clusters, sources, search := atoll.FleetCountsPath, atoll.FleetClustersPath, atoll.FleetSourcesPath, atoll.FleetSearchPath
	for name, c := range map[string]struct {
		user, address string
		want          int
		text          string
	}{
		"no user":                          {"", counts, 401, "has no user"},
		"no right to counts":               {"mallory", counts, 403, `it needs the right to list clusters on the hub, which \"mallory\" does not have`},
		"no right to pages":                {"mallory", clusters, 403, "the right to list clusters"},
		"no right to watch counts":         {"lister", counts + "?watch=true", 403, "the right to watch clusters"},
		"no right to watch a page":         {"lister", clusters + "?watch=true", 403, "the right to watch clusters"},
		"no right to Sources of all":       {"lister", sources, 403, "the right to list sources in all namespaces"},
		"no right to Sources of another":   {"lister", sources + "?namespace=other", 403, "in the namespace other"},
		"no right to watch Sources":        {"lister", sources + "?namespace=shop&watch=1", 403, "the right to watch sources"},
		"no right to search":               {"mallory", search + "?q=a&namespace=shop", 403, "may list none of the kinds"},
		"another parameter":                {"aiko", counts + "?all=true", 400, `has no parameter \"all\"`},
		"another property":                 {"aiko", counts + "?by=color", 400, "not grouped by"},
		"a group without a value":          {"aiko", counts + "?group=region", 400, "each group has a value"},
		"another group":                    {"aiko", counts + "?group=color&value=red", 400, "not grouped by"},
		"a wrong selector":                 {"aiko", counts + "?labelSelector=a+in+b", 400, "label selector is not valid"},
		"a wrong state":                    {"aiko", counts + "?status=ready", 400, "there is no state"},
		"a wrong waiting":                  {"aiko", counts + "?waiting=maybe", 400, "waiting is true or false"},
		"a long filter":                    {"aiko", clusters + "?q=" + strings.Repeat("a", 501), 400, "more than 500 bytes"},
		"another order":                    {"aiko", clusters + "?sort=labels", 400, "not sorted by"},
		"another view":                     {"aiko", clusters + "?view=all", 400, "view is table or tiles"},
		"a limit of none":                  {"aiko", clusters + "?limit=0", 400, "limit is from 1 to 2000"},
		"a large limit":                    {"aiko", clusters + "?limit=2001", 400, "limit is from 1 to 2000"},
		"a large limit of groups":          {"aiko", counts + "?limit=1001", 400, "limit is from 1 to 1000"},
		"a wrong token":                    {"aiko", clusters + "?continue=x", 400, "continue token"},
		"a wrong token of Sources":         {"aiko", sources + "?continue=x", 400, "continue token"},
		"a long namespace":                 {"aiko", sources + "?namespace=" + strings.Repeat("a", 64), 400, "at most 63 characters"},
		"a search for nothing":             {"aiko", search, 400, "name what is searched"},
		"a search for more than the bound": {"aiko", search + "?q=a&limit=51", 400, "limit is from 1 to 50"},
	} {
		s.limiter = New(s.options).limiter // each case has its turns
		code, body := s.getAs(c.user, c.address)
		if code != c.want || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %s, want %d with %q", name, code, body, c.want, c.text)
		}
	}
	w := httptest.NewRecorder()
	r := requestAs(t.Context(), "aiko", counts)
	r.Method = http.MethodPost
	if s.serveRequest(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a write: %d", w.Code)
	}
	s.options.Tables = func() (*state.HubTables, bool) { return nil, false }
	if code, _ := s.getAs("aiko", counts); code != http.StatusServiceUnavailable {
		t.Errorf("a hub that starts: %d", code)
	}
}

// Requests of one person are limited, and take no turn of another one.
func TestRequestsOfAPersonAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		s.rights.set("boris", "*")
		for range personRequests.Burst {
			if code, body := s.getAs("aiko", atoll.FleetCountsPath); code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
		}
		if code, body := s.getAs("aiko", atoll.FleetCountsPath); code != http.StatusTooManyRequests || !strings.Contains(body, `"retryAfterSeconds":1`) {
			t.Errorf("one more: %d %s", code, body)
		}
		if code, _ := s.getAs("boris", atoll.FleetCountsPath); code != http.StatusOK {
			t.Errorf("another person: %d", code)
		}
		time.Sleep(personRequests.Interval)
		if code, _ := s.getAs("aiko", atoll.FleetCountsPath); code != http.StatusOK {
			t.Errorf("later: %d", code)
		}
	})
}

// A pass that takes longer than its time ends, and its filter is refused.
func TestPassesHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		for i := range 5000 {
			s.putCluster(fmt.Sprint("c", i), "eu", true)
		}
		for _, passTime := range []time.Duration{0, defaultPassTime} {
			want := map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[passTime > 0]
			s.passTime = passTime
			for _, path := range []string{atoll.FleetCountsPath, atoll.FleetClustersPath} {
				if code, body := s.getAs("aiko", path+"?limit=1"); code != want || strings.Contains(body, "takes too long") != (passTime == 0) {
					t.Errorf("%s with %s: %d %s", path, passTime, code, body)
				}
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		if s.serveRequest(w, requestAs(ended, "aiko", atoll.FleetCountsPath)); w.Code != http.StatusGatewayTimeout {
			t.Errorf("a request that ended: %d %s", w.Code, w.Body)
		}
	})
}

// Drift is counted of applications, so a person that may not list all of them gets no number.
func TestDriftIsForThoseThatSeeApplications(t *testing.T) {
	s := newTestServer(t)
	s.rights.set("lister", "list clusters", "list bundles")
	s.putCluster("oslo", "eu", true)
	s.reportDrift("oslo", 2)
	for name, want := range map[string]bool{"aiko": true, "lister": false} {
		if _, body := s.getAs(name, atoll.FleetClustersPath); strings.Contains(body, `"drifted":1`) != want {
			t.Errorf("%s: %s", name, body)
		}
	}
}

func TestSourcesAreServedWithoutInventories(t *testing.T) {
	s := newTestServer(t)
	s.rights.set("team", "list sources shop", "watch sources shop")
	s.putSource("shop", "web", "one")
	s.putSource("shop", "db", "two")
	s.putSource("other", "web", "three")
	code, body := s.getAs("aiko", atoll.FleetSourcesPath+"?limit=2")
	if code != http.StatusOK || strings.Contains(body, "inventory") || !strings.Contains(body, "three") || !strings.Contains(body, "two") || strings.Contains(body, "one") {
		t.Errorf("%d %s", code, body)
	}
	var page struct{ Continue string }
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	if _, body = s.getAs("aiko", atoll.FleetSourcesPath+"?continue="+page.Continue); !strings.Contains(body, "one") || strings.Contains(body, "two") || strings.Contains(body, `"continue"`) {
		t.Errorf("the second page: %s", body)
	}
	if code, body = s.getAs("team", atoll.FleetSourcesPath+"?namespace=shop"); code != http.StatusOK || strings.Contains(body, "three") || !strings.Contains(body, "one") {
		t.Errorf("of one namespace: %d %s", code, body)
	}
}

// A search finds what the person may list, and nothing else: of each kind, in all namespaces or in one.
func TestASearchFindsWhatThePersonMayList(t *testing.T) {
	s := newTestServer(t)
	s.rights.set("team", "list bundles shop", "list sources shop", "list propagationpolicies shop", "list placements shop")
	s.rights.set("viewer", "list clusters", "list clusterbundles", "list bundles")
	s.putCluster("web-cluster", "eu", true)
	for _, ns := range []string{"shop", "other"} {
		meta := metav1.ObjectMeta{Namespace: ns, Name: "web", UID: types.UID(ns)}
		bundle := &v1alpha1.Bundle{ObjectMeta: meta}
		bundle.Name, bundle.Spec.Source = "deployment-web-1", v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: "web"}
		s.tables.Bundles.Put(bundle)
		s.putSource(ns, "web", "")
		for _, o := range []client.Object{&v1alpha1.PropagationPolicy{ObjectMeta: meta}, &v1alpha1.OverridePolicy{ObjectMeta: meta}, &v1alpha1.Placement{ObjectMeta: meta}} {
			s.tables.FeedObject(o, false)
		}
	}
	s.tables.Bundles.Put(&v1alpha1.ClusterBundle{ObjectMeta: metav1.ObjectMeta{Name: "webbase", UID: "wide"}})
	for name, c := range map[string]struct{ user, query, want string }{
		"all":                      {"aiko", "q=web", "Bundle/other/deployment-web-1 Bundle/shop/deployment-web-1 ClusterBundle//webbase Cluster//web-cluster Source/other/web Source/shop/web PropagationPolicy/other/web PropagationPolicy/shop/web OverridePolicy/other/web OverridePolicy/shop/web Placement/other/web Placement/shop/web"},
		"all, with a namespace":    {"aiko", "q=web+shop&namespace=other", "Bundle/shop/deployment-web-1 Source/shop/web PropagationPolicy/shop/web OverridePolicy/shop/web Placement/shop/web"},
		"one of each kind":         {"aiko", "q=web&limit=1", "Bundle/other/deployment-web-1 ClusterBundle//webbase Cluster//web-cluster Source/other/web PropagationPolicy/other/web OverridePolicy/other/web Placement/other/web"},
		"a team in its namespace":  {"team", "q=web&namespace=shop", "Bundle/shop/deployment-web-1 Source/shop/web PropagationPolicy/shop/web Placement/shop/web"},
		"a viewer of applications": {"viewer", "q=web", "Bundle/other/deployment-web-1 Bundle/shop/deployment-web-1 ClusterBundle//webbase Cluster//web-cluster"},
	} {
		code, body := s.getAs(c.user, atoll.FleetSearchPath+"?"+c.query)
		var answer searchAnswer
		if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s", name, code, body)
		}
		var got []string
		for _, n := range answer.Found {
			got = append(got, n.Kind+"/"+n.Namespace+"/"+n.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s:\n%q\nwant\n%q", name, strings.Join(got, " "), c.want)
		}
		if isAll := c.user == "aiko"; (len(answer.Refused) == 0) != isAll {
			t.Errorf("%s: refused %q", name, answer.Refused)
		}
	}
	for _, namespace := range []string{"", "&namespace=other"} {
		if code, body := s.getAs("team", atoll.FleetSearchPath+"?q=web"+namespace); code != http.StatusForbidden || strings.Contains(body, "deployment-web") {
			t.Errorf("a team in %q: %d %s", namespace, code, body)
		}
	}
}
