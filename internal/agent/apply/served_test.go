package apply

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// partial is a member's API server that serves the core group's namespaces, and of
// the group example.io what versions says: a version without resources is one that
// does not answer.
type partial struct {
	mu       sync.Mutex
	versions map[string]bool // true: has sprockets
	objects  map[string]string
	deleted  []string
}

func (p *partial) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	none := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
	uid, exists := p.objects[r.URL.Path]
	switch {
	case r.URL.Path == "/api":
		reply(200, discoveryDocument(map[string]any{"metadata": map[string]any{"name": ""}, "versions": []any{discoveryVersion("v1", discoveryKind("namespaces", "Namespace", "Cluster"))}}))
	case r.URL.Path == "/apis":
		var versions []any
		for _, name := range []string{"v1", "v1alpha1"} {
			switch has, listed := p.versions[name]; {
			case has:
				versions = append(versions, discoveryVersion(name, discoveryKind("sprockets", "Sprocket", "Namespaced")))
			case listed:
				v := discoveryVersion(name)
				v["freshness"] = "Stale"
				versions = append(versions, v)
			}
		}
		reply(200, discoveryDocument(map[string]any{"metadata": map[string]any{"name": "example.io"}, "versions": versions}))
	case !exists:
		reply(404, none)
	case r.Method == http.MethodDelete:
		p.deleted = append(p.deleted, r.URL.Path)
		for path, o := range p.objects {
			if o == uid {
				delete(p.objects, path)
			}
		}
		reply(200, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	default:
		reply(200, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{
			"name": r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], "uid": uid,
		}})
	}
}

func discoveryDocument(groups ...any) map[string]any {
	return map[string]any{"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups}
}

func discoveryVersion(name string, resources ...any) map[string]any {
	return map[string]any{"version": name, "freshness": "Current", "resources": resources}
}

func discoveryKind(resource, kind, scope string) map[string]any {
	return map[string]any{
		"resource": resource, "scope": scope, "verbs": []string{"list", "delete", "get", "patch", "watch"},
		"responseKind": map[string]any{"group": "", "version": "", "kind": kind},
	}
}

// memory is a store that keeps nothing.
type memory struct{}

func (memory) PutBundle(context.Context, store.Bundle) error                { return nil }
func (memory) DropBundle(context.Context, string) error                     { return nil }
func (memory) PutRecords(context.Context, string, []ownership.Record) error { return nil }
func (memory) RelistKind(string, string)                                    {}
func (memory) StartUnfiltered(member.Resource)                              {}
func (memory) StopUnfiltered(string, string)                                {}
func (memory) Start(member.Resource)                                        {}
func (memory) Stop(string, string)                                          {}

// engineOn an API server, which has discovered and holds the record.
func engineOn(t *testing.T, api http.Handler, record ownership.Record, m atoll.Manifest) *MemberApplier {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := member.New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Client: client, Store: memory{}, Watch: memory{}, Lease: heldLease(func() bool { return true }),
		Policy: func() *policy.Policy { return nil }, Changed: func(string) {}, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}, store.StoredContents{Records: []ownership.Record{record}, Bundles: []store.Bundle{{Holding: ownership.BundleHolding{Manifest: m}}}})
}

// An API that does not answer is not a missing API. An object of a silent API, or of another
// served version than the applied one, is not deleted, and its tombstone is not carried out early.
func TestAKindThatIsNotListedIsNotGone(t *testing.T) {
	key := atoll.ItemKey{Group: "example.io", Kind: "Sprocket", Namespace: "shop", Name: "s"}
	const path = "/apis/example.io/v1/namespaces/shop/sprockets/s"
	for _, c := range []struct {
		name     string
		versions map[string]bool
		reason   atoll.Reason
		deleted  []string
		done     bool
	}{
		{"its API is silent", map[string]bool{"v1": false, "v1alpha1": false}, atoll.ReasonAPISilent, nil, false},
		{"its version was dropped", map[string]bool{"v1": true}, "", []string{path}, true},
		{"its definition went", nil, "", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := &partial{versions: c.versions, objects: map[string]string{path: "o1"}}
			record := ownership.Record{
				Key: key, APIVersion: "example.io/v1alpha1", UID: "o1", Template: "t1", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
				Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t1"}},
			}
			tombstone := atoll.Tombstone{Key: key, UID: "t1", Cause: atoll.CauseDeleted}
			e := engineOn(t, api, record, withTombstones(newManifest("b1", 2), tombstone))
			reason := atoll.Reason("")
			if f := e.workOnKey(t.Context(), key); f != nil {
				reason = f.Reason
			}
			if done := len(e.CarriedOut("b1")) == 1; reason != c.reason || done != c.done || !slices.Equal(api.deleted, c.deleted) {
				t.Errorf("failed for %q, deleted %v, carried out %t; want %q, %v, %t", reason, api.deleted, done, c.reason, c.deleted, c.done)
			}
		})
	}
}

// A namespace stays while it is not known what is in it, and the row that made it does
// not wait for that.
func TestANamespaceStaysWhileAnAPIIsSilent(t *testing.T) {
	key := atoll.NamespaceKey("shop")
	for silent, reason := range map[bool]atoll.Reason{true: atoll.ReasonAPISilent, false: ""} {
		api := &partial{versions: map[string]bool{}, objects: map[string]string{"/api/v1/namespaces/shop": "n1"}}
		if silent {
			api.versions["v1"] = false
		}
		m := newManifest("b1", 1)
		m.Remove, m.DeletedNamespaces = true, []string{"shop"}
		e := engineOn(t, api, ownership.Record{Key: key, UID: "n1", Implicit: true, Doomed: true}, m)
		got, f := atoll.Reason(""), e.workOnKey(t.Context(), key)
		if f != nil {
			got = f.Reason
		}
		e.finishWork(t.Context(), key, f)
		if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowRemoved || silent == (s.Message == "") {
			t.Errorf("silent %t: the row is %s: %s", silent, s.State, s.Message)
		}
		if got != reason || silent == (len(api.deleted) > 0) {
			t.Errorf("silent %t: failed for %q, deleted %v", silent, got, api.deleted)
		}
	}
}
