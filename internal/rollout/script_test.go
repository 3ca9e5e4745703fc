package rollout

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

var update = flag.Bool("update", false, "rewrite the expected output of the scripts in testdata")

// Scripts tell a Bundle's story: files named "do" hold commands, files named "see"
// what came of them. See stage.do for the commands.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	for i, f := range a.Files {
		if f.Name == "see" {
			continue
		}
		got := ""
		for line := range strings.Lines(string(f.Data)) {
			line, _, _ = strings.Cut(line, "#")
			if words := strings.Fields(line); len(words) > 0 {
				got += s.do(words[0], words[1:])
			}
		}
		if i+1 >= len(a.Files) || a.Files[i+1].Name != "see" {
			t.Fatalf("part %d of %s is not followed by what to see", i, file)
		}
		if want := string(a.Files[i+1].Data); *update {
			a.Files[i+1].Data = []byte(got)
		} else if got != want {
			t.Fatalf("after\n%sgot\n%swant\n%s", f.Data, got, want)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// stage is a Bundle, a fleet and a clock, and the shell around Advance reduced to
// its bones. Everything that Advance promises of all steps is checked at each.
type stage struct {
	t         testing.TB
	now       time.Time
	clusters  map[string]*schedule.Cluster
	online    map[string]bool
	checkIns  map[string]time.Duration
	rows      map[string]Row
	placement v1alpha1.PlacementSpec
	unfit     v1alpha1.WhenUnfit
	workloads []schedule.Workload
	in        Input
	ledger    Ledger
	plan      *Plan
	wake      time.Time
	unwanted  map[string]string // items by cluster
}

func newStage(t testing.TB) *stage {
	return &stage{
		t: t, now: time.Unix(1_000_000, 0), clusters: map[string]*schedule.Cluster{}, online: map[string]bool{}, checkIns: map[string]time.Duration{}, rows: map[string]Row{},
		in: Input{Bundle: "bundle", Revision: "r1"},
	}
}

// do one command; what there is to see is returned.
func (s *stage) do(cmd string, args []string) string {
	switch cmd {
	case "cluster": // NAME [k=v label]... : joins, online
		s.cluster(args[0], args[1:])
	case "clusters":
		for _, n := range args {
			s.cluster(n, nil)
		}
	case "fleet": // N clusters c01..
		n, _ := strconv.Atoi(args[0])
		for i := range n {
			s.cluster(fmt.Sprintf("c%02d", i+1), nil)
		}
	case "recreate": // the Cluster is deleted and joins again
		s.clusters[args[0]].UID += "+"
	case "deny":
		s.clusters[args[0]].Accepted = false
	case "away":
		s.online[args[0]] = false
	case "back":
		s.online[args[0]] = true
	case "checkin": // NAME EVERY
		d, err := time.ParseDuration(args[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.checkIns[args[0]] = d
	case "taint": // NAME KEY EFFECT
		at := metav1.NewTime(s.now)
		s.clusters[args[0]].Taints = []v1alpha1.Taint{{Key: args[1], Effect: corev1.TaintEffect(args[2]), TimeAdded: &at}}
	case "gone":
		delete(s.clusters, args[0])
	case "after":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "revision":
		s.in.Revision = args[0]
	case "report": // STATE CLUSTER... : the row as it is, "*" for all that are online
		s.report(atoll.RowState(args[0]), args[1:])
	case "collect": // takes away what is removed
		for c, r := range s.rows {
			if r.Status != nil && r.Status.State == atoll.RowRemoved && r.Status.Generation == r.Spec.Generation {
				delete(s.rows, c)
			}
		}
	case "settle": // every reachable agent does as it is told
		for range 10 {
			s.step()
			s.report(atoll.RowReady, []string{"*"})
			s.do("collect", nil)
		}
	case "step":
		return s.step()
	case "rows":
		return s.show()
	case "waits":
		return s.waits()
	default:
		return s.intent(cmd, args)
	}
	return ""
}

// intent of users.
func (s *stage) intent(cmd string, args []string) string {
	rs := &s.placement.ReplicaScheduling
	switch cmd {
	case "place": // all | nowhere | names A.. | except A.. | label K=V
		s.place(args)
	case "tolerate": // KEY [SECONDS]
		tol := corev1.Toleration{Key: args[0], Operator: corev1.TolerationOpExists}
		if len(args) > 1 {
			n, _ := strconv.ParseInt(args[1], 10, 64)
			tol.TolerationSeconds = &n
		}
		s.placement.ClusterTolerations = []corev1.Toleration{tol}
	case "weights": // A=1 B=2
		rs.WeightPreference = &v1alpha1.ClusterPreferences{}
		for _, a := range args {
			name, w, _ := strings.Cut(a, "=")
			n, _ := strconv.ParseInt(w, 10, 64)
			rs.WeightPreference.StaticWeightList = append(rs.WeightPreference.StaticWeightList, v1alpha1.StaticClusterWeight{
				TargetCluster: v1alpha1.ClusterAffinity{ClusterNames: []string{name}}, Weight: n,
			})
		}
	case "divide": // Kind/name=N ... ; without any: Duplicated
		s.workloads = nil
		for _, a := range args {
			id, total, _ := strings.Cut(a, "=")
			kind, name, _ := strings.Cut(id, "/")
			n, _ := strconv.ParseInt(total, 10, 64)
			s.workloads = append(s.workloads, schedule.Workload{Key: atoll.ItemKey{Group: "apps", Kind: kind, Namespace: "ns", Name: name}, Replicas: n})
		}
	case "unfit":
		s.unfit = v1alpha1.WhenUnfit(args[0])
	case "removal":
		s.in.Removal = v1alpha1.RemovalMode(args[0])
	case "budget":
		b := intstr.Parse(args[0])
		s.in.Budget = &b
	case "deletes": // REVISION ITEM... : what the target takes out of rows at REVISION
		if s.in.Deletes == nil {
			s.in.Deletes = map[string][]string{}
		}
		s.in.Deletes[args[0]] = args[1:]
	case "moves": // ITEM CLUSTER... : what the target gives away in those clusters
		s.in.MovesAway = map[string][]string{}
		for _, c := range args[1:] {
			s.in.MovesAway[c] = args[:1]
		}
	case "unwanted": // ITEM CLUSTER... : what override rules keep out of those clusters
		s.unwanted = map[string]string{}
		for _, c := range args[1:] {
			s.unwanted[c] = args[0]
		}
	case "spent": // N rows of the namespace lost something already
		n, _ := strconv.Atoi(args[0])
		s.ledger.Delete("", s.now, n)
	case "confirm": // the plan that waits, or HASH
		s.in.Confirm = s.plan.Hash
		if len(args) > 0 {
			s.in.Confirm = args[0]
		}
	case "delete":
		s.in.Deleting = true
	case "hold":
		s.in.Holding = true
	case "release":
		s.in.Holding = false
	case "floor":
		s.in.Floor, _ = strconv.ParseInt(args[0], 10, 64)
	default:
		s.t.Fatalf("unknown command %s", cmd)
	}
	return ""
}

func (s *stage) cluster(name string, labels []string) {
	c := s.clusters[name]
	if c == nil {
		c = &schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name, Accepted: true}
		s.clusters[name], s.online[name] = c, true
	}
	c.Taints, c.Accepted, c.Labels = nil, true, map[string]string{}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		c.Labels[k] = v
	}
}

func (s *stage) place(args []string) {
	a := &v1alpha1.ClusterAffinity{}
	switch args[0] {
	case "all":
	case "nowhere":
		a = atoll.Nowhere().ClusterAffinity
	case "names":
		a.ClusterNames = args[1:]
	case "except":
		a.ExcludeClusters = args[1:]
	case "label":
		k, v, _ := strings.Cut(args[1], "=")
		a.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{k: v}}
	default:
		s.t.Fatalf("cannot place %q", args)
	}
	s.placement.ClusterAffinity = a
}

