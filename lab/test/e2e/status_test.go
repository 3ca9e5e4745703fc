package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

const kindObjects = `
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

// shownStatuses lists which fields of a kind's status the hub shows as every member has them
// once all is done, and what one of them is then.
var shownStatuses = []struct {
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

// statusField returns a field of an object's status, or the status of the condition of that
// type, as text.
func statusField(o *unstructured.Unstructured, field string) string {
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

// sameEverywhere returns a check that the hub shows the state that every member has, and
// that it is done.
func sameEverywhere(ns, kind, name string, fields []string, done string) func(ctx context.Context) error {
	apiVersion, kind, _ := strings.Cut(kind, " ")
	return func(ctx context.Context) error {
		hubs, err := get(ctx, "hub", apiVersion, kind, ns, name)
		if err != nil || hubs == nil {
			return fmt.Errorf("hub: no %s (%v)", kind, err)
		}
		if key, want, _ := strings.Cut(done, "="); statusField(hubs, key) != want {
			return fmt.Errorf("hub: %s %s has %s %s, want %s", kind, name, key, statusField(hubs, key), want)
		}
		for _, m := range memberNames {
			o, err := get(ctx, m, apiVersion, kind, ns, name)
			if err != nil || o == nil {
				return fmt.Errorf("%s: no %s (%v)", m, kind, err)
			}
			for _, f := range fields {
				if x, y := statusField(hubs, f), statusField(o, f); x != y {
					return fmt.Errorf("%s %s: %s is %s on the hub, %s in %s", kind, name, f, x, y, m)
				}
			}
		}
		return nil
	}
}

func TestStatusOfEveryKindMatchesTheMembers(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "kinds")
	policy := []string{"v1 Service", "networking.k8s.io/v1 Ingress", "batch/v1 CronJob"}
	for _, k := range shownStatuses {
		policy = append(policy, k.kind)
	}
	apply(t, ns, policyForKinds(policy...)+"---"+kindObjects)
	mustKubectl(t, "", "rollout status -n "+ns+" sts/db --timeout=60s")
	mustKubectl(t, "", "rollout status -n "+ns+" ds/log --timeout=60s")
	mustKubectl(t, "", "wait -n "+ns+" --for=condition=complete job/job --timeout=60s")
	mustKubectl(t, "", "wait -n "+ns+" --for=condition=Ready pod/pod --timeout=60s")
	for _, k := range shownStatuses {
		testwait.UntilNil(t, k.kind, sameEverywhere(ns, k.kind, k.name, k.fields, k.done))
	}
	for _, kind := range []string{"v1 Service lb", "networking.k8s.io/v1 Ingress ing"} {
		testwait.UntilNil(t, kind, addressesShown(ns, strings.Fields(kind)))
	}
	for _, m := range memberNames {
		if err := fieldIs(m, ns, "scaled", "spec.replicas", 2)(t.Context()); err != nil {
			t.Errorf("an autoscaled Deployment did not start as stated: %s", err)
		}
	}
	// The first run comes with the next minute.
	testwait.UntilNilWithin(t, 60*time.Second+testwait.HangLimit, "CronJob", func(ctx context.Context) error {
		o, err := get(ctx, "hub", "batch/v1", "CronJob", ns, "cron")
		if err != nil || o == nil || statusField(o, "lastScheduleTime") == "0" || statusField(o, "lastSuccessfulTime") == "0" {
			return fmt.Errorf("hub: CronJob %v (%v)", o, err)
		}
		return nil
	})
	// A namespace takes Pods first, and the rest only when they are gone.
	mustKubectl(t, "", "delete ns "+ns+" --timeout=90s")
}

// addressesShown returns a check that the hub shows the addresses of all members, and whose each is.
func addressesShown(ns string, what []string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var shown []any
		for _, c := range append([]string{"hub"}, memberNames...) {
			o, err := get(ctx, c, what[0], what[1], ns, what[2])
			if err != nil || o == nil {
				return fmt.Errorf("%s: no %v (%v)", c, what, err)
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
				return fmt.Errorf("%s has %v, the hub shows %v", c, list, shown)
			}
		}
		return nil
	}
}

// kindDefinition returns the definition of a kind of the test's own group, whose objects
// may have any fields. plural is in lower case.
func kindDefinition(kind, plural string) string {
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

const widgetObject = `
apiVersion: $NS.example/v1
kind: Widget
metadata: {name: w, namespace: $NS}
spec: {size: 1}
`

// The hub shows what the operators of members report of a custom resource: the least
// finished cluster counts.
func TestStatusOfACustomResource(t *testing.T) {
	t.Parallel()
	const ns = "widgetry"
	createNamespace(t, ns)
	// A definition that came as a dependency stays in members.
	for _, c := range append([]string{"hub"}, memberNames...) {
		kubectlAtEnd(t, c, "delete crd widgets."+ns+".example --wait=false")
	}
	apply(t, ns, kindDefinition("Widget", "widgets"))
	mustKubectl(t, "", "wait --for=condition=Established crd/widgets."+ns+".example --timeout=60s")
	apply(t, ns, policyForKinds(ns+".example/v1 Widget")+"  propagateDeps: true\n---\n"+widgetObject)
	testwait.UntilNil(t, "delivery, with the definition as a dependency", existsIn(ns+".example/v1", "Widget", ns, "w", memberNames...))
	speak := func(cluster, status string, generation int64) {
		t.Helper()
		testwait.UntilNil(t, "the operator of "+cluster, func(ctx context.Context) error { // the agent may write at the same time
			o, err := get(ctx, cluster, ns+".example/v1", "Widget", ns, "w")
			if err != nil || o == nil {
				return fmt.Errorf("%s has no Widget (%v)", cluster, err)
			}
			o.Object["status"] = map[string]any{"observedGeneration": generation, "conditions": []any{map[string]any{
				"type": "Ready", "status": status, "reason": "Because", "message": "so says " + cluster, "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": generation,
			}}}
			return sharedWorld.clients[cluster].Status().Update(ctx, o, client.FieldOwner("operator"))
		})
	}
	ready := func(want string) {
		t.Helper()
		testwait.UntilNil(t, want, func(ctx context.Context) error {
			if got := conditionText(ctx, ns+".example/v1", "Widget", ns, "w", "Ready"); !strings.HasPrefix(got, want) {
				return errors.New("the output is: " + got)
			}
			return nil
		})
	}
	speak("member1", "True", 1)
	speak("member2", "False", 1)
	speak("member3", "True", 1)
	ready("False Because: cluster member2: so says member2")
	speak("member2", "True", 1)
	ready("True Because")
	mustKubectl(t, "", "wait -n "+ns+" --for=condition=Ready widgets."+ns+".example/w --timeout=60s")
	patch(t, ns+".example/v1", "Widget", ns, "w", `{"spec":{"size":2}}`)
	for _, m := range memberNames {
		testwait.UntilNil(t, "an edit", fieldShows([]string{m}, objectName{ns + ".example/v1", "Widget", ns, "w"}, "spec.size", "2"))
		if m == "member3" {
			break
		}
		speak(m, "True", 2)
	}
	if err := fieldShows([]string{"hub"}, objectName{ns + ".example/v1", "Widget", ns, "w"}, "status.observedGeneration", "1")(t.Context()); err != nil {
		t.Errorf("the hub says that member3's operator has seen what it has not: %s", err)
	}
	speak("member3", "True", 2)
	testwait.UntilNil(t, "all operators have seen it", fieldShows([]string{"hub"}, objectName{ns + ".example/v1", "Widget", ns, "w"}, "status.observedGeneration", "2"))
}

// slowDeployment is a Deployment whose pods take a second to be ready.
const slowDeployment = `
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

