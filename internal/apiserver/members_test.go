package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	people "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/apiserver"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview/server"
	"atoll.dev/atoll/internal/memberproxy"
)

// fleet is what the shared server shows of members: the agents' pods.
var fleet = newMembers()

// members are Clusters, rows, and agents that answer for pods over real HTTP.
type members struct {
	view   *server.Fleet
	server *http.Server
	conns  chan net.Conn

	mu       sync.Mutex
	clusters map[string]*v1alpha1.Cluster
	placed   map[string][]string // clusters by namespace
	// held are the clusters of templates that are not held wherever their namespace is placed; false
	// where the template is to leave.
	held map[atoll.ItemKey]map[string]bool
	// likely are the clusters with a template, by its name.
	likely map[string][]string
	agents map[string]*agent // by UID
	asked  []string
	// workloads by namespace, and what was stated of them by their keys and UIDs.
	workloads map[string][]*unstructured.Unstructured
	stated    map[string][]server.RevisionTemplate
	unread    error
}

// agent of one member.
type agent struct {
	away    bool
	version int
	pods    map[string]*corev1.Pod // by namespace/name
	history []podEvent
	changed chan struct{} // closed with each change
	oldest  int           // version that can be watched from
	// requests of people, by method, path and body
	people []string
	conns  []net.Conn
	cut    int // new connections break after so many bytes; 0: they do not
}

type podEvent struct {
	version int
	event   watch.EventType
	pod     *corev1.Pod
}

type uidKey struct{}

// namedConn is a connection to the agent of a cluster.
type namedConn struct {
	net.Conn
	uid string
}

func newMembers() *members {
	m := &members{conns: make(chan net.Conn), clusters: map[string]*v1alpha1.Cluster{}, placed: map[string][]string{}, held: map[atoll.ItemKey]map[string]bool{}, likely: map[string][]string{}, agents: map[string]*agent{},
		workloads: map[string][]*unstructured.Unstructured{}, stated: map[string][]server.RevisionTemplate{}}
	m.server = &http.Server{Handler: m, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, uidKey{}, c.(namedConn).uid)
	}}
	m.view = server.New(server.Options{
		Own:    apiserver.IsHubUser,
		Tables: func() (server.Tables, bool) { return server.Tables{Members: m, Placements: m, Templates: m}, true },
		Reach: memberproxy.New(memberproxy.Options{
			Clusters: m, Dial: m.dialMember, Log: slog.New(slog.DiscardHandler),
			May: func(context.Context, people.Info, string, string) bool { return false },
			Refuse: func(w http.ResponseWriter, err error) {
				s := err.(apierrors.APIStatus).Status()
				w.WriteHeader(int(s.Code))
				_ = json.NewEncoder(w).Encode(s)
			},
		}),
	})
	go m.server.Serve(m)
	return m
}

// Accept, Close and Addr are of a listener of what dial makes.
func (m *members) Accept() (net.Conn, error) { return <-m.conns, nil }
func (m *members) Close() error              { return nil }
func (m *members) Addr() net.Addr            { return &net.UnixAddr{} }

func (m *members) dialMember(_ context.Context, uid string) (net.Conn, error) {
	m.mu.Lock()
	a := m.agents[uid]
	away := a == nil || a.away
	m.mu.Unlock()
	if away {
		return nil, status.Error(codes.NotFound, "away")
	}
	hub, there := net.Pipe()
	m.mu.Lock()
	a.conns = append(a.conns, there)
	cut := a.cut
	m.mu.Unlock()
	m.conns <- namedConn{there, uid}
	if cut > 0 {
		return &cutting{hub, cut}, nil
	}
	return hub, nil
}

func (m *members) Get(name string) (*v1alpha1.Cluster, bool) { return m.Cluster(name) }

func (m *members) Clusters() []*v1alpha1.Cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.clusters), func(a, b *v1alpha1.Cluster) int { return strings.Compare(a.Name, b.Name) })
}

