package kinds_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// reportRow returns the row that an agent sends for a member's object.
func reportRow(cluster string, member *unstructured.Unstructured) kinds.RowItem {
	h, _, _ := kinds.AssessHealth(member)
	return kinds.RowItem{Cluster: cluster, Reflected: kinds.ReflectStatus(member), Health: h}
}

// aggregateCase holds the template, the members' objects ("" reports nothing), and the resulting
// status without times.
type aggregateCase struct {
	name     string
	template string
	divided  bool
	members  []string
	change   func(rows []kinds.RowItem)
	observed int64
	want     string // "none" when there is nothing to write
}

// buildRows returns the rows of the case's members.
func (c aggregateCase) buildRows(t *testing.T) []kinds.RowItem {
	t.Helper()
	var rows []kinds.RowItem
	for i, m := range c.members {
		name := "c" + string(rune('a'+i))
		if m == "" {
			rows = append(rows, kinds.RowItem{Cluster: name})
			continue
		}
		rows = append(rows, reportRow(name, parseObject(t, m)))
	}
	if c.change != nil {
		c.change(rows)
	}
	return rows
}

// lastIsDisconnected marks the last row.
func lastIsDisconnected(rows []kinds.RowItem) { rows[len(rows)-1].Disconnected = true }

const (
	jobHead       = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: seed, namespace: shop, generation: 1}\nspec: {completions: 2, parallelism: 2}\n"
	jobHeadTTL    = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: seed, namespace: shop, generation: 1}\nspec: {completions: 2, parallelism: 2, ttlSecondsAfterFinished: 0}\n"
	jobRuns       = jobHead + "status: {startTime: '2026-01-01T00:00:05Z', active: 1, ready: 1, succeeded: 1}"
	jobDone       = jobHead + "status: {startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:01:00Z', succeeded: 2, conditions: [{type: Complete, status: 'True'}]}"
	jobDoneStatus = "{startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:01:00Z', succeeded: 2, conditions: [{type: SuccessCriteriaMet, status: 'True', reason: CompletionsReached}, {type: Complete, status: 'True', reason: CompletionsReached}]}"

	indexedHead = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: seed, namespace: shop, generation: 1}\nspec: {completions: 4, parallelism: 2, completionMode: Indexed, backoffLimitPerIndex: 1}\n"

	quotaHead = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: team, namespace: shop}\nspec: {hard: {pods: '4', requests.cpu: '2'}}\n"

	stsHead = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db, namespace: shop, generation: 1}\nspec: {replicas: 2}\n"
	toyHead = "apiVersion: example.com/v1\nkind: Toy\nmetadata: {name: bear, namespace: shop, generation: 1}\n"
	lbHead  = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {type: LoadBalancer}\n"

	policyHead = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: limits, generation: 2}\n"

	routeHead = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web, namespace: shop, generation: 2}\n"

	allDone  = "conditions: [{type: Available, status: 'True', reason: MinimumReplicasAvailable}, {type: Progressing, status: 'True', reason: NewReplicaSetAvailable}]"
	web2     = deploymentHeadYAML + "spec: {replicas: 2}\n"
	web2Done = web2 + "status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, " + allDone + "}"
	web2Half = web2 + "status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 1, availableReplicas: 1, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'True', reason: ReplicaSetUpdated}]}"
	web1Done = deploymentHeadYAML + "spec: {replicas: 1}\nstatus: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, " + allDone + "}"
)

func doneStatusYAML(n, generation string) string {
	return "{observedGeneration: " + generation + ", replicas: " + n + ", updatedReplicas: " + n + ", readyReplicas: " + n + ", availableReplicas: " + n + ", " + allDone + "}"
}

// parentsYAML is a route's status with one gateway and these conditions, each
// TYPE=STATUS=REASON.
func parentsYAML(gateway string, conditions ...string) string {
	return "status: {parents: [" + parentEntryYAML(gateway, "2", conditions...) + "]}"
}

func parentEntryYAML(gateway, observed string, conditions ...string) string {
	var cs []string
	for _, c := range conditions {
		p := strings.Split(c, "=")
		cs = append(cs, fmt.Sprintf("{type: %s, status: '%s', reason: %s, observedGeneration: %s}", p[0], p[1], p[2], observed))
	}
	return "{controllerName: example.com/gateway, parentRef: {group: gateway.networking.k8s.io, kind: Gateway, name: " + gateway + "}, conditions: [" + strings.Join(cs, ", ") + "]}"
}

