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

// AddTo defines the flag --color.
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

// Set parses the flag's value.
func (c *Color) Set(value string) error {
	switch value {
	case "auto", "always", "never":
		c.value = value
		return nil
	}
	return fmt.Errorf("it is auto, always or never")
}

// IsEnabled reports whether what is written to out is coloured.
func (c *Color) IsEnabled(out io.Writer) bool {
	switch c.value {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && IsTerminal(out)
}

// IsTerminal reports whether a reader or writer is one.
func IsTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// inks are distinct on light and dark terminals: the plain colours except black, white and the red
// of errors, and then the bright ones.
var inks = []int{36, 33, 35, 32, 34, 96, 93, 95, 92, 94}

// Palette gives each cluster a colour of its own, in the order in which they are first painted,
// and starts over when there are more clusters than colours. The zero value paints nothing. It is
// safe for concurrent use.
type Palette struct {
	// On: paint.
	On bool

	mu         sync.Mutex
	usedColors map[string]int
}

// PaintText paints text in the colour of a cluster; what is of none stays as it is.
func (p *Palette) PaintText(cluster, text string) string {
	if !p.On || cluster == "" {
		return text
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ink, ok := p.usedColors[cluster]
	if !ok {
		if p.usedColors == nil {
			p.usedColors = map[string]int{}
		}
		ink = inks[len(p.usedColors)%len(inks)]
		p.usedColors[cluster] = ink
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", ink, text)
}
