package clienttest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// FakeHub is an API server in memory. It stores objects of all kinds, and records each write as
// VERB PATH, in which the path has no version. A server-side apply replaces the whole object. A dry
// run is answered like the write, but neither stored nor recorded. Its methods may be called
// concurrently.
type FakeHub struct {
	// Token is the token of each ServiceAccount.
	Token string
	// Refuse is the reason and the code of the answer to a write, by VERB PATH.
	Refuse map[string]metav1.Status
	// OnRequest runs before each request is answered.
	OnRequest func(*http.Request)

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured // by path
	writes  []string
}

// NewFakeHub returns a Hub with the objects of a YAML text, each below its path.
func NewFakeHub(t *testing.T, objects map[string]string) *FakeHub {
	t.Helper()
	h := &FakeHub{objects: map[string]*unstructured.Unstructured{}}
	for path, text := range objects {
		h.Put(t, path, text)
	}
	return h
}

// Put stores an object, as YAML, at its path: RESOURCE/NAME in the core group, GROUP/RESOURCE/NAME
// in others, with namespaces/NAMESPACE/ before the resource.
func (h *FakeHub) Put(t *testing.T, path, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(path, "/")
	o.SetName(parts[len(parts)-1])
	if _, rest, ok := strings.Cut(path, "namespaces/"); ok && strings.Count(rest, "/") == 2 {
		o.SetNamespace(rest[:strings.Index(rest, "/")])
	}
	if o.GetKind() == "" {
		o.SetKind("Thing")
	}
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion("v1")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects[path] = o
}

// Object returns the object at a path; nil when there is none.
func (h *FakeHub) Object(path string) map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.objects[path]; o != nil {
		return o.DeepCopy().Object
	}
	return nil
}

// Writes returns the writes, in order.
func (h *FakeHub) Writes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.writes)
}

// ExpectWrites fails the test unless exactly these writes were made, in this order.
func (h *FakeHub) ExpectWrites(t *testing.T, want ...string) {
	t.Helper()
	if got := h.Writes(); !slices.Equal(got, want) {
		t.Errorf("writes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// ServeHTTP answers as an API server does.
func (h *FakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.OnRequest != nil {
		h.OnRequest(r)
	}
	body, _ := io.ReadAll(r.Body) // what is missing is no JSON
	h.mu.Lock()
	defer h.mu.Unlock()
	answer := h.answerRequest(r, body)
	w.Header().Set("Content-Type", "application/json")
	if status, failed := answer.(metav1.Status); failed {
		status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
		w.WriteHeader(int(status.Code))
		answer = status
	}
	_ = json.NewEncoder(w).Encode(answer) // the client has gone
}

func (h *FakeHub) answerRequest(r *http.Request, body []byte) any {
	path := trimAPIPrefix(r.URL.Path)
	if r.Method == http.MethodGet {
		if o := h.objects[path]; o != nil {
			return o.Object
		}
		if r.URL.Query().Has("limit") || r.URL.Query().Has("labelSelector") {
			return h.listObjects(r, path)
		}
		return notFound(path)
	}
	verb := strings.ToLower(r.Method)
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch") {
		verb = "apply"
	}
	var sent map[string]any
	if err := yaml.Unmarshal(body, &sent); err != nil {
		return metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()}
	}
	if verb == "post" {
		path = pathOfCreated(path, sent)
	}
	what := verb + " " + path
	if status, refused := h.Refuse[what]; refused {
		return status
	}
	if r.URL.Query().Get("dryRun") == "" {
		h.writes = append(h.writes, what)
		return h.writeObject(verb, path, sent, body)
	}
	stored := maps.Clone(h.objects)
	answer := h.writeObject(verb, path, sent, body)
	h.objects = stored
	return answer
}

// pathOfCreated returns the path of an object that is created in a collection.
func pathOfCreated(collection string, sent map[string]any) string {
	name, ok, err := unstructured.NestedString(sent, "metadata", "name")
	if !ok || err != nil || strings.HasSuffix(collection, "/token") {
		return collection
	}
	return collection + "/" + name
}

func (h *FakeHub) writeObject(verb, path string, sent map[string]any, body []byte) any {
	path, token := strings.CutSuffix(path, "/token")
	path = strings.TrimSuffix(path, "/approval")
	old := h.objects[path]
	switch {
	case token && old == nil:
		return notFound(path)
	case token:
		sent["status"] = map[string]any{"token": h.Token, "expirationTimestamp": "2030-01-01T00:00:00Z"}
		return sent
	case verb == "post", verb == "apply", verb == "put" && old != nil:
		o := &unstructured.Unstructured{Object: sent}
		o.SetName(path[strings.LastIndex(path, "/")+1:])
		h.objects[path] = o
		return o.Object
	case old == nil:
		return notFound(path)
	case verb == "delete":
		delete(h.objects, path)
		return metav1.Status{Code: http.StatusOK}
	}
	was, err := json.Marshal(old.Object)
	if err != nil {
		return metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()}
	}
	merged, err := jsonpatch.MergePatch(was, body)
	if err == nil {
		o := &unstructured.Unstructured{}
		if err = json.Unmarshal(merged, &o.Object); err == nil {
			h.objects[path] = o
			return o.Object
		}
	}
	return metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()}
}

// listObjects returns the objects of a collection, or of all namespaces.
func (h *FakeHub) listObjects(r *http.Request, path string) any {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return metav1.Status{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest, Message: err.Error()}
	}
	items := []any{}
	for _, at := range slices.Sorted(maps.Keys(h.objects)) {
		o := h.objects[at]
		collection := at[:strings.LastIndex(at, "/")]
		if ns := o.GetNamespace(); ns != "" && collection != path {
			collection = strings.Replace(collection, "namespaces/"+ns+"/", "", 1)
		}
		if collection == path && selector.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o.Object)
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "ThingList", "metadata": map[string]any{}, "items": items}
}

// trimAPIPrefix returns GROUP/RESOURCE and the like, without prefix and version.
func trimAPIPrefix(path string) string {
	if rest, core := strings.CutPrefix(path, "/api/v1/"); core {
		return rest
	}
	rest, grouped := strings.CutPrefix(path, "/apis/")
	parts := strings.SplitN(rest, "/", 3)
	if !grouped || len(parts) < 3 {
		return strings.Trim(path, "/")
	}
	return parts[0] + "/" + parts[2]
}

func notFound(path string) metav1.Status {
	return metav1.Status{
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: path + " not found",
		Details: &metav1.StatusDetails{Name: path[strings.LastIndex(path, "/")+1:]},
	}
}