func (s *stage) report(state atoll.RowState, clusters []string) {
	for c, r := range s.rows {
		if !s.online[c] || !slices.Contains(clusters, c) && clusters[0] != "*" {
			continue
		}
		st := state
		if r.Spec.Phase == atoll.RowRemoving && state == atoll.RowReady {
			st = atoll.RowRemoved
		}
		r.Status = &atoll.RowStatus{Generation: r.Spec.Generation, State: st, Since: s.now.Unix(), Total: 1}
		s.rows[c] = r
	}
}

// input of the next step.
func (s *stage) input() Input {
	in, specs := s.in, map[string]atoll.RowSpec{}
	in.Now, in.Rows, in.Explain = s.now, map[string]Row{}, true
	for c, r := range s.rows {
		r.Online, r.CheckIn = s.online[c], s.checkIns[c]
		in.Rows[c], specs[c] = r, r.Spec
	}
	for c, item := range s.unwanted {
		u := Unwanted{Key: item}
		if r, has := s.rows[c]; has && !slices.Contains(r.Spec.NotHere, item) && r.Spec.Phase != atoll.RowRemoving {
			u.UID = "u"
		}
		if in.Unwanted == nil {
			in.Unwanted = map[string][]Unwanted{}
		}
		in.Unwanted[c] = []Unwanted{u}
	}
	in.RecentDeletes, in.RecentOuts = s.ledger.Deletes("", s.now), s.ledger.Outs("bundle", s.now)
	var cs []schedule.Cluster
	for _, c := range s.clusters {
		cs = append(cs, *c)
	}
	in.Decision = schedule.Schedule(schedule.Input{
		Bundle: "bundle", Placement: s.placement, WhenUnfit: s.unfit, Clusters: cs, Workloads: s.workloads, Rows: specs, Now: s.now,
	})
	return in
}

