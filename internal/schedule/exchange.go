package schedule

import (
	"cmp"
	"slices"
)

// firstGroups admits, for each rule whose maximum is below the number of its groups,
// the groups that look best by themselves; nil for the others.
func (s *solver) firstGroups() [][]bool {
	var admit [][]bool
	for i := range s.rules {
		r := &s.rules[i]
		if r.max == 0 || r.groups <= r.max {
			continue
		}
		if admit == nil {
			admit = make([][]bool, len(s.rules))
		}
		admit[i] = s.bestGroups(i, admit)
	}
	return admit
}

// worth of a group by itself, more is better.
type worth struct {
	group               int32
	locked, prio, count int
	score               int64
	rank                uint64
}

func (w worth) compare(o worth) int {
	return cmp.Or(cmp.Compare(o.locked, w.locked), cmp.Compare(o.prio, w.prio), cmp.Compare(o.count, w.count),
		cmp.Compare(o.score, w.score), cmp.Compare(w.rank, o.rank), cmp.Compare(w.group, o.group))
}

// bestGroups of a rule: those of clusters that stay, and then by what they could
// contribute of the clusters that may be chosen.
func (s *solver) bestGroups(i int, admit [][]bool) []bool {
	r := &s.rules[i]
	all := make([]worth, r.groups)
	for g := range all {
		all[g] = worth{group: int32(g), rank: ^uint64(0)}
	}
	for _, at := range s.locked {
		if g := r.of[at]; g != noGroup {
			all[g].locked++
		}
	}
	for c, list := range s.lists {
		g := s.groups[c][i]
		if g == noGroup || !admitted(admit, s.groups[c]) {
			continue
		}
		w := &all[g]
		for _, at := range list {
			if w.count == s.most {
				break
			}
			o := &s.options[at]
			w.prio += int(o.prio)
			w.count++
			w.score += o.score
			w.rank = min(w.rank, o.rank)
		}
	}
	slices.SortFunc(all, worth.compare)
	out := make([]bool, r.groups)
	for n, w := range all {
		if n < r.max || w.locked > 0 {
			out[w.group] = true
		}
	}
	return out
}

func admitted(admit [][]bool, groups []int32) bool {
	for i, g := range groups {
		if admit != nil && admit[i] != nil && g != noGroup && !admit[i][g] {
			return false
		}
	}
	return true
}

// mayImprove tells whether other groups than those that look best by themselves could
// be better together.
func (s *solver) mayImprove() bool {
	stay := s.countAll(s.locked)
	if !slices.ContainsFunc(s.binding(), func(i int) bool { return used(stay[i]) < s.rules[i].max }) {
		return false // those that stay leave no choice of groups
	}
	// Without a bound on clusters the worth of groups adds up.
	free := s.most >= len(s.options) && s.rules[0].skew == 0
	return len(s.rules) > 1 || !free
}

// binding rules have more groups than their maximum.
func (s *solver) binding() (out []int) {
	for i := range s.rules {
		if r := &s.rules[i]; r.max > 0 && r.groups > r.max {
			out = append(out, i)
		}
	}
	return out
}

// exchange an admitted group for another while that improves the choice.
func (s *solver) exchange(best try) try {
	for improved := true; improved; {
		improved = false
		for i := range s.rules {
			if best.admit == nil || best.admit[i] == nil {
				continue
			}
			for out := range best.admit[i] {
				for in := range best.admit[i] {
					if !best.admit[i][out] || best.admit[i][in] || !s.open[i][in] {
						continue
					}
					if s.steps--; s.steps < 0 {
						return best
					}
					admit := slices.Clone(best.admit)
					admit[i] = slices.Clone(admit[i])
					admit[i][out], admit[i][in] = false, true
					if t := s.attempt(admit, best.lift); t.value.compare(&best.value) < 0 {
						best, improved = t, true
					}
				}
			}
		}
	}
	return best
}

// lifted looks whether a higher floor under a skew makes the choice better: it lets more
// of the good ones in, at the price of the poor ones that lift it.
func (s *solver) lifted(best try) try {
	const highest = 32
	if s.most-len(s.locked) <= 1 {
		return best // one more lets nothing in but itself
	}
	upTo := 0
	for _, r := range s.rules {
		if groups := r.groups; r.skew > 0 && groups > 0 && s.most < len(s.options) {
			if r.max > 0 {
				groups = min(groups, r.max)
			}
			upTo = max(upTo, min(highest, s.most/groups))
		}
	}
	for lift := int32(1); int(lift) <= upTo; lift++ {
		if s.steps--; s.steps < 0 {
			return best
		}
		t := s.attempt(best.admit, lift)
		if t.value.compare(&best.value) < 0 {
			best = t
		}
	}
	return best
}
