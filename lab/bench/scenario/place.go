package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"atoll.dev/atoll/lab/bench/measure"
	"atoll.dev/atoll/lab/fleet"
)

const (
	// healthDelay is the mean time until a simulated member reports an application
	// healthy, in scenarios that measure Atoll's own part.
	healthDelay = 50 * time.Millisecond
	placeRounds = 20
	// quietTime is the time without writes before writes are compared: the status of a
	// policy comes last, 10 s after its cause.
	quietTime = 12 * time.Second
)

// runPlaceOneApp measures the time that one more application takes onto the clusters of a group.
func runPlaceOneApp(ctx context.Context, s *testbed) error {
	const groups = 10
	clusters := s.atScale(1000, 2*groups)
	if err := s.startHubAndFleet(ctx, fleetSize{count: clusters, groups: groups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	present := s.newApplications("present", s.atScale(1000, groups))
	if err := s.applyAll(ctx, "applying what is there before", present); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, present, 10*time.Minute, nil); err != nil {
		return err
	}
	if err := s.setRates(ctx, fleet.FaultRates{HealthDelay: healthDelay}); err != nil {
		return err
	}
	placed := s.newApplications("placed", placeRounds)
	if err := s.makeNamespaces(ctx, placed); err != nil {
		return err
	}
	before, err := s.readSettledCost(ctx, quietTime, 3*time.Minute)
	if err != nil {
		return err
	}
	s.pauseHubSamples(true) // reading metrics allocates, which would count
	took, err := s.placeOneByOne(ctx, b, placed)
	if err != nil {
		return err
	}
	after, err := s.readSettledCost(ctx, quietTime, 2*time.Minute)
	if err != nil {
		return err
	}
	s.pauseHubSamples(false)
	own := expectedUserWrites(len(placed))
	writes := s.reportCost("place", before, after, own)
	perApp := (writes.TotalCount() + own.TotalCount()) / float64(len(placed))
	s.report.AddCount("place_api_writes_per_application", perApp, "requests")
	s.report.AddDistribution("apply_to_all_healthy", took)
	s.report.AddCount("clusters", float64(clusters), "clusters")
	s.report.AddCount("clusters_per_application", float64(s.countClustersOf(placed[0])), "clusters")
	s.report.AddCount("applications_present", float64(len(present)), "applications")
	s.report.CheckMachineDependentAtMost("p90 from apply to all clusters reporting healthy", measure.QuantileOf(took, 0.9), 1, "s")
	s.report.CheckAtMost("API writes per application, the user's two included", perApp, 20, "requests")
	if err := s.verifyFleet(ctx, time.Minute, slices.Concat(present, placed)); err != nil {
		return err
	}
	_, err = s.reportStoreSize(ctx)
	return err
}

// placeOneByOne applies applications in turn; each starts when the previous one is healthy
// everywhere. It returns the times in seconds, sorted.
func (s *testbed) placeOneByOne(ctx context.Context, b *bundleWatch, placed []application) ([]float64, error) {
	s.Progress.BeginStep("placing one by one", len(placed))
	var took, made, updated measure.Distribution
	for i, a := range placed {
		if err := s.applyApp(ctx, a); err != nil {
			return nil, err
		}
		applied := time.Now()
		if err := b.waitUntil(ctx, "application "+a.bundleKey()+" becomes ready", time.Minute, func(by map[string]observedBundle) bool {
			return by[a.bundleKey()].isReadyAtNewRevision(s.countClustersOf(a), "")
		}); err != nil {
			return nil, fmt.Errorf("%w: %+v", err, b.get(a.bundleKey()).status)
		}
		got := b.get(a.bundleKey())
		made.Add(max(0, got.firstSeen.Sub(applied)))
		updated.Add(got.updatedSince.Sub(applied))
		took.Add(got.readySince.Sub(applied))
		s.Progress.SetDone(i + 1)
	}
	s.report.AddDistribution("apply_to_bundle", made.SortedValues())
	s.report.AddDistribution("apply_to_all_applied", updated.SortedValues())
	return took.SortedValues(), nil
}
