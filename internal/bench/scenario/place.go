package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"atoll.dev/atoll/internal/bench/measure"
	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	// healthDelay is the mean time that an imagined member takes to make an
	// application healthy, where Atoll's own part is what is measured.
	healthDelay = 50 * time.Millisecond
	placeRounds = 20
	// quiet is how long nothing is written before writes are compared: the status of
	// a policy, the last of all, comes 10 s after what it counts.
	quiet = 12 * time.Second
)

// place measures how long one more application takes onto the clusters of a group.
func place(ctx context.Context, s *stage) error {
	const groups = 10
	clusters := s.scaled(1000, 2*groups)
	if err := s.open(ctx, crowd{count: clusters, groups: groups}); err != nil {
		return err
	}
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	present := s.apps("present", s.scaled(1000, groups))
	if err := s.applyAll(ctx, "applying what is there before", present); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, b, present, 10*time.Minute, nil); err != nil {
		return err
	}
	if err := s.rates(ctx, fleet.Rates{HealthDelay: healthDelay}); err != nil {
		return err
	}
	placed := s.apps("placed", placeRounds)
	if err := s.makeNamespaces(ctx, placed); err != nil {
		return err
	}
	before, err := s.settled(ctx, quiet, 3*time.Minute)
	if err != nil {
		return err
	}
	s.quietly(true) // reading metrics allocates, which would count
	took, err := s.placeOneByOne(ctx, b, placed)
	if err != nil {
		return err
	}
	after, err := s.settled(ctx, quiet, 2*time.Minute)
	if err != nil {
		return err
	}
	s.quietly(false)
	own := ownWrites(len(placed))
	writes := s.cost("place", before, after, own)
	perApp := (writes.Total() + own.Total()) / float64(len(placed))
	s.report.Count("place_api_writes_per_application", perApp, "requests")
	s.report.Distribution("apply_to_all_healthy", took)
	s.report.Count("clusters", float64(clusters), "clusters")
	s.report.Count("clusters_per_application", float64(s.clustersOf(placed[0])), "clusters")
	s.report.Count("applications_present", float64(len(present)), "applications")
	s.report.Within("p90 from apply to all clusters reporting healthy", measure.Quantile(took, 0.9), 1, "s")
	s.report.AtMost("API writes per application, the user's two included", perApp, 20, "requests")
	if err := s.tellTruth(ctx, time.Minute, slices.Concat(present, placed)); err != nil {
		return err
	}
	_, err = s.noteStore(ctx)
	return err
}

// placeOneByOne applies applications one after the other; each starts when the one
// before is healthy everywhere. It gives the times in seconds, sorted.
func (s *stage) placeOneByOne(ctx context.Context, b *bundles, placed []app) ([]float64, error) {
	s.Progress.Step("placing one by one", len(placed))
	var took, made, updated measure.Distribution
	for i, a := range placed {
		if err := s.applyApp(ctx, a); err != nil {
			return nil, err
		}
		applied := time.Now()
		if err := b.await(ctx, "application "+a.key()+" becomes ready", time.Minute, func(by map[string]seen) bool {
			return by[a.key()].isReady(s.clustersOf(a), "")
		}); err != nil {
			return nil, fmt.Errorf("%w: %+v", err, b.get(a.key()).status)
		}
		got := b.get(a.key())
		made.Add(max(0, got.first.Sub(applied)))
		updated.Add(got.updated.Sub(applied))
		took.Add(got.ready.Sub(applied))
		s.Progress.Reach(i + 1)
	}
	s.report.Distribution("apply_to_bundle", made.Values())
	s.report.Distribution("apply_to_all_applied", updated.Values())
	return took.Values(), nil
}
