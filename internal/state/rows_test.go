package state

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
)

var testRef = enginev1.BundleRef{UID: "b1", Namespace: "shop", Name: "web"}

func newTestRows(t *testing.T) (*RowTable, client.Client) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(NewScheme()).WithStatusSubresource(&enginev1.TargetSlice{}).Build()
	return newRows(c), c
}

func rowSpecsFor(clusters ...string) map[string]*atoll.RowSpec {
	m := map[string]*atoll.RowSpec{}
	for _, c := range clusters {
		m[c] = &atoll.RowSpec{UID: "uid-" + c, Generation: 1, Revision: "r1", Phase: atoll.RowActive}
	}
	return m
}

func TestRowsReadTheirOwnWrites(t *testing.T) {
	rows, _ := newTestRows(t)
	var notified []string
	rows.Subscribe(func(bundle string, clusters []string) { notified = append(notified, fmt.Sprint(bundle, clusters)) })
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor("a", "b")); err != nil {
		t.Fatal(err)
	}
	if got := rows.ListOfBundle("b1"); len(got) != 2 || got[0].Cluster != "a" || got[0].Slice != "b1-0" {
		t.Fatalf("rows after the write: %+v", got)
	}
	if got := rows.ListOfCluster("uid-b"); len(got) != 1 || got[0].Bundle != testRef {
		t.Fatalf("rows of cluster b: %+v", got)
	}
	if len(notified) != 1 || notified[0] != "b1[a b]" {
		t.Fatalf("subscribers were notified of %q", notified)
	}
	if err := rows.WriteSpecs(t.Context(), testRef, rows.ListOfBundle("b1"), map[string]*atoll.RowSpec{"a": nil}); err != nil {
		t.Fatal(err)
	}
	if _, ok := rows.Get("b1", "a"); ok || len(rows.ListOfCluster("uid-a")) != 0 {
		t.Fatal("row a is still there after it was taken away")
	}
}

// The subscriber is notified of rows that are ordered again, came or went, and of none that only
// reported.
func TestReportsAreNoOrders(t *testing.T) {
	rows, _ := newTestRows(t)
	var notified string
	rows.SubscribeWithChangedOrders(func(_ string, clusters, ordered []string) { notified = fmt.Sprint(clusters, ordered) })
	slice := func(version, specs, statuses string, words ...string) *enginev1.TargetSlice {
		s := &enginev1.TargetSlice{}
		s.Name, s.UID, s.ResourceVersion, s.Spec.Bundle = "b1-0", "slice", version, testRef
		s.Spec.Rows, s.Spec.Words, s.Status.Rows = specs, words, statuses
		return s
	}
	line := func(cluster string, generation int64) string {
		spec := atoll.RowSpec{UID: "uid-" + cluster, Generation: generation, Revision: "r1", Phase: atoll.RowActive}
		return cluster + " " + rowcodec.EncodeSpec(spec, nil) + "\n"
	}
	report := func(cluster string, state atoll.RowState) string {
		st := atoll.RowStatus{UID: "uid-" + cluster, Generation: 1, Seq: 1, State: state}
		return cluster + " " + rowcodec.EncodeStatus(st, nil) + "\n"
	}
	for i, step := range []struct{ specs, statuses, want string }{
		{line("a", 1) + line("b", 1), "", "[a b] [a b]"},
		{line("a", 1) + line("b", 1), report("a", atoll.RowProgressing), "[a] []"},
		{line("a", 1) + line("b", 2), report("a", atoll.RowReady), "[a b] [b]"},
		{line("b", 2) + line("c", 1), "", "[a c] [a c]"},
	} {
		notified = ""
		if rows.put(slice(fmt.Sprint(i+1), step.specs, step.statuses)); notified != step.want {
			t.Errorf("step %d: notified %s, want %s", i, notified, step.want)
		}
	}
}

func TestWriteSpecsIsFenced(t *testing.T) {
	rows, c := newTestRows(t)
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor("a")); err != nil {
		t.Fatal(err)
	}
	base := rows.ListOfBundle("b1")
	if err := rows.WriteSpecs(t.Context(), testRef, base, map[string]*atoll.RowSpec{"a": {UID: "uid-a", Generation: 2, Phase: atoll.RowRemoving}}); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteSpecs(t.Context(), testRef, base, rowSpecsFor("a")); !errors.Is(err, ErrRowsMoved) {
		t.Fatalf("a write from old rows gave %v", err)
	}
	// Another leader writes behind this one's back: the store refuses.
	var s enginev1.TargetSlice
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
		t.Fatal(err)
	}
	s.Labels["other"] = "leader"
	if err := c.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteSpecs(t.Context(), testRef, rows.ListOfBundle("b1"), rowSpecsFor("z")); !errors.Is(err, ErrRowsMoved) {
		t.Fatalf("a write by a leader that lost touch gave %v", err)
	}
}

