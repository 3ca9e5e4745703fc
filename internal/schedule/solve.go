package schedule

import (
	"cmp"
	"slices"
)

// option is a cluster that may be chosen.
type option struct {
	// prio: 0 for a newcomer, more for a cluster that runs the Bundle. Those of
	// prioLocked are chosen in any case.
	prio  int8
	class int32 // of the options that are in the same groups; set by newSolver
	at    int32 // where the caller has it
	// verdict of a cluster that runs the Bundle: where the caller has it, or noVerdict.
	verdict int32
	score   int64
	rank    uint64
}

// The claims of clusters that run the Bundle, where the user edited how clusters are
// chosen so that not all of them can stay.
const (
	prioNew     int8 = 0
	prioGoing   int8 = 1 // on its way out already
	prioUnfit   int8 = 2 // does not fit any more
	prioRuns    int8 = 4
	prioLocked  int8 = 8 // chosen under the same constraints: stays
	noGroup          = int32(-1)
	noClass          = int32(-1)
	noVerdict        = int32(-1)
	unlimited        = int(^uint(0) >> 1)
	searchSteps      = 3_000
	smallFree        = 10
)

// rule is a spread constraint over groups that are numbered.
type rule struct {
	min, max, skew int // 0: no bound
	soft           bool
	groups         int
	// of each option: its group, or noGroup.
	of []int32
}

// problem is which options to choose. A choice is better, in this order, the fewer
// groups are missing to the minimum of hard rules, the more it leaves what runs where
// it is, the more clusters it has, the better it keeps to soft rules, and the higher
// its scores are.
//
// With one rule, what solve finds is the best. With several, choosing groups is as
// hard as covering sets: up to smallFree options all choices are looked at; with more,
// options are added greedily, and the groups that a maximum admits are improved by
// exchanges within searchSteps. That is O((n + F·q)·r·log n) for each of at most
// searchSteps/q attempts, with n options, r rules, q classes of options that are in
// the same groups, and F ≤ n/groups rises of a skew's floor.
type problem struct {
	options []option
	rules   []rule
	most    int // clusters, unlimited where there is no bound
}

// solver works on one problem.
type solver struct {
	*problem
	// lists of the options that are not locked, by class, best first.
	lists  [][]int32
	groups [][]int32 // of a class, by rule
	// inGroup lists, by rule and group, the classes that are in it.
	inGroup [][][]int32
	locked  []int32
	// claimed: some that are not locked run the Bundle.
	claimed bool
	open    [][]bool // by rule and group: some class or locked option is in it
	steps   int
}

// compare puts the better option first.
func (o *option) compare(p *option) int {
	switch {
	case o.prio != p.prio:
		return int(p.prio) - int(o.prio)
	case o.score != p.score:
		return cmp.Compare(p.score, o.score)
	case o.rank != p.rank:
		return cmp.Compare(o.rank, p.rank)
	}
	return cmp.Compare(o.at, p.at)
}

// solve gives the numbers of the options to choose, and how many groups each hard rule
// misses; nil where none misses any.
func (p *problem) solve() (chosen []int32, short []int) {
	if len(p.rules) == 0 {
		return p.best(), nil
	}
	s := newSolver(p)
	if len(p.rules) > 1 && len(p.options)-len(s.locked) <= smallFree {
		return s.all()
	}
	return s.search()
}

// search as solve does where there is more than all can look at.
func (s *solver) search() (chosen []int32, short []int) {
	best := s.attempt(s.firstGroups(), 0)
	s.steps /= max(1, len(s.lists)+min(s.most, len(s.options)))
	best = s.lifted(best)
	if s.mayImprove() {
		best = s.lifted(s.exchange(best))
	}
	return best.chosen, s.short(best.counts)
}

