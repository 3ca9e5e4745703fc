package bundlestatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// inStage puts a row into a stage, at the revision before the latest if it waits.
func inStage(i int, waits bool) func(*Row) {
	return func(r *Row) {
		if r.Stage = i; waits {
			r.Spec.Revision = "earlier"
		}
	}
}

// The status of a Bundle counts its rows by stage, and says for what they wait, and the user and time of a pause.
func TestRolloutStatus(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
		{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a", "b"}}, MinSuccessTime: &metav1.Duration{Duration: time.Minute}},
	}}
	pause := &v1alpha1.RolloutPause{Reason: "Requested", Message: "lunch", By: "alice", Since: metav1.NewTime(time.Unix(900, 0))}
	failed := &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true, Reason: "CrashLoopBackOff"}
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	for name, c := range map[string]struct {
		rows   []Row
		pause  *v1alpha1.RolloutPause
		stages string // clusters, updated, changing, failed, waiting, disconnected
		now    string // stage, reason, seconds since
		waits  string
	}{
		"all updated":             {[]Row{newRow("a", readyStatus()), newRow("c", readyStatus(), inStage(1, false))}, nil, "canary 1 1 0 0 0 0, rest 1 1 0 0 0 0", "", ""},
		"the first stage begins":  {[]Row{newRow("a", behind), newRow("c", readyStatus(), inStage(1, true))}, nil, "canary 1 0 1 0 0 0, rest 1 0 0 0 1 0", "canary WaitsForStage 1000", "a: the latest change"},
		"the first stage soaks":   {[]Row{newRow("a", readyStatus()), newRow("c", readyStatus(), inStage(1, true))}, nil, "canary 1 1 0 0 0 0, rest 1 0 0 0 1 0", "canary WaitsForSuccessTime 1000", "c: stage canary to stay healthy for minSuccessTime; no person has to act"},
		"the first stage failed":  {[]Row{newRow("a", failed), newRow("c", readyStatus(), inStage(1, true))}, nil, "canary 1 0 0 1 0 0, rest 1 0 0 0 1 0", "canary StageFailed 1000", "c: stage canary, in which 1 cluster failed"},
		"nothing waits":           {[]Row{newRow("a", failed), newRow("c", behind, inStage(1, false))}, nil, "canary 1 0 0 1 0 0, rest 1 0 1 0 0 0", "rest  0", "a: CrashLoopBackOff"},
		"paused":                  {[]Row{newRow("a", readyStatus()), newRow("c", readyStatus(), inStage(1, true))}, pause, "canary 1 1 0 0 0 0, rest 1 0 0 0 1 0", "canary RolloutPaused 900", "c: `atoll rollout resume`: alice paused it (Requested lunch); the application's owner must act"},
		"paused, and all updated": {[]Row{newRow("a", readyStatus())}, pause, "canary 1 1 0 0 0 0, rest 0 0 0 0 0 0", "", ""},
		"one is disconnected":     {[]Row{newRow("a", readyStatus()), newRow("c", readyStatus(), inStage(1, true), makeUnreachable)}, nil, "canary 1 1 0 0 0 0, rest 0 0 0 0 0 1", " WaitsForCluster 1000", ""},
		"no copy yet":             {[]Row{newRow("a", behind), newRow("c", nil, inStage(1, false), withPhase(atoll.RowPending, "WaitsForStage: its turn"))}, nil, "canary 1 0 1 0 0 0, rest 1 0 0 0 1 0", "canary WaitsForStage 1000", "a: the latest change"},
	} {
		t.Run(name, func(t *testing.T) {
			b := state.Bundle{}
			b.Spec.Rollout, b.Spec.Pause = stated, c.pause
			got := ComputeStatus(StatusInput{Bundle: b, Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(stated), Halt: rollout.NewHalt(&b.Spec, nil, time.Unix(1000, 0)), Now: time.Unix(1000, 0)})
			var stages []string
			for _, s := range got.Rollout.Stages {
				stages = append(stages, fmt.Sprint(s.Name, " ", s.Clusters, " ", s.Updated, " ", s.Changing, " ", s.Failed, " ", s.Waiting, " ", s.Disconnected))
			}
			if is := strings.Join(stages, ", "); is != c.stages {
				t.Errorf("stages %s, want %s", is, c.stages)
			}
			now := ""
			if r := got.Rollout; r.CurrentStage+r.Reason != "" {
				since := int64(0)
				if r.Since != nil {
					since = r.Since.Unix()
				}
				now = fmt.Sprint(r.CurrentStage, " ", r.Reason, " ", since)
				if want := atoll.ActorOf(atoll.Reason(r.Reason)); r.Reason != "" && (r.Actor != string(want) || r.Message == "") {
					t.Errorf("the actor is %q, want %q, by %q", r.Actor, want, r.Message)
				}
			}
			if now != c.now || !strings.HasPrefix(got.WaitsFor, c.waits) || c.waits == "" && got.WaitsFor != "" {
				t.Errorf("now %q, want %q; the Bundle waits for %q, want %q", now, c.now, got.WaitsFor, c.waits)
			}
			if by := got.Rollout.PausedBy; (by == "alice") != (c.pause != nil) || (got.Rollout.PausedSince != nil) != (c.pause != nil) {
				t.Errorf("paused by %q since %v", by, got.Rollout.PausedSince)
			}
		})
	}
}

