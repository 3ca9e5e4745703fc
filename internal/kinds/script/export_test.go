package script

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// CPUTime exports processCPUTime for the tests outside the package.
var CPUTime = processCPUTime

// RaceEnabled exports raceEnabled.
const RaceEnabled = raceEnabled

// MatchesKind reports whether the target covers the kind.
func (c *Customization) MatchesKind(gvk schema.GroupVersionKind) bool {
	return targetMatches(&c.target, gvk)
}

// AnsweredQuestions returns the sorted keys of the answers.
func (c *Customization) AnsweredQuestions() []string {
	var out []string
	for q := range c.rules {
		out = append(out, string(q))
	}
	slices.Sort(out)
	return out
}
