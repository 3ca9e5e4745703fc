package rollout

import (
	"strings"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/phrase"
)

// Halt is what stops a whole rollout: a policy that suspends dispatching, a freeze of all changes, or a person's pause. A policy may also
// suspend some clusters, which stops no other. The zero value stops none.
type Halt struct {
	Suspension *v1alpha1.Suspension
	Freeze     *v1alpha1.ChangeFreeze
	Pause      *v1alpha1.RolloutPause
	// Source of the Bundle, which states the suspension; nil: there is none.
	Source *v1alpha1.BundleSource
}

// NewHalt returns what stops the rollout of a Bundle at a time. A freeze that has ended, and one from which the Bundle is exempt, stop
// nothing.
func NewHalt(b *v1alpha1.BundleSpec, freeze *v1alpha1.ChangeFreeze, now time.Time) Halt {
	out := Halt{Pause: b.Pause, Suspension: b.Suspension}
	if b.Suspension != nil {
		source := b.Source // b itself would be on the heap in every call
		out.Source = &source
	}
	if freeze.IsActive(now) && !IsExempt(b, freeze) {
		out.Freeze = freeze
	}
	return out
}

// IsExempt reports whether the Bundle changes in a freeze. The clock of the hub that stored either time may be ahead.
func IsExempt(b *v1alpha1.BundleSpec, freeze *v1alpha1.ChangeFreeze) bool {
	return b.FreezeExemption != nil && !freeze.Since.After(b.FreezeExemption.At.Add(clockMargin))
}

// Reason returns for what the rows wait; empty: the rollout is not stopped. A suspension comes first: it holds what the others let go.
func (h Halt) Reason() atoll.Reason {
	switch {
	case h.Suspension.SuspendsDispatching():
		return atoll.ReasonDispatchingSuspended
	case h.Freeze != nil:
		return atoll.ReasonChangesFrozen
	case h.Pause != nil:
		return atoll.ReasonRolloutPaused
	}
	return ""
}

// IsHalted reports whether the rollout is stopped.
func (h Halt) IsHalted() bool {
	return h.Pause != nil || h.Freeze != nil || h.Suspension.SuspendsDispatching()
}

// HoldsChanges reports whether the changes of all clusters are stopped, or those of some.
func (h Halt) HoldsChanges() bool { return h.IsHalted() || h.Suspension.HasSuspendedClusters() }

// HasSuspendedCluster reports whether a cluster is suspended by its name, while the others go on.
func (h Halt) HasSuspendedCluster(name string) bool {
	return h.Suspension.SuspendsByName(name)
}

// Since returns when the halt began; zero: it is not known.
func (h Halt) Since() time.Time {
	switch {
	case h.Suspension.SuspendsDispatching():
		return time.Time{}
	case h.Freeze != nil:
		return h.Freeze.Since.Time
	case h.Pause != nil:
		return h.Pause.Since.Time
	}
	return time.Time{}
}

// EndsAt returns when a part of the halt ends by itself; zero: none does.
func (h Halt) EndsAt() time.Time {
	if h.Freeze == nil || h.Freeze.Until == nil {
		return time.Time{}
	}
	return h.Freeze.Until.Time
}

// Describe returns what a stopped rollout waits for, or else what the suspended clusters wait for.
func (h Halt) Describe() string {
	switch {
	case h.Suspension.SuspendsDispatching():
		return h.describeSuspension("dispatching", "changes")
	case h.Freeze != nil:
		return describeFreeze(h.Freeze)
	case h.Pause != nil:
		return describePause(h.Pause)
	case h.Suspension.HasSuspendedClusters():
		return h.describeSuspension("dispatchingOnClusters", "changes")
	}
	return ""
}

// DescribeSuspendedCluster returns what a row waits for, where nothing is dispatched to its cluster.
func (h Halt) DescribeSuspendedCluster() string {
	if h.Suspension.SuspendsDispatching() {
		return h.describeSuspension("dispatching", "changes")
	}
	return h.describeSuspension("dispatchingOnClusters", "changes")
}

// describeSuspension returns the edit by which a suspension ends.
func (h Halt) describeSuspension(field, what string) string {
	text := "an edit of spec.suspension." + field
	if h.Source != nil && h.Source.Kind != "" {
		text += " of " + h.Source.Kind + " " + h.Source.Name
	}
	return text + ", which suspends " + what
}

func describeFreeze(f *v1alpha1.ChangeFreeze) string {
	text := "`atoll unfreeze`"
	if f.Until != nil {
		text += " or " + phrase.FormatTime(f.Until.Time)
	}
	text += ": " + phrase.EscapeLine(f.By) + " froze all changes"
	if !f.Since.IsZero() {
		text += " at " + phrase.FormatTime(f.Since.Time)
	}
	return text + " (" + phrase.EscapeLine(f.Reason) + ")"
}

func describePause(p *v1alpha1.RolloutPause) string {
	text := "`atoll rollout resume`"
	if p.By != "" {
		text += ": " + phrase.EscapeLine(p.By) + " paused it"
	}
	if p.Reason != "" || p.Message != "" {
		text += " (" + strings.TrimSpace(p.Reason+" "+phrase.EscapeLine(p.Message)) + ")"
	}
	return text
}

// IsHaltReason reports whether rows wait for the end of a halt, or of a suspension of their clusters.
func IsHaltReason(r atoll.Reason) bool {
	return r == atoll.ReasonRolloutPaused || r == atoll.ReasonChangesFrozen || r == atoll.ReasonDispatchingSuspended
}