// Clusters outside their change window wait for it, and other rows of the stage do not hide why. Only rows that wait make another look when windows
// change.
func TestWindowsInARolloutStatus(t *testing.T) {
	stated := &v1alpha1.Rollout{Windows: []v1alpha1.ChangeWindow{
		{Type: v1alpha1.ChangeWindowAllow, Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}, ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
	}}
	terms := rollout.CompileTerms(stated)
	outside := func(r *Row) {
		r.Windows, r.Spec.Revision = terms.WindowsOf(map[string]string{"env": "prod"}, ""), "earlier"
	}
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	for name, c := range map[string]struct {
		rows  []Row
		hour  int
		want  string
		again time.Duration
	}{
		"one waits":           {[]Row{newRow("a", readyStatus(), outside), newRow("b", readyStatus())}, 12, "OutsideWindow: a change window of stage rest, which opens at 2026-12-01T22:00:00Z", 10 * time.Hour},
		"another one changes": {[]Row{newRow("a", readyStatus(), outside), newRow("b", behind)}, 12, "OutsideWindow: a change window of stage rest, which opens at 2026-12-01T22:00:00Z", 10 * time.Hour},
		"one waits inside":    {[]Row{newRow("a", readyStatus(), outside)}, 22, "WaitsForStage: stage rest to become healthy", time.Hour},
		"at rest":             {[]Row{newRow("a", readyStatus(), outside, func(r *Row) { r.Spec.Revision = latest.Name })}, 12, ": ", 0},
	} {
		now := time.Date(2026, 12, 1, c.hour, 0, 0, 0, time.UTC)
		in := StatusInput{Rows: c.rows, Latest: latest, Terms: terms, Now: now}
		in.Bundle.Spec.Rollout = stated
		r := ComputeStatus(in).Rollout
		if got := r.Reason + ": " + r.Message; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		m := &bundleMemo{}
		if m.wakeAtWindowChange(in); m.again != c.again {
			t.Errorf("%s: the next look is in %s, want %s", name, m.again, c.again)
		}
		var l rowGroups
		l.view = rolloutView{terms: terms}
		other := c.rows[0]
		other.Windows = 0
		if a := string(l.rowSignature(&c.rows[0])); a == string(l.rowSignature(&other)) {
			t.Errorf("%s: clusters of other windows are counted as equal", name)
		}
	}
}

