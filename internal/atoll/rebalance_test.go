package atoll

import (
	"testing"
	"time"
)

func TestRebalanceIsRemembered(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 49, 58, 123_456_789, time.FixedZone("", 3600))
	value := FormatRebalance(at)
	if want := "2026-11-22T11:49:58.123Z"; value != want {
		t.Errorf("the annotation says %s, want %s", value, want)
	}
	asked := RebalanceAsked(map[string]string{AnnotationRebalance: value})
	row := RowSpec{Placement: WithRebalance("a.b@group/c", asked)}
	if got := row.Rebalanced(); !got.Equal(asked) || !got.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("asked at %s, remembered %s", asked, got)
	}
	if got := WithoutRebalance(row.Placement); got != "a.b@group/c" {
		t.Errorf("the placement itself is %q", got)
	}
	if again := WithRebalance(WithoutRebalance(row.Placement), time.Time{}); again != "a.b@group/c" {
		t.Errorf("without one: %q", again)
	}
	for _, row := range []RowSpec{{}, {Placement: "a.b"}, {Placement: "a.b#not a number"}} {
		if !row.Rebalanced().IsZero() {
			t.Errorf("%q remembers %s", row.Placement, row.Rebalanced())
		}
	}
	for _, value := range []string{"", "now", "2026-11-22"} {
		if !RebalanceAsked(map[string]string{AnnotationRebalance: value}).IsZero() {
			t.Errorf("%q is a time", value)
		}
	}
}
