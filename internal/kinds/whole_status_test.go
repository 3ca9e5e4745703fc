package kinds_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// wholeCase is a template, and the whole status that it gets from its members' objects. "T" stands for a new time.
type wholeCase struct {
	name, template string
	divided        bool
	members        []string // "" reports nothing
	change         func(rows []kinds.RowItem)
	observed       int64
	want           string // "none" when there is nothing to write
}

func checkWholeStatuses(t *testing.T, cases []wholeCase) {
	t.Helper()
	for _, c := range cases {
		rows := aggregateCase{members: c.members, change: c.change}.buildRows(t)
		got, ok := kinds.AggregateStatus(parseObject(t, c.template), c.divided, rows, c.observed, 0)
		if c.want == "none" {
			if ok {
				t.Errorf("%s: %s, want none", c.name, asJSON(got))
			}
			continue
		}
		want := parseObject(t, deploymentHeadYAML+"status: "+c.want).Object["status"]
		text := strings.ReplaceAll(asJSON(got), `Time":"`+kinds.TimePlaceholder+`"`, `Time":"T"`)
		if !ok || text != asJSON(want) {
			t.Errorf("%s:\n got %s\nwant %s", c.name, text, asJSON(want))
		}
	}
}

// staleFirst marks the first row as one of older content.
func staleFirst(rows []kinds.RowItem) { rows[0].Stale = true }

// Before the template's own generation is observed anywhere, no status states one.
func TestNoGenerationIsObservedAtFirst(t *testing.T) {
	for _, c := range []struct{ template, status string }{
		{web2, "{observedGeneration: 2, replicas: 1}"}, {stsHead, "{observedGeneration: 2, replicas: 1}"}, {headYAML("apps/v1", "ReplicaSet"), "{observedGeneration: 2, replicas: 1}"},
		{headYAML("apps/v1", "DaemonSet"), "{observedGeneration: 2, numberReady: 1}"}, {headYAML("v1", "Pod"), "{phase: Running}"}, {headYAML("policy/v1", "PodDisruptionBudget"), "{observedGeneration: 2, currentHealthy: 1}"},
		{headYAML("autoscaling/v2", "HorizontalPodAutoscaler"), "{currentReplicas: 1}"}, {policyHead, "{observedGeneration: 2}"}, {headYAML("example.com/v1", "Toy"), "{observedGeneration: 2, phase: x}"},
	} {
		template := parseObject(t, c.template)
		for observed, want := range map[int64]bool{0: false, 2: true} {
			rows := []kinds.RowItem{reportRow("ca", parseObject(t, c.template+"status: "+c.status))}
			status, ok := kinds.AggregateStatus(template, false, rows, observed, 0)
			if n, stated := status["observedGeneration"]; !ok || stated != want || stated && n != observed {
				t.Errorf("%s, observed %d: %s", template.GetKind(), observed, asJSON(status))
			}
		}
	}
}

