package logs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLinesAreMergedByTheirTimes(t *testing.T) {
	logs := []string{
		"2026-05-01T12:00:01Z a1\n2026-05-01T12:00:03.5Z a2\nno time\n2026-05-01T12:00:02Z back\n",
		"2026-05-01T12:00:01Z b1\n2026-05-01T12:00:03Z b2\n2026-05-01T12:00:09Z b3",
		"",
	}
	var next []func() (logLine, bool)
	for _, l := range logs {
		next = append(next, newScanner(strings.NewReader(l), time.Time{}).next)
	}
	var got []string
	if err := merge(next, func(of int, l logLine) error {
		got = append(got, fmt.Sprintf("%d %s", of, l.text))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"0 a1", "1 b1", "1 b2", "0 a2", "0 no time", "0 back", "1 b3"}
	if !slices.Equal(got, want) {
		t.Errorf("merged are %q, wanted %q", got, want)
	}
}

func TestWhatWasSeenIsNotReadAgain(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 500, time.UTC)
	s := newScanner(strings.NewReader("2026-05-01T12:00:00Z old\n2026-05-01T12:00:00.0000005Z last\n2026-05-01T12:00:00.000000501Z new\n2026-05-01T12:00:01Z \n2026-05-01T12:00:02Z\n"), at)
	var got []string
	for l, ok := s.next(); ok; l, ok = s.next() {
		got = append(got, string(l.text))
	}
	if want := []string{"new", "", ""}; !slices.Equal(got, want) || s.scanError() != nil {
		t.Errorf("read are %q (%v), wanted %q", got, s.scanError(), want)
	}
}

func TestLinesThatAreTooLongEndTheirLog(t *testing.T) {
	s := newScanner(strings.NewReader(strings.Repeat("x", lineMost+1)), time.Time{})
	if l, ok := s.next(); ok || s.scanError() == nil {
		t.Errorf("a line of more than %d bytes is read, %d of it", lineMost, len(l.text))
	}
}
