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

// walk is a stage on which users, agents and links do what they like.
type walk struct {
	*stage
	r   *rand.Rand
	log []string
	// lowered: the total went down, and not all of that is done.
	lowered bool
	// calm: links hold and no cluster is deleted, so that no replica may be lost.
	calm bool
}

func (w *walk) play(cmd string, args ...string) {
	w.log = append(w.log, cmd+" "+strings.Join(args, " "))
	w.do(cmd, args)
}

func (w *walk) name() string { return fmt.Sprintf("c%02d", 1+w.r.IntN(8)) }

func (w *walk) names(n int) []string {
	var out []string
	for range n {
		out = append(out, w.name())
	}
	return out
}

// act once; the result tells whether it may cost healthy replicas.
func (w *walk) act() (may bool) {
	switch w.r.IntN(20) {
	case 0, 1:
		w.play("place", append([]string{"names"}, w.names(1+w.r.IntN(4))...)...)
	case 2:
		w.play("place", "all")
	case 3:
		w.play("place", append([]string{"except"}, w.names(1+w.r.IntN(3))...)...)
	case 4:
		w.play("place", "label", fmt.Sprint("x=", w.r.IntN(2)))
	case 5:
		w.play("cluster", w.name(), fmt.Sprint("x=", w.r.IntN(2)))
	case 6:
		if name := w.name(); w.clusters[name] != nil {
			w.play("taint", name, "t", []string{"NoSchedule", "NoExecute"}[w.r.IntN(2)])
		}
	case 7, 8:
		var list []string
		for i := range 8 {
			list = append(list, fmt.Sprintf("c%02d=%d", i+1, 1+w.r.IntN(5)))
		}
		w.play("weights", list...)
	case 9:
		total := int64(w.r.IntN(30))
		w.lowered = w.lowered || len(w.workloads) == 0 || total < w.workloads[0].Replicas
		w.play("divide", fmt.Sprintf("Deployment/web=%d", total), "StatefulSet/db=2")
		w.play("revision", fmt.Sprint("r", len(w.log)))
	case 10:
		w.play("revision", fmt.Sprint("r", len(w.log)))
	case 11:
		w.play("unfit", []string{"Keep", "Remove"}[w.r.IntN(2)])
	case 12:
		if w.plan != nil {
			w.play("confirm")
			return true
		}
	case 13:
		limit := 900
		if w.calm {
			limit = 3 // nobody's patience ends
		}
		w.play("after", fmt.Sprintf("%ds", w.r.IntN(limit)))
	case 14:
		if !w.calm {
			w.disturb()
			return true
		}
	case 15:
		w.play("collect")
	case 16:
		w.play("unwanted", append([]string{"ConfigMap/ns/some"}, w.names(w.r.IntN(4))...)...)
	default:
		name := w.name()
		row := w.rows[name]
		if row.Online = true; w.calm && row.ready() {
			return may // health that is lost by itself is nobody's to keep
		}
		w.play("report", []string{"Ready", "Ready", "Progressing"}[w.r.IntN(3)], name)
	}
	return may
}

func (w *walk) disturb() {
	name := w.name()
	switch w.r.IntN(5) {
	case 0:
		w.play("gone", name)
	case 1:
		w.play("cluster", name)
	case 2:
		if w.clusters[name] != nil {
			w.play("recreate", name)
		}
	case 3:
		w.play("away", name)
	default:
		w.play("back", name)
	}
}

// serves tells whether the row was healthy when last heard of, and is not going:
// it goes on running what it had while it takes up a new generation.
func serves(r Row) bool {
	return r.Status != nil && r.Status.State == atoll.RowReady && r.Spec.Phase != atoll.RowRemoving
}

// healthy replicas of the Deployment in rows that serve.
func healthy(rows map[string]Row) (n int64, places int) {
	for _, r := range rows {
		if serves(r) {
			n += r.Spec.Assigned["apps/Deployment/ns/web"]
			places++
		}
	}
	return n, places
}