// Conditions show which cluster is behind, in which form, and since when.
func TestWholeStatusOfWorkloads(t *testing.T) {
	const member = "status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, conditions: ["
	const counts = "availableReplicas: 2, observedGeneration: 2, readyReplicas: 2, replicas: 2, updatedReplicas: 2, "
	condition := func(kind, status, reason, message string) string {
		return fmt.Sprintf("{lastTransitionTime: T, lastUpdateTime: T, message: %s, reason: %s, status: '%s', type: %s}", message, reason, status, kind)
	}
	available := condition("Available", "True", "MinimumReplicasAvailable", "every reachable cluster has its minimum of available replicas")
	const done = "{type: Available, status: 'True'}, {type: Progressing, status: 'True', reason: NewReplicaSetAvailable}"
	daemon, set := headYAML("apps/v1", "DaemonSet"), headYAML("apps/v1", "ReplicaSet")+"spec: {replicas: 2}\n"
	checkWholeStatuses(t, []wholeCase{
		{name: "done", template: web2, members: []string{web2 + member + done + "]}"}, observed: 2,
			want: "{" + counts + "conditions: [" + available + ", " + condition("Progressing", "True", "NewReplicaSetAvailable", "every reachable cluster has finished the rollout") + "]}"},
		{name: "rolling out", template: web2, members: []string{web2 + member + "{type: Available, status: 'True'}, {type: Progressing, status: 'True', reason: ReplicaSetUpdated}]}"}, observed: 2,
			want: "{" + counts + "conditions: [" + available + ", " + condition("Progressing", "True", "ReplicaSetUpdated", "cluster ca is the furthest from finishing the rollout") + "]}"},
		{name: "another reason is no deadline", template: web2, members: []string{web2 + member + "{type: Available, status: 'True'}, {type: Progressing, status: 'False', reason: Other}]}"}, observed: 2,
			want: "{" + counts + "conditions: [" + available + ", " + condition("Progressing", "True", "ReplicaSetUpdated", "cluster ca is the furthest from finishing the rollout") + "]}"},
		{name: "a deadline with pods that cannot be made", template: web2, members: []string{web2 + member + "{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}, {type: ReplicaFailure, status: 'True'}]}"}, observed: 2,
			want: "{" + counts + "conditions: [" + condition("Available", "False", "MinimumReplicasUnavailable", "cluster ca is the furthest from its minimum of available replicas") + ", " +
				condition("Progressing", "False", "ProgressDeadlineExceeded", "cluster ca exceeded the progress deadline") + ", " + condition("ReplicaFailure", "True", "FailedCreate", "cluster ca cannot create pods") + "]}"},
		{name: "times that still hold stay", template: web2 + "status: {conditions: [{type: Available, status: 'True', reason: Other, lastTransitionTime: t1, lastUpdateTime: t2}, {type: Progressing, status: 'True', reason: NewReplicaSetAvailable, lastTransitionTime: t3, lastUpdateTime: t4}]}",
			members: []string{web2 + member + done + "]}"}, observed: 2,
			want: "{" + counts + "conditions: [" + strings.Replace(available, "lastTransitionTime: T", "lastTransitionTime: t1", 1) + ", " +
				strings.NewReplacer("lastTransitionTime: T", "lastTransitionTime: t3", "lastUpdateTime: T", "lastUpdateTime: t4").Replace(condition("Progressing", "True", "NewReplicaSetAvailable", "every reachable cluster has finished the rollout")) + "]}"},

		{name: "replica sets", template: set, observed: 2, members: []string{
			set + "status: {observedGeneration: 2, replicas: 2, fullyLabeledReplicas: 2, readyReplicas: 2, availableReplicas: 2}", set + "status: {observedGeneration: 2, replicas: 2, fullyLabeledReplicas: 2, readyReplicas: 1, availableReplicas: 1, terminatingReplicas: 1, conditions: [{type: ReplicaFailure, status: 'True'}]}"},
			want: "{availableReplicas: 1, conditions: [{lastTransitionTime: T, message: cluster cb cannot create pods, reason: FailedCreate, status: 'True', type: ReplicaFailure}], fullyLabeledReplicas: 2, observedGeneration: 2, readyReplicas: 1, replicas: 2, terminatingReplicas: 1}"},
		{name: "divided replica sets", template: strings.Replace(set, "replicas: 2", "replicas: 4", 1), divided: true, observed: 2, members: []string{
			set + "status: {observedGeneration: 2, replicas: 2, fullyLabeledReplicas: 1, readyReplicas: 2, availableReplicas: 2}", set + "status: {observedGeneration: 2, replicas: 2, fullyLabeledReplicas: 2, readyReplicas: 1, availableReplicas: 1}"},
			want: "{availableReplicas: 3, fullyLabeledReplicas: 3, observedGeneration: 2, readyReplicas: 3, replicas: 4}"},
		{name: "of equally available replica sets the one with fewer ready pods", template: set, observed: 2, members: []string{
			set + "status: {observedGeneration: 2, replicas: 2, readyReplicas: 2, availableReplicas: 1}", set + "status: {observedGeneration: 2, replicas: 2, readyReplicas: 1, availableReplicas: 1}"},
			want: "{availableReplicas: 1, observedGeneration: 2, readyReplicas: 1, replicas: 2}"},

		{name: "daemons are those of the least finished cluster", template: daemon, observed: 2, members: []string{
			daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 3, numberAvailable: 3}", daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberReady: 3, numberAvailable: 2}"},
			want: "{desiredNumberScheduled: 3, numberAvailable: 2, numberReady: 3, numberUnavailable: 1, observedGeneration: 2, updatedNumberScheduled: 3}"},
		{name: "divided daemons", template: daemon, divided: true, observed: 2, members: []string{
			daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, numberAvailable: 3, numberMisscheduled: 1}", daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 4, numberAvailable: 2}"},
			want: "{desiredNumberScheduled: 7, numberAvailable: 5, numberMisscheduled: 1, numberUnavailable: 2, observedGeneration: 2}"},
		{name: "of equally available daemons the one with fewer updated pods", template: daemon, observed: 2, members: []string{
			daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 2}", daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberAvailable: 2, numberReady: 3}"},
			want: "{desiredNumberScheduled: 3, numberAvailable: 2, numberReady: 3, numberUnavailable: 1, observedGeneration: 2, updatedNumberScheduled: 1}"},
		{name: "then the one with fewer ready pods", template: daemon, observed: 2, members: []string{
			daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberAvailable: 2, numberReady: 3}", daemon + "status: {observedGeneration: 2, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberAvailable: 2, numberReady: 2}"},
			want: "{desiredNumberScheduled: 3, numberAvailable: 2, numberReady: 2, numberUnavailable: 1, observedGeneration: 2, updatedNumberScheduled: 1}"},
	})
}

