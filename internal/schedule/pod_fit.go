package schedule

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
	"atoll.dev/atoll/internal/phrase"
)

// FitTime is when pods fit in a cluster.
type FitTime string

// The times. Empty: it is not known.
const (
	FitNow          FitTime = "Now"
	FitAfterScaleUp FitTime = "AfterScaleUp"
	FitNever        FitTime = "Never"
)

// PodFit is the answer whether pods fit in a cluster, with the reason where they do not now.
type PodFit struct {
	When   FitTime
	Reason string
	// detail of the reason: the nodes of which more are needed, or why none takes a pod.
	detail string
	// Item whose pods fit least.
	Item atoll.ItemKey
}

// JudgePodFit judges whether the pods fit in the free capacity together. It returns the answer for those that
// fit least, with its reason where explain is set. Not known: they do not fit, and the agent reports no groups of nodes.
func JudgePodFit(free freecapacity.NodeClasses, demand []PodDemand, explain bool) PodFit {
	worst := PodFit{When: FitNow}
	for i := range demand {
		d := &demand[i]
		fitting := min(CountFittingReplicas(free, d.Requests), d.Count)
		if fitting < d.Count {
			if fit := judgeLackingPods(free, d, fitting, explain); fit.rankAnswer() > worst.rankAnswer() {
				worst = fit
			}
			if worst.When == FitNever && !explain {
				return worst
			}
		}
		if fitting > 0 && i < len(demand)-1 {
			free = TakeCapacity(free, d.Requests, fitting)
		}
	}
	return worst
}

// JudgeShortage returns in words when one more replica fits in one of the clusters, given by name with their free
// capacity; nil: it is not known. It returns nothing where a replica fits now, so that
// something else holds it back, and where capacity that is not known could change the answer.
func JudgeShortage(w *Workload, clusters iter.Seq2[string, freecapacity.NodeClasses]) string {
	one := []PodDemand{{Key: w.Key, Count: max(w.Requests.Pods, 1), Requests: w.Requests}}
	one[0].Requests.Pods = 0
	never, nodesOfNever, isUnknown := "", freecapacity.NodeClasses(nil), false
	for cluster, free := range clusters {
		when := FitTime("")
		if free != nil {
			when = JudgePodFit(free, one, false).When
		}
		switch when {
		case FitNow:
			return ""
		case FitAfterScaleUp:
			return "they fit after scale-up of " + JudgePodFit(free, one, true).detail + " in " + cluster
		case FitNever:
			if never == "" {
				never, nodesOfNever = cluster, free
			}
		default:
			isUnknown = true
		}
	}
	if isUnknown || never == "" {
		return ""
	}
	return "they fit on no node that the clusters have; in " + never + ", " + JudgePodFit(nodesOfNever, one, true).detail
}

// rankAnswer orders the answers, the best first.
func (f PodFit) rankAnswer() int {
	return slices.Index([]FitTime{FitNow, "", FitAfterScaleUp, FitNever}, f.When)
}

// judgeLackingPods returns the answer for pods of which only some fit now.
func judgeLackingPods(free freecapacity.NodeClasses, d *PodDemand, fitting int64, explain bool) PodFit {
	groups := free.ListGroups()
	if len(groups) == 0 {
		return PodFit{}
	}
	furthest, nearest := -1, groups[0]
	for _, g := range groups {
		step := judgeGroup(g, d.Requests)
		if step == groupTakesPods && !explain {
			return PodFit{When: FitAfterScaleUp, Item: d.Key}
		}
		if step == groupTakesPods {
			text := describeGroup(g, groups, &d.Requests)
			return PodFit{When: FitAfterScaleUp, Item: d.Key, detail: text, Reason: fmt.Sprintf("there is room for %d of %s now; the others fit after scale-up of %s", fitting, phrase.CountNoun(d.Count, "pod"), text)}
		}
		if step > furthest {
			furthest, nearest = step, g
		}
	}
	if !explain {
		return PodFit{When: FitNever, Item: d.Key}
	}
	why := explainGroup(furthest, nearest, groups, d.Requests)
	return PodFit{When: FitNever, Item: d.Key, detail: why, Reason: "they fit on none of its nodes, even without other pods: " + why}
}

