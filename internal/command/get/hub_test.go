package get

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
)

// hub that serves Deployments of one namespace, what places them, and watches as they are
// scripted.
type hub struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string][]any // by resource
	asked   map[string]int   // requests, by resource, or "watch"
	// watches are what one after another is answered with; then they hang.
	watches []func(http.ResponseWriter)
	rows    []string // of the table, "name version"
	version string   // of the list
}

func newHub(t *testing.T) *hub {
	return &hub{t: t, objects: map[string][]any{}, asked: map[string]int{}, version: "10"}
}

var discovery = metav1.APIResourceList{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{
	Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"},
}}}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if clienttest.ServeDiscovery(w, r, discovery) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")[3:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.URL.Query().Get("watch") != "" {
		h.watch(w, r)
		return
	}
	h.asked[parts[0]]++
	switch {
	case parts[0] == "deployments":
		h.write(w, h.newTable(h.version, h.rows...))
	case len(parts) == 1:
		h.write(w, map[string]any{"apiVersion": "v1", "kind": "ThingList", "metadata": map[string]any{}, "items": h.objects[parts[0]]})
	default:
		for _, obj := range h.objects[parts[0]] {
			if obj.(metav1.Object).GetName() == parts[1] {
				h.write(w, h.typedObject(obj))
				return
			}
		}
		http.NotFound(w, r)
	}
}

// watch is answered as it is scripted. The hub is locked.
func (h *hub) watch(w http.ResponseWriter, r *http.Request) {
	h.asked["watch from "+r.URL.Query().Get("resourceVersion")]++
	if len(h.watches) == 0 {
		h.mu.Unlock()
		<-r.Context().Done()
		h.mu.Lock()
		return
	}
	next := h.watches[0]
	h.watches = h.watches[1:]
	next(w)
}

// typedObject is an object as the API gives it.
func (h *hub) typedObject(obj any) map[string]any {
	raw, err := json.Marshal(obj)
	if err != nil {
		h.t.Error(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		h.t.Error(err)
	}
	out["apiVersion"], out["kind"] = "v1", "Thing"
	return out
}

func (h *hub) write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		h.t.Error(err)
	}
}

// newTable of Deployments, by "name version uid".
func (h *hub) newTable(version string, rows ...string) *metav1.Table {
	of := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, ListMeta: metav1.ListMeta{ResourceVersion: version}}
	of.ColumnDefinitions = []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Ready"}, {Name: "Age"}}
	for i, r := range rows {
		f := strings.Fields(r)
		m := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: f[0], UID: types.UID("uid-" + f[0])}}
		raw, err := json.Marshal(m)
		if err != nil {
			h.t.Error(err)
		}
		row := metav1.TableRow{Cells: []any{f[0], f[1], fmt.Sprintf("%ss%d", version, i)}}
		row.Object.Raw = raw
		of.Rows = append(of.Rows, row)
	}
	return of
}

// eventText of a watch.
func (h *hub) eventText(kind string, of any) string {
	raw, err := json.Marshal(of)
	if err != nil {
		h.t.Error(err)
	}
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, raw)
}

func (h *hub) add(resource string, obj any) { h.objects[resource] = append(h.objects[resource], obj) }

// addBundle with rows in some clusters, all at one revision, which holds the keys.
func (h *hub) addBundle(name string, source v1alpha1.BundleSource, clusters []string, keys ...atoll.ItemKey) {
	h.t.Helper()
	b := &v1alpha1.Bundle{Spec: v1alpha1.BundleSpec{Source: source}, Status: v1alpha1.BundleStatus{Items: int32(len(keys))}}
	b.Namespace, b.Name, b.UID = "shop", name, types.UID("bundle-"+name)
	h.add("bundles", b)
	var content struct {
		Items []map[string]atoll.ItemKey `json:"items"`
	}
	for _, key := range keys {
		content.Items = append(content.Items, map[string]atoll.ItemKey{"key": key})
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := json.NewEncoder(z).Encode(content); err != nil {
		h.t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		h.t.Fatal(err)
	}
	r := &enginev1.Revision{Spec: enginev1.RevisionSpec{Content: packed.Bytes()}}
	r.Name = name + "-1"
	h.add("revisions", r)
	s := &enginev1.TargetSlice{}
	s.Name, s.Labels = name+"-0", map[string]string{enginev1.LabelBundle: string(b.UID)}
	s.Spec.Bundle = enginev1.BundleRef{UID: string(b.UID), Namespace: "shop", Name: name}
	s.Spec.Rows, s.Status.Rows = rowTexts(h.t, clusters, r.Name)
	h.add("targetslices", s)
}

// run the command until it ends, or ctx does.
func (h *hub) run(ctx context.Context, out, notes *clienttest.OutputBuffer, args ...string) error {
	h.t.Helper()
	return clienttest.Run(ctx, h.t, h, NewCommand, clienttest.Said{Out: out, Notes: notes}, args...)
}

// watchUntil the words are printed: the lines, by their columns, and what was noted beside.
func (h *hub) watchUntil(words string) (lines [][]string, noted string) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	out, notes := clienttest.NewWriteLimitedBuffer(), clienttest.NewWriteLimitedBuffer()
	done := make(chan error, 1)
	go func() { done <- h.run(ctx, out, notes, "deployments", "-w") }()
	out.WaitFor(h.t, words)
	cancel()
	if err := <-done; err != nil {
		h.t.Errorf("it ends with %v", err)
	}
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Fields(line))
	}
	return lines, notes.String()
}
