package schedule

import (
	"math/bits"
	"slices"
)

// greedyFiller adds options one by one, never breaking a maximum or a hard skew.
type greedyFiller struct {
	*choiceSolver
	choiceAttempt
	nextOption []int32 // of each class: the first that is not chosen
	remaining  int     // clusters that may still be chosen
	fullRules  []bool
	// tallies of the rules whose skew counts now: hard ones always, soft ones with
	// enforceSoftSkew.
	tallies         []*skewTally
	softSlack       int // how much more than their skew soft rules allow
	enforceSoftSkew bool
	// Memory that fillBest uses again: the classes that have more, the best on top, and
	// those that may not be added now.
	classHeap      numberHeap
	blockedClasses []int32
}

// skewTally keeps the floor of one rule while clusters are added.
type skewTally struct {
	counted      []bool
	groupsBySize []int32 // how many groups that count have so many clusters
	floor        int
}

// attemptChoice attempts a choice in which each rule opens only the admitted groups; nil:
// any. Groups of a rule with a skew get so many clusters first, before the best are added.
func (s *choiceSolver) attemptChoice(admit [][]bool, lift int32) choiceAttempt {
	f := &greedyFiller{choiceSolver: s, choiceAttempt: choiceAttempt{admittedGroups: admit, raisedFloor: lift, counts: make([][]int32, len(s.rules))}, nextOption: make([]int32, len(s.optionsByClass))}
	for i := range s.rules {
		f.counts[i] = make([]int32, s.rules[i].groups)
	}
	f.classHeap = numberHeap{numbers: make([]int32, 0, len(s.optionsByClass)), isBefore: func(a, b int32) bool {
		return f.firstUnchosenOption(int(a)).compareOption(f.firstUnchosenOption(int(b))) < 0
	}}
	f.chosen = make([]int32, 0, min(s.maxChosen, len(s.options)))
	for _, at := range s.locked {
		f.addChosenOption(at)
	}
	f.remaining = max(0, s.maxChosen-len(s.locked))
	f.fullRules = s.rulesAtMaximum(f.counts)
	f.tallies = make([]*skewTally, len(s.rules))
	f.recountSkewTallies()
	f.coverMinimums(false)
	f.fillGroupsToFloor()
	if f.hasRunning {
		f.fillBest(prioLeaving)
	}
	f.coverMinimums(true)
	f.fillEvenly(prioNew)
	f.fillBest(prioNew)
	s.judgeAttempt(&f.choiceAttempt)
	return f.choiceAttempt
}

// fillEvenly fills as evenly as soft rules require, and then as close to that as possible.
func (f *greedyFiller) fillEvenly(least int8) {
	if !slices.ContainsFunc(f.rules, func(r spreadRule) bool { return r.isSoft && r.skew > 0 }) {
		return
	}
	f.enforceSoftSkew = true
	defer func() { f.enforceSoftSkew = false }()
	for f.recountSkewTallies(); f.remaining > 0; f.softSlack++ {
		before := f.remaining
		f.fillBest(least)
		if f.remaining == before && !f.isBlockedBySoftSkew() {
			return
		}
	}
}

// isBlockedBySoftSkew reports whether a soft skew alone keeps something out.
func (f *greedyFiller) isBlockedBySoftSkew() bool {
	f.enforceSoftSkew = false
	defer func() { f.enforceSoftSkew = true }()
	for c, list := range f.optionsByClass {
		if int(f.nextOption[c]) < len(list) && f.canAdd(c) {
			return true
		}
	}
	return false
}

func (f *greedyFiller) addChosenOption(at int32) {
	f.chosen = append(f.chosen, at)
	var one [1]int32
	for i := range f.rules {
		r := &f.rules[i]
		for _, g := range r.listGroups(r.groupOf[at], &one) {
			f.counts[i][g]++
		}
	}
}

// recountSkewTallies counts the floors from scratch.
func (f *greedyFiller) recountSkewTallies() {
	for i := range f.rules {
		r := &f.rules[i]
		if f.tallies[i] = nil; r.skew == 0 || r.isSoft && !f.enforceSoftSkew {
			continue
		}
		t := &skewTally{counted: f.groupsCoveredBySkew(i, f.counts, f.fullRules)}
		for g, is := range t.counted {
			if is {
				t.extendSizes(int(f.counts[i][g]))
				t.groupsBySize[f.counts[i][g]]++
			}
		}
		t.raiseFloor()
		f.tallies[i] = t
	}
}

func (t *skewTally) extendSizes(n int) {
	for len(t.groupsBySize) <= n {
		t.groupsBySize = append(t.groupsBySize, 0)
	}
}

// raiseFloor moves the floor up to the smallest group, and reports whether it moved.
func (t *skewTally) raiseFloor() bool {
	was := t.floor
	for t.floor < len(t.groupsBySize)-1 && t.groupsBySize[t.floor] == 0 {
		t.floor++
	}
	return t.floor > was
}

