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
// what came of them. See stage.runCommand for the commands.
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
				got += s.runCommand(words[0], words[1:])
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

// scriptStage is a Bundle, a fleet and a clock, and the shell around Advance reduced to
// its bones. Everything that Advance promises of all steps is checked at each.
type scriptStage struct {
	t         testing.TB
	now       time.Time
	began     time.Time
	clusters  map[string]*schedule.Cluster
	online    map[string]bool
	checkIns  map[string]time.Duration
	uncertain map[string]time.Time
	lostAt    map[string]time.Time
	backAt    map[string]int64
	rows      map[string]Row
	placement v1alpha1.PlacementSpec
	unfit     v1alpha1.WhenUnfit
	workloads []schedule.Workload
	baseInput Input
	ledger    RemovalLedger
	plan      *PendingRemoval
	progress  Progress
	stageWait StageWait
	rollout   *v1alpha1.Rollout
	// statesNone: the default bounds its rollouts.
	statesNone bool
	requeueAt  time.Time
	unwanted   map[string]string // items by cluster
	gates      gateStore
	rollback   *v1alpha1.RollbackStatus
	cut        *v1alpha1.StageCut
	others     otherBundles
	podBudgets map[string]int64 // disruptions that the PodDisruptionBudget of a cluster allows
	// failed are the clusters in which the application failed.
	failed map[string]schedule.FailedCluster
}

func newStage(t testing.TB) *scriptStage {
	return &scriptStage{
		t: t, now: time.Unix(1_000_000, 0), began: time.Unix(1_000_000, 0), clusters: map[string]*schedule.Cluster{}, online: map[string]bool{}, checkIns: map[string]time.Duration{}, uncertain: map[string]time.Time{}, lostAt: map[string]time.Time{}, backAt: map[string]int64{}, rows: map[string]Row{},
		baseInput: Input{BundleUID: "bundle", Revision: "r1"},
	}
}

// runCommand one command; what there is to see is returned.
func (s *scriptStage) runCommand(cmd string, args []string) string {
	switch cmd {
	case "cluster": // NAME [k=v label]... : joins, online
		s.joinCluster(args[0], args[1:])
	case "clusters":
		for _, n := range args {
			s.joinCluster(n, nil)
		}
	case "fleet": // N clusters c01..
		n, _ := strconv.Atoi(args[0])
		for i := range n {
			s.joinCluster(fmt.Sprintf("c%02d", i+1), nil)
		}
	case "recreate": // the Cluster is deleted and joins again
		s.clusters[args[0]].UID += "+"
		s.clusters[args[0]].CreatedAt = s.now.Unix()
	case "deny":
		s.clusters[args[0]].Accepted = false
	case "away":
		if s.online[args[0]] {
			s.online[args[0]], s.lostAt[args[0]] = false, s.now
		}
	case "back":
		if !s.online[args[0]] {
			s.online[args[0]], s.backAt[args[0]] = true, s.now.Unix()
		}
	case "checkin": // NAME EVERY
		s.checkIns[args[0]] = s.parseDuration(args[1])
	case "uncertain": // NAME DURATION : for so long the hub cannot decide whether it is disconnected
		s.uncertain[args[0]] = s.now.Add(s.parseDuration(args[1]))
	case "taint": // NAME KEY EFFECT
		at := metav1.NewTime(s.now)
		s.clusters[args[0]].Taints = []v1alpha1.Taint{{Key: args[1], Effect: corev1.TaintEffect(args[2]), TimeAdded: &at}}
	case "gone":
		delete(s.clusters, args[0])
	case "after":
		s.now = s.now.Add(s.parseDuration(args[0]))
		s.gates.trueTime += s.parseDuration(args[0])
	case "revision":
		s.baseInput.Revision = args[0]
	case "report": // STATE CLUSTER... : the row as it is, "*" for all that are online
		s.reportState(atoll.RowState(args[0]), args[1:])
	case "collect": // takes away what is removed
		for c, r := range s.rows {
			if r.Status != nil && r.Status.State == atoll.RowRemoved && r.Status.Generation == r.Spec.Generation {
				delete(s.rows, c)
			}
		}
	case "settle": // every reachable agent applies its rows
		for range 10 {
			s.advanceOnce()
			s.reportState(atoll.RowReady, []string{"*"})
			s.runCommand("collect", nil)
		}
	case "step":
		return s.advanceOnce()
	case "rows":
		return s.formatRows()
	case "waits":
		return s.formatWaits()
	case "stages":
		return s.formatStages()
	case "awaited":
		return "  " + strings.Join(AdvanceRows(s.buildInput()).BlockingClusters, " ") + "\n"
	case "gates":
		return s.formatGates()
	case "rollback":
		return s.formatRollback()
	default:
		return s.runUserCommand(cmd, args)
	}
	return ""
}

