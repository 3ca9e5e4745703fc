package undo

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/undo/history"
)

// fakeHub is the tables and the store of a hub.
type fakeHub struct {
	mu         sync.Mutex
	undoWindow time.Duration
	namespaces map[string]string // UIDs by name
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	secrets    map[string]*corev1.Secret
	writes     int
	failCreate error
	stuck      map[string]bool // Secrets that cannot be deleted
	deleted    map[string]bool // objects that IsDeleted finds
	settings   []func(string)
	changes    []func(string)
}

func (h *fakeHub) UndoWindow() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.undoWindow
}

func (h *fakeHub) Subscribe(fn func(string)) { h.settings = append(h.settings, fn) }

func (h *fakeHub) setWindow(d time.Duration) {
	h.mu.Lock()
	h.undoWindow = d
	h.mu.Unlock()
	for _, fn := range h.settings {
		fn("hub")
	}
}

type fakeNamespaces struct{ *fakeHub }

func (n fakeNamespaces) Get(name string) (*corev1.Namespace, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, ok := n.namespaces[name]
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}, ok
}

func (n fakeNamespaces) Subscribe(fn func(string)) { n.changes = append(n.changes, fn) }

func (h *fakeHub) setNamespace(name, uid string) {
	h.mu.Lock()
	h.namespaces[name] = uid
	h.mu.Unlock()
	for _, fn := range h.changes {
		fn(name)
	}
}

type fakeTemplates struct{ *fakeHub }

func (t fakeTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	o, ok := t.templates[key]
	return o, ok
}

func (h *fakeHub) CreateSecret(_ context.Context, s *corev1.Secret) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failCreate != nil {
		return h.failCreate
	}
	h.writes++
	h.secrets[s.Name] = s
	return nil
}

func (h *fakeHub) GetSecret(_ context.Context, name string) (*corev1.Secret, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.secrets[name]; s != nil {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (h *fakeHub) DeleteSecret(_ context.Context, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stuck[name] {
		return errors.New("it cannot be deleted")
	}
	delete(h.secrets, name)
	return nil
}

func (h *fakeHub) WatchSecrets() cache.ListerWatcher { return nil }

func (h *fakeHub) GetNamespaceUID(_ context.Context, name string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if uid, ok := h.namespaces[name]; ok {
		return uid, nil
	}
	return "", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

func (h *fakeHub) IsDeleted(_ context.Context, _, name, _ string) bool { return h.deleted[name] }

func (h *fakeHub) countSecrets() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.secrets)
}

// keptChanges lists what the store keeps, the oldest first.
func (h *fakeHub) keptChanges(t *testing.T) (out []*history.Change) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, s := range h.secrets {
		c, err := history.DecodeChange(name, s.Data[dataChange], int64(len(s.Data[dataContent])))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *history.Change) int { return a.At.Compare(b.At) })
	return out
}

// newTestKeeper returns a Keeper with a hub that keeps changes for a day. Users may get what mayGet says.
func newTestKeeper(mayGet func(user string, key atoll.ItemKey) bool) (*Keeper, *fakeHub) {
	h := &fakeHub{
		undoWindow: 24 * time.Hour, namespaces: map[string]string{"shop": "uid-shop", "other": "uid-other"},
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, secrets: map[string]*corev1.Secret{}, stuck: map[string]bool{}, deleted: map[string]bool{},
	}
	k := New(Options{
		Own:    func(u user.Info) bool { return u.GetName() == "hub" },
		MayGet: func(_ context.Context, u user.Info, key atoll.ItemKey) bool { return mayGet(u.GetName(), key) },
		Log:    slog.New(slog.DiscardHandler),
	})
	k.hub.Store(&hubAccess{tables: Tables{Settings: h, Namespaces: fakeNamespaces{h}, Templates: fakeTemplates{h}}, secrets: h, api: h})
	k.loaded = true
	return k, h
}

func mayAll(string, atoll.ItemKey) bool { return true }

// newObject returns a placed object of a kind at a resourceVersion.
func newObject(kind, name, version string, data map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	o.SetAPIVersion("v1")
	o.SetKind(kind)
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID(types.UID("uid-" + name))
	o.SetResourceVersion(version)
	o.SetFinalizers([]string{atoll.Finalizer})
	return o
}

// testWrite is a request of a user.
type testWrite struct {
	user, verb  string
	before, now *unstructured.Unstructured
	subresource string
	dryRun      bool
	resource    schema.GroupVersionResource
	kind        schema.GroupVersionKind
	// code of the response. Default 200.
	code int
}

// buildAttributes returns the request as admission sees it.
func (w *testWrite) buildAttributes() admission.Attributes {
	some, op := w.now, admission.Update
	var now, before runtime.Object
	if w.now != nil {
		now = w.now
	}
	if w.before != nil {
		before = w.before
	}
	switch {
	case w.now == nil:
		some, op = w.before, admission.Delete
	case w.before == nil:
		op = admission.Create
	}
	if w.kind.Kind == "" {
		w.kind = some.GroupVersionKind()
	}
	if w.resource.Resource == "" {
		w.resource = schema.GroupVersionResource{Group: w.kind.Group, Version: w.kind.Version, Resource: "things"}
	}
	name := some.GetName()
	if w.verb == "deletecollection" {
		name = ""
	}
	return admission.NewAttributesRecord(now, before, w.kind, some.GetNamespace(), name, w.resource, w.subresource, op, nil, w.dryRun, &user.DefaultInfo{Name: w.user})
}

// sendRequest sends requests through the Keeper as one.
func (k *Keeper) sendRequest(t *testing.T, writes ...testWrite) {
	t.Helper()
	first := writes[0]
	if first.verb == "" {
		first.verb = "update"
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range writes {
			if err := k.Validate(r.Context(), writes[i].buildAttributes(), admission.NewObjectInterfacesFromScheme(runtime.NewScheme())); err != nil {
				t.Error(err)
			}
		}
		if first.code != 0 {
			w.WriteHeader(first.code)
		}
	})
	r := httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/shop/things/x", nil)
	ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: first.user})
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: first.verb, Subresource: first.subresource, Path: r.URL.Path})
	k.RecordChanges(api).ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
}
