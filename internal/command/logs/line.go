package logs

import (
	"bufio"
	"bytes"
	"container/heap"
	"io"
	"time"
)

// lineMost is how long a line may be, in bytes.
const lineMost = 1 << 20

// logLine is a line of a log.
type logLine struct {
	// at is when it was written; zero where the line has no time.
	at    time.Time
	stamp []byte
	text  []byte
}

// parse parses a line that begins with its time. A line without a time is a line too.
func parse(raw []byte) logLine {
	stamp, text, ok := bytes.Cut(raw, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return logLine{text: raw}
	}
	if !ok {
		text = nil
	}
	return logLine{at: at, stamp: stamp, text: text}
}

// logScanner scans lines.
type logScanner struct {
	lines *bufio.Scanner
	// after is up to when lines have been seen already.
	after time.Time
	// last is the latest time of a line so far.
	last time.Time
}

// newScanner returns a scanner of a log, without the lines up to a time.
func newScanner(r io.Reader, after time.Time) *logScanner {
	s := &logScanner{lines: bufio.NewScanner(r), after: after, last: after}
	s.lines.Buffer(make([]byte, 0, 4096), lineMost)
	return s
}

// next returns the next line, which is the caller's; false at the end, for which err may have a reason. A line
// without a time has that of the one before it.
func (s *logScanner) next() (logLine, bool) {
	for s.lines.Scan() {
		l := parse(bytes.Clone(s.lines.Bytes()))
		switch {
		case l.at.IsZero():
			l.at = s.last
		case !s.after.IsZero() && !l.at.After(s.after):
			continue // it was seen
		case l.at.After(s.last):
			s.last = l.at
		}
		return l, true
	}
	return logLine{}, false
}

func (s *logScanner) scanError() error { return s.lines.Err() }

// head is the next line of one log.
type head struct {
	of   int
	line logLine
}

type logHeap []head

func (h logHeap) Len() int { return len(h) }
func (h logHeap) Less(i, j int) bool {
	if h[i].line.at.Equal(h[j].line.at) {
		return h[i].of < h[j].of
	}
	return h[i].line.at.Before(h[j].line.at)
}
func (h logHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *logHeap) Push(x any)   { *h = append(*h, x.(head)) }
func (h *logHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// merge logs by the times of their lines: of the first lines that are left, the oldest one, and of
// several, that of the first log. Lines of one log stay in their order.
func merge(logs []func() (logLine, bool), print func(of int, l logLine) error) error {
	var h logHeap
	for i, next := range logs {
		if l, ok := next(); ok {
			h = append(h, head{i, l})
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		first := h[0]
		if err := print(first.of, first.line); err != nil {
			return err
		}
		if l, ok := logs[first.of](); ok {
			h[0].line = l
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return nil
}