func TestNewRowsFillHolesAndStayPut(t *testing.T) {
	rows, _ := newTestRows(t)
	var names []string
	for i := range maxRowsPerSlice + 50 {
		names = append(names, fmt.Sprintf("c%04d", i))
	}
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor(names...)); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, r := range rows.ListOfBundle("b1") {
		before[r.Cluster] = r.Slice
	}
	if _, n := rows.EmptySlices("b1"); n != 2 {
		t.Fatalf("%d slices, want 2", n)
	}
	if err := rows.WriteSpecs(t.Context(), testRef, rows.ListOfBundle("b1"), map[string]*atoll.RowSpec{"c0007": nil}); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteSpecs(t.Context(), testRef, rows.ListOfBundle("b1"), rowSpecsFor("new")); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows.ListOfBundle("b1") {
		want := before[r.Cluster]
		if r.Cluster == "new" {
			want = before["c0007"]
		}
		if r.Slice != want {
			t.Fatalf("row %s is in %s, want %s", r.Cluster, r.Slice, want)
		}
	}
}

func TestStatusSeqNeverGoesBack(t *testing.T) {
	rows, _ := newTestRows(t)
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor("a", "b")); err != nil {
		t.Fatal(err)
	}
	report := func(uid string, seq int64, state atoll.RowState) {
		t.Helper()
		err := rows.WriteStatuses(t.Context(), "b1", map[string]atoll.RowStatus{uid: {Generation: 1, Seq: seq, State: state}})
		if err != nil {
			t.Fatal(err)
		}
	}
	report("uid-a", 7, atoll.RowReady)
	report("uid-a", 6, atoll.RowFailed)
	report("uid-of-none", 9, atoll.RowFailed)
	a, _ := rows.Get("b1", "a")
	b, _ := rows.Get("b1", "b")
	if a.Status == nil || a.Status.State != atoll.RowReady || a.Status.Seq != 7 || b.Status != nil {
		t.Fatalf("a: %+v, b: %+v", a.Status, b.Status)
	}
	// The cluster is created again under its name: the old one's reports are not the new one's.
	if err := rows.WriteSpecs(t.Context(), testRef, rows.ListOfBundle("b1"), map[string]*atoll.RowSpec{"a": {UID: "uid-a2", Generation: 2, Phase: atoll.RowActive}}); err != nil {
		t.Fatal(err)
	}
	if a, _ = rows.Get("b1", "a"); a.Status != nil {
		t.Fatalf("the new cluster begins with status %+v", a.Status)
	}
	report("uid-a2", 1, atoll.RowProgressing)
	if a, _ = rows.Get("b1", "a"); a.Status == nil || a.Status.Seq != 1 {
		t.Fatalf("the new cluster's first report: %+v", a.Status)
	}
}

func TestStatusWriteRereadsOnConflict(t *testing.T) {
	rows, c := newTestRows(t)
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor("a")); err != nil {
		t.Fatal(err)
	}
	var s enginev1.TargetSlice
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
		t.Fatal(err)
	}
	s.Spec.Rows += "b " + rowcodec.EncodeSpec(*rowSpecsFor("b")["b"], nil) + "\n"
	if err := c.Update(context.Background(), &s); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteStatuses(t.Context(), "b1", map[string]atoll.RowStatus{"uid-a": {Seq: 1, State: atoll.RowReady}}); err != nil {
		t.Fatal(err)
	}
	a, _ := rows.Get("b1", "a")
	if _, ok := rows.Get("b1", "b"); !ok || a.Status == nil {
		t.Fatal("the conflict lost a row or the report")
	}
}

