package scenario

import (
	"context"
	"time"

	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	// manyAgents are so many that what each takes can be told from what processes
	// take by themselves.
	manyAgents = 2000
	// restingHub is what a hub takes that serves nobody.
	restingHub = 400e6
	// emptySimulator is what a simulator takes without agents.
	emptySimulator = 130e6
)

// idleSpan is how long nothing is to happen; less in small runs, and longer than the 35 s
// after which a cluster that says nothing counts as away.
func (s *stage) idleSpan() time.Duration {
	if s.Scale < 0.5 {
		return 45 * time.Second
	}
	return 2 * time.Minute
}

// idle watches a fleet in which nothing changes.
func idle(ctx context.Context, s *stage) error {
	const groups = 10
	if err := s.open(ctx, crowd{count: s.scaled(10_000, 2*groups), groups: groups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.rates(ctx, fleet.Rates{HealthDelay: pairDelay}); err != nil {
		return err
	}
	// One application per cluster: agents that hold nothing would be too easy.
	apps := s.apps("idle", groups)
	if err := s.applyAll(ctx, "applying an application per group", apps); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		return err
	}
	if _, err := s.settled(ctx, 2*quiet, 5*time.Minute); err != nil {
		return err
	}
	b.stop()
	s.quietly(true)
	s.Progress.Step("nothing happens", 0)
	before, err := s.read(ctx)
	if err != nil {
		return err
	}
	// What reading the metrics costs the hub is not the clusters' doing.
	hub, err := s.hubCosts()
	if err != nil {
		return err
	}
	begin := time.Now()
	s.report.Mark("idle")
	if err := pause(ctx, s.idleSpan()); err != nil {
		return err
	}
	idled, err := s.hubCosts()
	if err != nil {
		return err
	}
	cores := (idled.CPU - hub.CPU) / time.Since(begin).Seconds()
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.quietly(false)
	writes := s.cost("idle", before, after, nil)
	s.noteMemory("idle", after)
	agents := float64(s.fleets[0].count)
	s.report.Count("agents", agents, "agents")
	s.report.Component("idle_hub_cores", cores, "cores")
	s.report.Component("hub_resident_per_agent", after.hub.Resident/agents, "bytes")
	s.report.Component("simulator_resident_per_agent", after.sims.Resident/agents, "bytes")
	s.report.Component("resident_per_agent", (after.hub.Resident+after.sims.Resident)/agents, "bytes")
	s.report.AtMost("API writes while nothing changes, the hub's leases aside", writes.Total(), 0, "requests")
	revisions := float64(after.store.Revision-before.store.Revision) - ownRevisions(before, after)
	s.report.AtMost("revisions of etcd while nothing changes, the hub's leases aside", revisions, 0, "revisions")
	s.report.Check("all agents stay connected all the while", stayed(before.stats, after.stats),
		"of %d agents %d were connected before and %d after, and %d connected anew", after.stats.Agents, before.stats.Connected, after.stats.Connected,
		after.stats.Connects-before.stats.Connects)
	s.report.Within("CPU of the hub", cores, budget(s.Scale, 0.05, 0.1), "cores")
	if agents >= manyAgents {
		s.report.Within("resident in hub and simulator per agent, less empty ones where the run is small",
			(after.hub.Resident+after.sims.Resident-s.smallRun(restingHub+emptySimulator))/agents, 120e3, "bytes")
	}
	return s.tellTruth(ctx, time.Minute, apps)
}

// stayed tells whether all agents were connected between the two, none of them anew.
func stayed(before, after fleet.Stats) bool {
	return before.Connected == before.Agents && after.Connected == after.Agents && after.Connects == before.Connects
}

// smallRun gives what does not shrink with the fleet, where the run is not at full
// size.
func (s *stage) smallRun(empty float64) float64 {
	if s.Scale >= 1 {
		return 0
	}
	return empty
}
