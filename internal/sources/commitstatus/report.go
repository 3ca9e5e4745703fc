// Package commitstatus decides what git servers are to show of the commits of Sources, and in which words of which API.
//
// Contract: functions are pure. No text of a commit or of a server is in a report.
package commitstatus

import (
	"regexp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
)

// maxDescriptionBytes is the longest description that GitHub takes.
const maxDescriptionBytes = 140

// Report is what a git server is to show of a commit.
type Report struct {
	// Commit is the full hash.
	Commit string
	State  v1alpha1.CommitState
	// Description is one line for people.
	Description string
}

// commitHash is the form of a commit. Other revisions, such as those of charts, are no commits.
var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// DesiredReport returns the report of a Source; false while there is none. A commit that was read and not attempted is refused content.
func DesiredReport(s *v1alpha1.Source) (Report, bool) {
	st := &s.Status
	if st.ObservedGeneration != s.Generation || s.Spec.Suspend || !commitHash.MatchString(st.SeenCommit) {
		return Report{}, false
	}
	r := Report{Commit: st.SeenCommit, State: v1alpha1.CommitFailure}
	if st.SeenCommit != st.AttemptedCommit {
		r.Description = describeCondition("not applied", meta.FindStatusCondition(st.Conditions, v1alpha1.SourceRendered))
		return r, true
	}
	if applied := meta.FindStatusCondition(st.Conditions, v1alpha1.SourceApplied); applied == nil || applied.Status != metav1.ConditionTrue {
		r.Description = describeCondition("not applied", applied)
		return r, true
	}
	if meta.IsStatusConditionTrue(st.Conditions, v1alpha1.SourceReady) {
		r.State, r.Description = v1alpha1.CommitSuccess, "applied, and ready in its clusters"
		return r, true
	}
	r.State, r.Description = v1alpha1.CommitPending, "applied, and not ready in all clusters yet"
	return r, true
}

// describeCondition returns a text with the reason of a condition.
func describeCondition(text string, c *metav1.Condition) string {
	if c == nil {
		return text
	}
	return phrase.TruncateText(phrase.EscapeLine(text+": "+c.Reason), maxDescriptionBytes)
}

// IsNews reports whether a server is to take a report, by what it took last; nil for nothing. A commit that was ready once stays so, because
// what happens to clusters later is not of the commit.
func IsNews(last *v1alpha1.SourceCommitStatus, r Report) bool {
	switch {
	case last == nil || last.Commit != r.Commit:
		return true
	case last.State == v1alpha1.CommitSuccess && r.State == v1alpha1.CommitPending:
		return false
	}
	return last.State != r.State
}
