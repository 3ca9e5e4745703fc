package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apptree"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

var webRef = enginev1.BundleRef{UID: "uid-web", Namespace: "shop", Name: "web"}

// testServer serves the Bundle shop/web, with one template and one row, to the users that mayGet allows.
type testServer struct {
	*Server
	t      *testing.T
	tables *state.HubTables

	mu     sync.Mutex
	denied map[string]bool // users
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&enginev1.TargetSlice{}).Build()
	s := &testServer{t: t, tables: statetest.NewTables(t, c), denied: map[string]bool{"mallory": true}}
	s.Server = New(Options{Tables: func() (*state.HubTables, bool) { return s.tables, true }, MayGet: s.mayGet})
	s.tables.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}})
	items := []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}}, {Key: atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "keys"}}}
	revision, err := s.tables.Revisions.CreateRevision(t.Context(), webRef, &atoll.Content{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	s.putRow("oslo", &atoll.RowSpec{UID: "uid-oslo", Generation: 1, Revision: revision, Phase: atoll.RowActive})
	return s
}

func (s *testServer) mayGet(_ context.Context, u user.Info, key atoll.ItemKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.denied[u.GetName()] && key.Kind != "Secret"
}

func (s *testServer) denyUser(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[user] = true
}

func (s *testServer) putRow(cluster string, spec *atoll.RowSpec) {
	s.t.Helper()
	if err := s.tables.Rows.WriteSpecs(s.t.Context(), webRef, s.tables.Rows.ListOfBundle(webRef.UID), map[string]*atoll.RowSpec{cluster: spec}); err != nil {
		s.t.Fatal(err)
	}
}

func treeRequest(ctx context.Context, name, query string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, atoll.TreePath+"?"+query, nil)
	if name == "" {
		return r.WithContext(ctx)
	}
	return r.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: name}))
}

func TestATreeIsServed(t *testing.T) {
	s := newTestServer(t)
	w := httptest.NewRecorder()
	s.ServeTree(w, treeRequest(t.Context(), "aiko", "namespace=shop&name=web"))
	var tree apptree.Tree
	if err := json.Unmarshal(w.Body.Bytes(), &tree); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	if tree.Revision != 1 || len(tree.Templates) != 1 || tree.HiddenTemplates != 1 || len(tree.Clusters) != 1 || tree.Clusters[0].Name != "oslo" || tree.Clusters[0].State != apptree.Away {
		t.Errorf("%+v", tree)
	}
	if strings.Contains(w.Body.String(), "keys") {
		t.Errorf("the tree names a Secret that the user may not get: %s", w.Body)
	}
}

func TestRefusedTrees(t *testing.T) {
	s := newTestServer(t)
	for name, c := range map[string]struct {
		user, query, method string
		want                int
	}{
		"no right":            {user: "mallory", query: "namespace=shop&name=web", want: 403},
		"no right, no Bundle": {user: "mallory", query: "namespace=shop&name=none", want: 403},
		"no right, a stream":  {user: "mallory", query: "namespace=shop&name=web&watch=true", want: 403},
		"no Bundle":           {user: "aiko", query: "namespace=shop&name=none", want: 404},
		"no ClusterBundle":    {user: "aiko", query: "name=web", want: 404},
		"no name":             {user: "aiko", query: "namespace=shop", want: 400},
		"no user":             {query: "namespace=shop&name=web", want: 401},
		"a wrong limit":       {user: "aiko", query: "namespace=shop&name=web&limit=0", want: 400},
		"a large limit":       {user: "aiko", query: "namespace=shop&name=web&limit=100000", want: 400},
		"another parameter":   {user: "aiko", query: "namespace=shop&name=web&all=true", want: 400},
		"a write":             {user: "aiko", query: "namespace=shop&name=web", method: "POST", want: 405},
	} {
		r := treeRequest(t.Context(), c.user, c.query)
		if c.method != "" {
			r.Method = c.method
		}
		w := httptest.NewRecorder()
		if s.ServeTree(w, r); w.Code != c.want || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
	s.options.Tables = func() (*state.HubTables, bool) { return nil, false }
	w := httptest.NewRecorder()
	if s.ServeTree(w, treeRequest(t.Context(), "aiko", "namespace=shop&name=web")); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a hub that starts: %d", w.Code)
	}
}

// streamClient reads the lines of a stream.
type streamClient struct {
	mu    sync.Mutex
	lines []event
	end   func()
	done  chan struct{}
}

func (*streamClient) Header() http.Header { return http.Header{} }
func (*streamClient) WriteHeader(int)     {}
func (*streamClient) Flush()              {}
func (c *streamClient) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e event
	err := json.Unmarshal(b, &e)
	c.lines = append(c.lines, e)
	return len(b), err
}

func (c *streamClient) readLines() []event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

func (s *testServer) openStreamAs(name string) *streamClient {
	ctx, end := context.WithCancel(s.t.Context())
	c := &streamClient{end: end, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		s.ServeTree(c, treeRequest(ctx, name, "namespace=shop&name=web&watch=true"))
	}()
	return c
}

func TestAStreamSendsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		c := s.openStreamAs("aiko")
		synctest.Wait()
		if got := c.readLines(); len(got) != 1 || got[0].Type != "TREE" || len(got[0].Tree.Clusters) != 1 {
			t.Fatalf("first: %+v", got)
		}
		s.putRow("rome", &atoll.RowSpec{UID: "uid-rome", Generation: 1, Phase: atoll.RowActive})
		s.putRow("york", &atoll.RowSpec{UID: "uid-york", Generation: 1, Phase: atoll.RowActive})
		time.Sleep(minPause)
		synctest.Wait()
		got := c.readLines()
		if len(got) != 2 || got[1].Type != "CHANGED" || len(got[1].Tree.Clusters) != 2 || got[1].Tree.Clusters[0].Name != "rome" || got[1].Tree.Counts[apptree.Away] != 3 {
			t.Fatalf("two new clusters: %+v", got[1:])
		}
		s.putRow("rome", nil)
		time.Sleep(minPause)
		synctest.Wait()
		if got := c.readLines(); len(got) != 3 || fmt.Sprint(got[2].Gone) != "[rome]" || len(got[2].Tree.Clusters) != 0 {
			t.Fatalf("a cluster that went: %+v", got[2:])
		}
		s.wakeStreams(webRef.UID) // a change that this user does not see
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := c.readLines(); len(got) != 3 {
			t.Errorf("a line without a change: %+v", got[3:])
		}
		c.end()
		<-c.done
		if len(s.streams)+len(s.byUser)+s.open != 0 {
			t.Errorf("of a closed stream stay %v, %v, %d", s.streams, s.byUser, s.open)
		}
	})
}

func TestAStreamEndsWithTheRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		c := s.openStreamAs("aiko")
		synctest.Wait()
		s.denyUser("aiko")
		s.wakeStreams(webRef.UID)
		<-c.done
		got := c.readLines()
		if last := got[len(got)-1]; last.Type != "ERROR" || last.Status == nil || last.Status.Code != http.StatusForbidden || last.Tree != nil {
			t.Errorf("%+v", last)
		}
	})
}

// A Bundle of the same name is another one: its changes do not wake the stream, so the client has to begin again.
func TestAStreamEndsWithItsBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		c := s.openStreamAs("aiko")
		synctest.Wait()
		s.tables.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-other"}})
		s.wakeStreams(webRef.UID)
		<-c.done
		got := c.readLines()
		if last := got[len(got)-1]; last.Type != "ERROR" || last.Status.Code != http.StatusGone {
			t.Errorf("%+v", last)
		}
	})
}

func TestStreamsEndAfterTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begin := newTestServer(t).openStreamAs("aiko"), time.Now()
		<-c.done
		if took := time.Since(begin); took != streamTime || len(c.readLines()) != 1 {
			t.Errorf("after %s, with %d lines", took, len(c.readLines()))
		}
	})
}

func TestStreamsOfAUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		var open []*streamClient
		for range maxStreamsPerUser {
			open = append(open, s.openStreamAs("aiko"))
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		if s.ServeTree(w, treeRequest(t.Context(), "aiko", "namespace=shop&name=web&watch=true")); w.Code != http.StatusTooManyRequests {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		other := s.openStreamAs("boris")
		synctest.Wait()
		if len(other.readLines()) != 1 {
			t.Error("another user has no stream")
		}
		for _, c := range append(open, other) {
			c.end()
			<-c.done
		}
	})
}

// A plan that a row waits for is in the tree until the Bundle answers it.
func TestPlansAreInTheTree(t *testing.T) {
	s := newTestServer(t)
	row := s.tables.Rows.ListOfBundle(webRef.UID)[0]
	spec := row.Spec
	spec.Generation, spec.Reason = 2, atoll.RowReason{Reason: atoll.ReasonRemovalHeld, Plan: "a1", Text: "PlacementEdited"}.String()
	s.putRow("oslo", &spec)
	for i, annotation := range []string{"other", atoll.AnnotationConfirm, "other", atoll.AnnotationKeep} {
		version, want := fmt.Sprint(100+i), (i+1)%2
		s.tables.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web", ResourceVersion: version, Annotations: map[string]string{annotation: "a1"}}})
		w := httptest.NewRecorder()
		s.ServeTree(w, treeRequest(t.Context(), "aiko", "namespace=shop&name=web&limit=1"))
		var tree apptree.Tree
		if err := json.Unmarshal(w.Body.Bytes(), &tree); err != nil || len(tree.Plans) != want {
			t.Errorf("%q: %d plans in %s", annotation, len(tree.Plans), w.Body)
		}
	}
}

// The name of a Secret that a plan removes is not shown to a user that may not get it.
func TestPlansDoNotNameHiddenTemplates(t *testing.T) {
	s := newTestServer(t)
	gone := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "keys"}
	content := &atoll.Content{
		Items:      []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}}},
		Tombstones: []atoll.Tombstone{{Key: gone, UID: "uid-keys"}},
	}
	if _, err := s.tables.Revisions.CreateRevision(t.Context(), webRef, content); err != nil {
		t.Fatal(err)
	}
	spec := s.tables.Rows.ListOfBundle(webRef.UID)[0].Spec
	spec.Generation, spec.Reason = 2, atoll.RowReason{Reason: atoll.ReasonRemovalHeld, Plan: "a1", Text: gone.String()}.String()
	s.putRow("oslo", &spec)
	w := httptest.NewRecorder()
	s.ServeTree(w, treeRequest(t.Context(), "aiko", "namespace=shop&name=web&limit=1"))
	if body := w.Body.String(); !strings.Contains(body, `"hash":"a1"`) || strings.Contains(body, "keys") || strings.Contains(body, `"hiddenTemplates"`) {
		t.Error(body)
	}
}
