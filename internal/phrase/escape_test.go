package phrase

import (
	"strings"
	"testing"
	"unicode"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string][2]string{
		"größer, 日本, 🙂":      {"größer, 日本, 🙂", "größer, 日本, 🙂"},
		"a\nb\tc":            {`a\x0ab\x09c`, "a\nb\tc"},
		"\x1b[2Jgone\r":      {`\x1b[2Jgone\x0d`, `\x1b[2Jgone\x0d`},
		"\u202eevil\u2028":   {`\u202eevil\u2028`, `\u202eevil\u2028`},
		"\u009b31m":          {`\u009b31m`, `\u009b31m`},
		"bad \xff\xfe bytes": {`bad \xff\xfe bytes`, `bad \xff\xfe bytes`},
		"":                   {"", ""},
	} {
		if got := [2]string{EscapeLine(in), EscapeText(in)}; got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// FuzzEscape: a line has no control character, and what is escaped stays as it is.
func FuzzEscape(f *testing.F) {
	f.Add("a\x1b\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		line := EscapeLine(s)
		if strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) }) >= 0 || EscapeLine(line) != line {
			t.Errorf("%q becomes %q", s, line)
		}
	})
}
