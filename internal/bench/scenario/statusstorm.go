package scenario

import (
	"context"
	"time"

	"atoll.dev/atoll/internal/bench/report"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	flipsPerMinute = 2
	// summariesWithin is how far what people are told may be behind what is.
	summariesWithin = 10 * time.Second
	// rowsPerSlice is how many rows a slice holds.
	rowsPerSlice = 200
)

// What a hub may write for health that turns, in writes a second. These are figures of
// their own, so that a hub that takes more does not get more: 151 at full size, where it
// is the two budgets that hold.
const (
	mostSliceWrites, mostStatusWrites = 100, 50
	// Of one slice, after a burst, and of one status.
	sliceEvery, sliceBurst = 4.0, 3 // s
	statusEvery            = 2.0    // s
)

// stormWrites a second that there may be at most, over so many seconds.
func stormWrites(slices, statuses int, span float64) float64 {
	// A burst is what may be written at once before the pace holds.
	paced := func(objects, burst int, every, budget float64) float64 {
		return min(float64(objects)*(float64(burst)+span/every), budget*(1+span)) / span
	}
	return paced(slices, sliceBurst, sliceEvery, mostSliceWrites) + paced(statuses, 1, statusEvery, mostStatusWrites)
}

// statusStorm lets the health of all rows flip all the time.
func statusStorm(ctx context.Context, s *stage) error {
	const groups = 10
	if err := s.open(ctx, crowd{count: s.scaled(10_000, 2*groups), groups: groups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	apps := s.apps("storm", 10*groups)
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
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	l := s.newLagging(b, apps)
	l.start(ctx)
	p.start(ctx)
	s.report.Mark("flips begin")
	if err := s.rates(ctx, fleet.Rates{FlipsPerMinute: flipsPerMinute}); err != nil {
		return err
	}
	s.Progress.Step("health flips", 0)
	if err := pause(ctx, s.idleSpan()); err != nil {
		return err
	}
	own := p.stop("calls_while_health_flips")
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	if err := l.stop("summaries"); err != nil {
		return err
	}
	writes := s.cost("status_storm", before, after, own)
	s.noteRate(writes.Total(), apps, before, after)
	if err := s.rates(ctx, fleet.Rates{}); err != nil {
		return err
	}
	s.report.Mark("flips end")
	if err := s.awaitSummaries(ctx, l); err != nil {
		return err
	}
	// Members that failed stay so: what is right is checked, not that it is healthy.
	return s.tellTruthOf(ctx, time.Minute, apps, true)
}

// noteRate checks that the rate of writes has the bound that a hub's upkeep has, which
// does not depend on how often health flips.
func (s *stage) noteRate(writes float64, apps []app, before, after reading) {
	span := after.at.Sub(before.at)
	slices := 0
	for _, a := range apps {
		slices += (s.clustersOf(a) + rowsPerSlice - 1) / rowsPerSlice
	}
	most := stormWrites(slices, 2*len(apps), span.Seconds()) // statuses of Bundles and templates
	reports, flips := float64(after.stats.Reports-before.stats.Reports)/span.Seconds(), s.pairsOf(apps)*flipsPerMinute/60
	s.report.Count("status_storm_reports_per_second", reports, "1/s")
	s.report.Check("all rows flip as often as they were told to", reports >= 0.9*flips, "%.1f reports a second of %.1f flips", reports, flips)
	rate := writes / span.Seconds()
	s.report.Count("status_storm_api_writes_per_second", rate, "1/s")
	s.report.Count("status_storm_slices", float64(slices), "slices")
	since := func(name string) float64 { return after.metrics.Sum(name) - before.metrics.Sum(name) }
	if n := since("atoll_gateway_reports_written_total"); n > 0 {
		s.report.Put(report.Metric{Name: "status_storm_report_to_store_mean", Group: report.Times, Unit: "s",
			Value: since("atoll_gateway_reports_waited_seconds_total") / n})
	}
	s.report.AtMost("API writes per second are within a hub's upkeep", rate, most, "1/s")
}

// awaitSummaries waits until Bundles and templates say what is.
func (s *stage) awaitSummaries(ctx context.Context, l *lagging) error {
	s.Progress.Step("summaries become right", 0)
	begin := time.Now()
	var detail string
	err := until(ctx, "summaries become right", lagEvery, 2*time.Minute, func(ctx context.Context) (ok bool, err error) {
		ok, detail, err = l.right(ctx)
		return ok, err
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	took := time.Since(begin)
	s.report.Time("summaries_right", took)
	s.report.Timed("summaries are right within 10 s of the last flip", err == nil && took <= summariesWithin, "after %.1f s: %s", took.Seconds(), detail)
	return nil
}