// A Job ends once all clusters are at its present content and have ended it. It is suspended where all suspend it.
func TestWholeStatusOfJobs(t *testing.T) {
	const failed = jobHead + "status: {startTime: '2026-01-01T00:00:00Z', failed: 3, active: 1, conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}"
	const suspended = jobHead + "status: {conditions: [{type: Suspended, status: 'True'}]}"
	ends := func(kind, reason, message string) string {
		return fmt.Sprintf("{lastProbeTime: T, lastTransitionTime: T, message: %s, reason: %s, status: 'True', type: %s}", message, reason, kind)
	}
	const complete = "the job is complete in every reachable cluster"
	isComplete := "conditions: [" + ends("SuccessCriteriaMet", "CompletionsReached", complete) + ", " + ends("Complete", "CompletionsReached", complete) + "]"
	checkWholeStatuses(t, []wholeCase{
		{name: "complete", template: jobHead, members: []string{jobDone}, observed: 1,
			want: "{completionTime: '2026-01-01T00:01:00Z', " + isComplete + ", startTime: '2026-01-01T00:00:00Z', succeeded: 2}"},
		{name: "one cluster has older content", template: jobHead, members: []string{jobDone, jobDone}, observed: 1, change: staleFirst,
			want: "{startTime: '2026-01-01T00:00:00Z', succeeded: 2}"},
		{name: "one cluster has not reported", template: jobHead + "status: {active: 1}", members: []string{jobDone, ""}, observed: 1, want: "{startTime: '2026-01-01T00:00:00Z'}"},
		{name: "none has reported", template: jobHead + "status: {active: 1}", members: []string{"", ""}, observed: 1, want: "none"},
		{name: "failed in the first of two", template: jobHead, members: []string{jobDone, failed, strings.Replace(failed, "BackoffLimitExceeded", "DeadlineExceeded", 1)}, observed: 1,
			want: "{conditions: [" + ends("FailureTarget", "BackoffLimitExceeded", "the job failed in cluster cb") + ", " + ends("Failed", "BackoffLimitExceeded", "the job failed in cluster cb") + "], failed: 3, startTime: '2026-01-01T00:00:00Z'}"},
		{name: "complete without times", template: jobHead, members: []string{jobHead + "status: {succeeded: 2, conditions: [{type: Complete, status: 'True'}]}"}, observed: 1,
			want: "{completionTime: T, " + isComplete + ", startTime: T, succeeded: 2}"},
		{name: "a completion before the start", template: jobHead + "status: {startTime: '2026-01-01T00:05:00Z'}", members: []string{jobDone}, observed: 1,
			want: "{completionTime: '2026-01-01T00:05:00Z', " + isComplete + ", startTime: '2026-01-01T00:05:00Z', succeeded: 2}"},
		{name: "divided", template: jobHead, divided: true, members: []string{jobRuns, jobRuns}, observed: 1,
			want: "{active: 2, ready: 2, startTime: '2026-01-01T00:00:05Z', succeeded: 2}"},
		{name: "no more are ready than active", template: jobHead, members: []string{jobHead + "status: {startTime: '2026-01-01T00:00:05Z', active: 1, ready: 3}"}, observed: 1,
			want: "{active: 1, ready: 1, startTime: '2026-01-01T00:00:05Z'}"},
		{name: "counts never decrease", template: jobHead + "status: {succeeded: 2, failed: 4}", members: []string{jobRuns}, observed: 1,
			want: "{active: 1, failed: 4, ready: 1, startTime: '2026-01-01T00:00:05Z', succeeded: 2}"},
		{name: "suspended in all", template: jobHead, members: []string{suspended, suspended}, observed: 1,
			want: "{conditions: [{lastProbeTime: T, lastTransitionTime: T, message: the job is suspended, reason: JobSuspended, status: 'True', type: Suspended}]}"},
		{name: "suspended in one", template: jobHead, members: []string{suspended, jobRuns}, observed: 1, want: "{startTime: '2026-01-01T00:00:05Z'}"},
		{name: "resumed", template: jobHead + "status: {conditions: [{type: Suspended, status: 'True'}]}", members: []string{jobRuns}, observed: 1,
			want: "{active: 1, conditions: [{lastProbeTime: T, lastTransitionTime: T, message: the job is resumed, reason: JobResumed, status: 'False', type: Suspended}], ready: 1, startTime: '2026-01-01T00:00:05Z', succeeded: 1}"},
		{name: "it ended while it was suspended", template: jobHead, members: []string{jobHead + "status: {conditions: [{type: Suspended, status: 'True'}, {type: Complete, status: 'True'}]}"}, observed: 1,
			want: "{completionTime: T, " + isComplete + ", startTime: T}"},
		{name: "failed before", template: jobHead + "status: {conditions: [{type: Failed, status: 'True'}]}", members: []string{jobDone}, observed: 1, want: "none"},
	})
}