// A freeze is the reason of Bundles that wait, with its author and time, and is written into no other Bundle, whether it has terms or not.
func TestAFreezeInARolloutStatus(t *testing.T) {
	freeze := &v1alpha1.ChangeFreeze{Reason: "outage", By: "alice", Since: metav1.Unix(900, 0), Until: &metav1.Time{Time: time.Unix(1600, 0)}}
	for name, c := range map[string]struct {
		stated *v1alpha1.Rollout
		waits  bool
		want   string
		again  time.Duration
	}{
		"one waits":       {&v1alpha1.Rollout{Type: v1alpha1.RolloutAll}, true, "ChangesFrozen: `atoll unfreeze` or 1970-01-01T00:26:40Z: alice froze all changes at 1970-01-01T00:15:00Z (outage); the hub's administrator", 600 * time.Second},
		"few, by default": {nil, true, "ChangesFrozen: `atoll unfreeze` or 1970-01-01T00:26:40Z: alice froze all changes at 1970-01-01T00:15:00Z (outage); the hub's administrator", 600 * time.Second},
		"at rest":         {&v1alpha1.Rollout{Type: v1alpha1.RolloutAll}, false, "none", 0},
		"at rest, few":    {nil, false, "none", 0},
	} {
		rows := []Row{newRow("a", readyStatus()), newRow("b", readyStatus(), inStage(0, c.waits))}
		in := StatusInput{Rows: rows, Latest: latest, Terms: rollout.CompileTerms(c.stated).ForClusters(len(rows)), Now: time.Unix(1000, 0)}
		in.Bundle.Spec.Rollout, in.Halt = c.stated, rollout.NewHalt(&in.Bundle.Spec, freeze, in.Now)
		got := "none"
		st := ComputeStatus(in)
		if r := st.Rollout; r != nil {
			got = r.Reason + ": " + r.Message + "; " + r.Actor
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		m := &bundleMemo{}
		if m.wakeAtWindowChange(in); m.again != c.again {
			t.Errorf("%s: the next look is in %s, want %s", name, m.again, c.again)
		}
	}
}

// A failure holds what waited before the failed row changed, and not what came later or what a person resumed.
func TestFailuresThatHoldARollout(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}}}}
	failedAt := func(at int64) Row {
		return newRow("a", &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true}, func(r *Row) { r.Spec.MovedAt = at })
	}
	cameAt := func(at int64) Row {
		return newRow("c", nil, inStage(1, false), withPhase(atoll.RowPending, "WaitsForStage: its turn"), func(r *Row) { r.Spec.Since = at })
	}
	for name, c := range map[string]struct {
		rows    []Row
		resumed int64
		want    string
	}{
		"a cluster with the old revision waits": {[]Row{failedAt(500), newRow("c", readyStatus(), inStage(1, true))}, 0, "StageFailed"},
		"a person resumed":                      {[]Row{failedAt(500), newRow("c", readyStatus(), inStage(1, true))}, 600, "WaitsForStage"},
		"a cluster that came before":            {[]Row{failedAt(500), cameAt(400)}, 0, "StageFailed"},
		"a cluster that came later":             {[]Row{failedAt(500), cameAt(600)}, 0, "WaitsForStage"},
		"it is healthy after the resume":        {[]Row{newRow("a", readyStatus(), func(r *Row) { r.Spec.MovedAt, r.Spec.FailedAt = 500, 550 }), newRow("c", readyStatus(), inStage(1, true))}, 600, "WaitsForStage"},
		"it is healthy without a resume":        {[]Row{newRow("a", readyStatus(), func(r *Row) { r.Spec.MovedAt, r.Spec.FailedAt = 500, 550 }), newRow("c", readyStatus(), inStage(1, true))}, 0, "StageFailed"},
		"both":                                  {[]Row{failedAt(500), cameAt(600), newRow("d", readyStatus(), inStage(1, true))}, 0, "StageFailed"},
	} {
		in := StatusInput{Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(stated), Now: time.Unix(1000, 0)}
		if in.Bundle.Spec.Rollout = stated; c.resumed != 0 {
			in.Bundle.Spec.Resume = &v1alpha1.RolloutResume{At: metav1.Unix(c.resumed, 0)}
		}
		if got := ComputeStatus(in).Rollout.Reason; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Without a stated rollout, status.rollout is there while clusters wait, and names the unhealthy clusters and the way on. Only
// a state in which a person must act is news: a change through which clusters stay healthy costs no write of its own.
func TestStatusOfADefaultRollout(t *testing.T) {
	failed := &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true, Since: 500}
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	fleet := func(a, b *atoll.RowStatus, waiting ...func(*Row)) (rows []Row) {
		rows = append(rows, newRow("a", a), newRow("b", b))
		for _, c := range []string{"c", "d", "e", "f", "g", "h"} {
			rows = append(rows, newRow(c, readyStatus(), waiting...))
		}
		return rows
	}
	noCapacity := func(r *Row) { r.Spec.Revision, r.Spec.Reason = "earlier", "NoCapacity: capacity.replicas is 3" }
	for name, c := range map[string]struct {
		rows    []Row
		resumed int64
		want    string
		isNews  bool
	}{
		"nothing waits":          {fleet(behind, failed), 0, "", false},
		"a quarter changes":      {fleet(behind, behind, inStage(0, true)), 0, "MaxUnavailableReached: a, b to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows", false},
		"a quarter failed":       {fleet(failed, failed, inStage(0, true)), 0, "TooManyUnhealthy: a, b to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows", true},
		"one of them failed":     {fleet(failed, behind, inStage(0, true)), 0, "MaxUnavailableReached: a, b to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows", false},
		"a person resumed":       {fleet(failed, failed, inStage(0, true)), 600, "WaitsForStage: stage rest to become healthy", false},
		"another template came":  {append([]Row{newRow("a", failed, inStage(0, true)), newRow("b", failed, inStage(0, true))}, fleet(nil, nil, inStage(0, true))[2:]...), 0, "MaxUnavailableReached: a, b to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows", false},
		"a failure came later":   {fleet(failed, failed, inStage(0, true)), 499, "TooManyUnhealthy: a, b to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows", true},
		"a resume of the future": {fleet(failed, failed, inStage(0, true)), 1001, "TooManyUnhealthy: a, b to become healthy, another template, or `atoll rollout resume`: as many are unhealthy as maxUnavailable, by default 25%, allows", true},
		"clusters lack capacity": {fleet(readyStatus(), readyStatus(), noCapacity), 0, "", false},
		"four clusters":          {fleet(failed, failed, inStage(0, true))[:4], 0, "", false},
	} {
		in := StatusInput{Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(nil).ForClusters(countCopies(c.rows)), Now: time.Unix(1000, 0)}
		if c.resumed != 0 {
			in.Bundle.Spec.Resume = &v1alpha1.RolloutResume{At: metav1.Unix(c.resumed, 0)}
		}
		st, got := ComputeStatus(in), ""
		if r := st.Rollout; r != nil {
			got = r.Reason + ": " + r.Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if isNews := coarseRollout(st.Rollout, false) != ""; isNews != c.isNews {
			t.Errorf("%s: it is news: %t", name, isNews)
		}
	}
}

// A resume tells rows apart that are alike otherwise, by the same function as in the placer.
func TestAResumeSplitsGroupsOfADefaultRollout(t *testing.T) {
	failed := func(since int64) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true, Since: since}
	}
	for _, c := range []struct{ resumed, groups int64 }{{0, 1}, {400, 1}, {600, 2}, {800, 1}} {
		s := bundleSnapshot{terms: rollout.CompileTerms(nil)}
		if c.resumed != 0 {
			s.bundle.Spec.Resume = &v1alpha1.RolloutResume{At: metav1.Unix(c.resumed, 0)}
		}
		view := s.rolloutView()
		all := func() (rows []Row) {
			for i, since := range []int64{500, 700} {
				row := newRow(fmt.Sprint("c", i), failed(since))
				row.isExcused = view.resume.IsExcused(view.terms, row.inRollout())
				rows = append(rows, row)
			}
			return rows
		}
		if rows, _ := newRowGroups().readRows(rowSource{all: all, view: view}); len(rows) != int(c.groups) {
			t.Errorf("resumed at %d: %d groups, want %d", c.resumed, len(rows), c.groups)
		}
	}
}

