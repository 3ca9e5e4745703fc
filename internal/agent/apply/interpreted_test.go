package apply

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// watching records which kinds are listed and watched again.
type watching struct {
	memory
	again []string
}

func (w *watching) RelistKind(_, kind string) { w.again = append(w.again, kind) }

// newInterpreters returns a member's interpreters for a target, which report every object with
// that message.
func newInterpreters(target v1alpha1.InterpreterTarget, message string) []atoll.Interpreter {
	i := &v1alpha1.ResourceInterpreter{Spec: v1alpha1.ResourceInterpreterSpec{
		Target: target,
		Health: &v1alpha1.InterpreterRule{CEL: "{'status': 'Degraded', 'message': '" + message + "'}"},
	}}
	i.Name = "i"
	gvk := schema.GroupVersionKind{Group: target.Group, Version: "v1", Kind: target.Kinds[0]}
	return script.InterpretersForMember(script.NewLibrary([]*v1alpha1.ResourceInterpreter{i}).InterpretersForContent([]schema.GroupVersionKind{gvk}))
}

// New interpreters of one Bundle cost that Bundle's objects, not all objects of the kind: many
// Bundles may get them.
func TestInterpretersCostTheObjectsOfTheirBundle(t *testing.T) {
	key := atoll.ItemKey{Group: "example.io", Kind: "Sprocket", Namespace: "shop", Name: "s"}
	const path = "/apis/example.io/v1/namespaces/shop/sprockets/s"
	served, gets := &partial{versions: map[string]bool{"v1": true}, objects: map[string]string{path: "o1"}}, 0
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			served.ServeHTTP(w, r)
			return
		}
		gets++
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "example.io/v1", "kind": "Sprocket", "metadata": map[string]any{
			"name": "s", "namespace": "shop", "uid": "o1", "resourceVersion": "7", "labels": map[string]any{atoll.LabelBundleUID: "b1"},
		}})
	})
	item := atoll.RenderedItem{Key: key, APIVersion: "example.io/v1", UID: "t1", Hash: "h", Object: json.RawMessage(`{"metadata":{}}`)}
	m := newManifest("b1", 1, item)
	e := engineOn(t, api, ownership.Record{
		Key: key, APIVersion: "example.io/v1", UID: "o1", Template: "t1", Owner: "b1", Label: "b1", Applied: "h", Chosen: true,
		Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t1"}},
	}, m)
	watch := &watching{}
	e.o.Watch = watch
	upsert := func(m atoll.Manifest) {
		t.Helper()
		if err := e.UpsertManifest(t.Context(), m, store.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, message := range []string{"first", "second"} {
		m.Generation, m.Interpreters = int64(2+i), newInterpreters(v1alpha1.InterpreterTarget{Group: "example.io", Kinds: []string{"Sprocket"}}, message)
		upsert(m)
		keys, _ := e.takeDueKeys(time.Now())
		if !slices.Contains(keys, key) {
			t.Fatalf("the object is not judged, but %v is", keys)
		}
		e.finishWork(t.Context(), key, e.workOnKey(t.Context(), key))
		if v, ok := e.viewOf(key); !ok || v.Health != atoll.Degraded || v.Message != message {
			t.Errorf("it is %s (%s), and the interpreter says %s", v.Health, v.Message, message)
		}
		if gets != 1+i {
			t.Errorf("%d objects were got, and %d were to be judged", gets, 1+i)
		}
	}
	// Bundles that are new have nothing to be looked at.
	other := newManifest("b2", 1, item)
	other.Items[0].Key.Name, other.Interpreters = "r", m.Interpreters
	upsert(other)
	if gets != 2 || len(watch.again) > 0 {
		t.Errorf("%d objects were got, and all of %v were listed again", gets, watch.again)
	}
}

// A kind that was watched by metadata is watched again once, however many Bundles need it.
func TestWhatIsInterpretedIsWatchedWholeOnce(t *testing.T) {
	e := engineOn(t, &partial{versions: map[string]bool{}}, ownership.Record{}, newManifest("b0", 1))
	watch := &watching{}
	e.o.Watch = watch
	for _, bundle := range []string{"b1", "b2", "b3"} {
		m := newManifest(bundle, 1, atoll.RenderedItem{
			Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: bundle}, APIVersion: "v1", UID: bundle, Hash: "h", Object: json.RawMessage(`{}`),
		})
		m.Interpreters = newInterpreters(v1alpha1.InterpreterTarget{Kinds: []string{"ConfigMap"}}, "so")
		if err := e.UpsertManifest(t.Context(), m, store.Position{}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(watch.again, []string{"ConfigMap"}) {
		t.Errorf("watched again: %v", watch.again)
	}
}
