package schedule

import (
	"math/bits"
	"slices"
)

// filler adds options one by one, never breaking a maximum or a hard skew.
type filler struct {
	*solver
	try
	next   []int32 // of each class: the first that is not chosen
	left   int     // clusters that may still be chosen
	closed []bool
	// tallies of the rules whose skew counts now: with hard ones always, with soft ones
	// while evenly.
	tallies []*tally
	slack   int // how much more than their skew soft rules allow
	evenly  bool
	// Memory that fill uses again: the classes that have more, the best on top, and
	// those that may not be added now.
	pile   pile
	parked []int32
}

// tally keeps the floor of one rule while clusters are added.
type tally struct {
	counted []bool
	at      []int32 // how many groups that count have so many clusters
	floor   int
}

// attempt a choice, where of each rule only the admitted groups are opened; nil: any.
// Groups that a skew is about have so many first, before the best are added.
func (s *solver) attempt(admit [][]bool, lift int32) try {
	f := &filler{solver: s, try: try{admit: admit, lift: lift, counts: make([][]int32, len(s.rules))}, next: make([]int32, len(s.lists))}
	for i := range s.rules {
		f.counts[i] = make([]int32, s.rules[i].groups)
	}
	f.pile = pile{at: make([]int32, 0, len(s.lists)), before: func(a, b int32) bool { return f.head(int(a)).compare(f.head(int(b))) < 0 }}
	f.chosen = make([]int32, 0, min(s.most, len(s.options)))
	for _, at := range s.locked {
		f.count(at)
	}
	f.left = max(0, s.most-len(s.locked))
	f.closed = s.closed(f.counts)
	f.tallies = make([]*tally, len(s.rules))
	f.recount()
	f.cover(false)
	f.raise()
	if f.claimed {
		f.fill(prioGoing)
	}
	f.cover(true)
	f.even(prioNew)
	f.fill(prioNew)
	s.judge(&f.try)
	return f.try
}

// even fills as evenly as soft rules ask for, and then as near to that as it can.
func (f *filler) even(least int8) {
	if !slices.ContainsFunc(f.rules, func(r rule) bool { return r.soft && r.skew > 0 }) {
		return
	}
	f.evenly = true
	defer func() { f.evenly = false }()
	for f.recount(); f.left > 0; f.slack++ {
		before := f.left
		f.fill(least)
		if f.left == before && !f.uneven() {
			return
		}
	}
}

// uneven tells whether a soft skew alone keeps something out.
func (f *filler) uneven() bool {
	f.evenly = false
	defer func() { f.evenly = true }()
	for c, list := range f.lists {
		if int(f.next[c]) < len(list) && f.addable(c) {
			return true
		}
	}
	return false
}

func (f *filler) count(at int32) {
	f.chosen = append(f.chosen, at)
	for i := range f.rules {
		if g := f.rules[i].of[at]; g != noGroup {
			f.counts[i][g]++
		}
	}
}

// recount the floors from scratch.
func (f *filler) recount() {
	for i := range f.rules {
		r := &f.rules[i]
		if f.tallies[i] = nil; r.skew == 0 || r.soft && !f.evenly {
			continue
		}
		t := &tally{counted: f.counted(i, f.counts, f.closed)}
		for g, is := range t.counted {
			if is {
				t.grow(int(f.counts[i][g]))
				t.at[f.counts[i][g]]++
			}
		}
		t.rise()
		f.tallies[i] = t
	}
}

func (t *tally) grow(n int) {
	for len(t.at) <= n {
		t.at = append(t.at, 0)
	}
}

// rise moves the floor to where it is, and tells whether it moved.
func (t *tally) rise() bool {
	was := t.floor
	for t.floor < len(t.at)-1 && t.at[t.floor] == 0 {
		t.floor++
	}
	return t.floor > was
}

// addable tells whether an option of the class may be added now.
func (f *filler) addable(class int) bool {
	for i, g := range f.groups[class] {
		if g == noGroup {
			continue
		}
		r, n := &f.rules[i], f.counts[i][g]
		if n == 0 && (f.closed[i] || f.admit != nil && f.admit[i] != nil && !f.admit[i][g]) {
			return false
		}
		if t := f.tallies[i]; t != nil {
			skew := r.skew
			if r.soft {
				skew += f.slack
			}
			if int(n) >= t.floor+skew && (!r.soft || f.evenly) {
				return false
			}
		}
	}
	return true
}

// add the best option of the class; rose: others may be addable now that were not.
func (f *filler) add(class int) (rose bool) {
	at := f.lists[class][f.next[class]]
	f.next[class]++
	f.left--
	f.chosen = append(f.chosen, at)
	closes := false
	for i, g := range f.groups[class] {
		if g == noGroup {
			continue
		}
		f.counts[i][g]++
		n := int(f.counts[i][g])
		if t := f.tallies[i]; t != nil && t.counted[g] {
			t.grow(n)
			t.at[n-1]--
			t.at[n]++
			rose = t.rise() || rose
		}
		closes = closes || n == 1 && f.rules[i].max > 0
	}
	if closes {
		if now := f.solver.closed(f.counts); !slices.Equal(now, f.closed) {
			f.closed = now
			f.recount()
			rose = true
		}
	}
	return rose
}

