package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/phrase"
)

// clockMargin is how far ahead the clock of another hub may be. A hub that did not see the wait of a gate begin
// counts so much less of it.
const clockMargin = 10 * time.Minute

// GateRecord is a stored verdict. Its hub first read it at FirstSeen, and has watched it for so long by a clock that
// nothing sets. Tally has the measurements that this hub made for it.
type GateRecord struct {
	v1alpha1.GateStatus
	FirstSeen time.Time
	Watched   time.Duration
	Tally     Tally
}

// elapsedTime returns how long the gate has surely been judged, while all earlier stages were done. brokenUntil is when the last
// of their clusters became healthy: no step sees a break in a pause, or while no hub leads. A time of before the gate, or
// of a clock that is ahead, shows no break.
func (r *GateRecord) elapsedTime(brokenUntil int64, now time.Time) time.Duration {
	since := r.Since.Time
	if broken := time.Unix(brokenUntil, 0); broken.After(since) {
		if broken.After(r.FirstSeen) {
			return min(r.Watched, now.Sub(broken))
		}
		since = broken
	}
	return r.Watched + max(0, r.FirstSeen.Sub(since)-clockMargin)
}

// gateKind is one kind of gate. gateKinds is the table of them.
type gateKind interface {
	// isStated reports whether the gate is of this kind.
	isStated(g *v1alpha1.RolloutGate) bool
	// checkFields returns the fields that could not be honoured.
	checkFields(g *v1alpha1.RolloutGate, at *field.Path) field.ErrorList
	// judgeFacts reports whether the gate holds. Absent data does not hold.
	judgeFacts(g *gate, in *gateFacts) gateVerdict
	// waitReason of rows that wait for the gate, and what they wait for.
	waitReason() atoll.Reason
	describe(g *gate) string
}

var gateKinds = []gateKind{waitGate{}, approvalGate{}, celGate{}, prometheusGate{}, webhookGate{}}

// gateFacts are what gates judge by.
type gateFacts struct {
	now       time.Time
	revision  string
	approvals []v1alpha1.RolloutApproval
	progress  *Progress
	// record of the gate; nil: it was not judged before.
	record *GateRecord
	// brokenUntil is when the last cluster of the earlier stages became healthy, in Unix seconds.
	brokenUntil int64
}

// gateVerdict is what a gate sees, and when time alone may change it. A gate that failed does not hold, and is not judged again.
type gateVerdict struct {
	holds  bool
	failed bool
	value  string
	// noDataSince of a gate that measures; zero: it has data.
	noDataSince time.Time
	again       time.Time
}

// gate is a compiled gate that holds the first cluster of a stage. It is stated before that stage, or after the one
// before it.
type gate struct {
	v1alpha1.RolloutGate
	kind gateKind
	// of is the index of the stage that states it.
	of        int
	stageName string
	hash      string
	counts    *expr.CountExpression
	// onFailure of the stage that states it.
	onFailure v1alpha1.FailureAction
}

func compileGates(gates []v1alpha1.RolloutGate, of int, s *v1alpha1.RolloutStage) (out []gate) {
	for _, g := range gates {
		i := slices.IndexFunc(gateKinds, func(k gateKind) bool { return k.isStated(&g) })
		c := gate{RolloutGate: g, of: of, stageName: s.Name, onFailure: s.OnFailure, hash: HashGate(&g), kind: closedGate{}}
		if i >= 0 { // admission refuses others
			c.kind = gateKinds[i]
		}
		c.counts, _ = expr.CompileCountExpression(g.CEL) // admission refuses what does not compile
		out = append(out, c)
	}
	return out
}

// DescribeGates returns what the first cluster of a stage waits for, one gate each.
func (t *Terms) DescribeGates(stage int) (out []string) {
	for _, g := range t.gatesInto(stage) {
		out = append(out, g.describeWait())
	}
	return out
}

func (g *gate) describeWait() string {
	return "gate " + g.Name + " of stage " + g.stageName + ": " + g.kind.describe(g)
}

