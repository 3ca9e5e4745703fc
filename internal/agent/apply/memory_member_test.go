package apply

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// memoryMember is a member's API server in memory. An apply adds its fields to the object, and
// never conflicts: what real servers decide about fields, the tests with a real member hold. It
// records each write as VERB NAME MANAGER.
type memoryMember struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	writes  []string
	bodies  []map[string]any // of the patches
	made    int
	// countsVersions gives an object another resource version at each write.
	countsVersions bool
	versions       int
}

// memberKinds are the kinds that a memoryMember serves, by group.
var memberKinds = map[string][]map[string]any{
	"": {
		discoveryKind("namespaces", "Namespace", "Cluster"), discoveryKind("configmaps", "ConfigMap", "Namespaced"), discoveryKind("secrets", "Secret", "Namespaced"),
		discoveryKind("serviceaccounts", "ServiceAccount", "Namespaced"), discoveryKind("events", "Event", "Namespaced"), discoveryKind("endpoints", "Endpoints", "Namespaced"),
		discoveryKind("pods", "Pod", "Namespaced"), discoveryKind("nodes", "Node", "Cluster"),
		discoveryKind("persistentvolumeclaims", "PersistentVolumeClaim", "Namespaced"),
	},
	"apps":                 {discoveryKind("deployments", "Deployment", "Namespaced"), discoveryKind("replicasets", "ReplicaSet", "Namespaced"), discoveryKind("statefulsets", "StatefulSet", "Namespaced")},
	"batch":                {discoveryKind("jobs", "Job", "Namespaced")},
	"apiextensions.k8s.io": {discoveryKind("customresourcedefinitions", "CustomResourceDefinition", "Cluster")},
	"example.io":           {discoveryKind("shells", "Shell", "Cluster")},
	"events.k8s.io":        {discoveryKind("events", "Event", "Namespaced")},
	"discovery.k8s.io":     {discoveryKind("endpointslices", "EndpointSlice", "Namespaced")},
}

// newMemoryMember holds the namespace "shop", which the agent made, and the objects.
func newMemoryMember(t *testing.T, objects ...string) *memoryMember {
	t.Helper()
	m := &memoryMember{objects: map[string]map[string]any{}}
	for _, text := range append([]string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, uid: n1}"}, objects...) {
		var obj map[string]any
		if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
			t.Fatal(err)
		}
		meta := obj["metadata"].(map[string]any)
		if meta["uid"] == nil {
			meta["uid"] = "live"
		}
		meta["resourceVersion"] = "1"
		m.objects[pathOfObject(obj)] = obj
	}
	return m
}

func pathOfObject(obj map[string]any) string {
	group, version, ok := strings.Cut(obj["apiVersion"].(string), "/")
	root := "/apis/" + group + "/" + version
	if !ok {
		root, group = "/api/"+group, ""
	}
	meta := obj["metadata"].(map[string]any)
	for _, k := range memberKinds[group] {
		if k["responseKind"].(map[string]any)["kind"] != obj["kind"] {
			continue
		}
		if ns, _ := meta["namespace"].(string); ns != "" {
			root += "/namespaces/" + ns
		}
		return root + "/" + k["resource"].(string) + "/" + meta["name"].(string)
	}
	panic(fmt.Sprint("the member does not serve ", obj["kind"]))
}