func (s *scriptStage) parseDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// runUserCommand of users.
func (s *scriptStage) runUserCommand(cmd string, args []string) string {
	rs := &s.placement.ReplicaScheduling
	switch cmd {
	case "place": // all | nowhere | names A.. | except A.. | label K=V
		s.setPlacement(args)
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
		s.baseInput.RemovalMode = v1alpha1.RemovalMode(args[0])
	case "order": // surge | connected | recreate
		s.baseInput.MoveOrder = map[string]MoveOrder{"surge": ReplacementFirst, "connected": OldFirstWhereConnected, "recreate": OldFirst}[args[0]]
	case "budget":
		b := intstr.Parse(args[0])
		s.baseInput.RemovalBudget = &b
	case "must-confirm": // an item states that its removals are confirmed
		s.baseInput.MustConfirmRemovals = true
	case "deletes": // REVISION ITEM... : what the target takes out of rows at REVISION
		if s.baseInput.DeletedItems == nil {
			s.baseInput.DeletedItems = map[string][]string{}
		}
		s.baseInput.DeletedItems[args[0]] = args[1:]
	case "moves": // ITEM CLUSTER... : what the target gives away in those clusters
		s.baseInput.MovedItems = map[string][]string{}
		for _, c := range args[1:] {
			s.baseInput.MovedItems[c] = args[:1]
		}
	case "unwanted": // ITEM CLUSTER... : what override rules keep out of those clusters
		s.unwanted = map[string]string{}
		for _, c := range args[1:] {
			s.unwanted[c] = args[0]
		}
	case "spent": // N rows of the namespace lost something already
		n, _ := strconv.Atoi(args[0])
		s.ledger.RecordDeletes("", s.now, n)
	case "confirm": // the plan that waits, or HASH
		s.baseInput.ConfirmedPlan = s.plan.Hash
		if len(args) > 0 {
			s.baseInput.ConfirmedPlan = args[0]
		}
	case "delete":
		s.baseInput.Deleting = true
	case "hold":
		s.baseInput.PausedByRestore = true
	case "release":
		s.baseInput.PausedByRestore = false
	case "floor":
		s.baseInput.GenerationFloor, _ = strconv.ParseInt(args[0], 10, 64)
	default:
		s.runRolloutCommand(cmd, args)
	}
	return ""
}

func (s *scriptStage) joinCluster(name string, labels []string) {
	c := s.clusters[name]
	if c == nil {
		c = &schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name, CreatedAt: s.now.Unix(), Accepted: true}
		s.clusters[name], s.online[name] = c, true
	}
	c.Taints, c.Accepted, c.Labels = nil, true, map[string]string{}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		c.Labels[k] = v
	}
}