// The status of other kinds is that of the least finished cluster, or the sum of all.
func TestWholeStatusOfOtherKinds(t *testing.T) {
	claim := headYAML("v1", "PersistentVolumeClaim") + "spec: {accessModes: [ReadWriteOnce]}\n"
	volume, budget := headYAML("v1", "PersistentVolume"), headYAML("policy/v1", "PodDisruptionBudget")
	scaler, old := headYAML("autoscaling/v2", "HorizontalPodAutoscaler"), headYAML("autoscaling/v1", "HorizontalPodAutoscaler")
	pod := headYAML("v1", "Pod")
	scaled := func(current, desired string) string {
		return "status: {currentReplicas: " + current + ", desiredReplicas: " + desired + ", lastScaleTime: '2026-01-01T00:00:00Z', conditions: [{type: AbleToScale, status: 'True', reason: R, observedGeneration: 2}]}"
	}
	checkWholeStatuses(t, []wholeCase{
		{name: "claims that are bound have the smallest size", template: claim, members: []string{claim + "status: {phase: Bound, capacity: {storage: 2Gi}}", claim + "status: {phase: Bound, capacity: {storage: 1Gi}}"}, observed: 2,
			want: "{accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, phase: Bound}"},
		{name: "a claim that is not bound has no size", template: claim + "status: {phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce]}", members: []string{claim + "status: {phase: Bound, capacity: {storage: 2Gi}}", claim + "status: {phase: Pending}"}, observed: 2, want: "{phase: Pending}"},
		{name: "a lost claim", template: claim, members: []string{claim + "status: {phase: Pending}", claim + "status: {phase: Lost}"}, observed: 2, want: "{phase: Lost}"},
		{name: "a claim without a size, and without modes", template: headYAML("v1", "PersistentVolumeClaim"), members: []string{claim + "status: {phase: Bound}", claim + "status: {phase: Bound, capacity: {storage: 1Gi}}"}, observed: 2, want: "{phase: Bound}"},
		{name: "a claim with an unreadable size", template: claim, members: []string{claim + "status: {phase: Bound, capacity: {storage: 1Gi}}", claim + "status: {phase: Bound, capacity: {storage: much}}"}, observed: 2, want: "{accessModes: [ReadWriteOnce], capacity: {storage: much}, phase: Bound}"},
		{name: "a claim that has not reported", template: claim + "status: {phase: Bound}", members: []string{""}, observed: 2, want: "{phase: Pending}"},
		{name: "volumes", template: volume + "status: {phase: Bound, reason: mine}", members: []string{volume + "status: {phase: Bound}", volume + "status: {phase: Failed}"}, observed: 2, want: "{phase: Failed, reason: mine}"},
		{name: "a volume that has not reported", template: volume + "status: {phase: Bound}", members: []string{""}, observed: 2, want: "{phase: Pending}"},

		{name: "budgets", template: budget, observed: 2, members: []string{
			budget + "status: {observedGeneration: 2, disruptionsAllowed: 2, currentHealthy: 4, desiredHealthy: 2, expectedPods: 4}", budget + "status: {observedGeneration: 2, disruptionsAllowed: 1, currentHealthy: 3, desiredHealthy: 2, expectedPods: 4, conditions: [{type: DisruptionAllowed, status: 'True', reason: SufficientPods, observedGeneration: 2}]}"},
			want: "{conditions: [{lastTransitionTime: T, message: '', observedGeneration: 2, reason: SufficientPods, status: 'True', type: DisruptionAllowed}], currentHealthy: 3, desiredHealthy: 2, disruptionsAllowed: 1, expectedPods: 4, observedGeneration: 2}"},
		{name: "divided budgets", template: budget, divided: true, observed: 2, members: []string{
			budget + "status: {observedGeneration: 2, disruptionsAllowed: 2, currentHealthy: 4, desiredHealthy: 2, expectedPods: 4}", budget + "status: {observedGeneration: 2, disruptionsAllowed: 1, currentHealthy: 3, desiredHealthy: 2, expectedPods: 4}"},
			want: "{currentHealthy: 7, desiredHealthy: 4, disruptionsAllowed: 3, expectedPods: 8, observedGeneration: 2}"},
		{name: "of budgets that allow as much the one with fewer healthy pods", template: budget, observed: 2, members: []string{
			budget + "status: {observedGeneration: 2, disruptionsAllowed: 1, currentHealthy: 4, desiredHealthy: 2}", budget + "status: {observedGeneration: 2, disruptionsAllowed: 1, currentHealthy: 4, desiredHealthy: 3}"},
			want: "{currentHealthy: 4, desiredHealthy: 3, disruptionsAllowed: 1, observedGeneration: 2}"},

		{name: "autoscalers", template: scaler, observed: 2, members: []string{scaler + scaled("4", "4"), scaler + scaled("2", "5")},
			want: "{conditions: [{lastTransitionTime: T, reason: R, status: 'True', type: AbleToScale}], currentReplicas: 2, desiredReplicas: 5, lastScaleTime: '2026-01-01T00:00:00Z', observedGeneration: 2}"},
		{name: "divided autoscalers", template: scaler, divided: true, observed: 2, members: []string{scaler + "status: {currentReplicas: 4, desiredReplicas: 4}", scaler + "status: {currentReplicas: 2, desiredReplicas: 5}"},
			want: "{currentReplicas: 6, desiredReplicas: 9, observedGeneration: 2}"},
		{name: "autoscalers of the first version have no conditions", template: old, observed: 2, members: []string{old + scaled("4", "4")},
			want: "{currentReplicas: 4, desiredReplicas: 4, lastScaleTime: '2026-01-01T00:00:00Z', observedGeneration: 2}"},
		{name: "no autoscaler has reported", template: scaler, observed: 2, members: []string{""}, want: "none"},

		{name: "pods", template: pod + "status: {qosClass: Burstable, conditions: [{type: Gone, status: 'True'}]}", observed: 2, members: []string{pod + "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}", pod + "status: {phase: Pending}"},
			want: "{observedGeneration: 2, phase: Pending, qosClass: Burstable}"},
		{name: "pods that ended", template: pod, observed: 2, members: []string{pod + "status: {phase: Succeeded}", pod + "status: {phase: Failed}"}, want: "{observedGeneration: 2, phase: Failed}"},
		{name: "a pod that has not reported", template: pod + "status: {qosClass: Burstable}", observed: 2, members: []string{""}, want: "{phase: Pending, qosClass: Burstable}"},

		{name: "policies: the one with the most warnings", template: policyHead, observed: 2, members: []string{
			policyHead + "status: {observedGeneration: 2, typeChecking: {}}", policyHead + "status: {observedGeneration: 2, typeChecking: {expressionWarnings: [{fieldRef: a, warning: b}]}, conditions: [{type: Ready, status: 'True', reason: R}]}"},
			want: "{conditions: [{lastTransitionTime: T, message: '', reason: R, status: 'True', type: Ready}], observedGeneration: 2, typeChecking: {expressionWarnings: [{fieldRef: a, warning: b}]}}"},
		{name: "policies without warnings", template: policyHead, observed: 2, members: []string{policyHead + "status: {observedGeneration: 2, typeChecking: {}}"}, want: "{observedGeneration: 2, typeChecking: {}}"},
		{name: "policies that were not checked", template: policyHead, observed: 2, members: []string{policyHead + "status: {conditions: [{type: Ready, status: 'True', reason: R}]}"},
			want: "{conditions: [{lastTransitionTime: T, message: '', reason: R, status: 'True', type: Ready}]}"},
		{name: "no policy has reported", template: policyHead, observed: 2, members: []string{""}, want: "none"},

		{name: "custom kinds", template: toyHead + "status: {mine: kept, phase: Old, conditions: []}", observed: 1, members: []string{toyHead + "status: {observedGeneration: 1, phase: New, conditions: [{type: Ready, status: 'False', reason: Why, message: text}]}"},
			change: func(rows []kinds.RowItem) { rows[0].Reason, rows[0].Message = "Why", "text" },
			want:   "{conditions: [{lastTransitionTime: T, message: 'cluster ca: text', reason: Why, status: 'False', type: Ready}], mine: kept, observedGeneration: 1, phase: New}"},
		{name: "custom kinds without a phase", template: toyHead + "status: {phase: Old}", observed: 1, members: []string{toyHead + "status: {conditions: [{type: Ready, status: 'True'}]}"},
			want: "{conditions: [{lastTransitionTime: T, message: '', status: 'True', type: Ready}]}"},
		{name: "custom kinds of which one has not reported", template: toyHead + "status: {phase: Old}", observed: 1, members: []string{"", toyHead + "status: {phase: New}"}, want: "none"},
		{name: "an unlisted kind of Kubernetes", template: headYAML("apps/v1", "FutureSet"), observed: 1, members: []string{headYAML("apps/v1", "FutureSet") + "status: {phase: New}"}, want: "none"},
	})
}

