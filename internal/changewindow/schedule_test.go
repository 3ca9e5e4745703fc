package changewindow

import (
	"strings"
	"testing"
	"time"
)

func newSchedule(t testing.TB, text, zone string) *zonedSchedule {
	t.Helper()
	wall, err := parseSchedule(text)
	if err != nil {
		t.Fatal(err)
	}
	at, err := loadZone(zone)
	if err != nil {
		t.Fatal(err)
	}
	return &zonedSchedule{wall: wall, zone: at}
}

// Starts follow the clock of the zone. A start that the clock skips comes at the jump, and one that it shows twice comes twice.
func TestStartsOfASchedule(t *testing.T) {
	for name, c := range map[string]struct {
		schedule, zone, after string
		want                  []string
	}{
		"UTC":               {"0 22 * * *", "", "2026-12-01T22:00:00Z", []string{"2026-12-02T22:00:00Z", "2026-12-03T22:00:00Z"}},
		"a second before":   {"0 22 * * *", "", "2026-12-01T21:59:59.5Z", []string{"2026-12-01T22:00:00Z"}},
		"Oslo in winter":    {"0 22 * * 1-5", "Europe/Oslo", "2026-12-04T21:30:00Z", []string{"2026-12-07T21:00:00Z"}},
		"Oslo in summer":    {"0 22 * * *", "Europe/Oslo", "2026-07-01T12:00:00Z", []string{"2026-07-01T20:00:00Z"}},
		"a skipped start":   {"30 2 * * *", "Europe/Oslo", "2027-03-27T12:00:00Z", []string{"2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"}},
		"a start at a jump": {"0 3 * * *", "Europe/Oslo", "2027-03-27T12:00:00Z", []string{"2027-03-28T01:00:00Z", "2027-03-29T01:00:00Z"}},
		"skipped starts":    {"*/20 * * * *", "Europe/Oslo", "2027-03-28T00:39:00Z", []string{"2027-03-28T00:40:00Z", "2027-03-28T01:00:00Z", "2027-03-28T01:20:00Z"}},
		"before the jump":   {"30 1 * * *", "Europe/Oslo", "2027-03-27T12:00:00Z", []string{"2027-03-28T00:30:00Z", "2027-03-28T23:30:00Z"}},
		"a start twice":     {"30 2 * * *", "Europe/Oslo", "2027-10-30T12:00:00Z", []string{"2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-11-01T01:30:00Z"}},
		"a start at the jump back": {
			"0 2 * * *", "Europe/Oslo", "2027-10-30T12:00:00Z", []string{"2027-10-31T00:00:00Z", "2027-10-31T01:00:00Z", "2027-11-01T01:00:00Z"},
		},
		"a midnight that is skipped": {"0 0 * * *", "Africa/Cairo", "2027-04-29T12:00:00Z", []string{"2027-04-29T22:00:00Z", "2027-04-30T21:00:00Z"}},
		"half an hour":               {"15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00:00Z", []string{"2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"}},
		"a leap day":                 {"0 0 29 2 *", "", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		"a day that no year has":     {"0 0 31 2 *", "Europe/Oslo", "2026-01-01T00:00:00Z", []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, c.after)
			if err != nil {
				t.Fatal(err)
			}
			s := newSchedule(t, c.schedule, c.zone)
			for _, want := range c.want {
				got := ""
				if at = s.findStart(at); !at.IsZero() {
					got = at.UTC().Format(time.RFC3339)
				}
				if got != want {
					t.Fatalf("it starts at %s, want %s", got, want)
				}
			}
		})
	}
}

func TestSchedulesThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "@daily", "@every 1s", "TZ=0", "TZ=Europe/Oslo 0 0 * * *", "CRON_TZ=UTC 0 0 * * *", "60 0 * * *", "0 24 * * *", "0 0 0 * *", "0 0 * 13 *",
		"*/0 * * * *", "5-1 * * * *", "1-2-3 * * * *", "0 0 * * SOON", "0\t0 * * *", "0 0 * * *\n", "\x00 0 * * *", "0 0 " + strings.Repeat("1,", 100) + "1 * *", "-1 0 * * *", "99999999999999999999 0 * * *",
	} {
		if _, err := parseSchedule(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestTimeZonesThatAreRefused(t *testing.T) {
	for _, name := range []string{"Local", "Europe/Nowhere", "../../etc/passwd", "/etc/localtime", "Europe/../UTC", "Europe\\Oslo", "a b", strings.Repeat("a", 99), "\x00"} {
		if _, err := loadZone(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// No text makes the parser panic. A start is after the time that is asked for, and is what the clock of the zone shows, or is at a jump.
func FuzzSchedules(f *testing.F) {
	for _, text := range []string{"0 22 * * 1-5", "*/7 1,3 29 2 *", "? ? * * *", "0 0 31 2 *", "TZ=0", "@every 1s", "*/18446744073709551615 * * * *", "0 0 1 JAN MON"} {
		f.Add(text, int64(1_800_000_000), "Europe/Oslo")
	}
	f.Fuzz(func(t *testing.T, text string, unix int64, zone string) {
		wall, err := parseSchedule(text)
		if err != nil {
			return
		}
		at, err := loadZone(zone)
		if err != nil {
			return
		}
		if unix < 0 || unix > 4_000_000_000 {
			return
		}
		after := time.Unix(unix, 0)
		start := (&zonedSchedule{wall: wall, zone: at}).findStart(after)
		if start.IsZero() {
			return
		}
		if !start.After(after) {
			t.Fatalf("%q in %s starts at %s after %s", text, zone, start, after)
		}
		local := start.In(at)
		_, offset := local.Zone()
		_, before := local.Add(-time.Second).Zone()
		if offset == before && !(&zonedSchedule{wall: wall}).startsAt(start, offset) {
			t.Fatalf("%q in %s starts at %s, which the clock of the zone shows as another time", text, zone, local)
		}
	})
}
