package state

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
)

// A slice keeps large statuses up to its bound, and the health and the hash of all reports.
func TestSlicesWithLargeStatuses(t *testing.T) {
	rows, _ := newTestRows(t)
	var clusters []string
	reports := map[string]atoll.RowStatus{}
	for i := range 100 {
		name := fmt.Sprintf("c%03d", i)
		clusters = append(clusters, name)
		reports["uid-"+name] = atoll.RowStatus{Generation: 1, Seq: 1, State: atoll.RowReady, Applied: true, Total: 1, Ready: 1, Items: []atoll.ItemStatus{{
			Key: atoll.ItemKey{Group: "b.example", Kind: "Thing", Namespace: "shop", Name: "web"}, Health: atoll.Healthy,
			ReflectedStatus: json.RawMessage(`{"s":{"name":"` + name + strings.Repeat("x", 15_990) + `"}}`),
		}}}
	}
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor(clusters...)); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteStatuses(t.Context(), "b1", reports); err != nil {
		t.Fatal(err)
	}
	whole, left := 0, 0
	for _, r := range rows.ListOfBundle("b1") {
		if r.Status == nil || r.Status.Items[0].Health != atoll.Healthy {
			t.Fatalf("cluster %s: %v", r.Cluster, r.Status)
		}
		if session.StatusHash(*r.Status) != session.StatusHash(reports["uid-"+r.Cluster]) {
			t.Fatalf("cluster %s: the hub has another report than the agent", r.Cluster)
		}
		if r.Status.Items[0].HasLargeWholeStatus() {
			whole++
		} else {
			left++
		}
	}
	// The specs have less than 10,000 bytes, and a status has 16,014: 74 fit in 1,200,000.
	if whole != 74 || whole+left != 100 {
		t.Errorf("%d statuses are whole, %d are left out", whole, left)
	}
}