func (m *members) Cluster(name string) (*v1alpha1.Cluster, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.clusters[name]
	return c, ok
}

func (m *members) PlacedNamespacesByCluster(namespace string) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]string{}
	for ns, clusters := range m.placed {
		if namespace == "" || ns == namespace {
			for _, c := range clusters {
				out[c] = append(out[c], ns)
			}
		}
	}
	return out
}

func (m *members) PlacedAt(namespace, cluster string) bool {
	_, there := m.PlacedNamespacesByCluster(namespace)[cluster]
	return there
}

// HasRowForTemplate is true where the namespace is placed, except of what a test has placed by name.
func (m *members) HasRowForTemplate(key atoll.ItemKey, cluster string) bool {
	holders, _ := m.HoldersOf(key)
	_, held := holders[cluster]
	return held
}

func (m *members) HoldersOf(key atoll.ItemKey) (map[string]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if named, ok := m.held[key]; ok {
		return maps.Clone(named), nil
	}
	out := map[string]bool{}
	for _, c := range m.placed[key.Namespace] {
		out[c] = true
	}
	return out, nil
}

func (m *members) ClustersLikelyHolding(_ string, fits func(string) bool) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for template, clusters := range m.likely {
		for _, c := range clusters {
			if fits(template) {
				out[c] = true
			}
		}
	}
	return out
}

func (m *members) TemplatesOfKind(gk schema.GroupKind, namespace string) (out []*unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workloads[namespace] {
		if w.GroupVersionKind().GroupKind() == gk {
			out = append(out, w)
		}
	}
	return out
}

func (m *members) RevisionTemplates(_ context.Context, key atoll.ItemKey, uid types.UID) ([]server.RevisionTemplate, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stated[key.String()+string(uid)], 9, m.unread
}

// Template: what begins with "solo" was written on the hub.
func (m *members) Template(key atoll.ItemKey) (metav1.Object, bool) {
	return &metav1.ObjectMeta{UID: "template"}, key.Kind == "Pod" && strings.HasPrefix(key.Name, "solo") || key.Kind == "Deployment"
}

// joinMembers joins members for one test, each with rows in a namespace.
func (m *members) joinMembers(t testing.TB, namespace string, names ...string) {
	m.mu.Lock()
	for _, name := range names {
		c := newCluster(name)
		c.UID = types.UID("uid-" + name)
		m.clusters[name] = c
		m.agents[string(c.UID)] = &agent{version: 10, pods: map[string]*corev1.Pod{}, changed: make(chan struct{})}
	}
	m.placed[namespace] = append(m.placed[namespace], names...)
	m.mu.Unlock()
	m.view.WakeWatches()
	t.Cleanup(func() {
		for _, name := range names {
			m.removeMember(name)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.placed, namespace)
		for _, name := range names {
			delete(m.clusters, name)
			delete(m.agents, "uid-"+name)
		}
	})
}

// withAgent is the agent of a member, while the members are locked.
func (m *members) withAgent(name string, do func(*agent)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.agents["uid-"+name]
	do(a)
	close(a.changed)
	a.changed = make(chan struct{})
}

// removeMember lets the session of a member's agent end, and the tunnels with it.
func (m *members) removeMember(name string) {
	m.withAgent(name, func(a *agent) {
		a.away = true
		for _, c := range a.conns {
			_ = c.Close()
		}
		a.conns = nil
	})
}

// put a pod into a member, or a changed one; delete it, if that is the event.
func (m *members) put(name string, event watch.EventType, pod *corev1.Pod) {
	m.withAgent(name, func(a *agent) { a.put(event, pod) })
}

func (a *agent) put(event watch.EventType, pod *corev1.Pod) {
	a.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = fmt.Sprint(a.version)
	key := pod.Namespace + "/" + pod.Name
	if a.pods[key] = pod; event == watch.Deleted {
		delete(a.pods, key)
	}
	a.history = append(a.history, podEvent{a.version, event, pod})
}

