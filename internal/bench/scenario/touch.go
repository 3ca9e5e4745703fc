package scenario

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	touched     = 10
	touchGroups = 10
	// calm is how long it takes until a hub has given back the memory of a burst, such
	// as agents that join: that belongs to no change.
	calm = 35 * time.Second
)

// changes to measure together: a collection of the hub's garbage falls on dozens of them.
func (s *stage) changes() int {
	if s.CountsOnly {
		return 30
	}
	return 90
}

// fleetSizes of touch, at full scale.
func (s *stage) fleetSizes() []int {
	if s.CountsOnly {
		return []int{100, 4000} // two tell whether counts grow
	}
	return []int{100, 1000, 10_000}
}

// touch changes what ten clusters have, in fleets of different sizes.
func touch(ctx context.Context, s *stage) error {
	// The first fleet has ten clusters in each group; others join one group that no
	// application is for.
	if err := s.open(ctx, crowd{count: touched * touchGroups, groups: touchGroups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	app := s.apps("touch", 2)[1:]
	if err := s.applyAll(ctx, "applying one application", app); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, app, time.Minute, nil); err != nil {
		return err
	}
	if err := s.fillHistory(ctx, b, &app[0]); err != nil {
		return err
	}
	var costs []touchCost
	have := touched * touchGroups
	for i, full := range s.fleetSizes() {
		size := max(have, s.scaled(full, have))
		if i > 0 {
			size = max(size, 2*have) // a fleet has to grow to show anything
			a, err := s.launchAgents(crowd{count: size - have, groups: 1, prefix: fmt.Sprintf("more%d", i)})
			if err != nil {
				return err
			}
			if err := s.awaitJoined(ctx, a); err != nil {
				return err
			}
			have = size
		}
		c, err := s.touchOnce(ctx, b, &app[0], have)
		if err != nil {
			return err
		}
		costs = append(costs, c)
	}
	s.compareTouches(costs)
	return s.tellTruth(ctx, time.Minute, app)
}

// touchCost is what a change costs in a fleet, on average.
type touchCost struct {
	size   int
	writes float64 // API writes
	cpu    float64 // seconds of the hub's
	// allocations of the hub, and the seconds in which they were counted.
	allocations, span float64
}

const (
	// allocationsPerCluster is what a change may allocate for each cluster of the fleet that
	// it does not touch; allocationsPerSecond are room for the pings of its stream.
	allocationsPerCluster = 0.5
	allocationsPerSecond  = 0.4
	// drift is by how many allocations a change is not the same twice, of some 67,000; most
	// often it becomes cheaper, by up to 5,000. The larger the fleet, the less that hides. What
	// place, summarise and inventory allocate is held exactly by tests of their own.
	drift = 800
)

// perCluster gives by how many allocations a change became dearer with each cluster that
// came, and how many that may be. Requests that write are most of what allocates, and
// changes that follow each other share some: they are set off.
func perCluster(small, big touchCost) (got, most float64) {
	const own = 1 // request of the user
	same := small.allocations * (big.writes + own) / (small.writes + own)
	came := float64(big.size - small.size)
	return (big.allocations - same) / came, allocationsPerCluster + allocationsPerSecond*big.span + drift/came
}

// touchOnce changes the application many times, and measures all of them together:
// the kernel counts CPU time in hundredths of a second.
func (s *stage) touchOnce(ctx context.Context, b *bundles, a *app, size int) (touchCost, error) {
	// Members that are healthy at once report once, so that writes can be compared.
	if err := s.rates(ctx, fleet.Rates{}); err != nil {
		return touchCost{}, err
	}
	if _, err := s.settled(ctx, quiet, 3*time.Minute); err != nil {
		return touchCost{}, err
	}
	s.quietly(true)
	defer s.quietly(false)
	if err := s.pauseTimed(ctx, calm); err != nil {
		return touchCost{}, err
	}
	base, err := s.idleCores(ctx)
	if err != nil {
		return touchCost{}, err
	}
	before, err := s.read(ctx)
	if err != nil {
		return touchCost{}, err
	}
	changes := s.changes()
	s.Progress.Step(fmt.Sprintf("changing 10 of %d clusters", size), changes)
	hub, err := s.hubCosts()
	if err != nil {
		return touchCost{}, err
	}
	begin := time.Now()
	var took measure.Distribution
	for i := range changes {
		d, err := s.changeImage(ctx, b, a, fmt.Sprintf("registry.example/app:%d.%d", size, i))
		if err != nil {
			return touchCost{}, err
		}
		took.Add(d)
		s.Progress.Reach(i + 1)
	}
	// What follows a change, such as the policy's status, belongs to it.
	if err := s.pauseTimed(ctx, quiet); err != nil {
		return touchCost{}, err
	}
	changed, err := s.hubCosts()
	if err != nil {
		return touchCost{}, err
	}
	cpu := (changed.CPU - hub.CPU - base*time.Since(begin).Seconds()) / float64(changes)
	after, err := s.still(ctx)
	if err != nil {
		return touchCost{}, err
	}
	phase := fmt.Sprintf("touch_%d", size)
	writes := s.cost(phase, before, after, measure.Writes{"APPLY deployments": float64(changes)})
	allocated, _ := s.report.Metric(phase + "_hub_allocations")
	c := touchCost{
		size: size, writes: writes.Total() / float64(changes), cpu: cpu,
		allocations: allocated.Value / float64(changes), span: after.at.Sub(before.at).Seconds() / float64(changes),
	}
	s.report.Count(phase+"_api_writes_per_change", c.writes, "requests")
	s.report.Component(phase+"_hub_cpu_per_change", c.cpu, "s")
	s.report.Distribution(phase+"_change_to_healthy", took.Values())
	return c, nil
}

// still gives a reading once nothing was stored for long enough. Unlike settled it does not
// look at the metrics in between: each look allocates as much as a change does.
func (s *stage) still(ctx context.Context) (reading, error) {
	s.Progress.Step("the hub finishes what it writes", 0)
	var revision int64
	var since time.Time
	err := until(ctx, "the hub stops writing", 500*time.Millisecond, 3*time.Minute, func(ctx context.Context) (bool, error) {
		size, err := s.etcd.Size(ctx)
		if err == nil && size.Revision != revision {
			revision, since = size.Revision, time.Now()
		}
		return time.Since(since) >= quiet, err
	})
	if err != nil {
		return reading{}, err
	}
	return s.read(ctx)
}

// idleCores is what the hub takes while nothing changes.
func (s *stage) idleCores(ctx context.Context) (float64, error) {
	const span = 15 * time.Second
	if s.CountsOnly {
		return 0, nil
	}
	from, err := s.hubCosts()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, span); err != nil {
		return 0, err
	}
	to, err := s.hubCosts()
	return (to.CPU - from.CPU) / span.Seconds(), err
}

