package scenario

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/bench/report"
)

const (
	// joinsPerSecond that have to be sustained.
	joinsPerSecond = 150
	// parts that a registration is cut into, to see whether it becomes slower.
	parts = 10
	// firstParts and lastParts of them are compared.
	firstParts, lastParts = 3, 3
	// rarely is how often agents check in where that is not what is measured.
	rarely = 15 * time.Minute
)

// register lets clusters join as fast as they can.
func register(ctx context.Context, s *stage) error {
	if _, err := s.startHub(ctx); err != nil {
		return err
	}
	count := s.scaled(100_000, 200)
	before, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.report.Mark("join")
	a, err := s.launchAgents(crowd{count: count, groups: 10, checkIn: rarely})
	if err != nil {
		return err
	}
	s.startSampling(ctx)
	// reached[i] is when that many tenths had joined; the first agents wait for the
	// simulator to start.
	var reached [parts + 1]time.Time
	var looks looks
	s.Progress.Step(fmt.Sprintf("%d agents join", count), count)
	err = until(ctx, "all agents join", 50*time.Millisecond, joinPatience, func(ctx context.Context) (bool, error) {
		if !looks.due(time.Now()) {
			return false, nil
		}
		stats, err := a.control.Stats(ctx)
		now := time.Now()
		looks.looked(now)
		if err != nil {
			return false, nil // it starts
		}
		if stats.Joined > 0 && reached[0].IsZero() {
			reached[0] = now
		}
		for i := 1; i <= parts; i++ {
			if stats.Joined*parts >= i*count && reached[i].IsZero() {
				reached[i] = now
				if i == firstParts || i == parts-lastParts {
					s.profilePhase(ctx) // beginning and end can be compared
				}
			}
		}
		s.Progress.Reach(stats.Joined)
		return stats.Joined >= count, nil
	})
	if err != nil {
		return err
	}
	s.report.Mark("all joined")
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := s.cost("register", before, after, nil)
	s.noteJoins(after, count, reached)
	s.report.Count("register_api_writes_per_cluster", writes.Total()/float64(count), "requests")
	if err := s.tellTruth(ctx, time.Minute, nil); err != nil {
		return err
	}
	size, err := s.noteStore(ctx)
	s.report.Count("etcd_in_use_per_cluster", size.InUse/float64(count), "bytes")
	return err
}

// noteJoins notes how fast clusters joined, and whether that stayed so.
func (s *stage) noteJoins(after reading, count int, reached [parts + 1]time.Time) {
	rate := float64(count) / reached[parts].Sub(reached[0]).Seconds()
	s.report.Put(report.Metric{Name: "joins_per_second", Value: rate, Unit: "1/s", Group: report.Times})
	first, last := 0.0, 0.0
	for i := 1; i <= parts; i++ {
		r := float64(count) / parts / max(reached[i].Sub(reached[i-1]).Seconds(), 0.05)
		s.report.Put(report.Metric{Name: fmt.Sprintf("joins_per_second_in_tenth_%d", i), Value: r, Unit: "1/s", Group: report.Times})
		switch {
		case i <= firstParts:
			first += r / firstParts
		case i > parts-lastParts:
			last += r / lastParts
		}
	}
	s.report.Time("join_p50", after.stats.JoinTime.P50)
	s.report.Time("join_p90", after.stats.JoinTime.P90)
	s.report.Time("join_p99", after.stats.JoinTime.P99)
	s.report.Component("register_hub_resident_per_cluster", max(0, after.hub.Resident-restingHub)/float64(count), "bytes")
	s.report.AtLeast("joins per second", rate, joinsPerSecond, "1/s")
	// A few hundred joins are over before a rate can be told.
	if count >= 1000 {
		s.report.Timed("the rate stays flat", last >= 0.8*first, "%.0f/s in the first three tenths, %.0f/s in the last three", first, last)
	}
	s.report.Check("no join was refused", after.stats.Refusals == 0, "%d refusals, last: %q", after.stats.Refusals, after.stats.LastRefusal)
}
