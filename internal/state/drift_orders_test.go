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

// An order stays until a row has its approval, or until no row can have one.
func TestUntakenDriftOrders(t *testing.T) {
	const id, other, gone = "00000000000000aa", "00000000000000bb", "00000000000000cc"
	drifted := func(ids ...string) *atoll.RowStatus {
		s := &atoll.RowStatus{Generation: 2, Applied: true, Drifted: int32(len(ids))}
		for i, id := range ids {
			s.Items = append(s.Items, atoll.ItemStatus{Key: atoll.ItemKey{Kind: "ConfigMap", Name: fmt.Sprint(i)}, Drift: &atoll.Drift{ID: id}})
		}
		return s
	}
	row := func(status *atoll.RowStatus, approved ...string) Row {
		r := Row{Spec: atoll.RowSpec{Generation: 2}, Status: status}
		for _, id := range approved {
			r.Spec.Approvals = append(r.Spec.Approvals, atoll.DriftApproval{ID: id})
		}
		return r
	}
	old, unapplied, full := drifted(), drifted(), drifted(other)
	old.Generation, unapplied.Applied, full.Drifted = 1, false, 2
	for name, c := range map[string]struct {
		rows []Row
		want []string
	}{
		"reported":                  {[]Row{row(drifted(id, other))}, []string{id, other}},
		"one is taken":              {[]Row{row(drifted(id, other), id)}, []string{other}},
		"one is gone":               {[]Row{row(drifted(other))}, []string{other}},
		"all are gone":              {[]Row{row(drifted()), row(drifted())}, nil},
		"a row never reported":      {[]Row{row(drifted()), row(nil)}, []string{id, other, gone}},
		"a row is at an old report": {[]Row{row(drifted()), row(old)}, []string{id, other, gone}},
		"a row compares":            {[]Row{row(unapplied)}, []string{id, other, gone}},
		"a report without room":     {[]Row{row(full, id)}, []string{other, gone}},
		"no row":                    {nil, nil},
	} {
		got := UntakenDriftOrders([]atoll.DriftOrder{{IDs: []string{id, other}, By: "alice"}, {IDs: []string{gone}, By: "bob"}}, c.rows)
		var ids []string
		for _, o := range got {
			ids = append(ids, o.IDs...)
		}
		if !reflect.DeepEqual(ids, c.want) {
			t.Errorf("%s: %q, want %q", name, ids, c.want)
		}
	}
}
