package e2e

import (
	"context"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
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

// Customizations of Karmada's users are applied unchanged and count like
// ResourceInterpreters.
func TestACustomizationOfKarmadasTeachesAKind(t *testing.T) {
	t.Parallel()
	const ns = "brought"
	createNamespace(t, ns)
	for _, c := range append([]string{"hub"}, memberNames...) {
		kubectlAtEnd(t, c, "delete crd tutors."+ns+".example --wait=false")
	}
	kubectlAtEnd(t, "hub", "delete resourceinterpretercustomization "+ns+" "+ns+"-taken")
	kubectlAtEnd(t, "hub", "delete resourceinterpreter "+ns+"-taken")
	apply(t, ns, kindDefinition("Tutor", "tutors"))
	mustKubectl(t, "", "wait --for=condition=Established crd/tutors."+ns+".example --timeout=60s")

	saying := func(health string) string {
		return strings.NewReplacer("$NS", ns, "$HEALTH", health).Replace(tutorCustomization)
	}
	const runs = `observedObj.status ~= nil and observedObj.status.phase == "Running"`
	refusesCustomizations(t, saying)
	mustKubectl(t, saying(runs), "apply -f -")
	apply(t, ns, strings.ReplaceAll(trainedObjects, "Trainer", "Tutor"))

	cats := objectName{ns + ".example/v1", "Tutor", ns, "cats"}
	testwait.UntilNil(t, "replicas by weight, and what it needs along with it", allChecks(
		fieldShows([]string{"member1"}, cats, "spec.workers", "4"), fieldShows([]string{"member2"}, cats, "spec.workers", "2"),
		existsIn("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
		explanationMatches("tutor/cats -n "+ns, "its interpreter reports that it is not healthy"),
	))
	reportRunning(t, "member1", cats, 4, 5)
	reportRunning(t, "member2", cats, 2, 1)
	testwait.UntilNil(t, "health and one status of both", allChecks(
		fieldShows([]string{"hub"}, cats, "status.ready", "6"), explanationMatches("tutor/cats -n "+ns, "ready in all of them"),
	))

	// The preview shows an edit, and it counts at once. Derived objects are not edited by
	// hand.
	slots := strings.Replace(saying(runs), "obj.spec.workers = desiredReplica", "obj.spec.workers, obj.spec.slots = desiredReplica, 2 * desiredReplica", 1)
	if out := kubectlOutput(t, slots, "apply", "--dry-run=server", "-f", "-"); !strings.Contains(out, "Warning: 1 Bundle: 0 added, 0 removed, 2 changed.") {
		t.Errorf("a dry run of an edit says:\n%s", out)
	}
	if out := binaryOutput(t, slots, "atoll", "plan", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"), "-f", "-"); !strings.Contains(out, "/spec/slots") {
		t.Errorf("a plan of an edit says:\n%s", out)
	}
	other := saying("observedObj.status.loss ~= nil and observedObj.status.loss < 3")
	mustKubectl(t, other, "apply -f -")
	testwait.UntilNil(t, "another opinion", explanationMatches("tutor/cats -n "+ns, "its interpreter reports that it is not healthy"))
	kubectlFails(t, "", "patch resourceinterpreter "+ns+` --type=merge -p {"spec":{"health":{"lua":"return_true"}}}`, "ResourceInterpreterCustomization "+ns+": edit that")
	mustKubectl(t, "", "delete resourceinterpreter "+ns)
	testwait.UntilNil(t, "what was deleted by hand is there again", interpreterThere(ns, true))

	// A name that another has stays theirs, and it is said.
	theirs := strings.NewReplacer("$NS", ns+"-taken", "$HEALTH", phaseHealth).Replace(trainerInterpreter)
	mustKubectl(t, theirs, "apply -f -")
	mustKubectl(t, strings.Replace(saying(runs), "{name: "+ns+"}", "{name: "+ns+"-taken}", 1), "apply -f -")
	testwait.UntilNil(t, "an Event", eventOf("default", "ResourceInterpreterCustomization", ns+"-taken", "NameTaken"))
	if out := mustKubectl(t, "", "get resourceinterpreter "+ns+"-taken -o yaml"); strings.Contains(out, "ownerReferences") || !strings.Contains(out, "it warms up") {
		t.Errorf("what another wrote was touched:\n%s", out)
	}
	mustKubectl(t, "", "delete resourceinterpreter "+ns+"-taken")
	testwait.UntilNil(t, "the name is free", interpreterThere(ns+"-taken", true))
	mustKubectl(t, "", "delete ric "+ns+"-taken")

	// Without the customization its interpreter goes, and what runs stays.
	mustKubectl(t, "", "delete ric "+ns)
	testwait.UntilNil(t, "nothing is scaled or taken away", allChecks(
		interpreterThere(ns, false), interpreterThere(ns+"-taken", false),
		explanationMatches("tutor/cats -n "+ns, "cats"),
		fieldShows([]string{"member1"}, cats, "spec.workers", "4"), existsIn("v1", "ConfigMap", ns, "pictures", "member1", "member2"),
	))
}

// refusesCustomizations checks that customizations are refused like interpreters.
func refusesCustomizations(t *testing.T, saying func(health string) string) {
	t.Helper()
	kubectlFails(t, saying("{"), "apply -f -", "spec.customizations.healthInterpretation.luaScript", "line 3, column")
	good := saying("true")
	secrets := strings.NewReplacer("apiVersion: brought.example/v1", "apiVersion: v1", "kind: Tutor", "kind: Secret").Replace(good)
	kubectlFails(t, secrets, "apply -f -", "spec.target.kind", "scripts see no Secrets")
	kubectlFails(t, strings.Replace(good, "kind: Tutor", "kind: '*'", 1), "apply -f -", "spec.target.kind")
	kubectlFails(t, strings.Replace(good, "statusReflection:", "statusRefraction:", 1), "apply --validate=false -f -", "unknown field", "statusRefraction")
}

// interpreterThere returns a check whether the hub has that ResourceInterpreter.
func interpreterThere(name string, want bool) func(ctx context.Context) error {
	return inCluster("hub", "atoll.dev/v1alpha1", "ResourceInterpreter", "", name, want)
}
