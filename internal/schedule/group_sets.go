package schedule

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
)

// A cluster with several zones is in the group of each. An option of a rule is in one group, which its number names, or
// in a set of groups, which a number below noGroup names.

// spreadGroupsOf returns the groups of a cluster under a constraint. The list is not changed. It uses the memory of one
// where there is a single group, so that a decision allocates nothing for it.
func spreadGroupsOf(s *v1alpha1.SpreadConstraint, c *Cluster, one *[1]string) []string {
	switch s.SpreadByField {
	case v1alpha1.SpreadByCluster:
		one[0] = c.Name
	case v1alpha1.SpreadByRegion:
		one[0] = c.Region
	case v1alpha1.SpreadByZone:
		if len(c.Zones) > 0 {
			return c.Zones
		}
		one[0] = c.Zone
	case v1alpha1.SpreadByProvider:
		one[0] = c.Provider
	default:
		if one[0] = c.Labels[s.SpreadByLabel]; s.SpreadByProperty != "" {
			one[0] = c.Properties[s.SpreadByProperty]
		}
	}
	if one[0] == "" {
		return nil
	}
	return one[:]
}

// numberGroup returns the number of a group of a constraint, by its name.
func (p *candidatePool) numberGroup(constraint int, name string) int32 {
	known, ok := p.groupIDs[constraint][name]
	if !ok {
		known = int32(len(p.groupIDs[constraint]))
		p.groupIDs[constraint][name] = known
	}
	return known
}

// numberGroups returns what an option of these groups has as its group under a constraint. Equal sets have one number.
func (p *candidatePool) numberGroups(constraint int, names []string) int32 {
	switch len(names) {
	case 0:
		return noGroup
	case 1:
		return p.numberGroup(constraint, names[0])
	}
	set := make([]int32, 0, len(names))
	for _, name := range names {
		set = append(set, p.numberGroup(constraint, name))
	}
	slices.Sort(set)
	set = slices.Compact(set)
	if p.groupSets == nil {
		p.groupSets, p.setNumbers = make([][][]int32, len(p.spread)), map[string]int32{}
	}
	key := fmt.Sprint(constraint, set)
	number, known := p.setNumbers[key]
	if !known {
		number = firstSet - int32(len(p.groupSets[constraint]))
		p.groupSets[constraint], p.setNumbers[key] = append(p.groupSets[constraint], set), number
	}
	return number
}

// firstSet is the number of the first set of groups; further ones have lower numbers.
const firstSet = noGroup - 1

// setsOf returns the sets of groups under a constraint; nil: each option is in one group at most.
func (p *candidatePool) setsOf(constraint int) [][]int32 {
	if p.groupSets == nil {
		return nil
	}
	return p.groupSets[constraint]
}

// listGroups returns the groups that a number names. It uses the memory of one where there is a single group.
func (r *spreadRule) listGroups(number int32, one *[1]int32) []int32 {
	switch {
	case number >= 0:
		one[0] = number
		return one[:]
	case number == noGroup:
		return nil
	}
	return r.sets[firstSet-number]
}

// exceedsMaximum reports whether one more option of these groups opens more of them than the rule's maximum leaves.
// isFull: the maximum is reached.
func (r *spreadRule) exceedsMaximum(groups, counts []int32, isFull bool) bool {
	if r.max == 0 || !isFull && len(groups) < 2 {
		return false
	}
	opened := 0
	for _, g := range groups {
		if counts[g] == 0 {
			opened++
		}
	}
	switch {
	case opened == 0:
		return false
	case isFull:
		return true
	}
	return countUsed(counts)+opened > r.max
}

// hasSets reports whether an option of some rule is in several of its groups.
func (p *choiceProblem) hasSets() bool {
	return slices.ContainsFunc(p.rules, func(r spreadRule) bool { return len(r.sets) > 0 })
}

// skewFloorWith returns the floor of a rule after one more option of these groups.
func (s *choiceSolver) skewFloorWith(rule int, groups []int32, counts [][]int32) int64 {
	if len(groups) < 2 {
		return s.skewFloor(rule, counts)
	}
	after := slices.Clone(counts)
	after[rule] = slices.Clone(counts[rule])
	for _, g := range groups {
		after[rule][g]++
	}
	return s.skewFloor(rule, after)
}

// explainEmptyChoice returns why none of the clusters that fit can be chosen; empty where some are.
func (p *candidatePool) explainEmptyChoice(chosen []int32) string {
	if len(chosen) > 0 || len(p.options) == 0 {
		return ""
	}
	return "each cluster that fits is in more groups than maxGroups of the spreadConstraints allows"
}
