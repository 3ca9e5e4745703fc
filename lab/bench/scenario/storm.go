package scenario

import (
	"context"
	"fmt"
	"math"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/fleet"
)

const (
	// stormGroups is the number of groups of the fleet, with one application each.
	stormGroups = 10
	// cutFor is how long all links are down.
	cutFor = 5 * time.Second
	// backWithin is the time in which all agents must be back.
	backWithin = 90 * time.Second
	// flapPerMinute is the share of agents that drop each minute.
	flapPerMinute = 0.05
)

// runReconnectStorm takes the hub away from all agents at once, by cutting all links and then by
// killing the hub, and checks their return.
func runReconnectStorm(ctx context.Context, s *testbed) error {
	apps, err := s.startStormFleet(ctx)
	if err != nil {
		return err
	}
	if err := s.cutAllLinks(ctx); err != nil {
		return err
	}
	if err := s.verifyFleet(ctx, time.Minute, apps); err != nil {
		return err
	}
	return s.killHubUnderAllAgents(ctx)
}

// startStormFleet starts a settled fleet with an application in each cluster.
func (s *testbed) startStormFleet(ctx context.Context) ([]application, error) {
	if err := s.startHubAndFleet(ctx, fleetSize{count: s.atScale(10_000, 2*stormGroups), groups: stormGroups}); err != nil {
		return nil, err
	}
	apps := s.newApplications("storm", stormGroups)
	if err := s.applyAndWait(ctx, "applying an application per group", apps); err != nil {
		return nil, err
	}
	_, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	return apps, err
}

// cutAllLinks cuts all links; the hub continues.
func (s *testbed) cutAllLinks(ctx context.Context) error {
	p, before, err := s.startProbeWhenQuiet(ctx)
	if err != nil {
		return err
	}
	s.report.MarkNow("links cut")
	if err := s.fleets[0].control.DropLinks(ctx, fleet.DropOrder{Share: 1, For: cutFor}); err != nil {
		return err
	}
	err = s.awaitAgentsBack(ctx, "links_cut", time.Now().Add(cutFor), before.stats)
	own := p.stopAndReport("calls_while_links_return")
	if err != nil {
		return err
	}
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := s.reportCost("links_cut", before, after, own)
	// A disconnection of seconds is not written.
	s.report.CheckAtMost("API writes while all agents return", writes.TotalCount(), 10, "requests")
	return nil
}

// killHubUnderAllAgents kills the hub under all agents and starts it again.
func (s *testbed) killHubUnderAllAgents(ctx context.Context) error {
	p, err := s.newProbe(ctx)
	if err != nil {
		return err
	}
	before, err := s.fleetStats(ctx)
	if err != nil {
		return err
	}
	s.report.MarkNow("hub killed")
	if err := s.killProcess(ctx, s.hubs[0].ProcessSpec); err != nil {
		return err
	}
	// Agents notice, and their dials fail.
	if err := lab.PauseFor(ctx, cutFor); err != nil {
		return err
	}
	begin := time.Now()
	serving, err := s.startFirstHub(ctx)
	if err != nil {
		return err
	}
	s.report.AddTime("hub_restart", serving)
	p.start(ctx)
	err = s.awaitAgentsBack(ctx, "hub_killed", begin, before)
	own := p.stopAndReport("calls_while_agents_return_to_a_new_hub")
	if err != nil {
		return err
	}
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := after.metrics.WriteCounts().SubtractCounts(own)
	s.report.AddCount("hub_killed_api_writes", writes.TotalCount(), "requests")
	s.report.AddNote("API writes of the hub that was started under all agents: %s", writes)
	s.report.CheckAtMost("API writes of a hub that all agents return to", writes.TotalCount(), 50, "requests")
	return nil
}

// awaitAgentsBack waits until all agents have connected once more than before, and reports the
// time since the hub was reachable. The agents may be back before the first look.
func (s *testbed) awaitAgentsBack(ctx context.Context, phase string, since time.Time, before fleet.Stats) error {
	s.Progress.BeginStep("all agents return", s.fleets[0].count)
	err := pollUntil(ctx, "all agents return", 100*time.Millisecond, 10*time.Minute, func(ctx context.Context) (bool, error) {
		stats, err := s.fleetStats(ctx)
		if err != nil {
			return false, err
		}
		s.Progress.SetDone(stats.Connected)
		returned := stats.Connects-before.Connects >= int64(stats.Agents)
		return returned && stats.Connected == stats.Agents && stats.Unacknowledged == 0, nil
	})
	if err != nil {
		return err
	}
	took := time.Since(since)
	s.report.MarkNow("all back")
	s.report.AddTime(phase+"_until_all_back", took)
	s.report.CheckMachineDependentAtMost(fmt.Sprintf("all agents back (%s)", phase), took.Seconds(), backWithin.Seconds(), "s")
	return nil
}