// cover opens groups until the minimum of all rules, hard or soft, is met.
func (f *filler) cover(soft bool) {
	short := func(i int) bool {
		r := &f.rules[i]
		return r.soft == soft && used(f.counts[i]) < r.min
	}
	lacking := make([]bool, len(f.rules))
	for f.left > 0 {
		any := false
		for i := range f.rules {
			lacking[i] = short(i)
			any = any || lacking[i]
		}
		if !any {
			return
		}
		best, most := -1, 0
		for c, list := range f.lists {
			if int(f.next[c]) == len(list) {
				continue
			}
			gain := 0
			for i, g := range f.groups[c] {
				if lacking[i] && g != noGroup && f.counts[i][g] == 0 {
					gain++
				}
			}
			if gain == 0 || gain < most || !f.addable(c) {
				continue
			}
			if gain > most || f.head(c).compare(f.head(best)) < 0 {
				best, most = c, gain
			}
		}
		if best < 0 {
			return
		}
		f.add(best)
	}
}

// raise the groups of each rule with a skew to the lift.
func (f *filler) raise() {
	for i := range f.rules {
		if f.rules[i].skew == 0 {
			continue
		}
		for n := int32(0); n < f.lift; n++ {
			for g := int32(0); int(g) < f.rules[i].groups && f.left > 0; g++ {
				if f.counts[i][g] != n {
					continue
				}
				best := -1
				for _, at := range f.inGroup[i][g] {
					c := int(at)
					if int(f.next[c]) < len(f.lists[c]) && f.addable(c) && (best < 0 || f.head(c).compare(f.head(best)) < 0) {
						best = c
					}
				}
				if best >= 0 {
					f.add(best)
				}
			}
		}
	}
}

func (f *filler) head(class int) *option { return &f.options[f.lists[class][f.next[class]]] }

// fill with the best that may be added, down to those of a claim.
func (f *filler) fill(least int8) {
	if f.plain() && least == prioNew && f.left >= len(f.options) {
		f.rest()
		return
	}
	h := &f.pile
	h.at = h.at[:0]
	for c, list := range f.lists {
		if int(f.next[c]) < len(list) {
			h.at = append(h.at, int32(c))
		}
	}
	h.init()
	parked := f.parked[:0]
	for f.left > 0 && len(h.at) > 0 {
		c := h.at[0]
		if f.head(int(c)).prio < least {
			break
		}
		if !f.addable(int(c)) {
			parked = append(parked, h.pop())
			continue
		}
		rose := f.add(int(c))
		if int(f.next[c]) == len(f.lists[c]) {
			h.pop()
		} else {
			h.down(0)
		}
		if rose {
			for _, p := range parked {
				h.push(p)
			}
			parked = parked[:0]
		}
	}
	f.parked = parked[:0]
}

// plain: no skew counts, so that adding one option never keeps another one out, but for
// the groups that it opens.
func (f *filler) plain() bool {
	return !slices.ContainsFunc(f.tallies, func(t *tally) bool { return t != nil })
}

// rest adds all that is admitted, where the number of clusters has no bound and what is
// admitted is within the maximum.
func (f *filler) rest() {
	for c, list := range f.lists {
		for int(f.next[c]) < len(list) && f.addable(c) {
			f.add(c)
		}
	}
}

// all looks at every choice of a few options.
func (s *solver) all() (chosen []int32, short []int) {
	var free []int32
	for _, list := range s.lists {
		free = append(free, list...)
	}
	var best try
	for set := uint(0); set < 1<<len(free); set++ {
		if n := bits.OnesCount(set); n > max(0, s.most-len(s.locked)) {
			continue
		}
		t := try{chosen: slices.Clone(s.locked)}
		for i, at := range free {
			if set>>i&1 == 1 {
				t.chosen = append(t.chosen, at)
			}
		}
		if t.counts = s.countAll(t.chosen); !s.keeps(t.counts) {
			continue
		}
		s.judge(&t)
		if best.counts == nil || t.value.compare(&best.value) < 0 {
			best = t
		}
	}
	return best.chosen, s.short(best.counts)
}

func (s *solver) countAll(chosen []int32) [][]int32 {
	counts := make([][]int32, len(s.rules))
	for i := range s.rules {
		counts[i] = make([]int32, s.rules[i].groups)
		for _, at := range chosen {
			if g := s.rules[i].of[at]; g != noGroup {
				counts[i][g]++
			}
		}
	}
	return counts
}

// keeps tells whether a choice breaks no maximum and no hard skew, but where those that
// are locked do so by themselves.
func (s *solver) keeps(counts [][]int32) bool {
	before := s.countAll(s.locked)
	for i := range s.rules {
		r := &s.rules[i]
		if r.max > 0 && used(counts[i]) > max(r.max, used(before[i])) {
			return false
		}
		if r.skew == 0 || r.soft {
			continue
		}
		limit := s.floor(i, counts) + int64(r.skew)
		for g, n := range counts[i] {
			if n > before[i][g] && int64(n) > limit {
				return false
			}
		}
	}
	return true
}
