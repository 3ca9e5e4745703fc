package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// crowd of rows that others wait for. Many wait for the same, so that it is found out
// once, and shared.
type crowd struct {
	rows []string // by cluster name
	// but: this one of the rows is not meant; empty: all are.
	but string
	// came is when the last two of them came, in Unix seconds, the later one first;
	// patience is that with the slowest two.
	came     [2]int64
	patience [2]time.Duration
}

func (w *crowd) add(s *step, c string) {
	w.rows = append(w.rows, c)
	higher(&w.came, s.next[c].Came())
	higher(&w.patience, s.Rows[c].patience())
}

// higher keeps the highest two, the higher one first.
func higher[T int64 | time.Duration](two *[2]T, v T) {
	if v > two[0] {
		two[0], v = v, two[0]
	}
	two[1] = max(two[1], v)
}

// without one of them: no row waits for itself.
func (w *crowd) without(s *step, c string) *crowd {
	if _, has := slices.BinarySearch(w.rows, c); !has {
		return w
	}
	rest := &crowd{rows: w.rows, but: c, came: w.came, patience: w.patience}
	if rest.came[0] == s.next[c].Came() {
		rest.came[0] = rest.came[1]
	}
	if rest.patience[0] == s.Rows[c].patience() {
		rest.patience[0] = rest.patience[1]
	}
	return rest
}

// size of the crowd; none is empty.
func (w *crowd) size() int {
	switch {
	case w == nil:
		return 0
	case w.but != "":
		return len(w.rows) - 1
	}
	return len(w.rows)
}

// names of the first few.
func (w *crowd) names() string {
	const few = 3
	if w == nil {
		return ""
	}
	var out []string
	for _, c := range w.rows[:min(len(w.rows), few+1)] {
		if c != w.but && len(out) < few {
			out = append(out, c)
		}
	}
	text := strings.Join(out, ", ")
	if more := w.size() - len(out); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// awaited clusters: all whom somebody waits for. Of one crowd that many wait for, each
// without itself, all are awaited.
func (s *step) awaited() []string {
	type seen struct {
		first *string
		but   string
	}
	all, looked := map[string]bool{}, map[seen]bool{}
	whole := map[*string]int{} // by how many different rows a crowd is awaited
	for _, w := range s.blocked {
		at := seen{&w.rows[0], w.but}
		if looked[at] || whole[at.first] > 1 {
			continue
		}
		looked[at] = true
		whole[at.first]++
		for _, c := range w.rows {
			if c != w.but || whole[at.first] > 1 {
				all[c] = true
			}
		}
	}
	out := make([]string, 0, len(all))
	for c := range all {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}