var aggregateCases = []aggregateCase{
	{name: "duplicated is one cluster's", template: web2, members: []string{web2Done, web2Done}, observed: 2, want: doneStatusYAML("2", "2")},
	{name: "divided sums", template: deploymentHeadYAML + "spec: {replicas: 4}", divided: true, members: []string{web2Done, web2Done}, observed: 2, want: doneStatusYAML("4", "2")},
	{name: "the least finished tells", template: web2, members: []string{web2Done, web2Half, web2Done}, observed: 2,
		want: "{observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 1, availableReplicas: 1, unavailableReplicas: 1, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'True', reason: ReplicaSetUpdated}]}"},
	{name: "divided is available where all are", template: deploymentHeadYAML + "spec: {replicas: 4}", divided: true, members: []string{web2Done, web2Half}, observed: 2,
		want: "{observedGeneration: 2, replicas: 4, updatedReplicas: 4, readyReplicas: 3, availableReplicas: 3, unavailableReplicas: 1, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'True', reason: ReplicaSetUpdated}]}"},
	{name: "no report", template: web2, members: []string{"", ""}, observed: 0, want: "none"},
	{name: "one has not reported", template: web2, members: []string{web2Done, ""}, observed: 0, want: "none"},
	{name: "one is new", template: web2Done, members: []string{web2Done, ""}, observed: 0,
		want: "{observedGeneration: 2, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'True', reason: ReplicaSetUpdated}]}"},
	{name: "a member's controller is late", template: web2, members: []string{web2Done, strings.Replace(web2Done, "generation: 2}", "generation: 3}", 1)}, observed: 2, want: doneStatusYAML("2", "0")},
	{name: "stale content keeps the generation", template: web2 + "status: {observedGeneration: 1}", members: []string{web2Done, web2Done}, observed: 2,
		change: func(rows []kinds.RowItem) { rows[1].Stale = true }, want: doneStatusYAML("2", "1")},
	{name: "away is left out", template: web2, members: []string{web2Done, web2Half}, observed: 2,
		change: func(rows []kinds.RowItem) { rows[1].Disconnected = true }, want: doneStatusYAML("2", "2")},
	{name: "all away", template: web2, members: []string{web2Done}, observed: 2,
		change: func(rows []kinds.RowItem) { rows[0].Disconnected = true }, want: "none"},
	{name: "assigned fewer replicas", template: deploymentHeadYAML + "spec: {replicas: 3}", members: []string{web1Done, web1Done}, observed: 2, want: doneStatusYAML("3", "2")},
	{name: "healthy without room to reflect", template: web2, members: []string{"", ""}, observed: 2,
		change: func(rows []kinds.RowItem) { rows[0].Health, rows[1].Health = atoll.Healthy, atoll.Healthy }, want: doneStatusYAML("2", "2")},
	{name: "deadline", template: web2, members: []string{web2Done, web2 + "status: {observedGeneration: 2, replicas: 2, conditions: [{type: Available, status: 'False'}, {type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}]}"}, observed: 2,
		want: "{observedGeneration: 2, replicas: 2, unavailableReplicas: 2, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}]}"},

	{name: "replicas without a pod are unavailable", template: web2, members: []string{web2 + "status: {observedGeneration: 2, unavailableReplicas: 2, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}, {type: ReplicaFailure, status: 'True', reason: FailedCreate}]}"}, observed: 2,
		want: "{observedGeneration: 2, unavailableReplicas: 2, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}, {type: ReplicaFailure, status: 'True', reason: FailedCreate}]}"},

	{name: "a paused deployment without a replica set has no unavailable replicas", template: web2, observed: 2,
		members: []string{strings.Replace(web2, "replicas: 2", "replicas: 2, paused: true", 1) + "status: {observedGeneration: 2, conditions: [{type: Progressing, status: Unknown, reason: DeploymentPaused}]}"},
		want:    "{observedGeneration: 2, conditions: [{type: Available, status: 'False', reason: MinimumReplicasUnavailable}, {type: Progressing, status: Unknown, reason: DeploymentPaused}]}"},
	{name: "terminating replicas are summed", template: deploymentHeadYAML + "spec: {replicas: 4}", divided: true, observed: 2, members: []string{
		strings.Replace(web2Done, "replicas: 2, updated", "replicas: 2, terminatingReplicas: 3, updated", 1), strings.Replace(web2Done, "replicas: 2, updated", "replicas: 2, terminatingReplicas: 1, updated", 1)},
		want: strings.Replace(doneStatusYAML("4", "2"), "{", "{terminatingReplicas: 4, ", 1)},
	{name: "terminating replicas of one cluster", template: deploymentHeadYAML + "spec: {replicas: 5}", observed: 2,
		members: []string{strings.Replace(web2Done, "replicas: 2, updated", "replicas: 2, terminatingReplicas: 1, updated", 1)},
		want:    strings.Replace(doneStatusYAML("5", "2"), "{", "{terminatingReplicas: 1, ", 1)},

	{name: "statefulset done", template: stsHead, members: []string{stsHead + "status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: a}"}, observed: 1,
		want: "{observedGeneration: 1, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 2, currentReplicas: 2, currentRevision: db-1, updateRevision: db-1}"},
	{name: "statefulset in ranges sums", template: strings.Replace(stsHead, "replicas: 2", "replicas: 5", 1), divided: true, observed: 1, members: []string{
		strings.Replace(stsHead, "replicas: 2", "replicas: 2, ordinals: {start: 0}", 1) + "status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: a}",
		strings.Replace(stsHead, "replicas: 2", "replicas: 3, ordinals: {start: 1000}", 1) + "status: {observedGeneration: 1, replicas: 3, readyReplicas: 1, availableReplicas: 1, updatedReplicas: 3, currentReplicas: 3, currentRevision: a, updateRevision: a}"},
		want: "{observedGeneration: 1, replicas: 5, readyReplicas: 3, availableReplicas: 3, updatedReplicas: 5, currentReplicas: 5, currentRevision: db-1, updateRevision: db-1}"},
	{name: "statefulset updating", template: stsHead, members: []string{stsHead + "status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 1, currentReplicas: 1, currentRevision: a, updateRevision: b}"}, observed: 1,
		want: "{observedGeneration: 1, replicas: 2, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 1, currentReplicas: 1, currentRevision: db-0, updateRevision: db-1}"},
	{name: "daemonset", template: "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, generation: 1}", observed: 1,
		members: []string{"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, generation: 1}\nstatus: {observedGeneration: 1, desiredNumberScheduled: 3, currentNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 2, numberAvailable: 2, numberUnavailable: 1}"},
		want:    "{observedGeneration: 1, desiredNumberScheduled: 3, currentNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 2, numberAvailable: 2, numberUnavailable: 1}"},
	{name: "a node without a pod of the daemonset", template: "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, generation: 1}", observed: 1,
		members: []string{"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, generation: 1}\nstatus: {observedGeneration: 1, desiredNumberScheduled: 4, currentNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 2, numberAvailable: 2, numberUnavailable: 2}"},
		want:    "{observedGeneration: 1, desiredNumberScheduled: 4, currentNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 2, numberAvailable: 2, numberUnavailable: 2}"},

	{name: "job runs until the last is done", template: jobHead, observed: 1, members: []string{
		jobHead + "status: {startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:01:00Z', succeeded: 2, conditions: [{type: Complete, status: 'True'}]}",
		jobHead + "status: {startTime: '2026-01-01T00:00:05Z', active: 1, ready: 1, succeeded: 1}"},
		want: "{startTime: '2026-01-01T00:00:00Z', active: 1, ready: 1, succeeded: 1}"},
	{name: "job complete", template: jobHead, observed: 1, members: []string{
		jobHead + "status: {startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:01:00Z', succeeded: 2, conditions: [{type: Complete, status: 'True'}]}",
		jobHead + "status: {startTime: '2026-01-01T00:00:05Z', completionTime: '2026-01-01T00:02:00Z', succeeded: 2, conditions: [{type: Complete, status: 'True'}]}"},
		want: "{startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:02:00Z', succeeded: 2, conditions: [{type: SuccessCriteriaMet, status: 'True', reason: CompletionsReached}, {type: Complete, status: 'True', reason: CompletionsReached}]}"},
	{name: "job failed in one", template: jobHead, observed: 1, members: []string{
		jobHead + "status: {startTime: '2026-01-01T00:00:00Z', completionTime: '2026-01-01T00:01:00Z', succeeded: 2, conditions: [{type: Complete, status: 'True'}]}",
		jobHead + "status: {startTime: '2026-01-01T00:00:05Z', failed: 3, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}"},
		want: "{startTime: '2026-01-01T00:00:00Z', failed: 3, conditions: [{type: FailureTarget, status: 'True', reason: BackoffLimitExceeded}, {type: Failed, status: 'True', reason: BackoffLimitExceeded}]}"},
	{name: "the indexes of the cluster that is the furthest behind", template: indexedHead, observed: 1, members: []string{
		indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 3, completedIndexes: '0,2-3'}",
		indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', active: 1, succeeded: 2, failed: 1, completedIndexes: 0-1, failedIndexes: '3'}"},
		want: "{startTime: '2026-01-01T00:00:00Z', active: 1, succeeded: 2, failed: 1, completedIndexes: 0-1, failedIndexes: '3'}"},
	{name: "failed indexes that the template does not count", template: strings.Replace(indexedHead, ", backoffLimitPerIndex: 1", "", 1), observed: 1, members: []string{
		indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 2, failed: 1, completedIndexes: 0-1, failedIndexes: '3'}"},
		want: "{startTime: '2026-01-01T00:00:00Z', succeeded: 2, failed: 1, completedIndexes: 0-1}"},
	{name: "no indexes of a divided job", template: indexedHead, observed: 1, divided: true, members: []string{
		indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 2, completedIndexes: 0-1}", indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 1, completedIndexes: '0'}"},
		want: "{startTime: '2026-01-01T00:00:00Z', succeeded: 3}"},
	{name: "the indexes of a divided job in one cluster", template: indexedHead, observed: 1, divided: true,
		members: []string{indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 2, completedIndexes: 0-1}"},
		want:    "{startTime: '2026-01-01T00:00:00Z', succeeded: 2, completedIndexes: 0-1}"},
	{name: "indexes go with the count that never decreases", template: indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 2, completedIndexes: 0-1}", observed: 1,
		members: []string{indexedHead + "status: {startTime: '2026-01-01T00:00:00Z', succeeded: 1, completedIndexes: '0'}"},
		want:    "{startTime: '2026-01-01T00:00:00Z', succeeded: 2, completedIndexes: 0-1}"},
	{name: "a job without a time to live does not wait for the disconnected", template: jobHead, observed: 1, members: []string{jobDone, jobRuns}, change: lastIsDisconnected,
		want: jobDoneStatus},
	{name: "a job with a time to live waits for the disconnected", template: jobHeadTTL, observed: 1, members: []string{jobDone, jobRuns}, change: lastIsDisconnected,
		want: "{startTime: '2026-01-01T00:00:00Z', succeeded: 2}"},
	{name: "a job with a time to live ends with what the disconnected reported last", template: jobHeadTTL, observed: 1, members: []string{jobDone, jobDone}, change: lastIsDisconnected,
		want: jobDoneStatus},
	{name: "quotas are summed, as far as the template limits", template: quotaHead, members: []string{
		quotaHead + "status: {hard: {pods: '4', requests.cpu: 1500m}, used: {pods: '1', requests.cpu: 250m}}",
		quotaHead + "status: {hard: {pods: '4', requests.cpu: '2', secrets: '3'}, used: {pods: '3', requests.cpu: '1', secrets: '1'}}"},
		want: "{hard: {pods: '8', requests.cpu: 3500m}, used: {pods: '4', requests.cpu: 1250m}}"},
	{name: "an amount that cannot be read is left out", template: quotaHead, members: []string{
		quotaHead + "status: {hard: {pods: '-4', requests.cpu: '2'}, used: {pods: '1', requests.cpu: '1'}}", quotaHead + "status: {hard: {pods: '4', requests.cpu: '2'}, used: {pods: '1', requests.cpu: 1e-99999}}"},
		change: func(rows []kinds.RowItem) { rows[1].EqualClusters = 9 }, want: "{hard: {pods: '40', requests.cpu: '2'}, used: {pods: '10', requests.cpu: '1'}}"},
	{name: "finished job stays", template: jobHead + "status: {conditions: [{type: Complete, status: 'True'}]}", observed: 1,
		members: []string{jobHead + "status: {active: 1}"}, want: "none"},
	{name: "cronjob", template: "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tidy}", observed: 1, members: []string{
		"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tidy}\nstatus: {lastScheduleTime: '2026-01-01T00:00:00Z'}",
		"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tidy}\nstatus: {lastScheduleTime: '2026-01-01T00:00:01Z', lastSuccessfulTime: '2026-01-01T00:00:00Z'}"},
		want: "{lastScheduleTime: '2026-01-01T00:00:01Z', lastSuccessfulTime: '2026-01-01T00:00:00Z'}"},
	{name: "pod", template: "apiVersion: v1\nkind: Pod\nmetadata: {name: one, generation: 1}\nstatus: {phase: Pending, qosClass: BestEffort}", observed: 1, members: []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nstatus: {phase: Running, podIP: 10.0.0.1, conditions: [{type: Ready, status: 'True'}, {type: PodScheduled, status: 'True'}]}",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nstatus: {phase: Running, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady}]}"},
		want: "{phase: Running, qosClass: BestEffort, observedGeneration: 1, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady}]}"},

	{name: "addresses are joined, away too", template: lbHead, observed: 1, members: []string{
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP}, {hostname: a.example.com}]}}",
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.2, ipMode: Proxy}]}}"},
		change: func(rows []kinds.RowItem) { rows[1].Disconnected = true },
		want:   "{loadBalancer: {ingress: [{hostname: a.example.com}, {ip: 192.0.2.1, ipMode: VIP, hostname: ca}, {ip: 192.0.2.2, ipMode: Proxy, hostname: cb}]}}"},
	{name: "equal addresses differ by their clusters", template: lbHead, observed: 1, members: []string{
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {hostname: a.example.com}]}}",
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {hostname: a.example.com}]}}"},
		want: "{loadBalancer: {ingress: [{hostname: a.example.com}, {ip: 192.0.2.1, ipMode: VIP, hostname: ca}, {ip: 192.0.2.1, ipMode: VIP, hostname: cb}]}}"},
	{name: "a hostname of the member's stays", template: lbHead, observed: 1, members: []string{
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1, hostname: a.example.com}]}}",
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP, hostname: a.example.com}]}}"},
		want: "{loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP, hostname: a.example.com}]}}"},
	{name: "a cluster whose name would be read as an address", template: lbHead, observed: 1, members: []string{
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}"},
		change: func(rows []kinds.RowItem) { rows[0].Cluster = "10.1.2.3" },
		want:   "{loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP}]}}"},
	{name: "of very many clusters each address is there once", template: lbHead, observed: 1, members: []string{
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}", lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}"},
		change: func(rows []kinds.RowItem) { rows[0].EqualClusters = 999 },
		want:   "{loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP}]}}"},
	{name: "a service that is no load balancer", template: strings.Replace(lbHead, "LoadBalancer", "ClusterIP", 1), observed: 1, members: []string{
		lbHead + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}"}, want: "none"},
	{name: "ingress", template: "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}", observed: 1, members: []string{
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}"},
		want: "{loadBalancer: {ingress: [{ip: 192.0.2.1, hostname: ca}]}}"},
	{name: "claim takes the worst", template: "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce]}\nstatus: {phase: Pending}", observed: 1, members: []string{
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nstatus: {phase: Bound, capacity: {storage: 10Gi}}",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nstatus: {phase: Bound, capacity: {storage: 8Gi}}"},
		want: "{phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 8Gi}}"},
	{name: "budget", template: "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, generation: 1}", observed: 1, members: []string{
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, generation: 1}\nstatus: {observedGeneration: 1, disruptionsAllowed: 1, currentHealthy: 3, desiredHealthy: 2, expectedPods: 3, conditions: [{type: DisruptionAllowed, status: 'True', reason: SufficientPods, observedGeneration: 1}]}",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, generation: 1}\nstatus: {observedGeneration: 1, disruptionsAllowed: 0, currentHealthy: 2, desiredHealthy: 2, expectedPods: 3, conditions: [{type: DisruptionAllowed, status: 'False', reason: InsufficientPods, observedGeneration: 1}]}"},
		want: "{observedGeneration: 1, currentHealthy: 2, desiredHealthy: 2, expectedPods: 3, conditions: [{type: DisruptionAllowed, status: 'False', reason: InsufficientPods, observedGeneration: 1}]}"},
	{name: "autoscaler", template: "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}", observed: 1, members: []string{
		"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nstatus: {currentReplicas: 2, desiredReplicas: 3, conditions: [{type: AbleToScale, status: 'True', reason: ReadyForNewScale}]}"},
		want: "{observedGeneration: 1, currentReplicas: 2, desiredReplicas: 3, conditions: [{type: AbleToScale, status: 'True', reason: ReadyForNewScale}]}"},
	{name: "custom kind", template: toyHead, observed: 1, members: []string{
		toyHead + "status: {observedGeneration: 1, phase: Happy, conditions: [{type: Ready, status: 'True', reason: Stuffed}]}",
		toyHead + "status: {observedGeneration: 1, phase: Sad, conditions: [{type: Ready, status: 'False', reason: Torn}]}"},
		want: "{observedGeneration: 1, phase: Sad, conditions: [{type: Ready, status: 'False', reason: Torn}]}"},
	{name: "routes: parents are joined, the worst of each condition", template: routeHead, observed: 2, members: []string{
		routeHead + parentsYAML("edge", "Accepted=True=Accepted", "ResolvedRefs=False=BackendNotFound"),
		routeHead + parentsYAML("edge", "Accepted=True=Accepted", "PartiallyInvalid=True=UnsupportedValue")},
		want: "{parents: [" + parentEntryYAML("edge", "2", "Accepted=True=Accepted", "PartiallyInvalid=True=UnsupportedValue", "ResolvedRefs=False=BackendNotFound") + "]}"},
	{name: "routes: gateways that only some clusters have", template: routeHead, observed: 2, members: []string{
		routeHead + parentsYAML("edge", "Accepted=True=Accepted"), routeHead + parentsYAML("core", "Accepted=True=Accepted")},
		want: "{parents: [" + parentEntryYAML("core", "2", "Accepted=True=Accepted") + ", " + parentEntryYAML("edge", "2", "Accepted=True=Accepted") + "]}"},
	{name: "routes: a cluster that says nothing yet", template: routeHead + parentsYAML("edge", "Accepted=True=Accepted"), observed: 0, members: []string{
		routeHead + parentsYAML("edge", "Accepted=True=Accepted"), ""},
		want: "{parents: [" + parentEntryYAML("edge", "2", "Accepted=Unknown=Pending") + "]}"},
	{name: "routes: a cluster that had no room to report", template: routeHead + parentsYAML("edge", "Accepted=True=Accepted"), observed: 2, members: []string{
		routeHead + parentsYAML("edge", "Accepted=True=Accepted"), ""},
		change: func(rows []kinds.RowItem) { rows[1].Health = atoll.Healthy },
		want:   "{parents: [" + parentEntryYAML("edge", "2", "Accepted=True=Accepted") + "]}"},
	{name: "routes: a row of the wrong shape", template: routeHead, observed: 2, members: []string{routeHead + parentsYAML("edge", "Accepted=True=Accepted")},
		change: func(rows []kinds.RowItem) {
			rows[0].Reflected = json.RawMessage(`{"a":[{"r":null,"c":["Accepted=T:Accepted"]}]}`)
		},
		want: "{parents: [{parentRef: {group: gateway.networking.k8s.io, kind: Gateway}, conditions: [{type: Accepted, status: 'True', reason: Accepted}]}]}"},
	{name: "routes: no report any more", template: routeHead + parentsYAML("edge", "Accepted=True=Accepted"), observed: 2, members: []string{""},
		want: "{parents: [" + parentEntryYAML("edge", "2", "Accepted=Unknown=Pending") + "]}"},
	{name: "routes: away is left out", template: routeHead, observed: 2, members: []string{
		routeHead + parentsYAML("edge", "Accepted=True=Accepted"), routeHead + parentsYAML("edge", "Accepted=False=NoMatchingParent")},
		change: func(rows []kinds.RowItem) { rows[1].Disconnected = true },
		want:   "{parents: [" + parentEntryYAML("edge", "2", "Accepted=True=Accepted") + "]}"},
	{name: "routes: a gateway that is behind keeps the generation", template: strings.Replace(routeHead, "generation: 2", "generation: 3", 1) + parentsYAML("edge", "Accepted=True=Accepted"), observed: 3, members: []string{
		strings.Replace(routeHead, "generation: 2", "generation: 9", 1) + parentsYAML("edge", "Accepted=True=Accepted")},
		want: "{parents: [" + parentEntryYAML("edge", "2", "Accepted=True=Accepted") + "]}"},
	{name: "policies of backends: ancestors", template: strings.Replace(routeHead, "HTTPRoute", "BackendTLSPolicy", 1), observed: 2, members: []string{
		strings.NewReplacer("HTTPRoute", "BackendTLSPolicy", "parents:", "ancestors:", "parentRef:", "ancestorRef:").Replace(routeHead + parentsYAML("edge", "Accepted=False=Invalid"))},
		want: strings.NewReplacer("parents:", "ancestors:", "parentRef:", "ancestorRef:").Replace("{parents: [" + parentEntryYAML("edge", "2", "Accepted=False=Invalid") + "]}")},
	{name: "the type check of the cluster with the most warnings", template: policyHead, observed: 2, members: []string{
		policyHead + "status: {observedGeneration: 2, typeChecking: {}}",
		policyHead + "status: {observedGeneration: 2, typeChecking: {expressionWarnings: [{fieldRef: 'spec.validations[0].expression', warning: undefined field}, {fieldRef: 'spec.validations[1].expression', warning: no such overload}]}}"},
		want: "{observedGeneration: 2, typeChecking: {expressionWarnings: [{fieldRef: 'spec.validations[0].expression', warning: undefined field}, {fieldRef: 'spec.validations[1].expression', warning: no such overload}]}}"},
	{name: "a policy that one cluster has not checked", template: policyHead, observed: 2, members: []string{
		policyHead + "status: {observedGeneration: 2, typeChecking: {}}", strings.Replace(policyHead, "generation: 2", "generation: 3", 1) + "status: {observedGeneration: 2}"},
		want: "{}"},
	{name: "kinds that the hub keeps itself", template: "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: toys.example.com}", observed: 1,
		members: []string{"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: toys.example.com}\nstatus: {conditions: [{type: Established, status: 'True'}]}"}, want: "none"},
	{name: "kinds without status", template: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", members: []string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}"}, observed: 1, want: "none"},
}

