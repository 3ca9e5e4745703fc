package scenario

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/lab/bench/report"
)

const (
	// joinsPerSecond is the rate that must be sustained.
	joinsPerSecond = 150
	// registrationParts is the number of parts of a registration, compared to detect
	// slowing.
	registrationParts = 10
	// firstParts and lastParts are the compared parts.
	firstParts, lastParts = 3, 3
	// rareCheckIn is the check-in interval where check-ins are not measured.
	rareCheckIn = 15 * time.Minute
)

// recordJoinProgress notes the parts of all agents that have joined by now.
func (s *testbed) recordJoinProgress(ctx context.Context, reached *[registrationParts + 1]time.Time, joined, count int, now time.Time) {
	if joined > 0 && reached[0].IsZero() {
		reached[0] = now
	}
	for i := 1; i <= registrationParts; i++ {
		if joined*registrationParts >= i*count && reached[i].IsZero() {
			reached[i] = now
			if i == firstParts || i == registrationParts-lastParts {
				s.startPhaseProfiles(ctx) // beginning and end can be compared
			}
		}
	}
}

// runRegistration joins clusters as fast as possible.
func runRegistration(ctx context.Context, s *testbed) error {
	if _, err := s.startFirstHub(ctx); err != nil {
		return err
	}
	count := s.atScale(100_000, 200)
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	empty, err := s.etcd.CompactAndReadSize(ctx)
	if err != nil {
		return err
	}
	s.report.MarkNow("join")
	a, err := s.launchAgents(fleetSize{count: count, groups: 10, checkIn: rareCheckIn})
	if err != nil {
		return err
	}
	s.startSampling(ctx)
	// reached[i] is when i tenths had joined; the first agents wait for the start of the
	// simulator.
	var reached [registrationParts + 1]time.Time
	var looks pollLimiter
	s.Progress.BeginStep(fmt.Sprintf("%d agents join", count), count)
	err = pollUntil(ctx, "all agents join", 50*time.Millisecond, joinPatience, func(ctx context.Context) (bool, error) {
		if !looks.isDue(time.Now()) {
			return false, nil
		}
		stats, err := a.control.ReadStats(ctx)
		now := time.Now()
		looks.recordPoll(now)
		if err != nil {
			return false, nil // the simulator starts
		}
		s.recordJoinProgress(ctx, &reached, stats.Joined, count, now)
		s.Progress.SetDone(stats.Joined)
		return stats.Joined >= count, nil
	})
	if err != nil {
		return err
	}
	s.report.MarkNow("all joined")
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := s.reportCost("register", before, after, nil)
	s.reportJoinRate(after, count, reached)
	s.report.AddCount("register_api_writes_per_cluster", writes.TotalCount()/float64(count), "requests")
	if err := s.verifyFleet(ctx, time.Minute, nil); err != nil {
		return err
	}
	size, err := s.reportStoreSize(ctx)
	s.report.AddCount("etcd_in_use_per_cluster", (size.InUse-empty.InUse)/float64(count), "bytes") // without the schemas of the API, which all clusters share
	return err
}

// reportJoinRate reports the rate of joins, and whether it stayed.
func (s *testbed) reportJoinRate(after costReading, count int, reached [registrationParts + 1]time.Time) {
	rate := float64(count) / reached[registrationParts].Sub(reached[0]).Seconds()
	s.report.PutMetric(report.Metric{Name: "joins_per_second", Value: rate, Unit: "1/s", Group: report.GroupTimes})
	first, last := 0.0, 0.0
	for i := 1; i <= registrationParts; i++ {
		r := float64(count) / registrationParts / max(reached[i].Sub(reached[i-1]).Seconds(), 0.05)
		s.report.PutMetric(report.Metric{Name: fmt.Sprintf("joins_per_second_in_tenth_%d", i), Value: r, Unit: "1/s", Group: report.GroupTimes})
		switch {
		case i <= firstParts:
			first += r / firstParts
		case i > registrationParts-lastParts:
			last += r / lastParts
		}
	}
	s.report.AddTime("join_p50", after.stats.JoinTime.P50)
	s.report.AddTime("join_p90", after.stats.JoinTime.P90)
	s.report.AddTime("join_p99", after.stats.JoinTime.P99)
	s.report.AddComponentUsage("register_hub_resident_per_cluster", max(0, after.hub.Resident-restingHub)/float64(count), "bytes")
	s.report.CheckMachineDependentAtLeast("joins per second", rate, joinsPerSecond, "1/s")
	// A few hundred joins are too short for a rate.
	if count >= 1000 {
		s.report.AddMachineDependentCheck("the rate stays flat", last >= 0.8*first, "%.0f/s in the first three tenths, %.0f/s in the last three", first, last)
	}
	s.report.AddCheck("no join was refused", after.stats.Refusals == 0, "%d refusals, last: %q", after.stats.Refusals, after.stats.LastRefusal)
}
