package undo

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/undo/history"
)

// changeCopy returns a copy of an object that a function changed.
func changeCopy(o *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	c := o.DeepCopy()
	change(c)
	return c
}

func TestWhichRequestsAreKept(t *testing.T) {
	conf := newObject("ConfigMap", "conf", "10", map[string]any{"a": "1"})
	edited := changeCopy(conf, func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "2"} })
	unplaced := func(o *unstructured.Unstructured) *unstructured.Unstructured {
		return changeCopy(o, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) })
	}
	policy := changeCopy(unplaced(conf), func(o *unstructured.Unstructured) {
		o.SetAPIVersion("atoll.dev/v1alpha1")
		o.SetKind("PropagationPolicy")
	})
	bundle := changeCopy(policy, func(o *unstructured.Unstructured) { o.SetKind("Bundle") })
	going := changeCopy(conf, func(o *unstructured.Unstructured) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
	for name, c := range map[string]struct {
		write testWrite
		want  history.Operation
	}{
		"an edit":                           {testWrite{user: "ann", before: conf, now: edited}, history.Edited},
		"a deletion":                        {testWrite{user: "ann", verb: "delete", before: conf}, history.Deleted},
		"an edit of a policy":               {testWrite{user: "ann", before: policy, now: changeCopy(policy, func(o *unstructured.Unstructured) { o.Object["spec"] = "x" })}, history.Edited},
		"an edit by which it is placed":     {testWrite{user: "ann", before: unplaced(conf), now: edited}, history.Edited},
		"a label":                           {testWrite{user: "ann", before: conf, now: changeCopy(conf, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) })}, history.Edited},
		"an edit of the hub":                {testWrite{user: "hub", before: conf, now: edited}, ""},
		"a dry run":                         {testWrite{user: "ann", before: conf, now: edited, dryRun: true}, ""},
		"a conflict":                        {testWrite{user: "ann", before: conf, now: edited, code: http.StatusConflict}, ""},
		"a quota that refuses":              {testWrite{user: "ann", before: conf, now: edited, code: http.StatusForbidden}, ""},
		"a status":                          {testWrite{user: "ann", before: conf, now: edited, subresource: "status"}, ""},
		"an edit that changes nothing":      {testWrite{user: "ann", before: conf, now: conf.DeepCopy()}, ""},
		"a deletion that is under way":      {testWrite{user: "ann", verb: "delete", before: going}, ""},
		"an edit of an object that goes":    {testWrite{user: "ann", before: going, now: edited}, ""},
		"an object that is not placed":      {testWrite{user: "ann", before: unplaced(conf), now: unplaced(edited)}, ""},
		"an object of the hub's own":        {testWrite{user: "ann", before: bundle, now: changeCopy(bundle, func(o *unstructured.Unstructured) { o.Object["spec"] = "x" })}, ""},
		"a creation":                        {testWrite{user: "ann", verb: "create", now: conf}, ""},
		"a change of the server's metadata": {testWrite{user: "ann", before: conf, now: changeCopy(conf, func(o *unstructured.Unstructured) { o.SetGeneration(3); o.SetFinalizers(nil) })}, ""},
	} {
		k, hub := newTestKeeper(mayAll)
		k.sendRequest(t, c.write)
		kept := hub.keptChanges(t)
		switch {
		case c.want == "" && len(kept) > 0:
			t.Errorf("%s is kept: %+v", name, kept[0])
		case c.want != "" && (len(kept) != 1 || kept[0].Operation != c.want || kept[0].By != "ann" || kept[0].Revision != "10" || kept[0].NamespaceUID != "uid-shop"):
			t.Errorf("%s: %+v", name, kept)
		case c.want != "" && hub.writes != 1:
			t.Errorf("%s costs %d writes", name, hub.writes)
		}
	}
}

