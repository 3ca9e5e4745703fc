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
	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/bench/measure"
)

const (
	targetSlices    = "/registry/engine.atoll.dev/targetslices/"
	storedRevisions = "/registry/engine.atoll.dev/revisions/"
	// rateClusters is the number of clusters chosen for an application.
	rateClusters = 3
	// rateCheckIn exceeds the measurement, so that no agent checks in: the scenario
	// measures decisions and writes, not delivery.
	rateCheckIn = time.Hour
	// ratePerSecond is the target rate of scheduling, in applications.
	ratePerSecond = 1000
	// rateTrail is the time by which the status of Bundles may come after the slices.
	rateTrail = 2 * time.Second
	ratePage  = 500 // Bundles in one answer
)

// runScheduleRate places existing, unplaced Bundles by a policy, each of one application.
// Before, the policy selects bare templates and fits no cluster, which creates these
// Bundles. The report has the time of both steps and their sum.
func runScheduleRate(ctx context.Context, s *testbed) error {
	clusters := s.atScale(1000, 20)
	if err := s.startHubAndFleet(ctx, fleetSize{count: clusters, groups: 1, checkIn: rateCheckIn}); err != nil {
		return err
	}
	apps := s.newApplications("rate", s.atScale(10_000, perNamespace))
	if err := s.makeTemplates(ctx, apps); err != nil {
		return err
	}
	before, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return err
	}
	s.report.AddCount("clusters", float64(clusters), "clusters")
	s.report.AddCount("applications", float64(len(apps)), "applications")
	s.pauseHubSamples(true) // reading metrics allocates, which would count
	bundled, middle, err := s.timeUnplacedBundles(ctx, before, len(apps))
	if err != nil {
		return err
	}
	took, err := s.timeSchedulingAll(ctx, middle, len(apps))
	if err != nil {
		return err
	}
	s.report.AddComponentUsage("scheduled_from_templates_per_second", float64(len(apps))/(bundled+took).Seconds(), "1/s")
	return s.checkRowsExist(ctx, apps)
}

// timeUnplacedBundles applies the policy where nothing fits. It returns the time until the Bundles of
// all applications exist, and the cost once they are shown unplaced.
func (s *testbed) timeUnplacedBundles(ctx context.Context, before costReading, apps int) (took time.Duration, after costReading, err error) {
	s.startPhaseProfiles(ctx)
	s.report.MarkNow("policy that fits nowhere")
	if took, err = s.timePolicyUntilStored(ctx, "bundles are made", bestClustersPolicyJSON("a-cluster-to-come"), storedRevisions, apps); err != nil {
		return 0, after, err
	}
	unplaced := func(b *v1alpha1.Bundle) bool {
		return b.Status.Clusters.Desired == 0 && meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.BundleScheduled)
	}
	// A list of all Bundles allocates, which counts, so it waits until nothing is written. The revision of the store costs nothing.
	var revision int64
	err = pollUntil(ctx, "all Bundles are shown unplaced", 2*time.Second, 5*time.Minute, func(ctx context.Context) (bool, error) {
		size, err := s.etcd.ReadSize(ctx)
		if err != nil || size.Revision != revision {
			revision = size.Revision
			return false, err
		}
		n, err := s.countBundlesThat(ctx, unplaced)
		return n == apps, err
	})
	if err != nil {
		return 0, after, err
	}
	if after, err = s.readCost(ctx); err != nil {
		return 0, after, err
	}
	s.reportCostPerApplication("bundle", before, after, apps)
	s.report.AddTime("policy_to_all_bundles_stored", took)
	s.report.AddComponentUsage("bundled_per_second", float64(apps)/took.Seconds(), "1/s")
	return took, after, nil
}

// timeSchedulingAll applies the policy that places the Bundles, and returns the time until all
// slices are stored.
func (s *testbed) timeSchedulingAll(ctx context.Context, before costReading, apps int) (time.Duration, error) {
	s.startPhaseProfiles(ctx)
	s.report.MarkNow("policy that places")
	took, err := s.timePolicyUntilStored(ctx, "scheduling", bestClustersPolicyJSON(""), targetSlices, apps)
	if err != nil {
		return 0, err
	}
	s.report.MarkNow("all slices stored")
	stored, err := s.hubCosts()
	if err != nil {
		return 0, err
	}
	if err := lab.PauseFor(ctx, rateTrail); err != nil {
		return 0, err
	}
	right, err := s.countBundlesThat(ctx, hasExpectedClusterCount)
	if err != nil {
		return 0, err
	}
	s.startPhaseProfiles(ctx)
	s.pauseHubSamples(false)
	after, err := s.readSettledCost(ctx, quietTime, 5*time.Minute)
	if err != nil {
		return 0, err
	}
	n, slices := float64(apps), s.reportCostPerApplication("schedule", before, after, apps)
	s.report.AddCount("schedule_slice_writes_per_application", slices/n, "requests")
	s.report.AddTime("policy_to_all_slices_stored", took)
	s.report.AddComponentUsage("scheduled_per_second", n/took.Seconds(), "1/s")
	s.report.AddComponentUsage("schedule_hub_cpu_per_application", (stored.CPU-before.hub.CPU)/n, "s")
	s.report.CheckMachineDependentAtLeast("applications scheduled per second", n/took.Seconds(), ratePerSecond, "1/s")
	s.report.AddMachineDependentCheck(fmt.Sprintf("the status of Bundles is right %s after the last slice", rateTrail), right == apps, "%d of %d are", right, apps)
	s.report.AddCheck("one write for each slice", slices == n, "%v writes of slices for %v applications", slices, n)
	return took, nil
}