// HashGate returns the hash by which a verdict names a gate: a verdict about a gate that was edited since is of no use.
func HashGate(g *v1alpha1.RolloutGate) string {
	data, err := json.Marshal(g)
	if err != nil { // it has no such value
		return ""
	}
	return atoll.HashParts(data)[:12]
}

// isOf reports whether a verdict is about the gate as it is stated, for the revision.
func (g *gate) isOf(s *v1alpha1.GateStatus, revision string) bool {
	return s.Stage == g.stageName && s.Name == g.Name && s.Hash == g.hash && s.Revision == revision
}

// CheckGates returns the fields of a stage's gates that could not be honoured. An approval is of a stage, and not of a gate, so
// that a stage has one such gate.
func CheckGates(s *v1alpha1.RolloutStage, isFirst bool, at *field.Path) (errs field.ErrorList) {
	names, approvals := map[string]bool{}, 0
	check := func(gates []v1alpha1.RolloutGate, at *field.Path) {
		for i := range gates {
			g, in := &gates[i], at.Index(i)
			if names[g.Name] {
				errs = append(errs, field.Duplicate(in.Child("name"), g.Name))
			}
			names[g.Name] = true
			errs = append(errs, checkGate(g, in)...)
			if g.Approval != nil {
				approvals++
			}
			if approvals > 1 && g.Approval != nil {
				errs = append(errs, field.Forbidden(in.Child("approval"), "an approval is of the whole stage, which has an approval gate already"))
			}
			if isFirst && readsEarlier(g) {
				errs = append(errs, field.Invalid(in.Child("cel"), phrase.TruncateText(g.CEL, 64), "the first stage has none earlier, so that the gate would never hold"))
			}
		}
	}
	check(s.GatesBefore, at.Child("gatesBefore"))
	check(s.GatesAfter, at.Child("gatesAfter"))
	return errs
}

// readsEarlier reports whether an expression reads counts of earlier stages.
func readsEarlier(g *v1alpha1.RolloutGate) bool {
	c, err := expr.CompileCountExpression(g.CEL)
	return err == nil && slices.Contains(c.ReadGroups(), "earlier")
}

func checkGate(g *v1alpha1.RolloutGate, at *field.Path) (errs field.ErrorList) {
	kinds := 0
	for _, k := range gateKinds {
		if k.isStated(g) {
			kinds++
			errs = append(errs, k.checkFields(g, at)...)
		}
	}
	if kinds != 1 {
		return field.ErrorList{field.Required(at, "give exactly one of wait, approval, cel, prometheus and webhook")}
	}
	return errs
}

// GateStates are the verdicts about the gates of a revision.
type GateStates struct {
	revision string
	verdicts []v1alpha1.GateStatus
}

// NewGateStates returns the verdicts about a revision, of those that are stored. A resume takes back that a gate failed
// before it.
func NewGateStates(revision string, verdicts []v1alpha1.GateStatus, f *FailureScope) GateStates {
	return GateStates{revision, slices.DeleteFunc(slices.Clone(verdicts), func(v v1alpha1.GateStatus) bool { return f.isGateResumed(&v) })}
}

func (s GateStates) find(g *gate) *v1alpha1.GateStatus {
	i := slices.IndexFunc(s.verdicts, func(v v1alpha1.GateStatus) bool { return g.isOf(&v, s.revision) })
	if i < 0 {
		return nil
	}
	return &s.verdicts[i]
}

// findFailed returns the first of the gates that failed, and whose stage does not continue after that; nil: none did.
func (s GateStates) findFailed(gates []gate) *gate {
	i := slices.IndexFunc(gates, func(g gate) bool {
		v := s.find(&g)
		return v != nil && v.State == v1alpha1.GateFailed && g.onFailure != v1alpha1.FailureContinue
	})
	if i < 0 {
		return nil
	}
	return &gates[i]
}

