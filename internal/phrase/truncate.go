package phrase

import (
	"strings"
	"unicode/utf8"
)

const ellipsis = "…"

// TruncateText shortens s to at most n bytes, with "…" for what is left out. It splits no character.
func TruncateText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(ellipsis)], "") + ellipsis
}

// CutText shortens s to at most n bytes. It splits no character.
func CutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
