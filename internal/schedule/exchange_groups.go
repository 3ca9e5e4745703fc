package schedule

import (
	"cmp"
	"slices"
)

// admitBestGroups admits, for each rule whose maximum is below the number of its groups,
// the groups that look best by themselves; nil for the others.
func (s *choiceSolver) admitBestGroups() [][]bool {
	var admit [][]bool
	for i := range s.rules {
		r := &s.rules[i]
		if r.max == 0 || r.groups <= r.max {
			continue
		}
		if admit == nil {
			admit = make([][]bool, len(s.rules))
		}
		admit[i] = s.bestGroupsOfRule(i, admit)
	}
	return admit
}

// groupWorth of a group by itself, more is better.
type groupWorth struct {
	group               int32
	locked, prio, count int
	score               int64
	rank                uint64
}

func (w groupWorth) compareWorth(o groupWorth) int {
	return cmp.Or(cmp.Compare(o.locked, w.locked), cmp.Compare(o.prio, w.prio), cmp.Compare(o.count, w.count),
		cmp.Compare(o.score, w.score), cmp.Compare(w.rank, o.rank), cmp.Compare(w.group, o.group))
}

// bestGroupsOfRule returns the groups of clusters that stay, and then the best ones by the
// clusters that they could contribute.
func (s *choiceSolver) bestGroupsOfRule(i int, admit [][]bool) []bool {
	r := &s.rules[i]
	all := make([]groupWorth, r.groups)
	for g := range all {
		all[g] = groupWorth{group: int32(g), rank: ^uint64(0)}
	}
	var one [1]int32
	for _, at := range s.locked {
		for _, g := range r.listGroups(r.groupOf[at], &one) {
			all[g].locked++
		}
	}
	for c, list := range s.optionsByClass {
		groups := r.listGroups(s.groupsByClass[c][i], &one)
		if len(groups) > r.max || !s.areGroupsAdmitted(admit, s.groupsByClass[c]) {
			continue
		}
		for _, g := range groups {
			s.addOptionsWorth(&all[g], list)
		}
	}
	slices.SortFunc(all, groupWorth.compareWorth)
	out := make([]bool, r.groups)
	for n, w := range all {
		if n < r.max || w.locked > 0 {
			out[w.group] = true
		}
	}
	return out
}

// addOptionsWorth adds the options of a class to the worth of a group, as many as can be chosen.
func (s *choiceSolver) addOptionsWorth(w *groupWorth, list []int32) {
	for _, at := range list {
		if w.count == s.maxChosen {
			return
		}
		o := &s.options[at]
		w.prio += int(o.priority)
		w.count++
		w.score += o.score
		w.rank = min(w.rank, o.rank)
	}
}

// areGroupsAdmitted reports whether all groups of a class are admitted.
func (s *choiceSolver) areGroupsAdmitted(admit [][]bool, numbers []int32) bool {
	var one [1]int32
	for i, number := range numbers {
		if admit == nil || admit[i] == nil {
			continue
		}
		for _, g := range s.rules[i].listGroups(number, &one) {
			if !admit[i][g] {
				return false
			}
		}
	}
	return true
}

// canGroupExchangeImprove reports whether other groups than the ones that look best by themselves could
// be better together.
func (s *choiceSolver) canGroupExchangeImprove() bool {
	stay := s.countGroups(s.locked)
	if !slices.ContainsFunc(s.rulesWithExcessGroups(), func(i int) bool { return countUsed(stay[i]) < s.rules[i].max }) {
		return false // those that stay leave no choice of groups
	}
	// Without a bound on clusters, and with clusters in one group each, the worth of groups adds up.
	free := s.maxChosen >= len(s.options) && s.rules[0].skew == 0 && !s.hasSets()
	return len(s.rules) > 1 || !free
}

// rulesWithExcessGroups returns the rules that have more groups than their maximum.
func (s *choiceSolver) rulesWithExcessGroups() (out []int) {
	for i := range s.rules {
		if r := &s.rules[i]; r.max > 0 && r.groups > r.max {
			out = append(out, i)
		}
	}
	return out
}

// exchangeGroups exchanges an admitted group for another while this improves the choice.
func (s *choiceSolver) exchangeGroups(best choiceAttempt) choiceAttempt {
	for improved := true; improved; {
		improved = false
		for i := range s.rules {
			if best.admittedGroups == nil || best.admittedGroups[i] == nil {
				continue
			}
			for out := range best.admittedGroups[i] {
				for in := range best.admittedGroups[i] {
					if !best.admittedGroups[i][out] || best.admittedGroups[i][in] || !s.openGroups[i][in] {
						continue
					}
					if s.stepsLeft--; s.stepsLeft < 0 {
						return best
					}
					admit := slices.Clone(best.admittedGroups)
					admit[i] = slices.Clone(admit[i])
					admit[i][out], admit[i][in] = false, true
					if t := s.attemptChoice(admit, best.raisedFloor); t.value.compareValue(&best.value) < 0 {
						best, improved = t, true
					}
				}
			}
		}
	}
	return best
}

// tryHigherFloors tries whether a higher floor under a skew improves the choice: it lets
// more of the good options in, together with the poor ones that raise it.
func (s *choiceSolver) tryHigherFloors(best choiceAttempt) choiceAttempt {
	const highest = 32
	if s.maxChosen-len(s.locked) <= 1 {
		return best // one more lets nothing in but itself
	}
	upTo := 0
	for _, r := range s.rules {
		if groups := r.groups; r.skew > 0 && groups > 0 && s.maxChosen < len(s.options) {
			if r.max > 0 {
				groups = min(groups, r.max)
			}
			upTo = max(upTo, min(highest, s.maxChosen/groups))
		}
	}
	for lift := int32(1); int(lift) <= upTo; lift++ {
		if s.stepsLeft--; s.stepsLeft < 0 {
			return best
		}
		t := s.attemptChoice(best.admittedGroups, lift)
		if t.value.compareValue(&best.value) < 0 {
			best = t
		}
	}
	return best
}
