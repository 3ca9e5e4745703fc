package rollout

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/phrase"
)

// WindowsOf returns which change windows concern a cluster with these labels, and in which time zone.
func (t *Terms) WindowsOf(clusterLabels map[string]string, timeZone string) changewindow.Mask {
	if t == nil {
		return 0
	}
	return t.windows.MaskOf(clusterLabels, timeZone)
}

// HasWindows reports whether changes may have to wait for a window.
func (t *Terms) HasWindows() bool { return t != nil && t.windows != nil }

// ViewWindows returns what the change windows decide at a time.
func (t *Terms) ViewWindows(now time.Time) changewindow.View {
	if t == nil {
		return changewindow.View{}
	}
	return t.windows.NewView(now)
}

// AddOutsideWindow counts waiting rows with equal windows, where no change of them may start now.
func (t *StageTally) AddOutsideWindow(view *changewindow.View, m changewindow.Mask, n int) {
	o := view.OpeningOf(m)
	if o.IsOpen {
		return
	}
	t.OutsideWindow += n
	if at := o.At.Unix(); t.opensAt == 0 || o.Opens && !t.opens || o.Opens == t.opens && at < t.opensAt {
		t.opensAt, t.opens = at, o.Opens
	}
}

// isInWindow reports whether a change of the row may start now.
func (s *rolloutStep) isInWindow(row Row) bool { return s.turns.windows.OpeningOf(row.Windows).IsOpen }

// FollowsWindows reports whether a change window may let rows change that wait so. Halts, failures, gates and rollbacks come first.
func (w *StageWait) FollowsWindows() bool {
	return w.Reason != "" && !IsHaltReason(w.Reason) && w.Reason != atoll.ReasonStageFailed && !w.isDecided()
}

// openingAwaited returns when the next waiting row of the current stage may change by its windows; zero: none waits for that.
func (t *turns) openingAwaited() time.Time {
	if !t.wait.FollowsWindows() || t.wait.Stage < 0 || t.Stages[t.wait.Stage].OutsideWindow == 0 {
		return time.Time{}
	}
	return time.Unix(t.Stages[t.wait.Stage].opensAt, 0)
}

// describeOpening returns what rows outside their windows wait for.
func describeOpening(of string, at time.Time, opens bool) string {
	if !opens {
		return "a change window of " + of + ", of which none opens before " + phrase.FormatTime(at) + ", or an edit of rollout.windows"
	}
	return "a change window of " + of + ", which opens at " + phrase.FormatTime(at)
}

// findWindowWait returns the wait of a row of the current stage that is outside its windows; For is empty for others.
func (s *rolloutStep) findWindowWait(c string, row Row, since time.Time) RowWait {
	t := &s.turns
	if row.Stage != t.wait.Stage || IsHaltReason(t.wait.Reason) || t.wait.Reason == atoll.ReasonStageFailed {
		return RowWait{}
	}
	o := t.windows.OpeningOf(row.Windows)
	if o.IsOpen {
		return RowWait{}
	}
	return newRowWait(atoll.ReasonOutsideWindow, describeOpening("cluster "+c, o.At, o.Opens), since)
}