// A cluster that is lost in its change, or within minSuccessTime, holds its stage for a bounded time. Rows that count no more are
// alike.
func TestLostClustersInARollout(t *testing.T) {
	terms := rollout.CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
		{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}, MinSuccessTime: &metav1.Duration{Duration: time.Minute}},
	}})
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true, Since: 1}
	healthy := &atoll.RowStatus{Generation: 5, State: atoll.RowReady, Applied: true, Since: 1000}
	for name, c := range map[string]struct {
		status    *atoll.RowStatus
		failed    bool
		at        int64
		want      string
		countsFor int64
	}{
		"in its change":                      {behind, false, 1500, "1 0 1 0 0, 1 0", 100},
		"in its change, after ten minutes":   {behind, false, 1600, "0 0 0 0 1, 0 0", 0},
		"within minSuccessTime":              {healthy, false, 1059, "1 1 0 0 0, 1 1", 1},
		"after minSuccessTime":               {healthy, false, 1060, "0 0 0 0 1, 0 0", 0},
		"its stage failed":                   {behind, true, 99_999, "1 0 0 1 0, 0 0", 0},
		"its stage failed, a moment earlier": {behind, true, 1001, "1 0 0 1 0, 1 0", 599},
	} {
		row, now := newRow("a", c.status, makeUnreachable), time.Unix(c.at, 0)
		if c.failed {
			row.Spec.FailedAt = 1000
		}
		row.setLoss(&v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.Unix(1000, 0)}}}}, terms, now)
		in := StatusInput{Rows: []Row{row, newRow("c", readyStatus(), inStage(1, true))}, Latest: latest, Terms: terms, Now: now}
		tally := countRows(in)
		n := tally.progress.Stages[0]
		if got := fmt.Sprintf("%d %d %d %d %d, %d %d", n.Clusters, n.Updated, n.Changing, n.Failed, n.Disconnected, tally.progress.Unavailable, n.Soaking); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		m := &bundleMemo{}
		if m.wakeAtCountChange(in.Rows, now); int64(m.again/time.Second) != c.countsFor {
			t.Errorf("%s: it counts for another %s, want %ds", name, m.again, c.countsFor)
		}
	}
}

