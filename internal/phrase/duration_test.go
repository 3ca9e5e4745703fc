package phrase

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Second: "10s", 90 * time.Second: "1m30s", 15 * time.Minute: "15m", 10 * time.Minute: "10m",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 20 * time.Hour: "20h", time.Hour + time.Second: "1h0m1s", 0: "0s",
		1400 * time.Millisecond: "1s",
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