// runFlappingAgents drops agents all the time while applications change.
func runFlappingAgents(ctx context.Context, s *testbed) error {
	apps, err := s.startStormFleet(ctx)
	if err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	rows, err := s.readRowSpecs(ctx)
	if err != nil {
		return err
	}
	p, before, err := s.startProbeWhenQuiet(ctx)
	if err != nil {
		return err
	}
	s.report.MarkNow("flapping")
	// Some are disconnected for longer than the time to Unknown.
	if err := s.setRates(ctx, fleet.FaultRates{OfflinePerMinute: flapPerMinute, OfflineFor: 45 * time.Second}); err != nil {
		return err
	}
	begin := time.Now()
	// Half of the applications change, the others must stay unchanged.
	changing, still := apps[:len(apps)/2], apps[len(apps)/2:]
	changes, err := s.changeWhileFlapping(ctx, changing)
	if err != nil {
		return err
	}
	flapped := time.Since(begin)
	own := p.stopAndReport("calls_while_flapping")
	s.report.MarkNow("flapping ends")
	if err := s.setRates(ctx, fleet.FaultRates{}); err != nil {
		return err
	}
	// Some agents drew minutes of disconnection, and are not missed before they are
	// Unknown.
	if err := s.awaitAgents(ctx, s.fleets[0], "all agents return", 10*time.Minute, func(t fleet.Stats) int { return t.Connected }); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		return err
	}
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	own["APPLY deployments"] = float64(changes)
	s.reportCost("flap", before, after, own)
	outages, least := float64(after.stats.Outages-before.stats.Outages), leastPlausibleCount(flapPerMinute*float64(s.fleets[0].count)*flapped.Minutes())
	s.report.AddCount("outages", outages, "outages")
	s.report.AddCheck("agents dropped at their rate", outages >= least, "%.0f outages, at least %.0f", outages, least)
	s.report.AddCheck("no cluster was being left", b.maxRemoving == 0, "at most %d rows of a Bundle were Removing", b.maxRemoving)
	if err := s.checkRowsUnmovedExceptFresh(ctx, rows, still, nil); err != nil {
		return err
	}
	return s.verifyFleet(ctx, 2*time.Minute, apps)
}

// leastPlausibleCount returns the least plausible count of random events: three standard
// deviations below the mean, and at least one.
func leastPlausibleCount(expected float64) float64 {
	return max(1, math.Floor(expected-3*math.Sqrt(expected)))
}

// changeWhileFlapping edits applications in turn for a while, and returns the number of
// edits.
func (s *testbed) changeWhileFlapping(ctx context.Context, apps []application) (int, error) {
	span := 3 * time.Minute
	if s.Scale < 0.5 {
		span = time.Minute
	}
	s.Progress.BeginStep("agents drop while applications change", int(span.Seconds()))
	begin := time.Now()
	var reached measure.Distribution
	for n := 0; ; n++ {
		if since := time.Since(begin); since >= span {
			s.report.AddDistribution("change_to_connected_clusters_while_flapping", reached.SortedValues())
			return n, nil
		}
		a := &apps[n%len(apps)]
		a.image = fmt.Sprintf("registry.example/app:flap.%d", n)
		upserts, err := s.fleetStats(ctx)
		if err != nil {
			return n, err
		}
		if err := s.applyDeployment(ctx, *a); err != nil {
			return n, err
		}
		applied := time.Now()
		// Nine of ten clusters are connected at any time, and must receive it.
		want := upserts.Upserts + int64(s.countClustersOf(*a)*8/10)
		if err := pollUntil(ctx, "connected clusters get a change", 50*time.Millisecond, 30*time.Second, func(ctx context.Context) (bool, error) {
			now, err := s.fleetStats(ctx)
			return now.Upserts >= want, err
		}); err != nil {
			return n, err
		}
		reached.Add(time.Since(applied))
		s.Progress.SetDone(int(time.Since(begin).Seconds()))
		if err := lab.PauseFor(ctx, 2*time.Second); err != nil {
			return n, err
		}
	}
}