// keeps checks that a step did not take away what was healthy.
func (w *walk) keeps(before map[string]Row, may bool) {
	had, places := healthy(before)
	var kept, total int64
	keptPlaces, actives := 0, 0
	for c, r := range w.rows {
		if r.Spec.Phase == atoll.RowActive {
			actives++
		}
		old, was := before[c]
		if !was || !serves(r) || !serves(old) {
			continue
		}
		keptPlaces++
		kept += min(r.Spec.Assigned["apps/Deployment/ns/web"], old.Spec.Assigned["apps/Deployment/ns/web"])
	}
	if len(w.workloads) > 0 {
		total = w.workloads[0].Replicas
	}
	total -= w.idle(before)
	if !may && kept < min(had, total) {
		w.t.Fatalf("%d of %d healthy replicas are left of %d\nbefore:\n%safter:\n%s%s", kept, had, total, w.print(before), w.show(), w.story())
	}
	if !may && places > 0 && keptPlaces == 0 && actives > 0 {
		w.t.Fatalf("the last healthy place is taken\nbefore:\n%safter:\n%s%s", w.print(before), w.show(), w.story())
	}
}

// idle replicas are those in places that were there before the move and have not
// become healthy: nothing that moves replaces them.
func (w *walk) idle(before map[string]Row) (n int64) {
	move := w.now.Unix()
	for _, r := range before {
		if r.Spec.Moving != 0 {
			move = min(move, r.Spec.Moving)
		}
	}
	for _, r := range w.rows {
		if r.Spec.Phase == atoll.RowActive && !serves(r) && r.Spec.Came() < move {
			n += r.Spec.Assigned["apps/Deployment/ns/web"]
		}
	}
	return n
}

func (w *walk) print(rows map[string]Row) string {
	now := w.rows
	w.rows = rows
	defer func() { w.rows = now }()
	return w.show()
}

func (w *walk) story() string {
	out := ""
	for c, r := range w.rows {
		out += fmt.Sprintf("%s came %d, moving %d, status %+v\n", c, r.Spec.Came(), r.Spec.Moving, r.Status)
	}
	return out + strings.Join(w.log[max(0, len(w.log)-60):], "\n")
}

// ends lets everything come true and checks that it did.
func (w *walk) ends() {
	for c := range w.clusters {
		w.online[c] = true
	}
	for range 6 {
		w.play("settle")
		if w.plan == nil {
			break
		}
		w.play("confirm")
	}
	if w.plan != nil {
		w.t.Fatalf("a plan waits for ever: %v\n%s", w.plan, w.story())
	}
	in := w.input()
	shares := in.Decision.Assign(nil)
	for _, v := range in.Decision.Verdicts {
		row, has := w.rows[v.Cluster]
		wanted := v.Outcome == schedule.Placed || v.Outcome == schedule.Kept
		if has != wanted || has && row.Spec.Phase != atoll.RowActive {
			w.t.Fatalf("%s is %s, its row is %v %+v\n%s", v.Cluster, v, has, row.Spec, w.story())
		}
		if has && !maps.Equal(row.Spec.Assigned, shares.Of(v.Cluster).Assigned()) {
			w.t.Fatalf("%s has %v, its share is %v\n%s", v.Cluster, row.Spec.Assigned, shares.Of(v.Cluster), w.story())
		}
	}
}

func walkWith(t testing.TB, seed uint64, calm bool) {
	w := &walk{stage: newStage(t), r: rand.New(rand.NewPCG(seed, 11)), calm: calm}
	w.play("fleet", "8")
	w.play("spent", "0")
	if w.r.IntN(3) > 0 {
		w.play("divide", fmt.Sprintf("Deployment/web=%d", w.r.IntN(30)), "StatefulSet/db=2")
	}
	for range 150 {
		may := w.act()
		before := maps.Clone(w.rows)
		w.log = append(w.log, "step")
		w.step()
		w.keeps(before, may || w.lowered || !calm)
		if !slices.ContainsFunc(slices.Collect(maps.Values(w.rows)), func(r Row) bool { return r.Spec.Moving != 0 }) {
			w.lowered = false
		}
	}
	w.ends()
}

