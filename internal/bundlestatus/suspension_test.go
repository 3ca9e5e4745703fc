package bundlestatus

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
)

// A suspension is the reason of Bundles that wait for its end, and is written into no other Bundle. Suspended clusters that wait are counted apart, and
// have their reason once no other cluster waits.
func TestASuspensionInARolloutStatus(t *testing.T) {
	named := &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"b"}}}
	suspended := func(r *Row) { r.Suspended = true }
	for name, c := range map[string]struct {
		is          *v1alpha1.Suspension
		rows        []Row
		want, waits string
		stage       v1alpha1.StageStatus
	}{
		"all": {&v1alpha1.Suspension{Dispatching: true}, []Row{newRow("a", readyStatus()), newRow("b", readyStatus(), inStage(0, true))},
			"DispatchingSuspended: an edit of spec.suspension.dispatching of PropagationPolicy web, which suspends changes; the application's owner", "DispatchingSuspended",
			v1alpha1.StageStatus{Name: "rest", Clusters: 2, Updated: 1, Waiting: 1}},
		"one of them": {named, []Row{newRow("a", readyStatus()), newRow("b", readyStatus(), inStage(0, true), suspended)},
			"DispatchingSuspended: an edit of spec.suspension.dispatchingOnClusters of PropagationPolicy web, which suspends changes; the application's owner", "DispatchingSuspended",
			v1alpha1.StageStatus{Name: "rest", Clusters: 1, Updated: 1, Suspended: 1}},
		"a first copy": {named, []Row{newRow("a", readyStatus()), newRow("b", nil, withPhase(atoll.RowPending, "DispatchingSuspended: the policy"), suspended)},
			"DispatchingSuspended: an edit of spec.suspension.dispatchingOnClusters of PropagationPolicy web, which suspends changes; the application's owner", "DispatchingSuspended",
			v1alpha1.StageStatus{Name: "rest", Clusters: 1, Updated: 1, Suspended: 1}},
		"at rest":           {&v1alpha1.Suspension{Dispatching: true}, []Row{newRow("a", readyStatus())}, "none", "", v1alpha1.StageStatus{}},
		"at rest, by name":  {named, []Row{newRow("a", readyStatus()), newRow("b", readyStatus(), suspended)}, "none", "", v1alpha1.StageStatus{}},
		"decisions, rows":   {&v1alpha1.Suspension{Scheduling: true}, []Row{newRow("a", readyStatus())}, "none", "", v1alpha1.StageStatus{}},
		"decisions, no row": {&v1alpha1.Suspension{Scheduling: true}, nil, "none", "SchedulingSuspended", v1alpha1.StageStatus{}},
	} {
		in := StatusInput{Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(nil).ForClusters(len(c.rows)), Now: time.Unix(1000, 0)}
		in.Bundle.Spec.Suspension, in.Bundle.Spec.Source = c.is, v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"}
		in.Halt = rollout.NewHalt(&in.Bundle.Spec, nil, in.Now)
		got, st := "none", ComputeStatus(in)
		if r := st.Rollout; r != nil {
			got = r.Reason + ": " + r.Message + "; " + r.Actor
			if r.Stages[0] != c.stage {
				t.Errorf("%s: %+v", name, r.Stages[0])
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		waits := ""
		if st.Wait != nil {
			waits = st.Wait.Reason
		}
		if waits != c.waits {
			t.Errorf("%s: the Bundle waits for %q: %s", name, waits, st.WaitsFor)
		}
		if scheduled := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleScheduled); len(c.rows) == 0 && scheduled.Reason != string(atoll.ReasonSchedulingSuspended) {
			t.Errorf("%s: %s: %s", name, scheduled.Reason, scheduled.Message)
		}
	}
	l := rowGroups{view: rolloutView{halt: rollout.Halt{Suspension: named}}}
	a, b := newRow("a", readyStatus()), newRow("a", readyStatus(), suspended)
	if string(l.rowSignature(&a)) == string(l.rowSignature(&b)) {
		t.Error("suspended clusters are counted as equal to others")
	}
	if (rolloutView{}).isSame(rolloutView{halt: rollout.Halt{Suspension: named}}) {
		t.Error("rows keep their groups when clusters are suspended")
	}
}

// A failure of another cluster holds no suspended cluster that waits: the status has the same reason as the step of the placer.
func TestAFailureWhileSuspendedClustersWait(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}}}}
	failed := &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true}
	in := StatusInput{Latest: latest, Terms: rollout.CompileTerms(stated), Now: time.Unix(1000, 0)}
	in.Rows = []Row{newRow("a", failed), newRow("b", readyStatus(), inStage(1, true), func(r *Row) { r.Suspended = true })}
	in.Bundle.Spec.Rollout = stated
	in.Bundle.Spec.Suspension = &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"b"}}}
	in.Halt = rollout.NewHalt(&in.Bundle.Spec, nil, in.Now)
	step := rollout.Input{Revision: latest.Name, Terms: in.Terms, Halt: in.Halt, Now: in.Now, Rows: map[string]rollout.Row{}}
	for i := range in.Rows {
		row := in.Rows[i].inRollout()
		step.Rows[in.Rows[i].Cluster] = row
		step.Decision.Verdicts = append(step.Decision.Verdicts, schedule.Verdict{Cluster: in.Rows[i].Cluster, UID: row.Spec.UID, Outcome: schedule.OutcomePlaced})
	}
	decided, shown := rollout.AdvanceRows(step).StageWait.Reason, ComputeStatus(in).Rollout.Reason
	if decided != atoll.ReasonDispatchingSuspended || shown != string(decided) {
		t.Errorf("the status shows %q, and the step decides %q", shown, decided)
	}
}