// best options where only their number is bounded.
func (p *problem) best() []int32 {
	order := make([]int32, len(p.options))
	for i := range order {
		order[i] = int32(i)
	}
	if p.most >= len(order) {
		return order
	}
	locked := 0
	for i := range p.options {
		if p.options[i].prio == prioLocked {
			locked++
		}
	}
	// The worst of those that are in is on top.
	worse := func(a, b int32) bool { return p.options[a].compare(&p.options[b]) > 0 }
	top := pile{at: order[:max(p.most, locked)], before: worse}
	top.init()
	for _, at := range order[len(top.at):] {
		if len(top.at) > 0 && worse(top.at[0], at) {
			top.at[0] = at
			top.down(0)
		}
	}
	return top.at
}

// pile is a heap of numbers, the first on top.
type pile struct {
	at     []int32
	before func(a, b int32) bool
}

func (h *pile) init() {
	for i := len(h.at)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h *pile) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.at) {
			return
		}
		if r := child + 1; r < len(h.at) && h.before(h.at[r], h.at[child]) {
			child = r
		}
		if !h.before(h.at[child], h.at[i]) {
			return
		}
		h.at[i], h.at[child] = h.at[child], h.at[i]
		i = child
	}
}

func (h *pile) push(x int32) {
	h.at = append(h.at, x)
	for i := len(h.at) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.before(h.at[i], h.at[parent]) {
			return
		}
		h.at[i], h.at[parent] = h.at[parent], h.at[i]
		i = parent
	}
}

func (h *pile) pop() int32 {
	x, last := h.at[0], len(h.at)-1
	h.at[0] = h.at[last]
	h.at = h.at[:last]
	h.down(0)
	return x
}

func newSolver(p *problem) *solver {
	s := &solver{problem: p, open: make([][]bool, len(p.rules)), steps: searchSteps}
	s.classify()
	s.inGroup = make([][][]int32, len(p.rules))
	for i, r := range p.rules {
		s.open[i] = make([]bool, r.groups)
		for _, groups := range s.groups {
			if g := groups[i]; g != noGroup {
				s.open[i][g] = true
			}
		}
		s.inGroup[i] = s.byGroup(i)
	}
	return s
}

// byGroup lists the classes that are in each group of a rule.
func (s *solver) byGroup(rule int) [][]int32 {
	out, sizes, room := make([][]int32, s.rules[rule].groups), make([]int32, s.rules[rule].groups), make([]int32, len(s.groups))
	for _, groups := range s.groups {
		if g := groups[rule]; g != noGroup {
			sizes[g]++
		}
	}
	for g, size := range sizes {
		out[g], room = room[:0:size], room[size:]
	}
	for c, groups := range s.groups {
		if g := groups[rule]; g != noGroup {
			out[g] = append(out[g], int32(c))
		}
	}
	return out
}

// classify the options by the groups that they are in.
func (s *solver) classify() {
	n := len(s.options)
	class := make([]int32, n)
	classes := int32(1)
	for i := range s.rules {
		classes = s.refine(class, classes, i)
	}
	sizes := make([]int32, classes)
	s.groups = make([][]int32, classes)
	in := make([]int32, int(classes)*len(s.rules))
	for at := range s.options {
		o := &s.options[at]
		o.class = class[at]
		if s.groups[o.class] == nil {
			s.groups[o.class], in = in[:len(s.rules):len(s.rules)], in[len(s.rules):]
			for i := range s.rules {
				s.groups[o.class][i] = s.rules[i].of[at]
			}
		}
		s.claimed = s.claimed || o.prio != prioLocked && o.prio != prioNew
		if o.prio == prioLocked {
			s.locked = append(s.locked, int32(at))
		} else {
			sizes[o.class]++
		}
	}
	s.lists = make([][]int32, classes)
	room := make([]int32, n-len(s.locked))
	for c, size := range sizes {
		s.lists[c], room = room[:0:size], room[size:]
	}
	for at := range s.options {
		if o := &s.options[at]; o.prio != prioLocked {
			s.lists[o.class] = append(s.lists[o.class], int32(at))
		}
	}
	for _, list := range s.lists {
		slices.SortFunc(list, func(a, b int32) int { return s.options[a].compare(&s.options[b]) })
	}
}

// mostTable is how many combinations of classes and groups are looked up in a table.
const mostTable = 1 << 16