// findClosed returns the gate that holds the first cluster of a stage; nil: none does. A gate that failed comes first, and one
// that does not hold before one that does.
func (s GateStates) findClosed(gates []gate) (closed *gate) {
	if failed := s.findFailed(gates); failed != nil {
		return failed
	}
	for i := range gates {
		switch v := s.find(&gates[i]); {
		case v == nil || v.State == v1alpha1.GateWaiting:
			return &gates[i]
		case v.State == v1alpha1.GateFailed: // an edit lets its stage continue
		case v.State != v1alpha1.GatePassed && closed == nil:
			closed = &gates[i]
		}
	}
	return closed
}

// passGates reports whether the first cluster of a stage may change. Gates pass together, when all of them hold at one time,
// and open the stage when that is stored.
func (s *rolloutStep) passGates(i int) bool {
	gates := s.Terms.gatesInto(i)
	if len(gates) == 0 || !s.turns.waitsFrom(i) {
		return true
	}
	stored := NewGateStates(s.Revision, s.storedGates(), &s.turns.scope)
	if stored.findClosed(gates) == nil {
		return true
	}
	if stored.findFailed(gates) != nil { // keepDecidedGates keeps its verdict
		return false
	}
	var judged []v1alpha1.GateStatus
	pass := true
	for k := range gates {
		g := &gates[k]
		if v := stored.find(g); v != nil && (v.State == v1alpha1.GatePassed || v.State == v1alpha1.GateFailed) {
			continue
		}
		status := s.judgeGate(g, i)
		pass = pass && status.State == v1alpha1.GateSatisfied
		judged = append(judged, status)
	}
	for k := range judged {
		if pass {
			judged[k].State, judged[k].Since = v1alpha1.GatePassed, metav1.Unix(s.nowUnix, 0)
		}
	}
	s.turns.gates = append(s.turns.gates, judged...)
	return false
}

// judgeGate judges a gate into a stage.
func (s *rolloutStep) judgeGate(g *gate, stage int) v1alpha1.GateStatus {
	in := gateFacts{now: s.Now, revision: s.Revision, approvals: s.Approvals, progress: &s.turns.Progress}
	for i := range stage {
		in.brokenUntil = max(in.brokenUntil, s.turns.healthySince[i])
	}
	out := v1alpha1.GateStatus{Stage: g.stageName, Name: g.Name, Revision: s.Revision, Hash: g.hash, State: v1alpha1.GateWaiting, Since: metav1.Unix(s.nowUnix, 0)}
	isRecord := func(r GateRecord) bool {
		return g.isOf(&r.GateStatus, s.Revision) && !s.turns.scope.isGateResumed(&r.GateStatus)
	}
	if i := slices.IndexFunc(s.Gates, isRecord); i >= 0 {
		in.record, out.Since = &s.Gates[i], s.Gates[i].Since
	}
	v := g.kind.judgeFacts(g, &in)
	out.Value = phrase.TruncateText(phrase.EscapeLine(v.value), 256)
	if !v.noDataSince.IsZero() {
		out.NoDataSince = new(metav1.Unix(v.noDataSince.Unix(), 0))
	}
	switch {
	case v.holds || v.failed && g.onFailure == v1alpha1.FailureContinue:
		out.State = v1alpha1.GateSatisfied
	case v.failed:
		out.State, out.Since = v1alpha1.GateFailed, metav1.Unix(s.nowUnix, 0)
	}
	if !v.again.IsZero() && (s.turns.gateAgain.IsZero() || v.again.Before(s.turns.gateAgain)) {
		s.turns.gateAgain = v.again
	}
	s.awaitReports(g, stage)
	return out
}

// awaitReports awaits the clusters whose reports may change what a gate into a stage sees: any may change what is counted, and a
// cluster of an earlier stage may break what a wait counts on.
func (s *rolloutStep) awaitReports(g *gate, stage int) {
	_, counts := g.kind.(celGate)
	if _, waits := g.kind.(waitGate); !counts && !waits && !IsMeasured(&g.RolloutGate) {
		return
	}
	s.eachMember(func(c string) {
		if counts || s.Rows[c].Stage < stage {
			s.turns.awaited = append(s.turns.awaited, c)
		}
	})
}