// rolledOut returns an error with what is not yet true of Deployment web in a member, if anything:
// its own controller has rolled this image out to as many replicas as it is to have.
func rolledOut(ctx context.Context, member, ns, image string) error {
	o, err := get(ctx, member, "apps/v1", "Deployment", ns, "web")
	if err != nil || o == nil {
		return fmt.Errorf("%s: no Deployment (%v)", member, err)
	}
	n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	cs, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	want := fmt.Sprint(image, " ", o.GetGeneration(), " ", n, " ", n, " ", n)
	got := fmt.Sprint(cs[0].(map[string]any)["image"], " ", statusField(o, "observedGeneration"), " ", statusField(o, "updatedReplicas"), " ", statusField(o, "availableReplicas"), " ", statusField(o, "replicas"))
	if got != want {
		return fmt.Errorf("%s: image, observedGeneration, updated, available, all are %s, want %s", member, got, want)
	}
	return nil
}

func TestRolloutStatusEndsWhenTheMembersHaveDone(t *testing.T) {
	t.Parallel()
	divided := strings.Replace(policyForKinds("apps/v1 Deployment"), "placement: {", `placement: {replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [member1, member2, member3]}, weight: 1}]}}, `, 1)
	for mode, policy := range map[string]string{"duplicated": policyForKinds("apps/v1 Deployment"), "divided": divided} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ns := createNamespace(t, "rollout-"+mode)
			apply(t, ns, policy+"---"+slowDeployment)
			done := func(image string) {
				t.Helper()
				mustKubectl(t, "", "rollout status -n "+ns+" deploy/web --timeout=90s")
				for _, m := range memberNames {
					if err := rolledOut(t.Context(), m, ns, image); err != nil {
						t.Errorf("rollout status ended early: %s", err)
					}
				}
			}
			done("registry.example/web:1")
			for _, image := range []string{"registry.example/web:2", "registry.example/web:3"} {
				mustKubectl(t, "", "set image -n "+ns+" deploy/web web="+image)
				done(image)
			}
			mustKubectl(t, "", "scale -n "+ns+" deploy/web --replicas=6")
			done("registry.example/web:3")
			mustKubectl(t, "", "rollout restart -n "+ns+" deploy/web")
			done("registry.example/web:3")
			total := map[string]int64{"duplicated": 6, "divided": 2}[mode]
			for _, m := range memberNames {
				if err := fieldIs(m, ns, "web", "status.readyReplicas", total)(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A stuck rollout shows on the hub as in a cluster, and ends when it is repaired.
func TestFailingRolloutIsShown(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "failing")
	apply(t, ns, policyForKinds("apps/v1 Deployment")+"---"+strings.Replace(slowDeployment, "spec:\n  replicas", "spec:\n  progressDeadlineSeconds: 15\n  replicas", 1))
	mustKubectl(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"template":{"spec":{"nodeSelector":{"disk":"none"}}}}}`)
	kubectlFails(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s", "exceeded its progress deadline")
	if got := conditionText(t.Context(), "apps/v1", "Deployment", ns, "web", "Progressing"); !strings.HasPrefix(got, "False ProgressDeadlineExceeded") {
		t.Errorf("Progressing is %s", got)
	}
	if got := conditionText(t.Context(), "apps/v1", "Deployment", ns, "web", "Available"); !strings.HasPrefix(got, "True") {
		t.Errorf("the old replicas serve on, but Available is %s", got)
	}
	if out := mustKubectl(t, "", "get bundle -n "+ns+" all"); !strings.Contains(out, "ProgressDeadlineExceeded") {
		t.Errorf("the Bundle shows no reason for not being ready:\n%s", out)
	}
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"template":{"spec":{"nodeSelector":null}}}}`)
	mustKubectl(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
	apply(t, ns, strings.NewReplacer("name: web,", "name: never,", "app: web", "app: never", "spec: {containers", "spec: {nodeSelector: {disk: none}, containers").Replace(slowDeployment))
	testwait.UntilNil(t, "one that never was available", func(ctx context.Context) error {
		if got := conditionText(ctx, "apps/v1", "Deployment", ns, "never", "Available"); !strings.HasPrefix(got, "False MinimumReplicasUnavailable") {
			return errors.New("the output is: " + got)
		}
		return nil
	})
	kubectlFails(t, "", "wait -n "+ns+" --for=condition=Available deploy/never --timeout=1s", "timed out")
}

// A disconnected cluster holds up no rollout, and has caught up when it is back.
func TestRolloutStatusWithAClusterAway(t *testing.T) {
	ns := createNamespace(t, "rollout-away")
	apply(t, ns, policyForKinds("apps/v1 Deployment")+"---"+slowDeployment)
	away := func() string {
		return kubectlOutput(t, "", "get", "bundle", "-n", ns, "all", "-o", "jsonpath={.status.clusters}")
	}
	// After a test that took the hub down, agents are on their way back, and away until then.
	testwait.UntilNil(t, "no cluster is disconnected", func(context.Context) error {
		if out := away(); !strings.Contains(out, `"ready":3`) || strings.Contains(out, `"away"`) {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	mustKubectl(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
	if err := sharedWorld.lab.CutLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sharedWorld.lab.HealLink(context.WithoutCancel(t.Context()), "member3"); err != nil {
			t.Error(err)
		}
	})
	mustKubectl(t, "", "set image -n "+ns+" deploy/web web=registry.example/web:2")
	mustKubectl(t, "", "rollout status -n "+ns+" deploy/web --timeout=90s")
	for _, m := range memberNames[:2] {
		if err := rolledOut(t.Context(), m, ns, "registry.example/web:2"); err != nil {
			t.Errorf("rollout status ended early: %s", err)
		}
	}
	if out := away(); !strings.Contains(out, `"away":1`) {
		t.Errorf("the Bundle does not count the disconnected: %s", out)
	}
	if err := sharedWorld.lab.HealLink(t.Context(), "member3"); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "it catches up", func(ctx context.Context) error {
		return rolledOut(ctx, "member3", ns, "registry.example/web:2")
	})
	mustKubectl(t, "", "rollout status -n "+ns+" deploy/web --timeout=60s")
}
