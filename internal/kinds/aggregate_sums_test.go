package kinds_test

import (
	"reflect"
	"testing"

	"atoll.dev/atoll/internal/kinds"
)

// The counts of kinds without replicas are summed over the connected clusters. Each case has two
// clusters with the statuses, and a third one that is disconnected and reports the first.
func TestCountsAreSummed(t *testing.T) {
	for name, c := range map[string]struct {
		head, a, b, want string
	}{
		"Kruise's DaemonSet": {headYAML("apps.kruise.io/v1alpha1", "DaemonSet"),
			"{observedGeneration: 2, desiredNumberScheduled: 3, currentNumberScheduled: 3, updatedNumberScheduled: 2, numberReady: 3, numberAvailable: 3}",
			"{observedGeneration: 2, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberReady: 1, numberAvailable: 1}",
			"{observedGeneration: 2, desiredNumberScheduled: 5, currentNumberScheduled: 5, updatedNumberScheduled: 4, numberReady: 4, numberAvailable: 4, numberMisscheduled: 0, daemonSetHash: ''}"},
		"BroadcastJob": {headYAML("apps.kruise.io/v1alpha1", "BroadcastJob"), "{phase: running, active: 1, succeeded: 2, desired: 3}", "{phase: completed, succeeded: 4, desired: 4}",
			"{phase: running, active: 1, succeeded: 6, failed: 0, desired: 7}"},
		"SidecarSet": {headYAML("apps.kruise.io/v1alpha1", "SidecarSet"), "{observedGeneration: 2, matchedPods: 4, updatedPods: 2, readyPods: 4, updatedReadyPods: 1}", "{observedGeneration: 2, matchedPods: 1, updatedPods: 1, readyPods: 1, updatedReadyPods: 1}",
			"{observedGeneration: 2, matchedPods: 5, updatedPods: 3, readyPods: 5, updatedReadyPods: 2}"},
		"UnitedDeployment": {headYAML("apps.kruise.io/v1alpha1", "UnitedDeployment"), "{observedGeneration: 2, replicas: 2, readyReplicas: 2, updatedReplicas: 1}", "{observedGeneration: 2, replicas: 3, readyReplicas: 2, updatedReplicas: 3}",
			"{observedGeneration: 2, replicas: 5, readyReplicas: 4, updatedReplicas: 4, updatedReadyReplicas: 0}"},
		"ImagePullJob": {headYAML("apps.kruise.io/v1alpha1", "ImagePullJob"), "{desired: 3, completed: 3, succeeded: 3}", "{desired: 2, active: 1, completed: 1, succeeded: 1}",
			"{desired: 5, active: 1, completed: 4, succeeded: 4}"},
		"RayCluster": {headYAML("ray.io/v1", "RayCluster"), "{state: ready, observedGeneration: 2, desiredWorkerReplicas: 2, availableWorkerReplicas: 2, readyWorkerReplicas: 2}", "{state: ready, observedGeneration: 2, desiredWorkerReplicas: 3, availableWorkerReplicas: 1}",
			"{state: ready, observedGeneration: 2, desiredWorkerReplicas: 5, availableWorkerReplicas: 3, readyWorkerReplicas: 2}"},
		"RayJob": {headYAML("ray.io/v1", "RayJob"), "{jobDeploymentStatus: Running, succeeded: 1, rayClusterStatus: {desiredWorkerReplicas: 2}}", "{jobDeploymentStatus: Running, failed: 1, rayClusterStatus: {desiredWorkerReplicas: 1, maxWorkerReplicas: 4}}",
			"{jobDeploymentStatus: Running, succeeded: 1, failed: 1, rayClusterStatus: {desiredWorkerReplicas: 3, maxWorkerReplicas: 4}}"},
		"RayService": {headYAML("ray.io/v1", "RayService"), "{serviceStatus: Running, numServeEndpoints: 2, activeServiceStatus: {rayClusterStatus: {availableWorkerReplicas: 1}}}", "{serviceStatus: Running, numServeEndpoints: 1, activeServiceStatus: {rayClusterStatus: {availableWorkerReplicas: 1}}}",
			"{serviceStatus: Running, numServeEndpoints: 3, activeServiceStatus: {rayClusterStatus: {availableWorkerReplicas: 2}}}"},
		"SparkApplication": {headYAML("sparkoperator.k8s.io/v1beta2", "SparkApplication"), "{applicationState: {state: RUNNING}, executionAttempts: 1, submissionAttempts: 2}", "{applicationState: {state: RUNNING}, executionAttempts: 1}",
			"{applicationState: {state: RUNNING}, driverInfo: {}, executionAttempts: 2, submissionAttempts: 2}"},
		"HelmRelease": {headYAML("helm.toolkit.fluxcd.io/v2", "HelmRelease"), "{observedGeneration: 2, failures: 3, upgradeFailures: 2}", "{observedGeneration: 2, failures: 1, installFailures: 1}",
			"{observedGeneration: 2, failures: 4, installFailures: 1, upgradeFailures: 2}"},
		"PyTorchJob": {headYAML("kubeflow.org/v1", "PyTorchJob"), "{replicaStatuses: {Master: {active: 1}, Worker: {active: 2, failed: 1}}}", "{replicaStatuses: {Master: {succeeded: 1}, Worker: {active: 1}}}",
			"{replicaStatuses: {Master: {active: 1, succeeded: 1}, Worker: {active: 3, failed: 1}}}"},
		"Notebook": {headYAML("kubeflow.org/v1", "Notebook"), "{readyReplicas: 1}", "{readyReplicas: 1}", "{readyReplicas: 2, containerState: {}}"},
		"counts that the API server requires": {headYAML("apps.kruise.io/v1alpha1", "CloneSet") + "spec: {replicas: 2}\n", "{observedGeneration: 2, replicas: 2}", "{observedGeneration: 2, replicas: 2}",
			"{observedGeneration: 2, replicas: 2, updatedReplicas: 0, readyReplicas: 0, availableReplicas: 0, updatedReadyReplicas: 0}"},
		"active Jobs of a CronJob": {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tidy, namespace: shop}\n", "{active: [{name: tidy-2}, {name: tidy-1}]}", "{active: [{name: tidy-2}]}",
			"{active: [{apiVersion: batch/v1, kind: Job, namespace: shop, name: tidy-1}, {apiVersion: batch/v1, kind: Job, namespace: shop, name: tidy-2}, {apiVersion: batch/v1, kind: Job, namespace: shop, name: tidy-2}]}"},
	} {
		t.Run(name, func(t *testing.T) {
			rows := []kinds.RowItem{
				reportRow("a", parseObject(t, c.head+"\nstatus: "+c.a)), reportRow("b", parseObject(t, c.head+"\nstatus: "+c.b)), reportRow("c", parseObject(t, c.head+"\nstatus: "+c.a)),
			}
			rows[2].Disconnected = true
			got, _ := kinds.AggregateStatus(parseObject(t, c.head), false, rows, 2, 0)
			want := parseObject(t, c.head+"\nstatus: "+c.want).Object["status"]
			if !reflect.DeepEqual(any(got), want) {
				t.Errorf("\n got %v\nwant %v", got, want)
			}
		})
	}
}

// Clusters with equal reports are one row. A CronJob lists at most 100 active Jobs, at most 16 of
// one cluster.
func TestActiveJobsAreBounded(t *testing.T) {
	const head = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tidy, namespace: shop}\n"
	active := func(n int) string {
		out := "status: {active: ["
		for i := range n {
			out += "{name: tidy-" + formatDecimal(int64(100+i)) + "}, "
		}
		return out + "]}"
	}
	for name, c := range map[string]struct {
		jobs, equal, want int
	}{
		"one cluster": {3, 0, 3}, "two equal clusters": {3, 1, 6}, "many Jobs of one": {20, 0, 16}, "many clusters": {2, 5000, 100},
	} {
		row := reportRow("a", parseObject(t, head+active(c.jobs)))
		row.EqualClusters = c.equal
		st, _ := kinds.AggregateStatus(parseObject(t, head), false, []kinds.RowItem{row}, 1, 0)
		if got, _ := st["active"].([]any); len(got) != c.want {
			t.Errorf("%s: %d active Jobs, want %d", name, len(got), c.want)
		}
	}
}
