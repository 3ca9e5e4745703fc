package claim

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Decision says who places an object, and why.
type Decision struct {
	// Winner is nil when nobody does.
	Winner *Candidate
	// Why the winner won, or why there is none.
	Why string
	// Others that select the object too, best first.
	Others []Candidate
	// Skipped says why the namespace's annotation leaves the object out.
	Skipped string
}

// Decide who places an object: its own annotation, its namespace's annotation, a
// PropagationPolicy, a ClusterPropagationPolicy; among policies by priority,
// specificity and age. holder is who places it now, nil for nobody: among policies
// it stays, unless a better one preempts.
func Decide(x *Index, sub Subject, ns Namespace, holder *v1alpha1.BundleSource) Decision {
	var d Decision
	if hubsOwn(sub) {
		return Decision{Why: "it holds what is the hub's own, and is never placed"}
	}
	all := x.candidates(sub)
	if value, ok := Clusters(ns.Annotations); ok && sub.Key.Namespace != "" {
		if d.Skipped = BeyondScope(sub); d.Skipped == "" {
			c, err := annotation(value, levelNamespace)
			if err != nil {
				return Decision{Why: fmt.Sprintf("the annotation of namespace %s is malformed: %v", ns.Name, err), Others: all}
			}
			c.Source = v1alpha1.BundleSource{Kind: v1alpha1.SourceNamespaceAnnotation, Name: ns.Name, UID: ns.UID}
			all = slices.Insert(all, 0, c)
		}
	}
	if value, ok := Clusters(sub.Annotations); ok && annotates(sub.Key) {
		c, err := annotation(value, levelObject)
		if err != nil {
			return Decision{Why: fmt.Sprintf("its annotation is malformed: %v", err), Others: all}
		}
		c.Source = v1alpha1.BundleSource{Kind: v1alpha1.SourceAnnotation, Name: sub.Key.Name, UID: sub.UID}
		all = slices.Insert(all, 0, c)
	}
	if len(all) == 0 {
		d.Why = "no policy and no annotation selects it"
		return d
	}
	i, why := choose(all, holder)
	d.Winner, d.Why = &all[i], why
	d.Others = slices.Concat(all[:i], all[i+1:])
	return d
}

// annotates tells kinds on which the annotation places the object itself: on a
// Namespace it places what is inside.
func annotates(key atoll.ItemKey) bool {
	return !(key.Group == "" && key.Kind == "Namespace")
}

func annotation(value string, level int) (Candidate, error) {
	p, err := ParseClusters(value)
	if err != nil {
		return Candidate{}, err
	}
	spec := annotated(p)
	return Candidate{Spec: &spec, Matched: fmt.Sprintf("%s: %q", atoll.AnnotationClusters, value), level: level}, nil
}

// choose among candidates that are sorted best first.
func choose(all []Candidate, holder *v1alpha1.BundleSource) (int, string) {
	if len(all) == 1 {
		return 0, "only it selects the object"
	}
	if all[0].level >= levelNamespace {
		return 0, "annotations win over policies"
	}
	held := -1
	if holder != nil {
		held = slices.IndexFunc(all, func(c Candidate) bool { return c.Source.Kind == holder.Kind && c.Source.Name == holder.Name })
	}
	if held <= 0 {
		return 0, "best of " + fmt.Sprint(len(all)) + " policies by " + edge(all[0], all[1])
	}
	for i, c := range all[:held] {
		if c.Spec.Preemption == v1alpha1.PreemptAlways && above(c, all[held]) {
			return i, fmt.Sprintf("it preempts %s %s", all[held].Source.Kind, all[held].Source.Name)
		}
	}
	return held, "it holds the object already, and none of the others preempts it"
}

// above tells whether c ranks above held for preemption: by level, then priority.
func above(c, held Candidate) bool {
	if c.level != held.level {
		return c.level > held.level
	}
	return c.Spec.Priority > held.Spec.Priority
}

// edge names what decided between the best two.
func edge(a, b Candidate) string {
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

// Outranked tells whether another ranks higher than the winner, which won since it holds
// the object.
func (d Decision) Outranked() bool {
	return d.Winner != nil && slices.ContainsFunc(d.Others, func(c Candidate) bool { return compare(c, *d.Winner) < 0 })
}

// Lost says why a candidate did not win.
func Lost(winner, c Candidate) string {
	switch {
	case compare(c, winner) < 0:
		return "it ranks higher by " + edge(c, winner) + ", but what is placed already stays where it is unless a policy says preemption: Always"
	case winner.level == levelObject && c.level == levelNamespace:
		return "an object's own annotation wins over its namespace's"
	case winner.level >= levelNamespace:
		return "annotations win over policies"
	case winner.level != c.level:
		return "a namespace's own policy wins over a cluster policy"
	}
	return "the winner is ahead by " + edge(winner, c)
}