func (s *scriptStage) setPlacement(args []string) {
	a := &v1alpha1.ClusterAffinity{}
	switch args[0] {
	case "all":
	case "nowhere":
		a = atoll.NowherePlacement().ClusterAffinity
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

func (s *scriptStage) reportState(state atoll.RowState, clusters []string) {
	for c, r := range s.rows {
		if !s.online[c] || !slices.Contains(clusters, c) && clusters[0] != "*" {
			continue
		}
		st := state
		if r.Spec.Phase == atoll.RowRemoving && state == atoll.RowReady {
			st = atoll.RowRemoved
		}
		since := s.now.Unix()
		if was := r.Status; was != nil && was.Generation == r.Spec.Generation && was.State == st {
			since = was.Since
		}
		r.Status = &atoll.RowStatus{Generation: r.Spec.Generation, State: st, Since: since, Total: 1, Items: s.reportPodBudget(c)}
		if st == atoll.RowFailed {
			r.Status.Message = "a finalizer stays"
		}
		s.rows[c] = r
	}
}

// buildInput of the next step.
func (s *scriptStage) buildInput() Input {
	in, specs := s.baseInput, map[string]atoll.RowSpec{}
	in.Now, in.Rows, in.ExplainWaits = s.now, map[string]Row{}, true
	for c, r := range s.rows {
		r.Online, r.CheckIn, r.UncertainUntil, r.LostAt = s.online[c], s.checkIns[c], s.uncertain[c], s.lostAt[c]
		r.ConnectedAt = s.backAt[c]
		in.Rows[c], specs[c] = r, r.Spec
	}
	s.addRolloutInput(&in)
	in.Order = s.orderInput()
	for c, item := range s.unwanted {
		u := ExcludedItem{Key: item, MustConfirm: s.baseInput.MustConfirmRemovals}
		if r, has := s.rows[c]; has && !slices.Contains(r.Spec.Absent, item) && r.Spec.Phase != atoll.RowRemoving && r.Spec.Phase != atoll.RowPending {
			u.UID = "u"
		}
		if in.ExcludedItems == nil {
			in.ExcludedItems = map[string][]ExcludedItem{}
		}
		in.ExcludedItems[c] = []ExcludedItem{u}
	}
	in.RecentDeletes, in.RecentlyRemoved = s.ledger.CountDeletes("", s.now), s.ledger.RemovedClusters("bundle", s.now)
	var cs []schedule.Cluster
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		cs = append(cs, *s.clusters[name])
	}
	in.Decision = schedule.DecidePlacement(schedule.Input{
		BundleUID: "bundle", Placement: s.placement, WhenUnfit: s.unfit, Clusters: cs, Workloads: s.workloads, Rows: specs, Now: s.now,
		FailedClusters: s.failed, KeepsLost: in.MoveOrder != ReplacementFirst, KeepsDecision: s.baseInput.Halt.Suspension.SuspendsScheduling(),
	})
	return in
}

// advanceOnce once, and once more, which must change nothing.
func (s *scriptStage) advanceOnce() string {
	in := s.buildInput()
	out := AdvanceRows(in)
	checkOutput(s.t, in, out)
	seen := s.applyOutput(in, out)
	s.ledger.RecordDeletes("", s.now, out.DirectDeletes)
	s.ledger.RecordRemovedClusters("bundle", s.now, out.RemovedByEdit)
	defer s.gates.storeVerdicts(out, s.now)
	defer s.storeRollback(out)
	defer s.storeCut(out)
	s.plan, s.requeueAt, s.progress, s.stageWait = out.PendingRemoval, out.RequeueAt, out.Progress, out.StageWait
	for range len(s.rows) {
		if !changesCount(in, out) && (in.Budget == nil || len(out.Changes) == 0) {
			break
		}
		if in, out = s.followCount(); len(out.Changes) == 0 {
			break
		}
		seen += s.applyOutput(in, out)
		s.plan, s.requeueAt = out.PendingRemoval, out.RequeueAt
	}
	if again := AdvanceRows(s.buildInput()); len(again.Changes) > 0 {
		s.t.Fatalf("a step that nothing came before changes\n%safter\n%s%s", s.applyOutput(s.buildInput(), again), seen, s.formatRows())
	}
	if out.PendingRemoval != nil {
		seen += fmt.Sprintf("plan %d:\n", len(out.PendingRemoval.Lines))
		for _, l := range out.PendingRemoval.Lines[:min(4, len(out.PendingRemoval.Lines))] {
			seen += "  " + l + "\n"
		}
	}
	if !s.requeueAt.IsZero() {
		seen += fmt.Sprintf("wake in %s\n", s.requeueAt.Sub(s.now))
	}
	return seen
}

// changesCount reports whether a step took a row out of the count of a rollout, or into it, so that its own write makes the
// next step: a row began to be removed, or came back. With a disruption budget every step may: its counts follow.
func changesCount(in Input, out Output) bool {
	for c, spec := range out.Changes {
		if row, has := in.Rows[c]; has && spec != nil && (spec.Phase == atoll.RowRemoving) != (row.Spec.Phase == atoll.RowRemoving) && slices.Contains(out.BlockingClusters, c) {
			return true
		}
	}
	return false
}

// followCount makes the step that follows a change of the count. It lets further rows take their turn, or admits what they
// lose in it. With a disruption budget, further copies may go, or stay for another reason.
func (s *scriptStage) followCount() (Input, Output) {
	in := s.buildInput()
	out := AdvanceRows(in)
	checkOutput(s.t, in, out)
	for c, spec := range out.Changes {
		row, has := s.rows[c]
		if !has || spec == nil || !takesTurn(in, row.Spec, *spec) && !isAdmission(row.Spec, *spec) && !(in.Budget != nil && followsBudget(row.Spec, *spec)) {
			s.t.Fatalf("more than turns change: %s\n%s", s.applyOutput(in, out), s.formatRows())
		}
	}
	return in, out
}

// takesTurn reports whether a row takes the target revision.
func takesTurn(in Input, was, is atoll.RowSpec) bool {
	return is.Phase == was.Phase && is.Revision == in.Revision && is.Revision != was.Revision
}

// isAdmission reports whether a row is admitted to lose something in its turn, and nothing else.
func isAdmission(was, is atoll.RowSpec) bool {
	return isSameWork(was, is) && is.AdmittedRemoval != was.AdmittedRemoval
}

// followsBudget reports whether a row changes as the counts of a disruption budget let it: a copy that is to go does so, or stays for another reason, or a
// first copy comes with the share that waits for it.
func followsBudget(was, is atoll.RowSpec) bool {
	switch was.Phase {
	case atoll.RowLeaving:
		return isSameWork(was, is) && (is.Phase == atoll.RowLeaving || is.Phase == atoll.RowRemoving)
	case atoll.RowPending:
		return is.Phase == atoll.RowActive && maps.Equal(was.Assigned, is.Assigned)
	}
	return false
}

// applyOutput the changes and describe them: "+" came, "-" taken away, "~" changed, "^"
// for a new generation.
func (s *scriptStage) applyOutput(in Input, out Output) string {
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
		seen = append(seen, mark+" "+s.formatRow(c, *spec))
	}
	for _, g := range out.AbandonedRows {
		seen = append(seen, fmt.Sprintf("given up %s %s", g.Cluster, g.Phase))
	}
	return joinLines(shortenList(seen))
}