// step once, and once more, which must change nothing.
func (s *stage) step() string {
	in := s.input()
	out := Advance(in)
	check(s.t, in, out)
	seen := s.write(in, out)
	s.ledger.Delete("", s.now, out.Deletes)
	s.ledger.Out("bundle", s.now, out.Outs)
	s.plan, s.wake = out.Plan, out.RequeueAt
	if again := Advance(s.input()); len(again.Changes) > 0 {
		s.t.Fatalf("a step that nothing came before changes\n%safter\n%s%s", s.write(s.input(), again), seen, s.show())
	}
	if out.Plan != nil {
		seen += fmt.Sprintf("plan %d:\n", len(out.Plan.Lines))
		for _, l := range out.Plan.Lines[:min(4, len(out.Plan.Lines))] {
			seen += "  " + l + "\n"
		}
	}
	if !s.wake.IsZero() {
		seen += fmt.Sprintf("wake in %s\n", s.wake.Sub(s.now))
	}
	return seen
}

// write the changes and describe them: "+" came, "-" taken away, "~" changed, "^"
// for a new generation.
func (s *stage) write(in Input, out Output) string {
	var seen []string
	for _, c := range slices.Sorted(maps.Keys(out.Changes)) {
		spec := out.Changes[c]
		if spec == nil {
			delete(s.rows, c)
			seen = append(seen, "- "+c)
			continue
		}
		old, had := s.rows[c]
		mark := "~"
		switch {
		case !had || old.Spec.UID != spec.UID:
			mark, old.Status = "+", nil
		case old.Spec.Generation != spec.Generation:
			mark = "^"
		}
		s.rows[c] = Row{Spec: *spec, Status: old.Status}
		seen = append(seen, mark+" "+s.describe(c, *spec))
	}
	for _, g := range out.GivenUp {
		seen = append(seen, fmt.Sprintf("given up %s %s", g.Cluster, g.Phase))
	}
	return lines(brief(seen))
}

// brief cuts long lists of equal changes.
func brief(seen []string) []string {
	if len(seen) <= 8 {
		return seen
	}
	return append(slices.Clone(seen[:2]), fmt.Sprintf("… %d more like these", len(seen)-2))
}

