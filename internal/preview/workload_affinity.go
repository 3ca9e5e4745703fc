package preview

import (
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

// explainWorkloadAffinity returns the terms of workloadAffinity that do nothing, and what the terms refuse.
func explainWorkloadAffinity(d *schedule.Decision, mayRead func(atoll.ItemKey) bool) (sentences []string) {
	for _, t := range d.WorkloadTerms {
		if len(t.Values) == 0 {
			sentences = append(sentences, t.Sentence())
		}
	}
	if d.GroupRefusal != nil {
		sentences = append(sentences, "clusters that fit otherwise are refused: it is "+d.HideMembers(d.GroupRefusal.String(), mayRead))
	}
	return sentences
}
