package push

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// served is what a light member serves, by path.
var served = map[string]string{
	"/version": `{"gitVersion":"v1.36.3"}`,
	"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[
		{"name":"coordination.k8s.io","versions":[{"groupVersion":"coordination.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"coordination.k8s.io/v1","version":"v1"}},
		{"name":"apiextensions.k8s.io","versions":[{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiextensions.k8s.io/v1","version":"v1"}},
		{"name":"apiregistration.k8s.io","versions":[{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}}]}`,
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
		{"name":"namespaces","kind":"Namespace","verbs":["get","list","watch","create"]},
		{"name":"nodes","kind":"Node","verbs":["get","list","watch"]},
		{"name":"pods","kind":"Pod","namespaced":true,"verbs":["get","list","watch"]},
		{"name":"secrets","kind":"Secret","namespaced":true,"verbs":["get","list","watch","create","update","delete"]}]}`,
	"/apis/coordination.k8s.io/v1":    `{"kind":"APIResourceList","groupVersion":"coordination.k8s.io/v1","resources":[{"name":"leases","kind":"Lease","namespaced":true,"verbs":["get","list","watch","create","update"]}]}`,
	"/apis/apiextensions.k8s.io/v1":   `{"kind":"APIResourceList","groupVersion":"apiextensions.k8s.io/v1","resources":[{"name":"customresourcedefinitions","kind":"CustomResourceDefinition","verbs":["get","list","watch"]}]}`,
	"/apis/apiregistration.k8s.io/v1": `{"kind":"APIResourceList","groupVersion":"apiregistration.k8s.io/v1","resources":[{"name":"apiservices","kind":"APIService","verbs":["get","list","watch"]}]}`,
}

// lists are the kinds of lists by resource.
var lists = map[string]string{
	"namespaces": "NamespaceList", "nodes": "NodeList", "pods": "PodList", "secrets": "SecretList", "leases": "LeaseList",
	"customresourcedefinitions": "CustomResourceDefinitionList", "apiservices": "APIServiceList",
}

// lightMember answers what an agent asks of a member in which nothing is placed: it keeps
// what is written, and its watches say nothing.
type lightMember struct {
	*httptest.Server
	asked atomic.Int64

	mu      sync.Mutex
	version int
	objects map[string]metav1.Object // by path
}

func newLightMember() *lightMember {
	m := &lightMember{objects: map[string]metav1.Object{}}
	m.Server = httptest.NewUnstartedServer(m)
	m.EnableHTTP2 = true
	m.StartTLS()
	return m
}

// caPEM of the member, in PEM.
func (m *lightMember) caPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}))
}

// ServeHTTP answers as an API server does.
func (m *lightMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.asked.Add(1)
	w.Header().Set("Content-Type", "application/json")
	if body, ok := served[r.URL.Path]; ok {
		_, _ = io.WriteString(w, body) // the client may have gone
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group, rest := strings.Join(parts[1:2], "/"), parts[2:]
	if parts[0] == "apis" {
		group, rest = strings.Join(parts[1:3], "/"), parts[3:]
	}
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	switch kind, known := lists[rest[0]]; {
	case !known:
		m.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet && len(rest) == 1 && r.URL.Query().Get("sendInitialEvents") != "":
		m.fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case r.Method == http.MethodGet && len(rest) == 1 && r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet && len(rest) == 1:
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			kind, group = "PartialObjectMetadataList", "meta.k8s.io/v1"
		}
		_, _ = fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind, group)
	default:
		m.serveObject(w, r)
	}
}

// serveObject is read or written.
func (m *lightMember) serveObject(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	path := r.URL.Path
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			m.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		obj.GetObjectKind().SetGroupVersionKind(*gvk)
		meta := obj.(metav1.Object)
		if r.Method == http.MethodPost {
			path += "/" + meta.GetName()
			meta.SetUID(types.UID(path))
		}
		if old := m.objects[path]; (old != nil) != (r.Method == http.MethodPut) || old != nil && meta.GetResourceVersion() != "" && old.GetResourceVersion() != meta.GetResourceVersion() {
			m.fail(w, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		m.version++
		meta.SetResourceVersion(fmt.Sprint(m.version))
		m.objects[path] = meta
	}
	obj := m.objects[path]
	if obj == nil {
		m.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(obj.(runtime.Object)) // the client may have gone
}

func (m *lightMember) fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may have gone
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: string(reason),
	})
}