// takeRequests that agents got since the last call.
func (m *members) takeRequests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := m.asked
	m.asked = nil
	return asked
}

// ServeHTTP is what agents answer.
func (m *members) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	uid := r.Context().Value(uidKey{}).(string)
	body, _ := io.ReadAll(r.Body)
	m.mu.Lock()
	a := m.agents[uid]
	m.asked = append(m.asked, uid+" "+r.Method+" "+r.URL.RequestURI())
	if a != nil && r.Host != atoll.FleetViewHost {
		a.people = append(a.people, fmt.Sprintf("%s as %s %s %s", r.Method, r.Header.Get("Impersonate-User"), r.URL.RequestURI(), body))
	}
	m.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	namespace := ""
	if parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	switch {
	case a == nil || parts[0] != "pods":
		writeAnswer(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
	case r.Host != atoll.FleetViewHost:
		m.byPerson(w, r, a, namespace, parts)
	case len(parts) == 3 && parts[2] == "log":
		fmt.Fprintf(w, "log of %s by %s\n", parts[1], r.URL.RawQuery)
	case len(parts) == 2:
		m.get(w, a, namespace+"/"+parts[1])
	case r.URL.Query().Get("watch") != "":
		m.watch(w, r, a, namespace)
	default:
		m.list(w, r, a, namespace)
	}
}

func (m *members) byPerson(w http.ResponseWriter, r *http.Request, a *agent, namespace string, parts []string) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || len(parts) == 3 {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Success","message":"%s of %s"}`, parts[2], parts[1])
		return
	}
	m.get(w, a, namespace+"/"+parts[1])
}

func (m *members) get(w http.ResponseWriter, a *agent, key string) {
	m.mu.Lock()
	pod := a.pods[key]
	m.mu.Unlock()
	if pod == nil {
		writeAnswer(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
		return
	}
	writeAnswer(w, http.StatusOK, pod)
}

func isSelected(r *http.Request, namespace string, pod *corev1.Pod) bool {
	s, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	field := r.URL.Query().Get("fieldSelector")
	return err == nil && s.Matches(labels.Set(pod.Labels)) && (namespace == "" || pod.Namespace == namespace || pod.Labels["lie"] != "") &&
		(field == "" || field == "metadata.name="+pod.Name)
}

func (m *members) list(w http.ResponseWriter, r *http.Request, a *agent, namespace string) {
	m.mu.Lock()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(a.version)}}
	for _, pod := range a.pods {
		if isSelected(r, namespace, pod) {
			list.Items = append(list.Items, *pod)
		}
	}
	m.mu.Unlock()
	writeAnswer(w, http.StatusOK, list)
}

func protobufSerializer() runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info
}

func writeAnswer(w http.ResponseWriter, code int, obj runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_ = scheme.Codecs.EncoderForVersion(protobufSerializer().Serializer, corev1.SchemeGroupVersion).Encode(obj, w)
}

func (m *members) watch(w http.ResponseWriter, r *http.Request, a *agent, namespace string) {
	var from int
	_, _ = fmt.Sscan(r.URL.Query().Get("resourceVersion"), &from)
	m.mu.Lock()
	old := from < a.oldest
	m.mu.Unlock()
	if old {
		writeAnswer(w, http.StatusGone, &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old"})
		return
	}
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	info := protobufSerializer()
	encoder := restwatch.NewEncoder(
		streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, corev1.SchemeGroupVersion)),
		scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion))
	for {
		m.mu.Lock()
		away, changed, news := a.away, a.changed, slices.Clone(a.history)
		m.mu.Unlock()
		if away {
			return // the session ended, and the tunnels with it
		}
		for _, n := range news {
			if n.version > from && isSelected(r, namespace, n.pod) {
				if encoder.Encode(&watch.Event{Type: n.event, Object: n.pod}) != nil || flush() != nil {
					return
				}
			}
			from = max(from, n.version)
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
