package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/wait"
)

// stage is where the story is told: titles, commands as a person would type them,
// and steps that have to come true in time. It is used by one goroutine.
type stage struct {
	out    io.Writer
	live   bool // a terminal: the line of a step is rewritten while it waits
	colour bool
	steps  int
}

func newStage(out io.Writer) *stage {
	f, ok := out.(*os.File)
	live := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	return &stage{out: out, live: live, colour: live && os.Getenv("NO_COLOR") == ""}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (s *stage) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *stage) title(text string) { fmt.Fprintf(s.out, "\n%s\n", s.paint(bold, text)) }

func (s *stage) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// typed shows a command.
func (s *stage) typed(line string) {
	fmt.Fprintf(s.out, "  %s %s\n", s.paint(cyan, "$"), s.paint(cyan, line))
}

// A check looks once, and gives "" when what it stands for is true, else what is
// missing.
type check func(ctx context.Context) (missing string)

// everyTick is how often a step looks again.
const everyTick = 150 * time.Millisecond

// step waits until the check is true, at most for limit, and says how long it took
// or what was missing in the end.
func (s *stage) step(ctx context.Context, what string, limit time.Duration, look check) error {
	s.steps++
	begin, missing := time.Now(), "nothing was looked at yet"
	err := wait.PollUntilContextTimeout(ctx, everyTick, limit, true, func(ctx context.Context) (bool, error) {
		missing = look(ctx)
		if s.live && missing != "" {
			fmt.Fprintf(s.out, "\r\x1b[K  … %s  %s", what, s.paint(dim, fmt.Sprintf("%.0fs: %s", time.Since(begin).Seconds(), short(missing))))
		}
		return missing == "", nil
	})
	took := time.Since(begin).Seconds()
	if s.live {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	if err == nil {
		fmt.Fprintf(s.out, "  %s %s %s\n", s.paint(green, "✓"), what, s.paint(dim, fmt.Sprintf("(%.1fs)", took)))
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(s.out, "  %s %s: not within %s\n    %s\n", s.paint(red, "✗"), what, limit, missing)
	return fmt.Errorf("%s: not within %s: %s", what, limit, missing)
}

// fact tells at once whether something came true that nobody can wait for.
func (s *stage) fact(what, missing string) error {
	s.steps++
	if missing == "" {
		fmt.Fprintf(s.out, "  %s %s\n", s.paint(green, "✓"), what)
		return nil
	}
	fmt.Fprintf(s.out, "  %s %s\n    %s\n", s.paint(red, "✗"), what, missing)
	return fmt.Errorf("%s: %s", what, missing)
}

func short(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if r := []rune(text); len(r) > 90 {
		return string(r[:89]) + "…"
	}
	return text
}

// interrupted tells an error that only says that somebody pressed Ctrl-C.
func interrupted(err error) bool { return errors.Is(err, context.Canceled) }
