package bundlestatus

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/state"
)

// Reports list only what differs: an item that an applied row does not list is healthy, unless the report had no
// space for all. Any other row is stale about it.
func TestItemsThatARowDoesNotList(t *testing.T) {
	for what, tc := range map[string]struct {
		status *atoll.RowStatus
		item   atoll.ItemState
		want   kinds.RowItem
	}{
		"applied":                    {&atoll.RowStatus{Generation: 2, State: atoll.RowReady, Applied: true}, "", kinds.RowItem{Health: atoll.Healthy}},
		"failed, for other items":    {&atoll.RowStatus{Generation: 2, State: atoll.RowFailed}, "", kinds.RowItem{Health: atoll.Healthy}},
		"an order over a frame":      {&atoll.RowStatus{Generation: 2, State: atoll.RowFailed, Reason: atoll.ReasonOrderTooLarge}, "", kinds.RowItem{Stale: true}},
		"an order over the memory":   {&atoll.RowStatus{Generation: 2, State: atoll.RowFailed, Reason: atoll.ReasonAgentMemoryFull}, "", kinds.RowItem{Stale: true}},
		"more items are not ready":   {&atoll.RowStatus{Generation: 2, State: atoll.RowProgressing, Applied: true, UnlistedNotReady: 1}, "", kinds.RowItem{Health: atoll.Unknown}},
		"a removal that is held":     {&atoll.RowStatus{Generation: 2, State: atoll.RowReady, Applied: true}, atoll.ItemRemovalHeld, kinds.RowItem{Stale: true}},
		"not applied yet":            {&atoll.RowStatus{Generation: 2, State: atoll.RowProgressing}, "", kinds.RowItem{Stale: true}},
		"a report of an older order": {&atoll.RowStatus{Generation: 1, State: atoll.RowReady, Applied: true}, "", kinds.RowItem{Stale: true}},
		"no report":                  {nil, "", kinds.RowItem{Stale: true}},
	} {
		row := Row{Row: state.Row{Cluster: "a", Spec: atoll.RowSpec{Generation: 2}, Status: tc.status}, Reachable: true}
		tc.want.Cluster = "a"
		if got := rowItem(row, &atoll.Item{Key: webKey, State: tc.item}, nil); got.Health != tc.want.Health || got.Stale != tc.want.Stale || got.Cluster != tc.want.Cluster || got.Disconnected {
			t.Errorf("%s: %+v, want %+v", what, got, tc.want)
		}
	}
}

// Clusters report the same of an item when all of it is the same: also both their shares, or that neither has one.
func TestReportsThatAreTheSame(t *testing.T) {
	share := func(n int64) *int64 { return &n }
	for what, tc := range map[string]struct {
		a, b kinds.RowItem
		want bool
	}{
		"no shares":                {kinds.RowItem{}, kinds.RowItem{}, true},
		"equal shares":             {kinds.RowItem{Assigned: share(2)}, kinds.RowItem{Assigned: share(2)}, true},
		"other shares":             {kinds.RowItem{Assigned: share(2)}, kinds.RowItem{Assigned: share(3)}, false},
		"one has a share":          {kinds.RowItem{Assigned: share(0)}, kinds.RowItem{}, false},
		"other clusters":           {kinds.RowItem{Cluster: "a"}, kinds.RowItem{Cluster: "b"}, true},
		"other statuses":           {kinds.RowItem{Reflected: []byte("{}")}, kinds.RowItem{}, false},
		"other health":             {kinds.RowItem{Health: atoll.Healthy}, kinds.RowItem{Health: atoll.Degraded}, false},
		"other reasons":            {kinds.RowItem{Reason: "a"}, kinds.RowItem{Reason: "b"}, false},
		"other messages":           {kinds.RowItem{Message: "a"}, kinds.RowItem{Message: "b"}, false},
		"one is disconnected":      {kinds.RowItem{Disconnected: true}, kinds.RowItem{}, false},
		"one is of older contents": {kinds.RowItem{Stale: true}, kinds.RowItem{}, false},
	} {
		if sameReport(tc.a, tc.b) != tc.want || sameReport(tc.b, tc.a) != tc.want {
			t.Errorf("%s: the same is %t", what, !tc.want)
		}
	}
}

// Reports from which no status follows are read once: a Bundle of many objects costs little where nothing changed.
func TestReportsWithoutAStatusAreReadOnce(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	m.apply("a")
	r := New(m.newConfig())
	reads := 0
	r.aggregate = func(script.Interpreters, *unstructured.Unstructured, bool, []kinds.RowItem, int64, int64) (map[string]any, bool, error) {
		reads++
		return nil, false, nil
	}
	for want := 1; want <= 2; want++ {
		for range 3 {
			if _, err := r.reconcileBundle(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
		}
		if reads != want {
			t.Errorf("after %d reports they were read %d times", want, reads)
		}
		m.reportAvailable("a", 1)
	}
}