// canAdd reports whether an option of the class may be added now.
func (f *greedyFiller) canAdd(class int) bool {
	var one [1]int32
	for i, number := range f.groupsByClass[class] {
		r := &f.rules[i]
		groups := r.listGroups(number, &one)
		if r.exceedsMaximum(groups, f.counts[i], f.fullRules[i]) || f.opensUnadmitted(i, groups) {
			return false
		}
		if f.tallies[i] != nil && f.breaksSkew(i, groups) {
			return false
		}
	}
	return true
}

// opensUnadmitted reports whether one more in these groups opens a group that is not admitted.
func (f *greedyFiller) opensUnadmitted(rule int, groups []int32) bool {
	if f.admittedGroups == nil || f.admittedGroups[rule] == nil {
		return false
	}
	for _, g := range groups {
		if f.counts[rule][g] == 0 && !f.admittedGroups[rule][g] {
			return true
		}
	}
	return false
}

// breaksSkew reports whether one more in these groups breaks the skew of the rule.
func (f *greedyFiller) breaksSkew(rule int, groups []int32) bool {
	r := &f.rules[rule]
	limit := f.floorWith(rule, groups) + r.skew
	if r.isSoft {
		if !f.enforceSoftSkew {
			return false
		}
		limit += f.softSlack
	}
	for _, g := range groups {
		if int(f.counts[rule][g]) >= limit {
			return true
		}
	}
	return false
}

// floorWith returns the floor of a rule's skew after one more in these groups. A single group never raises its own limit.
func (f *greedyFiller) floorWith(rule int, groups []int32) int {
	t := f.tallies[rule]
	if len(groups) < 2 {
		return t.floor
	}
	raised := int32(0)
	for _, g := range groups {
		if t.counted[g] && int(f.counts[rule][g]) == t.floor {
			raised++
		}
	}
	if raised > 0 && raised == t.groupsBySize[t.floor] {
		return t.floor + 1
	}
	return t.floor
}

// addBestOption adds the best option of the class. rose: other options may be addable now that
// were not.
func (f *greedyFiller) addBestOption(class int) (rose bool) {
	at := f.optionsByClass[class][f.nextOption[class]]
	f.nextOption[class]++
	f.remaining--
	f.chosen = append(f.chosen, at)
	closes := false
	var one [1]int32
	for i, number := range f.groupsByClass[class] {
		r := &f.rules[i]
		for _, g := range r.listGroups(number, &one) {
			f.counts[i][g]++
			n := int(f.counts[i][g])
			if t := f.tallies[i]; t != nil && t.counted[g] {
				t.extendSizes(n)
				t.groupsBySize[n-1]--
				t.groupsBySize[n]++
				rose = t.raiseFloor() || rose || len(r.sets) > 0 // a set may raise it where fewer groups are at the floor
			}
			closes = closes || n == 1 && r.max > 0
		}
	}
	if closes {
		if now := f.choiceSolver.rulesAtMaximum(f.counts); !slices.Equal(now, f.fullRules) {
			f.fullRules = now
			f.recountSkewTallies()
			rose = true
		}
	}
	return rose
}

// coverMinimums opens groups until the minimum of all rules, hard or soft, is met.
func (f *greedyFiller) coverMinimums(soft bool) {
	lacking := make([]int, len(f.rules))
	for f.remaining > 0 {
		isLacking := false
		for i := range f.rules {
			r := &f.rules[i]
			if lacking[i] = 0; r.isSoft == soft {
				lacking[i] = max(0, r.min-countUsed(f.counts[i]))
			}
			isLacking = isLacking || lacking[i] > 0
		}
		if !isLacking {
			return
		}
		class := f.bestToCover(lacking)
		if class < 0 {
			return
		}
		f.addBestOption(class)
	}
}

// bestToCover returns the class that opens most of the groups that the rules lack, the best of
// several; negative: none can be added.
func (f *greedyFiller) bestToCover(lacking []int) int {
	best, most := -1, 0
	for c := range f.optionsByClass {
		if !f.hasNext(c) {
			continue
		}
		gain := f.countLackingGroups(c, lacking)
		if gain == 0 || gain < most || !f.canAdd(c) {
			continue
		}
		if gain > most || f.firstUnchosenOption(c).compareOption(f.firstUnchosenOption(best)) < 0 {
			best, most = c, gain
		}
	}
	return best
}

// countLackingGroups counts the groups that an option of the class opens, as far as the rules lack them.
func (f *greedyFiller) countLackingGroups(class int, lacking []int) (gain int) {
	var one [1]int32
	for i, number := range f.groupsByClass[class] {
		opened := 0
		for _, g := range f.rules[i].listGroups(number, &one) {
			if f.counts[i][g] == 0 {
				opened++
			}
		}
		gain += min(opened, lacking[i])
	}
	return gain
}

// hasNext reports whether the class has an option that is not chosen yet.
func (f *greedyFiller) hasNext(class int) bool {
	return int(f.nextOption[class]) < len(f.optionsByClass[class])
}

