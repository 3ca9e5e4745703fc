package state

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// driftedTables returns tables in which clusters a and b report drift of as many objects, and the IDs of a's drift.
func driftedTables(t *testing.T, objects int, edit func(spec *atoll.RowSpec, ids []string)) (*HubTables, []string) {
	t.Helper()
	rows, _ := newTestRows(t)
	tables := &HubTables{Rows: rows, Drifted: newDriftedRows(rows)}
	var ids []string
	reports := map[string]atoll.RowStatus{}
	for _, cluster := range []string{"a", "b"} {
		status := atoll.RowStatus{Generation: 1, Seq: 1, State: atoll.RowReady, Applied: true, Since: 9, Total: int32(objects), Ready: int32(objects), Drifted: int32(objects)}
		for i := range objects {
			id := fmt.Sprintf("%s%015x", cluster, i)
			if cluster == "a" {
				ids = append(ids, id)
			}
			key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("c%02d", i)}
			status.Items = append(status.Items, atoll.ItemStatus{Key: key, Health: atoll.Healthy, Drift: &atoll.Drift{Missing: true, ID: id}})
		}
		reports["uid-"+cluster] = status
	}
	specs := rowSpecsFor("a", "b")
	if edit != nil {
		edit(specs["a"], ids)
	}
	if err := rows.WriteSpecs(t.Context(), testRef, nil, specs); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteStatuses(t.Context(), "b1", reports); err != nil {
		t.Fatal(err)
	}
	return tables, ids
}

func approveAll(spec *atoll.RowSpec, ids []string) {
	for i, id := range ids {
		spec.Approvals = append(spec.Approvals, atoll.DriftApproval{Item: fmt.Sprintf("/ConfigMap/shop/c%02d", i), ID: id})
	}
}

// An order is for drift that a cluster of the Bundle reports, and a row has few approvals.
func TestCheckDriftOrder(t *testing.T) {
	tables, ids := driftedTables(t, 2, nil)
	const gone = "00000000000000aa"
	for name, c := range map[string]struct {
		bundle string
		ids    []string
		want   string
	}{
		"reported":           {"b1", ids[:1], ""},
		"one of two":         {"b1", []string{gone, ids[1]}, ""},
		"not reported":       {"b1", []string{gone}, "no cluster reports this drift now"},
		"of another Bundle":  {"b2", ids, "no cluster reports this drift now"},
		"no ID":              {"b1", []string{""}, "no cluster reports this drift now"},
		"of several objects": {"b1", ids, ""},
	} {
		err := tables.CheckDriftOrder(c.bundle, atoll.DriftOrder{IDs: c.ids})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full, ids := driftedTables(t, atoll.MaxRowApprovals+1, func(spec *atoll.RowSpec, ids []string) { approveAll(spec, ids[:atoll.MaxRowApprovals]) })
	if err := full.CheckDriftOrder("b1", atoll.DriftOrder{IDs: ids[:1]}); err != nil {
		t.Errorf("drift that is approved already: %v", err)
	}
	if err := full.CheckDriftOrder("b1", atoll.DriftOrder{IDs: ids}); err == nil || !strings.Contains(err.Error(), "cluster a has not answered 64 approvals") {
		t.Errorf("one approval too many: %v", err)
	}
}

// Earlier orders are kept while a cluster reports the drift and no row has the approval.
func TestPendingDriftOrders(t *testing.T) {
	tables, ids := driftedTables(t, 2, func(spec *atoll.RowSpec, ids []string) { approveAll(spec, ids[:1]) })
	got := tables.PendingDriftOrders("b1", []atoll.DriftOrder{{IDs: ids, By: "alice"}, {IDs: ids[:1], By: "bob"}, {IDs: []string{"00000000000000aa"}, By: "eve"}})
	if want := []atoll.DriftOrder{{IDs: ids[1:], By: "alice"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
