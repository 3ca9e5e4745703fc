package bundlestatus

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
	"atoll.dev/atoll/internal/state"
)

// drawRow gives a row a random status.
func drawRow(rnd *rand.Rand, r *state.Row) {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	r.Spec.Phase = atoll.RowPhase(pick("Active", "Active", "Active", "Active", "Leaving", "Held", "Removing"))
	r.Spec.Reason = pick("", "", "", "Unfit: labels", "RemovalHeld plan=abc: PlacementEdited", "RemovalHeld plan=abd: PlacementEdited", "NoClusterFits: x")
	r.Spec.Revision, r.Spec.Generation = pick("b-r1", "b-r2", "b-r2"), int64(5+rnd.IntN(2))
	r.Spec.Assigned = nil
	if rnd.IntN(4) == 0 {
		r.Spec.Assigned = map[string]int64{webKey.String(): int64(rnd.IntN(3))}
	}
	if r.Status = nil; rnd.IntN(6) == 0 {
		return
	}
	st := &atoll.RowStatus{
		UID: r.Spec.UID, Generation: int64(5 + rnd.IntN(2)), Seq: rnd.Int64(), Since: rnd.Int64N(1000), Applied: rnd.IntN(5) > 0,
		State:  atoll.RowState(pick("Ready", "Ready", "Progressing", "Degraded", "Failed", "Removed")),
		Reason: atoll.Reason(pick("", "", "CrashLoopBackOff")), Message: pick("", "", fmt.Sprint("pod ", rnd.IntN(4))),
	}
	if rnd.IntN(3) > 0 {
		n := rnd.IntN(3)
		st.Items = append(st.Items, atoll.ItemStatus{
			Key: webKey, Health: atoll.Health(pick("Healthy", "Progressing", "Degraded")), Error: rnd.IntN(9) == 0, Since: rnd.Int64N(100),
			Reason: atoll.Reason(pick("", "Conflict")), ReflectedStatus: json.RawMessage(fmt.Sprintf(`{"n":[2,2,2,%d,%d],"f":"%s"}`, n, n, pick("ad", "a", ""))),
		})
	}
	if rnd.IntN(5) == 0 {
		st.DoneTombstones = []string{webTombstone.ID()}
	}
	r.Status = st
}

// TestRollSaysWhatItsRowsSay: after any changes, the status from groups equals the status from all
// rows one by one, and updated groups equal groups that are built from nothing.
func TestRollSaysWhatItsRowsSay(t *testing.T) {
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		m := newMemory()
		r := New(m.newConfig())
		r.started = time.Now()
		names := make([]string, 40+rnd.IntN(40))
		for i := range names {
			names[i] = fmt.Sprintf("c%03d", i)
			m.addCluster(names[i])
		}
		r.readGroupedRows("b", rolloutView{})
		for range 25 {
			for range 1 + rnd.IntN(30) {
				name := names[rnd.IntN(len(names))]
				switch rnd.IntN(12) {
				case 0:
					m.mu.Lock()
					delete(m.rows["b"], name)
					m.mu.Unlock()
					r.rowsChanged("b", []string{name})
				case 1:
					m.setStream(name, rnd.IntN(2) == 0)
					r.markRowsChanged("b", name)
				default:
					m.setRow("b", name, func(row *state.Row) { drawRow(rnd, row) })
				}
			}
			compareWithRows(t, m, r)
		}
	}
}

func compareWithRows(t *testing.T, m *memory, r *BundleReconciler) {
	t.Helper()
	rows, total := r.readGroupedRows("b", rolloutView{})
	delete(r.rolls, "b")
	again, _ := r.readGroupedRows("b", rolloutView{})
	if a, b := drawnUp(rows), drawnUp(again); a != b {
		t.Fatalf("updated\n%s\nbuilt from nothing\n%s", a, b)
	}
	var all []Row
	for _, row := range (memRows{m}).ListOfBundle("b") {
		all = append(all, r.rowView(row))
	}
	if total != len(all) {
		t.Fatalf("%d rows, want %d", total, len(all))
	}
	b := state.Bundle{}
	b.Ref.Name, b.Ref.Namespace = "web", "shop"
	in := StatusInput{Bundle: b, Latest: latest, Now: time.Unix(1, 0)}
	in.Rows = all
	want := ComputeStatus(in)
	in.Rows = rows
	if got := ComputeStatus(in); !equality.Semantic.DeepEqual(got, want) {
		t.Fatalf("status of groups\n%+v\nof rows\n%+v", got, want)
	}
	if got, want := collectRefusals(rows), collectRefusals(all); !reflect.DeepEqual(got, want) {
		t.Fatalf("refusals of groups\n%+v\nof rows\n%+v", got, want)
	}
	for _, divided := range []bool{false, true} {
		item := itemOf(t, webTemplate())
		item.Divided = divided
		say := func(rows []Row) string {
			s := &bundleSnapshot{rows: rows, contents: map[string]map[atoll.ItemKey]version{"b-r2": {webKey: {item.UID, item.Hash}}}}
			l := templateState{item: &item, template: webTemplate(), reports: itemReports(rows)[webKey], memo: &templateMemo{}}
			items, observed, done := collectRowItems(s, l, true)
			st, ok := kinds.AggregateStatus(l.template, divided, items, observed, 0)
			out, _ := json.Marshal(st)
			return fmt.Sprint(string(out), ok, observed, done)
		}
		if got, want := say(rows), say(all); got != want {
			t.Fatalf("template's status of groups\n%s\nof rows\n%s", got, want)
		}
	}
}

// drawnUp of groups, to compare them.
func drawnUp(rows []Row) string {
	var out []string
	for _, r := range rows {
		out = append(out, fmt.Sprint(r.Cluster, r.More, r.Names[:min(len(r.Names), leastNames)], r.Spec.Phase, r.Spec.Reason, r.Reachable, r.Waited))
	}
	return strings.Join(out, "\n")
}

// TestRollKnowsItsFirstNames though members leave from the front.
func TestRollKnowsItsFirstNames(t *testing.T) {
	l, there := newRowGroups(), map[string]bool{}
	source := rowSource{
		all: func() (out []Row) {
			for c := range there {
				out = append(out, newRow(c, readyStatus()))
			}
			return out
		},
		one: func(c string) (Row, bool) { return newRow(c, readyStatus()), there[c] },
	}
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("c%03d", i))
		there[names[i]] = true
	}
	for len(names) > 0 {
		rows, total := l.readRows(source)
		if len(rows) != 1 || total != len(names) || rows[0].More != len(names)-1 || !slices.Equal(rows[0].Names[:min(len(names), leastNames)], names[:min(len(names), leastNames)]) {
			t.Fatalf("%d rows: %+v", len(names), rows)
		}
		delete(there, names[0])
		l.markChanged(names[0])
		names = names[1:]
	}
}
