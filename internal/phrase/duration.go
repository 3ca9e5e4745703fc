package phrase

import (
	"strings"
	"time"
)

// FormatDuration is a length of time as people write it, to the second: "15m", "1h30m", "10s".
func FormatDuration(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
