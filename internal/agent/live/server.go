package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/tunnel"
)

// Options of a Server; all are required.
type Options struct {
	// Config reaches the member's API server. It is not changed.
	Config *rest.Config
	// Transport to the same, for logs.
	Transport http.RoundTripper
	Client    *member.Client
	Records   Records
	// Foreign finds objects that Atoll did not apply.
	Foreign ForeignFinder
	// WatchMemory bounds the memory of all watches together, in bytes.
	WatchMemory int
	Log         *slog.Logger
}

// ForeignFinder finds what keeps a namespace in the member.
type ForeignFinder interface {
	// ForeignObjects returns what would keep a namespace that Atoll made if the hub's namespace were deleted.
	ForeignObjects(ctx context.Context, namespace string) atoll.ForeignObjects
}

const (
	// atOnce lists are read, so that the agent stays small under any number of requests.
	atOnce = 4
	// fewNamespaces are listed each by itself; with more, the member is, as a whole.
	fewNamespaces = 16
)

// PlacedObjectServer serves what is placed. Make it with New.
type PlacedObjectServer struct {
	o       Options
	clients map[string]rest.Interface
	slots   chan struct{}
	watches *watchMemory
	logs    http.Handler
}

// New returns a Server.
func New(o Options) (*PlacedObjectServer, error) {
	target, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the member's address: %w", err)
	}
	target.Path = strings.TrimSuffix(target.Path, "/")
	clients, err := newGroupClients(o.Config)
	if err != nil {
		return nil, err
	}
	s := &PlacedObjectServer{o: o, clients: clients, slots: make(chan struct{}, atOnce), watches: &watchMemory{most: o.WatchMemory, shares: map[*watchMemoryShare]bool{}}}
	s.logs = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { rewriteRequestAsAgent(r, target) },
		Transport:     o.Transport,
		FlushInterval: -1, // a client waits for each piece
		BufferPool:    tunnel.Buffers{},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				writeAPIError(w, err)
			}
		},
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// rewriteRequestAsAgent makes a request for the member's API server that has nothing of the hub's but
// the request itself.
func rewriteRequestAsAgent(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	r.Out.Host = ""
	audit := r.In.Header.Get("Audit-Id")
	r.Out.Header = http.Header{}
	if audit != "" {
		r.Out.Header.Set("Audit-Id", audit)
	}
}

// liveRequest is what a request comes to.
type liveRequest struct {
	kind
	client    rest.Interface
	core      rest.Interface // for pods
	namespace string         // empty: all
	name      string         // empty: a list
	log       bool
	options   metav1.ListOptions
}

var errUnknown = apierrors.NewNotFound(schema.GroupResource{}, "")

// parse parses the request's path and query.
func (s *PlacedObjectServer) parse(r *http.Request) (a liveRequest, err error) {
	if r.Method != http.MethodGet {
		return a, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method)
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	group := min(len(parts), 3)
	if parts[0] == "api" {
		group = min(len(parts), 2)
	}
	path, rest := "/"+strings.Join(parts[:group], "/"), parts[group:]
	if len(rest) > 2 && rest[0] == "namespaces" {
		a.namespace, rest = rest[1], rest[2:]
		if a.namespace == "" {
			return a, errUnknown
		}
	}
	if len(rest) == 0 {
		return a, errUnknown
	}
	known := false
	if a.kind, known = kinds[[2]string{path, rest[0]}]; !known {
		return a, errUnknown
	}
	a.client, a.core = s.clients[a.Group], s.clients[""]
	if err := a.parseName(rest[1:]); err != nil {
		return a, err
	}
	if !a.log {
		if err := params.DecodeParameters(r.URL.Query(), schema.GroupVersion{Version: "v1"}, &a.options); err != nil {
			return a, apierrors.NewBadRequest(err.Error())
		}
	}
	return a, nil
}

// isPlainPathSegment reports whether a name is one path segment that no decoding changes.
func isPlainPathSegment(name string) bool { return name != "" && name != "." && name != ".." }

// ServeHTTP answers the hub.
func (s *PlacedObjectServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if namespace, ok := atoll.NamespaceOfForeignObjectsPath(r.URL.Path); ok && r.Method == http.MethodGet {
		s.serveForeignObjects(w, r, namespace)
		return
	}
	a, err := s.parse(r)
	if err == nil {
		switch {
		case a.Group == metricsv1.GroupName:
			err = s.serveUsage(w, r, a)
		case a.log:
			err = s.servePodLog(w, r, a)
		case a.name != "":
			err = s.serveObject(w, r, a)
		case a.options.Watch:
			err = s.serveWatch(w, r, a)
		default:
			err = s.serveList(w, r, a)
		}
	}
	if err != nil && r.Context().Err() == nil {
		writeAPIError(w, err)
	}
}

// serveForeignObjects answers what would keep a namespace. It takes the place of a list.
func (s *PlacedObjectServer) serveForeignObjects(w http.ResponseWriter, r *http.Request, namespace string) {
	select {
	case s.slots <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	found := s.o.Foreign.ForeignObjects(r.Context(), namespace)
	<-s.slots
	_ = write(w, metav1.Unversioned, found.ToStatus()) // the only error is that the client has gone
}

// getPlaced returns an object if it is placed.
func (s *PlacedObjectServer) getPlaced(ctx context.Context, a liveRequest) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, member.RequestTimeout)
	defer cancel()
	obj, err := a.client.Get().Namespace(a.namespace).Resource(a.resource).Name(a.name).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("read a %s: %w", a.Kind, err)
	}
	w, err := newOwnershipResolver(s.o.Client, s.o.Records).ownershipOf(ctx, a.GroupVersionKind, m)
	if err != nil {
		return nil, err
	}
	if w != placed {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: a.Group, Resource: a.resource}, a.name)
	}
	return obj, nil
}

