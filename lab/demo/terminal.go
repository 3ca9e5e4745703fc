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

// storyTerminal prints the story: titles, commands as a person types them, and steps with
// deadlines. One goroutine uses it.
type storyTerminal struct {
	out        io.Writer
	isTerminal bool // a terminal: the line of a waiting step is rewritten
	colour     bool
	steps      int
}

func newStoryTerminal(out io.Writer) *storyTerminal {
	f, ok := out.(*os.File)
	live := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	return &storyTerminal{out: out, isTerminal: live, colour: live && os.Getenv("NO_COLOR") == ""}
}

const (
	ansiBold  = "1"
	ansiDim   = "2"
	ansiRed   = "31"
	ansiGreen = "32"
	ansiCyan  = "36"
)

func (s *storyTerminal) withColour(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *storyTerminal) printTitle(text string) {
	fmt.Fprintf(s.out, "\n%s\n", s.withColour(ansiBold, text))
}

func (s *storyTerminal) printLine(format string, args ...any) {
	fmt.Fprintf(s.out, format+"\n", args...)
}

// printCommand shows a command.
func (s *storyTerminal) printCommand(line string) {
	fmt.Fprintf(s.out, "  %s %s\n", s.withColour(ansiCyan, "$"), s.withColour(ansiCyan, line))
}

// A check checks once. It returns "" when its condition is true, else the missing part.
type check func(ctx context.Context) (missing string)

// everyTick is the interval between two checks of a step.
const everyTick = 150 * time.Millisecond

// waitStep waits until the check is true, at most for limit. It prints the time taken or
// the missing part.
func (s *storyTerminal) waitStep(ctx context.Context, what string, limit time.Duration, look check) error {
	s.steps++
	begin, missing := time.Now(), "nothing was looked at yet"
	err := wait.PollUntilContextTimeout(ctx, everyTick, limit, true, func(ctx context.Context) (bool, error) {
		missing = look(ctx)
		if s.isTerminal && missing != "" {
			fmt.Fprintf(s.out, "\r\x1b[K  … %s  %s", what, s.withColour(ansiDim, fmt.Sprintf("%.0fs: %s", time.Since(begin).Seconds(), shortenText(missing))))
		}
		return missing == "", nil
	})
	took := time.Since(begin).Seconds()
	if s.isTerminal {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	if err == nil {
		fmt.Fprintf(s.out, "  %s %s %s\n", s.withColour(ansiGreen, "✓"), what, s.withColour(ansiDim, fmt.Sprintf("(%.1fs)", took)))
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(s.out, "  %s %s: not within %s\n    %s\n", s.withColour(ansiRed, "✗"), what, limit, missing)
	return fmt.Errorf("%s: not within %s: %s", what, limit, missing)
}

// reportFact prints the result of a condition that no step can wait for.
func (s *storyTerminal) reportFact(what, missing string) error {
	s.steps++
	if missing == "" {
		fmt.Fprintf(s.out, "  %s %s\n", s.withColour(ansiGreen, "✓"), what)
		return nil
	}
	fmt.Fprintf(s.out, "  %s %s\n    %s\n", s.withColour(ansiRed, "✗"), what, missing)
	return fmt.Errorf("%s: %s", what, missing)
}

func shortenText(text string) string {
	text = strings.ReplaceAll(text, "\n", " ")
	if r := []rune(text); len(r) > 90 {
		return string(r[:89]) + "…"
	}
	return text
}

// isInterrupted reports whether the error comes from an interrupt alone.
func isInterrupted(err error) bool { return errors.Is(err, context.Canceled) }
