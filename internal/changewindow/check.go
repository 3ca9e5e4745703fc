package changewindow

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
)

// The bounds of the duration of a window.
const (
	minDuration = time.Minute
	maxDuration = 744 * time.Hour
)

// checkFrom begins the leap year in which the starts of windows are looked for, so that no check depends on the day.
var checkFrom = time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)

// shownBytes of a text that is refused are repeated.
const shownBytes = 64

// checkSteps bound the search of a check.
const checkSteps = 20000

// CheckWindows returns the fields of windows that could not be honoured. Selectors are the caller's to check.
func CheckWindows(stated []v1alpha1.ChangeWindow, at *field.Path) (errs field.ErrorList) {
	if len(stated) > MaxWindows {
		return field.ErrorList{field.TooMany(at, len(stated), MaxWindows)}
	}
	for i := range stated {
		errs = append(errs, checkWindow(&stated[i], at.Index(i))...)
	}
	if len(errs) > 0 || len(stated) == 0 {
		return errs
	}
	return checkOpenings(stated, at)
}

func checkWindow(w *v1alpha1.ChangeWindow, at *field.Path) (errs field.ErrorList) {
	if w.Type != v1alpha1.ChangeWindowAllow && w.Type != v1alpha1.ChangeWindowDeny {
		errs = append(errs, field.NotSupported(at.Child("type"), w.Type, []v1alpha1.ChangeWindowType{v1alpha1.ChangeWindowAllow, v1alpha1.ChangeWindowDeny}))
	}
	if d := w.Duration.Duration; d < minDuration || d > maxDuration {
		errs = append(errs, field.Invalid(at.Child("duration"), d.String(), "must be a duration from 1m to 744h"))
	}
	zone, err := loadZone(w.TimeZone)
	if err != nil {
		return append(errs, CheckTimeZone(w.TimeZone, at.Child("timeZone"))...)
	}
	wall, err := parseSchedule(w.Schedule)
	if err != nil {
		return append(errs, field.Invalid(at.Child("schedule"), phrase.CutText(w.Schedule, shownBytes), err.Error()))
	}
	start := (&zonedSchedule{wall: wall, zone: zone}).findStart(checkFrom)
	if start.IsZero() || start.After(checkFrom.AddDate(1, 0, 0)) {
		errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule, "never starts: no year has such a day"))
	}
	return errs
}

// CheckTimeZone refuses a time zone that the hub does not have. An empty name is UTC.
func CheckTimeZone(name string, at *field.Path) field.ErrorList {
	if _, err := loadZone(name); err != nil {
		return field.ErrorList{field.Invalid(at, phrase.CutText(name, shownBytes), err.Error())}
	}
	return nil
}

// checkOpenings refuses windows by which no cluster could ever change: those of all clusters, and those with one more.
func checkOpenings(stated []v1alpha1.ChangeWindow, at *field.Path) field.ErrorList {
	w, ofAll := CompileWindows(stated), Mask(0)
	for i := range stated {
		if stated[i].ClusterSelector == nil {
			ofAll |= 1 << i
		}
	}
	if _, opens := w.findOpening(ofAll, checkFrom, checkSteps); !opens {
		return field.ErrorList{field.Invalid(at, fmt.Sprintf("%d windows", len(stated)), "no change could start within a year: Deny windows are open whenever an Allow window is")}
	}
	for i := range stated {
		m := ofAll | 1<<i
		if m == ofAll {
			continue
		}
		if _, opens := w.findOpening(m, checkFrom, checkSteps); !opens {
			return field.ErrorList{field.Invalid(at.Index(i), string(stated[i].Type), "with it, no change of its clusters could start within a year")}
		}
	}
	return nil
}
