package e2e

import (
	"context"
	"strings"
	"testing"
)

// tutorCustomization is what Karmada's users have for an operator's kind; $HEALTH is its
// health.
const tutorCustomization = `
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: $NS}
spec:
  target:
    apiVersion: $NS.example/v1
    kind: Tutor
  customizations:
    replicaResource:
      luaScript: |
        function GetReplicas(obj)
          return obj.spec.workers, {resourceRequest = {cpu = obj.spec.cpu}}
        end
    replicaRevision:
      luaScript: |
        function ReviseReplica(obj, desiredReplica)
          obj.spec.workers = desiredReplica
          return obj
        end
    statusReflection:
      luaScript: |
        function ReflectStatus(observedObj)
          return {phase = observedObj.status.phase, ready = observedObj.status.ready}
        end
    statusAggregation:
      luaScript: |
        function AggregateStatus(desiredObj, statusItems)
          local ready = 0
          for i = 1, #statusItems do
            if statusItems[i].status ~= nil then
              ready = ready + statusItems[i].status.ready
            end
          end
          desiredObj.status = {ready = ready}
          return desiredObj
        end
    healthInterpretation:
      luaScript: |
        function InterpretHealth(observedObj)
          return $HEALTH
        end
    dependencyInterpretation:
      luaScript: |
        function GetDependencies(desiredObj)
          return {{apiVersion = "v1", kind = "ConfigMap", namespace = desiredObj.metadata.namespace, name = desiredObj.spec.data}}
        end
`

// What Karmada's users bring is applied as it is and counts as a ResourceInterpreter does.
func TestACustomizationOfKarmadasTeachesAKind(t *testing.T) {
	t.Parallel()
	const ns = "brought"
	namespace(t, ns)
	for _, c := range append([]string{"hub"}, members...) {
		afterwards(t, c, "delete crd tutors."+ns+".example --wait=false")
	}
	afterwards(t, "hub", "delete resourceinterpretercustomization "+ns+" "+ns+"-taken")
	afterwards(t, "hub", "delete resourceinterpreter "+ns+"-taken")
	apply(t, ns, definition("Tutor", "tutors"))
	sh(t, "", "wait --for=condition=Established crd/tutors."+ns+".example --timeout=60s")

	saying := func(health string) string {
		return strings.NewReplacer("$NS", ns, "$HEALTH", health).Replace(tutorCustomization)
	}
	const runs = `observedObj.status ~= nil and observedObj.status.phase == "Running"`
	refusesCustomizations(t, saying)
	sh(t, saying(runs), "apply -f -")
	apply(t, ns, strings.ReplaceAll(trained, "Trainer", "Tutor"))

	cats := object{ns + ".example/v1", "Tutor", ns, "cats"}
	eventually(t, converge, "replicas by weight, and what it needs along with it", all(
		shows([]string{"member1"}, cats, "spec.workers", "4"), shows([]string{"member2"}, cats, "spec.workers", "2"),
		there("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
		explains("tutor/cats -n "+ns, "its interpreter says that it is not healthy"),
	))
	running(t, "member1", cats, 4, 5)
	running(t, "member2", cats, 2, 1)
	eventually(t, converge, "health and one status of both", all(
		shows([]string{"hub"}, cats, "status.ready", "6"), explains("tutor/cats -n "+ns, "ready in all of them"),
	))

	// An edit is foretold, and counts at once. What was made is not edited by hand.
	slots := strings.Replace(saying(runs), "obj.spec.workers = desiredReplica", "obj.spec.workers, obj.spec.slots = desiredReplica, 2 * desiredReplica", 1)
	if out := kubectl(t, slots, "apply", "--dry-run=server", "-f", "-"); !strings.Contains(out, "Warning: 1 Bundle: 0 added, 0 removed, 2 changed.") {
		t.Errorf("a dry run of an edit says:\n%s", out)
	}
	if out := binary(t, slots, "atoll", "plan", "--kubeconfig", world.lab.Kubeconfig("hub"), "--state", "live", "-f", "-"); !strings.Contains(out, "/spec/slots") {
		t.Errorf("a plan of an edit says:\n%s", out)
	}
	other := saying("observedObj.status.loss ~= nil and observedObj.status.loss < 3")
	sh(t, other, "apply -f -")
	eventually(t, converge, "another opinion", explains("tutor/cats -n "+ns, "its interpreter says that it is not healthy"))
	fails(t, "", "patch resourceinterpreter "+ns+` --type=merge -p {"spec":{"health":{"lua":"return_true"}}}`, "ResourceInterpreterCustomization "+ns+": edit that")
	sh(t, "", "delete resourceinterpreter "+ns)
	eventually(t, converge, "what was deleted by hand is there again", interpreterThere(ns, true))

	// A name that another has stays theirs, and it is said.
	theirs := strings.NewReplacer("$NS", ns+"-taken", "$HEALTH", phaseHealth).Replace(trainerInterpreter)
	sh(t, theirs, "apply -f -")
	sh(t, strings.Replace(saying(runs), "{name: "+ns+"}", "{name: "+ns+"-taken}", 1), "apply -f -")
	eventually(t, converge, "an Event", eventOf("default", "ResourceInterpreterCustomization", ns+"-taken", "NameTaken"))
	if out := sh(t, "", "get resourceinterpreter "+ns+"-taken -o yaml"); strings.Contains(out, "ownerReferences") || !strings.Contains(out, "it warms up") {
		t.Errorf("what another wrote was touched:\n%s", out)
	}
	sh(t, "", "delete resourceinterpreter "+ns+"-taken")
	eventually(t, converge, "the name is free", interpreterThere(ns+"-taken", true))
	sh(t, "", "delete ric "+ns+"-taken")

	// Without the customization its interpreter goes, and what runs stays.
	sh(t, "", "delete ric "+ns)
	eventually(t, converge, "nothing is scaled or taken away", all(
		interpreterThere(ns, false), interpreterThere(ns+"-taken", false),
		explains("tutor/cats -n "+ns, "cats"),
		shows([]string{"member1"}, cats, "spec.workers", "4"), there("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
	))
}

// refusesCustomizations that would be refused as interpreters.
func refusesCustomizations(t *testing.T, saying func(health string) string) {
	t.Helper()
	fails(t, saying("{"), "apply -f -", "spec.customizations.healthInterpretation.luaScript", "line 3, column")
	good := saying("true")
	secrets := strings.NewReplacer("apiVersion: brought.example/v1", "apiVersion: v1", "kind: Tutor", "kind: Secret").Replace(good)
	fails(t, secrets, "apply -f -", "spec.target.kind", "scripts see no Secrets")
	fails(t, strings.Replace(good, "kind: Tutor", "kind: '*'", 1), "apply -f -", "spec.target.kind")
	fails(t, strings.Replace(good, "statusReflection:", "statusRefraction:", 1), "apply --validate=false -f -", "unknown field", "statusRefraction")
}

// interpreterThere gives a check whether the hub has that ResourceInterpreter.
func interpreterThere(name string, want bool) func(ctx context.Context) string {
	return inCluster("hub", "atoll.dev/v1alpha1", "ResourceInterpreter", "", name, want)
}
