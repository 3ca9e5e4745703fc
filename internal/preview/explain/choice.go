package explain

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// Choice returns how clusters were chosen among those that fit. Scores are of 1000.
type Choice struct {
	// Most clusters to choose; omitted: no bound.
	Most int `json:"most,omitempty"`
	// Fit counts the clusters that could be chosen, Chosen those that were.
	Fit    int `json:"fit"`
	Chosen int `json:"chosen"`
	// Scores by which was chosen; each cluster's score is their mean by weight.
	Scores []schedule.WeightedScore `json:"scores"`
	// Lowest scores the least among those that were chosen.
	Lowest      string  `json:"lowest,omitempty"`
	LowestScore float64 `json:"lowestScore,omitempty"`
	// RoomFor so many replicas counted beside the scores, since the clusters that score
	// best have not room enough.
	RoomFor int64 `json:"roomFor,omitempty"`
	// Spread has the result of each spread constraint.
	Spread []Spread `json:"spread,omitempty"`
}

// Spread is what came of a spread constraint.
type Spread struct {
	Over       string                    `json:"over"`
	Constraint v1alpha1.SpreadConstraint `json:"constraint"`
	Groups     []schedule.SpreadGroup    `json:"groups,omitempty"`
}

// Score of a cluster, of 1000.
type Score struct {
	Total float64 `json:"total"`
	// Parts in the order of the Choice's scores.
	Parts []ScorePart `json:"parts"`
	// Avoided counts PreferNoSchedule taints that are not tolerated, each of which takes
	// 200 away.
	Avoided int `json:"avoided,omitempty"`
}

// ScorePart is one of the scores.
type ScorePart struct {
	Points float64 `json:"points"`
	// The components of the score, in words.
	Of string `json:"of,omitempty"`
}

func displayScore(score int64) float64 { return float64(score) / 1000 }

func explainChoice(c *schedule.ChoiceExplanation) *Choice {
	if c == nil {
		return nil
	}
	out := &Choice{Most: c.MaxClusters, Fit: c.Fit, Chosen: c.Chosen, Scores: c.Scores, Lowest: c.Lowest, LowestScore: displayScore(c.LowestScore), RoomFor: c.RoomFor}
	for _, s := range c.Spread {
		out.Spread = append(out.Spread, Spread{Over: s.SpreadField, Constraint: s.Constraint, Groups: s.Groups})
	}
	return out
}

func explainScore(v schedule.Verdict) *Score {
	if v.ScoreBreakdown == nil {
		return nil
	}
	out := &Score{Total: displayScore(v.Score), Parts: make([]ScorePart, 0, len(v.ScoreBreakdown.Components)), Avoided: v.ScoreBreakdown.AvoidedTaints}
	for _, p := range v.ScoreBreakdown.Components {
		out.Parts = append(out.Parts, ScorePart{displayScore(p.Points), p.Inputs})
	}
	return out
}

// isUnchosenCandidate reports whether the cluster was one to choose from, and not chosen.
func (x BundleExplanation) isUnchosenCandidate(c ClusterExplanation) bool {
	return x.Choice != nil && c.Score != nil && c.Row == nil && c.Verdict == schedule.OutcomeOut
}

// waitStart returns the reason of the Bundle's wait, and since when it waits, by the condition that
// is not true.
func (b Bundle) waitStart() (atoll.Reason, *time.Time) {
	if c := b.findQuarantine(); c != nil {
		return atoll.Reason(c.Reason), &c.LastTransitionTime.Time
	}
	for _, of := range []string{v1alpha1.BundleScheduled, v1alpha1.BundleBound, v1alpha1.BundleReplicasPlaced, v1alpha1.BundleReady} {
		if c := meta.FindStatusCondition(b.Status.Conditions, of); c != nil && c.Status != metav1.ConditionTrue && c.Reason != string(atoll.ReasonNotDetermined) {
			return atoll.Reason(c.Reason), &c.LastTransitionTime.Time
		}
	}
	if b.Created.IsZero() || meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BundleScheduled) {
		return "", nil // a state that began since then is not reported yet
	}
	return atoll.ReasonNotScheduled, &b.Created
}

// findQuarantine returns the condition of a Bundle that is not rendered; nil: the Bundle is rendered.
func (b Bundle) findQuarantine() *metav1.Condition {
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BundleQuarantined); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// planSince returns the time since when the first row of the plan that is to be confirmed has waited.
func (b Bundle) planSince() (at *time.Time) {
	for _, r := range b.Rows {
		if plan := atoll.ParseRowReason(r.Spec.Reason).Plan; plan == "" || b.Output.PendingRemoval == nil || plan != b.Output.PendingRemoval.Hash {
			continue
		}
		if t := time.Unix(r.Spec.Since, 0).UTC(); at == nil || t.Before(*at) {
			at = &t
		}
	}
	return at
}

// unknownClusters returns the clusters that the placement names and the scheduler does not have.
func unknownClusters(b Bundle) []string {
	return slices.DeleteFunc(schedule.NamedClusters(&b.Spec.Placement), func(name string) bool {
		_, known := b.Decision.FindVerdict(name)
		return known
	})
}
