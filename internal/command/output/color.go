package output

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Color is the value of --color. The zero value is auto.
type Color struct {
	value string
}

// AddTo adds --color.
func (c *Color) AddTo(flags *pflag.FlagSet) {
	flags.Var(c, "color", "auto (on terminals, unless $NO_COLOR is set), always or never")
}

// String is the value, for pflag.
func (c *Color) String() string {
	if c.value == "" {
		return "auto"
	}
	return c.value
}

// Type is the word for the value in the help, for pflag.
func (*Color) Type() string { return "when" }

// Set the value.
func (c *Color) Set(value string) error {
	switch value {
	case "auto", "always", "never":
		c.value = value
		return nil
	}
	return fmt.Errorf("it is auto, always or never")
}

// On tells whether what is written to out is coloured.
func (c *Color) On(out io.Writer) bool {
	switch c.value {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Terminal(out)
}

// Terminal tells whether a reader or writer is one.
func Terminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// inks are told apart on light and dark terminals: the plain colours but for black, white
// and the red of errors, and then the bright ones.
var inks = []int{36, 33, 35, 32, 34, 96, 93, 95, 92, 94}

// Palette gives each cluster a colour of its own, in the order in which they are painted
// first, and begins anew when there are more clusters than colours. The zero value paints
// nothing. It is safe for concurrent use.
type Palette struct {
	// On: paint.
	On bool

	mu    sync.Mutex
	taken map[string]int
}

// Paint text in the colour of a cluster; what is of none stays as it is.
func (p *Palette) Paint(cluster, text string) string {
	if !p.On || cluster == "" {
		return text
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ink, ok := p.taken[cluster]
	if !ok {
		if p.taken == nil {
			p.taken = map[string]int{}
		}
		ink = inks[len(p.taken)%len(inks)]
		p.taken[cluster] = ink
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", ink, text)
}
