package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

const treatedObjects = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: treated, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: apps/v1, kind: Deployment}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules:
  - {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: only-created}], update: CreateOnly}
  - {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], ignoreFields: [/spec/replicas, /spec/template/spec/containers/0/image]}
  - {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: stays}], removal: Orphan}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: only-created, namespace: $NS, labels: {edition: "1"}}
data: {a: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: annotated, namespace: $NS, annotations: {atoll.dev/ignore-fields: /data/a}}
data: {a: "1", b: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: stays, namespace: $NS}
data: {a: "1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: $NS}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, edition: "1"}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: web, image: "registry.example/web:1"}]}
`

// Clusters create objects and own them, keep their own values of fields, and keep what is orphaned.
// Edits reach everything else, and all of it when the rules go.
func TestClustersTreatObjectsAsStated(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "treated")
	applied := func(text string) { mustKubectl(t, strings.ReplaceAll(text, "$NS", ns), "apply -f -") }
	applied(treatedObjects)
	in := []string{"member1"}
	shows := func(name, path, want string) func(context.Context) error {
		return fieldShows(in, objectName{"v1", "ConfigMap", ns, name}, path, want)
	}
	webShows := func(path, want string) func(context.Context) error {
		return fieldShows(in, objectName{"apps/v1", "Deployment", ns, "web"}, path, want)
	}
	// Other fields of the pods' template show which edition arrived.
	image := func(edition, want string) func(context.Context) error {
		containers := "[map[image:registry.example/web:" + want + " imagePullPolicy:IfNotPresent name:web resources:map[] terminationMessagePath:/dev/termination-log terminationMessagePolicy:File]]"
		return allChecks(webShows("spec.template.metadata.labels.edition", edition), webShows("spec.template.spec.containers", containers))
	}
	testwait.UntilNil(t, "all created", allChecks(shows("only-created", "data.a", "1"), shows("annotated", "data.a", "1"), shows("stays", "data.a", "1"), image("1", "1")))
	expectOutput(t, "explain", runCLI(t, "explain", "cm/only-created", "-n", ns), "update: CreateOnly")
	expectOutput(t, "explain", runCLI(t, "explain", "deployment/web", "-n", ns), "/spec/replicas", "ignoreFields")

	member := sharedWorld.lab.KubeconfigPath("member1")
	handedOver := func(apiVersion, kind, name string) func(context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, "member1", apiVersion, kind, ns, name)
			if err != nil || o == nil {
				return fmt.Errorf("no %s %s (%v)", kind, name, err)
			}
			for _, f := range o.GetManagedFields() {
				if f.Manager == atoll.HandoverManager {
					return nil
				}
			}
			return fmt.Errorf("all fields of %s %s are Atoll's", kind, name)
		}
	}
	testwait.UntilNil(t, "the member owns its fields", allChecks(handedOver("v1", "ConfigMap", "only-created"), handedOver("v1", "ConfigMap", "annotated"), handedOver("apps/v1", "Deployment", "web")))
	kubectlAt(t, member, "", "patch cm only-created -n "+ns+` --type=merge -p={"data":{"a":"member"}}`)
	kubectlAt(t, member, "", "patch cm annotated -n "+ns+` --type=merge -p={"data":{"a":"member"}}`)
	kubectlAt(t, member, "", "scale deployment web --replicas=3 -n "+ns)
	kubectlAt(t, member, "", "set image deployment/web web=registry.example/web:member -n "+ns)

	edited := strings.NewReplacer(`"1"`, `"2"`, "replicas: 1", "replicas: 2", "web:1", "web:2").Replace(treatedObjects)
	expectOutput(t, "the plan of the edit", runCLI(t, "plan", "-f", writeManifest(t, "edited.yaml", ns, edited)), "only in new objects")
	applied(edited)
	testwait.UntilNil(t, "edits of what is not left to the member", allChecks(shows("annotated", "data.b", "2"), shows("stays", "data.a", "2"), image("2", "member")))
	if err := allChecks(shows("only-created", "data.a", "member"), shows("only-created", "metadata.labels.edition", "1"), shows("annotated", "data.a", "member"), fieldIs("member1", ns, "web", "spec.replicas", 3))(t.Context()); err != nil {
		t.Errorf("an edit reached what the member owns: %v", err)
	}

	mustKubectl(t, "", "delete cm stays -n "+ns)
	testwait.UntilNil(t, "gone on the hub", inCluster("hub", "v1", "ConfigMap", ns, "stays", false))
	if err := shows("stays", "data.a", "2")(t.Context()); err != nil {
		t.Errorf("what is orphaned went: %v", err)
	}

	_, rules, _ := strings.Cut(edited, "  itemRules:")
	rules, _, _ = strings.Cut(rules, "---")
	plain := strings.NewReplacer("  itemRules:"+rules, "", ", annotations: {atoll.dev/ignore-fields: /data/a}", "").Replace(edited)
	expectOutput(t, "the plan without rules", runCLI(t, "plan", "-f", writeManifest(t, "plain.yaml", ns, plain)), "corrected from now on")
	applied(plain)
	testwait.UntilNil(t, "the template's values are back", allChecks(
		shows("only-created", "data.a", "2"), shows("only-created", "metadata.labels.edition", "2"), shows("annotated", "data.a", "2"),
		fieldIs("member1", ns, "web", "spec.replicas", 2), image("2", "2"),
	))
}

var badItemRules = []refusedObject{
	{"a rule without a field", withItemRule("{}"), "spec.itemRules[0]", "a rule sets at least one"},
	{"an unknown update", withItemRule("{update: Replace}"), "spec.itemRules[0].update", "Unsupported value"},
	{"an unknown drift", withItemRule("{drift: Ignore}"), "spec.itemRules[0].drift", "Unsupported value"},
	{"an unknown removal", withItemRule("{removal: Keep}"), "spec.itemRules[0].removal", "Unsupported value"},
	{"a path with dots", withItemRule("{ignoreFields: [spec.replicas]}"), "spec.itemRules[0].ignoreFields[0]", "is not a JSON Pointer"},
	{"the name for the member", withItemRule("{ignoreFields: [/metadata/name]}"), "spec.itemRules[0].ignoreFields[0]", "cannot belong to a member"},
	{"a rule for another scope", withItemRule("{removal: Delete, resourceSelectors: [{apiVersion: v1, kind: Namespace, name: a}]}"), "spec.itemRules[0].resourceSelectors[0].kind", "only a cluster policy"},
	{"a path of feedback to many values", withItemRule("{feedback: [{name: all, jsonPath: ..name, type: String}]}"), "spec.itemRules[0].feedback[0].jsonPath", "Recursive is not allowed"},
	{"a health rule that is no condition", withItemRule("{health: [{expression: '1 + 1'}]}"), "spec.itemRules[0].health[0].expression", "true or false is needed"},
	{"a completion with a typing error", withItemRule("{completion: {expression: objekt.status.done}}"), "spec.itemRules[0].completion.expression", "undeclared reference"},
	{"a time after what never finishes", withItemRule("{ttlSecondsAfterFinished: 60, resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]}"), "spec.itemRules[0].ttlSecondsAfterFinished", "never runs to completion"},
	{"feedback of Secrets", withItemRule("{feedback: [{name: a, jsonPath: .data.a, type: String}], resourceSelectors: [{apiVersion: v1, kind: Secret}]}"), "spec.itemRules[0].resourceSelectors[0]", "selects no Secrets"},
	{"an annotation without a meaning", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: refused, namespace: $NS, annotations: {atoll.dev/update: Never}}", "atoll.dev/update", "one of Apply, CreateOnly, ReadOnly"},
}

func withItemRule(rule string) string {
	return propagationPrefix + deploymentSelector + "itemRules: [" + rule + "]"
}

const existingObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: left, namespace: $NS}
data: {a: theirs}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: same, namespace: $NS}
data: {a: ours, b: theirs}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: taken, namespace: $NS}
data: {a: theirs}
`

const objectsThatExist = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: existing, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: apps/v1, kind: StatefulSet}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
  itemRules:
  - {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: taken}], conflictResolution: Overwrite}
  - {resourceSelectors: [{apiVersion: apps/v1, kind: StatefulSet}], update: Recreate}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: left, namespace: $NS}