// reportCostPerApplication reports the cost of a phase for each application, and returns the writes
// of slices. Events are reported separately: they have their own rate.
func (s *testbed) reportCostPerApplication(phase string, before, after costReading, apps int) (slices float64) {
	writes, n := s.reportCost(phase, before, after, measure.WriteCounts{"APPLY clusterpropagationpolicies": 1}), float64(apps)
	events := writes["POST events"]
	s.report.AddCount(phase+"_api_writes_per_application", (writes.TotalCount()-events)/n, "requests")
	s.report.AddCount(phase+"_hub_allocations_per_application", (after.metrics.SumSeries(allocationsMetric)-before.metrics.SumSeries(allocationsMetric))/n, "allocations")
	return writes["POST targetslices"] + writes["PUT targetslices"]
}

// makeTemplates creates the templates without policies.
func (s *testbed) makeTemplates(ctx context.Context, apps []application) error {
	if err := s.makeNamespaces(ctx, apps); err != nil {
		return err
	}
	s.Progress.BeginStep("applying templates without a policy", len(apps))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelUsers)
	var done atomic.Int64
	for _, a := range apps {
		group.Go(func() error {
			err := s.applyDeployment(ctx, a)
			s.Progress.SetDone(int(done.Add(1)))
			return err
		})
	}
	return group.Wait()
}

// bestClustersPolicyJSON places every Deployment of any namespace onto the best of all clusters, or of
// those with a label.
func bestClustersPolicyJSON(label string) []byte {
	placement := map[string]any{"maxClusters": rateClusters}
	if label != "" {
		placement["clusterAffinity"] = map[string]any{"labelSelector": map[string]any{"matchExpressions": []any{
			map[string]any{"key": label, "operator": "Exists"},
		}}}
	}
	return mustEncodeJSON(map[string]any{
		"apiVersion": "atoll.dev/v1alpha1", "kind": "ClusterPropagationPolicy",
		"metadata": map[string]any{"name": "rate"},
		"spec": map[string]any{
			"resourceSelectors": []any{map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}},
			"groupBy":           map[string]any{"type": "Object"},
			"placement":         placement,
			"rollout":           map[string]any{"type": "All"}, // an edit is one wave
		},
	})
}

// timePolicyUntilStored applies the policy, and returns the time until count more keys with
// the prefix are stored.
func (s *testbed) timePolicyUntilStored(ctx context.Context, what string, policy []byte, prefix string, count int) (time.Duration, error) {
	before, err := s.etcd.CountKeys(ctx, prefix)
	if err != nil {
		return 0, err
	}
	s.Progress.BeginStep(what, count)
	begin := time.Now()
	if err := s.apply(ctx, "/apis/atoll.dev/v1alpha1/clusterpropagationpolicies/rate", policy); err != nil {
		return 0, err
	}
	err = pollUntil(ctx, what, 100*time.Millisecond, 10*time.Minute, func(ctx context.Context) (bool, error) {
		now, err := s.etcd.CountKeys(ctx, prefix)
		s.Progress.SetDone(int(now - before))
		return now-before >= int64(count), err
	})
	return time.Since(begin), err
}

// hasExpectedClusterCount reports whether the status of a Bundle has its number of clusters.
func hasExpectedClusterCount(b *v1alpha1.Bundle) bool {
	return b.Status.Clusters.Desired == rateClusters
}

// countBundlesThat counts the Bundles for which holds is true.
func (s *testbed) countBundlesThat(ctx context.Context, holds func(*v1alpha1.Bundle) bool) (n int, err error) {
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

// checkRowsExist checks that every application has a row in each chosen cluster.
func (s *testbed) checkRowsExist(ctx context.Context, apps []application) error {
	n, err := s.countBundlesThat(ctx, hasExpectedClusterCount)
	if err != nil {
		return err
	}
	s.report.AddCheck("every application is placed onto its number of clusters", n == len(apps), "%d of %d are", n, len(apps))
	return nil
}
