package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

func driftedRow(n int) state.Row {
	status := &atoll.RowStatus{Generation: 2, Drifted: int32(n) + 5}
	for i := range n {
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("c", i)}
		status.Items = append(status.Items, atoll.ItemStatus{Key: key, Drift: &atoll.Drift{
			Total: 9, Fields: []atoll.DriftField{{Path: "/data/a", Live: "1", Wanted: "2", Managers: []string{"m"}, Since: 1_790_000_000}},
		}})
	}
	status.Items = append(status.Items, atoll.ItemStatus{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "failed"}, Error: true})
	return state.Row{Cluster: "oslo", Spec: atoll.RowSpec{Generation: 2}, Status: status}
}

// A row gives the drift of the objects that the user may read, in the bounds of an answer, and counts the rest.
func TestTheDriftOfARow(t *testing.T) {
	web := state.Bundle{Ref: enginev1.BundleRef{Namespace: "shop", Name: "web"}}
	all := &driftQuery{mayGet: func(k atoll.ItemKey) bool { return k.Name != "c1" }}
	all.addRow(web, driftedRow(3), true)
	if len(all.out.Objects) != 2 || all.out.More != 5 {
		t.Fatalf("%+v", all.out)
	}
	o := all.out.Objects[0]
	if o.Name != "c0" || o.Cluster != "oslo" || o.Bundle != "shop/web" || o.DifferentFields != 9 || o.Outdated || o.Disconnected || o.MissingSince != nil {
		t.Errorf("%+v", o)
	}
	if f := o.Fields[0]; f.Path != "/data/a" || f.Live != "1" || f.Wanted != "2" || f.Since.Unix() != 1_790_000_000 {
		t.Errorf("%+v", f)
	}
	late := driftedRow(1)
	late.Spec.Generation = 3
	one := &driftQuery{object: &late.Status.Items[0].Key, mayGet: func(atoll.ItemKey) bool { return true }}
	one.addRow(state.Bundle{Ref: enginev1.BundleRef{Name: "base"}}, late, false)
	if len(one.out.Objects) != 1 || one.out.More != 0 || one.bytes == 0 || !one.out.Objects[0].Outdated || !one.out.Objects[0].Disconnected || one.out.Objects[0].Bundle != "base" {
		t.Errorf("%+v", one.out)
	}
	absent := &driftQuery{object: &atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "hidden"}, mayGet: func(atoll.ItemKey) bool { return true }}
	if absent.addRow(web, driftedRow(1), true); len(absent.out.Objects) != 0 || absent.out.More != 5 {
		t.Errorf("an object that may be among those without room: %+v", absent.out)
	}
	full := &driftQuery{mayGet: func(atoll.ItemKey) bool { return true }, bytes: maxDriftBytes}
	if full.addRow(web, driftedRow(2), true); len(full.out.Objects) != 0 || full.out.More != 2+5 {
		t.Errorf("a full answer: %+v", full.out)
	}
	many := &driftQuery{mayGet: func(atoll.ItemKey) bool { return true }}
	many.addRow(web, driftedRow(maxDriftedObjects+7), true)
	if len(many.out.Objects) != maxDriftedObjects || many.out.More != 7+5 {
		t.Errorf("%d objects and %d more", len(many.out.Objects), many.out.More)
	}
}

// Drift that a person may approve has its ID, and the approval that its cluster has not answered.
func TestTheApprovalOfADrift(t *testing.T) {
	const id = "0123456789abcdef"
	row := driftedRow(3)
	row.Status.Items[0].Drift.ID, row.Status.Items[1].Drift.ID = id, id[1:]+"0"
	row.Spec.Approvals = []atoll.DriftApproval{
		{Item: row.Status.Items[0].Key.String(), ID: id, By: "alice", At: 1_790_000_000}, {Item: row.Status.Items[1].Key.String(), ID: id, By: "bob"},
	}
	q := &driftQuery{mayGet: func(atoll.ItemKey) bool { return true }}
	q.addRow(state.Bundle{}, row, true)
	first, second, third := q.out.Objects[0], q.out.Objects[1], q.out.Objects[2]
	if a := first.Approval; first.ID != id || a == nil || a.By != "alice" || a.At.Unix() != 1_790_000_000 {
		t.Errorf("approved: %+v", first)
	}
	if second.ID == "" || second.Approval != nil || third.ID != "" || third.Approval != nil {
		t.Errorf("other drift was approved: %+v; only reported: %+v", second, third)
	}
}

// A row without a report of its latest content says nothing of drift.
func TestRowsWithoutAComparison(t *testing.T) {
	row := func(phase atoll.RowPhase, st *atoll.RowStatus) state.Row {
		return state.Row{Spec: atoll.RowSpec{Phase: phase, Generation: 2, Revision: "r2"}, Status: st}
	}
	for name, c := range map[string]struct {
		row  state.Row
		want bool
	}{
		"no report":                      {row(atoll.RowActive, nil), false},
		"a report of the content before": {row(atoll.RowActive, &atoll.RowStatus{Generation: 1, Applied: true}), false},
		"not all objects are compared":   {row(atoll.RowActive, &atoll.RowStatus{Generation: 2}), false},
		"all objects are compared":       {row(atoll.RowActive, &atoll.RowStatus{Generation: 2, Applied: true}), true},
		"a row that goes has no content": {row(atoll.RowRemoving, nil), true},
	} {
		if got := hasComparedRevision(c.row, "r2"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if hasComparedRevision(row(atoll.RowActive, &atoll.RowStatus{Generation: 2, Applied: true}), "r3") {
		t.Error("a row of an older revision is compared with the latest")
	}
	ready := state.Bundle{}
	ready.Status.Revision, ready.Status.Clusters.Desired, ready.Status.Clusters.Ready = "r2", 3, 3
	if !isReadyAt(ready, "r2") || isReadyAt(ready, "r3") {
		t.Error("a status of an older revision counts for the latest")
	}
	key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}
	content := &atoll.Content{Items: []atoll.Item{{Key: key, Treatment: &atoll.Treatment{Drift: "Report"}}, {Key: atoll.ItemKey{Name: "other"}, Treatment: &atoll.Treatment{Update: "ReadOnly"}}}}
	if (&driftQuery{object: &content.Items[1].Key}).hasDriftObservedItem(content) || !(&driftQuery{object: &key}).hasDriftObservedItem(content) || !(&driftQuery{}).hasDriftObservedItem(content) {
		t.Error("the content's observed objects are others")
	}
}

// A list of drift counts its memory for the user, and refuses what it has no answer for.
func TestListsOfDriftReserveMemory(t *testing.T) {
	reserved, released := int64(0), 0
	s := &Server{
		Sources: func() (Sources, bool) { return Sources{}, false },
		ReserveMemory: func(_, _ string, n int64) (func(), error) {
			reserved += n
			return func() { released++ }, nil
		},
	}
	for _, c := range []struct {
		method, query string
		code          int
	}{{http.MethodGet, "", http.StatusServiceUnavailable}, {http.MethodPost, "", http.StatusMethodNotAllowed}, {http.MethodGet, "?colour=blue", http.StatusBadRequest}} {
		r := httptest.NewRequest(c.method, atoll.DriftPath+c.query, nil)
		r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "ann"}))
		w := httptest.NewRecorder()
		if s.ServeDrift(w, r); w.Code != c.code {
			t.Errorf("%s %q: status %d, want %d", c.method, c.query, w.Code, c.code)
		}
	}
	if reserved != driftMemory || released != 1 {
		t.Errorf("%d bytes reserved, %d times released", reserved, released)
	}
}
