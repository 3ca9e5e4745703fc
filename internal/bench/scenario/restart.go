package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"atoll.dev/atoll/internal/lab/fleet"
)

// restart kills the hub when it holds what pairs left, and starts it.
func restart(ctx context.Context, s *stage) error {
	apps, b, err := s.recallPairs(ctx)
	if err != nil {
		return err
	}
	b.stop()
	if err := s.rates(ctx, fleet.Rates{}); err != nil {
		return err
	}
	extra := s.apps("after", 1)
	extra[0].group = 1
	if err := s.makeNamespaces(ctx, extra); err != nil {
		return err
	}
	if _, err := s.settled(ctx, quiet, 3*time.Minute); err != nil {
		return err
	}
	before, err := s.sliceVersions(ctx)
	if err != nil {
		return err
	}
	s.report.Mark("kill")
	if err := s.kill(ctx, s.hubs[0].Spec); err != nil {
		return err
	}
	started := time.Now()
	serving, err := s.startHub(ctx)
	if err != nil {
		return err
	}
	s.report.Mark("serves")
	s.report.Time("restart_to_serving", serving)
	s.report.Within("restart to the API serving", serving.Seconds(), 10, "s")
	if err := s.afterRestart(ctx, started, extra[0]); err != nil {
		return err
	}
	after, err := s.settled(ctx, quiet, 3*time.Minute)
	if err != nil {
		return err
	}
	// The metrics are those of the new hub: they began at zero when it started.
	writes := after.metrics.Writes().Without(ownWrites(1))
	s.report.Count("restart_api_writes", writes.Total(), "requests")
	s.report.Note("API writes of the restarted hub without the user's own: %s", writes)
	s.report.Component("restart_hub_resident", after.hub.Resident, "bytes")
	s.report.Component("restart_hub_cpu", after.hub.CPU, "s")
	now, err := s.sliceVersions(ctx)
	if err != nil {
		return err
	}
	changed := 0
	for name, version := range before {
		if now[name] != version {
			changed++
		}
	}
	s.report.Count("restart_slices_rewritten", float64(changed), "slices")
	s.report.Check("no write for rows that did not change", changed == 0, "%d of %d slices were written", changed, len(before))
	return s.tellTruth(ctx, time.Minute, slices.Concat(apps, extra))
}

// afterRestart applies something at once, and waits until that is delivered and
// everything is compared.
func (s *stage) afterRestart(ctx context.Context, started time.Time, extra app) error {
	b, err := s.watchBundles(ctx)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := s.applyApp(ctx, extra); err != nil {
		return err
	}
	s.Progress.Step("a new application is delivered", 0)
	want := int32(s.clustersOf(extra))
	err = b.await(ctx, "a new application is delivered after the restart", 5*time.Minute, func(by map[string]seen) bool {
		c := by[extra.key()].status.Clusters
		return c.Desired == want && c.Updated == want
	})
	if err != nil {
		return fmt.Errorf("%w: %+v", err, b.get(extra.key()).status)
	}
	delivered := time.Since(started)
	s.report.Mark("delivered")
	s.report.Time("restart_to_new_apply_delivered", delivered)
	s.report.Within("start of the hub to a new apply delivered everywhere", delivered.Seconds(), 20, "s")
	if err := s.awaitAgents(ctx, s.fleets[0], "all agents are back", 5*time.Minute, func(t fleet.Stats) int {
		if t.Unacknowledged > 0 {
			return 0
		}
		return t.Connected
	}); err != nil {
		return err
	}
	synced := time.Since(started)
	s.report.Mark("resynced")
	s.report.Time("restart_to_resynced", synced)
	s.report.Within("start of the hub to all agents compared", synced.Seconds(), 60, "s")
	return nil
}

var slicesResource = schema.GroupVersionResource{Group: "engine.atoll.dev", Version: "v1alpha1", Resource: "targetslices"}

// sliceVersions gives the resource version of each slice.
func (s *stage) sliceVersions(ctx context.Context) (map[string]string, error) {
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
