package changewindow

import (
	"fmt"
	"regexp"
	"time"

	"github.com/robfig/cron/v3"
)

// maxScheduleBytes and schedulePattern are the form of schedules. The library also reads time zones and names of intervals in them.
const maxScheduleBytes = 128

var (
	schedulePattern = regexp.MustCompile(`^[0-9A-Za-z*/,?-]+( +[0-9A-Za-z*/,?-]+){4}$`)
	timeZonePattern = regexp.MustCompile(`^[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32})*$`)
	scheduleParser  = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
)

// zonedSchedule is a schedule by the clock of a time zone.
type zonedSchedule struct {
	// wall has the starts by a clock that never jumps.
	wall cron.Schedule
	zone *time.Location
}

func parseSchedule(text string) (cron.Schedule, error) {
	if len(text) > maxScheduleBytes || !schedulePattern.MatchString(text) {
		return nil, fmt.Errorf("must have five fields of cron, such as 0 22 * * 1-5, in at most %d characters", maxScheduleBytes)
	}
	parsed, err := scheduleParser.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("must have five fields of cron, such as 0 22 * * 1-5: %w", err)
	}
	if s, is := parsed.(*cron.SpecSchedule); is {
		s.Location = time.UTC
	}
	return parsed, nil
}

// loadZone returns a time zone by its IANA name; UTC for an empty name.
func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if name == "Local" || !timeZonePattern.MatchString(name) {
		return nil, fmt.Errorf("must be a name of the IANA time zone database, such as Europe/Oslo")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("must be a name of the IANA time zone database, such as Europe/Oslo, that the hub has: %w", err)
	}
	return zone, nil
}

// findStart returns the first start after a time; zero: there is none in the next years.
//
// Between two jumps, the clock of the zone is a clock in UTC at a distance. The loop ends: each round begins after one more jump, and
// the schedule finds nothing some years after the first.
func (z *zonedSchedule) findStart(after time.Time) time.Time {
	at := after.In(z.zone)
	_, offset := at.Zone()
	for range maxJumps {
		start := z.wall.Next(at.UTC().Add(time.Duration(offset) * time.Second))
		if start.IsZero() {
			return time.Time{}
		}
		start = start.Add(-time.Duration(offset) * time.Second)
		_, jump := at.ZoneBounds()
		if jump.IsZero() || start.Before(jump) {
			return start
		}
		_, next := jump.Zone()
		if skipped := time.Duration(next-offset) * time.Second; start.Before(jump.Add(skipped)) || z.startsAt(jump, next) {
			return jump.UTC()
		}
		at, offset = jump, next
	}
	return time.Time{}
}

// startsAt reports whether a start is at a time with an offset from UTC. The library looks for starts after a time.
func (z *zonedSchedule) startsAt(at time.Time, offset int) bool {
	wall := at.UTC().Add(time.Duration(offset) * time.Second)
	return z.wall.Next(wall.Add(-time.Second)).Equal(wall)
}

// maxJumps of a clock are more than happen within the years in which a schedule finds a start.
const maxJumps = 64
