package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/testwait"
)

// trainerInterpreter defines all operations of an operator's kind; $HEALTH is its health.
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

const trainedObjects = `
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

// reportRunning reports, as the operator of a member, that the trainer runs.
func reportRunning(t *testing.T, cluster string, which objectName, ready, loss int64) {
	t.Helper()
	testwait.UntilNil(t, "the operator of "+cluster, func(ctx context.Context) error {
		o, err := get(ctx, cluster, which.apiVersion, which.kind, which.namespace, which.name)
		if err != nil || o == nil {
			return fmt.Errorf("%s has no %s (%v)", cluster, which.kind, err)
		}
		o.Object["status"] = map[string]any{"phase": "Running", "ready": ready, "loss": loss, "noise": strings.Repeat("x", 4000)}
		if err := sharedWorld.clients[cluster].Status().Update(ctx, o, client.FieldOwner("operator")); err != nil {
			return err
		}
		return nil
	})
}

// An operator's kind unknown to Atoll is divided, overridden, judged and summed up like a
// Deployment, by a ResourceInterpreter.
func TestAnInterpreterTeachesAKind(t *testing.T) {
	t.Parallel()
	const ns = "training"
	createNamespace(t, ns)
	for _, c := range append([]string{"hub"}, memberNames...) {
		kubectlAtEnd(t, c, "delete crd trainers."+ns+".example --wait=false")
	}
	kubectlAtEnd(t, "hub", "delete resourceinterpreter "+ns)
	apply(t, ns, kindDefinition("Trainer", "trainers"))
	mustKubectl(t, "", "wait --for=condition=Established crd/trainers."+ns+".example --timeout=60s")

	teach := func(health string) {
		t.Helper()
		apply(t, ns, strings.ReplaceAll(trainerInterpreter, "$HEALTH", health))
	}
	broken := strings.NewReplacer("$NS", ns, "$HEALTH", "      if obj then\n      return {").Replace(trainerInterpreter)
	kubectlFails(t, broken, "apply -f -", "spec.health.lua", "line 2", "column")
	teach(phaseHealth)
	apply(t, ns, trainedObjects)

	api := ns + ".example/v1"
	cats := objectName{api, "Trainer", ns, "cats"}
	testwait.UntilNil(t, "replicas by weight, the image by override, what it needs along with it", allChecks(
		fieldShows([]string{"member1"}, cats, "spec.workers", "4"), fieldShows([]string{"member2"}, cats, "spec.workers", "2"),
		fieldShows([]string{"member1"}, cats, "spec.image", "trainer:1"), fieldShows([]string{"member2"}, cats, "spec.image", "mirror/trainer:1"),
		existsIn("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
		explanationMatches("trainer/cats -n "+ns, "it warms up"),
	))

	reportRunning(t, "member1", cats, 4, 5)
	reportRunning(t, "member2", cats, 2, 1)
	testwait.UntilNil(t, "health and one status of both", allChecks(
		fieldShows([]string{"hub"}, cats, "status.ready", "6"), fieldShows([]string{"hub"}, cats, "status.at", "member1=Running member2=Running "),
		explanationMatches("trainer/cats -n "+ns, "ready in all of them"),
		explanationMatches("trainer/cats -n "+ns, "ResourceInterpreter "+ns+" returns its replicas, .*judges its health, .* and joins its status"),
	))

	// Fields that a member's operator sets stay, as the script defines.
	binaryOutput(t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("member1")},
		strings.Fields(`patch trainer cats -n `+ns+` --type=merge -p {"spec":{"seed":7}}`)...)...)
	mustKubectl(t, "", "patch trainer cats -n "+ns+" --type=merge -p {\"spec\":{\"workers\":9}}")
	testwait.UntilNil(t, "an edit", allChecks(
		fieldShows([]string{"member1"}, cats, "spec.workers", "6"), fieldShows([]string{"member2"}, cats, "spec.workers", "3"),
		fieldShows([]string{"member1"}, cats, "spec.seed", "7"),
	))

	// Another opinion of health counts at once, about what already runs.
	teach(lossHealth)
	testwait.UntilNil(t, "another opinion", explanationMatches("trainer/cats -n "+ns, "the loss is 5"))

	// One that loops ends in a reason, and stops nothing else.
	teach(loopHealth)
	testwait.UntilNil(t, "a reason", explanationMatches("trainer/cats -n "+ns, "InterpreterFailed.*more than 500000 steps.*the hub.s administrator"))
	patch(t, "apps/v1", "Deployment", ns, "web", `{"spec":{"replicas":6}}`)
	testwait.UntilNil(t, "the Deployment goes on", allChecks(fieldIs("member1", ns, "web", "spec.replicas", 4), fieldIs("hub", ns, "web", "status.readyReplicas", 6)))

	// Without the interpreter its last results stay, until a user edits the template.
	mustKubectl(t, "", "delete resourceinterpreter "+ns)
	testwait.UntilNil(t, "nothing is scaled or taken away", allChecks(
		explanationMatches("trainer/cats -n "+ns, "A ResourceInterpreter that is gone returns its replicas"),
		fieldShows([]string{"member1"}, cats, "spec.workers", "6"), existsIn("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
	))
}
