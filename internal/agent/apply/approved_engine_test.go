package apply

import (
	"net/http"
	"testing"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// newApprovedEngine returns an engine on an API that has compared an item under drift: Approve, and then got the approval
// of its drift. manifest completes the manifest with the approval; nil: it stays. id is the ID of the drift.
func newApprovedEngine(t *testing.T, api http.Handler, item atoll.RenderedItem, records []ownership.Record, manifest func(*atoll.Manifest)) (e *stubEngine, id string) {
	t.Helper()
	e = newStubEngine(t, api, records, newManifest("b1", 1, item))
	e.access.age = 0
	expectFailure(t, e.workOnKey(t.Context(), item.Key), nil)
	if id = e.recordOf(item.Key).DriftID; !atoll.IsDriftID(id) {
		t.Fatalf("the ID of the drift is %q", id)
	}
	m := newManifest("b1", 2, withApproval(item, id))
	if manifest != nil {
		manifest(&m)
	}
	if err := e.UpsertManifest(t.Context(), m, store.Position{}); err != nil {
		t.Fatal(err)
	}
	e.takeCalls()
	return e, id
}