// A rollback shows which stage returns, and why. It holds where more clusters fail at their earlier revision than may.
func TestARollbackInARolloutStatus(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
		{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}, OnFailure: v1alpha1.FailureRollback},
		{Name: "wide", Clusters: v1alpha1.StageClusters{Names: []string{"b"}}, OnFailure: v1alpha1.FailureRollback},
	}}
	row := func(name string, stage int, isBack bool, status *atoll.RowStatus) Row {
		return newRow(name, status, inStage(stage, isBack), func(r *Row) {
			if r.Spec.PreviousRevision = "earlier"; isBack {
				r.Spec.PreviousRevision = latest.Name
			}
		})
	}
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	failed := &atoll.RowStatus{Generation: 5, State: atoll.RowDegraded, Applied: true}
	for name, c := range map[string]struct {
		rows       []Row
		state      v1alpha1.RollbackState
		stage      string
		want, text string
	}{
		"the last stage returns first": {[]Row{row("a", 0, false, readyStatus()), row("b", 1, false, failed)}, v1alpha1.RollingBack, "wide", "RollingBack", "b of stage wide failed with Degraded"},
		"it becomes healthy":           {[]Row{row("a", 0, false, readyStatus()), row("b", 1, true, behind)}, v1alpha1.RollingBack, "wide", "RollingBack", "the rollback of revision"},
		"the first stage returns":      {[]Row{row("a", 0, false, readyStatus()), row("b", 1, true, readyStatus())}, v1alpha1.RollingBack, "canary", "RollingBack", "in stage canary"},
		"the return fails":             {[]Row{row("a", 0, false, readyStatus()), row("b", 1, true, failed)}, v1alpha1.RollingBack, "wide", "RollbackFailed", "to become healthy at their earlier revision"},
		"it has ended":                 {[]Row{row("a", 0, true, readyStatus()), row("b", 1, true, failed)}, v1alpha1.RolledBack, "wide", "RolledBack", "another template, or `atoll rollout resume`"},
	} {
		b := state.Bundle{}
		b.Spec.Rollout = stated
		record := &v1alpha1.RollbackStatus{Revision: latest.Name, Stage: "wide", Cluster: "b", Reason: "Degraded", State: c.state, Since: metav1.Unix(900, 0)}
		b.Status.Rollout = &v1alpha1.RolloutStatus{Rollback: record}
		got := ComputeStatus(StatusInput{Bundle: b, Rows: c.rows, Latest: latest, Terms: rollout.CompileTerms(stated), Now: time.Unix(1000, 0)}).Rollout
		if got.CurrentStage != c.stage || got.Reason != c.want || !strings.Contains(got.Message, c.text) || got.Rollback != record {
			t.Errorf("%s: stage %s, %s: %s, want %s, %s: %s", name, got.CurrentStage, got.Reason, got.Message, c.stage, c.want, c.text)
		}
	}
}

