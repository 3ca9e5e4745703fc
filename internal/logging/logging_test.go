package logging

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// An error of an API quotes the whole object that it refuses. A line of the log does not.
func TestNoValueIsAWholeObject(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log, err := New(&out, format, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		log.With("before", long).Warn(long, "object", long, "err", errors.New(long), "short", "stays", "count", 3)
		if n := out.Len(); n > 6*MaxValueBytes || !strings.Contains(out.String(), "it had 2097152 bytes") || !strings.Contains(out.String(), "stays") {
			t.Errorf("%s: a line has %d bytes", format, n)
		}
		out.Reset()
		log.Warn("an event", "event", struct{ Object any }{&struct{ Data string }{long}}, "list", []string{long}, "number", 1.5)
		if n := out.Len(); n > 4*MaxValueBytes || !strings.Contains(out.String(), "1.5") {
			t.Errorf("%s: a line with a structure has %d bytes", format, n)
		}
		out.Reset()
		log.Debug("not at this level")
		log.Info("a line", "err", errors.New("a\nb"))
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `a\nb`) {
			t.Errorf("%s: %q", format, got)
		}
	}
	if _, err := New(&strings.Builder{}, "xml", slog.LevelInfo); err == nil {
		t.Error("a format that is none is accepted")
	}
}
