package scenario

import (
	"context"
	"fmt"
	"time"

	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/fleet"
)

const (
	edgeGroups = 100
	// edgePerCluster is the number of applications on each cluster: one that all clusters
	// have, and the rest of its group.
	edgePerCluster = 10
	edgeInterval   = 15 * time.Minute
)

// checkInInterval returns the interval of check-ins. It shrinks with the fleet, so that the
// rate of check-ins stays.
func (s *testbed) checkInInterval() time.Duration {
	return max(20*time.Second, time.Duration(float64(edgeInterval)*min(1, s.Scale)).Round(time.Second))
}

// runCheckInFleet runs a fleet that checks in. In a directory of an earlier run the clusters need
// not join again.
func runCheckInFleet(ctx context.Context, s *testbed) error {
	groups := s.atScale(edgeGroups, 4)
	count := s.atScale(100_000, 10*groups)
	every := s.checkInInterval()
	s.report.AddCount("check_in_interval", every.Seconds(), "s")
	if err := s.startHubAndFleet(ctx, fleetSize{count: count, groups: groups, checkIn: every}); err != nil {
		return err
	}
	if err := s.setRates(ctx, fleet.FaultRates{HealthDelay: pairDelay}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	defer func() {
		s.report.CheckMachineDependentAtMost("hub resident, at its peak", s.hubPeakMemory(), budgetForShare(s.Scale, emptyHub, 8e9), "bytes")
	}()
	apps := s.newApplications("edge", groups*(edgePerCluster-1))
	all := application{namespace: "everywhere", name: "everywhere", group: -1, image: "registry.example/app:1"}
	apps = append(apps, all)
	if err := s.placeOnCheckInFleet(ctx, b, apps, every); err != nil {
		return err
	}
	size, err := s.reportStoreSize(ctx)
	if err != nil {
		return err
	}
	s.report.CheckAtMost("etcd in use after compaction", size.InUse, budgetForShare(s.Scale, emptyStore, 2e9), "bytes")
	if err := s.restartHub(ctx); err != nil {
		return err
	}
	if err := s.measureFleetWideChange(ctx, b, &apps[len(apps)-1], every); err != nil {
		return err
	}
	if err := s.verifyFleet(ctx, 2*every, apps); err != nil {
		return err
	}
	return s.measureCheckInsAtRest(ctx, every)
}

// clusterStatusWrites are the loads of clusters with new applications. The hub writes them
// at a fixed rate: in a large fleet the requests of pods trail by more than an hour.
const clusterStatusWrites = "PUT clusters/status"

// placeOnCheckInFleet applies the applications, and waits until all agents have them and the hub
// shows it.
func (s *testbed) placeOnCheckInFleet(ctx context.Context, b *bundleWatch, apps []application, every time.Duration) error {
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	s.reportHubMemory("nothing_placed", before)
	s.startPhaseProfiles(ctx)
	s.report.MarkNow("apply")
	begin := time.Now()
	if err := s.applyAll(ctx, "applying applications", apps); err != nil {
		return err
	}
	// A row is ordered at one check-in, and its health may come with the next.
	if err := s.awaitReady(ctx, b, apps, 4*every+5*time.Minute, nil); err != nil {
		return err
	}
	s.report.MarkNow("all healthy")
	s.report.AddTime("all_placed_and_healthy", time.Since(begin))
	s.report.AddCount("rows_in_all", s.countPairs(apps), "rows")
	after, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	s.reportCost("placed", before, after, expectedUserWrites(len(apps)))
	// Members that lost their state receive it again, each at its turn.
	return s.verifyFleet(ctx, 2*every, apps)
}

// measureCheckInsAtRest measures the cost of a round of check-ins without news. Two check-ins of one
// agent are less than 1.2 intervals apart.
func (s *testbed) measureCheckInsAtRest(ctx context.Context, every time.Duration) error {
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute, clusterStatusWrites)
	if err != nil {
		return err
	}
	s.startPhaseProfiles(ctx)
	s.pauseHubSamples(true)
	s.Progress.BeginStep("agents check in, and nothing is new", 0)
	if err := lab.PauseFor(ctx, every*12/10); err != nil {
		return err
	}
	s.pauseHubSamples(false)
	after, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	writes := s.reportCost("at_rest", before, after, nil)
	s.reportHubMemory("at_rest", after)
	visits := float64(after.stats.CheckIns - before.stats.CheckIns)
	s.report.AddCount("at_rest_check_ins", visits, "check-ins")
	agents := float64(s.fleets[0].count)
	s.report.AddCheck("all agents checked in", visits >= agents, "%.0f check-ins of %.0f agents", visits, agents)
	visits = max(1, visits)
	s.report.AddComponentUsage("hub_cpu_per_check_in", (after.hub.CPU-before.hub.CPU)/visits, "s")
	s.report.AddComponentUsage("simulator_cpu_per_check_in", (after.sims.CPU-before.sims.CPU)/visits, "s")
	trailing := writes[clusterStatusWrites]
	s.report.CheckAtMost("API writes of a round of check-ins in which nothing is new", writes.TotalCount()-trailing, 10, "requests")
	s.report.CheckAtMost("loads that are written at rest", trailing/after.at.Sub(before.at).Seconds(), 1.1*pace.ClusterWrites.TokensPerSecond(), "1/s")
	return nil
}

