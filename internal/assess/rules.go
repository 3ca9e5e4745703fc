package assess

import (
	"cmp"
	"fmt"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/expr"
	"atoll.dev/atoll/internal/phrase"
)

// Rules are the compiled rules of an Assessment. A nil Rules states nothing.
type Rules struct {
	id         string
	feedback   []feedbackReader
	health     []healthCondition
	completion *condition
}

// condition is an expression, or why it does not compile.
type condition struct {
	text     string
	compiled *expr.ObjectCondition
	err      error
}

type healthCondition struct {
	*condition
	rule v1alpha1.HealthRule
}

// Verdict is what is known of an object in a member.
type Verdict struct {
	Health  atoll.Health
	Reason  atoll.Reason
	Message string
	// Finished: the object has run to completion.
	Finished bool
	// CompletionUnknown: a rule defines when the object has run to completion, and cannot be evaluated now.
	CompletionUnknown bool
}

// ObjectState is what an object itself states, whatever an interpreter returns for it.
type ObjectState struct {
	// Deleting: it is being deleted, and has not run to completion.
	Deleting bool
	// Outdated: its controller has not observed its latest generation.
	Outdated bool
}

// CompileRules returns the rules of an assessment; nil for an empty one. A rule that does not compile, as of another
// version of the hub, is a rule that cannot be evaluated. Equal assessments share their rules, and equal expressions
// and paths what is compiled of them, while they are in use.
func CompileRules(a *atoll.Assessment) *Rules {
	if a.IsEmpty() {
		return nil
	}
	id := a.ID()
	return sharedRules.getOrMake(id, func() *Rules { return makeRules(id, a) })
}

func makeRules(id string, a *atoll.Assessment) *Rules {
	r := &Rules{id: id}
	for _, rule := range a.Feedback[:min(len(a.Feedback), atoll.MaxFeedbackValues)] {
		r.feedback = append(r.feedback, feedbackReader{rule, compileSharedPath(rule.JSONPath)})
	}
	for _, rule := range a.Health[:min(len(a.Health), atoll.MaxHealthRules)] {
		r.health = append(r.health, healthCondition{compileCondition(rule.Expression), rule})
	}
	if a.Completion != "" {
		c := compileCondition(a.Completion)
		r.completion = c
	}
	return r
}

func compileSharedPath(text string) *compiledPath {
	return sharedPaths.getOrMake(text, func() *compiledPath {
		path, err := compilePath(text)
		return &compiledPath{path, err}
	})
}

func compileCondition(text string) *condition {
	return sharedConditions.getOrMake(text, func() *condition {
		compiled, err := expr.CompileObjectCondition(text)
		return &condition{text, compiled, err}
	})
}

// ID distinguishes rules by what they state; empty for a nil Rules.
func (r *Rules) ID() string {
	if r == nil {
		return ""
	}
	return r.id
}

// StatesCompletion reports whether the rules define when an object has run to completion.
func (r *Rules) StatesCompletion() bool { return r != nil && r.completion != nil }

// CompletionText is the expression that is true once an object has run to completion; empty without one.
func (r *Rules) CompletionText() string {
	if !r.StatesCompletion() {
		return ""
	}
	return r.completion.text
}

// ReadFeedback returns the values that the rules name, without those that the object does not have.
func (r *Rules) ReadFeedback(object map[string]any) (out []atoll.FeedbackValue) {
	if r == nil {
		return nil
	}
	for i := range r.feedback {
		if v, there := r.feedback[i].readValue(object); there {
			out = append(out, v)
		}
	}
	return out
}

// HasCompleted reports whether the object has run to completion, as a rule defines it; false without a rule.
func (r *Rules) HasCompleted(object map[string]any) (bool, error) {
	if !r.StatesCompletion() {
		return false, nil
	}
	return r.completion.isTrueFor(object)
}

// JudgeObject returns the verdict of the rules over an object, for which the kind alone gives
// byKind. An object that is being deleted, or that its controller has not observed, is Progressing before any rule.
// With a rule of completion, byKind has
// the answer of HasCompleted, and failed its error.
func (r *Rules) JudgeObject(object map[string]any, byKind Verdict, state ObjectState, failed error) Verdict {
	out := byKind
	switch {
	case r == nil || byKind.Reason == atoll.ReasonTerminating:
		return out
	case state.Deleting:
		return Verdict{Health: atoll.Progressing, Reason: atoll.ReasonTerminating, Message: "the object is being deleted"}
	case state.Outdated || byKind.Reason == atoll.ReasonNotObserved:
		if out.Reason != atoll.ReasonNotObserved {
			out = Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotObserved, Message: "the controller has not observed the latest generation", Finished: byKind.Finished}
		}
		out.CompletionUnknown = r.completion != nil
		out.Finished = out.Finished && !out.CompletionUnknown
		return out
	case len(r.health) > 0:
		out = r.judgeHealth(object)
		out.Finished = byKind.Finished
	}
	return r.withCompletion(out, failed)
}

// withCompletion returns a verdict with what the rule of completion adds. A failed rule hides no Degraded.
func (r *Rules) withCompletion(out Verdict, failed error) Verdict {
	switch {
	case failed != nil:
		if out.Health != atoll.Degraded {
			out = failedVerdict(r.completion.text, failed)
		}
		out.Finished, out.CompletionUnknown = false, true
	case r.completion != nil && !out.Finished && out.Health == atoll.Healthy:
		out = Verdict{Health: atoll.Progressing, Reason: atoll.ReasonNotCompleted, Message: phrase.CutText("it has not run to completion: "+r.completion.text+" is false", maxMessage)}
	}
	return out
}

// maxMessage bounds the message of a verdict, in bytes.
const maxMessage = 256

// judgeHealth returns the health by the first rule that is not true.
func (r *Rules) judgeHealth(object map[string]any) Verdict {
	for i := range r.health {
		c := &r.health[i]
		switch met, err := c.isTrueFor(object); {
		case err != nil:
			return failedVerdict(c.text, err)
		case !met:
			health := atoll.Progressing
			if c.rule.WhenFalse == v1alpha1.WhenFalseDegraded {
				health = atoll.Degraded
			}
			return Verdict{
				Health: health, Reason: cmp.Or(atoll.Reason(c.rule.Reason), atoll.ReasonHealthRuleUnmet),
				Message: phrase.CutText(cmp.Or(c.rule.Message, c.text+" is false"), maxMessage),
			}
		}
	}
	return Verdict{Health: atoll.Healthy}
}

func failedVerdict(text string, err error) Verdict {
	return Verdict{Health: atoll.Unknown, Reason: atoll.ReasonHealthRuleFailed, Message: phrase.CutText(fmt.Sprintf("%.100s cannot be evaluated: %v", text, err), maxMessage)}
}

func (c *condition) isTrueFor(object map[string]any) (bool, error) {
	if c.err != nil {
		return false, c.err
	}
	return c.compiled.IsTrueFor(object)
}