func TestAggregate(t *testing.T) {
	for _, c := range aggregateCases {
		t.Run(c.name, func(t *testing.T) {
			rows := c.buildRows(t)
			template := parseObject(t, c.template)
			before := template.DeepCopy()
			got, ok := kinds.AggregateStatus(template, c.divided, rows, c.observed, 0)
			if c.want == "none" {
				if ok {
					t.Fatalf("Aggregate = %v, want nothing", got)
				}
				return
			}
			var want map[string]any
			if err := yaml.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if !ok || !kinds.EqualStatusesIgnoringEmpty(withoutTimes(got), want) {
				t.Errorf("Aggregate = %s, %v\nwant %s", asJSON(withoutTimes(got)), ok, asJSON(want))
			}
			if asJSON(before.Object) != asJSON(template.Object) {
				t.Errorf("Aggregate changed the template")
			}
		})
	}
}

// withoutTimes is a copy of a status without the times and messages of its conditions.
func withoutTimes(status map[string]any) map[string]any {
	var out map[string]any
	if err := json.Unmarshal([]byte(asJSON(status)), &out); err != nil {
		panic(err)
	}
	for _, c := range kinds.StatusAndParentConditions(out) {
		for _, key := range []string{"message", "lastTransitionTime", "lastUpdateTime", "lastProbeTime"} {
			delete(c, key)
		}
	}
	return out
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestTheLeastFinishedClusterTellsWhy(t *testing.T) {
	widget := parseObject(t, `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, status: {conditions: [
		{type: Ready, status: "False", reason: NoDisk, message: the disk is missing}, {type: Synced, status: "True", reason: Synced}]}}`)
	row := reportRow("a", widget)
	_, row.Reason, row.Message = kinds.AssessHealth(widget)
	got, _ := kinds.AggregateStatus(widget, false, []kinds.RowItem{row}, 1, 0)
	var messages []string
	for _, c := range got["conditions"].([]any) {
		m := c.(map[string]any)
		messages = append(messages, fmt.Sprint(m["type"], ": ", m["message"]))
	}
	slices.Sort(messages)
	if want := []string{"Ready: cluster a: the disk is missing", "Synced: "}; !slices.Equal(messages, want) {
		t.Errorf("messages %q, want %q", messages, want)
	}
}

// The message names the first by name of the clusters whose gateways report the same, whatever the order of the
// reports: the status would else change with each report.
func TestTheFirstOfEquallyBadClustersIsNamed(t *testing.T) {
	good, bad := "Accepted=True=Accepted", "Accepted=False=NoMatchingParent"
	for _, clusters := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}, {"c", "b", "a"}} {
		for healthy, want := range map[string]string{"": "reported by cluster a", "a": "reported by cluster b", "b": "reported by cluster a"} {
			var rows []kinds.RowItem
			for _, cluster := range clusters {
				condition := bad
				if cluster == healthy {
					condition = good
				}
				rows = append(rows, reportRow(cluster, parseObject(t, routeHead+parentsYAML("edge", condition))))
			}
			got, _ := kinds.AggregateStatus(parseObject(t, routeHead), false, rows, 2, 0)
			c := kinds.StatusAndParentConditions(got)
			if len(c) != 1 || c[0]["message"] != want || c[0]["reason"] != "NoMatchingParent" {
				t.Errorf("reports of %v, of which %q is accepted: %v, want %q", clusters, healthy, c, want)
			}
		}
	}
}