func (m *memoryMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	code, reply := m.answerRequest(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(reply)
}

func failRequest(code int, reason string) (int, map[string]any) {
	return code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
}

func (m *memoryMember) answerRequest(r *http.Request) (code int, reply map[string]any) {
	if r.URL.Path == "/api" || r.URL.Path == "/apis" {
		var groups []any
		for _, name := range slices.Sorted(maps.Keys(memberKinds)) {
			if (name == "") == (r.URL.Path == "/api") {
				var served []any
				for _, k := range memberKinds[name] {
					served = append(served, k)
				}
				groups = append(groups, map[string]any{"metadata": map[string]any{"name": name}, "versions": []any{discoveryVersion("v1", served...)}})
			}
		}
		return 200, discoveryDocument(groups...)
	}
	live, exists := m.objects[r.URL.Path]
	switch r.Method {
	case http.MethodGet:
		asMetadata := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
		switch {
		case exists && asMetadata:
			return 200, metadataOf(live, "PartialObjectMetadata")
		case exists:
			return 200, live
		case m.isCollection(r.URL.Path):
			var items []any
			for _, path := range slices.Sorted(maps.Keys(m.objects)) {
				if list := path[:strings.LastIndexByte(path, '/')]; list == r.URL.Path || inAllNamespaces.ReplaceAllString(list, "/") == r.URL.Path {
					items = append(items, metadataOf(m.objects[path], "PartialObjectMetadata"))
				}
			}
			return 200, map[string]any{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{}, "items": items}
		}
	case http.MethodPatch:
		return m.patchObject(r, live, exists)
	case http.MethodDelete:
		var options metav1.DeleteOptions
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
			return failRequest(400, "BadRequest")
		}
		if p := options.Preconditions; exists && p != nil && p.UID != nil && string(*p.UID) != live["metadata"].(map[string]any)["uid"] {
			return failRequest(409, "Conflict")
		}
		if exists {
			m.writes = append(m.writes, "DELETE "+r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
			delete(m.objects, r.URL.Path)
			return 200, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
		}
	}
	return failRequest(404, "NotFound")
}

// inAllNamespaces matches what the path of a namespace's objects has more than that of all namespaces' objects.
var inAllNamespaces = regexp.MustCompile(`/namespaces/[^/]+/`)

// isCollection reports a path of a resource's objects.
func (m *memoryMember) isCollection(path string) bool {
	for _, list := range memberKinds {
		for _, k := range list {
			if strings.HasSuffix(path, "/"+k["resource"].(string)) {
				return true
			}
		}
	}
	return false
}

func metadataOf(obj map[string]any, kind string) map[string]any {
	return map[string]any{"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
}

func (m *memoryMember) patchObject(r *http.Request, live map[string]any, exists bool) (code int, reply map[string]any) {
	text, err := io.ReadAll(r.Body)
	var body map[string]any
	if err != nil || json.Unmarshal(text, &body) != nil {
		return failRequest(400, "BadRequest")
	}
	apply := r.Header.Get("Content-Type") == "application/apply-patch+yaml"
	sent, _ := body["metadata"].(map[string]any)
	if uid, _ := sent["uid"].(string); uid != "" && (!exists || live["metadata"].(map[string]any)["uid"] != uid) {
		return failRequest(409, "Conflict")
	}
	if version, _ := sent["resourceVersion"].(string); apply && version != "" && exists && live["metadata"].(map[string]any)["resourceVersion"] != version {
		return failRequest(409, "Conflict")
	}
	if !exists && !apply {
		return failRequest(404, "NotFound")
	}
	after := mergeValues(live, body).(map[string]any)
	meta := after["metadata"].(map[string]any)
	if meta["uid"] == nil {
		m.made++
		meta["uid"], meta["generation"] = fmt.Sprint("made", m.made), 1
	}
	manager := r.URL.Query().Get("fieldManager")
	if apply {
		meta["managedFields"] = append(slices.Clone(managersOf(meta)), map[string]any{"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:data": map[string]any{}}})
	}
	if r.URL.Query().Get("dryRun") == "" {
		if m.countsVersions {
			m.versions++
			meta["resourceVersion"] = fmt.Sprint("v", m.versions)
		}
		verb := "MERGE"
		if apply {
			verb = "APPLY"
		}
		m.writes, m.bodies = append(m.writes, verb+" "+meta["name"].(string)+" "+manager), append(m.bodies, body)
		m.objects[r.URL.Path] = after
	}
	return 200, after
}

func managersOf(meta map[string]any) []any {
	list, _ := meta["managedFields"].([]any)
	return list
}

// mergeValues returns a value after a JSON merge patch.
func mergeValues(live, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out := map[string]any{}
	if l, ok := live.(map[string]any); ok {
		maps.Copy(out, l)
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = mergeValues(out[k], v)
		}
	}
	return out
}

// expectWrites compares the writes since the last call.
func (m *memoryMember) expectWrites(t *testing.T, want ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.writes, want) {
		t.Errorf("the writes are %q, want %q", m.writes, want)
	}
	m.writes = nil
}

// shopNamespace is the record of the namespace that the agent made.
var shopNamespace = ownership.Record{Key: atoll.NamespaceKey("shop"), UID: "n1", Label: "b1", Implicit: true}

// settleKey works on a key as often as passes do that store its intent first.
func settleKey(t *testing.T, e *MemberApplier, key atoll.ItemKey) *Failure {
	t.Helper()
	e.mu.Lock()
	e.ensureTask(key).intended = true
	e.mu.Unlock()
	return e.workOnKey(t.Context(), key)
}
