package phrase

import "testing"

func TestTruncateText(t *testing.T) {
	for _, c := range []struct {
		text           string
		n              int
		truncated, cut string
	}{
		{"abcdef", 6, "abcdef", "abcdef"},
		{"abcdefg", 6, "abc…", "abcdef"},
		{"aééé", 7, "aééé", "aééé"},
		{"aéééx", 7, "aé…", "aééé"}, // é has two bytes: the fifth byte begins the third
		{"ééééx", 8, "éé…", "éééé"}, // the fifth byte would split the third é
		{"éééé", 7, "éé…", "ééé"},
		{"é", 1, "", ""},
	} {
		if c.n >= len(ellipsis) {
			if got := TruncateText(c.text, c.n); got != c.truncated {
				t.Errorf("truncated to %d, %q is %q, want %q", c.n, c.text, got, c.truncated)
			}
		}
		if got := CutText(c.text, c.n); got != c.cut {
			t.Errorf("cut to %d, %q is %q, want %q", c.n, c.text, got, c.cut)
		}
	}
}
