package schedule

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"atoll.dev/atoll/api/v1alpha1"
)

// decisionGroup is a part of the chosen clusters that others act on together.
type decisionGroup struct {
	name     string
	selector labels.Selector
}

func compileDecisionGroups(list []v1alpha1.DecisionGroup) []decisionGroup {
	var out []decisionGroup
	for _, g := range list {
		sel, err := metav1.LabelSelectorAsSelector(&g.LabelSelector)
		if err != nil {
			sel = labels.Nothing() // admission keeps that out
		}
		out = append(out, decisionGroup{g.GroupName, sel})
	}
	return out
}

// decisionGroupOf returns the group of a cluster: the first that matches it; empty: none does.
func (f *CompiledPlacement) decisionGroupOf(c *Cluster) string {
	for i := range f.decisionGroups {
		if f.decisionGroups[i].selector.Matches(labels.Set(c.Labels)) {
			return f.decisionGroups[i].name
		}
	}
	return ""
}
