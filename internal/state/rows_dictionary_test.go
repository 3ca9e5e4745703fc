package state

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rowcodec"
	"atoll.dev/atoll/internal/session"
)

// storedRows decodes what the store holds, as the CLI does.
func storedRows(t *testing.T, c client.Client) map[string]Row {
	t.Helper()
	var list enginev1.TargetSliceList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]Row{}
	for _, s := range list.Items {
		decoded, err := rowcodec.DecodeSlice(&s)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range decoded {
			r := Row{Bundle: s.Spec.Bundle, Cluster: d.Cluster, Slice: s.Name, Spec: d.Spec}
			if d.Status != nil && d.Status.UID == d.Spec.UID {
				r.Status, r.StatusHash = d.Status, session.StatusHash(*d.Status)
			}
			out[s.Spec.Bundle.UID+" "+d.Cluster] = r
		}
	}
	return out
}

// checkRowsAgree checks every way to read the table against the store.
func checkRowsAgree(t *testing.T, step string, rows *RowTable, want map[string]Row) {
	t.Helper()
	n, pods := 0, map[string]int64{}
	for _, w := range want {
		pods[w.Spec.UID] += max(w.Spec.RequestedPods, 1)
	}
	for uid, want := range pods {
		if got := rows.RequestedPodsOf(uid); got != want {
			t.Fatalf("%s: %s is to have %d pods, the store says %d", step, uid, got, want)
		}
	}
	for _, bundle := range rows.BundlesWithRows() {
		for _, got := range rows.ListOfBundle(bundle) {
			n++
			w := want[bundle+" "+got.Cluster]
			one, ok := rows.Get(bundle, got.Cluster)
			if !ok || !reflect.DeepEqual(one, w) {
				t.Fatalf("%s: Get of %s in %s gives\n%+v, the store has\n%+v", step, bundle, got.Cluster, one, w)
			}
			if got.StatusHash = w.StatusHash; !reflect.DeepEqual(got, w) {
				t.Fatalf("%s: %s in %s is\n%+v, the store has\n%+v", step, bundle, got.Cluster, got, w)
			}
			if !slices.ContainsFunc(rows.ListOfCluster(w.Spec.UID), func(r Row) bool { return reflect.DeepEqual(r, w) }) {
				t.Fatalf("%s: %s does not have %s", step, got.Cluster, bundle)
			}
		}
	}
	if n != len(want) {
		t.Fatalf("%s: %d rows, the store has %d", step, n, len(want))
	}
}

