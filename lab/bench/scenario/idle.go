package scenario

import (
	"context"
	"time"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/fleet"
)

const (
	// manyAgents is a number at which the cost of each agent exceeds the cost of the empty
	// processes.
	manyAgents = 2000
	// restingHub is the memory of a hub without agents.
	restingHub = 400e6
	// emptySimulator is the memory of a simulator without agents.
	emptySimulator = 130e6
)

// idleSpan is the time without changes. It is shorter in small runs, and longer than the 35
// s after which a silent cluster counts as disconnected.
func (s *testbed) idleSpan() time.Duration {
	if s.Scale < 0.5 {
		return 45 * time.Second
	}
	return 2 * time.Minute
}

// runIdle watches a fleet without changes.
func runIdle(ctx context.Context, s *testbed) error {
	const groups = 10
	if err := s.startHubAndFleet(ctx, fleetSize{count: s.atScale(10_000, 2*groups), groups: groups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.setRates(ctx, fleet.FaultRates{HealthDelay: pairDelay}); err != nil {
		return err
	}
	// One application per cluster: agents without rows would be too easy.
	apps := s.newApplications("idle", groups)
	if err := s.applyAll(ctx, "applying an application per group", apps); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		return err
	}
	if _, err := s.readSettledCost(ctx, 2*quietTime, 5*time.Minute); err != nil {
		return err
	}
	b.stop()
	s.pauseHubSamples(true)
	s.Progress.BeginStep("nothing happens", 0)
	before, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	// The cost of reading the metrics does not count.
	hub, err := s.hubCosts()
	if err != nil {
		return err
	}
	begin := time.Now()
	s.report.MarkNow("idle")
	if err := lab.PauseFor(ctx, s.idleSpan()); err != nil {
		return err
	}
	idled, err := s.hubCosts()
	if err != nil {
		return err
	}
	cores := (idled.CPU - hub.CPU) / time.Since(begin).Seconds()
	after, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	s.pauseHubSamples(false)
	s.reportIdle(before, after, cores)
	return s.verifyFleet(ctx, time.Minute, apps)
}

// reportIdle adds the figures and checks of a time without changes.
func (s *testbed) reportIdle(before, after costReading, cores float64) {
	writes := s.reportCost("idle", before, after, nil)
	s.reportHubMemory("idle", after)
	agents := float64(s.fleets[0].count)
	s.report.AddCount("agents", agents, "agents")
	s.report.AddComponentUsage("idle_hub_cores", cores, "cores")
	s.report.AddComponentUsage("hub_resident_per_agent", after.hub.Resident/agents, "bytes")
	s.report.AddComponentUsage("simulator_resident_per_agent", after.sims.Resident/agents, "bytes")
	s.report.AddComponentUsage("resident_per_agent", (after.hub.Resident+after.sims.Resident)/agents, "bytes")
	s.report.AddCheck("no API writes while nothing changes, the hub's leases aside", writes.TotalCount() == 0, "%.0f requests: %s", writes.TotalCount(), writes)
	revisions := float64(after.store.Revision-before.store.Revision) - leaseRenewalRevisions(before, after)
	s.report.CheckAtMost("revisions of etcd while nothing changes, the hub's leases aside", revisions, 0, "revisions")
	s.report.AddCheck("all agents stay connected all the while", allStayedConnected(before.stats, after.stats),
		"of %d agents %d were connected before and %d after, and %d connected again", after.stats.Agents, before.stats.Connected, after.stats.Connected,
		after.stats.Connects-before.stats.Connects)
	s.report.CheckMachineDependentAtMost("CPU of the hub", cores, budgetForShare(s.Scale, 0.05, 0.1), "cores")
	if agents >= manyAgents {
		s.report.CheckMachineDependentAtMost("resident in hub and simulator per agent, less empty ones where the run is small",
			(after.hub.Resident+after.sims.Resident-s.boundForSmallRun(restingHub+emptySimulator))/agents, 120e3, "bytes")
	}
}

// allStayedConnected reports whether all agents were connected between the two, without a
// new connection.
func allStayedConnected(before, after fleet.Stats) bool {
	return before.Connected == before.Agents && after.Connected == after.Agents && after.Connects == before.Connects
}

// boundForSmallRun returns the part of a bound that does not shrink with the fleet, for runs below
// full size.
func (s *testbed) boundForSmallRun(empty float64) float64 {
	if s.Scale >= 1 {
		return 0
	}
	return empty
}
