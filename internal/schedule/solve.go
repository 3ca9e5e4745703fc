package schedule

import (
	"cmp"
	"slices"
)

// candidateOption is a cluster that may be chosen.
type candidateOption struct {
	// priority: 0 for a newcomer, more for a cluster that runs the Bundle. Options of
	// prioLocked are always chosen.
	priority     int8
	class        int32 // of the options that are in the same groups; set by newSolver
	clusterIndex int32 // where the caller has it
	// verdictIndex is the caller's index of the verdict on a cluster that runs the Bundle,
	// or noVerdict.
	verdictIndex int32
	// The penalties of a newcomer: of one that is disconnected, and of one where pods do not fit now. A penalty is of a
	// small type because there are 10,000 options.
	penalty, fitPenalty int32
	score               int64 // less the penalties
	rank                uint64
}

// The priorities of clusters that run the Bundle, where the user edited how clusters are
// chosen so that not all of them can stay.
const (
	prioNew              int8 = 0
	prioLeaving          int8 = 1 // on its way out already
	prioUnfit            int8 = 2 // does not fit any more
	prioRunning          int8 = 4
	prioLocked           int8 = 8 // chosen under the same constraints: stays
	noGroup                   = int32(-1)
	noClass                   = int32(-1)
	noVerdict                 = int32(-1)
	unlimited                 = int(^uint(0) >> 1)
	searchSteps               = 3_000
	maxExhaustiveOptions      = 10
)

// spreadRule is a spread constraint over numbered groups.
type spreadRule struct {
	min, max, skew int // 0: no bound
	isSoft         bool
	groups         int
	// groupOf each option: its group, noGroup, or the number of a set of groups.
	groupOf []int32
	// sets of groups that some options are in; firstSet is the number of the first.
	sets [][]int32
}

// choiceProblem is which options to choose. A choice is better, in this order, the fewer
// groups are missing to the minimum of hard rules, the fewer rows move, the more clusters it
// has, the better it keeps soft rules, and the higher its scores are.
//
// With one rule, and options in one group each, the result is the best. Otherwise choosing groups is as hard as
// covering sets: up to maxExhaustiveOptions options all choices are tried. With more,
// options are added greedily, and the groups that a maximum admits are improved by exchanges
// within searchSteps. This is O((n + F·q)·r·log n) for each of at most searchSteps/q
// attempts, with n options, r rules, q classes of options that are in the same groups, and F
// ≤ n/groups rises of a skew's floor.
type choiceProblem struct {
	options   []candidateOption
	rules     []spreadRule
	maxChosen int // clusters, unlimited where there is no bound
}

// choiceSolver works on one problem.
type choiceSolver struct {
	*choiceProblem
	// optionsByClass are the options that are not locked, by class, best first.
	optionsByClass [][]int32
	groupsByClass  [][]int32 // the numbers of groups, or of sets of groups, of a class, by rule
	// inGroup lists, by rule and group, the classes that are in it.
	inGroup [][][]int32
	locked  []int32
	// hasRunning: some options that are not locked run the Bundle.
	hasRunning bool
	openGroups [][]bool // by rule and group: some class or locked option is in it
	stepsLeft  int
}

// compareOption puts the better option first.
func (o *candidateOption) compareOption(p *candidateOption) int {
	switch {
	case o.priority != p.priority:
		return int(p.priority) - int(o.priority)
	case o.score != p.score:
		return cmp.Compare(p.score, o.score)
	case o.rank != p.rank:
		return cmp.Compare(o.rank, p.rank)
	}
	return cmp.Compare(o.clusterIndex, p.clusterIndex)
}

// chooseOptions returns the numbers of the options to choose, and how many groups each hard
// rule lacks; nil where none lacks any.
func (p *choiceProblem) chooseOptions() (chosen []int32, short []int) {
	if len(p.rules) == 0 {
		return p.chooseBestScores(), nil
	}
	s := newSolver(p)
	if (len(p.rules) > 1 || p.hasSets()) && s.canSearchExhaustively() {
		return s.searchExhaustively()
	}
	return s.searchGreedily()
}

// canSearchExhaustively reports whether all choices can be tried.
func (s *choiceSolver) canSearchExhaustively() bool {
	return len(s.options)-len(s.locked) <= maxExhaustiveOptions
}

// searchGreedily solves problems that are too large for searchExhaustively.
func (s *choiceSolver) searchGreedily() (chosen []int32, short []int) {
	best := s.attemptChoice(s.admitBestGroups(), 0)
	s.stepsLeft /= max(1, len(s.optionsByClass)+min(s.maxChosen, len(s.options)))
	best = s.tryHigherFloors(best)
	if s.canGroupExchangeImprove() {
		best = s.tryHigherFloors(s.exchangeGroups(best))
	}
	return best.chosen, s.countMissingGroups(best.counts)
}

