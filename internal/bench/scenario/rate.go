package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/bench/measure"
)

const (
	targetSlices = "/registry/engine.atoll.dev/targetslices/"
	// rateClusters are those that are chosen for an application, out of all.
	rateClusters = 3
	// rateCheckIn is so long that nobody comes while it is measured: it is about what
	// the hub decides and stores, not about what it delivers.
	rateCheckIn = time.Hour
	// ratePerSecond is how many applications are to be scheduled.
	ratePerSecond = 1000
	// rateTrail is by how much the status of Bundles may come after the slices.
	rateTrail = 2 * time.Second
	ratePage  = 500 // Bundles in one answer
)

// scheduleRate has one policy place applications that are there and that nobody has
// placed yet, each of which becomes a Bundle of its own.
func scheduleRate(ctx context.Context, s *stage) error {
	clusters := s.scaled(1000, 20)
	if err := s.open(ctx, crowd{count: clusters, groups: 1, checkIn: rateCheckIn}); err != nil {
		return err
	}
	apps := s.apps("rate", s.scaled(10_000, perNamespace))
	if err := s.makeTemplates(ctx, apps); err != nil {
		return err
	}
	before, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	s.quietly(true) // reading metrics allocates, which would count
	s.profilePhase(ctx)
	s.report.Mark("policy")
	took, err := s.scheduleAll(ctx, len(apps))
	if err != nil {
		return err
	}
	s.report.Mark("all slices stored")
	stored, err := s.hubCosts()
	if err != nil {
		return err
	}
	late, err := s.bundlesBehind(ctx, len(apps), rateTrail)
	if err != nil {
		return err
	}
	s.profilePhase(ctx)
	s.quietly(false)
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return err
	}
	n := float64(len(apps))
	own := measure.Writes{"APPLY clusterpropagationpolicies": 1}
	writes := s.cost("schedule", before, after, own)
	s.report.Count("schedule_api_writes_per_application", writes.Total()/n, "requests")
	slices := writes["POST targetslices"] + writes["PUT targetslices"]
	s.report.Count("schedule_slice_writes_per_application", slices/n, "requests")
	s.report.Count("schedule_hub_allocations_per_application", (after.metrics.Sum("go_memstats_mallocs_total")-before.metrics.Sum("go_memstats_mallocs_total"))/n, "allocations")
	s.report.Count("clusters", float64(clusters), "clusters")
	s.report.Count("applications", n, "applications")
	s.report.Time("policy_to_all_slices_stored", took)
	s.report.Component("scheduled_per_second", n/took.Seconds(), "1/s")
	s.report.Component("schedule_hub_cpu_per_application", (stored.CPU-before.hub.CPU)/n, "s")
	s.report.AtLeast("applications scheduled per second", n/took.Seconds(), ratePerSecond, "1/s")
	s.report.Timed(fmt.Sprintf("the status of Bundles is right %s after the last slice", rateTrail), late == 0, "%d of %d are not", late, len(apps))
	s.report.Check("one write for each slice", slices == n, "%v writes of slices for %v applications", slices, n)
	return s.rowsAreThere(ctx, apps)
}

// makeTemplates without policies.
func (s *stage) makeTemplates(ctx context.Context, apps []app) error {
	if err := s.makeNamespaces(ctx, apps); err != nil {
		return err
	}
	s.Progress.Step("applying templates that nobody places", len(apps))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(users)
	var done atomic.Int64
	for _, a := range apps {
		group.Go(func() error {
			err := s.applyDeployment(ctx, a)
			s.Progress.Reach(int(done.Add(1)))
			return err
		})
	}
	return group.Wait()
}

// ratePolicy places every Deployment of any namespace onto the best of all clusters.
func ratePolicy() []byte {
	return encode(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "ClusterPropagationPolicy",
		"metadata": map[string]any{"name": "rate"},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}},
			"groupBy":           map[string]any{"type": "Object"},
			"placement":         map[string]any{"maxClusters": rateClusters},
		},
	})
}

// scheduleAll applies the policy, and gives how long it takes until as many slices as
// there are applications are stored.
func (s *stage) scheduleAll(ctx context.Context, apps int) (time.Duration, error) {
	before, err := s.etcd.Keys(ctx, targetSlices)
	if err != nil {
		return 0, err
	}
	s.Progress.Step("scheduling", apps)
	begin := time.Now()
	if err := s.apply(ctx, "/apis/atoll.dev/v1alpha1/clusterpropagationpolicies/rate", ratePolicy()); err != nil {
		return 0, err
	}
	err = until(ctx, "all slices are stored", 100*time.Millisecond, 10*time.Minute, func(ctx context.Context) (bool, error) {
		now, err := s.etcd.Keys(ctx, targetSlices)
		s.Progress.Reach(int(now - before))
		return now-before >= int64(apps), err
	})
	return time.Since(begin), err
}

// bundlesBehind counts those of so many Bundles whose status does not say, after that
// time, onto how many clusters they are placed.
func (s *stage) bundlesBehind(ctx context.Context, count int, after time.Duration) (int, error) {
	if err := pause(ctx, after); err != nil {
		return 0, err
	}
	right, next := 0, ""
	for {
		body, err := s.kube.CoreV1().RESTClient().Get().AbsPath("/apis/atoll.dev/v1alpha1/bundles").
			Param("limit", strconv.Itoa(ratePage)).Param("continue", next).DoRaw(ctx)
		if err != nil {
			return 0, fmt.Errorf("list Bundles: %w", err)
		}
		var page v1alpha1.BundleList
		if err := json.Unmarshal(body, &page); err != nil {
			return 0, fmt.Errorf("list Bundles: %w", err)
		}
		for i := range page.Items {
			if page.Items[i].Status.Clusters.Desired == rateClusters {
				right++
			}
		}
		if next = page.Continue; next == "" {
			return count - right, nil
		}
	}
}

// rowsAreThere checks that every application has a row in as many clusters as were to be
// chosen.
func (s *stage) rowsAreThere(ctx context.Context, apps []app) error {
	behind, err := s.bundlesBehind(ctx, len(apps), 0)
	if err != nil {
		return err
	}
	s.report.Check("every application is placed onto as many clusters as it asks for", behind == 0, "%d of %d are not", behind, len(apps))
	return nil
}
