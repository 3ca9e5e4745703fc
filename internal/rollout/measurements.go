package rollout

import (
	"fmt"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/phrase"
)

const (
	// problemHold is the least time between two texts of a tally that change no verdict. A server that answers now and then
	// costs few writes by it.
	problemHold = 5 * time.Minute
	// staleMargin is how much later than its interval a measurement may be. An older one holds no longer.
	staleMargin = time.Minute
	// maxBackoffSteps is how often the time until the next try doubles while no data comes, up to longestRetry.
	maxBackoffSteps = 5
	longestRetry    = 5 * time.Minute
	// measuringText is the value of a gate without enough successes in a row yet.
	measuringText = "measuring"
)

// OutcomeKind is the kind of one measurement of a gate.
type OutcomeKind int

// The kinds of outcomes. OutcomeNoData is every measurement without a value. OutcomeUndecided is the answer Wait of a webhook.
const (
	OutcomeNoData OutcomeKind = iota
	OutcomeUndecided
	OutcomeSuccess
	OutcomeFailure
)

// Outcome of one measurement. Text is the value, the message of the answer, or why there is no data.
type Outcome struct {
	Kind OutcomeKind
	Text string
}

// Tally counts the measurements of a gate. The hub that leads keeps it in memory. The zero value is of a gate without
// measurements.
type Tally struct {
	// Successes in a row, and all failures.
	Successes, Failures int
	// At is when the last measurement ended; zero: there is none.
	At time.Time
	// Problems counts the last measurements in a row without data. They began at problemSince.
	Problems     int
	problemSince time.Time
	// Value for people, which changes with the verdict, by a failure, and otherwise rarely. Without measurements it is why none
	// is made.
	Value   string
	valueAt time.Time
	// NoDataSince is since when no data comes, for the reason in Value; zero: Value is about data.
	NoDataSince time.Time
}

// measurementTerms are what a gate states about its measurements.
type measurementTerms struct {
	interval            time.Duration
	needed, mayFail     int
	isAnsweredByVerdict bool
}

// measurementTermsOf returns what a gate states; false for a gate that measures nothing.
func measurementTermsOf(g *v1alpha1.RolloutGate) (measurementTerms, bool) {
	switch {
	case g.Prometheus != nil:
		return measurementTerms{interval: g.Prometheus.GetInterval(), needed: g.Prometheus.NeededSuccesses(), mayFail: max(0, int(g.Prometheus.FailureLimit))}, true
	case g.Webhook != nil:
		return measurementTerms{interval: g.Webhook.GetInterval(), needed: 1, isAnsweredByVerdict: true}, true
	}
	return measurementTerms{}, false
}

// IsMeasured reports whether the hub measures for a gate.
func IsMeasured(g *v1alpha1.RolloutGate) bool {
	_, is := measurementTermsOf(g)
	return is
}

// AddOutcome returns the tally with one more measurement of a gate, which ended now.
func (t Tally) AddOutcome(g *v1alpha1.RolloutGate, o Outcome, now time.Time) Tally {
	terms, _ := measurementTermsOf(g)
	held, failed := t.isHolding(terms, now), t.hasFailed(terms)
	if !now.Before(t.staleAt(terms)) { // the row has a gap
		if t.Successes >= terms.needed {
			t.Value, t.NoDataSince = "", time.Time{}
		}
		t.Successes = 0
	}
	t.At = now
	t.countOutcome(o.Kind)
	text := t.describeOutcome(terms, o)
	isChanged := held != t.isHolding(terms, now) || failed != t.hasFailed(terms) || o.Kind == OutcomeFailure
	if isChanged || t.Value == "" || t.isValueOver(terms, o.Kind, text, now) {
		t.Value, t.valueAt, t.NoDataSince = text, now, time.Time{}
		if o.Kind == OutcomeNoData {
			t.NoDataSince = t.problemSince
		}
	}
	return t
}

// isValueOver reports whether a text takes the place of the value, although the verdict does not change. A measurement
// with data replaces a text about missing data at once.
func (t *Tally) isValueOver(terms measurementTerms, kind OutcomeKind, text string, now time.Time) bool {
	if kind != OutcomeNoData && !t.NoDataSince.IsZero() {
		return true
	}
	return !t.isHolding(terms, now) && text != t.Value && now.Sub(t.valueAt) >= problemHold
}

// countOutcome counts a measurement that ended at t.At.
func (t *Tally) countOutcome(kind OutcomeKind) {
	switch kind {
	case OutcomeSuccess:
		t.Successes, t.Problems = t.Successes+1, 0
	case OutcomeFailure:
		t.Successes, t.Problems, t.Failures = 0, 0, t.Failures+1
	case OutcomeUndecided:
		t.Successes, t.Problems = 0, 0
	default:
		if t.Problems == 0 {
			t.problemSince = t.At
		}
		t.Successes, t.Problems = 0, t.Problems+1
	}
}

