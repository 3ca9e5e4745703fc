package builders

import (
	"text/template"
	"time"

	"github.com/Masterminds/sprig/v3"
)

// otherClock returns a time that differs in its year, quarter, month, day, weekday, hour, minute and second.
func otherClock(now time.Time) time.Time {
	other := now.AddDate(1, 7, 1).Add(13*time.Hour + time.Minute + time.Second)
	if other.Weekday() == now.Weekday() {
		other = other.AddDate(0, 0, 1)
	}
	return other
}

// newClockFunctions returns the functions of templates that read the clock, with a clock that stands still.
func newClockFunctions(clock time.Time) template.FuncMap {
	all := sprig.TxtFuncMap()
	format := all["dateInZone"].(func(string, any, string) string)
	round := all["durationRound"].(func(any) string)
	formatIn := func(layout string, date any, zone string) string {
		return format(layout, chooseDate(date, clock), zone)
	}
	const day = "2006-01-02"
	return template.FuncMap{
		"now":            func() time.Time { return clock },
		"date":           func(layout string, date any) string { return formatIn(layout, date, "UTC") },
		"dateInZone":     formatIn,
		"date_in_zone":   formatIn,
		"htmlDate":       func(date any) string { return formatIn(day, date, "UTC") },
		"htmlDateInZone": func(date any, zone string) string { return formatIn(day, date, zone) },
		"ago":            func(date any) string { return clock.Sub(readDate(date, clock)).Round(time.Second).String() },
		"durationRound": func(v any) string {
			if since, isTime := v.(time.Time); isTime {
				v = int64(clock.Sub(since))
			}
			return round(v)
		},
	}
}

// chooseDate returns a date as templates have it, or the clock in place of anything else.
func chooseDate(date any, clock time.Time) any {
	switch date.(type) {
	case time.Time, *time.Time, int64, int, int32:
		return date
	}
	return clock
}

// readDate returns the time of a date as ago reads it.
func readDate(date any, clock time.Time) time.Time {
	switch date := date.(type) {
	case time.Time:
		return date
	case int64:
		return time.Unix(date, 0)
	case int:
		return time.Unix(int64(date), 0)
	}
	return clock
}
