package atoll

import "atoll.dev/atoll/api/v1alpha1"

// Assessment is what members read and judge of an item's object beyond what its kind says. It is never changed, only
// replaced.
type Assessment struct {
	Feedback []v1alpha1.FeedbackRule `json:"feedback,omitempty"`
	Health   []v1alpha1.HealthRule   `json:"health,omitempty"`
	// Completion is an expression that is true once the object has run to completion; empty: its kind says so.
	Completion string `json:"completion,omitempty"`
}

// IsEmpty reports whether the kind alone says all of the object.
func (a *Assessment) IsEmpty() bool {
	return a == nil || len(a.Feedback) == 0 && len(a.Health) == 0 && a.Completion == ""
}

// JudgesHealth reports whether the health of the object depends on the assessment.
func (a *Assessment) JudgesHealth() bool { return a != nil && (len(a.Health) > 0 || a.Completion != "") }

// ID distinguishes assessments by what they state; empty for an empty one.
func (a *Assessment) ID() string {
	if a.IsEmpty() {
		return ""
	}
	return HashJSON(a)
}

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

// UnknownAssessment is the error of an item with an Assessment, which agents report that do not know the field. It
// must never change: newer agents find by it what older ones stored.
const UnknownAssessment = "the agent is older than feedback, health and completion of itemRules, and keeps the content that it had: upgrade the agent"
