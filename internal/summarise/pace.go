package summarise

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
)

// placing is how long a new Bundle without rows says nothing: place is about to
// write them.
const placing = 2 * time.Second

// templateEvery is the least time between writes of a template's status while only
// counts move: people watch these. Of few rows the gateway paces what comes in.
func templateEvery(rows int) time.Duration {
	return min(time.Second+time.Duration(rows)*50*time.Millisecond, countsEvery)
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
	}
	next := Status(in)
	if equality.Semantic.DeepEqual(old, next) {
		return nil
	}
	if age := now.Sub(s.bundle.Meta.CreationTimestamp.Time); len(s.rows) == 0 && len(old.Conditions) == 0 && age < placing {
		m.wake(placing - age)
		return nil
	}
	if left := m.written.Add(countsEvery).Sub(now); gait(old) == gait(next) && left > 0 {
		m.wake(left)
		return nil
	}
	if err := r.Writer.BundleStatus(ctx, s.bundle, next); err != nil {
		return fmt.Errorf("write the status of bundle %s/%s: %w", s.bundle.Ref.Namespace, s.bundle.Ref.Name, err)
	}
	m.written = now
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