// shortenList cuts long lists of equal changes.
func shortenList(seen []string) []string {
	if len(seen) <= 8 {
		return seen
	}
	return append(slices.Clone(seen[:2]), fmt.Sprintf("… %d more like these", len(seen)-2))
}

func joinLines(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return strings.Join(l, "\n") + "\n"
}

func (s *scriptStage) formatRow(c string, r atoll.RowSpec) string {
	out := fmt.Sprintf("%s %s %s", c, r.Phase, r.Revision)
	for _, item := range slices.Sorted(maps.Keys(r.Assigned)) {
		out += fmt.Sprintf(" %s=%d", item[strings.LastIndexByte(item, '/')+1:], r.Assigned[item])
	}
	if r.Orphan {
		out += " orphan"
	}
	for _, item := range r.Absent {
		out += " without " + item[strings.LastIndexByte(item, '/')+1:]
	}
	for _, item := range slices.Sorted(maps.Keys(r.ExcludedPending)) {
		out += " still with " + item[strings.LastIndexByte(item, '/')+1:]
	}
	if r.FailedAt != 0 {
		out += " failed its stage"
	}
	if r.AdmittedRemoval != "" {
		out += " loses items in its turn"
	}
	reason := atoll.ParseRowReason(r.Reason)
	if reason.Plan != "" {
		reason.Plan = "HASH"
	}
	if reason.Reason != "" {
		out += " [" + reason.String() + "]"
	}
	return out
}