func (s *rolloutStep) storedGates() (out []v1alpha1.GateStatus) {
	for i := range s.Gates {
		out = append(out, s.Gates[i].GateStatus)
	}
	return out
}

// keepDecidedGates keeps verdicts of the revision in one of the states, but for those that a resume takes back. The others
// count again from now on, when all earlier stages are done again.
func (s *rolloutStep) keepDecidedGates(states ...v1alpha1.GateState) {
	for i := range s.Terms.CountStages() {
		for _, g := range s.Terms.gatesInto(i) {
			for _, r := range s.Gates {
				kept := r.GateStatus
				if !g.isOf(&kept, s.Revision) || !slices.Contains(states, kept.State) || s.turns.scope.isGateResumed(&kept) {
					continue
				}
				if kept.State == v1alpha1.GateFailed && kept.Since.Unix() > s.nowUnix { // of a hub whose clock was ahead: a resume from now on counts
					kept.Since = metav1.Unix(s.nowUnix, 0)
				}
				s.turns.gates = append(s.turns.gates, kept)
			}
		}
	}
}

// gateChanges returns the verdicts to store; changed is false where they are stored already. A pause, and a
// hub without certainty about connections, decide nothing.
func (s *rolloutStep) gateChanges() (verdicts []v1alpha1.GateStatus, changed bool) {
	t := &s.turns
	if !t.isBounded || s.Halt.IsHalted() || !t.uncertainUntil.IsZero() {
		return nil, false
	}
	return t.gates, !slices.EqualFunc(t.gates, s.storedGates(), isSameVerdict)
}

func isSameVerdict(a, b v1alpha1.GateStatus) bool {
	return a.Since.Equal(&b.Since) && a.Stage == b.Stage && a.Name == b.Name && a.Revision == b.Revision && a.Hash == b.Hash && a.State == b.State && a.Value == b.Value && a.NoDataSince.Equal(b.NoDataSince)
}

// closedGate is of a gate that admission refuses. It never holds.
type closedGate struct{}

func (closedGate) isStated(*v1alpha1.RolloutGate) bool { return false }

func (closedGate) checkFields(*v1alpha1.RolloutGate, *field.Path) field.ErrorList { return nil }

func (closedGate) judgeFacts(*gate, *gateFacts) gateVerdict {
	return gateVerdict{value: "it states nothing"}
}

func (closedGate) waitReason() atoll.Reason { return atoll.ReasonWaitsForExpression }

func (closedGate) describe(*gate) string { return "an edit of the gate, which states nothing" }

// waitGate holds for so long after the earlier stages are done.
type waitGate struct{}

func (waitGate) isStated(g *v1alpha1.RolloutGate) bool { return g.Wait != nil }

func (waitGate) checkFields(g *v1alpha1.RolloutGate, at *field.Path) field.ErrorList {
	if d := g.Wait.Duration; d <= 0 || d > 720*time.Hour {
		return field.ErrorList{field.Invalid(at.Child("wait"), g.Wait.Duration.String(), "must be a duration above 0s and up to 720h")}
	}
	return nil
}

func (waitGate) judgeFacts(g *gate, in *gateFacts) gateVerdict {
	left := g.Wait.Duration
	if in.record != nil {
		left -= in.record.elapsedTime(in.brokenUntil, in.now)
	}
	if left <= 0 {
		return gateVerdict{holds: true, value: "waited for " + phrase.FormatDuration(g.Wait.Duration)}
	}
	return gateVerdict{again: in.now.Add(left)}
}

func (waitGate) waitReason() atoll.Reason { return atoll.ReasonWaitsForGateTime }

func (waitGate) describe(g *gate) string {
	return phrase.FormatDuration(g.Wait.Duration) + " to pass after the earlier stages are done"
}

// approvalGate holds when enough users have approved.
type approvalGate struct{}

func (approvalGate) isStated(g *v1alpha1.RolloutGate) bool { return g.Approval != nil }