func TestTimesAreKeptOrStamped(t *testing.T) {
	old := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rows := []kinds.RowItem{reportRow("a", parseObject(t, web2Half))}
	template := parseObject(t, web2)
	first, _ := kinds.AggregateStatus(template, false, rows, 2, 0)
	if !kinds.FillTimePlaceholders(first, old) || kinds.FillTimePlaceholders(first, old.Add(time.Hour)) {
		t.Errorf("the first Stamp fills in everything, the second nothing")
	}
	template.Object["status"] = first
	again, _ := kinds.AggregateStatus(template, false, rows, 2, 0)
	if !kinds.EqualStatusesIgnoringEmpty(first, again) {
		t.Errorf("the same rows give %s\nafter %s", asJSON(again), asJSON(first))
	}
	done, _ := kinds.AggregateStatus(template, false, []kinds.RowItem{reportRow("a", parseObject(t, web2Done))}, 2, 0)
	kinds.FillTimePlaceholders(done, old.Add(time.Hour))
	conditions := done["conditions"].([]any)
	available, progressing := conditions[0].(map[string]any), conditions[1].(map[string]any)
	if got := available["lastTransitionTime"]; got != "2026-01-01T01:00:00Z" {
		t.Errorf("Available turned true at %v", got)
	}
	if got := progressing["lastTransitionTime"]; got != "2026-01-01T00:00:00Z" {
		t.Errorf("Progressing stayed true, but its transition is at %v", got)
	}
	if got := progressing["lastUpdateTime"]; got != "2026-01-01T01:00:00Z" {
		t.Errorf("Progressing has another reason, but its update is at %v", got)
	}
}