// A cluster that is not healthy within progressDeadline counts as failed, with the reason. The next look is at the deadline, and clusters
// of different deadlines are counted apart.
func TestDeadlinesInARolloutStatus(t *testing.T) {
	terms := rollout.CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{
		{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a", "b"}}, ProgressDeadline: &metav1.Duration{Duration: time.Minute}},
	}})
	connected := func(at int64) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(at, 0)}}}}
	}
	changing := func(name string, connectedAt, now int64) Row {
		row := newRow(name, &atoll.RowStatus{Generation: 5, State: atoll.RowProgressing, Since: 1001}, func(r *Row) { r.Spec.MovedAt = 1000 })
		row.setDeadline(connected(connectedAt), terms, time.Unix(now, 0))
		return row
	}
	for name, c := range map[string]struct {
		at                int64
		want, wait, since string
		countsFor         int64
	}{
		"before":             {1059, "0 failed, 2 changing", "Progressing", "1001", 1},
		"one is late":        {1060, "1 failed, 1 changing", "StageFailed", "", 20},
		"both are late":      {1080, "2 failed, 0 changing", "StageFailed", "", 0},
		"nothing waits then": {1081, "2 failed, 0 changing", "StageDeadlineExceeded", "1060", 0},
	} {
		now := time.Unix(c.at, 0)
		in := StatusInput{Rows: []Row{changing("a", 1, c.at), changing("b", 1020, c.at)}, Latest: latest, Terms: terms, Now: now}
		if c.at < 1081 {
			in.Rows = append(in.Rows, newRow("c", readyStatus(), inStage(1, true)))
		}
		tally := countRows(in)
		n := tally.progress.Stages[0]
		if got := fmt.Sprintf("%d failed, %d changing", n.Failed, n.Changing); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		w := tally.currentWait(in)
		if string(w.reason) != c.wait || c.since != "" && fmt.Sprint(w.since.Unix()) != c.since {
			t.Errorf("%s: it waits for %s since %d, want %s since %s", name, w.reason, w.since.Unix(), c.wait, c.since)
		}
		m := &bundleMemo{}
		if m.wakeAtCountChange(in.Rows, now); int64(m.again/time.Second) != c.countsFor {
			t.Errorf("%s: the next look is in %s, want %ds", name, m.again, c.countsFor)
		}
		var l rowGroups
		l.view = rolloutView{terms: terms}
		if a := string(l.rowSignature(&in.Rows[0])); a == string(l.rowSignature(&in.Rows[1])) {
			t.Errorf("%s: clusters of different deadlines are counted as equal", name)
		}
	}
}

// The status keeps the verdicts that the placer stored, and has the reason of the gate that does not hold. A stage whose gates are
// judged does not wait for minSuccessTime.
func TestGatesInARolloutStatus(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{
		Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}, MinSuccessTime: &metav1.Duration{Duration: time.Minute},
		GatesAfter: []v1alpha1.RolloutGate{{Name: "time", Wait: &metav1.Duration{Duration: time.Hour}}, {Name: "owner", Approval: &v1alpha1.ApprovalGate{}}},
	}}}
	rows := []Row{newRow("a", readyStatus()), newRow("c", readyStatus(), inStage(1, true))}
	step := rollout.Input{Revision: latest.Name, Terms: rollout.CompileTerms(stated), Now: time.Unix(1000, 0), Rows: map[string]rollout.Row{
		"a": {Spec: atoll.RowSpec{UID: "a", Generation: 5, Phase: atoll.RowActive, Revision: latest.Name}, Status: readyStatus(), Online: true},
		"c": {Spec: atoll.RowSpec{UID: "c", Generation: 5, Phase: atoll.RowActive, Revision: "earlier"}, Status: readyStatus(), Online: true, Stage: 1},
	}, Decision: schedule.Decision{Verdicts: []schedule.Verdict{{Cluster: "a", UID: "a", Outcome: schedule.OutcomePlaced}, {Cluster: "c", UID: "c", Outcome: schedule.OutcomePlaced}}}}
	step.Terms = rollout.CompileTerms(&v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: stated.Stages[0].Clusters, GatesAfter: stated.Stages[0].GatesAfter}}})
	verdicts := rollout.AdvanceRows(step).Gates
	if len(verdicts) != 2 {
		t.Fatalf("%d gates are judged", len(verdicts))
	}
	judged := func(states ...v1alpha1.GateState) (out []v1alpha1.GateStatus) {
		for i, g := range verdicts {
			g.State = states[i]
			out = append(out, g)
		}
		return out
	}
	for name, c := range map[string]struct {
		gates []v1alpha1.GateStatus
		want  string
	}{
		"not judged":       {nil, "canary WaitsForSuccessTime"},
		"none holds":       {judged(v1alpha1.GateWaiting, v1alpha1.GateWaiting), "rest WaitsForGateTime"},
		"the first holds":  {judged(v1alpha1.GateSatisfied, v1alpha1.GateWaiting), "rest WaitsForApproval"},
		"they have passed": {judged(v1alpha1.GatePassed, v1alpha1.GatePassed), "rest WaitsForStage"},
		"one failed":       {judged(v1alpha1.GateWaiting, v1alpha1.GateFailed), "rest GateFailed"},
		"it is resumed":    {judged(v1alpha1.GateWaiting, v1alpha1.GateFailed), "rest WaitsForGateTime"},
		"another revision": {[]v1alpha1.GateStatus{{Stage: "canary", Name: "time", Revision: "other", State: v1alpha1.GatePassed}}, "canary WaitsForSuccessTime"},
	} {
		in := StatusInput{Rows: rows, Latest: latest, Terms: rollout.CompileTerms(stated), Now: time.Unix(1000, 0)}
		in.Bundle.Spec.Rollout, in.Bundle.Status.Rollout = stated, &v1alpha1.RolloutStatus{Gates: c.gates}
		if name == "it is resumed" {
			in.Bundle.Spec.Resume = &v1alpha1.RolloutResume{By: "alice", At: metav1.Unix(1000, 0)}
		}
		got := ComputeStatus(in).Rollout
		if is := got.CurrentStage + " " + got.Reason; is != c.want || len(got.Gates) != len(c.gates) {
			t.Errorf("%s: %s with %d gates, want %s", name, is, len(got.Gates), c.want)
		}
	}
}

