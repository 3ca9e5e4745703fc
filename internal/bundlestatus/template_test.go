package bundlestatus

import (
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
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
