package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/bench/measure"
)

const (
	targetSlices    = "/registry/engine.atoll.dev/targetslices/"
	storedRevisions = "/registry/engine.atoll.dev/revisions/"
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

// scheduleRate has a policy place Bundles that are there and that nothing placed yet, each
// of one application. Before, the policy landed on bare templates and fitted no cluster,
// which made these Bundles; what that took is told, too, and both together.
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
	s.report.Count("clusters", float64(clusters), "clusters")
	s.report.Count("applications", float64(len(apps)), "applications")
	s.quietly(true) // reading metrics allocates, which would count
	bundled, middle, err := s.bundleAll(ctx, before, len(apps))
	if err != nil {
		return err
	}
	took, err := s.scheduleAll(ctx, middle, len(apps))
	if err != nil {
		return err
	}
	s.report.Component("scheduled_from_templates_per_second", float64(len(apps))/(bundled+took).Seconds(), "1/s")
	return s.rowsAreThere(ctx, apps)
}

// bundleAll lands the policy where nothing fits, and gives how long it takes until there are
// Bundles of so many applications, and what is so once they say that they are unplaced.
func (s *stage) bundleAll(ctx context.Context, before reading, apps int) (took time.Duration, after reading, err error) {
	s.profilePhase(ctx)
	s.report.Mark("policy that fits nowhere")
	if took, err = s.land(ctx, "bundles are made", ratePolicy("a-cluster-to-come"), storedRevisions, apps); err != nil {
		return 0, after, err
	}
	unplaced := func(b *v1alpha1.Bundle) bool {
		return b.Status.Clusters.Desired == 0 && meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.BundleScheduled)
	}
	err = until(ctx, "all Bundles say that they are unplaced", 2*time.Second, 5*time.Minute, func(ctx context.Context) (bool, error) {
		n, err := s.bundlesThat(ctx, unplaced)
		return n == apps, err
	})
	if err != nil {
		return 0, after, err
	}
	if after, err = s.read(ctx); err != nil {
		return 0, after, err
	}
	s.perApplication("bundle", before, after, apps)
	s.report.Time("policy_to_all_bundles_stored", took)
	s.report.Component("bundled_per_second", float64(apps)/took.Seconds(), "1/s")
	return took, after, nil
}

// scheduleAll lands the policy that places the Bundles, and gives how long it takes until
// all slices are stored.
func (s *stage) scheduleAll(ctx context.Context, before reading, apps int) (time.Duration, error) {
	s.profilePhase(ctx)
	s.report.Mark("policy that places")
	took, err := s.land(ctx, "scheduling", ratePolicy(""), targetSlices, apps)
	if err != nil {
		return 0, err
	}
	s.report.Mark("all slices stored")
	stored, err := s.hubCosts()
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, rateTrail); err != nil {
		return 0, err
	}
	right, err := s.bundlesThat(ctx, placed)
	if err != nil {
		return 0, err
	}
	s.profilePhase(ctx)
	s.quietly(false)
	after, err := s.settled(ctx, quiet, 5*time.Minute)
	if err != nil {
		return 0, err
	}
	n, slices := float64(apps), s.perApplication("schedule", before, after, apps)
	s.report.Count("schedule_slice_writes_per_application", slices/n, "requests")
	s.report.Time("policy_to_all_slices_stored", took)
	s.report.Component("scheduled_per_second", n/took.Seconds(), "1/s")
	s.report.Component("schedule_hub_cpu_per_application", (stored.CPU-before.hub.CPU)/n, "s")
	s.report.AtLeast("applications scheduled per second", n/took.Seconds(), ratePerSecond, "1/s")
	s.report.Timed(fmt.Sprintf("the status of Bundles is right %s after the last slice", rateTrail), right == apps, "%d of %d are", right, apps)
	s.report.Check("one write for each slice", slices == n, "%v writes of slices for %v applications", slices, n)
	return took, nil
}

// perApplication puts what a phase cost for each application, and gives the writes of
// slices. Events are told apart: they come at a pace of their own.
func (s *stage) perApplication(phase string, before, after reading, apps int) (slices float64) {
	writes, n := s.cost(phase, before, after, measure.Writes{"APPLY clusterpropagationpolicies": 1}), float64(apps)
	events := writes["POST events"]
	s.report.Count(phase+"_api_writes_per_application", (writes.Total()-events)/n, "requests")
	s.report.Count(phase+"_hub_allocations_per_application", (after.metrics.Sum("go_memstats_mallocs_total")-before.metrics.Sum("go_memstats_mallocs_total"))/n, "allocations")
	return writes["POST targetslices"] + writes["PUT targetslices"]
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

// ratePolicy places every Deployment of any namespace onto the best of all clusters, or of
// those with a label.
func ratePolicy(label string) []byte {
	placement := map[string]any{"maxClusters": rateClusters}
	if label != "" {
		placement["clusterAffinity"] = map[string]any{"labelSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": label, "operator": "Exists"},
		}}}
	}
	return encode(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "ClusterPropagationPolicy",
		"metadata": map[string]any{"name": "rate"},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}},
			"groupBy":           map[string]any{"type": "Object"},
			"placement":         placement,
		},
	})
}

// land the policy, and give how long it takes until so many more keys with the prefix are
// stored.
func (s *stage) land(ctx context.Context, what string, policy []byte, prefix string, count int) (time.Duration, error) {
	before, err := s.etcd.Keys(ctx, prefix)
	if err != nil {
		return 0, err
	}
	s.Progress.Step(what, count)
	begin := time.Now()
	if err := s.apply(ctx, "/apis/atoll.dev/v1alpha1/clusterpropagationpolicies/rate", policy); err != nil {
		return 0, err
	}
	err = until(ctx, what, 100*time.Millisecond, 10*time.Minute, func(ctx context.Context) (bool, error) {
		now, err := s.etcd.Keys(ctx, prefix)
		s.Progress.Reach(int(now - before))
		return now-before >= int64(count), err
	})
	return time.Since(begin), err
}

// placed tells whether the status of a Bundle says onto how many clusters it is placed.
func placed(b *v1alpha1.Bundle) bool { return b.Status.Clusters.Desired == rateClusters }

// bundlesThat counts the Bundles of which that holds.
func (s *stage) bundlesThat(ctx context.Context, holds func(*v1alpha1.Bundle) bool) (n int, err error) {
	for next := ""; ; {
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
			if holds(&page.Items[i]) {
				n++
			}
		}
		if next = page.Continue; next == "" {
			return n, nil
		}
	}
}

// rowsAreThere checks that every application has a row in as many clusters as were to be
// chosen.
func (s *stage) rowsAreThere(ctx context.Context, apps []app) error {
	n, err := s.bundlesThat(ctx, placed)
	if err != nil {
		return err
	}
	s.report.Check("every application is placed onto as many clusters as it asks for", n == len(apps), "%d of %d are", n, len(apps))
	return nil
}