// A suspended cluster waits for a change since the change was made, and for its first copy since it was chosen.
func TestSinceWhenASuspendedClusterWaits(t *testing.T) {
	for name, c := range map[string]struct {
		phase atoll.RowPhase
		want  int64
	}{
		"a change":     {atoll.RowActive, 900},
		"a first copy": {atoll.RowPending, 100},
	} {
		row := newRow("b", readyStatus(), withPhase(c.phase, "DispatchingSuspended: the policy"), inStage(0, true), func(r *Row) { r.Suspended, r.Spec.Since = true, 100 })
		in := StatusInput{Rows: []Row{row}, Latest: latest.DeepCopy(), Now: time.Unix(1000, 0)}
		in.Latest.CreationTimestamp = metav1.Unix(900, 0)
		in.Bundle.Spec.Suspension = &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"b"}}}
		in.Halt = rollout.NewHalt(&in.Bundle.Spec, nil, in.Now)
		if w := ComputeStatus(in).Wait; w == nil || w.Reason != string(atoll.ReasonDispatchingSuspended) || w.Since.Unix() != c.want {
			t.Errorf("%s: it waits by %+v, want since %d", name, w, c.want)
		}
	}
}

// A copy that leaves waits for a person where a suspension leaves its replicas without another place.
func TestALeavingCopyWithoutAnotherPlaceInASuspension(t *testing.T) {
	web := schedule.Workload{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Replicas: 6}
	assigned := func(n int64) func(*Row) {
		return func(r *Row) { r.Spec.Assigned = map[string]int64{web.Key.String(): n} }
	}
	leaving := withPhase(atoll.RowLeaving, "ClusterRemoved: it leaves the fleet")
	for name, c := range map[string]struct {
		is    *v1alpha1.Suspension
		stays int64
		want  atoll.Reason
		text  string
	}{
		"no suspension":                {nil, 3, atoll.ReasonWaitsForReplacements, "a: what replaces it to become ready; no person has to act"},
		"of decisions":                 {&v1alpha1.Suspension{Scheduling: true}, 3, atoll.ReasonSchedulingSuspended, "a: another place for its replicas, while spec.suspension.scheduling of PropagationPolicy web suspends decisions; the application's owner must act"},
		"of decisions, all have place": {&v1alpha1.Suspension{Scheduling: true}, 6, atoll.ReasonWaitsForReplacements, "a: what replaces it"},
		"of changes":                   {&v1alpha1.Suspension{Dispatching: true}, 3, atoll.ReasonDispatchingSuspended, "a: another place for its replicas: an edit of spec.suspension.dispatching of PropagationPolicy web"},
		"of another cluster":           {&v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: []string{"z"}}}, 3, atoll.ReasonWaitsForReplacements, "a: what replaces it"},
	} {
		in := StatusInput{Rows: []Row{newRow("a", readyStatus(), assigned(3), leaving), newRow("b", readyStatus(), assigned(c.stays))}, Latest: latest, Workloads: []schedule.Workload{web}, Content: &atoll.Content{}, Now: time.Unix(1000, 0)}
		in.Bundle.Spec.Suspension, in.Bundle.Spec.Source = c.is, v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: "web"}
		in.Halt = rollout.NewHalt(&in.Bundle.Spec, nil, in.Now)
		st := ComputeStatus(in)
		if st.Wait == nil || st.Wait.Reason != string(c.want) || !strings.HasPrefix(st.WaitsFor, c.text) {
			t.Errorf("%s: it waits by %+v for %q, want %s for %q", name, st.Wait, st.WaitsFor, c.want, c.text)
		}
	}
}

// liftedFreeze is a freeze that a person lifts while the status of a Bundle is being computed: its end is published before
// the status with it is written.
type liftedFreeze struct {
	mu     sync.Mutex
	freeze *v1alpha1.ChangeFreeze
	// liftsAfterRead: the next read is the last one with the freeze.
	liftsAfterRead bool
	onChange       func(string)
}

func (f *liftedFreeze) Subscribe(fn func(string)) { f.onChange = fn }

func (f *liftedFreeze) Freeze() *v1alpha1.ChangeFreeze {
	f.mu.Lock()
	is, lifts := f.freeze, f.liftsAfterRead && f.freeze != nil
	if lifts {
		f.freeze = nil
	}
	f.mu.Unlock()
	if lifts {
		f.onChange(v1alpha1.HubSettingsName)
	}
	return is
}

// A freeze that ends before the status with it is written does not stay in the status, although nothing else happens to the Bundle.
func TestAFreezeIsLiftedBeforeItsStatusIsWritten(t *testing.T) {
	m := newMemory()
	m.addCluster("a")
	settings := &liftedFreeze{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := m.newConfig()
		cfg.Settings = settings
		r, done := New(cfg), make(chan error)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		m.apply("a")
		m.reportAvailable("a", 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		settings.mu.Lock()
		settings.freeze, settings.liftsAfterRead = &v1alpha1.ChangeFreeze{Reason: "outage", By: "alice", Since: metav1.Now()}, true
		settings.mu.Unlock()
		m.countWrites("bundle")
		m.cutRevision("b", webContent("h2"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := m.countWrites("bundle"); n < 2 {
			t.Errorf("%d writes: the status with the freeze was not written, or not written again", n)
		}
		if is := m.getBundle().Status.Rollout; is != nil && is.Reason == string(atoll.ReasonChangesFrozen) {
			t.Errorf("the status keeps the freeze that has ended: %+v", is)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