func (s *PlacedObjectServer) serveObject(w http.ResponseWriter, r *http.Request, a liveRequest) error {
	obj, err := s.getPlaced(r.Context(), a)
	if err != nil {
		return err
	}
	return write(w, a.GroupVersion(), obj)
}

// servePodLog serves the log of a pod.
func (s *PlacedObjectServer) servePodLog(w http.ResponseWriter, r *http.Request, a liveRequest) error {
	if _, err := s.getPlaced(r.Context(), a); err != nil {
		return err
	}
	s.logs.ServeHTTP(w, r)
	return nil
}

// serveList serves a list of what is placed.
func (s *PlacedObjectServer) serveList(w http.ResponseWriter, r *http.Request, a liveRequest) error {
	select {
	case s.slots <- struct{}{}:
	case <-r.Context().Done():
		return nil
	}
	list, err := s.listPlaced(r.Context(), a)
	<-s.slots
	if err != nil {
		return err
	}
	return write(w, a.GroupVersion(), list)
}

// parseName parses the path behind the resource: nothing for a list, an object's name, or a log's.
func (a *liveRequest) parseName(rest []string) error {
	switch {
	case len(rest) == 0:
		return nil
	case a.namespace == "" || !isPlainPathSegment(rest[0]):
		return errUnknown
	case len(rest) == 1:
		a.name = rest[0]
		return nil
	case len(rest) == 2 && a.resource == "pods" && rest[1] == "log":
		a.name, a.log = rest[0], true
		return nil
	}
	return errUnknown
}

// namespacesToList returns the namespaces to list, the empty one for all. versionOnly: no object is
// placed, and a list of one gives the version.
func (s *PlacedObjectServer) namespacesToList(a liveRequest) (scopes []string, versionOnly bool) {
	if a.namespace != "" {
		return []string{a.namespace}, false
	}
	scopes = s.o.Records.NamespacesWithRecords()
	if n := len(scopes); n == 0 || n > fewNamespaces {
		return []string{""}, n == 0
	}
	return scopes, false
}

// listPlaced reads a list, with the version of its first page.
func (s *PlacedObjectServer) listPlaced(ctx context.Context, a liveRequest) (runtime.Object, error) {
	scopes, versionOnly := s.namespacesToList(a)
	who := newOwnershipResolver(s.o.Client, s.o.Records)
	var found []runtime.Object
	version := ""
	for _, scope := range scopes {
		options := metav1.ListOptions{LabelSelector: a.options.LabelSelector, FieldSelector: a.options.FieldSelector, Limit: pageSize}
		if versionOnly {
			options.Limit = 1
		}
		for {
			page, of, err := s.listPage(ctx, a, scope, options)
			if err != nil {
				return nil, err
			}
			if version == "" {
				version = of.GetResourceVersion()
			}
			if found, err = s.appendPlaced(ctx, a, who, page, found); err != nil {
				return nil, err
			}
			if options.Continue = of.GetContinue(); options.Continue == "" || versionOnly {
				break
			}
		}
	}
	out := a.list()
	if err := meta.SetList(out, found); err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", a.resource, err)
	}
	of, err := meta.ListAccessor(out)
	if err != nil {
		return nil, fmt.Errorf("make a list of %s: %w", a.resource, err)
	}
	of.SetResourceVersion(version)
	return out, nil
}

// listPage returns a page of a list.
func (s *PlacedObjectServer) listPage(ctx context.Context, a liveRequest, namespace string, options metav1.ListOptions) (runtime.Object, metav1.ListInterface, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	list := a.list()
	err := a.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(a.resource).VersionedParams(&options, params).Do(ctx).Into(list)
	if err != nil {
		return nil, nil, err
	}
	of, err := meta.ListAccessor(list)
	return list, of, err
}

// appendPlaced appends the placed objects of a page to found.
func (s *PlacedObjectServer) appendPlaced(ctx context.Context, a liveRequest, who *ownershipResolver, page runtime.Object, found []runtime.Object) ([]runtime.Object, error) {
	objects, err := meta.ExtractList(page)
	if err != nil {
		return nil, fmt.Errorf("read a list of %s: %w", a.resource, err)
	}
	metas := make([]metav1.Object, len(objects))
	for i, obj := range objects {
		if metas[i], err = meta.Accessor(obj); err != nil {
			return nil, fmt.Errorf("read a list of %s: %w", a.resource, err)
		}
	}
	if err := who.prefetchOwners(ctx, a.GroupVersionKind, metas); err != nil {
		return nil, err
	}
	for i, m := range metas {
		w, err := who.ownershipOf(ctx, a.GroupVersionKind, m)
		if err != nil {
			return nil, err
		}
		if w == placed {
			found = append(found, objects[i])
		}
	}
	return found, nil
}

// retryEvery and retryFor: objects whose owner is recorded without its UID are looked up again,
// since the record of what was just made is written a moment later.
const (
	retryEvery = time.Second
	retryFor   = 30 * time.Second
)

var errEnded = errors.New("the watch ended")
