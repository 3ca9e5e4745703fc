package push

import (
	"fmt"
	"sync"
)

// allAnswersMost bounds what the answers of all members take of the hub's memory at a time, in bytes.
// The bounds of one member hold as well.
const allAnswersMost = 1 << 30

// responseMemoryBudget is what the answers of all members share. When it is spent, the member that holds the
// most is refused first: its answers fail, and the others go on. It is safe for concurrent use.
type responseMemoryBudget struct {
	mu      sync.Mutex
	most    int
	used    int                                   // by members that are not being refused
	holders map[*memberResponseLimit]*budgetShare // without shares of 0
}

// budgetShare is what one member holds of the budget.
type budgetShare struct {
	bytes int
	// refused is true from when the member is refused until it has given back all that it held.
	refused bool
}

func newResponseMemoryBudget(most int) *responseMemoryBudget {
	return &responseMemoryBudget{most: most, holders: map[*memberResponseLimit]*budgetShare{}}
}

// reserveOrRefuseLargest takes bytes for a member. It refuses members that hold more than this one until there is
// room. It returns false when this member would hold the most, or is being refused. The caller may
// hold the lock of its own member.
func (g *responseMemoryBudget) reserveOrRefuseLargest(l *memberResponseLimit, n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.holders[l]
	if own == nil {
		own = &budgetShare{}
	}
	if own.refused {
		return false
	}
	for g.used+n > g.most {
		largest, share := g.findLargest()
		if largest == nil || share.bytes <= own.bytes+n {
			return false
		}
		share.refused = true
		g.used -= share.bytes
		go largest.refuseAnswers()
	}
	own.bytes += n
	g.used += n
	g.holders[l] = own
	return true
}

// findLargest returns the member with the largest share among those that are not being refused. The
// caller holds the lock.
func (g *responseMemoryBudget) findLargest() (largest *memberResponseLimit, most *budgetShare) {
	for l, share := range g.holders {
		if !share.refused && (most == nil || share.bytes > most.bytes) {
			largest, most = l, share
		}
	}
	return largest, most
}

// releaseBytes gives back bytes of a member.
func (g *responseMemoryBudget) releaseBytes(l *memberResponseLimit, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	share := g.holders[l]
	if share == nil {
		return // the member is forgotten
	}
	if share.bytes -= n; !share.refused {
		g.used -= n
	}
	if share.bytes <= 0 {
		delete(g.holders, l)
	}
}

// dropMember gives back all that a member holds, when its agent has ended.
func (g *responseMemoryBudget) dropMember(l *memberResponseLimit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if share := g.holders[l]; share != nil && !share.refused {
		g.used -= share.bytes
	}
	delete(g.holders, l)
}

// errBudget is the error of an answer that the shared budget refuses.
func (l *memberResponseLimit) errBudget() error {
	return newLimitError(fmt.Errorf("the answers of all members take more than %d MiB of memory, and those of this member the most", l.budget.most>>20))
}

// reserveSharedBudget takes bytes of the shared budget for an answer, until the answer is closed.
func (l *memberResponseLimit) reserveSharedBudget(b *limitedResponseBody, n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.closed || b.isRefused || !l.budget.reserveOrRefuseLargest(l, n) {
		return l.errBudget()
	}
	b.shared += n
	l.open[b] = struct{}{}
	return nil
}

// refuseAnswers ends the answers that hold something of the budget. The pages of lists are given
// back, and their further pages fail.
func (l *memberResponseLimit) refuseAnswers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range l.open {
		b.isRefused = true
		go func() { _ = b.from.Close() }() // a reader that waits for the member returns
	}
	for _, p := range l.pages {
		l.releaseKeptBytes(p.held)
		p.held, p.isRefused = 0, true
	}
}

// releaseKeptBytes gives back bytes of what is kept. The caller holds mu.
func (l *memberResponseLimit) releaseKeptBytes(n int) {
	if n > 0 {
		l.kept -= n
		l.budget.releaseBytes(l, n)
	}
}