// Conditions of gateways keep their times while they are equal, and a message names the cluster
// whose gateway refuses the route.
func TestParentsKeepTheirTimes(t *testing.T) {
	template := parseObject(t, routeHead)
	row := reportRow("oslo", parseObject(t, routeHead+parentsYAML("edge", "Accepted=False=NoMatchingParent")))
	row.Reason, row.Message = "NoMatchingParent", "no listener matches"
	first, ok := kinds.AggregateStatus(template, false, []kinds.RowItem{row}, 2, 0)
	if !ok || !kinds.FillTimePlaceholders(first, time.Unix(0, 0)) {
		t.Fatalf("there was no time to fill in: %v", first)
	}
	template.Object["status"] = first
	again, _ := kinds.AggregateStatus(template, false, []kinds.RowItem{row}, 2, 0)
	if !kinds.EqualStatusesIgnoringEmpty(first, again) || kinds.FillTimePlaceholders(again, time.Unix(9, 0)) {
		t.Errorf("the same row gives %s\nafter %s", asJSON(again), asJSON(first))
	}
	if c := kinds.StatusAndParentConditions(again)[0]; c["message"] != "cluster oslo: no listener matches" || c["lastTransitionTime"] != "1970-01-01T00:00:00Z" {
		t.Errorf("the condition is %v", c)
	}
}

