package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// recordedCalls is a store and a watch that remember what the engine asks of them.
type recordedCalls struct {
	callsMu sync.Mutex
	calls   []string
	changed []string // Bundles that were reported as changed
	bundles []store.Bundle
	refuses error // of the store
}

func (c *recordedCalls) addCall(words ...string) {
	c.callsMu.Lock()
	defer c.callsMu.Unlock()
	c.calls = append(c.calls, strings.Join(words, " "))
}

func (c *recordedCalls) PutBundle(_ context.Context, b store.Bundle) error {
	c.addCall("put", b.Holding.Manifest.Bundle)
	c.callsMu.Lock()
	defer c.callsMu.Unlock()
	if c.refuses == nil {
		c.bundles = append(c.bundles, b)
	}
	return c.refuses
}

func (c *recordedCalls) DropBundle(_ context.Context, uid string) error {
	c.addCall("drop", uid)
	return c.readRefusal()
}

func (c *recordedCalls) PutRecords(_ context.Context, _ string, records []ownership.Record) error {
	var names []string
	for _, r := range records {
		names = append(names, r.Key.Kind+"/"+r.Key.Name)
	}
	c.addCall(append([]string{"store"}, names...)...)
	return c.readRefusal()
}

func (c *recordedCalls) readRefusal() error {
	c.callsMu.Lock()
	defer c.callsMu.Unlock()
	return c.refuses
}

func (c *recordedCalls) Start(r member.Resource)           { c.addCall("watch", r.Kind) }
func (c *recordedCalls) StartUnfiltered(r member.Resource) { c.addCall("watch all", r.Kind) }
func (c *recordedCalls) StopUnfiltered(_, kind string)     { c.addCall("stop all", kind) }
func (c *recordedCalls) RelistKind(_, kind string)         { c.addCall("relist", kind) }
func (c *recordedCalls) Stop(_, kind string)               { c.addCall("stop", kind) }

// takeCalls returns the calls since the last time.
func (c *recordedCalls) takeCalls() []string {
	c.callsMu.Lock()
	defer c.callsMu.Unlock()
	out := c.calls
	c.calls = nil
	return out
}

// takeChanged returns the Bundles that were reported since the last time, sorted.
func (c *recordedCalls) takeChanged() []string {
	c.callsMu.Lock()
	defer c.callsMu.Unlock()
	out := slices.Compact(slices.Sorted(slices.Values(c.changed)))
	c.changed = nil
	return out
}

// stubEngine is an engine without a network, whose store and watch remember what it asks.
type stubEngine struct {
	*MemberApplier
	*recordedCalls
}

// newStubEngine returns an engine on an API, which has discovered and holds what is stored.
func newStubEngine(t *testing.T, api http.Handler, records []ownership.Record, manifests ...atoll.Manifest) *stubEngine {
	t.Helper()
	client := newStubClient(t, api)
	if _, err := client.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls, stored := &recordedCalls{}, store.StoredContents{Records: records}
	for _, m := range manifests {
		stored.Bundles = append(stored.Bundles, store.Bundle{Holding: ownership.BundleHolding{Manifest: m}})
	}
	e := New(Options{
		Client: client, Store: calls, Watch: calls, Lease: heldLease(func() bool { return true }), Policy: func() *policy.Policy { return nil },
		Changed: func(b string) { calls.callsMu.Lock(); calls.changed = append(calls.changed, b); calls.callsMu.Unlock() },
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}, stored)
	e.mu.Lock()
	clear(e.tasks) // the tests say what is due
	e.mu.Unlock()
	return &stubEngine{e, calls}
}

// limitAgent sets the policy of the member's administrator, by its spec in YAML.
func (e *stubEngine) limitAgent(t *testing.T, spec string) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte("metadata: {name: agent, generation: 1}\nspec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	p := policy.ParsePolicy(text)
	e.o.Policy = func() *policy.Policy { return p }
}

// holdTask returns the task of a key.
func (e *stubEngine) holdTask(key atoll.ItemKey) *task {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ensureTask(key)
}

// listDue lists the keys that are due, sorted, and makes them wait again.
func (e *stubEngine) listDue() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, t := range e.tasks {
		if t.due {
			out = append(out, key.Kind+"/"+key.Name)
			t.due = false
		}
	}
	slices.Sort(out)
	return out
}

