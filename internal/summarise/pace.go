package summarise

import (
	"context"
	"fmt"
	"time"

	limit "golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// placing is how long a new Bundle without rows says nothing: place is about to
// write them.
const placing = 2 * time.Second

// afterNews is the least time from a write that says something new in kind to the next
// one of counts: what goes on ends in news, as a rule, or takes longer.
const afterNews = 5 * time.Second

// templateEvery is the least time between writes of a template's status while only
// counts move: people watch these. Of few rows the gateway paces what comes in.
func templateEvery(rows int) time.Duration {
	return time.Second + time.Duration(rows)*50*time.Millisecond
}

// newUpkeep is the budget of writes while only counts move, of all Bundles and templates
// together.
func newUpkeep() *limit.Limiter { return limit.NewLimiter(atoll.UpkeepStatuses, atoll.UpkeepStatuses) }

// due is when one status may be written of which only counts move.
type due struct {
	written time.Time
	news    bool // the last write said something new
	// turn among all that wait for the upkeep's budget; zero: it did not ask for one.
	turn time.Time
}

// wait tells for how long such a status waits. Some need not keep the whole pace.
// Its place among the others is kept until it is written.
func (d *due) wait(upkeep *limit.Limiter, most time.Duration, now time.Time) time.Duration {
	every := atoll.UpkeepStatusEvery
	if d.news {
		every = afterNews
	}
	if left := d.written.Add(min(every, most)).Sub(now); left > 0 {
		return left
	}
	if d.turn.IsZero() {
		d.turn = now.Add(upkeep.ReserveN(now, 1).DelayFrom(now))
	}
	return d.turn.Sub(now)
}

// writeBundle writes the Bundle's status if it is due.
func (r *Reconciler) writeBundle(ctx context.Context, s *snapshot, m *memo) error {
	if !s.alive {
		return nil
	}
	old, now := s.bundle.Status, time.Now()
	in := Input{Bundle: s.bundle, Rows: s.rows, Content: s.content, Now: now}
	if n := len(s.revisions); n > 0 {
		in.Latest = s.revisions[n-1]
		in.Workloads = r.index.workloads(in.Latest.Name, s.content)
	}
	next := Status(in)
	if age := now.Sub(s.bundle.Meta.CreationTimestamp.Time); len(s.rows) == 0 && len(old.Conditions) == 0 && age < placing {
		m.wake(placing - age)
		return nil
	}
	r.warnUnplaced(s, m, next.Conditions, now)
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	news := gait(old) != gait(next)
	if !news {
		if left := m.due.wait(r.upkeep, afterNews, now); left > 0 {
			m.wake(left)
			return nil
		}
	}
	if err := r.Writer.BundleStatus(ctx, s.bundle, next); err != nil {
		return fmt.Errorf("write the status of bundle %s/%s: %w", s.bundle.Ref.Namespace, s.bundle.Ref.Name, err)
	}
	m.due = due{written: now, news: news}
	return nil
}

// gait is how a Bundle goes, roughly: a change of it is written at once. What is
// under way is one gait, however far it is.
func gait(st v1alpha1.BundleStatus) string {
	ready := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleReady)
	held := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleRemovalHeld)
	switch {
	case ready == nil:
		return ""
	case held != nil && held.Status == "True":
		return held.Message
	case ready.Reason == ReasonReady && st.WaitsFor != "":
		return "Settling"
	case ready.Reason == ReasonReady:
		return ready.Reason + st.Revision
	}
	return ready.Reason
}