// TestTwoLeadersWriteFromOneSnapshot: both read the same, one writes, then the other, which was
// stopped in between, goes on.
func TestTwoLeadersWriteFromOneSnapshot(t *testing.T) {
	old, c := newTestRows(t)
	if err := old.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor("a", "b", "c")); err != nil {
		t.Fatal(err)
	}
	var s enginev1.TargetSlice
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
		t.Fatal(err)
	}
	next := newRows(c)
	next.put(s.DeepCopy())
	base := old.ListOfBundle("b1")

	removing := map[string]*atoll.RowSpec{"a": {UID: "uid-a", Generation: 2, Revision: "r1", Phase: atoll.RowRemoving}, "b": nil}
	if err := next.WriteSpecs(t.Context(), testRef, next.ListOfBundle("b1"), removing); err != nil {
		t.Fatal(err)
	}
	newest := map[string]atoll.RowStatus{"uid-a": {Generation: 2, Seq: 9, State: atoll.RowRemoved}, "uid-c": {Generation: 1, Seq: 5, State: atoll.RowReady}}
	if err := next.WriteStatuses(t.Context(), "b1", newest); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(s.Spec.Rows, s.Status.Rows)

	late := []map[string]*atoll.RowSpec{
		{"a": {UID: "uid-a", Generation: 2, Revision: "r2", Phase: atoll.RowActive}}, // what is Removing
		{"b": {UID: "uid-b", Generation: 2, Revision: "r2", Phase: atoll.RowActive}}, // what is gone
		{"c": nil}, // untouched rows
		{"d": {UID: "uid-d", Generation: 1, Revision: "r2", Phase: atoll.RowActive}}, // what is new
	}
	for _, changes := range late {
		if err := old.WriteSpecs(t.Context(), testRef, base, changes); !errors.Is(err, ErrRowsMoved) {
			t.Fatalf("the stale leader wrote %v: %v", changes, err)
		}
	}
	stale := map[string]atoll.RowStatus{
		"uid-a": {Generation: 1, Seq: 8, State: atoll.RowReady}, "uid-b": {Generation: 1, Seq: 8, State: atoll.RowReady},
		"uid-c": {Generation: 1, Seq: 4, State: atoll.RowFailed},
	}
	if err := old.WriteStatuses(t.Context(), "b1", stale); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Spec.Rows, s.Status.Rows); got != want {
		t.Fatalf("the stale leader and its gateway changed\n%s\nto\n%s", want, got)
	}
	// It learned from the refusals what is, and may go on from there.
	if a, _ := old.Get("b1", "a"); a.Spec.Phase != atoll.RowRemoving || a.Status == nil || a.Status.Seq != 9 {
		t.Fatalf("the stale leader still sees %+v %+v", a.Spec, a.Status)
	}
	if _, ok := old.Get("b1", "b"); ok {
		t.Fatal("the stale leader still sees a row that is gone")
	}
}

// Rows on their way out are no load: a cluster has the pods of the rows that are to stay.
func TestPodsOfRowsThatStay(t *testing.T) {
	rows, _ := newTestRows(t)
	want := func(when, uid string, n int64) {
		t.Helper()
		if got := rows.RequestedPodsOf(uid); got != n {
			t.Errorf("%s: %s has %d, want %d", when, uid, got, n)
		}
	}
	write := func(ref enginev1.BundleRef, changes map[string]*atoll.RowSpec) {
		t.Helper()
		if err := rows.WriteSpecs(t.Context(), ref, rows.ListOfBundle(ref.UID), changes); err != nil {
			t.Fatal(err)
		}
	}
	phase := func(p atoll.RowPhase) map[string]*atoll.RowSpec {
		return map[string]*atoll.RowSpec{"a": {UID: "uid-a", Generation: 2, Revision: "r1 p", Reason: "a phase", Phase: p}}
	}
	other := enginev1.BundleRef{UID: "b2", Namespace: "shop", Name: "api"}
	write(testRef, rowSpecsFor("a", "b"))
	write(other, rowSpecsFor("a"))
	want("two come", "uid-a", 2)
	for _, p := range []atoll.RowPhase{atoll.RowLeaving, atoll.RowHeld, atoll.RowRemoving} {
		write(testRef, phase(p))
		want(string(p), "uid-a", 1)
	}
	write(testRef, phase(atoll.RowActive))
	want("it is back", "uid-a", 2)
	write(testRef, phase(atoll.RowRemoving))
	write(testRef, map[string]*atoll.RowSpec{"a": nil})
	want("it is gone", "uid-a", 1)
	write(testRef, phase(atoll.RowLeaving))
	want("one comes as it leaves", "uid-a", 1)
	moved := phase(atoll.RowActive)
	moved["a"].UID = "uid-new"
	write(testRef, moved)
	want("another cluster of that name", "uid-a", 1)
	want("another cluster of that name", "uid-new", 1)
	want("the other one", "uid-b", 1)
	write(other, map[string]*atoll.RowSpec{"a": nil})
	want("nothing is left", "uid-a", 0)
}
