package phrase

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeLine returns a text in which every character that could move a terminal's cursor, break a
// line or change the direction of writing is written as \xNN or \uNNNN. Texts of agents and of users
// pass it before they become a cell of a table or a part of a sentence. A text without such
// characters is returned unchanged.
func EscapeLine(s string) string { return escapeUnsafe(s, func(rune) bool { return false }) }

// EscapeText is EscapeLine for a text of several lines: line ends and tabs stay.
func EscapeText(s string) string {
	return escapeUnsafe(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

func escapeUnsafe(s string, keep func(rune) bool) string {
	if strings.IndexFunc(s, func(r rune) bool { return isUnsafe(r) && !keep(r) }) < 0 && utf8.ValidString(s) {
		return s
	}
	var out strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1, isUnsafe(r) && !keep(r) && r < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, s[0])
		case isUnsafe(r) && !keep(r):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteString(s[:n])
		}
		s = s[n:]
	}
	return out.String()
}

// isUnsafe reports whether a terminal or a reader may take the character for something else than
// itself: controls, line and paragraph separators, and characters of format, such as those that
// change the direction of writing.
func isUnsafe(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// IsControl reports whether a character is a control character of ASCII.
func IsControl(r rune) bool { return r < ' ' || r == 0x7f }

// IsSpaceOrControl reports whether a character is a space or a control character of ASCII.
func IsSpaceOrControl(r rune) bool { return r <= ' ' || r == 0x7f }
