package atoll

import (
	"encoding/json"
	"errors"
	"regexp"
	"unicode/utf8"

	"atoll.dev/atoll/api/v1alpha1"
)

// Assessment is what members read and judge of an item's object beyond the rules of its kind. It is
// never changed, only replaced.
type Assessment struct {
	Feedback []v1alpha1.FeedbackRule `json:"feedback,omitempty"`
	Health   []v1alpha1.HealthRule   `json:"health,omitempty"`
	// Completion is an expression that is true once the object has run to completion; empty: its kind defines it.
	Completion string `json:"completion,omitempty"`
	// TTLSecondsAfterFinished is after how long members delete the object once it has run to completion; nil: it stays.
	TTLSecondsAfterFinished *int32 `json:"ttl,omitempty"`
}

// IsEmpty reports whether the rules of the kind alone apply to the object.
func (a *Assessment) IsEmpty() bool {
	return a == nil || len(a.Feedback) == 0 && len(a.Health) == 0 && a.Completion == "" && a.TTLSecondsAfterFinished == nil
}

// UnmarshalJSON decodes an assessment. Longer lists than an assessment has are refused before their rules take memory:
// an element of three bytes would take more than a hundred.
func (a *Assessment) UnmarshalJSON(text []byte) error {
	var form struct {
		Feedback [MaxFeedbackValues + 1]json.RawMessage `json:"feedback"`
		Health   [MaxHealthRules + 1]json.RawMessage    `json:"health"`
	}
	if err := json.Unmarshal(text, &form); err != nil { // which drops the elements after those of an array
		return err
	}
	if form.Feedback[MaxFeedbackValues] != nil || form.Health[MaxHealthRules] != nil {
		return errTooManyRules
	}
	type plain Assessment
	return json.Unmarshal(text, (*plain)(a))
}

var errTooManyRules = errors.New("it has more rules of feedback or health than any item has")

// JudgesHealth reports whether the health of the object depends on the assessment.
func (a *Assessment) JudgesHealth() bool {
	return a != nil && (len(a.Health) > 0 || a.Completion != "")
}

// The bounds of an Assessment's rules.
const (
	MaxHealthRules = 8
	MaxExpression  = 2048 // bytes
	MaxPath        = 512  // bytes
	maxRuleWord    = 63   // bytes of a reason, a type and a health
	maxRuleMessage = 256  // characters
)

// CheckForm returns an error for an assessment that no hub makes. Expressions and paths are not compiled.
func (a *Assessment) CheckForm() error {
	switch {
	case a == nil:
		return nil
	case len(a.Feedback) > MaxFeedbackValues || len(a.Health) > MaxHealthRules:
		return errTooManyRules
	case len(a.Completion) > MaxExpression:
		return errors.New("its rule of completion is longer than any rule is")
	case a.TTLSecondsAfterFinished != nil && (*a.TTLSecondsAfterFinished < 0 || *a.TTLSecondsAfterFinished > v1alpha1.MaxTTLSecondsAfterFinished):
		return errors.New("it is deleted after a time that no rule states")
	}
	for _, f := range a.Feedback {
		if !hasFeedbackForm(f) {
			return errors.New("a rule of its feedback has a form that no rule has")
		}
	}
	for _, h := range a.Health {
		if !hasHealthForm(h) {
			return errors.New("a rule of its health has a form that no rule has")
		}
	}
	return nil
}

func hasFeedbackForm(f v1alpha1.FeedbackRule) bool {
	return IsFeedbackName(f.Name) && f.JSONPath != "" && len(f.JSONPath) <= MaxPath && len(f.Type) <= maxRuleWord
}

func hasHealthForm(h v1alpha1.HealthRule) bool {
	return h.Expression != "" && len(h.Expression) <= MaxExpression && len(h.Reason) <= maxRuleWord && len(h.WhenFalse) <= maxRuleWord &&
		utf8.RuneCountInString(h.Message) <= maxRuleMessage
}

// ExpressionTexts are the different expressions, or paths, of rules. The zero value has none.
type ExpressionTexts struct {
	texts map[string]struct{}
	bytes int
}

// Add adds the expressions of rules of health, and of a rule of completion.
func (t *ExpressionTexts) Add(health []v1alpha1.HealthRule, completion string) {
	t.addText(completion)
	for _, h := range health {
		t.addText(h.Expression)
	}
}

// AddPaths adds the paths of rules of feedback, where the texts are paths.
func (t *ExpressionTexts) AddPaths(feedback []v1alpha1.FeedbackRule) {
	for _, f := range feedback {
		t.addText(f.JSONPath)
	}
}

func (t *ExpressionTexts) addText(text string) {
	if _, known := t.texts[text]; known {
		return
	}
	if t.texts == nil {
		t.texts = map[string]struct{}{}
	}
	t.texts[text] = struct{}{}
	t.bytes += len(text)
}

// Bytes is the length of the different texts.
func (t *ExpressionTexts) Bytes() int { return t.bytes }

// CountBytes returns the length of the texts that are free. Encoded, the assessment is longer.
func (a *Assessment) CountBytes() int {
	n := len(a.Completion)
	for _, f := range a.Feedback {
		n += len(f.Name) + len(f.JSONPath)
	}
	for _, h := range a.Health {
		n += len(h.Expression) + len(h.Reason) + len(h.Message)
	}
	return n
}

// ID distinguishes assessments by what they state; empty for an empty one.
func (a *Assessment) ID() string {
	if a.IsEmpty() {
		return ""
	}
	return HashJSON(a)
}

// IsFeedbackName reports whether a value may have the name: letters, digits and dashes between them.
func IsFeedbackName(name string) bool {
	return len(name) <= MaxFeedbackName && feedbackName.MatchString(name)
}

var feedbackName = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)

// FeedbackValue is a value of a member's object under the name of its rule.
type FeedbackValue struct {
	Name string `json:"n"`
	// Value as text: a String as it is, and others as JSON. Empty with a Problem.
	Value string `json:"v,omitempty"`
	// Problem is why there is no value.
	Problem string `json:"p,omitempty"`
}

// The bounds of feedback, in bytes of text.
const (
	MaxFeedbackValues  = 16 // of an object
	MaxFeedbackName    = 63
	MaxFeedbackText    = 256  // a value
	MaxFeedbackJSON    = 1024 // a value of the type JSON
	MaxFeedbackProblem = 128
)

// UnknownAssessment is the error of an item with an Assessment, which agents without support for the field report. It
// must never change: newer agents find by it what older ones stored.
const UnknownAssessment = "the agent is older than feedback, health and completion of itemRules, and keeps the content that it had: upgrade the agent"
