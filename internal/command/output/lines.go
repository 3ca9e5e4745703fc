package output

import (
	"bytes"
	"io"
	"sync"
)

// Lines is written to by many at once, and no line is broken by another. Make one for each
// place that lines go to.
type Lines struct {
	mu  sync.Mutex
	out io.Writer
}

// NewLines returns Lines that go to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// Print prints one line behind its prefix. It may end with a newline, and does when it is written.
func (l *Lines) Print(prefix string, line []byte) error {
	whole := make([]byte, 0, len(prefix)+len(line)+1)
	whole = append(append(whole, prefix...), bytes.TrimSuffix(line, []byte("\n"))...)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.out.Write(append(whole, '\n'))
	return err
}

// pieceMost of a line is held until its end comes, in bytes; longer ones are broken.
const pieceMost = 64 << 10

// PrefixWriter returns a writer of which each line goes out behind a prefix. Close writes what is
// left of the last. It is for one writer at a time.
func (l *Lines) PrefixWriter(prefix string) io.WriteCloser {
	return &prefixWriter{to: l, prefix: prefix}
}

type prefixWriter struct {
	to     *Lines
	prefix string
	held   []byte
}

func (p *prefixWriter) Write(data []byte) (int, error) {
	p.held = append(p.held, data...)
	for {
		at := bytes.IndexByte(p.held, '\n')
		if at < 0 && len(p.held) <= pieceMost {
			return len(data), nil
		}
		if at < 0 {
			at = pieceMost - 1
		}
		if err := p.to.Print(p.prefix, p.held[:at+1]); err != nil {
			return 0, err
		}
		p.held = p.held[at+1:]
	}
}

func (p *prefixWriter) Close() error {
	if len(p.held) == 0 {
		return nil
	}
	rest := p.held
	p.held = nil
	return p.to.Print(p.prefix, rest)
}
