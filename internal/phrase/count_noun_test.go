package phrase

import "testing"

func TestCount(t *testing.T) {
	for n, want := range []string{"0 clusters", "1 cluster", "2 clusters"} {
		if got := CountNoun(n, "cluster"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