// Automatic stages are named by their sizes, also in what rows wait for. The status keeps the division that the placer stored, and shows
// the wait for one of another revision.
func TestAutoStagesInARolloutStatus(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, AutoStages: []intstr.IntOrString{intstr.FromInt32(1), intstr.FromString("50%")}}
	step := rollout.Input{Revision: latest.Name, Terms: rollout.CompileTerms(stated).WithStageCut("shop", "web", nil), Now: time.Unix(1000, 0), Rows: map[string]rollout.Row{
		"a": {Spec: atoll.RowSpec{UID: "a", Generation: 5, Phase: atoll.RowActive, Revision: "earlier"}, Status: readyStatus(), Online: true},
	}, Decision: schedule.Decision{Verdicts: []schedule.Verdict{{Cluster: "a", UID: "a", Outcome: schedule.OutcomePlaced}}}}
	cut := rollout.AdvanceRows(step).StageCut
	if cut == nil {
		t.Fatal("the clusters are not divided")
	}
	other := cut.DeepCopy()
	other.Revision = "earlier"
	for name, c := range map[string]struct {
		cut         *v1alpha1.StageCut
		now, waits  string
		dropsStages bool
	}{
		"divided":             {cut, "auto 50% WaitsForStage", "c: stage auto 50% to become healthy", false},
		"not divided":         {nil, "auto 1 WaitsForStage", "c: the hub to divide the connected clusters into stages", false},
		"of another revision": {other, "auto 1 WaitsForStage", "c: the hub to divide the connected clusters into stages", false},
		"stages are stated":   {cut, "rest WaitsForStage", "c: stage rest to become healthy", true},
	} {
		in := StatusInput{Rows: []Row{newRow("a", readyStatus()), newRow("c", readyStatus(), inStage(1, true))}, Latest: latest, Now: time.Unix(1000, 0)}
		in.Bundle.Spec.Rollout, in.Bundle.Status.Rollout = stated, &v1alpha1.RolloutStatus{StageCut: c.cut}
		if c.dropsStages {
			in.Bundle.Spec.Rollout = &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}}}}
		}
		in.Terms = rollout.CompileTerms(in.Bundle.Spec.Rollout).WithStageCut("shop", "web", c.cut)
		got := ComputeStatus(in)
		if is := got.Rollout.CurrentStage + " " + got.Rollout.Reason; is != c.now || !strings.HasPrefix(got.WaitsFor, c.waits) {
			t.Errorf("%s: %s, and %s; want %s, and %s", name, is, got.WaitsFor, c.now, c.waits)
		}
		if keeps := got.Rollout.StageCut != nil; keeps != (c.cut != nil && !c.dropsStages) {
			t.Errorf("%s: the division is kept: %t", name, keeps)
		}
		if a, b := (rolloutView{stated: stated, cut: cut, terms: in.Terms}), (rolloutView{stated: stated, cut: c.cut, terms: in.Terms}); a.isSame(b) != (c.cut == cut) {
			t.Errorf("%s: rows are in the same groups: %t", name, a.isSame(b))
		}
	}
	x, b := newBundleIndex(), state.Bundle{}
	x.recordBundleChange(b)
	if b.Status.Rollout = (&v1alpha1.RolloutStatus{StageCut: cut}); !x.recordBundleChange(b) || x.recordBundleChange(b) {
		t.Error("a division that is stored does not request a status, or requests one twice")
	}
}