// isHolding reports whether enough of the last measurements are a success, and the last one is not too old.
func (t *Tally) isHolding(terms measurementTerms, now time.Time) bool {
	return t.Successes >= terms.needed && !t.hasFailed(terms) && now.Before(t.staleAt(terms))
}

// hasFailed reports whether more measurements failed than may.
func (t *Tally) hasFailed(terms measurementTerms) bool { return t.Failures > terms.mayFail }

// staleAt returns from when on the last measurement is too old to hold.
func (t *Tally) staleAt(terms measurementTerms) time.Time {
	return t.At.Add(2*terms.interval + staleMargin)
}

// describeOutcome returns the text of the last measurement, with the failures before it.
func (t *Tally) describeOutcome(terms measurementTerms, o Outcome) string {
	at := " at " + phrase.FormatTime(t.At)
	if o.Kind == OutcomeNoData {
		return "no data since " + phrase.FormatTime(t.problemSince) + ": " + o.Text + t.describeFailures(terms)
	}
	if terms.isAnsweredByVerdict {
		answers := map[OutcomeKind]string{OutcomeSuccess: "Pass", OutcomeFailure: "Fail", OutcomeUndecided: "Wait"}
		text := "the service answers " + answers[o.Kind]
		if o.Kind != OutcomeUndecided {
			text += at
		}
		if o.Text != "" {
			text += ": " + o.Text
		}
		return text
	}
	switch {
	case o.Kind == OutcomeFailure:
		return o.Text + " is no success" + at + t.describeFailures(terms)
	case t.Successes >= terms.needed:
		return o.Text + at + ": " + phrase.CountNoun(t.Successes, "measurement") + " in a row succeeded"
	}
	return measuringText + t.describeFailures(terms)
}

func (t *Tally) describeFailures(terms measurementTerms) string {
	if t.Failures == 0 {
		return ""
	}
	return fmt.Sprintf("; failures: %d, and %d may fail", t.Failures, terms.mayFail)
}

// NextMeasurement returns the time until the next measurement of a gate. It grows while no data comes.
func (t *Tally) NextMeasurement(g *v1alpha1.RolloutGate) time.Duration {
	terms, _ := measurementTermsOf(g)
	if t.Problems == 0 {
		return terms.interval
	}
	return min(terms.interval<<min(t.Problems-1, maxBackoffSteps), max(terms.interval, longestRetry))
}

// IsOver reports whether a gate has failed, so that it is not measured any more.
func (t *Tally) IsOver(g *v1alpha1.RolloutGate) bool {
	terms, _ := measurementTermsOf(g)
	return t.hasFailed(terms)
}

// IsSameVerdict reports whether two tallies of a gate decide the same now, and show people the same.
func (t *Tally) IsSameVerdict(other *Tally, g *v1alpha1.RolloutGate, now time.Time) bool {
	terms, _ := measurementTermsOf(g)
	return t.Value == other.Value && t.isHolding(terms, now) == other.isHolding(terms, now) && t.hasFailed(terms) == other.hasFailed(terms)
}

// JudgeResult returns the outcome of a query with a number.
func JudgeResult(g *v1alpha1.PrometheusGate, result float64) Outcome {
	e, err := expr.CompileResultExpression(g.SuccessCondition)
	if err != nil { // admission refuses it
		return Outcome{OutcomeNoData, "successCondition does not compile"}
	}
	text := fmt.Sprintf("%.6g", result)
	switch is, err := e.IsTrueFor(result); {
	case err != nil:
		return Outcome{OutcomeNoData, "successCondition gives an error for " + text + ": " + err.Error()}
	case is:
		return Outcome{OutcomeSuccess, text}
	}
	return Outcome{OutcomeFailure, text}
}

// MeasuredGate is a gate that waits for measurements, by its stored verdict.
type MeasuredGate struct {
	Gate   v1alpha1.RolloutGate
	Status v1alpha1.GateStatus
}

// ListMeasuredGates returns the gates of a revision that measure and decide nothing yet, or hold and wait for others.
func ListMeasuredGates(r *v1alpha1.Rollout, verdicts []v1alpha1.GateStatus, revision string) (out []MeasuredGate) {
	if r == nil {
		return nil
	}
	for _, v := range verdicts {
		if v.Revision != revision || v.State != v1alpha1.GateWaiting && v.State != v1alpha1.GateSatisfied {
			continue
		}
		if g := findMeasuredGate(r, &v); g != nil {
			out = append(out, MeasuredGate{*g, v})
		}
	}
	return out
}

// findMeasuredGate returns the gate of a verdict as it is stated; nil: it is stated otherwise, or measures nothing.
func findMeasuredGate(r *v1alpha1.Rollout, of *v1alpha1.GateStatus) *v1alpha1.RolloutGate {
	if g := r.FindGate(of.Stage, of.Name); g != nil && IsMeasured(g) && HashGate(g) == of.Hash {
		return g
	}
	return nil
}
