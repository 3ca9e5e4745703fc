package builders

import (
	"testing"
	"time"
)

// Each part of a date that a template can print differs between the two clocks.
func TestTheOtherClockDiffersInEachPart(t *testing.T) {
	parts := map[string]func(time.Time) int{
		"year": time.Time.Year, "month": func(at time.Time) int { return int(at.Month()) }, "day": time.Time.Day, "day of the year": time.Time.YearDay,
		"weekday": func(at time.Time) int { return int(at.Weekday()) }, "quarter": func(at time.Time) int { return int(at.Month()-1) / 3 },
		"hour": time.Time.Hour, "minute": time.Time.Minute, "second": time.Time.Second,
	}
	start := time.Date(2027, 1, 1, 0, 30, 59, 0, time.UTC)
	for i := range 4 * 366 * 24 {
		now := start.Add(time.Duration(i) * time.Hour)
		for name, part := range parts {
			if other := otherClock(now); part(now) == part(other) {
				t.Fatalf("%s of %s and %s", name, now, other)
			}
		}
	}
}