func TestTheKeptContent(t *testing.T) {
	k, hub := newTestKeeper(mayAll)
	conf := newObject("ConfigMap", "conf", "10", map[string]any{"a": "1", "b": int64(2)})
	conf.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: "Apply"}})
	conf.Object["status"] = "s"
	edited := changeCopy(conf, func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "2", "b": int64(2)} })
	k.sendRequest(t, testWrite{user: strings.Repeat("u", 300), before: conf, now: edited})
	c := hub.keptChanges(t)[0]
	if len(c.By) > maxUserBytes || !slices.Equal(c.Fields, []string{"/data/a"}) || c.MoreFields != 0 || c.Resource != "things" {
		t.Errorf("%+v", c)
	}
	content, err := history.DecodeContent(hub.secrets[c.ID].Data[dataContent])
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "conf", "namespace": "shop"}, "data": map[string]any{"a": "1", "b": int64(2)}}
	if fmt.Sprint(content.Object) != fmt.Sprint(want) || len(content.ManagedFields) != 1 || fmt.Sprint(content.Changed) != "map[data:map[a:map[]]]" {
		t.Errorf("%+v", content)
	}
}

// The request that succeeds at a resourceVersion is kept with its author. A repeated attempt replaces the former
// one.
func TestAttemptsAtOneRevision(t *testing.T) {
	k, hub := newTestKeeper(mayAll)
	conf := newObject("ConfigMap", "conf", "10", map[string]any{"a": "1"})
	edit := func(user, value string, code int) testWrite {
		return testWrite{user: user, before: conf, code: code, now: changeCopy(conf, func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": value} })}
	}
	k.sendRequest(t, edit("ann", "2", 0))
	k.sendRequest(t, edit("bob", "3", http.StatusConflict))
	if kept := hub.keptChanges(t); len(kept) != 1 || kept[0].By != "ann" {
		t.Errorf("%+v", kept)
	}
	later := edit("eve", "9", 0)
	later.before, later.now = later.before.DeepCopy(), later.now.DeepCopy()
	later.before.SetResourceVersion("20")
	k.sendRequest(t, edit("eve", "8", 0), later)
	if kept := hub.keptChanges(t); len(kept) != 2 || kept[1].Revision != "20" || kept[1].By != "eve" {
		t.Errorf("an attempt that was repeated: %+v", kept)
	}
}

func TestADeletionOfManyObjectsKeepsEach(t *testing.T) {
	k, hub := newTestKeeper(mayAll)
	var all []testWrite
	for n := range 30 {
		all = append(all, testWrite{user: "ann", verb: "deletecollection", before: newObject("ConfigMap", fmt.Sprint("c", n), "10", map[string]any{"a": "1"})})
	}
	k.sendRequest(t, all...)
	if n := hub.countSecrets(); n != 30 {
		t.Errorf("%d deletions are kept", n)
	}
	// A deletion of many that failed keeps those that were deleted all the same.
	k, hub = newTestKeeper(mayAll)
	hub.deleted["c3"] = true
	all[0].code = http.StatusInternalServerError
	k.sendRequest(t, all...)
	if kept := hub.keptChanges(t); len(kept) != 1 || kept[0].Object.Name != "c3" {
		t.Errorf("of a deletion that failed: %+v", kept)
	}
}

// A deletion of many objects holds no more contents than a namespace may keep.
func TestADeletionOfManyObjectsHoldsABoundedSize(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	c := &captures{}
	k, _ := newTestKeeper(mayAll)
	for n := range 12 {
		text := make([]byte, 700<<10)
		random.Read(text)
		obj := newObject("ConfigMap", fmt.Sprint("c", n), "10", map[string]any{"a": base64.StdEncoding.EncodeToString(text)})
		w := testWrite{user: "ann", verb: "deletecollection", before: obj}
		ctx := context.WithValue(t.Context(), capturesKey{}, c)
		if err := k.Validate(ctx, w.buildAttributes(), nil); err != nil {
			t.Fatal(err)
		}
	}
	held := 0
	for _, one := range c.byObject {
		held += len(one.content)
	}
	dropped, _ := c.countDropped()
	if held > history.MaxNamespaceBytes+history.MaxObjectBytes || held != c.bytes || len(c.byObject)+dropped != 12 || dropped == 0 {
		t.Errorf("%d bytes are held of %d objects, and %d are dropped", held, len(c.byObject), dropped)
	}
}

// An attempt that failed is forgotten, also when the object is being deleted or not placed at the next one.
func TestAnAttemptThatFailedIsForgotten(t *testing.T) {
	conf := newObject("ConfigMap", "conf", "10", map[string]any{"a": "1"})
	edited := changeCopy(conf, func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "2"} })
	for name, change := range map[string]func(*unstructured.Unstructured){
		"an object that goes":          func(o *unstructured.Unstructured) { now := metav1.Now(); o.SetDeletionTimestamp(&now) },
		"an object no longer placed":   func(o *unstructured.Unstructured) { o.SetFinalizers(nil) },
		"an object that is so already": func(o *unstructured.Unstructured) { o.Object["data"] = map[string]any{"a": "2"} },
	} {
		k, hub := newTestKeeper(mayAll)
		k.sendRequest(t, testWrite{user: "ann", before: conf, now: edited}, testWrite{user: "ann", before: changeCopy(conf, change), now: changeCopy(edited, change)})
		if kept := hub.keptChanges(t); len(kept) != 0 {
			t.Errorf("%s: %+v", name, kept[0])
		}
	}
}