// How far pods come with a group of nodes.
const (
	groupLabelsDiffer = iota
	groupRepelsPods
	groupIsTooSmall
	groupTakesPods
)

// judgeGroup returns how far pods come with the nodes of a group that have no other pods.
func judgeGroup(g *freecapacity.NodeGroup, r freecapacity.ReplicaRequests) (step int) {
	if r.Matcher != nil && !r.Matcher.MatchesGroup(g) {
		return groupLabelsDiffer
	}
	if !isTolerated(&g.Size, r) {
		return groupRepelsPods
	}
	if name, _, _ := firstTooLarge(&g.Size, r); name != "" {
		return groupIsTooSmall
	}
	return groupTakesPods
}

// explainGroup returns why pods come no further with the nodes of a group.
func explainGroup(step int, g *freecapacity.NodeGroup, all []*freecapacity.NodeGroup, r freecapacity.ReplicaRequests) string {
	switch step {
	case groupLabelsDiffer:
		return "no node has the labels that nodeSelector or the required node affinity asks for"
	case groupRepelsPods:
		taints := make([]string, 0, len(g.Size.Taints))
		for _, t := range g.Size.Taints {
			taints = append(taints, freecapacity.FormatTaint(t))
		}
		return describeGroup(g, all, &r) + " have taints that the pods do not tolerate: " + strings.Join(taints, ", ")
	}
	name, has, asks := firstTooLarge(&g.Size, r)
	unit := UsageMeasure{Name: name}
	return fmt.Sprintf("a pod requests %s %s, and the most that %s have is %s", unit.FormatQuantity(asks), name, describeGroup(g, all, &r), unit.FormatQuantity(has))
}

// firstTooLarge returns the first resource of which a pod requests more than a node has.
func firstTooLarge(size *freecapacity.NodeClass, r freecapacity.ReplicaRequests) (name string, has, asks int64) {
	switch {
	case size.Pods < 1:
		return "pods", size.Pods, 1
	case r.CPU > size.CPU:
		return "cpu", size.CPU, r.CPU
	case r.Memory > size.Memory:
		return "memory", size.Memory, r.Memory
	}
	for _, name := range slices.Sorted(maps.Keys(r.Other)) {
		if r.Other[name] > size.Other[name] {
			return name, size.Other[name], r.Other[name]
		}
	}
	return "", 0, 0
}

// maxNamedLabels is how many labels describe a group.
const maxNamedLabels = 3

// describeGroup names a group by the labels that other groups do not have. It names only labels that the pods themselves
// require: owners of pods need not know the other labels of nodes.
func describeGroup(g *freecapacity.NodeGroup, all []*freecapacity.NodeGroup, r *freecapacity.ReplicaRequests) string {
	if len(all) == 1 {
		return "the nodes"
	}
	var own []string
	for _, key := range requiredLabelKeys(r) {
		value, has := g.Labels[key]
		if has && slices.ContainsFunc(all, func(o *freecapacity.NodeGroup) bool {
			other, has := o.Labels[key]
			return !has || other != value
		}) && len(own) < maxNamedLabels {
			own = append(own, key+"="+value)
		}
	}
	if len(own) == 0 {
		return "some nodes"
	}
	return "nodes with " + strings.Join(own, ", ")
}

// requiredLabelKeys returns the keys of the labels that pods require of their nodes, sorted.
func requiredLabelKeys(r *freecapacity.ReplicaRequests) []string {
	keys := slices.Collect(maps.Keys(r.NodeSelector))
	if r.NodeAffinity != nil {
		for _, term := range r.NodeAffinity.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				keys = append(keys, e.Key)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
