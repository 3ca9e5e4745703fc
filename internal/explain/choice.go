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

// Choice says how clusters were chosen among those that fit. Scores are of 1000.
type Choice struct {
	// Most clusters that are wanted; omitted: no bound.
	Most int `json:"most,omitempty"`
	// Fit counts the clusters that could be chosen, Chosen those that were.
	Fit    int `json:"fit"`
	Chosen int `json:"chosen"`
	// Scores by which was chosen; each cluster's score is their mean by weight.
	Scores []schedule.ScoreBy `json:"scores"`
	// Lowest scores the least among those that were chosen.
	Lowest      string  `json:"lowest,omitempty"`
	LowestScore float64 `json:"lowestScore,omitempty"`
	// RoomFor so many replicas counted beside the scores, since the clusters that score
	// best have not room enough.
	RoomFor int64 `json:"roomFor,omitempty"`
	// Spread tells of each spread constraint.
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
	// Of what it is made, in words.
	Of string `json:"of,omitempty"`
}

func thousandths(score int64) float64 { return float64(score) / 1000 }

func choiceOf(c *schedule.Choice) *Choice {
	if c == nil {
		return nil
	}
	out := &Choice{Most: c.Most, Fit: c.Fit, Chosen: c.Chosen, Scores: c.Scores, Lowest: c.Lowest, LowestScore: thousandths(c.LowestScore), RoomFor: c.RoomFor}
	for _, s := range c.Spread {
		out.Spread = append(out.Spread, Spread(s))
	}
	return out
}

func scoreOf(v schedule.Verdict) *Score {
	if v.Rating == nil {
		return nil
	}
	out := &Score{Total: thousandths(v.Score), Parts: make([]ScorePart, 0, len(v.Rating.Parts)), Avoided: v.Rating.Avoided}
	for _, p := range v.Rating.Parts {
		out.Parts = append(out.Parts, ScorePart{thousandths(p.Points), p.Of})
	}
	return out
}

// among tells whether the cluster was one to choose from, and not chosen.
func (x BundleExplanation) among(c ClusterExplanation) bool {
	return x.Choice != nil && c.Score != nil && c.Row == nil && c.Verdict == schedule.Out
}

// waitsSince when the Bundle waits for what it waits for, by the condition that says so.
func (b Bundle) waitsSince() *time.Time {
	for _, of := range []string{v1alpha1.BundleScheduled, v1alpha1.BundleBound, v1alpha1.BundleReplicasPlaced, v1alpha1.BundleReady} {
		if c := meta.FindStatusCondition(b.Status.Conditions, of); c != nil && c.Status != metav1.ConditionTrue {
			return &c.LastTransitionTime.Time
		}
	}
	if b.Created.IsZero() || meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BundleScheduled) {
		return nil // what began since then nobody has said yet
	}
	return &b.Created
}

// planSince when the first row of the plan that is to be confirmed has waited.
func (b Bundle) planSince() (at *time.Time) {
	for _, r := range b.Rows {
		if plan := atoll.ParseRowReason(r.Spec.Reason).Plan; plan == "" || b.Output.Plan == nil || plan != b.Output.Plan.Hash {
			continue
		}
		if t := time.Unix(r.Spec.Since, 0).UTC(); at == nil || t.Before(*at) {
			at = &t
		}
	}
	return at
}

// unknown clusters that the placement names.
func unknown(b Bundle) []string {
	return slices.DeleteFunc(schedule.NamedClusters(&b.Spec.Placement), func(name string) bool {
		_, known := b.Decision.Verdict(name)
		return known
	})
}
