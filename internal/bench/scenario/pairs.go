package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"atoll.dev/atoll/internal/lab/fleet"
)

const (
	pairGroups = 10
	// pairDelay is the mean time that an imagined member takes to make an application
	// healthy.
	pairDelay = 2 * time.Second
	// These parts of a store and of a hub do not depend on the fleet; what a scenario
	// may take beyond them shrinks with its scale. A hub that works collects garbage only
	// when heap and stacks reach 768 MiB (805 MB), however little lives of it, and about
	// 150 MB are pages of the program and of etcd's file. A store of 2.5 MB has pages beside
	// that its history left and that are let go late, 1.2 MB of them once beside other runs.
	emptyStore = 4.5e6
	emptyHub   = 1.0e9
)

// budget gives what a run with that share of the full load may take of something of
// which a full one may take full, and no load takes empty.
func budget(share, empty, full float64) float64 {
	if share >= 1 {
		return full
	}
	return empty + (full-empty)*share
}

// pairs places many applications onto many clusters each.
func pairs(ctx context.Context, s *stage) error {
	apps, b, err := s.makePairs(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.tellTruth(ctx, time.Minute, apps); err != nil {
		return err
	}
	size, err := s.noteStore(ctx)
	if err != nil {
		return err
	}
	s.report.Count("etcd_in_use_per_pair", size.InUse/s.pairsOf(apps), "bytes")
	share := s.Scale * s.Scale // of the pairs
	s.report.AtMost("etcd in use after compaction", size.InUse, budget(share, emptyStore, 60e6), "bytes")
	s.report.Within("hub resident, at its peak", s.hubPeak(), budget(share, emptyHub, 1.5e9), "bytes")
	return s.rememberPairs(len(apps))
}

func (s *stage) pairsOf(apps []app) float64 {
	n := 0
	for _, a := range apps {
		n += s.clustersOf(a)
	}
	return float64(n)
}

// makePairs starts everything, applies all applications and waits until all are
// healthy.
func (s *stage) makePairs(ctx context.Context) ([]app, *bundles, error) {
	if err := s.open(ctx, crowd{count: s.scaled(1000, 2*pairGroups), groups: pairGroups}); err != nil {
		return nil, nil, err
	}
	if err := s.rates(ctx, fleet.Rates{HealthDelay: pairDelay}); err != nil {
		return nil, nil, err
	}
	apps := s.apps("pairs", s.scaled(1000, pairGroups))
	b, err := s.watchBundles(ctx)
	if err != nil {
		return nil, nil, err
	}
	before, err := s.read(ctx)
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	s.report.Mark("apply")
	begin := time.Now()
	if err = s.applyAll(ctx, "applying applications", apps); err == nil {
		s.report.Time("all_applied", time.Since(begin))
		s.report.Mark("all applied")
		err = s.awaitReady(ctx, b, apps, 15*time.Minute, nil)
	}
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	took := time.Since(begin)
	s.report.Mark("all healthy")
	s.report.Time("all_placed_and_healthy", took)
	s.report.Within("all placed and healthy", took.Seconds(), 300, "s")
	after, err := s.settled(ctx, quiet, 3*time.Minute)
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	writes := s.cost("pairs", before, after, ownWrites(len(apps)))
	s.report.Count("pairs", s.pairsOf(apps), "pairs")
	s.report.Count("pairs_api_writes_per_application", writes.Total()/float64(len(apps)), "requests")
	return apps, b, nil
}

// remembered says what pairs left in its directory, for restart.
type remembered struct {
	Apps     int     `json:"apps"`
	Clusters int     `json:"clusters"`
	Scale    float64 `json:"scale"`
}

func (s *stage) memory() string { return filepath.Join(s.Dir, pairsFile) }

func (s *stage) rememberPairs(apps int) error {
	if err := os.WriteFile(s.memory(), encode(remembered{Apps: apps, Clusters: s.fleets[0].count, Scale: s.Scale}), 0o600); err != nil {
		return fmt.Errorf("remember what is there: %w", err)
	}
	return nil
}

// recallPairs goes on from what pairs left; without that it makes it.
func (s *stage) recallPairs(ctx context.Context) ([]app, *bundles, error) {
	text, err := os.ReadFile(s.memory())
	if errors.Is(err, fs.ErrNotExist) {
		return s.makePairs(ctx)
	}
	var r remembered
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("recall what pairs-100k left: %w", err)
	}
	if r.Scale != s.Scale {
		return nil, nil, fmt.Errorf("%s holds pairs-100k at scale %v, and this run is at %v", s.Dir, r.Scale, s.Scale)
	}
	if err := s.open(ctx, crowd{count: r.Clusters, groups: pairGroups}); err != nil {
		return nil, nil, err
	}
	apps := s.apps("pairs", r.Apps)
	b, err := s.watchBundles(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		b.stop()
		return nil, nil, err
	}
	_, err = s.settled(ctx, quiet, 3*time.Minute)
	return apps, b, err
}