// A row has the addresses of a cluster once, at most 16, and in order.
func TestReflectedAddresses(t *testing.T) {
	reflected := func(obj *unstructured.Unstructured) (out []string) {
		var r struct {
			L []string `json:"l"`
		}
		if raw := kinds.ReflectStatus(obj); raw != nil {
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
		}
		return r.L
	}
	for text, want := range map[string]string{
		"{ip: 10.0.0.2}, {ip: 10.0.0.1, hostname: a}, {ip: 10.0.0.2}, {ip: 10.0.0.2, ipMode: Proxy}, {hostname: b}, {hostname: b}, {ports: []}": "[host b ip 10.0.0.1 a ip 10.0.0.2 proxy 10.0.0.2]",
		"": "[]",
	} {
		if got := fmt.Sprint(reflected(parseObject(t, lbHead+"status: {loadBalancer: {ingress: ["+text+"]}}"))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	gateway := headYAML("gateway.networking.k8s.io/v1", "Gateway")
	if got := fmt.Sprint(reflected(parseObject(t, gateway+"status: {addresses: [{value: b}, {type: Hostname, value: a}, {value: b}, {type: Hostname}]}"))); got != "[Hostname a IPAddress b]" {
		t.Errorf("a gateway: %s", got)
	}
	var many, named []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("{ip: 10.0.0.%d}", i))
		named = append(named, fmt.Sprintf("{value: 10.0.0.%d}", i))
	}
	if got := reflected(parseObject(t, lbHead+"status: {loadBalancer: {ingress: ["+strings.Join(many, ", ")+"]}}")); len(got) != 16 {
		t.Errorf("%d addresses of a load balancer", len(got))
	}
	if got := reflected(parseObject(t, gateway+"status: {addresses: ["+strings.Join(named, ", ")+"]}")); len(got) != 16 {
		t.Errorf("%d addresses of a gateway", len(got))
	}
}

