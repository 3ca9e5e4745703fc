package policymatch

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Decision is the policy or annotation that places an object, with the reason.
type Decision struct {
	// Winner is nil when no policy or annotation places the object.
	Winner *Candidate
	// Reason why the winner won, or why there is none, with its enumerated reason.
	ReasonCode atoll.Reason
	Reason     string
	// Others that select the object too, best first.
	Others []Candidate
	// SkippedReason is why the namespace's annotation leaves the object out.
	SkippedReason string
	// Parent is the object that the object joins, or would join; nil for none.
	Parent *Subject
	// Root is the uppermost of the parents, which the winner selects; nil when it selects the object.
	Root *Subject
	// IsParentMissing: the object has a parent that the hub does not have, and joins none. A
	// Bundle that holds the object keeps it.
	IsParentMissing bool
}

// DecidePolicy returns what places an object: its own annotation, its namespace's annotation, a
// PropagationPolicy, a ClusterPropagationPolicy, or the hub's default placement. Policies compete by
// priority, specificity and age. holder places the object now, nil for none. A holding policy stays
// unless a better one preempts it.
func DecidePolicy(x *PolicyIndex, sub Subject, ns Namespace, holder *v1alpha1.BundleSource) Decision {
	var d Decision
	if IsHubSecret(sub) {
		return Decision{ReasonCode: atoll.ReasonNeverPlaced, Reason: "it holds what is the hub's own, and is never placed"}
	}
	all := x.findCandidates(sub)
	if sub.Key.IsNamespace() {
		ns = Namespace{Name: sub.Key.Name, UID: sub.UID, Annotations: sub.Annotations}
	}
	if value, ok := ClustersAnnotation(ns.Annotations); ok && ns.Name != "" {
		if d.SkippedReason = NamespaceAnnotationSkipReason(sub); d.SkippedReason == "" {
			c, err := annotationCandidate(value, levelNamespace)
			if err != nil {
				return Decision{ReasonCode: atoll.ReasonAnnotationMalformed, Reason: fmt.Sprintf("the annotation of namespace %s is malformed: %v", ns.Name, err), Others: all}
			}
			c.Source = v1alpha1.BundleSource{Kind: v1alpha1.SourceNamespaceAnnotation, Name: ns.Name, UID: ns.UID}
			all = slices.Insert(all, 0, c)
		}
	}
	if value, ok := ClustersAnnotation(sub.Annotations); ok && !sub.Key.IsNamespace() {
		c, err := annotationCandidate(value, levelObject)
		if err != nil {
			return Decision{ReasonCode: atoll.ReasonAnnotationMalformed, Reason: fmt.Sprintf("its annotation is malformed: %v", err), Others: all}
		}
		c.Source = v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: sub.Key.Name, UID: sub.UID}
		all = slices.Insert(all, 0, c)
	}
	if len(all) == 0 {
		by := x.decideByDefault(sub, ns)
		by.SkippedReason = d.SkippedReason
		return by
	}
	i, code, why := chooseCandidate(all, holder)
	d.Winner, d.ReasonCode, d.Reason = &all[i], code, why
	d.Others = slices.Concat(all[:i], all[i+1:])
	return d
}

func annotationCandidate(value string, level int) (Candidate, error) {
	p, err := ParseClustersAnnotation(value)
	if err != nil {
		return Candidate{}, err
	}
	spec := annotationSpec(p)
	return Candidate{Spec: &spec, MatchedBy: fmt.Sprintf("%s: %q", atoll.AnnotationClusters, value), level: level}, nil
}

// chooseCandidate returns the index of the winner, and the reason. all is sorted best first.
func chooseCandidate(all []Candidate, holder *v1alpha1.BundleSource) (int, atoll.Reason, string) {
	if len(all) == 1 {
		return 0, atoll.ReasonOnlyCandidate, "only it selects the object"
	}
	if all[0].level >= levelNamespace {
		return 0, atoll.ReasonAnnotationWins, "annotations win over policies"
	}
	held := -1
	if holder != nil {
		held = slices.IndexFunc(all, func(c Candidate) bool { return c.Source.Kind == holder.Kind && c.Source.Name == holder.Name })
	}
	if held <= 0 {
		return 0, atoll.ReasonRanksHighest, "best of " + fmt.Sprint(len(all)) + " policies by " + decidingCriterion(all[0], all[1])
	}
	for i, c := range all[:held] {
		if c.Spec.Preemption == v1alpha1.PreemptAlways && outranksByLevelOrPriority(c, all[held]) {
			return i, atoll.ReasonPreempts, fmt.Sprintf("it preempts %s %s", all[held].Source.Kind, all[held].Source.Name)
		}
	}
	return held, atoll.ReasonHoldsObject, "it holds the object already, and none of the others preempts it"
}

// outranksByLevelOrPriority returns whether c ranks above held: by level, then priority.
func outranksByLevelOrPriority(c, held Candidate) bool {
	if c.level != held.level {
		return c.level > held.level
	}
	return c.Spec.Priority > held.Spec.Priority
}

// decidingCriterion returns what separates the best two.
func decidingCriterion(a, b Candidate) string {
	switch {
	case a.level != b.level:
		return "kind of policy"
	case a.Spec.Priority != b.Spec.Priority:
		return "priority"
	case a.specificity != b.specificity:
		return "specificity"
	case !a.created.Equal(b.created):
		return "age"
	}
	return "name"
}

// IsOutranked returns whether another candidate ranks higher than the winner, which won because it
// holds the object.
func (d Decision) IsOutranked() bool {
	return d.Winner != nil && slices.ContainsFunc(d.Others, func(c Candidate) bool { return compareCandidates(c, *d.Winner) < 0 })
}

// ExplainLoss returns why a candidate did not win: what the winner has that it lacks.
func ExplainLoss(winner, c Candidate) (atoll.Reason, string) {
	switch {
	case compareCandidates(c, winner) < 0:
		return atoll.ReasonHoldsObject, "it ranks higher by " + decidingCriterion(c, winner) + ", but what is placed already stays where it is unless a policy has preemption: Always"
	case winner.level == levelObject && c.level == levelNamespace:
		return atoll.ReasonAnnotationWins, "an object's own annotation wins over its namespace's"
	case winner.level >= levelNamespace:
		return atoll.ReasonAnnotationWins, "annotations win over policies"
	case winner.level != c.level:
		return atoll.ReasonRanksHighest, "a namespace's own policy wins over a cluster policy"
	}
	return atoll.ReasonRanksHighest, "the winner is ahead by " + decidingCriterion(winner, c)
}
