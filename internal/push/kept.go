package push

import (
	"fmt"
	"time"
)

// keeps is what the agent keeps of an answer beyond its decoding.
type keeps int

const (
	keepsNothing keeps = iota
	// keepsPage: the list of which the answer is a page.
	keepsPage
	// keepsInitialEvents: the list with which a watch begins. In protobuf its end is seen; in JSON all
	// events of such a watch count. API servers end it after ten minutes.
	keepsInitialEvents
)

// reserveKeptWeight counts what the agent keeps of the answer. Without room the answer fails, a watch, too:
// one that only ended would begin again at once with the whole list.
func (b *limitedResponseBody) reserveKeptWeight(weight int) error {
	switch b.keeps {
	case keepsPage:
		if !b.limit.keepPage(b.path, weight) {
			return newLimitError(fmt.Errorf("the pages of a list take more than %d MiB of memory with the other lists, or the lists of all members more than %d MiB", b.limit.most>>20, b.limit.budget.most>>20))
		}
	case keepsInitialEvents:
		if !b.limit.reserveKept(b, weight) {
			return newLimitError(fmt.Errorf("the list with which a watch begins takes more than %d MiB of memory with the other lists, or the lists of all members more than %d MiB", b.limit.most>>20, b.limit.budget.most>>20))
		}
	}
	return nil
}

// endInitialEvents gives back what the list took with which the watch began.
func (b *limitedResponseBody) endInitialEvents() {
	if b.keeps == keepsInitialEvents {
		b.keeps = keepsNothing
		b.limit.releaseKeptOfBody(b)
	}
}

// pageIdle is how long after its last page a list counts among those that are kept: the agent does not
// report the end of a list.
const pageIdle = time.Minute

// pagesKnown is the number of lists from which on those that are idle are forgotten.
const pagesKnown = 1000

// pageList is what is kept of the list at a path, from its second page on.
type pageList struct {
	sum  int // of all pages
	held int // of the limit's
	last time.Time
	// isRefused: the shared budget refused a page, and refuses the further ones.
	isRefused bool
}

// reserveKept takes bytes of what may be kept for an answer that is not closed, if they are to be had.
func (l *memberResponseLimit) reserveKept(b *limitedResponseBody, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.closed || b.isRefused || !l.reserveKeptLocked(n) {
		return false
	}
	b.kept += n
	l.open[b] = struct{}{}
	return true
}

// reserveKeptLocked takes bytes of what may be kept. The caller holds mu.
func (l *memberResponseLimit) reserveKeptLocked(n int) bool {
	if l.kept+n > l.most {
		l.releaseIdlePageLists()
	}
	if l.kept+n > l.most || !l.budget.reserveOrRefuseLargest(l, n) {
		return false
	}
	l.kept += n
	return true
}

// releaseIdlePageLists gives back what idle lists hold. The caller holds mu.
func (l *memberResponseLimit) releaseIdlePageLists() {
	for path, p := range l.pages {
		if time.Since(p.last) < pageIdle {
			continue
		}
		l.releaseKeptBytes(p.held)
		p.held = 0
		if len(l.pages) > pagesKnown {
			delete(l.pages, path)
		}
	}
}

// releaseKeptOfBody gives back what an answer took.
func (l *memberResponseLimit) releaseKeptOfBody(b *limitedResponseBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseKeptBytes(b.kept)
	b.kept = 0
}

// releaseAllOfBody gives back what an answer took, which takes nothing more.
func (l *memberResponseLimit) releaseAllOfBody(b *limitedResponseBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseKeptBytes(b.kept)
	if b.shared > 0 {
		l.budget.releaseBytes(l, b.shared)
	}
	b.kept, b.shared, b.closed = 0, 0, true
	delete(l.open, b)
}

// keepPage counts a further page of the list at a path. One list has all that may be kept at most.
func (l *memberResponseLimit) keepPage(path string, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pages[path]
	if p == nil {
		if len(l.pages) >= pagesKnown {
			l.releaseIdlePageLists()
		}
		p = &pageList{}
		l.pages[path] = p
	}
	if p.isRefused || p.sum+n > l.most || !l.reserveKeptLocked(n) {
		return false
	}
	p.sum, p.held, p.last = p.sum+n, p.held+n, time.Now()
	return true
}

// dropPages gives back the pages of the list at a path: another list begins, or the watch after it.
func (l *memberResponseLimit) dropPages(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pages[path]; p != nil {
		l.releaseKeptBytes(p.held)
		delete(l.pages, path)
	}
}
