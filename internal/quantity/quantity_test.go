package quantity

import (
	"strings"
	"testing"
	"time"
)

func TestQuantitiesThatTakeForEverAreNotRead(t *testing.T) {
	began := time.Now()
	for _, text := range []string{"1e-1000000000", "1E+99999", " 1e-1000000000", strings.Repeat("9", 65), "x", ""} {
		if q, err := Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, &q)
		}
	}
	for text, want := range map[string]int64{"5E": 5e18, "1e3": 1000, "1e-3": 1, "250m": 1, "64Mi": 64 << 20, "1Ei": 1 << 60} {
		if q, err := Parse(text); err != nil || q.Value() != want {
			t.Errorf("%q is %v, %v", text, &q, err)
		}
	}
	for text, endless := range map[string]bool{
		"1e-1000000000": true, " 1e-1000000000 ": true, "+1.5E999": true, "1e99": false, "64Mi": false, "release-1e1000": false, "0x1e100": false,
		strings.Repeat("1", 1001): true, " -0." + strings.Repeat("0", 1<<20): true, "1" + strings.Repeat("x", 2000): false,
	} {
		if got := FindSlowToParseQuantity(map[string]any{"a": []any{int64(1), map[string]any{"b": text}}}) != ""; got != endless {
			t.Errorf("%q is endless: %t", text, got)
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}
