package atoll

import (
	"testing"
	"time"
)

func TestRebalanceIsRemembered(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 49, 58, 123_456_789, time.FixedZone("", 3600))
	value := FormatRebalanceTime(at)
	if want := "2026-11-22T11:49:58.123Z"; value != want {
		t.Errorf("the annotation says %s, want %s", value, want)
	}
	asked := RebalanceRequestedAt(map[string]string{AnnotationRebalance: value})
	row := RowSpec{PlacementFingerprint: AppendRebalance("a.b@group/c", asked)}
	if got := row.LastRebalance(); !got.Equal(asked) || !got.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("asked at %s, remembered %s", asked, got)
	}
	if got := TrimRebalance(row.PlacementFingerprint); got != "a.b@group/c" {
		t.Errorf("the placement itself is %q", got)
	}
	if again := AppendRebalance(TrimRebalance(row.PlacementFingerprint), time.Time{}); again != "a.b@group/c" {
		t.Errorf("without one: %q", again)
	}
	for _, row := range []RowSpec{{}, {PlacementFingerprint: "a.b"}, {PlacementFingerprint: "a.b#not a number"}} {
		if !row.LastRebalance().IsZero() {
			t.Errorf("%q remembers %s", row.PlacementFingerprint, row.LastRebalance())
		}
	}
	for _, value := range []string{"", "now", "2026-11-22"} {
		if !RebalanceRequestedAt(map[string]string{AnnotationRebalance: value}).IsZero() {
			t.Errorf("%q is a time", value)
		}
	}
}