func TestReflectIsSmall(t *testing.T) {
	for _, c := range aggregateCases {
		for _, m := range c.members {
			if m == "" {
				continue
			}
			if r := kinds.ReflectStatus(parseObject(t, m)); len(r) > 128 {
				t.Errorf("%s: reflected in %d bytes: %s", c.name, len(r), r)
			}
		}
	}
	if r := kinds.ReflectStatus(parseObject(t, web2Done)); len(r) > 64 {
		t.Errorf("a Deployment is reflected in %d bytes: %s", len(r), r)
	}
}

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{}`, `{"a": null, "b": 0, "c": "", "d": [], "e": {}, "f": false, "g": {"h": 0}}`, true},
		{`{"a": 1}`, `{"a": 1.0}`, true},
		{`{"a": 1}`, `{"a": 2}`, false},
		{`{"a": 1}`, `{"a": "1"}`, false},
		{`{"a": [1, 2]}`, `{"a": [2, 1]}`, false},
		{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 0}}`, true},
		{`{"a": {"b": 1}}`, `{"a": {"b": 1, "c": 3}}`, false},
	} {
		var a, b map[string]any
		if json.Unmarshal([]byte(c.a), &a) != nil || json.Unmarshal([]byte(c.b), &b) != nil {
			t.Fatal("fixture")
		}
		if kinds.EqualStatusesIgnoringEmpty(a, b) != c.want || kinds.EqualStatusesIgnoringEmpty(b, a) != c.want {
			t.Errorf("Equal(%s, %s) is not %v both ways", c.a, c.b, c.want)
		}
	}
}