// The writing table, one that got the events and one that starts read the same from the store,
// after any writes; unused words do not pile up.
func TestTablesAgreeWithTheStore(t *testing.T) {
	rows, c := newTestRows(t)
	heard := newRows(c)
	rng := rand.New(rand.NewPCG(3, 4))
	refs := []enginev1.BundleRef{testRef, {UID: "b2", Name: "dns"}}
	for step := range 300 {
		ref, cluster := refs[rng.IntN(2)], fmt.Sprint("c", rng.IntN(8))
		old, had := rows.Get(ref.UID, cluster)
		spec := &atoll.RowSpec{
			UID: fmt.Sprint("uid-of-", cluster, "-", rng.IntN(2)), Generation: int64(step), Revision: fmt.Sprintf("%s-%d-hash", ref.UID, step/7),
			Phase: atoll.RowActive, Since: int64(step), Assigned: map[string]int64{"apps/Deployment/shop/web": int64(step)}, RequestedPods: rng.Int64N(4) * 7,
		}
		var base []Row
		if had {
			base = []Row{old}
		}
		var err error
		switch rng.IntN(5) {
		case 0:
			if had {
				err = rows.WriteSpecs(t.Context(), ref, base, map[string]*atoll.RowSpec{cluster: nil})
			}
		case 1, 2:
			err = rows.WriteSpecs(t.Context(), ref, base, map[string]*atoll.RowSpec{cluster: spec})
		default:
			err = rows.WriteStatuses(t.Context(), ref.UID, map[string]atoll.RowStatus{old.Spec.UID: {
				Generation: old.Spec.Generation, Seq: int64(step + 1), State: atoll.RowProgressing, Reason: atoll.Reason(fmt.Sprint("Reason", step)), Total: 2,
			}})
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		var list enginev1.TargetSliceList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		anew, want := newRows(c), storedRows(t, c)
		for i := range list.Items {
			heard.put(list.Items[i].DeepCopy())
			anew.put(&list.Items[i])
			if n := len(list.Items[i].Spec.Words) + len(list.Items[i].Status.Words); n > 40 {
				t.Fatalf("step %d: %d words", step, n)
			}
		}
		for who, table := range map[string]*RowTable{"writer": rows, "follower": heard, "started": anew} {
			checkRowsAgree(t, fmt.Sprint("step ", step, ", ", who), table, want)
		}
	}
}

// An unreadable row of a newer hub stays in the slice.
func TestOddRowsStay(t *testing.T) {
	rows, c := newTestRows(t)
	if err := rows.WriteSpecs(t.Context(), testRef, nil, rowSpecsFor("a", "b")); err != nil {
		t.Fatal(err)
	}
	var s enginev1.TargetSlice
	read := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Name: "b1-0"}, &s); err != nil {
			t.Fatal(err)
		}
	}
	read()
	s.Spec.Rows = strings.TrimSpace(s.Spec.Rows) + " Zfuture\nnew r~99\n"
	if err := c.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	s.Status.Rows = "new p~98\n"
	if err := c.Status().Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	rows.put(s.DeepCopy())
	if err := rows.WriteSpecs(t.Context(), testRef, rows.ListOfBundle("b1"), map[string]*atoll.RowSpec{"a": nil}); err != nil {
		t.Fatal(err)
	}
	if err := rows.WriteStatuses(t.Context(), "b1", map[string]atoll.RowStatus{"uid-b": {Seq: 1, State: atoll.RowReady}}); err != nil {
		t.Fatal(err)
	}
	read()
	if len(rows.ListOfBundle("b1")) != 1 || !strings.HasSuffix(s.Spec.Rows, " Zfuture\nnew r~99\n") || !strings.HasSuffix(s.Status.Rows, "\nnew p~98\n") || strings.Contains(s.Spec.Rows, "a u") {
		t.Errorf("%d rows; stored: %q, %q", len(rows.ListOfBundle("b1")), s.Spec.Rows, s.Status.Rows)
	}
}

// healthySlice has n rows of a Deployment that is healthy everywhere.
func healthySlice(bundle, first, n int) *enginev1.TargetSlice {
	uid := fmt.Sprintf("5f0c9f6e-8f57-4a4f-9d1c-%012x", bundle)
	s := &enginev1.TargetSlice{Spec: enginev1.TargetSliceSpec{
		Bundle: enginev1.BundleRef{UID: uid, Namespace: fmt.Sprintf("app-%04d", bundle), Name: "web-policy"},
	}}
	s.Name, s.UID, s.ResourceVersion = fmt.Sprintf("%s-%d", uid, first/n), "6e0f7c3a-1b2c-4d3e-8f90-a1b2c3d4e5f6", "1234567"
	s.Labels = map[string]string{enginev1.LabelBundle: uid}
	specWords, statusWords := rowcodec.NewDictionary(nil), rowcodec.NewDictionary(nil)
	for i := first; i < first+n; i++ {
		name, at := fmt.Sprintf("sim-%06d", i), 1_790_000_000+int64(i)
		spec := atoll.RowSpec{UID: fmt.Sprintf("c5f0c9f6-8f57-4a4f-9d1c-%012x", i), Generation: 2, Revision: uid + "-12-0123456789abcdef",
			Variant: "0123456789abcdef0123456789abcdef", Phase: atoll.RowActive, Since: at, PlacementFingerprint: "fedcba9876543210fedcba9876543210"}
		status := atoll.RowStatus{UID: spec.UID, Generation: 2, Content: "00112233445566778899aabbccddeeff", Seq: int64(1000 + i%1000), State: atoll.RowReady, Applied: true,
			Since: at + 20, Total: 1, Ready: 1, Items: []atoll.ItemStatus{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: fmt.Sprintf("app-%04d", bundle), Name: "web"},
				Health: atoll.Healthy, Since: at + 20, ReflectedStatus: json.RawMessage(`{"n":[3,3,3,3,3],"f":"ad"}`)}}}
		s.Spec.Rows += name + " " + rowcodec.EncodeSpec(spec, specWords) + "\n"
		s.Status.Rows += name + " " + rowcodec.EncodeStatus(status, statusWords) + "\n"
	}
	s.Spec.Words, s.Status.Words = specWords.Words(), statusWords.Words()
	return s
}