// chooseBestScores chooses where only the number of options is bounded.
func (p *choiceProblem) chooseBestScores() []int32 {
	order := sequentialIndexes(len(p.options))
	if p.maxChosen >= len(order) {
		return order
	}
	locked := 0
	for i := range p.options {
		if p.options[i].priority == prioLocked {
			locked++
		}
	}
	// The worst of the chosen ones is on top.
	worse := func(a, b int32) bool { return p.options[a].compareOption(&p.options[b]) > 0 }
	top := numberHeap{numbers: order[:max(p.maxChosen, locked)], isBefore: worse}
	top.replaceWithEarlier(order[len(top.numbers):])
	return top.numbers
}

func newSolver(p *choiceProblem) *choiceSolver {
	s := &choiceSolver{choiceProblem: p, openGroups: make([][]bool, len(p.rules)), stepsLeft: searchSteps}
	s.classifyOptions()
	s.inGroup = make([][][]int32, len(p.rules))
	var one [1]int32
	for i := range p.rules {
		r := &p.rules[i]
		s.openGroups[i] = make([]bool, r.groups)
		for _, numbers := range s.groupsByClass {
			for _, g := range r.listGroups(numbers[i], &one) {
				s.openGroups[i][g] = true
			}
		}
		s.inGroup[i] = s.listClassesByGroup(i)
	}
	return s
}

// listClassesByGroup lists the classes that are in each group of a rule.
func (s *choiceSolver) listClassesByGroup(rule int) [][]int32 {
	r, total := &s.rules[rule], 0
	out, sizes := make([][]int32, r.groups), make([]int32, r.groups)
	var one [1]int32
	for _, numbers := range s.groupsByClass {
		for _, g := range r.listGroups(numbers[rule], &one) {
			sizes[g]++
			total++
		}
	}
	space := make([]int32, total)
	for g, size := range sizes {
		out[g], space = space[:0:size], space[size:]
	}
	for c, numbers := range s.groupsByClass {
		for _, g := range r.listGroups(numbers[rule], &one) {
			out[g] = append(out[g], int32(c))
		}
	}
	return out
}

// classifyOptions sorts the options into classes by the groups that they are in.
func (s *choiceSolver) classifyOptions() {
	n := len(s.options)
	class := make([]int32, n)
	classes := int32(1)
	for i := range s.rules {
		classes = s.refineClasses(class, classes, i)
	}
	sizes := make([]int32, classes)
	s.groupsByClass = make([][]int32, classes)
	in := make([]int32, int(classes)*len(s.rules))
	for at := range s.options {
		o := &s.options[at]
		o.class = class[at]
		if s.groupsByClass[o.class] == nil {
			s.groupsByClass[o.class], in = in[:len(s.rules):len(s.rules)], in[len(s.rules):]
			for i := range s.rules {
				s.groupsByClass[o.class][i] = s.rules[i].groupOf[at]
			}
		}
		s.hasRunning = s.hasRunning || o.priority != prioLocked && o.priority != prioNew
		if o.priority == prioLocked {
			s.locked = append(s.locked, int32(at))
		} else {
			sizes[o.class]++
		}
	}
	s.optionsByClass = make([][]int32, classes)
	space := make([]int32, n-len(s.locked))
	for c, size := range sizes {
		s.optionsByClass[c], space = space[:0:size], space[size:]
	}
	for at := range s.options {
		if o := &s.options[at]; o.priority != prioLocked {
			s.optionsByClass[o.class] = append(s.optionsByClass[o.class], int32(at))
		}
	}
	s.sortOptionsInClasses()
}

// sortOptionsInClasses puts the options of each class in the order in which they are chosen.
func (s *choiceSolver) sortOptionsInClasses() {
	isOrdered := s.needsOrderInClasses()
	for c, list := range s.optionsByClass {
		if isOrdered {
			s.optionsByClass[c] = s.sortAndKeepBest(list)
		} else {
			s.putBestFirst(list)
		}
	}
}

// needsOrderInClasses reports whether a choice can take some options of a class and leave others. If not, only
// the best one of each class matters, by which its groups are compared.
func (s *choiceSolver) needsOrderInClasses() bool {
	return s.maxChosen < unlimited || s.hasRunning || slices.ContainsFunc(s.rules, func(r spreadRule) bool { return r.skew > 0 })
}

func (s *choiceSolver) putBestFirst(list []int32) {
	for i := range list {
		if s.options[list[i]].compareOption(&s.options[list[0]]) < 0 {
			list[0], list[i] = list[i], list[0]
		}
	}
}

// sortAndKeepBest returns the best options of a class, the best first: no choice has more than maxChosen. An
// exhaustive search gets all of them.
func (s *choiceSolver) sortAndKeepBest(list []int32) []int32 {
	if s.maxChosen < len(list) && !s.canSearchExhaustively() {
		selectFirst(list, s.maxChosen, func(a, b int32) bool { return s.options[a].compareOption(&s.options[b]) < 0 })
		list = list[:s.maxChosen]
	}
	slices.SortFunc(list, func(a, b int32) int { return s.options[a].compareOption(&s.options[b]) })
	return list
}

// maxTableCells is how many combinations of classes and groups are looked up in a table.
const maxTableCells = 1 << 16

