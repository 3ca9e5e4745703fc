package apply

import (
	"testing"
	"time"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// A manifest with a namespace and without an item makes the namespace, makes it again when it is gone, and reports it.
func TestANamespaceIsMadeWithoutAnItem(t *testing.T) {
	key := atoll.NamespaceKey("shop")
	const path = "/api/v1/namespaces/shop"
	m := newManifest("b1", 1)
	m.Namespace, m.Namespaces = "shop", map[string]atoll.NamespaceMeta{"shop": {Labels: map[string]string{"team": "web"}}}
	status := func(e *MemberApplier) atoll.RowStatus {
		s, _ := e.StatusOf("b1", nil, time.Now())
		return s
	}
	api := newMemoryMember(t)
	delete(api.objects, path)
	e := engineOn(t, api, ownership.Record{Key: atoll.NamespaceKey("other"), Implicit: true, UID: "o"}, m)
	if s := status(e); s.Applied || s.Total != 1 || s.State == atoll.RowReady {
		t.Errorf("before it is made: %+v", s)
	}
	for _, when := range []string{"at first", "after a deletion in the member"} {
		if delete(api.objects, path); when != "at first" {
			e.ensureTask(key).check = true
		}
		if f := e.workOnKey(t.Context(), key); f != nil {
			t.Fatalf("%s: %+v", when, f)
		}
		api.expectWrites(t, "APPLY shop "+atoll.FieldManager)
		if s := status(e); !s.Applied || s.Ready != 1 || s.State != atoll.RowReady {
			t.Errorf("%s: %+v", when, s)
		}
	}
	m.Generation, m.Remove, m.Namespaces = 2, true, nil
	e.foldHolding(ownership.BundleHolding{Manifest: m}, nil)
	if f := e.workOnKey(t.Context(), key); f != nil {
		t.Fatalf("%+v", f)
	}
	if s := status(e); s.State != atoll.RowRemoved || !s.NamespaceKept {
		t.Errorf("the row is removed, and the namespace is not deleted on the hub: %+v", s)
	}
	m.Generation, m.DeletedNamespaces = 3, []string{"shop"}
	e.foldHolding(ownership.BundleHolding{Manifest: m}, nil)
	api.expectWrites(t)
	e.workOnKey(t.Context(), key)
	api.expectWrites(t, "DELETE shop")
}

// A foreign namespace counts as made.
func TestAForeignNamespaceIsEnough(t *testing.T) {
	m := newManifest("b1", 1)
	m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {}}
	api := newMemoryMember(t)
	e := engineOn(t, api, ownership.Record{Key: atoll.NamespaceKey("other"), Implicit: true, UID: "o"}, m)
	if f := e.workOnKey(t.Context(), atoll.NamespaceKey("shop")); f != nil {
		t.Fatalf("%+v", f)
	}
	api.expectWrites(t)
	if s, _ := e.StatusOf("b1", nil, time.Now()); !s.Applied || s.State != atoll.RowReady {
		t.Errorf("%+v", s)
	}
}

// A namespace that users deleted and created again in the member is foreign. The next try after the refused
// edit finds that out.
func TestANamespaceThatUsersCreatedAgainIsForeign(t *testing.T) {
	m := newManifest("b1", 1)
	m.Namespaces = map[string]atoll.NamespaceMeta{"shop": {Labels: map[string]string{"team": "web"}}}
	api := newMemoryMember(t)
	api.objects["/api/v1/namespaces/shop"]["metadata"].(map[string]any)["uid"] = "theirs"
	e := engineOn(t, api, shopNamespace, m)
	if f := e.workOnKey(t.Context(), shopNamespace.Key); reasonOf(f) != atoll.ReasonConflict {
		t.Errorf("the edit fails with %+v, want %s", f, atoll.ReasonConflict)
	}
	if f := e.workOnKey(t.Context(), shopNamespace.Key); f != nil {
		t.Errorf("the next try fails with %+v", f)
	}
	api.expectWrites(t)
	if r, _ := e.book.Record(shopNamespace.Key); r.UID != "" {
		t.Errorf("the record is %+v", r)
	}
	if s, _ := e.StatusOf("b1", nil, time.Now()); !s.Applied || s.State != atoll.RowReady {
		t.Errorf("the status is %+v", s)
	}
}