// fillGroupsToFloor fills the groups of each rule with a skew up to raisedFloor.
func (f *greedyFiller) fillGroupsToFloor() {
	for i := range f.rules {
		if f.rules[i].skew == 0 {
			continue
		}
		for n := int32(0); n < f.raisedFloor; n++ {
			for g := int32(0); int(g) < f.rules[i].groups && f.remaining > 0; g++ {
				if f.counts[i][g] != n {
					continue
				}
				if best := f.findBestClassInGroup(i, g); best >= 0 {
					f.addBestOption(best)
				}
			}
		}
	}
}

// findBestClassInGroup returns the class of a group whose next option is the best that can be added;
// negative: there is none.
func (f *greedyFiller) findBestClassInGroup(rule int, group int32) int {
	best := -1
	for _, class := range f.inGroup[rule][group] {
		c := int(class)
		if f.hasNext(c) && f.canAdd(c) && (best < 0 || f.firstUnchosenOption(c).compareOption(f.firstUnchosenOption(best)) < 0) {
			best = c
		}
	}
	return best
}

func (f *greedyFiller) firstUnchosenOption(class int) *candidateOption {
	return &f.options[f.optionsByClass[class][f.nextOption[class]]]
}

// fillBest adds the best options that may be added, down to a priority.
func (f *greedyFiller) fillBest(least int8) {
	if f.hasNoSkew() && least == prioNew && f.remaining >= len(f.options) {
		f.fillRemaining()
		return
	}
	f.rebuildHeap()
	h := &f.classHeap
	parked := f.blockedClasses[:0]
	for f.remaining > 0 && len(h.numbers) > 0 {
		c := h.numbers[0]
		if f.firstUnchosenOption(int(c)).priority < least {
			break
		}
		if !f.canAdd(int(c)) {
			parked = append(parked, h.pop())
			continue
		}
		rose := f.addBestOption(int(c))
		if f.hasNext(int(c)) {
			h.siftDown(0)
		} else {
			h.pop()
		}
		if rose {
			for _, p := range parked {
				h.push(p)
			}
			parked = parked[:0]
		}
	}
	f.blockedClasses = parked[:0]
}

// rebuildHeap puts the classes that have more into the heap, the best on top.
func (f *greedyFiller) rebuildHeap() {
	f.classHeap.numbers = f.classHeap.numbers[:0]
	for c := range f.optionsByClass {
		if f.hasNext(c) {
			f.classHeap.numbers = append(f.classHeap.numbers, int32(c))
		}
	}
	f.classHeap.buildHeap()
}

// hasNoSkew reports whether no skew counts, so that adding one option never keeps another
// one out, except for groups that it opens.
func (f *greedyFiller) hasNoSkew() bool {
	return !slices.ContainsFunc(f.tallies, func(t *skewTally) bool { return t != nil })
}

// fillRemaining adds all admitted options, where neither the number of clusters nor a
// maximum stops that.
func (f *greedyFiller) fillRemaining() {
	for c, list := range f.optionsByClass {
		for int(f.nextOption[c]) < len(list) && f.canAdd(c) {
			f.addBestOption(c)
		}
	}
}

// searchExhaustively tries every choice of a few options.
func (s *choiceSolver) searchExhaustively() (chosen []int32, short []int) {
	var free []int32
	for _, list := range s.optionsByClass {
		free = append(free, list...)
	}
	var best choiceAttempt
	for set := uint(0); set < 1<<len(free); set++ {
		if n := bits.OnesCount(set); n > max(0, s.maxChosen-len(s.locked)) {
			continue
		}
		t := choiceAttempt{chosen: slices.Clone(s.locked)}
		for i, at := range free {
			if set>>i&1 == 1 {
				t.chosen = append(t.chosen, at)
			}
		}
		if t.counts = s.countGroups(t.chosen); !s.satisfiesHardRules(t.counts) {
			continue
		}
		s.judgeAttempt(&t)
		if best.counts == nil || t.value.compareValue(&best.value) < 0 {
			best = t
		}
	}
	return best.chosen, s.countMissingGroups(best.counts)
}

func (s *choiceSolver) countGroups(chosen []int32) [][]int32 {
	counts := make([][]int32, len(s.rules))
	var one [1]int32
	for i := range s.rules {
		r := &s.rules[i]
		counts[i] = make([]int32, r.groups)
		for _, at := range chosen {
			for _, g := range r.listGroups(r.groupOf[at], &one) {
				counts[i][g]++
			}
		}
	}
	return counts
}

// satisfiesHardRules reports whether a choice breaks no maximum and no hard skew, except where
// locked options break them by themselves.
func (s *choiceSolver) satisfiesHardRules(counts [][]int32) bool {
	before := s.countGroups(s.locked)
	for i := range s.rules {
		r := &s.rules[i]
		if r.max > 0 && countUsed(counts[i]) > max(r.max, countUsed(before[i])) {
			return false
		}
		if r.skew == 0 || r.isSoft {
			continue
		}
		limit := s.skewFloor(i, counts) + int64(r.skew)
		for g, n := range counts[i] {
			if n > before[i][g] && int64(n) > limit {
				return false
			}
		}
	}
	return true
}
