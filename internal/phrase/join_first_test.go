package phrase

import (
	"strings"
	"testing"
)

func TestJoinFirst(t *testing.T) {
	for _, c := range []struct {
		names string
		all   int
		want  string
	}{
		{"", 0, ""}, {"a", 1, "a"}, {"a b", 2, "a, b"}, {"a b c", 3, "a, b and 1 more"}, {"a b c d", 4, "a, b and 2 more"},
		{"a b", 5000, "a, b and 4998 more"}, {"a b c", 5000, "a, b and 4998 more"}, {"a", 2, "a and 1 more"},
	} {
		if got := JoinFirst(strings.Fields(c.names), 2, c.all); got != c.want {
			t.Errorf("%q of %d: %q, want %q", c.names, c.all, got, c.want)
		}
	}
}

func TestJoinFirstBySeparator(t *testing.T) {
	for texts, want := range map[string]string{"": "", "x y": "x; y", "x y z": "x; y; and 1 more", "x y z z": "x; y; and 2 more"} {
		if got := JoinFirstBy("; ", strings.Fields(texts), 2); got != want {
			t.Errorf("%q: %q, want %q", texts, got, want)
		}
	}
}
