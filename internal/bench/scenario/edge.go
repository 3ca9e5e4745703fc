package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	edgeGroups = 100
	// edgePerCluster applications are on each cluster: one that all have, and the
	// rest of its group.
	edgePerCluster = 10
	edgeInterval   = 5 * time.Minute
)

// interval between check-ins: the fifteen minutes of the field are made shorter, and
// shorter still where the fleet is smaller, so that as many agents call per second.
func (s *stage) interval() time.Duration {
	return max(20*time.Second, time.Duration(float64(edgeInterval)*min(1, s.Scale)).Round(time.Second))
}

// edge is a fleet that checks in now and then.
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
	apps := s.apps("edge", groups*(edgePerCluster-1))
	all := app{namespace: "everywhere", name: "everywhere", group: -1, image: "registry.example/app:1"}
	apps = append(apps, all)
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
	if err := s.tellTruth(ctx, every, apps); err != nil {
		return err
	}
	if err := s.edgeAtRest(ctx, every); err != nil {
		return err
	}
	if err := s.changeEverywhere(ctx, b, &apps[len(apps)-1], every); err != nil {
		return err
	}
	size, err := s.noteStore(ctx)
	if err != nil {
		return err
	}
	s.report.Within("hub resident, at its peak", s.sampler.hubPeak, budget(s.Scale, emptyHub, 8e9), "bytes")
	s.report.AtMost("etcd in use after compaction", size.InUse, budget(s.Scale, emptyStore, 2e9), "bytes")
	return s.restartEdge(ctx, slices.Clone(apps), every)
}

// edgeAtRest measures what two rounds of check-ins cost in which nothing is new.
func (s *stage) edgeAtRest(ctx context.Context, every time.Duration) error {
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	s.Progress.Step("agents check in, and nothing is new", 0)
	if err := pause(ctx, 2*every); err != nil {
		return err
	}
	after, err := s.read(ctx)
	if err != nil {
		return err
	}
	writes := s.cost("at_rest", before, after, nil)
	s.report.Count("at_rest_check_ins", float64(after.stats.CheckIns-before.stats.CheckIns), "check-ins")
	s.report.AtMost("API writes of two rounds of check-ins in which nothing is new", writes.Total(), 10, "requests")
	return nil
}

// changeEverywhere edits the application that all clusters have.
func (s *stage) changeEverywhere(ctx context.Context, b *bundles, all *app, every time.Duration) error {
	before, err := s.read(ctx)
	if err != nil {
		return err
	}
	old := b.revisions([]app{*all})
	all.image = "registry.example/app:2"
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
	s.cost("change_everywhere", before, after, nil)
	s.report.Time("change_everywhere_confirmed", took)
	s.report.Within("a fleet-wide change is confirmed by all", took.Seconds(), 2*every.Seconds(), "s")
	return nil
}

// restartEdge kills the hub and starts it.
func (s *stage) restartEdge(ctx context.Context, apps []app, every time.Duration) error {
	if err := s.hubs[0].Kill(ctx); err != nil {
		return err
	}
	s.report.Mark("hub killed")
	serving, err := s.startHub(ctx)
	if err != nil {
		return err
	}
	s.report.Time("restart_to_serving", serving)
	s.report.Within("restart to serving", serving.Seconds(), 60, "s")
	// Each agent has called once more when an interval has passed.
	if err := pause(ctx, every); err != nil {
		return err
	}
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	writes := after.metrics.Writes()
	s.report.Count("restart_api_writes", writes.Total(), "requests")
	s.report.Note("API writes of the restarted hub: %s", writes)
	s.report.Component("restart_hub_resident", after.hub.Resident, "bytes")
	s.report.AtMost("API writes of a restarted hub, to which nothing is new", writes.Total(), 50, "requests")
	if err := s.tellTruth(ctx, every, apps); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	return nil
}
