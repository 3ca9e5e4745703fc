package script

import (
	"fmt"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// osFunctions are the functions of os that scripts have. There is no clock: the time is the one that
// the answer is about. All times are in UTC.
var osFunctions = map[string]bool{"time": true, "date": true}

// openOSLibrary opens the library os for an answer about a time, in Unix seconds.
func openOSLibrary(L *lua.LState, now int64) {
	t := L.CreateTable(0, 2)
	t.RawSetString("time", L.NewFunction(func(L *lua.LState) int { return osTime(L, now) }))
	t.RawSetString("date", L.NewFunction(func(L *lua.LState) int { return osDate(L, now) }))
	L.G.Global.RawSetString("os", t)
}

// minYear and maxYear are the years that os.date writes.
const minYear, maxYear = 1, 9999

// maxDateField is the largest number in a table for os.time.
const maxDateField = 1e6

// osTime returns the time of the answer, or that of a table with the fields of os.date("*t").
func osTime(L *lua.LState, now int64) int {
	if L.Get(1) == lua.LNil {
		return pushNumber(L, float64(now))
	}
	t := tableArg(L, 1)
	field := func(name string, absent int) int {
		v := t.RawGetString(name)
		if v == lua.LNil && absent >= 0 {
			return absent
		}
		n, ok := v.(lua.LNumber)
		if text, isText := v.(lua.LString); isText {
			n, ok = parseNumeral(L, string(text))
		}
		if !ok || !(n >= -maxDateField && n <= maxDateField) {
			L.RaiseError("os.time: field %s is missing, or is no number of a date", name)
		}
		return int(n)
	}
	at := time.Date(field("year", -1), time.Month(field("month", -1)), field("day", -1), field("hour", 12), field("min", 0), field("sec", 0), 0, time.UTC)
	return pushNumber(L, float64(at.Unix()))
}

// osDate returns a time by a format of strftime, or as a table for "*t". A leading "!" changes
// nothing.
func osDate(L *lua.LState, now int64) int {
	format := "%c"
	if L.Get(1) != lua.LNil {
		format = strings.TrimPrefix(stringArg(L, 1), "!")
	}
	if L.Get(2) != lua.LNil {
		now = int64(integerArg(L, 2, 0))
	}
	at := time.Unix(now, 0).UTC()
	if at.Year() < minYear || at.Year() > maxYear {
		L.RaiseError("os.date: the year %d is not one of %d to %d", at.Year(), minYear, maxYear)
	}
	if strings.HasPrefix(format, "*t") {
		L.Push(dateTable(L, at))
		return 1
	}
	var out strings.Builder
	for rest := format; rest != ""; {
		plain, verb, found := strings.Cut(rest, "%")
		out.WriteString(plain)
		if !found {
			break
		}
		if verb == "" {
			L.RaiseError("os.date: the format ends with %%")
		}
		text, known := formatDateVerb(at, verb[0])
		if !known {
			L.RaiseError("os.date: %%%s is not known", verb[:1])
		}
		chargeCost(L, 1, 8*int64(len(text)))
		out.WriteString(text)
		rest = verb[1:]
	}
	return pushString(L, out.String())
}

func dateTable(L *lua.LState, at time.Time) *lua.LTable {
	chargeCost(L, 20, 1<<10)
	t := L.CreateTable(0, 9)
	for name, n := range map[string]int{
		"year": at.Year(), "month": int(at.Month()), "day": at.Day(), "hour": at.Hour(), "min": at.Minute(), "sec": at.Second(),
		"wday": int(at.Weekday()) + 1, "yday": at.YearDay(),
	} {
		t.RawSetString(name, lua.LNumber(n))
	}
	t.RawSetString("isdst", lua.LFalse)
	return t
}

// dateLayouts are the verbs of strftime that are layouts of package time.
var dateLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06", 'F': "2006-01-02",
	'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04", 'p': "PM", 'S': "05", 'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05",
	'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

func formatDateVerb(at time.Time, verb byte) (text string, known bool) {
	switch layout := dateLayouts[verb]; {
	case layout != "":
		return at.Format(layout), true
	case verb == 'w':
		return fmt.Sprint(int(at.Weekday())), true
	case verb == 's':
		return fmt.Sprint(at.Unix()), true
	case verb == '%':
		return "%", true
	}
	return "", false
}

// reportTimeOf returns the time that an answer is about: the given one, or else the latest time at
// which one of the objects was created. It is 0 where there is neither.
func reportTimeOf(given int64, values []any) int64 {
	if given != 0 {
		return given
	}
	for _, v := range values {
		object, _ := v.(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		text, _ := meta["creationTimestamp"].(string)
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			given = max(given, at.Unix())
		}
	}
	return given
}
