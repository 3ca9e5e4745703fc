package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trainerInterpreter knows all that an operator's kind is asked; $HEALTH is its health.
const trainerInterpreter = `
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: $NS}
spec:
  target: {apiVersion: $NS.example/v1, kinds: [Trainer]}
  replicas:
    lua: |
      function GetReplicas(obj)
        return obj.spec.workers, {resourceRequest = {cpu = obj.spec.cpu}}
      end
  revise:
    lua: |
      function ReviseReplica(obj, n)
        obj.spec.workers = n
        return obj
      end
  retain:
    cel: "{'spec': {'seed': has(observed.spec.seed) ? observed.spec.seed : 0}}"
  health:
    lua: |
$HEALTH
  status:
    cel: "{'phase': object.status.phase, 'ready': object.status.ready}"
  aggregate:
    lua: |
      function AggregateStatus(obj, items)
        obj.status = obj.status or {}
        obj.status.ready, obj.status.at = 0, ""
        for _, item in ipairs(items) do
          if item.status then
            obj.status.ready = obj.status.ready + item.status.ready
            obj.status.at = obj.status.at .. item.clusterName .. "=" .. item.status.phase .. " "
          end
        end
        return obj
      end
  dependencies:
    cel: "[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': object.metadata.namespace, 'name': object.spec.data}]"
`

const trained = `
apiVersion: v1
kind: ConfigMap
metadata: {name: pictures, namespace: $NS}
data: {of: cats}
---
apiVersion: $NS.example/v1
kind: Trainer
metadata: {name: cats, namespace: $NS}
spec: {workers: 6, cpu: 100m, image: "trainer:1", data: pictures}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1"}]}
---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: mirror, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: $NS.example/v1, kind: Trainer}]
  overrideRules:
  - targetCluster: {clusterNames: [member2]}
    overriders: {plaintext: [{path: /spec/image, operator: replace, value: "mirror/trainer:1"}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: all, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: $NS.example/v1, kind: Trainer}, {apiVersion: apps/v1, kind: Deployment}]
  propagateDeps: true
  placement:
    clusterAffinity: {clusterNames: [member1, member2]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [member1]}, weight: 2}, {targetCluster: {clusterNames: [member2]}, weight: 1}]}
`

const (
	phaseHealth = `      if obj.status and obj.status.phase == "Running" then
        return {status = "Healthy"}
      end
      return {status = "Progressing", message = "it warms up"}`
	lossHealth = `      if obj.status.loss > 3 then
        return {status = "Degraded", message = "the loss is " .. obj.status.loss}
      end
      return {status = "Healthy"}`
	loopHealth = `      while true do end return {}`
)

// running says, as the operator of a member, that what it trains runs.
func running(t *testing.T, cluster string, which object, ready, loss int64) {
	t.Helper()
	eventually(t, converge, "the operator of "+cluster, func(ctx context.Context) string {
		o, err := get(ctx, cluster, which.apiVersion, which.kind, which.namespace, which.name)
		if err != nil || o == nil {
			return fmt.Sprint(o, err)
		}
		o.Object["status"] = map[string]any{"phase": "Running", "ready": ready, "loss": loss, "noise": strings.Repeat("x", 4000)}
		if err := world.clients[cluster].Status().Update(ctx, o, client.FieldOwner("operator")); err != nil {
			return err.Error()
		}
		return ""
	})
}

// An operator's kind of which Atoll knows nothing is divided, overridden, judged and summed
// up like a Deployment, once a ResourceInterpreter says how.
func TestAnInterpreterTeachesAKind(t *testing.T) {
	t.Parallel()
	const ns = "training"
	namespace(t, ns)
	for _, c := range append([]string{"hub"}, members...) {
		afterwards(t, c, "delete crd trainers."+ns+".example --wait=false")
	}
	afterwards(t, "hub", "delete resourceinterpreter "+ns)
	apply(t, ns, definition("Trainer", "trainers"))
	sh(t, "", "wait --for=condition=Established crd/trainers."+ns+".example --timeout=60s")

	teach := func(health string) {
		t.Helper()
		apply(t, ns, strings.ReplaceAll(trainerInterpreter, "$HEALTH", health))
	}
	broken := strings.NewReplacer("$NS", ns, "$HEALTH", "      if obj then\n      return {").Replace(trainerInterpreter)
	fails(t, broken, "apply -f -", "spec.health.lua", "line 2", "column")
	teach(phaseHealth)
	apply(t, ns, trained)

	api := ns + ".example/v1"
	cats := object{api, "Trainer", ns, "cats"}
	eventually(t, converge, "replicas by weight, the image by override, what it needs along with it", all(
		shows([]string{"member1"}, cats, "spec.workers", "4"), shows([]string{"member2"}, cats, "spec.workers", "2"),
		shows([]string{"member1"}, cats, "spec.image", "trainer:1"), shows([]string{"member2"}, cats, "spec.image", "mirror/trainer:1"),
		there("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
		explains("trainer/cats -n "+ns, "it warms up"),
	))

	running(t, "member1", cats, 4, 5)
	running(t, "member2", cats, 2, 1)
	eventually(t, converge, "health and one status of both", all(
		shows([]string{"hub"}, cats, "status.ready", "6"), shows([]string{"hub"}, cats, "status.at", "member1=Running member2=Running "),
		explains("trainer/cats -n "+ns, "ready in all of them"),
		explains("trainer/cats -n "+ns, "ResourceInterpreter "+ns+" tells its replicas, .*judges its health, .* and joins its status"),
	))

	// What a member's operator sets of what Atoll applies stays, since the script says so.
	binary(t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", world.lab.Kubeconfig("member1")},
		strings.Fields(`patch trainer cats -n `+ns+` --type=merge -p {"spec":{"seed":7}}`)...)...)
	sh(t, "", "patch trainer cats -n "+ns+" --type=merge -p {\"spec\":{\"workers\":9}}")
	eventually(t, converge, "an edit", all(
		shows([]string{"member1"}, cats, "spec.workers", "6"), shows([]string{"member2"}, cats, "spec.workers", "3"),
		shows([]string{"member1"}, cats, "spec.seed", "7"),
	))

	// Another opinion of health counts at once, about what already runs.
	teach(lossHealth)
	eventually(t, converge, "another opinion", explains("trainer/cats -n "+ns, "the loss is 5"))

	// One that loops ends in a reason, and stops nothing else.
	teach(loopHealth)
	eventually(t, converge, "a reason", explains("trainer/cats -n "+ns, "InterpreterFailed.*more than 500000 steps.*the hub.s administrator"))
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":6}}`)
	eventually(t, converge, "the Deployment goes on", all(field("member1", ns, "web", "spec.replicas", 4), field("hub", ns, "web", "status.readyReplicas", 6)))

	// Without the interpreter what it said stays, until somebody edits the template.
	sh(t, "", "delete resourceinterpreter "+ns)
	eventually(t, converge, "nothing is scaled or taken away", all(
		explains("trainer/cats -n "+ns, "A ResourceInterpreter that is gone tells its replicas"),
		shows([]string{"member1"}, cats, "spec.workers", "6"), there("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
	))
}