// A status becomes a row of few bytes, and none where it says nothing.
func TestReflectedRows(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{web2 + "status: {observedGeneration: 1, replicas: 2, unavailableReplicas: 1, conditions: [{type: Available, status: 'True'}, {type: Progressing, status: 'True', reason: NewReplicaSetAvailable}]}", `{"n":[2,2,0,0,0,0,0,1],"f":"lad"}`},
		{strings.Replace(web2, "replicas: 2", "replicas: 2, paused: true", 1) + "status: {observedGeneration: 2, conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}, {type: ReplicaFailure, status: 'True'}]}", `{"n":[2],"f":"xpe"}`},
		{web2 + "status: {observedGeneration: 2, terminatingReplicas: 3, conditions: [{type: Progressing, status: 'False', reason: NewReplicaSetAvailable}, {type: ReplicaFailure, status: 'False'}]}", `{"n":[2,0,0,0,0,0,3]}`},
		{stsHead + "status: {observedGeneration: 1, replicas: 2, currentRevision: a, updateRevision: b}", `{"n":[2,2]}`},
		{stsHead + "status: {observedGeneration: 0, currentReplicas: 1, currentRevision: a, updateRevision: a}", `{"n":[2,0,0,0,0,1],"f":"ld"}`},
		{headYAML("apps/v1", "ReplicaSet") + "status: {observedGeneration: 1, fullyLabeledReplicas: 1, terminatingReplicas: 2, conditions: [{type: ReplicaFailure, status: 'True'}]}", `{"n":[1,0,1,0,0,0,2],"f":"le"}`},
		{headYAML("apps/v1", "DaemonSet") + "status: {observedGeneration: 2, desiredNumberScheduled: 2}", `{"n":[2]}`},
		{headYAML("batch/v1", "Job") + "status: {active: 1, startTime: '2026-01-01T00:00:00Z', conditions: [{type: Suspended, status: 'True'}]}", `{"n":[1],"f":"s","t":[1767225600,0]}`},
		{headYAML("batch/v1", "Job") + "status: {failed: 1, conditions: [{type: Failed, status: 'True', reason: R}]}", `{"n":[0,0,0,1],"f":"f","t":[0,0],"c":["Failed=T:R"]}`},
		{headYAML("batch/v1", "Job") + "status: {succeeded: 1, completedIndexes: '0', conditions: [{type: Complete, status: 'True'}, {type: Failed, status: 'False'}]}", `{"n":[0,0,1],"f":"c","t":[0,0],"l":["0"]}`},
		{headYAML("batch/v1", "Job") + "status: {failed: 1, failedIndexes: '1'}", `{"n":[0,0,0,1],"t":[0,0],"l":["","1"]}`},
		{headYAML("batch/v1", "CronJob") + "status: {lastSuccessfulTime: '2026-01-01T00:00:00Z', active: [{name: b}, {name: a}, {}]}", `{"t":[0,1767225600],"l":["a","b"]}`},
		{headYAML("batch/v1", "CronJob") + "status: {other: 1}", ``},
		{headYAML("v1", "Pod") + "status: {phase: Running, conditions: [{type: Ready, status: 'True', observedGeneration: 1}, {type: Initialized, status: Unknown, reason: R}, {type: Other, status: 'True'}]}", `{"p":"Running","c":["Initialized=U:R","Ready=T"]}`},
		{headYAML("v1", "Pod") + "status: {conditions: [{type: Ready, status: 'True'}]}", ``},
		{headYAML("v1", "PersistentVolumeClaim") + "status: {phase: Bound, capacity: {storage: 1Gi}}", `{"p":"Bound","l":["1Gi"]}`},
		{headYAML("v1", "PersistentVolumeClaim") + "status: {phase: Bound, capacity: {storage: " + strings.Repeat("1", 49) + "}}", `{"p":"Bound"}`},
		{headYAML("v1", "PersistentVolume") + "status: {phase: Bound}", `{"p":"Bound"}`}, {headYAML("v1", "PersistentVolume") + "status: {message: x}", ``},
		{headYAML("policy/v1", "PodDisruptionBudget") + "status: {observedGeneration: 1, expectedPods: 2, conditions: [{type: DisruptionAllowed, status: 'False', reason: R, observedGeneration: 1}]}", `{"n":[0,0,0,2],"f":"l","c":["DisruptionAllowed=F*:R"]}`},
		{headYAML("autoscaling/v2", "HorizontalPodAutoscaler") + "status: {desiredReplicas: 2}", `{"n":[0,2]}`},
		{headYAML("autoscaling/v2", "HorizontalPodAutoscaler") + "status: {lastScaleTime: '2026-01-01T00:00:00Z'}", `{"t":[1767225600]}`},
		{policyHead + "status: {typeChecking: {expressionWarnings: [{fieldRef: a, warning: b}]}}", ``},
		{policyHead + "status: {observedGeneration: 1, typeChecking: {expressionWarnings: [{fieldRef: a, warning: b}]}}", `{"f":"ol","l":["a","b"]}`},
		{toyHead + "status: {observedGeneration: 0, phase: New}", `{"f":"ol","p":"New"}`}, {toyHead + "status: {other: 1}", ``},
		{headYAML("argoproj.io/v1alpha1", "Rollout") + "spec: {replicas: 3}\nstatus: {observedGeneration: '2', replicas: 3}", `{"n":[3,3],"f":"o"}`},
		{headYAML("argoproj.io/v1alpha1", "Rollout") + "status: {other: 1}", `{"n":[1]}`},
		{headYAML("v1", "ConfigMap") + "status: {other: 1}", ``}, {headYAML("v1", "Pod"), ``},
	} {
		if got := string(kinds.ReflectStatus(parseObject(t, c.object))); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.object, got, c.want)
		}
	}
}