func lines(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return strings.Join(l, "\n") + "\n"
}

func (s *stage) describe(c string, r atoll.RowSpec) string {
	out := fmt.Sprintf("%s %s %s", c, r.Phase, r.Revision)
	for _, item := range slices.Sorted(maps.Keys(r.Assigned)) {
		out += fmt.Sprintf(" %s=%d", item[strings.LastIndexByte(item, '/')+1:], r.Assigned[item])
	}
	if r.Orphan {
		out += " orphan"
	}
	for _, item := range r.NotHere {
		out += " without " + item[strings.LastIndexByte(item, '/')+1:]
	}
	for _, item := range slices.Sorted(maps.Keys(r.NotYet)) {
		out += " still with " + item[strings.LastIndexByte(item, '/')+1:]
	}
	reason := atoll.ParseRowReason(r.Reason)
	if reason.Plan != "" {
		reason.Plan = "HASH"
	}
	if reason.Word != "" {
		out += " [" + reason.String() + "]"
	}
	return out
}

func (s *stage) show() string {
	var out []string
	for _, c := range slices.Sorted(maps.Keys(s.rows)) {
		out = append(out, "  "+s.describe(c, s.rows[c].Spec))
	}
	return lines(out)
}

func (s *stage) waits() string {
	var out []string
	for _, w := range Advance(s.input()).Waits {
		what := w.For
		if s.plan != nil {
			what = strings.ReplaceAll(what, s.plan.Hash, "HASH")
		}
		out = append(out, fmt.Sprintf("  %s waits for %s (%s), %s", w.Cluster, what, w.Who, s.now.Sub(w.Since).Round(time.Second)))
	}
	return lines(out)
}

// check what holds of every step.
func check(t testing.TB, in Input, out Output) {
	t.Helper()
	for c, spec := range out.Changes {
		old, had := in.Rows[c]
		if spec == nil {
			continue
		}
		for _, u := range in.Unwanted[c] {
			lost := had && u.UID != "" && slices.Contains(spec.NotHere, u.Key) && spec.Phase != atoll.RowRemoving
			if lost && (spec.Phase == atoll.RowHeld || spec.Phase == atoll.RowActive && out.Plan == nil && in.Confirm == "" && !slices.Contains(out.Outs, c)) {
				t.Fatalf("%s loses %s, and nobody counts it: %+v, was %+v", c, u.Key, *spec, old.Spec)
			}
		}
		switch {
		case !had || old.Spec.UID != spec.UID:
			if spec.Generation <= max(in.Floor, old.Spec.Generation) || spec.Phase != atoll.RowActive {
				t.Fatalf("new row %+v over %+v, floor %d", spec, old.Spec, in.Floor)
			}
		case sameWork(old.Spec, *spec):
			if spec.Generation != old.Spec.Generation {
				t.Fatalf("generation of %s moves without work: %+v to %+v", c, old.Spec, spec)
			}
		case spec.Generation <= max(old.Spec.Generation, in.Floor):
			t.Fatalf("work on %s without a new generation: %+v to %+v, floor %d", c, old.Spec, spec, in.Floor)
		}
		if had && old.Spec.Phase != spec.Phase && spec.Since != in.Now.Unix() {
			t.Fatalf("%s is %s since %d, now is %d", c, spec.Phase, spec.Since, in.Now.Unix())
		}
		if spec.Phase != atoll.RowRemoving || had && old.Spec.Phase == atoll.RowRemoving {
			continue
		}
		v, _ := in.Decision.Verdict(c)
		if !in.Deleting && v.Outcome != schedule.Leaves {
			t.Fatalf("%s is removed although it is %s", c, v)
		}
		if spec.Revision != old.Spec.Revision || !maps.Equal(spec.Assigned, old.Spec.Assigned) {
			t.Fatalf("%s is removed and changed at once: %+v to %+v", c, old.Spec, spec)
		}
	}
	if out.Plan != nil && out.Plan.Hash == in.Confirm {
		t.Fatalf("plan %v was confirmed and waits still", out.Plan)
	}
}