// Times that a member reports wrongly hide nothing of the others, and one that was stored goes.
func TestTimesAheadAreIgnored(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	cronJob := func(status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": map[string]any{"name": "c"}, "status": status}}
	}
	row := func(cluster string, last int64) kinds.RowItem {
		return kinds.RowItem{Cluster: cluster, Health: atoll.Healthy, Reflected: fmt.Appendf(nil, `{"t":[%d,0]}`, last)}
	}
	honest := now.Add(-time.Minute).Unix()
	for name, c := range map[string]struct {
		stored string
		ahead  int64
	}{
		"an absurd year":         {"", 1 << 60},
		"the far future":         {"", now.AddDate(50, 0, 0).Unix()},
		"before the epoch":       {"", -1 << 60},
		"stored from the future": {"2099-01-01T00:00:00Z", 0},
	} {
		stored := map[string]any{}
		if c.stored != "" {
			stored["lastScheduleTime"] = c.stored
		}
		st, ok := kinds.AggregateStatus(cronJob(stored), false, []kinds.RowItem{row("a", c.ahead), row("b", honest)}, 1, now.Add(time.Hour).Unix())
		if want := time.Unix(honest, 0).UTC().Format(time.RFC3339); !ok || st["lastScheduleTime"] != want {
			t.Errorf("%s: %v, want %s", name, st["lastScheduleTime"], want)
		}
	}
}