// Events report each stage once, a failure, an approval that is missing, and the end. It is no end that only suspended clusters wait. A cluster that is unhealthy for a moment is no news.
func TestNewsOfARollout(t *testing.T) {
	underway, was, got := false, (*v1alpha1.RolloutStatus)(nil), []string{}
	for _, is := range []v1alpha1.RolloutStatus{
		{}, {CurrentStage: "rest"}, {},
		{CurrentStage: "canary", Reason: "WaitsForStage"}, {CurrentStage: "canary", Reason: "StageFailed", Message: "x", Actor: "y"}, {CurrentStage: "canary", Reason: "StageFailed", Message: "z", Actor: "y"},
		{CurrentStage: "europe", Reason: "WaitsForApproval"}, {CurrentStage: "europe", Reason: "MaxConcurrencyReached"}, {CurrentStage: "rest"}, {}, {CurrentStage: "rest"}, {},
		{CurrentStage: "rest", Reason: "WaitsForStage"}, {Reason: "DispatchingSuspended"}, {CurrentStage: "rest", Reason: "WaitsForStage"}, {},
	} {
		var news []rolloutNews
		news, underway = describeRolloutNews(was, &is, underway)
		for _, n := range news {
			got = append(got, string(n.reason))
		}
		was = &is
	}
	if is, want := strings.Join(got, " "), "StageBegan StageFailed StageBegan WaitsForApproval StageBegan RolloutComplete StageBegan DispatchingSuspended StageBegan RolloutComplete"; is != want {
		t.Errorf("news %s, want %s", is, want)
	}
}

// A Bundle without a rollout has no such status, and a reason keeps its time while it stays.
func TestTimesOfARolloutStatus(t *testing.T) {
	stated := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged, Stages: []v1alpha1.RolloutStage{{Name: "canary", Clusters: v1alpha1.StageClusters{Names: []string{"a"}}}}}
	rows := []Row{newRow("a", nil), newRow("c", readyStatus(), inStage(1, true))}
	in := StatusInput{Rows: rows, Latest: latest, Now: time.Unix(1000, 0)}
	if got := ComputeStatus(in).Rollout; got != nil {
		t.Errorf("a Bundle without a rollout has the status %+v", got)
	}
	in.Bundle.Spec.Rollout, in.Terms = stated, rollout.CompileTerms(stated)
	in.Bundle.Status = ComputeStatus(in)
	in.Now = time.Unix(2000, 0)
	if got := ComputeStatus(in).Rollout.Since.Unix(); got != 1000 {
		t.Errorf("the reason began at %d, want 1000", got)
	}
	for _, c := range []struct{ resumed, want int64 }{{999, 1000}, {1000, 2000}, {1500, 2000}, {2000, 2001}, {2001, 1000}} {
		resumed := in
		resumed.Bundle.Spec.Resume = &v1alpha1.RolloutResume{At: metav1.Unix(c.resumed, 0)}
		first := ComputeStatus(resumed)
		if got := first.Rollout.Since.Unix(); got != c.want {
			t.Errorf("resumed at %d, the reason began at %d, want %d", c.resumed, got, c.want)
		}
		resumed.Bundle.Status, resumed.Now = first, time.Unix(2500, 0)
		if got := ComputeStatus(resumed).Rollout.Since.Unix(); c.want > 1000 && got != c.want {
			t.Errorf("resumed at %d, the reason began at %d later, want %d", c.resumed, got, c.want)
		}
	}
	in.Latest = &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: "r3"}}
	if got := ComputeStatus(in).Rollout.Since.Unix(); got != 2000 {
		t.Errorf("the reason of another revision began at %d, want 2000", got)
	}
}