// refine the classes of the options by their groups of a rule, and tell how many there
// are then. Classes are numbered as they are met.
func (s *solver) refine(class []int32, classes int32, rule int) int32 {
	r, n := &s.rules[rule], int32(0)
	width := int64(r.groups) + 1
	if cells := int64(classes) * width; cells <= mostTable {
		known := make([]int32, cells) // by class and group, and one more than the number
		for at := range class {
			cell := &known[int64(class[at])*width+int64(r.of[at])+1]
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
		key := int64(class[at])<<32 | int64(uint32(r.of[at]))
		id, ok := known[key]
		if !ok {
			id, n = n, n+1
			known[key] = id
		}
		class[at] = id
	}
	return n
}

// value of a choice; the fields in the order in which they count, less is better.
type value struct {
	short, moved, missing, uneven, poor int64
	// tie among equals, so that they fall differently in every Bundle.
	tie uint64
}

func (v *value) compare(o *value) int {
	return cmp.Or(cmp.Compare(v.short, o.short), cmp.Compare(v.moved, o.moved), cmp.Compare(v.missing, o.missing),
		cmp.Compare(v.uneven, o.uneven), cmp.Compare(v.poor, o.poor), cmp.Compare(v.tie, o.tie))
}

// try is one attempt at a choice.
type try struct {
	chosen []int32
	counts [][]int32
	admit  [][]bool
	lift   int32
	value  value
}

// judge the choice.
func (s *solver) judge(t *try) {
	v := value{missing: -int64(len(t.chosen))}
	for _, at := range t.chosen {
		o := &s.options[at]
		v.moved -= int64(o.prio)
		v.poor -= o.score
		v.tie += mix(o.rank)
	}
	for i := range s.rules {
		r := &s.rules[i]
		missing := int64(max(0, r.min-used(t.counts[i])))
		if !r.soft {
			v.short += missing
			continue
		}
		v.uneven += missing
		if r.skew > 0 {
			floor := s.floor(i, t.counts)
			for _, n := range t.counts[i] {
				v.uneven += max(0, int64(n)-floor-int64(r.skew))
			}
		}
	}
	t.value = v
}

func (s *solver) short(counts [][]int32) (out []int) {
	for i := range s.rules {
		if r := &s.rules[i]; !r.soft && used(counts[i]) < r.min {
			if out == nil {
				out = make([]int, len(s.rules))
			}
			out[i] = r.min - used(counts[i])
		}
	}
	return out
}

func used(counts []int32) (n int) {
	for _, c := range counts {
		if c > 0 {
			n++
		}
	}
	return n
}

// closed tells, by rule, whether its maximum is reached, so that only groups that are
// in use get more.
func (s *solver) closed(counts [][]int32) []bool {
	out := make([]bool, len(s.rules))
	for i := range s.rules {
		out[i] = s.rules[i].max > 0 && used(counts[i]) >= s.rules[i].max
	}
	return out
}

// counted tells which groups of the rule a skew is about: those of which an option
// could still be chosen without breaking a maximum, and those in use.
func (s *solver) counted(i int, counts [][]int32, closed []bool) []bool {
	out := make([]bool, s.rules[i].groups)
	for g, n := range counts[i] {
		out[g] = n > 0
	}
	for _, groups := range s.groups {
		if g := groups[i]; g != noGroup && !out[g] && s.reachable(groups, counts, closed) {
			out[g] = true
		}
	}
	return out
}

// reachable: no maximum keeps a cluster of these groups out.
func (s *solver) reachable(groups []int32, counts [][]int32, closed []bool) bool {
	for j, g := range groups {
		if closed[j] && g != noGroup && counts[j][g] == 0 {
			return false
		}
	}
	return true
}

// floor of a rule: the least that a group that counts has.
func (s *solver) floor(i int, counts [][]int32) int64 {
	least, any := int64(0), false
	for g, is := range s.counted(i, counts, s.closed(counts)) {
		if n := int64(counts[i][g]); is && (!any || n < least) {
			least, any = n, true
		}
	}
	return least
}