// measureFleetWideChange edits the application that all clusters have.
func (s *testbed) measureFleetWideChange(ctx context.Context, b *bundleWatch, all *application, every time.Duration) error {
	before, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	old := b.currentRevisions([]application{*all})
	// An earlier run in the directory may have left any image but this one.
	all.image = fmt.Sprintf("registry.example/app:%d", before.at.Unix())
	s.startPhaseProfiles(ctx)
	s.report.MarkNow("fleet-wide change")
	if err := s.applyDeployment(ctx, *all); err != nil {
		return err
	}
	applied := time.Now()
	if err := s.awaitReady(ctx, b, []application{*all}, 4*every, old); err != nil {
		return err
	}
	took := b.get(all.bundleKey()).readySince.Sub(applied)
	s.report.MarkNow("confirmed by all")
	after, err := s.readCost(ctx)
	if err != nil {
		return err
	}
	s.reportCost("change_everywhere", before, after, measure.WriteCounts{"APPLY deployments": 1})
	s.report.AddTime("change_everywhere_confirmed", took)
	s.report.CheckMachineDependentAtMost("a fleet-wide change is confirmed by all", took.Seconds(), 2*every.Seconds(), "s")
	return nil
}

// restartHub kills the hub and starts it.
func (s *testbed) restartHub(ctx context.Context) error {
	if err := s.killProcess(ctx, s.hubs[0].ProcessSpec); err != nil {
		return err
	}
	s.report.MarkNow("hub killed")
	serving, err := s.startFirstHub(ctx)
	if err != nil {
		return err
	}
	s.report.AddTime("restart_to_serving", serving)
	s.report.CheckMachineDependentAtMost("restart to serving", serving.Seconds(), 60, "s")
	if at, err := s.hubCosts(); err == nil {
		s.report.AddComponentUsage("restart_cpu_until_serving", at.CPU, "s")
		s.report.AddComponentUsage("restart_hub_resident_when_serving", at.Resident, "bytes")
	}
	ready, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	start := ready.metrics.WriteCounts()
	s.report.AddCount("restart_api_writes", start.TotalCount(), "requests")
	s.report.AddNote("API writes of the restarted hub: %s", start)
	s.report.CheckAtMost("API writes of a restarted hub, to which nothing is new", start.TotalCount(), 50, "requests")
	s.reportHubMemory("restarted", ready)
	return nil
}

// reportHubMemory reports the parts of the hub's memory.
func (s *testbed) reportHubMemory(phase string, at costReading) {
	for _, part := range []struct {
		name  string
		bytes float64
	}{
		{"anonymous", at.hub.Resident - at.hub.File},
		{"files", at.hub.File},
		{"heap", at.metrics.SumSeries("go_memstats_heap_alloc_bytes")},
		{"heap_unused", at.metrics.SumSeries("go_memstats_heap_idle_bytes") - at.metrics.SumSeries("go_memstats_heap_released_bytes")},
		{"stacks", at.metrics.SumSeries("go_memstats_stack_inuse_bytes")},
	} {
		s.report.AddComponentUsage(phase+"_hub_memory_"+part.name, part.bytes, "bytes")
	}
}
