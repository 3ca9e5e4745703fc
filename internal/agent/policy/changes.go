package policy

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/agent/v1alpha1"
	hub "atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/changewindow"
	"atoll.dev/atoll/internal/phrase"
)

// compileChanges returns the windows in which changes may start; nil: at any time.
func compileChanges(c *v1alpha1.Changes) (*changewindow.Windows, error) {
	if c == nil {
		return nil, nil
	}
	if c.Hold != nil && (c.Hold.Reason == "" || len(c.Hold.Reason) > v1alpha1.MaxHoldReason) {
		return nil, fmt.Errorf("spec.changes.hold.reason: has %d bytes, and needs 1 to %d", len(c.Hold.Reason), v1alpha1.MaxHoldReason)
	}
	if len(c.Windows) > changewindow.MaxWindows {
		return nil, fmt.Errorf("spec.changes.windows: has %d windows, and at most %d count", len(c.Windows), changewindow.MaxWindows)
	}
	stated := make([]hub.ChangeWindow, len(c.Windows))
	for i, w := range c.Windows {
		stated[i] = hub.ChangeWindow{Type: hub.ChangeWindowType(w.Type), Schedule: w.Schedule, Duration: w.Duration, TimeZone: w.TimeZone}
	}
	if errs := changewindow.CheckWindows(stated, field.NewPath("spec", "changes", "windows")); len(errs) > 0 {
		return nil, errors.New(errs[0].Error())
	}
	return changewindow.CompileWindows(stated), nil
}

// HoldAt returns why no change may start at a time, and when that may be different; zero: only after an edit of the policy. An empty
// text: changes may start.
func (p *Policy) HoldAt(now time.Time) (why string, until time.Time) {
	if p == nil || p.closed != "" || p.spec.Changes == nil {
		return "", time.Time{}
	}
	if h := p.spec.Changes.Hold; h != nil && (h.Until == nil || h.Until.After(now)) {
		why = fmt.Sprintf("%s holds all changes in this cluster (spec.changes.hold): %s", p.name, phrase.EscapeLine(h.Reason))
		if h.Until == nil {
			return why, time.Time{}
		}
		return why + "; until " + phrase.FormatTime(h.Until.Time), h.Until.Time
	}
	view := p.windows.NewView(now)
	o := view.OpeningOf(p.windows.MaskOf(nil, ""))
	if o.IsOpen {
		return "", time.Time{}
	}
	return fmt.Sprintf("%s lets no change start in this cluster before %s (spec.changes.windows)", p.name, phrase.FormatTime(o.At)), o.At
}
