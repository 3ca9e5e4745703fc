package atoll

import "testing"

// A wave is a whole number in bounds. Any other text has no meaning.
func TestParseWave(t *testing.T) {
	for text, want := range map[string]int32{"0": 0, "7": 7, "-12": -12, "1000000": 1_000_000, "-1000000": -1_000_000} {
		if got, err := ParseWave(text); err != nil || got != want {
			t.Errorf("%q is %d (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", " 1", "1.0", "one", "0x1", "1000001", "-1000001", "99999999999999999999", "-2147483648"} {
		if got, err := ParseWave(text); err == nil {
			t.Errorf("%q is wave %d", text, got)
		}
	}
}
