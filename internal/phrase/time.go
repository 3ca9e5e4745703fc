package phrase

import "time"

// FormatTime is a time as people read it: RFC 3339 in UTC, to the second.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
