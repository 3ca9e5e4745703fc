package scenario

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	flipsPerMinute = 2
	// rowsPerSlice is how many rows a slice holds.
	rowsPerSlice = 200
	// writePause is how often a slice, a Bundle or a template may be written, on
	// average, while nothing but health flips; summaries have to be right within
	// twice that.
	writePause = 5 * time.Second
)

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
	p.start(ctx)
	s.report.Mark("flips begin")
	if err := s.rates(ctx, fleet.Rates{FlipsPerMinute: flipsPerMinute}); err != nil {
		return err
	}
	s.Progress.Step("health flips", 0)
	if err := pause(ctx, s.idleSpan()); err != nil {
		return err
	}
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	own := p.stop("calls_while_health_flips")
	writes := s.cost("status_storm", before, after, own)
	s.noteRate(writes.Total()/after.at.Sub(before.at).Seconds(), apps, before, after)
	if err := s.rates(ctx, fleet.Rates{}); err != nil {
		return err
	}
	s.report.Mark("flips end")
	return s.awaitSummaries(ctx, b, apps)
}

// noteRate checks that the rate of writes has a bound that does not depend on how
// often health flips: it is that of slices, Bundles and templates.
func (s *stage) noteRate(rate float64, apps []app, before, after reading) {
	objects := 2 * len(apps)
	for _, a := range apps {
		objects += (s.clustersOf(a) + rowsPerSlice - 1) / rowsPerSlice
	}
	reports := float64(after.stats.Reports-before.stats.Reports) / after.at.Sub(before.at).Seconds()
	s.report.Count("status_storm_reports_per_second", reports, "1/s")
	s.report.Count("status_storm_api_writes_per_second", rate, "1/s")
	s.report.AtMost(fmt.Sprintf("API writes per second, of %d slices, Bundles and templates at one in %s each", objects, writePause),
		rate, float64(objects)/writePause.Seconds(), "1/s")
}

// awaitSummaries waits until the Bundles say what agents have reported last.
func (s *stage) awaitSummaries(ctx context.Context, b *bundles, apps []app) error {
	s.Progress.Step("summaries become right", 0)
	begin := time.Now()
	var said, held int
	right := func(ctx context.Context) (bool, error) {
		stats, err := s.stats(ctx)
		if err != nil {
			return false, err
		}
		said, held = 0, stats.RowsHealthy
		for _, a := range apps {
			said += int(b.get(a.key()).status.Clusters.Ready)
		}
		return said == held && stats.Unacknowledged == 0, nil
	}
	err := until(ctx, "summaries become right", 100*time.Millisecond, 2*time.Minute, right)
	took := time.Since(begin)
	s.report.Time("summaries_right", took)
	s.report.Timed("summaries are right within 10 s", err == nil && took <= 10*time.Second, "after %.1f s Bundles count %d ready rows, and agents have %d", took.Seconds(), said, held)
	if err != nil && ctx.Err() != nil {
		return err
	}
	// Members that failed stay so: what is right is checked, not that it is healthy.
	return s.tellTruthOf(ctx, time.Minute, apps, true)
}