// refineClasses splits the classes of the options by their groups of a rule, and returns how
// many there are then. Classes are numbered in the order of the options.
func (s *choiceSolver) refineClasses(class []int32, classes int32, rule int) int32 {
	r, n := &s.rules[rule], int32(0)
	lowest := int64(noGroup) - int64(len(r.sets))
	width := int64(r.groups) - lowest
	if cells := int64(classes) * width; cells <= maxTableCells {
		known := make([]int32, cells) // by class and group, and one more than the number
		for at := range class {
			cell := &known[int64(class[at])*width+int64(r.groupOf[at])-lowest]
			if *cell == 0 {
				n++
				*cell = n
			}
			class[at] = *cell - 1
		}
		return n
	}
	known := make(map[int64]int32, r.groups+1)
	for at := range class {
		key := int64(class[at])<<32 | int64(uint32(r.groupOf[at]))
		id, ok := known[key]
		if !ok {
			id, n = n, n+1
			known[key] = id
		}
		class[at] = id
	}
	return n
}

// choiceValue of a choice; the fields in the order in which they count, less is better.
type choiceValue struct {
	missingHardGroups, movedRows, missingClusters, softViolations, lostScore int64
	// tie among equals, so that they fall differently in every Bundle.
	tie uint64
}

func (v *choiceValue) compareValue(o *choiceValue) int {
	return cmp.Or(cmp.Compare(v.missingHardGroups, o.missingHardGroups), cmp.Compare(v.movedRows, o.movedRows), cmp.Compare(v.missingClusters, o.missingClusters),
		cmp.Compare(v.softViolations, o.softViolations), cmp.Compare(v.lostScore, o.lostScore), cmp.Compare(v.tie, o.tie))
}

// choiceAttempt is one attempt at a choice.
type choiceAttempt struct {
	chosen         []int32
	counts         [][]int32
	admittedGroups [][]bool
	raisedFloor    int32
	value          choiceValue
}

// judgeAttempt sets the value of the attempt.
func (s *choiceSolver) judgeAttempt(t *choiceAttempt) {
	v := choiceValue{missingClusters: -int64(len(t.chosen))}
	for _, at := range t.chosen {
		o := &s.options[at]
		v.movedRows -= int64(o.priority)
		v.lostScore -= o.score
		v.tie += mixHash(o.rank)
	}
	for i := range s.rules {
		r := &s.rules[i]
		missing := int64(max(0, r.min-countUsed(t.counts[i])))
		if !r.isSoft {
			v.missingHardGroups += missing
			continue
		}
		v.softViolations += missing
		if r.skew > 0 {
			floor := s.skewFloor(i, t.counts)
			for _, n := range t.counts[i] {
				v.softViolations += max(0, int64(n)-floor-int64(r.skew))
			}
		}
	}
	t.value = v
}

func (s *choiceSolver) countMissingGroups(counts [][]int32) (out []int) {
	for i := range s.rules {
		if r := &s.rules[i]; !r.isSoft && countUsed(counts[i]) < r.min {
			if out == nil {
				out = make([]int, len(s.rules))
			}
			out[i] = r.min - countUsed(counts[i])
		}
	}
	return out
}

func countUsed(counts []int32) (n int) {
	for _, c := range counts {
		if c > 0 {
			n++
		}
	}
	return n
}

// rulesAtMaximum returns, by rule, whether its maximum is reached, so that only used groups get
// more.
func (s *choiceSolver) rulesAtMaximum(counts [][]int32) []bool {
	out := make([]bool, len(s.rules))
	for i := range s.rules {
		out[i] = s.rules[i].max > 0 && countUsed(counts[i]) >= s.rules[i].max
	}
	return out
}

// groupsCoveredBySkew returns the groups of the rule that its skew covers: the used ones, and
// those of which an option can still be chosen without breaking a maximum.
func (s *choiceSolver) groupsCoveredBySkew(i int, counts [][]int32, closed []bool) []bool {
	out := make([]bool, s.rules[i].groups)
	for g, n := range counts[i] {
		out[g] = n > 0
	}
	var one [1]int32
	for _, numbers := range s.groupsByClass {
		groups := s.rules[i].listGroups(numbers[i], &one)
		if !slices.ContainsFunc(groups, func(g int32) bool { return !out[g] }) || !s.isReachable(numbers, counts, closed) {
			continue
		}
		for _, g := range groups {
			out[g] = true
		}
	}
	return out
}

// isReachable reports whether no maximum keeps a cluster of these groups out.
func (s *choiceSolver) isReachable(numbers []int32, counts [][]int32, closed []bool) bool {
	var one [1]int32
	for j, number := range numbers {
		if r := &s.rules[j]; r.exceedsMaximum(r.listGroups(number, &one), counts[j], closed[j]) {
			return false
		}
	}
	return true
}

// skewFloor returns the floor of a rule: the smallest number of clusters in a group that counts.
func (s *choiceSolver) skewFloor(i int, counts [][]int32) int64 {
	least, any := int64(0), false
	for g, is := range s.groupsCoveredBySkew(i, counts, s.rulesAtMaximum(counts)) {
		if n := int64(counts[i][g]); is && (!any || n < least) {
			least, any = n, true
		}
	}
	return least
}
