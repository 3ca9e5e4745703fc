package kinds_test

import (
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

func TestHealth(t *testing.T) {
	const (
		dep  = deploymentHeadYAML
		sts  = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db, generation: 1}\n"
		ds   = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: log, generation: 1}\n"
		rs   = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web-1, generation: 1}\n"
		job  = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: seed, generation: 1}\n"
		cron = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tidy}\n"
		pod  = "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n"
		svc  = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
		pvc  = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"
		pv   = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: data}\n"
		pdb  = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web, generation: 1}\n"
		hpa  = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n"
		crd  = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: toys.example.com}\n"
		toy  = "apiVersion: example.com/v1\nkind: Toy\nmetadata: {name: bear, generation: 3}\n"
	)
	for _, c := range []struct {
		name, object string
		want         atoll.Health
		reason       string
	}{
		{"no status", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}", atoll.Healthy, ""},
		{"deleting", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, deletionTimestamp: 2026-01-01T00:00:00Z}", atoll.Progressing, "Terminating"},

		{"deployment new", dep, atoll.Progressing, "NotObserved"},
		{"deployment late", dep + "status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas: 1}", atoll.Progressing, "NotObserved"},
		{"deployment updating", dep + "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 3, updatedReplicas: 2, availableReplicas: 3}", atoll.Progressing, "Updating"},
		{"deployment old left", dep + "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 4, updatedReplicas: 3, availableReplicas: 4}", atoll.Progressing, "Updating"},
		{"deployment unavailable", dep + "spec: {replicas: 3}\nstatus: {observedGeneration: 2, replicas: 3, updatedReplicas: 3, availableReplicas: 2}", atoll.Progressing, "Unavailable"},
		{"deployment stated nothing", dep + "status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, availableReplicas: 1}", atoll.Healthy, ""},
		{"deployment of none", dep + "spec: {replicas: 0}\nstatus: {observedGeneration: 2}", atoll.Healthy, ""},
		{"deployment deadline", dep + "spec: {replicas: 3}\nstatus: {observedGeneration: 2, conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}]}", atoll.Degraded, "ProgressDeadlineExceeded"},
		{"deployment paused", dep + "spec: {replicas: 3, paused: true}\nstatus: {observedGeneration: 2}", atoll.Suspended, "Paused"},
		{"deployment quota", dep + "spec: {replicas: 3}\nstatus: {observedGeneration: 2, conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate}]}", atoll.Progressing, "FailedCreate"},
		{"deployment of wrong shape", dep + "spec: [1]\nstatus: {observedGeneration: two, conditions: {}}", atoll.Progressing, "NotObserved"},

		{"statefulset ready", sts + "spec: {replicas: 2}\nstatus: {observedGeneration: 1, readyReplicas: 2, availableReplicas: 2, currentRevision: a, updateRevision: a}", atoll.Healthy, ""},
		{"statefulset not ready", sts + "spec: {replicas: 2}\nstatus: {observedGeneration: 1, readyReplicas: 1, currentRevision: a, updateRevision: a}", atoll.Progressing, "NotReady"},
		{"statefulset two revisions", sts + "spec: {replicas: 2}\nstatus: {observedGeneration: 1, readyReplicas: 2, availableReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}", atoll.Progressing, "Updating"},
		{"statefulset partition", sts + "spec: {replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}\nstatus: {observedGeneration: 1, readyReplicas: 3, availableReplicas: 3, updatedReplicas: 1, currentRevision: a, updateRevision: b}", atoll.Healthy, ""},
		{"statefulset on delete", sts + "spec: {replicas: 1, updateStrategy: {type: OnDelete}}\nstatus: {observedGeneration: 1, readyReplicas: 1, availableReplicas: 1, currentRevision: a, updateRevision: b}", atoll.Healthy, ""},

		{"daemonset no nodes", ds + "status: {observedGeneration: 1, desiredNumberScheduled: 0}", atoll.Healthy, ""},
		{"daemonset updating", ds + "status: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 1, numberAvailable: 3}", atoll.Progressing, "Updating"},
		{"daemonset done", ds + "status: {observedGeneration: 1, desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}", atoll.Healthy, ""},

		{"replicaset short", rs + "spec: {replicas: 2}\nstatus: {observedGeneration: 1, replicas: 2, availableReplicas: 1}", atoll.Progressing, "Unavailable"},
		{"replicaset done", rs + "spec: {replicas: 2}\nstatus: {observedGeneration: 1, replicas: 2, availableReplicas: 2}", atoll.Healthy, ""},

		{"job running", job + "status: {active: 1}", atoll.Progressing, "Running"},
		{"job complete", job + "status: {conditions: [{type: Complete, status: 'True'}]}", atoll.Healthy, ""},
		{"job failed", job + "status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}", atoll.Degraded, "BackoffLimitExceeded"},
		{"job suspended", job + "spec: {suspend: true}", atoll.Suspended, "Suspended"},
		{"cronjob", cron + "status: {lastScheduleTime: 2026-01-01T00:00:00Z}", atoll.Healthy, ""},
		{"cronjob suspended", cron + "spec: {suspend: true}", atoll.Suspended, "Suspended"},

		{"pod pending", pod + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}", atoll.Progressing, "Unschedulable"},
		{"pod ready", pod + "status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}", atoll.Healthy, ""},
		{"pod looping", pod + "status: {phase: Running, containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}]}", atoll.Degraded, "CrashLoopBackOff"},
		{"pod runs to completion", pod + "spec: {restartPolicy: Never}\nstatus: {phase: Running, conditions: [{type: Ready, status: 'True'}]}", atoll.Progressing, "Running"},
		{"pod succeeded", pod + "spec: {restartPolicy: Never}\nstatus: {phase: Succeeded}", atoll.Healthy, ""},
		{"pod failed", pod + "status: {phase: Failed, reason: Evicted}", atoll.Degraded, "Evicted"},

		{"service", svc + "spec: {type: ClusterIP}\nstatus: {loadBalancer: {}}", atoll.Healthy, ""},
		{"load balancer waits", svc + "spec: {type: LoadBalancer}\nstatus: {loadBalancer: {}}", atoll.Progressing, "NoAddress"},
		{"load balancer", svc + "spec: {type: LoadBalancer}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}", atoll.Healthy, ""},
		{"ingress without controller", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nstatus: {loadBalancer: {}}", atoll.Healthy, ""},
		{"claim pending", pvc + "status: {phase: Pending}", atoll.Progressing, "Pending"},
		{"claim bound", pvc + "status: {phase: Bound}", atoll.Healthy, ""},
		{"claim lost", pvc + "status: {phase: Lost}", atoll.Degraded, "Lost"},
		{"volume failed", pv + "status: {phase: Failed, message: gone}", atoll.Degraded, "Failed"},
		{"budget", pdb + "status: {observedGeneration: 1, conditions: [{type: DisruptionAllowed, status: 'False', reason: InsufficientPods}]}", atoll.Healthy, ""},
		{"budget that is met", pdb + "status: {observedGeneration: 1, currentHealthy: 2, desiredHealthy: 2, expectedPods: 3}", atoll.Healthy, ""},
		{"budget that allows no eviction", pdb + "status: {observedGeneration: 1, currentHealthy: 3, desiredHealthy: 3, expectedPods: 3, conditions: [{type: DisruptionAllowed, status: 'False', reason: InsufficientPods}]}", atoll.Healthy, ""},
		{"budget below its number", pdb + "status: {observedGeneration: 1, currentHealthy: 1, desiredHealthy: 2, expectedPods: 3}", atoll.Progressing, "InsufficientPods"},
		{"budget of an older generation", pdb + "status: {observedGeneration: 0, currentHealthy: 1, desiredHealthy: 2, expectedPods: 3}", atoll.Progressing, "NotObserved"},
		{"budget unsynced", pdb + "status: {observedGeneration: 1, conditions: [{type: DisruptionAllowed, status: 'False', reason: SyncFailed}]}", atoll.Degraded, "SyncFailed"},
		{"autoscaler new", hpa, atoll.Progressing, "NotObserved"},
		{"autoscaler blind", hpa + "status: {desiredReplicas: 1, conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'False', reason: FailedGetResourceMetric}]}", atoll.Degraded, "FailedGetResourceMetric"},
		{"autoscaler", hpa + "status: {desiredReplicas: 1, conditions: [{type: AbleToScale, status: 'True'}, {type: ScalingActive, status: 'True'}]}", atoll.Healthy, ""},
		{"definition new", crd, atoll.Progressing, "NotEstablished"},
		{"definition", crd + "status: {conditions: [{type: NamesAccepted, status: 'True'}, {type: Established, status: 'True'}]}", atoll.Healthy, ""},
		{"definition clash", crd + "status: {conditions: [{type: NamesAccepted, status: 'False', reason: PluralConflict}]}", atoll.Degraded, "PluralConflict"},
		{"namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\nstatus: {phase: Active}", atoll.Healthy, ""},
		{"quota", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nstatus: {hard: {pods: '1'}}", atoll.Healthy, ""},

		{"custom without status", toy, atoll.Healthy, ""},
		{"custom ready", toy + "status: {observedGeneration: 3, conditions: [{type: Ready, status: 'True'}]}", atoll.Healthy, ""},
		{"custom late", toy + "status: {observedGeneration: 2, conditions: [{type: Ready, status: 'True'}]}", atoll.Progressing, "NotObserved"},
		{"custom condition late", toy + "status: {conditions: [{type: Ready, status: 'True', reason: Fine, observedGeneration: 2}]}", atoll.Progressing, "NotObserved"},
		{"custom not ready", toy + "status: {conditions: [{type: Ready, status: 'False', reason: Brewing}]}", atoll.Progressing, "Brewing"},
		{"custom available", toy + "status: {conditions: [{type: Available, status: 'True'}, {type: Progressing, status: 'True'}]}", atoll.Healthy, ""},
		{"custom ready but not available", toy + "status: {conditions: [{type: Available, status: 'False', reason: Down}, {type: Ready, status: 'True'}]}", atoll.Progressing, "Down"},
		{"custom progressing", toy + "status: {conditions: [{type: Progressing, status: 'True', reason: Rolling}]}", atoll.Progressing, "Rolling"},
		{"custom stalled", toy + "status: {conditions: [{type: Ready, status: 'False'}, {type: Stalled, status: 'True', reason: BadImage}]}", atoll.Degraded, "BadImage"},
		{"custom reconciling", toy + "status: {conditions: [{type: Ready, status: 'True'}, {type: Reconciling, status: 'True'}]}", atoll.Progressing, "Reconciling"},
		{"custom unreadable", toy + "status: {mood: sunny}", atoll.Unknown, "UnreadableStatus"},
		{"custom of other conditions", toy + "status: {conditions: [{type: Painted, status: 'True'}]}", atoll.Unknown, "UnreadableStatus"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, reason, _ := kinds.AssessHealth(parseObject(t, c.object))
			if got != c.want || reason != c.reason {
				t.Errorf("Health = %s %q, want %s %q", got, reason, c.want, c.reason)
			}
		})
	}
}