// Rows that Atoll stores may hold any health. The least finished of them is the worst.
func TestTheWorstHealthIsLeastFinished(t *testing.T) {
	order := []atoll.Health{atoll.Degraded, atoll.Unknown, atoll.Progressing, atoll.Suspended, atoll.Healthy}
	row := func(cluster, phase string, h atoll.Health) kinds.RowItem {
		return kinds.RowItem{Cluster: cluster, Health: h, Reflected: kinds.ReflectStatus(parseObject(t, toyHead+"status: {phase: "+phase+"}"))}
	}
	for i, better := range order {
		for _, worse := range order[:i] {
			st, ok := kinds.AggregateStatus(parseObject(t, toyHead), false, []kinds.RowItem{row("ca", "better", better), row("cb", "worse", worse)}, 1, 0)
			if !ok || st["phase"] != "worse" {
				t.Errorf("%s and %s: %s", better, worse, asJSON(st))
			}
		}
	}
}

// No kind has a status to write while no cluster is connected, or while a template without a status has no reports.
func TestNothingIsWrittenWithoutReports(t *testing.T) {
	for _, head := range []string{
		web2, stsHead, headYAML("apps/v1", "ReplicaSet"), headYAML("apps/v1", "DaemonSet"), jobHead, headYAML("batch/v1", "CronJob"), headYAML("v1", "Pod"), lbHead, quotaHead, policyHead, routeHead, toyHead,
		headYAML("v1", "PersistentVolumeClaim"), headYAML("v1", "PersistentVolume"), headYAML("policy/v1", "PodDisruptionBudget"), headYAML("autoscaling/v2", "HorizontalPodAutoscaler"),
	} {
		template, stated := parseObject(t, head), parseObject(t, strings.TrimSuffix(head, "\n")+"\nstatus: {phase: x}")
		for name, rows := range map[string][]kinds.RowItem{"no report": {{Cluster: "ca"}, {Cluster: "cb"}}, "no cluster": nil, "a lost cluster": {{Cluster: "ca", Disconnected: true}}} {
			if st, ok := kinds.AggregateStatus(template, false, rows, 2, 0); ok {
				t.Errorf("%s, %s: %s", template.GetKind(), name, asJSON(st))
			}
		}
		if st, ok := kinds.AggregateStatus(stated, false, []kinds.RowItem{{Cluster: "ca", Disconnected: true}}, 2, 0); ok {
			t.Errorf("%s with a status and a lost cluster: %s", template.GetKind(), asJSON(st))
		}
	}
}

// Healthy rows without space for a report have the replicas that they are assigned.
func TestHealthyRowsHaveTheirShare(t *testing.T) {
	four, one := int64(4), int64(1)
	rows := []kinds.RowItem{{Cluster: "ca", Health: atoll.Healthy, Assigned: &four}, {Cluster: "cb", Health: atoll.Healthy, Assigned: &one}, {Cluster: "cc", Health: atoll.Healthy, Reflected: json.RawMessage("{")}}
	st, ok := kinds.AggregateStatus(parseObject(t, web2), true, rows, 2, 0)
	if !ok || st["replicas"] != int64(4+1+2) || st["availableReplicas"] != int64(7) {
		t.Errorf("%s", asJSON(st))
	}
	service := parseObject(t, lbHead)
	for n, want := range map[int]bool{1: true, 1000: true, 1001: false} {
		if got := kinds.AggregatedStatusNamesClusters(service, n); got != want {
			t.Errorf("the addresses of %d clusters name them: %t", n, got)
		}
	}
	if kinds.AggregatedStatusNamesClusters(parseObject(t, headYAML("v1", "Service")), 1) || kinds.AggregatedStatusNamesClusters(parseObject(t, web2), 1) {
		t.Error("a status without addresses names clusters")
	}
}