// The creation of an object whose deletion is kept is kept, so that it can be undone.
func TestACreationAfterADeletion(t *testing.T) {
	k, hub := newTestKeeper(mayAll)
	conf := newObject("ConfigMap", "conf", "10", map[string]any{"a": "1"})
	k.sendRequest(t, testWrite{user: "ann", verb: "delete", before: conf})
	k.sendRequest(t, testWrite{user: "bob", verb: "create", now: conf})
	k.sendRequest(t, testWrite{user: "bob", verb: "create", now: newObject("ConfigMap", "new", "", nil)})
	kept := hub.keptChanges(t)
	if len(kept) != 2 || kept[1].Operation != history.Created || kept[1].Revision != "11" || kept[1].By != "bob" {
		t.Errorf("%+v", kept)
	}
}

func TestAScaleIsKeptFromTheTable(t *testing.T) {
	web := newObject("Deployment", "web", "10", nil)
	web.SetAPIVersion("apps/v1")
	web.Object["spec"] = map[string]any{"replicas": int64(2)}
	scale := newObject("Scale", "web", "10", nil)
	write := testWrite{
		user: "ann", subresource: "scale", before: scale, now: scale, kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
	}
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	k, hub := newTestKeeper(mayAll)
	hub.templates[key] = web
	k.sendRequest(t, write)
	if kept := hub.keptChanges(t); len(kept) != 1 || kept[0].Object != key || !slices.Equal(kept[0].Fields, []string{"/spec/replicas"}) {
		t.Errorf("%+v", kept)
	}
	for name, table := range map[string]*unstructured.Unstructured{
		"a table that is behind": changeCopy(web, func(o *unstructured.Unstructured) { o.SetResourceVersion("9") }), "an unplaced object": changeCopy(web, func(o *unstructured.Unstructured) { o.SetFinalizers(nil) }),
	} {
		k, hub := newTestKeeper(mayAll)
		hub.templates[key] = table
		if k.sendRequest(t, write); hub.countSecrets() != 0 {
			t.Errorf("%s: a change is kept", name)
		}
	}
}

// A store that takes no write, or a content that is too large, fails no request and leaves no change in the index.
func TestAChangeThatCannotBeKept(t *testing.T) {
	conf := newObject("ConfigMap", "conf", "10", map[string]any{"a": "1"})
	k, hub := newTestKeeper(mayAll)
	hub.failCreate = errors.New("the store is full")
	k.sendRequest(t, testWrite{user: "ann", verb: "delete", before: conf})
	if k.lastChange(keyOfConf) != nil || readIndex(k, (*history.Index).Bytes) != 0 {
		t.Error("a change that is not in the store is in the index")
	}
	k, hub = newTestKeeper(mayAll)
	hub.undoWindow = 0
	if k.sendRequest(t, testWrite{user: "ann", verb: "delete", before: conf}); hub.countSecrets() != 0 {
		t.Error("a change is kept without a window")
	}
	k, hub = newTestKeeper(mayAll)
	large := newObject("ConfigMap", "conf", "10", map[string]any{"a": strings.Repeat("x", history.MaxContentBytes)})
	if k.sendRequest(t, testWrite{user: "ann", verb: "delete", before: large}); hub.countSecrets() != 0 {
		t.Error("a content that is too large is kept")
	}
}

var keyOfConf = atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