// pauseTimed is pause where times are measured.
func (s *stage) pauseTimed(ctx context.Context, d time.Duration) error {
	if s.CountsOnly {
		return nil
	}
	return pause(ctx, d)
}

// compareTouches checks that changes cost the same in every fleet. Changes that
// follow each other may share the write of a status that waits, so that writes per
// change vary by less than a half.
func (s *stage) compareTouches(costs []touchCost) {
	var writes, cpus, allocations []string
	cheapest, dearest := costs[0], costs[0]
	least, greatest := math.Inf(1), 0.0
	fewest, most := math.Inf(1), 0.0
	for _, c := range costs {
		fewest, most = min(fewest, c.writes), max(most, c.writes)
		if c.cpu < cheapest.cpu {
			cheapest = c
		}
		if c.cpu > dearest.cpu {
			dearest = c
		}
		least, greatest = min(least, c.allocations), max(greatest, c.allocations)
		allocations = append(allocations, fmt.Sprintf("%.0f in %d", c.allocations, c.size))
		writes = append(writes, fmt.Sprintf("%.2f in %d", c.writes, c.size))
		cpus = append(cpus, fmt.Sprintf("%.1f ms in %d", c.cpu*1000, c.size))
	}
	s.report.Check("API writes of a change do not depend on the fleet", most-fewest < 0.5, "%s clusters", strings.Join(writes, ", "))
	s.report.Check("allocations of a change are within 15 %", greatest <= 1.15*least, "%s clusters", strings.Join(allocations, ", "))
	got, allowed := perCluster(costs[0], costs[len(costs)-1])
	s.report.Check("a change allocates nothing for clusters that it does not touch", got <= allowed,
		"%.2f allocations more for each cluster, at most %.2f with what streams take by themselves", got, allowed)
	s.report.Timed("CPU of a change is within 30 %", dearest.cpu <= 1.3*cheapest.cpu, "%s clusters", strings.Join(cpus, ", "))
}

// changeImage edits the application, and gives how long it took until all clusters
// were healthy with it.
func (s *stage) changeImage(ctx context.Context, b *bundles, a *app, image string) (time.Duration, error) {
	old := b.get(a.key()).status.Revision
	a.image = image
	if err := s.applyDeployment(ctx, *a); err != nil {
		return 0, err
	}
	applied := time.Now()
	err := b.await(ctx, "a change reaches all clusters of "+a.key(), time.Minute, func(by map[string]seen) bool {
		return by[a.key()].isReady(s.clustersOf(*a), old)
	})
	return b.get(a.key()).ready.Sub(applied), err
}

// fillHistory makes revisions until the oldest is dropped with each new one.
func (s *stage) fillHistory(ctx context.Context, b *bundles, a *app) error {
	const kept = 10
	s.Progress.Step("filling the history of revisions", kept+2)
	for i := range kept + 2 {
		if _, err := s.changeImage(ctx, b, a, fmt.Sprintf("registry.example/app:history.%d", i)); err != nil {
			return err
		}
		s.Progress.Reach(i + 1)
	}
	return nil
}
