package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// randomWalk is a stage on which users, agents and links do what they like.
type randomWalk struct {
	*scriptStage
	rand *rand.Rand
	log  []string
	// totalLowered: the total went down, and not all of that is done.
	totalLowered bool
	// isCalm: links hold and no cluster is deleted, so that no replica may be lost.
	isCalm bool
}

func (w *randomWalk) playCommand(cmd string, args ...string) {
	w.log = append(w.log, cmd+" "+strings.Join(args, " "))
	w.runCommand(cmd, args)
}

func (w *randomWalk) randomCluster() string { return fmt.Sprintf("c%02d", 1+w.rand.IntN(8)) }

func (w *randomWalk) randomClusters(n int) []string {
	var out []string
	for range n {
		out = append(out, w.randomCluster())
	}
	return out
}

// actRandomly once; the result reports whether it may cost healthy replicas.
func (w *randomWalk) actRandomly() (may bool) {
	switch w.rand.IntN(20) {
	case 0, 1:
		w.playCommand("place", append([]string{"names"}, w.randomClusters(1+w.rand.IntN(4))...)...)
	case 2:
		w.playCommand("place", "all")
	case 3:
		w.playCommand("place", append([]string{"except"}, w.randomClusters(1+w.rand.IntN(3))...)...)
	case 4:
		w.playCommand("place", "label", fmt.Sprint("x=", w.rand.IntN(2)))
	case 5:
		w.playCommand("cluster", w.randomCluster(), fmt.Sprint("x=", w.rand.IntN(2)))
	case 6:
		if name := w.randomCluster(); w.clusters[name] != nil {
			w.playCommand("taint", name, "t", []string{"NoSchedule", "NoExecute"}[w.rand.IntN(2)])
		}
	case 7, 8:
		var list []string
		for i := range 8 {
			list = append(list, fmt.Sprintf("c%02d=%d", i+1, 1+w.rand.IntN(5)))
		}
		w.playCommand("weights", list...)
	case 9:
		total := int64(w.rand.IntN(30))
		w.totalLowered = w.totalLowered || len(w.workloads) == 0 || total < w.workloads[0].Replicas
		w.playCommand("divide", fmt.Sprintf("Deployment/web=%d", total), "StatefulSet/db=2")
		w.playCommand("revision", fmt.Sprint("r", len(w.log)))
	case 10:
		w.playCommand("revision", fmt.Sprint("r", len(w.log)))
	case 11:
		w.playCommand("unfit", []string{"Keep", "Remove"}[w.rand.IntN(2)])
	case 12:
		if w.plan != nil {
			w.playCommand("confirm")
			return true
		}
	case 13:
		limit := 900
		if w.isCalm {
			limit = 3 // no readiness timeout ends
		}
		w.playCommand("after", fmt.Sprintf("%ds", w.rand.IntN(limit)))
	case 14:
		if !w.isCalm {
			w.disturbFleet()
			return true
		}
	case 15:
		w.playCommand("collect")
	case 16:
		w.playCommand("unwanted", append([]string{"ConfigMap/ns/some"}, w.randomClusters(w.rand.IntN(4))...)...)
	default:
		name := w.randomCluster()
		row := w.rows[name]
		if row.Online = true; w.isCalm && row.isReady() {
			return may // the rollout does not guard against health that is lost by itself
		}
		w.playCommand("report", []string{"Ready", "Ready", "Progressing"}[w.rand.IntN(3)], name)
	}
	return may
}

func (w *randomWalk) disturbFleet() {
	name := w.randomCluster()
	switch w.rand.IntN(6) {
	case 0:
		w.playCommand("gone", name)
	case 5:
		if w.clusters[name] != nil {
			w.playCommand("away", name)
			w.playCommand("taint", name, "atoll.dev/unreachable", "NoExecute")
		}
	case 1:
		w.playCommand("cluster", name)
	case 2:
		if w.clusters[name] != nil {
			w.playCommand("recreate", name)
		}
	case 3:
		w.playCommand("away", name)
	default:
		w.playCommand("back", name)
	}
}

// isServing reports whether the row was healthy when last heard of, and is not going:
// it goes on running what it had while it takes up a new generation.
func isServing(r Row) bool {
	return r.Status != nil && r.Status.State == atoll.RowReady && r.Spec.Phase != atoll.RowRemoving && !r.Spec.Phase.OrdersNothing()
}