// isAwake reports whether Run was woken since the last time.
func (e *stubEngine) isAwake() bool {
	select {
	case <-e.wake:
		return true
	default:
		return false
	}
}

// recordOf returns the record of a key.
func (e *stubEngine) recordOf(key atoll.ItemKey) ownership.Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, _ := e.book.Record(key)
	return r
}

// wantedRecord is the record of an object that the Bundle b1 applied by the item, and wants.
func wantedRecord(it atoll.RenderedItem) ownership.Record {
	return ownership.Record{
		Key: it.Key, APIVersion: it.APIVersion, UID: "live", Template: it.UID, Owner: "b1", Label: "b1", Applied: it.Hash, Chosen: true,
		Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: it.UID}},
	}
}

// liveConf is the object of confItem as b1 applied it.
func liveConf(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: shop, labels: {" + atoll.LabelBundleUID + ": b1, " + ownership.LabelTemplateUID +
		": t}, managedFields: [{manager: " + atoll.FieldManager + ", operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {}}]}\ndata: {a: " + value + "}"
}

// seenConf is the view of the object of liveConf.
func seenConf() observe.View {
	return observe.View{Key: confKey, UID: "live", Label: "b1", Template: "t", Version: "1", Health: atoll.Healthy}
}

// webItem returns an item of a Deployment.
func webItem(replicas string) atoll.RenderedItem {
	return atoll.RenderedItem{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, APIVersion: "apps/v1", UID: "t", Hash: "h" + replicas,
		Object: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":` + replicas + `}}`),
	}
}

// refusals are the answers of a member that refuses requests, by METHOD NAME. The method of a dry run is DRYRUN.
// The name is the last part of the path.
type refusals map[string]*apierrors.StatusError

// refuseSome refuses requests to an API; later changes of the refusals count.
func refuseSome(api http.Handler, of refusals) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if r.URL.Query().Get("dryRun") != "" {
			method = "DRYRUN"
		}
		refused := of[method+" "+path.Base(r.URL.Path)]
		if refused == nil {
			api.ServeHTTP(w, r)
			return
		}
		status := refused.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	})
}

// memberBusy is an answer of a member that cannot answer now.
func memberBusy() *apierrors.StatusError { return apierrors.NewServiceUnavailable("busy") }

// expectFailure compares a failure as a whole.
func expectFailure(t *testing.T, got, want *Failure) {
	t.Helper()
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		t.Errorf("it fails with %+v, want %+v", got, want)
	}
}

// busyFailure is the failure by memberBusy.
var busyFailure = &Failure{Reason: atoll.ReasonMemberUnavailable, Transport: true, Most: 10e9, Message: "busy"}

func newUnstructured(obj map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: obj}
}

// expectEqualJSON compares two values by their JSON.
func expectEqualJSON(t *testing.T, got, want any) {
	t.Helper()
	if g, w := atoll.HashJSON(got), atoll.HashJSON(want); g != w {
		t.Errorf("it is %v, want %v", got, want)
	}
}

// newStubClient returns a client of an API, without a network.
func newStubClient(t *testing.T, api http.Handler) *member.Client {
	t.Helper()
	client, err := member.New(&rest.Config{Host: "http://member", Transport: handlerTransport{api}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// storedItems is a store with the manifest of confItem, and records.
func storedItems(records ...ownership.Record) store.StoredContents {
	bundle := store.Bundle{Holding: ownership.BundleHolding{Manifest: newManifest("b1", 1, confItem("x"))}}
	return store.StoredContents{Records: records, Bundles: []store.Bundle{bundle}}
}

// decodeRequest returns the JSON of a request, which can still be read after it.
func decodeRequest(t *testing.T, r *http.Request) (v any) {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	if err := json.Unmarshal(text, &v); err != nil {
		t.Error(err)
	}
	return v
}

// countReads counts the reads of a path.
func countReads(api http.Handler, of string, reads *int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == of {
			*reads++
		}
		api.ServeHTTP(w, r)
	})
}

// upsertAndWait stores a manifest, and waits in the bubble of the test until the engine is done with it.
func (e *stubEngine) upsertAndWait(t *testing.T, m atoll.Manifest) {
	t.Helper()
	if err := e.UpsertManifest(t.Context(), m, store.Position{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}