data: {a: ours}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: same, namespace: $NS, annotations: {atoll.dev/conflict-resolution: AdoptIfSame}}
data: {a: ours}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: taken, namespace: $NS}
data: {a: ours}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: $NS}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: db, image: "registry.example/db:1"}]}
`

const otherServiceName = `
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: db, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: StatefulSet, name: db}]
  overrideRules: [{overriders: {plaintext: [{path: /spec/serviceName, operator: replace, value: other}]}}]
`

// Single objects that exist in a cluster are left alone, adopted or overwritten as their rule or annotation says.
// An override of a field that cannot change creates an object again whose rule states it.
func TestObjectsThatExistAreTreatedAsStated(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "existing")
	kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), "", "create namespace "+ns)
	kubectlAt(t, sharedWorld.lab.KubeconfigPath("member1"), strings.ReplaceAll(existingObjects, "$NS", ns), "apply -f -")
	names := []string{"left", "same", "taken"}
	uids := func() (all []string) {
		for _, name := range names {
			all = append(all, uidIn(t, "member1", "v1", "ConfigMap", ns, name))
		}
		return all
	}
	before := uids()
	mustKubectl(t, strings.ReplaceAll(objectsThatExist, "$NS", ns), "apply -f -")
	shows := func(name, path, want string) func(context.Context) error {
		return fieldShows([]string{"member1"}, objectName{"v1", "ConfigMap", ns, name}, path, want)
	}
	adopted := func(ctx context.Context) error {
		o, err := get(ctx, "member1", "v1", "ConfigMap", ns, "same")
		if err != nil || o == nil || o.GetLabels()["atoll.dev/adopted"] == "" {
			return fmt.Errorf("not adopted: %v (%w)", o, err)
		}
		return nil
	}
	db := func(path, want string) func(context.Context) error {
		return fieldShows([]string{"member1"}, objectName{"apps/v1", "StatefulSet", ns, "db"}, path, want)
	}
	testwait.UntilNil(t, "conflicts are resolved", allChecks(
		shows("left", "data.a", "theirs"), eventOf(ns, "ConfigMap", "left", "Conflict"),
		shows("same", "data", "map[a:ours b:theirs]"), adopted,
		shows("taken", "data.a", "ours"), db("spec.serviceName", "db"),
	))
	if after := uids(); !slices.Equal(before, after) {
		t.Errorf("UIDs %v, before %v", after, before)
	}
	expectOutput(t, "explain", runCLI(t, "explain", "cm/taken", "-n", ns), "conflictResolution: Overwrite")

	first := uidIn(t, "member1", "apps/v1", "StatefulSet", ns, "db")
	override := strings.ReplaceAll(otherServiceName, "$NS", ns)
	expectOutput(t, "the plan of the override", runCLI(t, "plan", "-f", writeManifest(t, "override.yaml", ns, otherServiceName)), "deleted and created again where the cluster refuses the edit")
	mustKubectl(t, override, "apply -f -")
	testwait.UntilNil(t, "created again", db("spec.serviceName", "other"))
	if again := uidIn(t, "member1", "apps/v1", "StatefulSet", ns, "db"); again == first {
		t.Error("a field that cannot change has changed")
	}
}