// Whatever users, agents and links do, nothing healthy is taken away before its
// replacement is there, and in the end everything is as it was asked for.
func TestRandomWalks(t *testing.T) {
	n := uint64(200)
	if testing.Short() {
		n = 30
	}
	for seed := range n {
		walkWith(t, seed, seed%2 == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWalk(f *testing.F) {
	f.Add(uint64(1), true)
	f.Fuzz(func(t *testing.T, seed uint64, calm bool) { walkWith(t, seed, calm) })
}

func TestLedgerForgetsAndSeparates(t *testing.T) {
	var l Ledger
	s := newStage(t)
	l.Delete("a", s.now, 3)
	l.Delete("a", s.now.Add(Window/2), 4)
	l.Delete("b", s.now, 100)
	l.Delete("a", s.now, -1)
	l.Out("bundle", s.now, []string{"y", "x"})
	l.Out("bundle", s.now.Add(Window/2), []string{"z", "x"})
	l.NotOut("bundle", []string{"z"})
	for _, tc := range []struct {
		after   time.Duration
		deletes int
		outs    string
	}{{Window / 2, 6, "[x y]"}, {Window, 4, "[x]"}, {2 * Window, 0, "[]"}} {
		at := s.now.Add(tc.after)
		if n, outs := l.Deletes("a", at), fmt.Sprint(l.Outs("bundle", at)); n != tc.deletes || outs != tc.outs {
			t.Errorf("after %s: %d deletes and %s, want %d and %s", tc.after, n, outs, tc.deletes, tc.outs)
		}
	}
	if len(l.outs) != 0 || len(l.deletes) != 1 {
		t.Errorf("the ledger keeps %v and %v", l.deletes, l.outs)
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
		s.do("budget", []string{tc.budget})
		if got := overBudget(s.in.Budget, tc.going, tc.total); got != tc.over {
			t.Errorf("%d of %d with a budget of %s: over is %t", tc.going, tc.total, tc.budget, got)
		}
	}
	if !overBudget(nil, 2, 11) || overBudget(nil, 1, 11) {
		t.Error("without a budget it is not 10%")
	}
}

// Where a script's failure is in the way, whoever administrates the hub acts; where something
// else is, the application's owner does.
func TestWhoActsWhereAScriptFails(t *testing.T) {
	failed := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Trainer", Name: "cats"}, Health: atoll.Unknown, Reason: atoll.InterpreterFailed, Message: "ResourceInterpreter a: spec.retain.lua, line 2: no"}
	refused := atoll.ItemStatus{Key: atoll.ItemKey{Kind: "Deployment", Name: "web"}, Health: atoll.Unknown, Reason: "AdmissionDenied", Message: "no"}
	for _, tc := range []struct {
		state atoll.RowState
		items []atoll.ItemStatus
		who   string
	}{
		{atoll.RowProgressing, []atoll.ItemStatus{failed}, WhoHub},
		{atoll.RowFailed, []atoll.ItemStatus{failed, refused}, WhoHub},
		{atoll.RowFailed, []atoll.ItemStatus{refused, failed}, WhoUser},
		{atoll.RowDegraded, []atoll.ItemStatus{refused, failed}, WhoUser},
	} {
		spec := atoll.RowSpec{Generation: 2, Phase: atoll.RowActive}
		w := WaitOf(Row{Spec: spec, Online: true, Status: &atoll.RowStatus{Generation: 2, State: tc.state, Items: tc.items}})
		if w.Who != tc.who || !strings.Contains(w.For, tc.items[0].Message) {
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
		if got := WaitOf(tc.row).For; got != tc.want {
			t.Errorf("%+v waits for %q, want %q", tc.row, got, tc.want)
		}
	}
	if got := (&crowd{rows: []string{"a", "b", "c", "d", "e"}}).names(); got != "a, b, c and 2 more" {
		t.Error(got)
	}
	p := Plan{Lines: slices.Repeat([]string{"x"}, 4)}
	if p.Summary(2) != "x; x; and 2 more" || p.Summary(4) != "x; x; x; x" {
		t.Error(p.Summary(2), p.Summary(4))
	}
}

func BenchmarkAdvance10000(b *testing.B) {
	s := newStage(b)
	for i := range 10_000 {
		s.cluster(fmt.Sprintf("cluster-%05d", i), nil)
	}
	s.do("divide", []string{"Deployment/web=50000"})
	s.do("step", nil)
	s.do("report", []string{"Ready", "*"})
	steady := s.input()
	s.do("revision", []string{"r2"})
	revision := s.input()
	for name, in := range map[string]Input{"steady": steady, "revision": revision} {
		in.Explain = false
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Advance(in)
			}
		})
	}
}

// sameWork and sameNotes together look at every field of a row.
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
			v.Set(reflect.ValueOf([]string{"x"}))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		default:
			t.Fatalf("a row's field of kind %s", v.Kind())
		}
		if name != "UID" && name != "Generation" && sameWork(a, b) && sameNotes(a, b) {
			t.Errorf("rows that differ in %s count as equal", name)
		}
	}
}
