package bundlestatus

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/schedule"
)

// placing is how long a new Bundle without rows gets no status: place is about to
// write them.
const placing = 2 * time.Second

// afterNews is the least time from a write that is news in kind to the next one of
// counts: what goes on ends in news, as a rule, or takes longer.
const afterNews = 5 * time.Second

// templateWriteInterval is the least time between writes of a template's status while only counts change:
// people watch these. For few rows the gateway limits the rate of reports.
func templateWriteInterval(rows int) time.Duration {
	return time.Second + time.Duration(rows)*50*time.Millisecond
}

// writeSchedule is when one status may be written of which only counts move.
type writeSchedule struct {
	written     time.Time
	significant bool // the last write was news
	// nextWrite among all that wait for the upkeep's budget; zero: it requested none.
	nextWrite time.Time
}

// nextWriteDelay returns for how long such a status waits. Some need not keep the whole pace.
// Its place among the others is kept until it is written.
func (d *writeSchedule) nextWriteDelay(upkeep *pace.Limiter, most time.Duration, now time.Time) time.Duration {
	every := pace.StatusWriteInterval
	if d.significant {
		every = afterNews
	}
	if left := d.written.Add(min(every, most)).Sub(now); left > 0 {
		return left
	}
	if d.nextWrite.IsZero() {
		d.nextWrite = upkeep.ReserveToken(now)
	}
	return d.nextWrite.Sub(now)
}

// The objects whose status is written, as metrics label them.
const (
	objectBundle   = "bundle"
	objectTemplate = "template"
)

// countWrite counts a written status.
func (r *BundleReconciler) countWrite(object string, news bool) {
	cause := "counts"
	if news {
		cause = "news"
	}
	r.StatusWrites.WithLabelValues(object, cause).Inc()
}

// writeBundleStatus writes the Bundle's status if it is due.
func (r *BundleReconciler) writeBundleStatus(ctx context.Context, s *bundleSnapshot, m *bundleMemo) error {
	if !s.alive {
		return nil
	}
	old, now := s.bundle.Status, time.Now()
	in := StatusInput{Bundle: s.bundle, Halt: s.halt, Rows: s.rows, Content: s.content, Feedback: s.feedback, Now: now}
	if n := len(s.revisions); n > 0 {
		in.Latest = s.revisions[n-1]
		if r.ExplainShortage != nil {
			in.ExplainShortage = func(w *schedule.Workload) string { return r.ExplainShortage(s.uid, w) }
		}
		in.Workloads = r.index.dividedWorkloads(in.Latest.Name, s.content)
	}
	in.Terms = s.terms.ForClusters(countCopies(s.rows)).WithBudget(s.bundle.Spec.DisruptionBudget)
	in.Quarantine = r.findQuarantine(s, m, now)
	next := ComputeStatus(in)
	m.wakeAtCountChange(s.rows, now)
	m.wakeAtWindowChange(in)
	if age := now.Sub(s.bundle.Meta.CreationTimestamp.Time); len(s.rows) == 0 && len(old.Conditions) == 0 && age < placing {
		m.wakeAfter(placing - age)
		return nil
	}
	r.warnUnplaced(s, m, next.Conditions, now)
	r.warnQuarantined(s, m, in.Quarantine)
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	news := isBundleNews(old, next, s.bundle.Spec.Rollout != nil)
	if !news {
		if left := m.due.nextWriteDelay(r.upkeep, afterNews, now); left > 0 {
			m.wakeAfter(left)
			return nil
		}
	}
	addMissingOptionalConditions(in, &next)
	if err := r.Writer.WriteBundleStatus(ctx, s.bundle, next); err != nil {
		return fmt.Errorf("write the status of bundle %s/%s: %w", s.bundle.Ref.Namespace, s.bundle.Ref.Name, err)
	}
	m.due = writeSchedule{written: now, significant: news}
	r.repeatAfterFreeze(s)
	r.recordRolloutNews(s.bundle, m, old.Rollout, next.Rollout)
	if news {
		r.traceStatus(s.bundle.Ref, next, now)
	}
	r.countWrite(objectBundle, news)
	return nil
}

// isBundleNews reports whether a status is written at once. Clusters may fail and recover by turns: that fewer fail
// is written with the counts.
func isBundleNews(old, next v1alpha1.BundleStatus, isRolloutStated bool) bool {
	was := old.Rollout
	if is := next.Rollout; was != nil && is != nil && was.CurrentStage == is.CurrentStage && was.Reason == string(atoll.ReasonTooManyUnhealthy) && is.Reason == string(atoll.ReasonMaxUnavailableReached) {
		old.Rollout = is
	}
	return coarseBundleState(old, isRolloutStated) != coarseBundleState(next, isRolloutStated)
}

// coarseBundleState is the rough state of a Bundle: a change of it is written at once. Everything
// under way is one class, however far it is.
func coarseBundleState(st v1alpha1.BundleStatus, isRolloutStated bool) string {
	return coarseReadiness(st) + coarseRollout(st.Rollout, isRolloutStated)
}

func coarseReadiness(st v1alpha1.BundleStatus) string {
	ready := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleReady)
	held := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleRemovalHeld)
	switch {
	case ready == nil:
		return ""
	case held != nil && held.Status == "True":
		return held.Message
	case meta.IsStatusConditionTrue(st.Conditions, v1alpha1.BundleQuarantined):
		return v1alpha1.BundleQuarantined + ready.Reason
	case ready.Reason == string(ReasonReady) && st.WaitsFor != "":
		return "Settling"
	case ready.Reason == string(ReasonReady):
		return ready.Reason + st.Revision
	}
	return ready.Reason
}
