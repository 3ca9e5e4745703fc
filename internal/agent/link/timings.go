package link

import (
	"time"

	"atoll.dev/atoll/internal/atoll"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// maxTimings of applies are measured at a time.
const maxTimings = 1024

// applyTimings measures the applies, by bundle, of which the hub requested the time. It is nil
// while the hub requests none.
type applyTimings map[string]*applyTiming

type applyTiming struct {
	generation int64
	arrived    time.Time
	// changed is when the bundle's status last changed.
	changed time.Time
	isDone  bool
}

// beginTiming begins to measure the apply of an order that requests it.
func (t *applyTimings) beginTiming(u *pb.Upsert, now time.Time) {
	if !u.GetTiming() {
		delete(*t, u.GetBundle())
		return
	}
	if *t == nil || len(*t) >= maxTimings {
		*t = applyTimings{}
	}
	(*t)[u.GetBundle()] = &applyTiming{generation: u.GetGeneration(), arrived: now, changed: now}
}

// recordLatestStatusChange notes that the bundle's status may have changed.
func (t applyTimings) recordLatestStatusChange(bundle string, now time.Time) {
	if a := t[bundle]; a != nil && !a.isDone {
		a.changed = now
	}
}

// endTimingIfApplied ends the measurement when the order is applied, removed or has failed.
func (t applyTimings) endTimingIfApplied(bundle string, s atoll.RowStatus) {
	if a := t[bundle]; a != nil && a.generation == s.Generation {
		a.isDone = a.isDone || s.Applied || s.State == atoll.RowFailed || s.State == atoll.RowRemoved
	}
}

// addTimings adds the measurements that have ended to the reports among the frames.
func (t applyTimings) addTimings(frames []*pb.FromAgent, now time.Time) {
	if len(t) == 0 {
		return
	}
	for _, f := range frames {
		r := f.GetReport()
		if a := t[r.GetBundle()]; r != nil && a != nil && a.isDone {
			r.Timing = &pb.Timing{ApplyMs: toMilliseconds(a.changed.Sub(a.arrived)), AgeMs: toMilliseconds(now.Sub(a.changed))}
			delete(t, r.GetBundle())
		}
	}
}

func toMilliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}
