package output

import (
	"fmt"
	"io"
	"regexp"

	"atoll.dev/atoll/internal/phrase"
)

// EscapingWriter writes text for people to a terminal. Characters that would control the terminal
// are escaped, because texts of members, agents and users are among what commands print. The
// colours of a Palette pass. It is for one writer at a time, as its destination is.
type EscapingWriter struct{ out io.Writer }

// NewEscapingWriter returns an EscapingWriter to out.
func NewEscapingWriter(out io.Writer) *EscapingWriter { return &EscapingWriter{out} }

// inkPattern matches what a Palette writes.
var inkPattern = regexp.MustCompile(`\x1b\[(?:0|3[2-6]|9[2-6])m`)

// Write writes all of the data, escaped. n counts the data, as callers expect.
func (w *EscapingWriter) Write(data []byte) (n int, err error) {
	text, safe := string(data), ""
	for _, at := range inkPattern.FindAllStringIndex(text, -1) {
		start := len(data) - len(text)
		safe += phrase.EscapeText(text[:at[0]-start]) + string(data[at[0]:at[1]])
		text = text[at[1]-start:]
	}
	if _, err := io.WriteString(w.out, safe+phrase.EscapeText(text)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// ClearLines clears the last lines of a terminal, so that others take their place.
func (w *EscapingWriter) ClearLines(n int) error {
	_, err := fmt.Fprintf(w.out, "\x1b[%dA\x1b[J", n)
	return err
}

// Fd is that of the destination, so that a terminal is recognised; no file has ^uintptr(0).
func (w *EscapingWriter) Fd() uintptr {
	if f, ok := w.out.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}
