package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"atoll.dev/atoll/lab/fleet"
)

// runRestart kills the hub with the state of runAppClusterPairs, and starts it.
func runRestart(ctx context.Context, s *testbed) error {
	apps, b, err := s.resumePairs(ctx)
	if err != nil {
		return err
	}
	b.stop()
	if err := s.setRates(ctx, fleet.FaultRates{}); err != nil {
		return err
	}
	extra := s.newApplications("after", 1)
	extra[0].group = 1
	if err := s.makeNamespaces(ctx, extra); err != nil {
		return err
	}
	if _, err := s.readSettledCost(ctx, quietTime, 3*time.Minute); err != nil {
		return err
	}
	before, err := s.sliceVersions(ctx)
	if err != nil {
		return err
	}
	s.report.MarkNow("kill")
	if err := s.killProcess(ctx, s.hubs[0].ProcessSpec); err != nil {
		return err
	}
	started := time.Now()
	serving, err := s.startFirstHub(ctx)
	if err != nil {
		return err
	}
	s.report.MarkNow("serves")
	s.report.AddTime("restart_to_serving", serving)
	s.report.CheckMachineDependentAtMost("restart to the API serving", serving.Seconds(), 10, "s")
	if err := s.measureDeliveryAfterRestart(ctx, started, extra[0]); err != nil {
		return err
	}
	after, err := s.readSettledCost(ctx, quietTime, 3*time.Minute)
	if err != nil {
		return err
	}
	// The metrics are those of the new hub: they began at zero when it started.
	writes := after.metrics.WriteCounts().SubtractCounts(expectedUserWrites(1))
	s.report.AddCount("restart_api_writes", writes.TotalCount(), "requests")
	s.report.AddNote("API writes of the restarted hub without the user's own: %s", writes)
	s.report.AddComponentUsage("restart_hub_resident", after.hub.Resident, "bytes")
	s.report.AddComponentUsage("restart_hub_cpu", after.hub.CPU, "s")
	now, err := s.sliceVersions(ctx)
	if err != nil {
		return err
	}
	changed := countChanged(before, now)
	s.report.AddCount("restart_slices_rewritten", float64(changed), "slices")
	s.report.AddCheck("no write for rows that did not change", changed == 0, "%d of %d slices were written", changed, len(before))
	return s.verifyFleet(ctx, time.Minute, slices.Concat(apps, extra))
}

// countChanged counts the objects that have another version now.
func countChanged(before, now map[string]string) (n int) {
	for name, version := range before {
		if now[name] != version {
			n++
		}
	}
	return n
}

// measureDeliveryAfterRestart applies an object at once, and waits until it is delivered and everything is
// compared.
func (s *testbed) measureDeliveryAfterRestart(ctx context.Context, started time.Time, extra application) error {
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.applyApp(ctx, extra); err != nil {
		return err
	}
	s.Progress.BeginStep("a new application is delivered", 0)
	want := int32(s.countClustersOf(extra))
	err = b.waitUntil(ctx, "a new application is delivered after the restart", 5*time.Minute, func(by map[string]observedBundle) bool {
		c := by[extra.bundleKey()].status.Clusters
		return c.Desired == want && c.Updated == want
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, b.get(extra.bundleKey()).status)
	}
	delivered := time.Since(started)
	s.report.MarkNow("delivered")
	s.report.AddTime("restart_to_new_apply_delivered", delivered)
	s.report.CheckMachineDependentAtMost("start of the hub to a new apply delivered everywhere", delivered.Seconds(), 20, "s")
	if err := s.awaitAgents(ctx, s.fleets[0], "all agents are back", 5*time.Minute, func(t fleet.Stats) int {
		if t.Unacknowledged > 0 {
			return 0
		}
		return t.Connected
	}); err != nil {
		return err
	}
	synced := time.Since(started)
	s.report.MarkNow("resynced")
	s.report.AddTime("restart_to_resynced", synced)
	s.report.CheckMachineDependentAtMost("start of the hub to all agents compared", synced.Seconds(), 60, "s")
	return nil
}

var slicesResource = schema.GroupVersionResource{Group: "engine.atoll.dev", Version: "v1alpha1", Resource: "targetslices"}

// sliceVersions returns the resource version of each slice.
func (s *testbed) sliceVersions(ctx context.Context) (map[string]string, error) {
	client, err := metadata.NewForConfig(s.config)
	if err != nil {
		return nil, fmt.Errorf("list slices: %w", err)
	}
	versions := map[string]string{}
	for next := ""; ; {
		list, err := client.Resource(slicesResource).List(ctx, metav1.ListOptions{Limit: 500, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("list slices: %w", err)
		}
		for i := range list.Items {
			versions[list.Items[i].Name] = list.Items[i].ResourceVersion
		}
		if next = list.Continue; next == "" {
			return versions, nil
		}
	}
}