// A status of an older generation than the object's does not decide about its health.
func TestOldStatusIsNotHealth(t *testing.T) {
	healthy := map[string]string{
		"apps/v1 Deployment":            "{observedGeneration: %d, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}",
		"apps/v1 StatefulSet":           "{observedGeneration: %d, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}",
		"apps/v1 DaemonSet":             "{observedGeneration: %d, desiredNumberScheduled: 1, updatedNumberScheduled: 1, numberAvailable: 1}",
		"apps/v1 ReplicaSet":            "{observedGeneration: %d, replicas: 1, availableReplicas: 1}",
		"policy/v1 PodDisruptionBudget": "{observedGeneration: %d}",
		"example.com/v1 Toy":            "{observedGeneration: %d, conditions: [{type: Ready, status: 'True'}]}",
	}
	for name, status := range healthy {
		apiVersion, kind, _ := strings.Cut(name, " ")
		for observed, want := range map[int]atoll.Health{2: atoll.Progressing, 3: atoll.Healthy} {
			obj := parseObject(t, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x, generation: 3}\nspec: {replicas: 1}\nstatus: "+status, apiVersion, kind, observed))
			if got, reason, _ := kinds.AssessHealth(obj); got != want || want == atoll.Progressing && reason != string(atoll.ReasonNotObserved) {
				t.Errorf("%s: of generation 3, observed %d: %s %q", name, observed, got, reason)
			}
		}
	}
}