// The first cluster by name of those in which a Job failed gives the reason.
func TestTheFirstClusterWhoseJobFailedGivesTheReason(t *testing.T) {
	const head = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: seed, generation: 1}\nspec: {completions: 1}\n"
	var rows []kinds.RowItem
	for _, cluster := range []string{"oslo", "lima", "tokyo"} {
		job := parseObject(t, head+"status: {failed: 1, conditions: [{type: Failed, status: 'True', reason: In"+cluster+"}]}")
		row := reportRow(cluster, job)
		row.Health, row.Reason, row.Message = kinds.AssessHealth(job)
		rows = append(rows, row)
	}
	got, ok := kinds.AggregateStatus(parseObject(t, head), false, rows, 1, 0)
	if !ok {
		t.Fatal("no status")
	}
	for _, c := range kinds.StatusAndParentConditions(got) {
		if c["reason"] != "Inlima" || c["message"] != "the job failed in cluster lima" {
			t.Errorf("condition %v: %v %v", c["type"], c["reason"], c["message"])
		}
	}
	if n := len(kinds.StatusAndParentConditions(got)); n != 2 {
		t.Errorf("%d conditions, want FailureTarget and Failed", n)
	}
}

// The API server refuses a status with indexes of another form, and so all of the status.
func TestIndexesOfAnotherFormAreLeftOut(t *testing.T) {
	for text, accepted := range map[string]bool{
		"0": true, "0-3": true, "0,2-3": true, "": false, "4": false, "2-4": false, "1-1": false, "3-2": false, "2,1": false, "0-2,2": false,
		"x": false, "0,": false, "-1": false, "0-": false, "0-1-2": false,
	} {
		rows := []kinds.RowItem{{Cluster: "a", Reflected: json.RawMessage(`{"n":[0,0,1],"t":[1767225600],"l":["` + text + `"]}`)}}
		got, ok := kinds.AggregateStatus(parseObject(t, indexedHead), false, rows, 1, 0)
		if _, has := got["completedIndexes"]; !ok || has != accepted {
			t.Errorf("%q: %v, %t", text, got, ok)
		}
	}
}
