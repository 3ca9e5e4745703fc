package scenario

import (
	"context"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/report"
	"atoll.dev/atoll/lab/fleet"
)

const (
	flipsPerMinute = 2
	// summariesWithin bounds the lag of shown counts.
	summariesWithin = 10 * time.Second
	// rowsPerSlice is how many rows a slice holds.
	rowsPerSlice = 200
)

// The writes that a hub may make for turning health, in writes a second. These figures are
// independent of the hub's own, so that a hub with a higher rate fails: 151 at full size,
// where the two budgets bound it.
const (
	mostSliceWrites, mostStatusWrites = 100, 50
	// For one slice, after a burst, and for one status.
	sliceEvery, sliceBurst = 4.0, 3 // s
	statusEvery            = 2.0    // s
)

// maxStormWritesPerSecond returns the most writes per second over a span of seconds.
func maxStormWritesPerSecond(slices, statuses int, span float64) float64 {
	// A burst may be written at once before the rate holds.
	paced := func(objects, burst int, every, budget float64) float64 {
		return min(float64(objects)*(float64(burst)+span/every), budget*(1+span)) / span
	}
	return paced(slices, sliceBurst, sliceEvery, mostSliceWrites) + paced(statuses, 1, statusEvery, mostStatusWrites)
}

// flipHealth lets the health of all rows flip for a while, and on.
func (s *testbed) flipHealth(ctx context.Context) error {
	s.report.MarkNow("flips begin")
	if err := s.setRates(ctx, fleet.FaultRates{FlipsPerMinute: flipsPerMinute}); err != nil {
		return err
	}
	s.Progress.BeginStep("health flips", 0)
	return lab.PauseFor(ctx, s.idleSpan())
}

// runStatusStorm flips the health of all rows all the time.
func runStatusStorm(ctx context.Context, s *testbed) error {
	const groups = 10
	if err := s.startHubAndFleet(ctx, fleetSize{count: s.atScale(10_000, 2*groups), groups: groups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	apps := s.newApplications("storm", 10*groups)
	if err := s.applyAll(ctx, "applying applications", apps); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		return err
	}
	p, err := s.newProbe(ctx)
	if err != nil {
		return err
	}
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	l := s.newLagWatch(b, apps)
	l.start(ctx)
	p.start(ctx)
	if err := s.flipHealth(ctx); err != nil {
		return err
	}
	own := p.stopAndReport("calls_while_health_flips")
	after, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	if err := l.stopAndReport("summaries"); err != nil {
		return err
	}
	writes := s.reportCost("status_storm", before, after, own)
	s.checkWriteRate(writes.TotalCount(), apps, before, after)
	if err := s.setRates(ctx, fleet.FaultRates{}); err != nil {
		return err
	}
	s.report.MarkNow("flips end")
	if err := s.awaitShownCounts(ctx, l); err != nil {
		return err
	}
	// Failed members stay failed: the check is about correctness, not health.
	return s.verifyFleetHealth(ctx, time.Minute, apps, true)
}

// checkWriteRate checks that the rate of writes stays below the bound of the hub's upkeep,
// independent of the rate of flips.
func (s *testbed) checkWriteRate(writes float64, apps []application, before, after costReading) {
	span := after.at.Sub(before.at)
	slices := 0
	for _, a := range apps {
		slices += (s.countClustersOf(a) + rowsPerSlice - 1) / rowsPerSlice
	}
	most := maxStormWritesPerSecond(slices, 2*len(apps), span.Seconds()) // statuses of Bundles and templates
	reports, flips := float64(after.stats.Reports-before.stats.Reports)/span.Seconds(), s.countPairs(apps)*flipsPerMinute/60
	s.report.AddCount("status_storm_reports_per_second", reports, "1/s")
	s.report.AddCheck("all rows flip at their rate", reports >= 0.9*flips, "%.1f reports a second of %.1f flips", reports, flips)
	rate := writes / span.Seconds()
	s.report.AddCount("status_storm_api_writes_per_second", rate, "1/s")
	s.report.AddCount("status_storm_slices", float64(slices), "slices")
	since := func(name string) float64 { return after.metrics.SumSeries(name) - before.metrics.SumSeries(name) }
	if n := since("atoll_gateway_reports_written_total"); n > 0 {
		s.report.PutMetric(report.Metric{Name: "status_storm_report_to_store_mean", Group: report.GroupTimes, Unit: "s",
			Value: since("atoll_gateway_reports_waited_seconds_total") / n})
	}
	s.report.CheckAtMost("API writes per second are within a hub's upkeep", rate, most, "1/s")
}

// awaitShownCounts waits until Bundles and templates show the actual counts.
func (s *testbed) awaitShownCounts(ctx context.Context, l *lagWatch) error {
	s.Progress.BeginStep("summaries become right", 0)
	begin := time.Now()
	var detail string
	err := pollUntil(ctx, "summaries become right", lagEvery, 2*time.Minute, func(ctx context.Context) (ok bool, err error) {
		ok, detail, err = l.areShownCountsCorrect(ctx)
		return ok, err
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	took := time.Since(begin)
	s.report.AddTime("summaries_right", took)
	s.report.AddMachineDependentCheck("summaries are right within 10 s of the last flip", err == nil && took <= summariesWithin, "after %.1f s: %s", took.Seconds(), detail)
	return nil
}