// A route is healthy once every gateway accepted it and found what it refers to, in its present
// form.
func TestHealthOfRoutesIsThatOfEveryGateway(t *testing.T) {
	parent := func(conditions string) string { return "{conditions: [" + conditions + "]}" }
	const (
		accepted  = "{type: Accepted, status: 'True', observedGeneration: 2}"
		refused   = "{type: Accepted, status: 'False', reason: NotAllowed, observedGeneration: 2}"
		unsure    = "{type: Accepted, status: Unknown, observedGeneration: 2}"
		stale     = "{type: Accepted, status: 'False', observedGeneration: 1}"
		resolved  = "{type: ResolvedRefs, status: 'True', observedGeneration: 2}"
		dangling  = "{type: ResolvedRefs, status: 'False', reason: BackendNotFound, observedGeneration: 2}"
		different = "{type: Painted, status: 'False', observedGeneration: 2}"
	)
	for name, c := range map[string]struct {
		parents []string
		want    atoll.Health
		reason  string
	}{
		"no gateway reported":             {nil, atoll.Progressing, "NotReported"},
		"accepted":                        {[]string{parent(accepted + "," + resolved)}, atoll.Healthy, ""},
		"accepted, another condition":     {[]string{parent(accepted + "," + different)}, atoll.Healthy, ""},
		"refused":                         {[]string{parent(refused)}, atoll.Degraded, "NotAllowed"},
		"refused by one of two":           {[]string{parent(accepted), parent(refused)}, atoll.Degraded, "NotAllowed"},
		"accepted by one, silence of one": {[]string{parent(accepted), parent(resolved)}, atoll.Progressing, "NotReported"},
		"not decided":                     {[]string{parent(unsure)}, atoll.Progressing, "NotAccepted"},
		"a reference that leads nowhere":  {[]string{parent(accepted + "," + dangling)}, atoll.Degraded, "BackendNotFound"},
		"of an older form":                {[]string{parent(stale)}, atoll.Progressing, string(atoll.ReasonNotObserved)},
	} {
		obj := parseObject(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web, generation: 2}\nstatus: {parents: ["+strings.Join(c.parents, ",")+"]}")
		if got, reason, _ := kinds.AssessHealth(obj); got != c.want || reason != c.reason {
			t.Errorf("%s: %s %q, want %s %q", name, got, reason, c.want, c.reason)
		}
	}
}

func TestHealthCutsMessages(t *testing.T) {
	obj := parseObject(t, "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nstatus: {phase: Failed, message: "+strings.Repeat("ü", 400)+"}")
	_, _, message := kinds.AssessHealth(obj)
	if len(message) > kinds.MaxMessage || strings.Trim(message, "ü") != "" {
		t.Errorf("message of %d bytes, cut in a character: %q", len(message), message)
	}
}

func TestFinished(t *testing.T) {
	for text, want := range map[string]bool{
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nstatus: {conditions: [{type: Complete, status: 'True'}]}":           true,
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nstatus: {conditions: [{type: Failed, status: 'True'}]}":             true,
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nstatus: {conditions: [{type: SuccessCriteriaMet, status: 'True'}]}": false,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nstatus: {phase: Succeeded}":                                               true,
		"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nstatus: {phase: Running}":                                                 false,
		"apiVersion: example.com/v1\nkind: Job\nmetadata: {name: j}\nstatus: {conditions: [{type: Complete, status: 'True'}]}":     false,
	} {
		if got := kinds.HasFinished(parseObject(t, text)); got != want {
			t.Errorf("Finished = %v, want %v, of\n%s", got, want, text)
		}
	}
}
