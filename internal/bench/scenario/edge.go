package scenario

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	edgeGroups = 100
	// edgePerCluster applications are on each cluster: one that all have, and the
	// rest of its group.
	edgePerCluster = 10
	edgeInterval   = 15 * time.Minute
)

// interval between check-ins: shorter where the fleet is smaller, so that as many agents
// call per second.
func (s *stage) interval() time.Duration {
	return max(20*time.Second, time.Duration(float64(edgeInterval)*min(1, s.Scale)).Round(time.Second))
}

// edge is a fleet that checks in now and then. In a directory of an earlier run the
// clusters need not join again.
func edge(ctx context.Context, s *stage) error {
	groups := s.scaled(edgeGroups, 4)
	count := s.scaled(100_000, 10*groups)
	every := s.interval()
	s.report.Count("check_in_interval", every.Seconds(), "s")
	if err := s.open(ctx, crowd{count: count, groups: groups, checkIn: every}); err != nil {
		return err
	}
	if err := s.rates(ctx, fleet.Rates{HealthDelay: pairDelay}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	defer func() {
		s.report.Within("hub resident, at its peak", s.hubPeak(), budget(s.Scale, emptyHub, 8e9), "bytes")
	}()
	apps := s.apps("edge", groups*(edgePerCluster-1))
	all := app{namespace: "everywhere", name: "everywhere", group: -1, image: "registry.example/app:1"}
	apps = append(apps, all)
	if err := s.placeEdge(ctx, b, apps, every); err != nil {
		return err
	}
	size, err := s.noteStore(ctx)
	if err != nil {
		return err
	}
	s.report.AtMost("etcd in use after compaction", size.InUse, budget(s.Scale, emptyStore, 2e9), "bytes")
	if err := s.restartEdge(ctx); err != nil {
		return err
	}
	if err := s.changeEverywhere(ctx, b, &apps[len(apps)-1], every); err != nil {
		return err
	}
	if err := s.tellTruth(ctx, 2*every, apps); err != nil {
		return err
	}
	return s.edgeAtRest(ctx, every)
}

// loads are written of all clusters that have new applications, so many a second however
// many there are: what a large fleet's pods ask for trails by more than an hour.
const loads = "PUT clusters/status"

// placeEdge applies the applications, and waits until all agents have them and the hub
// knows.
func (s *stage) placeEdge(ctx context.Context, b *bundles, apps []app, every time.Duration) error {
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	s.noteMemory("nothing_placed", before)
	s.profilePhase(ctx)
	s.report.Mark("apply")
	begin := time.Now()
	if err := s.applyAll(ctx, "applying applications", apps); err != nil {
		return err
	}
	// A row is ordered at one check-in, and its health may come with the next.
	if err := s.awaitReady(ctx, b, apps, 4*every+5*time.Minute, nil); err != nil {
		return err
	}
	s.report.Mark("all healthy")
	s.report.Time("all_placed_and_healthy", time.Since(begin))
	s.report.Count("rows_in_all", s.pairsOf(apps), "rows")
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.cost("placed", before, after, ownWrites(len(apps)))
	// Members that lost what they held are ordered it anew, each when it is its turn.
	return s.tellTruth(ctx, 2*every, apps)
}

// edgeAtRest measures what a round of check-ins costs in which nothing is new; between
// two of one agent there are less than 1.2 intervals.
func (s *stage) edgeAtRest(ctx context.Context, every time.Duration) error {
	before, err := s.settled(ctx, quiet, 5*time.Minute, loads)
	if err != nil {
		return err
	}
	s.profilePhase(ctx)
	s.quietly(true)
	s.Progress.Step("agents check in, and nothing is new", 0)
	if err := pause(ctx, every*12/10); err != nil {
		return err
	}
	s.quietly(false)
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	writes := s.cost("at_rest", before, after, nil)
	s.noteMemory("at_rest", after)
	visits := float64(after.stats.CheckIns - before.stats.CheckIns)
	s.report.Count("at_rest_check_ins", visits, "check-ins")
	agents := float64(s.fleets[0].count)
	s.report.Check("all agents checked in meanwhile", visits >= agents, "%.0f check-ins of %.0f agents", visits, agents)
	visits = max(1, visits)
	s.report.Component("hub_cpu_per_check_in", (after.hub.CPU-before.hub.CPU)/visits, "s")
	s.report.Component("simulator_cpu_per_check_in", (after.sims.CPU-before.sims.CPU)/visits, "s")
	trailing := writes[loads]
	s.report.AtMost("API writes of a round of check-ins in which nothing is new", writes.Total()-trailing, 10, "requests")
	s.report.AtMost("loads that are written meanwhile", trailing/after.at.Sub(before.at).Seconds(), 1.1*atoll.UpkeepClusters, "1/s")
	return nil
}

// changeEverywhere edits the application that all clusters have.
func (s *stage) changeEverywhere(ctx context.Context, b *bundles, all *app, every time.Duration) error {
	before, err := s.read(ctx)
	if err != nil {
		return err
	}
	old := b.revisions([]app{*all})
	// An earlier run in the directory may have brought it to any image but this one.
	all.image = fmt.Sprintf("registry.example/app:%d", before.at.Unix())
	s.profilePhase(ctx)
	s.report.Mark("fleet-wide change")
	if err := s.applyDeployment(ctx, *all); err != nil {
		return err
	}
	applied := time.Now()
	if err := s.awaitReady(ctx, b, []app{*all}, 4*every, old); err != nil {
		return err
	}
	took := b.get(all.key()).ready.Sub(applied)
	s.report.Mark("confirmed by all")
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	s.cost("change_everywhere", before, after, measure.Writes{"APPLY deployments": 1})
	s.report.Time("change_everywhere_confirmed", took)
	s.report.Within("a fleet-wide change is confirmed by all", took.Seconds(), 2*every.Seconds(), "s")
	return nil
}

// restartEdge kills the hub and starts it.
func (s *stage) restartEdge(ctx context.Context) error {
	if err := s.kill(ctx, s.hubs[0].Spec); err != nil {
		return err
	}
	s.report.Mark("hub killed")
	serving, err := s.startHub(ctx)
	if err != nil {
		return err
	}
	s.report.Time("restart_to_serving", serving)
	s.report.Within("restart to serving", serving.Seconds(), 60, "s")
	if at, err := s.hubCosts(); err == nil {
		s.report.Component("restart_cpu_until_serving", at.CPU, "s")
		s.report.Component("restart_hub_resident_when_serving", at.Resident, "bytes")
	}
	ready, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	start := ready.metrics.Writes()
	s.report.Count("restart_api_writes", start.Total(), "requests")
	s.report.Note("API writes of the restarted hub: %s", start)
	s.report.AtMost("API writes of a restarted hub, to which nothing is new", start.Total(), 50, "requests")
	s.noteMemory("restarted", ready)
	return nil
}

// noteMemory puts what the hub's memory is made of.
func (s *stage) noteMemory(phase string, at reading) {
	for _, part := range []struct {
		name  string
		bytes float64
	}{
		{"anonymous", at.hub.Resident - at.hub.File},
		{"files", at.hub.File},
		{"heap", at.metrics.Sum("go_memstats_heap_alloc_bytes")},
		{"heap_unused", at.metrics.Sum("go_memstats_heap_idle_bytes") - at.metrics.Sum("go_memstats_heap_released_bytes")},
		{"stacks", at.metrics.Sum("go_memstats_stack_inuse_bytes")},
	} {
		s.report.Component(phase+"_hub_memory_"+part.name, part.bytes, "bytes")
	}
}