// countHealthyReplicas replicas of the Deployment in rows that serve.
func countHealthyReplicas(rows map[string]Row) (n int64, places int) {
	for _, r := range rows {
		if isServing(r) {
			n += r.Spec.Assigned["apps/Deployment/ns/web"]
			places++
		}
	}
	return n, places
}

// checkHealthyKept checks that a step did not take away what was healthy.
func (w *randomWalk) checkHealthyKept(before map[string]Row, may bool) {
	had, places := countHealthyReplicas(before)
	var kept, total int64
	keptPlaces, actives := 0, 0
	for c, r := range w.rows {
		if r.Spec.Phase == atoll.RowActive {
			actives++
		}
		old, was := before[c]
		if !was || !isServing(r) || !isServing(old) {
			continue
		}
		keptPlaces++
		kept += min(r.Spec.Assigned["apps/Deployment/ns/web"], old.Spec.Assigned["apps/Deployment/ns/web"])
	}
	if len(w.workloads) > 0 {
		total = w.workloads[0].Replicas
	}
	total -= w.countIdleReplicas(before)
	if !may && kept < min(had, total) {
		w.t.Fatalf("%d of %d healthy replicas are left of %d\nbefore:\n%safter:\n%s%s", kept, had, total, w.formatRowsOf(before), w.formatRows(), w.formatHistory())
	}
	if !may && places > 0 && keptPlaces == 0 && actives > 0 {
		w.t.Fatalf("the last healthy place is taken\nbefore:\n%safter:\n%s%s", w.formatRowsOf(before), w.formatRows(), w.formatHistory())
	}
}

// countIdleReplicas replicas are those in places that were there before the move and have not
// become healthy: nothing that moves replaces them.
func (w *randomWalk) countIdleReplicas(before map[string]Row) (n int64) {
	move := w.now.Unix()
	for _, r := range before {
		if r.Spec.MovingSince != 0 {
			move = min(move, r.Spec.MovingSince)
		}
	}
	for _, r := range w.rows {
		if r.Spec.Phase == atoll.RowActive && !isServing(r) && r.Spec.JoinedOrGrownAt() < move {
			n += r.Spec.Assigned["apps/Deployment/ns/web"]
		}
	}
	return n
}

func (w *randomWalk) formatRowsOf(rows map[string]Row) string {
	now := w.rows
	w.rows = rows
	defer func() { w.rows = now }()
	return w.formatRows()
}

func (w *randomWalk) formatHistory() string {
	out := ""
	for c, r := range w.rows {
		out += fmt.Sprintf("%s came %d, moving %d, status %+v\n", c, r.Spec.JoinedOrGrownAt(), r.Spec.MovingSince, r.Status)
	}
	return out + strings.Join(w.log[max(0, len(w.log)-60):], "\n")
}

// checkConvergence lets everything come true and checks that it did.
func (w *randomWalk) checkConvergence() {
	for c := range w.clusters {
		w.online[c] = true
	}
	for range 6 {
		w.playCommand("settle")
		if w.plan == nil {
			break
		}
		w.playCommand("confirm")
	}
	if w.plan != nil {
		w.t.Fatalf("a plan waits for ever: %v\n%s", w.plan, w.formatHistory())
	}
	in := w.buildInput()
	shares := in.Decision.AssignReplicas(nil)
	for _, v := range in.Decision.Verdicts {
		row, has := w.rows[v.Cluster]
		wanted := v.Outcome == schedule.OutcomePlaced || v.Outcome == schedule.OutcomeKept
		if has != wanted || has && row.Spec.Phase != atoll.RowActive {
			w.t.Fatalf("%s is %s, its row is %v %+v\n%s", v.Cluster, v, has, row.Spec, w.formatHistory())
		}
		if has && row.Spec.Revision != in.Revision {
			w.t.Fatalf("%s is at %s, want %s\n%s", v.Cluster, row.Spec.Revision, in.Revision, w.formatHistory())
		}
		if has && !maps.Equal(row.Spec.Assigned, shares.ShareOf(v.Cluster).AssignedReplicas()) {
			w.t.Fatalf("%s has %v, its share is %v\n%s", v.Cluster, row.Spec.Assigned, shares.ShareOf(v.Cluster), w.formatHistory())
		}
	}
}