func (approvalGate) checkFields(g *v1alpha1.RolloutGate, at *field.Path) (errs field.ErrorList) {
	at = at.Child("approval")
	if n := g.Approval.Approvers; n < 0 || n > 10 {
		errs = append(errs, field.Invalid(at.Child("approvers"), n, "must be from 1 to 10"))
	}
	if d := g.Approval.ValidFor; d != nil && (d.Duration < time.Minute || d.Duration > 720*time.Hour) {
		errs = append(errs, field.Invalid(at.Child("validFor"), d.Duration.String(), "must be a duration from 1m to 720h"))
	}
	return errs
}

func (approvalGate) judgeFacts(g *gate, in *gateFacts) (v gateVerdict) {
	by, again := g.Approval.ListApprovers(g.stageName, in.revision, in.approvals, in.now)
	v.waitUntil(again)
	v.holds = len(by) >= g.Approval.NeededApprovers()
	v.value = fmt.Sprintf("%d of %s", len(by), phrase.CountNoun(g.Approval.NeededApprovers(), "approval"))
	if len(by) > 0 {
		v.value += ": " + strings.Join(by, ", ")
	}
	return v
}

// waitUntil sets the time of the next look, where it is earlier. Zero is none.
func (v *gateVerdict) waitUntil(at time.Time) {
	if !at.IsZero() && (v.again.IsZero() || at.Before(v.again)) {
		v.again = at
	}
}

func (approvalGate) waitReason() atoll.Reason { return atoll.ReasonWaitsForApproval }

func (approvalGate) describe(g *gate) string {
	stage := g.stageName
	if strings.Contains(stage, " ") { // an automatic one
		stage = strconv.Quote(stage)
	}
	text := "`atoll rollout approve --stage " + stage + "`"
	if n := g.Approval.NeededApprovers(); n > 1 {
		text += fmt.Sprintf(" by %d users", n)
	}
	return text
}

// celGate holds while an expression over counts of clusters is true.
type celGate struct{}

func (celGate) isStated(g *v1alpha1.RolloutGate) bool { return g.CEL != "" }

func (celGate) checkFields(g *v1alpha1.RolloutGate, at *field.Path) field.ErrorList {
	if _, err := expr.CompileCountExpression(g.CEL); err != nil {
		return field.ErrorList{field.Invalid(at.Child("cel"), phrase.TruncateText(g.CEL, 64), err.Error())}
	}
	return nil
}

func (celGate) judgeFacts(g *gate, in *gateFacts) gateVerdict {
	if g.counts == nil {
		return gateVerdict{value: "it does not compile"}
	}
	counts := countGroups(g.of, in.progress)
	for _, group := range g.counts.ReadGroups() {
		if counts[group+".clusters"] > 0 {
			continue
		}
		text := group + " has no connected cluster"
		if in.progress.hasSuspendedWaiting() {
			text += " that is not suspended"
		}
		return gateVerdict{value: text}
	}
	is, err := g.counts.IsTrueFor(counts)
	if err != nil {
		return gateVerdict{value: err.Error()}
	}
	return gateVerdict{holds: is, value: fmt.Sprint(is)}
}

// countGroups returns the counts that expressions of a stage see.
func countGroups(stage int, p *Progress) expr.Counts {
	out := expr.Counts{}
	add := func(group string, n StageTally) {
		for i, v := range [...]int{n.Clusters, n.Updated, n.Changing, n.Failed, n.Waiting, n.Disconnected, n.SuspendedWaiting} {
			out[group+"."+expr.CountFields[i]] += int64(v)
		}
	}
	for _, group := range expr.CountGroups {
		add(group, StageTally{})
	}
	for i, n := range p.Stages {
		add("all", n)
		if i == stage {
			add("stage", n)
		} else if i < stage {
			add("earlier", n)
		}
	}
	return out
}

func (celGate) waitReason() atoll.Reason { return atoll.ReasonWaitsForExpression }

func (celGate) describe(g *gate) string {
	return "its expression to be true: " + phrase.EscapeLine(phrase.TruncateText(g.CEL, 256))
}
