package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const kinds = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: $NS}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: "registry.example/db:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log, namespace: $NS}
spec:
  selector: {matchLabels: {app: log}}
  template:
    metadata: {labels: {app: log}}
    spec: {containers: [{name: log, image: "registry.example/log:1"}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: rs, namespace: $NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: rs}}
  template:
    metadata: {labels: {app: rs}}
    spec: {containers: [{name: rs, image: "registry.example/rs:1"}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled, namespace: $NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaled, namespace: $NS}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: $NS}
spec:
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: job, image: "registry.example/job:1"}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: cron, namespace: $NS}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: job, image: "registry.example/job:1"}]
---
apiVersion: v1
kind: Pod
metadata: {name: pod, namespace: $NS, labels: {app: pod}}
spec: {containers: [{name: p, image: "registry.example/p:1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: lb, namespace: $NS}
spec: {type: LoadBalancer, selector: {app: pod}, ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ing, namespace: $NS}
spec: {defaultBackend: {service: {name: lb, port: {number: 80}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: $NS}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: pdb, namespace: $NS}
spec: {minAvailable: 1, selector: {matchLabels: {app: rs}}}
`

// told lists which fields of a kind's status the hub shows as every member has them
// once all is done, and what one of them is then.
var told = []struct {
	kind, name string
	fields     []string
	done       string // "field=value"
}{
	{"apps/v1 StatefulSet", "db", []string{"replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "observedGeneration"}, "availableReplicas=2"},
	{"apps/v1 DaemonSet", "log", []string{"desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable", "numberMisscheduled", "observedGeneration"}, "numberAvailable=3"},
	{"apps/v1 ReplicaSet", "rs", []string{"replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"}, "availableReplicas=2"},
	{"apps/v1 Deployment", "scaled", []string{"replicas", "readyReplicas", "availableReplicas", "updatedReplicas"}, "availableReplicas=2"},
	{"autoscaling/v2 HorizontalPodAutoscaler", "scaled", []string{"currentReplicas", "desiredReplicas", "AbleToScale", "ScalingActive"}, "ScalingActive=False"},
	{"batch/v1 Job", "job", []string{"succeeded", "failed", "active", "Complete", "SuccessCriteriaMet"}, "Complete=True"},
	{"v1 Pod", "pod", []string{"phase", "Ready", "PodScheduled", "Initialized", "ContainersReady"}, "phase=Running"},
	{"v1 PersistentVolumeClaim", "data", []string{"phase", "capacity", "accessModes"}, "phase=Bound"},
	{"policy/v1 PodDisruptionBudget", "pdb", []string{"currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed", "observedGeneration", "DisruptionAllowed"}, "disruptionsAllowed=1"},
}

// said gives a field of an object's status, or the status of the condition of that
// type, as text.
func said(o *unstructured.Unstructured, field string) string {
	st, _ := o.Object["status"].(map[string]any)
	if v, ok := st[field]; ok {
		return fmt.Sprint(v)
	}
	cs, _ := st["conditions"].([]any)
	for _, c := range cs {
		if m, _ := c.(map[string]any); m["type"] == field {
			return fmt.Sprint(m["status"])
		}
	}
	return "0"
}

// sameEverywhere gives a check that the hub tells of an object what every member does,
// and that it is done.
func sameEverywhere(ns, kind, name string, fields []string, done string) func(ctx context.Context) string {
	apiVersion, kind, _ := strings.Cut(kind, " ")
	return func(ctx context.Context) string {
		hubs, err := get(ctx, "hub", apiVersion, kind, ns, name)
		if err != nil || hubs == nil {
			return fmt.Sprintf("hub: no %s (%v)", kind, err)
		}
		if key, want, _ := strings.Cut(done, "="); said(hubs, key) != want {
			return fmt.Sprintf("hub: %s %s has %s %s, want %s", kind, name, key, said(hubs, key), want)
		}
		for _, m := range members {
			o, err := get(ctx, m, apiVersion, kind, ns, name)
			if err != nil || o == nil {
				return fmt.Sprintf("%s: no %s (%v)", m, kind, err)
			}
			for _, f := range fields {
				if x, y := said(hubs, f), said(o, f); x != y {
					return fmt.Sprintf("%s %s: %s is %s on the hub, %s in %s", kind, name, f, x, y, m)
				}
			}
		}
		return ""
	}
}

func TestStatusOfEveryKindIsThatOfTheMembers(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "kinds")
	policy := []string{"v1 Service", "networking.k8s.io/v1 Ingress", "batch/v1 CronJob"}
	for _, k := range told {
		policy = append(policy, k.kind)
	}
	apply(t, ns, placed(policy...)+"---"+kinds)
	sh(t, "", "rollout status -n "+ns+" sts/db --timeout=60s")
	sh(t, "", "rollout status -n "+ns+" ds/log --timeout=60s")
	sh(t, "", "wait -n "+ns+" --for=condition=complete job/job --timeout=60s")
	sh(t, "", "wait -n "+ns+" --for=condition=Ready pod/pod --timeout=60s")
	for _, k := range told {
		eventually(t, converge, k.kind, sameEverywhere(ns, k.kind, k.name, k.fields, k.done))
	}
	for _, kind := range []string{"v1 Service lb", "networking.k8s.io/v1 Ingress ing"} {
		eventually(t, converge, kind, addresses(ns, strings.Fields(kind)))
	}
	for _, m := range members {
		if why := field(m, ns, "scaled", "spec.replicas", 2)(t.Context()); why != "" {
			t.Errorf("an autoscaled Deployment did not start as stated: %s", why)
		}
	}
	// The first run comes with the next minute.
	eventually(t, 60*time.Second+converge, "CronJob", func(ctx context.Context) string {
		o, err := get(ctx, "hub", "batch/v1", "CronJob", ns, "cron")
		if err != nil || o == nil || said(o, "lastScheduleTime") == "0" || said(o, "lastSuccessfulTime") == "0" {
			return fmt.Sprintf("hub: CronJob %v (%v)", o, err)
		}
		return ""
	})
	// A namespace takes Pods first, and the rest only when they are gone.
	sh(t, "", "delete ns "+ns+" --timeout=90s")
}

// addresses gives a check that the hub shows the addresses of all members, and whose each is.
func addresses(ns string, what []string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		var shown []any
		for _, c := range append([]string{"hub"}, members...) {
			o, err := get(ctx, c, what[0], what[1], ns, what[2])
			if err != nil || o == nil {
				return fmt.Sprintf("%s: no %v (%v)", c, what, err)
			}
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "loadBalancer", "ingress")
			if c == "hub" {
				shown = list
				continue
			}
			if len(list) != 1 || !slices.ContainsFunc(shown, func(a any) bool {
				is, member := a.(map[string]any), list[0].(map[string]any)
				return is["ip"] == member["ip"] && is["hostname"] == c
			}) {
				return fmt.Sprintf("%s has %v, the hub shows %v", c, list, shown)
			}
		}
		return ""
	}
}

// definition of a kind of the test's own group, whose objects may have any fields. plural is in
// lower case.
func definition(kind, plural string) string {
	return strings.NewReplacer("$KIND", kind, "$PLURAL", plural).Replace(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $PLURAL.$NS.example}
spec:
  group: $NS.example
  scope: Namespaced
  names: {plural: $PLURAL, kind: $KIND, listKind: $KINDList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`)
}

const widget = `
apiVersion: $NS.example/v1
kind: Widget
metadata: {name: w, namespace: $NS}
spec: {size: 1}
`

// What the operators of members say of a custom resource, the hub says: the least
// finished cluster speaks.
func TestStatusOfACustomResource(t *testing.T) {
	t.Parallel()
	const ns = "widgetry"
	namespace(t, ns)
	// A definition that came as a dependency stays in members.
	for _, c := range append([]string{"hub"}, members...) {
		afterwards(t, c, "delete crd widgets."+ns+".example --wait=false")
	}
	apply(t, ns, definition("Widget", "widgets"))
	sh(t, "", "wait --for=condition=Established crd/widgets."+ns+".example --timeout=60s")
	apply(t, ns, placed(ns+".example/v1 Widget")+"  propagateDeps: true\n---\n"+widget)
	eventually(t, converge, "delivery, with the definition as a dependency", there(ns+".example/v1", "Widget", ns, "w", members...))
	speak := func(cluster, status string, generation int64) {
		t.Helper()
		eventually(t, converge, "the operator of "+cluster, func(ctx context.Context) string { // the agent may write meanwhile
			o, err := get(ctx, cluster, ns+".example/v1", "Widget", ns, "w")
			if err != nil || o == nil {
				return fmt.Sprint(o, err)
			}
			o.Object["status"] = map[string]any{"observedGeneration": generation, "conditions": []any{map[string]any{
				"type": "Ready", "status": status, "reason": "Because", "message": "so says " + cluster, "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
			}}}
			return because(world.clients[cluster].Status().Update(ctx, o, client.FieldOwner("operator")))
		})
	}
	ready := func(want string) {
		t.Helper()
		eventually(t, converge, want, func(ctx context.Context) string {
			if got := condition(ctx, ns+".example/v1", "Widget", ns, "w", "Ready"); !strings.HasPrefix(got, want) {
				return "the output is: " + got
			}
			return ""
		})
	}
	speak("member1", "True", 1)
	speak("member2", "False", 1)
	speak("member3", "True", 1)
	ready("False Because: cluster member2: so says member2")
	speak("member2", "True", 1)
	ready("True Because")
	sh(t, "", "wait -n "+ns+" --for=condition=Ready widgets."+ns+".example/w --timeout=60s")
	patch(t, ns+".example/v1", "Widget", ns, "w", `{"spec":{"size":2}}`)
	for _, m := range members {
		eventually(t, converge, "an edit", shows([]string{m}, object{ns + ".example/v1", "Widget", ns, "w"}, "spec.size", "2"))
		if m == "member3" {
			break
		}
		speak(m, "True", 2)
	}
	if why := shows([]string{"hub"}, object{ns + ".example/v1", "Widget", ns, "w"}, "status.observedGeneration", "1")(t.Context()); why != "" {
		t.Errorf("the hub says that member3's operator has seen what it has not: %s", why)
	}
	speak("member3", "True", 2)
	eventually(t, converge, "all operators have seen it", shows([]string{"hub"}, object{ns + ".example/v1", "Widget", ns, "w"}, "status.observedGeneration", "2"))
}

// slow is a Deployment whose pods take a second to be ready.
const slow = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {lab.atoll.dev/ready-after: 1s}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
`

// rolledOut gives what is not yet true of Deployment web in a member, if anything:
// its own controller has rolled this image out to as many replicas as it is to have.
func rolledOut(ctx context.Context, member, ns, image string) string {
	o, err := get(ctx, member, "apps/v1", "Deployment", ns, "web")
	if err != nil || o == nil {
		return fmt.Sprintf("%s: no Deployment (%v)", member, err)
	}
	n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	cs, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	want := fmt.Sprint(image, " ", o.GetGeneration(), " ", n, " ", n, " ", n)
	got := fmt.Sprint(cs[0].(map[string]any)["image"], " ", said(o, "observedGeneration"), " ", said(o, "updatedReplicas"), " ", said(o, "availableReplicas"), " ", said(o, "replicas"))
	if got != want {
		return fmt.Sprintf("%s: image, observedGeneration, updated, available, all are %s, want %s", member, got, want)
	}
	return ""
}

func TestRolloutStatusEndsWhenTheMembersHaveDone(t *testing.T) {
	t.Parallel()
	divided := strings.Replace(placed("apps/v1 Deployment"), "placement: {", `placement: {replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [member1, member2, member3]}, weight: 1}]}}, `, 1)
	for mode, policy := range map[string]string{"duplicated": placed("apps/v1 Deployment"), "divided": divided} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t, "rollout-"+mode)
			apply(t, ns, policy+"---"+slow)
			done := func(image string) {
				t.Helper()
				sh(t, "", "rollout status -n "+ns+" deploy/web --timeout=90s")
				for _, m := range members {
					if why := rolledOut(t.Context(), m, ns, image); why != "" {
						t.Errorf("rollout status ended early: %s", why)
					}
				}
			}
			done("registry.example/web:1")
			for _, image := range []string{"registry.example/web:2", "registry.example/web:3"} {
				sh(t, "", "set image -n "+ns+" deploy/web web="+image)
				done(image)
			}
			sh(t, "", "scale -n "+ns+" deploy/web --replicas=6")
			done("registry.example/web:3")
			sh(t, "", "rollout restart -n "+ns+" deploy/web")
			done("registry.example/web:3")
			total := map[string]int64{"duplicated": 6, "divided": 2}[mode]
			for _, m := range members {
				if why := field(m, ns, "web", "status.readyReplicas", total)(t.Context()); why != "" {
					t.Error(why)
				}
			}
		})
	}
}

// A rollout that gets nowhere says so on the hub as it does in a cluster, and ends
// when it is mended.
func TestFailingRolloutSaysSo(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "failing")
	apply(t, ns, placed("apps/v1 Deployment")+"---"+strings.Replace(slow, "spec:\n  replicas", "spec:\n  progressDeadlineSeconds: 15\n  replicas", 1))
	sh(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"template":{"spec":{"nodeSelector":{"disk":"none"}}}}}`)
	fails(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s", "exceeded its progress deadline")
	if got := condition(t.Context(), "apps/v1", "Deployment", ns, "web", "Progressing"); !strings.HasPrefix(got, "False ProgressDeadlineExceeded") {
		t.Errorf("Progressing is %s", got)
	}
	if got := condition(t.Context(), "apps/v1", "Deployment", ns, "web", "Available"); !strings.HasPrefix(got, "True") {
		t.Errorf("the old replicas serve on, but Available is %s", got)
	}
	if out := sh(t, "", "get bundle -n "+ns+" all"); !strings.Contains(out, "ProgressDeadlineExceeded") {
		t.Errorf("the Bundle does not say why it is not ready:\n%s", out)
	}
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	sh(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
	apply(t, ns, strings.NewReplacer("name: web,", "name: never,", "app: web", "app: never", "spec: {containers", "spec: {nodeSelector: {disk: none}, containers").Replace(slow))
	eventually(t, converge, "one that never was available", func(ctx context.Context) string {
		if got := condition(ctx, "apps/v1", "Deployment", ns, "never", "Available"); !strings.HasPrefix(got, "False MinimumReplicasUnavailable") {
			return "the output is: " + got
		}
		return ""
	})
	fails(t, "", "wait -n "+ns+" --for=condition=Available deploy/never --timeout=1s", "timed out")
}

// Who is away holds up no rollout, and has caught up when it is back.
func TestRolloutStatusWithAClusterAway(t *testing.T) {
	ns := namespace(t, "rollout-away")
	apply(t, ns, placed("apps/v1 Deployment")+"---"+slow)
	away := func() string {
		return kubectl(t, "", "get", "bundle", "-n", ns, "all", "-o", "jsonpath={.status.clusters}")
	}
	// After a test that took the hub down, agents are on their way back, and away until then.
	eventually(t, converge, "nobody is away", func(context.Context) string {
		if out := away(); !strings.Contains(out, `"ready":3`) || strings.Contains(out, `"away"`) {
			return "the output is: " + out
		}
		return ""
	})
	sh(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
	if err := world.lab.Cut(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.lab.Heal(context.WithoutCancel(t.Context()), "member3"); err != nil {
			t.Error(err)
		}
	})
	sh(t, "", "set image -n "+ns+" deploy/web web=registry.example/web:2")
	sh(t, "", "rollout status -n "+ns+" deploy/web --timeout=90s")
	for _, m := range members[:2] {
		if why := rolledOut(t.Context(), m, ns, "registry.example/web:2"); why != "" {
			t.Errorf("rollout status ended early: %s", why)
		}
	}
	if out := away(); !strings.Contains(out, `"away":1`) {
		t.Errorf("the Bundle does not count who is away: %s", out)
	}
	if err := world.lab.Heal(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	eventually(t, converge, "it catches up", func(ctx context.Context) string {
		return rolledOut(ctx, "member3", ns, "registry.example/web:2")
	})
	sh(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
}
