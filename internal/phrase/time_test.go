package phrase

import (
	"testing"
	"time"
)

func TestFormatTime(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 30, 15, 999, time.FixedZone("", 2*60*60))
	if got, want := FormatTime(at), "2026-02-28T22:30:15Z"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
