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

	"atoll.dev/atoll/lab/fleet"
)

const (
	pairGroups = 10
	// pairDelay is the mean time after which a simulated member reports an application
	// healthy.
	pairDelay = 2 * time.Second
	// These parts of a store and of a hub do not depend on the fleet; the rest of a bound
	// shrinks with the scale. A working hub collects garbage only when heap and stacks
	// reach 768 MiB (805 MB), and about 150 MB are pages of the program and of etcd's
	// file. A store of 2.5 MB also has pages of its history that are freed late, once 1.2
	// MB of them with other load.
	emptyStore = 4.5e6
	emptyHub   = 1.0e9
)

// budgetForShare returns the bound for a share of the full load, between the bound of no
// load and the bound of the full load.
func budgetForShare(share, empty, full float64) float64 {
	if share >= 1 {
		return full
	}
	return empty + (full-empty)*share
}

// runAppClusterPairs places many applications onto many clusters each.
func runAppClusterPairs(ctx context.Context, s *testbed) error {
	apps, b, err := s.placeAllPairs(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.verifyFleet(ctx, time.Minute, apps); err != nil {
		return err
	}
	size, err := s.reportStoreSize(ctx)
	if err != nil {
		return err
	}
	s.report.AddCount("etcd_in_use_per_pair", size.InUse/s.countPairs(apps), "bytes")
	share := s.Scale * s.Scale // of the pairs
	s.report.CheckAtMost("etcd in use after compaction", size.InUse, budgetForShare(share, emptyStore, 60e6), "bytes")
	s.report.CheckMachineDependentAtMost("hub resident, at its peak", s.hubPeakMemory(), budgetForShare(share, emptyHub, 1.5e9), "bytes")
	return s.writePairsRecord(len(apps))
}

func (s *testbed) countPairs(apps []application) float64 {
	n := 0
	for _, a := range apps {
		n += s.countClustersOf(a)
	}
	return float64(n)
}

// placeAllPairs starts everything, applies all applications and waits until all are healthy.
func (s *testbed) placeAllPairs(ctx context.Context) ([]application, *bundleWatch, error) {
	if err := s.startHubAndFleet(ctx, fleetSize{count: s.atScale(1000, 2*pairGroups), groups: pairGroups}); err != nil {
		return nil, nil, err
	}
	if err := s.setRates(ctx, fleet.FaultRates{HealthDelay: pairDelay}); err != nil {
		return nil, nil, err
	}
	apps := s.newApplications("pairs", s.atScale(1000, pairGroups))
	b, err := s.watchBundles(ctx)
	if err != nil {
		return nil, nil, err
	}
	before, err := s.readCost(ctx)
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	s.report.MarkNow("apply")
	begin := time.Now()
	if err = s.applyAll(ctx, "applying applications", apps); err == nil {
		s.report.AddTime("all_applied", time.Since(begin))
		s.report.MarkNow("all applied")
		err = s.awaitReady(ctx, b, apps, 15*time.Minute, nil)
	}
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	took := time.Since(begin)
	s.report.MarkNow("all healthy")
	s.report.AddTime("all_placed_and_healthy", took)
	s.report.CheckMachineDependentAtMost("all placed and healthy", took.Seconds(), 300, "s")
	after, err := s.readSettledCost(ctx, quietTime, 3*time.Minute)
	if err != nil {
		b.stop()
		return nil, nil, err
	}
	writes := s.reportCost("pairs", before, after, expectedUserWrites(len(apps)))
	s.report.AddCount("pairs", s.countPairs(apps), "pairs")
	s.report.AddCount("pairs_api_writes_per_application", writes.TotalCount()/float64(len(apps)), "requests")
	return apps, b, nil
}

// pairsRecord is the record of runAppClusterPairs in its directory, for restart.
type pairsRecord struct {
	Apps     int     `json:"apps"`
	Clusters int     `json:"clusters"`
	Scale    float64 `json:"scale"`
}

func (s *testbed) pairsRecordFile() string { return filepath.Join(s.Dir, pairsFile) }

func (s *testbed) writePairsRecord(apps int) error {
	if err := os.WriteFile(s.pairsRecordFile(), mustEncodeJSON(pairsRecord{Apps: apps, Clusters: s.fleets[0].count, Scale: s.Scale}), 0o600); err != nil {
		return fmt.Errorf("record what is there: %w", err)
	}
	return nil
}

// resumePairs continues from the record of runAppClusterPairs; without a record it makes the pairs.
func (s *testbed) resumePairs(ctx context.Context) ([]application, *bundleWatch, error) {
	text, err := os.ReadFile(s.pairsRecordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s.placeAllPairs(ctx)
	}
	var r pairsRecord
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("recall what pairs-100k left: %w", err)
	}
	if r.Scale != s.Scale {
		return nil, nil, fmt.Errorf("%s holds pairs-100k at scale %v, and this run is at %v", s.Dir, r.Scale, s.Scale)
	}
	if err := s.startHubAndFleet(ctx, fleetSize{count: r.Clusters, groups: pairGroups}); err != nil {
		return nil, nil, err
	}
	apps := s.newApplications("pairs", r.Apps)
	b, err := s.watchBundles(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.awaitReady(ctx, b, apps, 5*time.Minute, nil); err != nil {
		b.stop()
		return nil, nil, err
	}
	_, err = s.readSettledCost(ctx, quietTime, 3*time.Minute)
	return apps, b, err
}
