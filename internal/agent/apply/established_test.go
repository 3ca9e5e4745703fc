package apply

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

const gadgetDefinition = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gadgets.example.io},
 spec: {group: example.io, scope: Namespaced, names: {kind: Gadget, plural: gadgets}, versions: [{name: v1, served: true}, {name: v0, served: false}]}}`

// gadgetItem is the item of gadgetDefinition.
func gadgetItem(t *testing.T) atoll.RenderedItem {
	t.Helper()
	object, err := yaml.YAMLToJSON([]byte(gadgetDefinition))
	if err != nil {
		t.Fatal(err)
	}
	key := atoll.ItemKey{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "gadgets.example.io"}
	return atoll.RenderedItem{Key: key, APIVersion: "apiextensions.k8s.io/v1", UID: "t", Hash: "h", Object: object}
}

// answerLater shows a definition as established from its nth read on, and answers the read after last with a code.
func answerLater(api *memoryMember, nth, last, code int) http.Handler {
	reads := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/gadgets.example.io") || api.objects[r.URL.Path] == nil {
			api.ServeHTTP(w, r)
			return
		}
		if reads++; reads > last {
			refuseRequest(w, code)
			return
		}
		obj := mergeValues(api.objects[r.URL.Path], map[string]any{})
		if reads >= nth {
			obj = mergeValues(obj, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(obj)
	})
}

// A definition that was applied is waited for, a little longer from look to look, so that its objects can follow.
func TestADefinitionIsWaitedFor(t *testing.T) {
	const ever = 1000
	for name, c := range map[string]struct {
		nth, last, code int
		ends            time.Duration // of the agent; 0: it does not end
		want            *Failure
		takes           time.Duration
		served, checked bool
	}{
		"it is established at once":  {nth: 1, last: ever, served: true},
		"it is established later":    {nth: 4, last: ever, takes: 120 * time.Millisecond, served: true},
		"it is never established":    {nth: ever, last: ever, takes: 6500 * time.Millisecond, want: &Failure{Reason: atoll.ReasonNotEstablished, Waits: true, Most: 30 * time.Second, Message: "the member has not established the definition yet; its conditions have the reason"}},
		"it went":                    {nth: ever, last: 2, code: http.StatusNotFound, takes: 60 * time.Millisecond, checked: true},
		"the member does not answer": {nth: ever, last: 0, code: http.StatusForbidden, want: &Failure{Reason: atoll.ReasonForbidden}},
		"the agent ends":             {nth: ever, last: ever, ends: time.Second, takes: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				item, m := gadgetItem(t), newMemoryMember(t)
				e := newStubEngine(t, answerLater(m, c.nth, c.last, c.code), nil, newManifest("b1", 1, item))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ends > 0 {
					time.AfterFunc(c.ends, cancel)
				}
				e.holdTask(item.Key).intended = true
				waiting := e.holdTask(atoll.ItemKey{Group: "example.io", Kind: "Gadget", Namespace: "shop", Name: "g"})
				waiting.failure, waiting.failures = notServed("example.io/v1", item.Key), 3
				began := time.Now()
				f := e.put(ctx, e.takePendingWork(item.Key))
				if c.want != nil && c.want.Message == "" && f != nil {
					c.want.Message = f.Message
				}
				expectFailure(t, f, c.want)
				if got := time.Since(began); got != c.takes {
					t.Errorf("it takes %s, want %s", got, c.takes)
				}
				gvk := schema.GroupVersionKind{Group: "example.io", Version: "v1", Kind: "Gadget"}
				res, served := e.o.Client.APIs().LookupKind(gvk)
				if served != c.served || served && (!res.Namespaced || res.Resource != "gadgets" || !res.Listable) {
					t.Errorf("its objects can follow: %t, as %+v; want %t", served, res, c.served)
				}
				if v, seen := e.viewOf(item.Key); c.served && (!seen || v.Health != atoll.Healthy) {
					t.Errorf("it is seen as %+v", v)
				}
				if waiting.due != c.served || c.served != (waiting.failures == 0) || e.holdTask(item.Key).check != c.checked {
					t.Errorf("objects of the kind are tried: %+v, the definition is checked: %t", waiting, e.holdTask(item.Key).check)
				}
				if got := e.discovered == time.Now(); got != c.served {
					t.Errorf("the APIs count as discovered now: %t", got)
				}
			})
		})
	}
}

// A definition is established by the condition of that type alone.
func TestADefinitionIsEstablishedByItsCondition(t *testing.T) {
	for status, want := range map[string]bool{
		`{}`: false,
		`{"conditions":[{"type":"Established","status":"True"}]}`:                                           true,
		`{"conditions":[{"type":"Established","status":"False"}]}`:                                          false,
		`{"conditions":["odd",{"type":"NamesAccepted","status":"True"}]}`:                                   false,
		`{"conditions":[{"type":"NamesAccepted","status":"False"},{"type":"Established","status":"True"}]}`: true,
		`{"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"False"}]}`: false,
	} {
		crd := &unstructured.Unstructured{Object: map[string]any{"status": parseJSON(t, status)}}
		if got := isEstablished(crd); got != want {
			t.Errorf("%s is established: %t", status, got)
		}
	}
}

// The served versions of a definition are the resources of its objects.
func TestTheServedVersionsOfADefinition(t *testing.T) {
	var obj map[string]any
	if err := yaml.Unmarshal([]byte(gadgetDefinition), &obj); err != nil {
		t.Fatal(err)
	}
	got := servedVersions(&unstructured.Unstructured{Object: obj})
	if len(got) != 1 || got[0].Kind != "Gadget" || !got[0].Namespaced || !got[0].Listable || got[0].GroupVersionResource != (schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "gadgets"}) {
		t.Errorf("the versions are %+v", got)
	}
	obj["spec"].(map[string]any)["scope"] = "Cluster"
	if got := servedVersions(&unstructured.Unstructured{Object: obj}); got[0].Namespaced {
		t.Errorf("a kind without namespaces: %+v", got)
	}
	for name, spec := range map[string]any{"no definition": "x", "no versions": map[string]any{"group": "example.io"}} {
		if got := servedVersions(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}); len(got) != 0 {
			t.Errorf("%s has %+v", name, got)
		}
	}
}

// A definition that another object's apply made known is watched as other records are.
func TestRecordsOfServedKindsAreWatchedAndOthersAreChecked(t *testing.T) {
	gone, waiting, unmade := confItem("x"), confItem("x"), webItem("2")
	gone.Key = atoll.ItemKey{Group: "example.io", Kind: "Gadget", Namespace: "shop", Name: "g"}
	gone.APIVersion = "example.io/v1"
	waiting.Key, waiting.APIVersion = gone.Key, gone.APIVersion
	waiting.Key.Name = "w"
	record := wantedRecord(unmade)
	record.UID = ""
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, wantedRecord(confItem("x")), wantedRecord(gone), wantedRecord(waiting), record})
	task := e.holdTask(waiting.Key)
	task.failure, task.due, task.at = &Failure{}, true, testNow
	e.watchAll()
	calls := e.takeCalls()
	slices.Sort(calls)
	if want := []string{"watch ConfigMap", "watch Namespace"}; !slices.Equal(calls, want) {
		t.Errorf("the calls are %q, want %q", calls, want)
	}
	if !e.holdTask(gone.Key).check || !e.holdTask(gone.Key).due || e.holdTask(confKey).check || e.holdTask(unmade.Key).check {
		t.Error("the object of a kind that is not served is not checked alone")
	}
	if !task.check || task.at != testNow {
		t.Errorf("a key that waits for its next try is %+v", task)
	}
}