// The cost of a healthy row: bytes in the store, in the table once it was read from there, and
// allocations of its reader.
func TestARowIsSmall(t *testing.T) {
	const bundles, each = 100, 200
	var raw [][]byte
	stored := 0
	for b := range bundles {
		line, err := json.Marshal(healthySlice(b, 0, each))
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, line)
		stored += len(line)
	}
	if per := stored / bundles / each; per > 150 {
		t.Errorf("a row takes %d bytes in the store", per)
	} else {
		t.Logf("a row takes %d bytes in the store", per)
	}
	rows := newRows(nil)
	before := heapBytes()
	for _, line := range raw {
		var s enginev1.TargetSlice
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		rows.put(&s)
	}
	if per := (heapBytes() - before) / bundles / each; per > 400 {
		t.Errorf("a row takes %d bytes in the table", per)
	} else {
		t.Logf("a row takes %d bytes in the table", per)
	}
	uid := rows.BundlesWithRows()[0]
	if n := testing.AllocsPerRun(100, func() { rows.ListOfBundle(uid) }); n > 3*each+4 {
		t.Errorf("reading %d rows takes %.0f allocations", each, n)
	}
	cluster := rows.ListOfBundle(uid)[0].Spec.UID
	rows.ListOfCluster(cluster)
	if n := testing.AllocsPerRun(100, func() { rows.ListOfCluster(cluster) }); n > 3*bundles+4 {
		t.Errorf("reading %d rows of a cluster takes %.0f allocations", bundles, n)
	}
	runtime.KeepAlive(raw)
}

func heapBytes() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func BenchmarkRows(b *testing.B) {
	raw, err := json.Marshal(healthySlice(1, 0, 200))
	if err != nil {
		b.Fatal(err)
	}
	object := func() *enginev1.TargetSlice {
		var s enginev1.TargetSlice
		if err := json.Unmarshal(raw, &s); err != nil {
			b.Fatal(err)
		}
		return &s
	}
	rows := newRows(nil)
	rows.put(object())
	uid := rows.BundlesWithRows()[0]
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			object()
		}
	})
	b.Run("start", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			s := object()
			b.StartTimer()
			newRows(nil).put(s)
		}
	})
	b.Run("event", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			s := object()
			s.ResourceVersion = fmt.Sprint(2_000_000 + i)
			s.Status.Rows = strings.Replace(s.Status.Rows, "q1007 ", fmt.Sprintf("q%d ", 2000+i), 1)
			b.StartTimer()
			rows.put(s)
		}
	})
	b.Run("OfBundle", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			rows.ListOfBundle(uid)
		}
	})
	base := rows.ListOfBundle(uid)
	next := base[7].Spec
	next.Generation++
	b.Run("lay out one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			changes := map[string]*atoll.RowSpec{base[7].Cluster: &next}
			if rows.findChangedCluster(uid, base, changes) != "" || len(rows.planSliceWrites(base[0].Bundle, changes)) != 1 {
				b.Fatal("the row did not change")
			}
		}
	})
	report := *base[7].Status
	b.Run("status of one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			report.Seq = 1 << 40
			if rows.pages[base[7].Slice].sliceWithReports(map[string]atoll.RowStatus{base[7].Cluster: report}) == nil {
				b.Fatal("the report is no news")
			}
		}
	})
}