func runRandomWalk(t testing.TB, seed uint64, calm bool) {
	w := &randomWalk{scriptStage: newStage(t), rand: rand.New(rand.NewPCG(seed, 11)), isCalm: calm}
	w.playCommand("fleet", "8")
	w.statesNone = seed%4 < 2
	w.playCommand("spent", "0")
	if w.rand.IntN(3) > 0 {
		w.playCommand("divide", fmt.Sprintf("Deployment/web=%d", w.rand.IntN(30)), "StatefulSet/db=2")
	}
	for range 150 {
		may := w.actRandomly()
		before := maps.Clone(w.rows)
		w.log = append(w.log, "step")
		w.advanceOnce()
		w.checkHealthyKept(before, may || w.totalLowered || !calm)
		if !slices.ContainsFunc(slices.Collect(maps.Values(w.rows)), func(r Row) bool { return r.Spec.MovingSince != 0 }) {
			w.totalLowered = false
		}
	}
	w.checkConvergence()
}

// Nothing healthy is removed before its replacement is there, after any acts of users, agents and
// links, and in the end everything is as requested.
func TestRandomWalks(t *testing.T) {
	n := uint64(200)
	if testing.Short() {
		n = 30
	}
	for seed := range n {
		runRandomWalk(t, seed, seed%2 == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWalk(f *testing.F) {
	f.Add(uint64(1), true)
	f.Fuzz(func(t *testing.T, seed uint64, calm bool) { runRandomWalk(t, seed, calm) })
}

func TestLedgerForgetsAndSeparates(t *testing.T) {
	var l RemovalLedger
	s := newStage(t)
	l.RecordDeletes("a", s.now, 3)
	l.RecordDeletes("a", s.now.Add(RemovalWindow/2), 4)
	l.RecordDeletes("b", s.now, 100)
	l.RecordDeletes("a", s.now, -1)
	l.RecordRemovedClusters("bundle", s.now, []string{"y", "x"})
	l.RecordRemovedClusters("bundle", s.now.Add(RemovalWindow/2), []string{"z", "x"})
	l.UndoRemovedClusters("bundle", []string{"z"})
	for _, tc := range []struct {
		after   time.Duration
		deletes int
		outs    string
	}{{RemovalWindow / 2, 6, "[x y]"}, {RemovalWindow, 4, "[x]"}, {2 * RemovalWindow, 0, "[]"}} {
		at := s.now.Add(tc.after)
		if n, outs := l.CountDeletes("a", at), fmt.Sprint(l.RemovedClusters("bundle", at)); n != tc.deletes || outs != tc.outs {
			t.Errorf("after %s: %d deletes and %s, want %d and %s", tc.after, n, outs, tc.deletes, tc.outs)
		}
	}
	if len(l.removedByBundle) != 0 || len(l.deletesByNamespace) != 1 {
		t.Errorf("the ledger keeps %v and %v", l.deletesByNamespace, l.removedByBundle)
	}
}

func TestOverBudget(t *testing.T) {
	for _, tc := range []struct {
		budget       string
		going, total int
		over         bool
	}{
		{"10%", 10, 10, false},
		{"10%", 1, 11, false},
		{"10%", 2, 11, true},
		{"10%", 2, 20, false},
		{"10%", 3, 20, true},
		{"0%", 1, 11, true},
		{"100%", 11, 11, false},
		{"3", 3, 4, false},
		{"3", 4, 4, true},
		{"much", 2, 11, true},
		{"-5%", 1, 11, false},
	} {
		s := newStage(t)
		s.runCommand("budget", []string{tc.budget})
		if got := exceedsBudget(s.baseInput.RemovalBudget, tc.going, tc.total); got != tc.over {
			t.Errorf("%d of %d with a budget of %s: over is %t", tc.going, tc.total, tc.budget, got)
		}
	}
	if !exceedsBudget(nil, 2, 11) || exceedsBudget(nil, 1, 11) {
		t.Error("without a budget it is not 10%")
	}
}

// The hub's administrator acts on a failing script, the application's owner on all else.
func TestInterpreterFailureNamesItsActor(t *testing.T) {
	failed := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Trainer", Name: "cats"}, Health: atoll.Unknown, Reason: atoll.ReasonInterpreterFailed, Message: "ResourceInterpreter a: spec.retain.lua, line 2: no"}
	refused := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Deployment", Name: "web"}, Health: atoll.Unknown, Reason: "AdmissionDenied", Message: "no"}
	for _, tc := range []struct {
		state atoll.RowState
		items []atoll.ItemStatus
		who   atoll.Actor
	}{
		{atoll.RowProgressing, []atoll.ItemStatus{failed}, atoll.ActorHub},
		{atoll.RowFailed, []atoll.ItemStatus{failed, refused}, atoll.ActorHub},
		{atoll.RowFailed, []atoll.ItemStatus{refused, failed}, atoll.ActorUser},
		{atoll.RowDegraded, []atoll.ItemStatus{refused, failed}, atoll.ActorUser},
	} {
		spec := atoll.RowSpec{Generation: 2, Phase: atoll.RowActive}
		w := WaitOfActiveRow(Row{Spec: spec, Online: true, Status: &atoll.RowStatus{Generation: 2, State: tc.state, Items: tc.items}})
		if w.Actor != tc.who || !strings.Contains(w.For, tc.items[0].Message) {
			t.Errorf("%s with %s: %+v, want %s", tc.state, tc.items[0].Reason, w, tc.who)
		}
	}
}

func TestWaitTexts(t *testing.T) {
	spec := atoll.RowSpec{Generation: 2, Phase: atoll.RowActive}
	status := func(state atoll.RowState, items ...atoll.ItemStatus) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: 2, State: state, Items: items}
	}
	bad := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Deployment", Name: "web"}, Health: atoll.Degraded, Reason: "ImagePullBackOff", Message: "no such image"}
	for _, tc := range []struct {
		row  Row
		want string
	}{
		{Row{Spec: spec, Online: true, Status: status(atoll.RowReady)}, ""},
		{Row{Spec: spec, Online: false, Status: status(atoll.RowReady)}, ""},
		{Row{Spec: spec, Online: true}, "the latest change to be applied"},
		{Row{Spec: spec}, "the cluster to connect"},
		{Row{Spec: spec, Online: true, Status: status(atoll.RowDegraded, bad)}, "Deployment/web ImagePullBackOff: no such image"},
		{Row{Spec: spec, Online: true, Status: status(atoll.RowFailed)}, "items that could not be applied"},
		{Row{Spec: spec, Online: true, Status: status(atoll.RowProgressing)}, "items to become healthy"},
	} {
		if got := WaitOfActiveRow(tc.row).For; got != tc.want {
			t.Errorf("%+v waits for %q, want %q", tc.row, got, tc.want)
		}
	}
	if got := (&blockerSet{clusters: []string{"a", "b", "c", "d", "e"}}).formatNames(); got != "a, b, c and 2 more" {
		t.Error(got)
	}
	p := PendingRemoval{Lines: slices.Repeat([]string{"x"}, 4)}
	if p.SummarizeLines(2) != "x; x; and 2 more" || p.SummarizeLines(4) != "x; x; x; x" {
		t.Error(p.SummarizeLines(2), p.SummarizeLines(4))
	}
}

func BenchmarkAdvance10000(b *testing.B) {
	s := newStage(b)
	for i := range 10_000 {
		s.joinCluster(fmt.Sprintf("cluster-%05d", i), nil)
	}
	s.runCommand("divide", []string{"Deployment/web=50000"})
	s.runCommand("step", nil)
	s.runCommand("report", []string{"Ready", "*"})
	steady := s.buildInput()
	s.runCommand("revision", []string{"r2"})
	revision := s.buildInput()
	for name, in := range map[string]Input{"steady": steady, "revision": revision} {
		in.ExplainWaits = false
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				AdvanceRows(in)
			}
		})
	}
}

// isSameWork and isSameBookkeeping together look at every field of a row.
func TestEveryFieldOfARowIsCompared(t *testing.T) {
	for i := range reflect.TypeFor[atoll.RowSpec]().NumField() {
		var a, b atoll.RowSpec
		name, v := reflect.TypeFor[atoll.RowSpec]().Field(i).Name, reflect.ValueOf(&b).Elem().Field(i)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Int64:
			v.SetInt(1)
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]int64{"x": 1}))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		default:
			t.Fatalf("a row's field of kind %s", v.Kind())
		}
		if name != "UID" && name != "Generation" && isSameWork(a, b) && isSameBookkeeping(a, b) {
			t.Errorf("rows that differ in %s count as equal", name)
		}
	}
}