func (s *scriptStage) formatRows() string {
	var out []string
	for _, c := range slices.Sorted(maps.Keys(s.rows)) {
		out = append(out, "  "+s.formatRow(c, s.rows[c].Spec))
	}
	return joinLines(out)
}

func (s *scriptStage) formatWaits() string {
	var out []string
	for _, w := range AdvanceRows(s.buildInput()).Waits {
		what := w.For
		if s.plan != nil {
			what = strings.ReplaceAll(what, s.plan.Hash, "HASH")
		}
		out = append(out, fmt.Sprintf("  %s waits for %s (%s), %s", w.Cluster, what, w.Actor, s.now.Sub(w.Since).Round(time.Second)))
	}
	return joinLines(out)
}

// checkOutput what holds of every step.
func checkOutput(t testing.TB, in Input, out Output) {
	t.Helper()
	for c, spec := range out.Changes {
		old, had := in.Rows[c]
		if spec == nil {
			continue
		}
		isAdmitted := newRolloutStep(in, false).isRemovalAdmitted(c) // an earlier step counted exactly this loss
		for _, u := range in.ExcludedItems[c] {
			lost := had && u.UID != "" && slices.Contains(spec.Absent, u.Key) && spec.Phase != atoll.RowRemoving
			if lost && (spec.Phase == atoll.RowHeld || spec.Phase == atoll.RowActive && !isAdmitted && out.PendingRemoval == nil && in.ConfirmedPlan == "" && !slices.Contains(out.RemovedByEdit, c)) {
				t.Fatalf("%s loses %s, and it is counted nowhere: %+v, was %+v", c, u.Key, *spec, old.Spec)
			}
		}
		switch {
		case !had || old.Spec.UID != spec.UID:
			if spec.Generation <= max(in.GenerationFloor, old.Spec.Generation) || !spec.Phase.IsChosen() {
				t.Fatalf("new row %+v over %+v, floor %d", spec, old.Spec, in.GenerationFloor)
			}
		case isSameWork(old.Spec, *spec):
			if spec.Generation != old.Spec.Generation {
				t.Fatalf("generation of %s moves without work: %+v to %+v", c, old.Spec, spec)
			}
		case spec.Generation <= max(old.Spec.Generation, in.GenerationFloor):
			t.Fatalf("work on %s without a new generation: %+v to %+v, floor %d", c, old.Spec, spec, in.GenerationFloor)
		}
		if had && old.Spec.Phase != spec.Phase && spec.Since != in.Now.Unix() {
			t.Fatalf("%s is %s since %d, now is %d", c, spec.Phase, spec.Since, in.Now.Unix())
		}
		if spec.Phase != atoll.RowRemoving || had && old.Spec.Phase == atoll.RowRemoving {
			continue
		}
		v, _ := in.Decision.FindVerdict(c)
		if !in.Deleting && v.Outcome != schedule.OutcomeLeaves {
			t.Fatalf("%s is removed although it is %s", c, v)
		}
		if !in.Deleting && v.LeavesLost && !in.Rows[c].Online {
			t.Fatalf("%s is removed while it is lost", c)
		}
		if spec.Revision != old.Spec.Revision || !maps.Equal(spec.Assigned, old.Spec.Assigned) {
			t.Fatalf("%s is removed and changed at once: %+v to %+v", c, old.Spec, spec)
		}
	}
	checkCopies(t, in, out)
	checkSuspension(t, in, out)
	checkOrder(t, in, out)
	checkDisruptions(t, in, out)
	if out.PendingRemoval != nil && out.PendingRemoval.Hash == in.ConfirmedPlan {
		t.Fatalf("plan %v was confirmed and waits still", out.PendingRemoval)
	}
}
