package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// lampDefinition is as a chart installs it in a member, with a conversion webhook that runs there.
const lampDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: lamps.pulled.example
  labels: {team: light, app.kubernetes.io/managed-by: Helm}
  annotations: {meta.helm.sh/release-name: lamps}
spec:
  group: pulled.example
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp, listKind: LampList, shortNames: [lp]}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: hook, namespace: lamps, path: /convert}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}}}}}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {watts: {type: integer}}}}}}}
`

const placedLamp = `
apiVersion: pulled.example/v1
kind: Lamp
metadata: {name: desk, namespace: pulled, annotations: {atoll.dev/clusters: "member2,member3"}}
spec: {watts: 5}
`

const policyForDefinition = `
apiVersion: atoll.dev/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: pulled2}
spec:
  resourceSelectors: [{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, name: $CRD}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
`

// TestADefinitionIsPulledFromAMember: a definition that one member has goes to the hub, and from there with
// a placed object to another member. The first member adopts the definition, keeps its conversion webhook,
// and keeps the definition when the objects leave. Rights are the user's own in the member.
func TestADefinitionIsPulledFromAMember(t *testing.T) {
	t.Parallel()
	const ns, crd = "pulled", "lamps.pulled.example"
	hub, member2, member3 := sharedWorld.lab.KubeconfigPath("hub"), sharedWorld.lab.KubeconfigPath("member2"), sharedWorld.lab.KubeconfigPath("member3")
	createNamespace(t, ns)
	for _, cluster := range append([]string{"hub"}, memberNames...) {
		kubectlAtEnd(t, cluster, "delete crd "+crd+" --ignore-not-found --wait=false")
	}
	kubectlAtEnd(t, "hub", "delete namespace "+ns+" --wait=false")
	// The member reached is the third, in which no other test gives administrators of the hub all rights.
	if out := kubectlAt(t, member3, lampDefinition, "apply --server-side --field-manager=helm -f -"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	expectOutput(t, "without rights in the cluster", runCLI(t, "crd", "pull", "member3", crd), "read the definitions of member3: ", "forbidden", "exit status 1")
	expectOutput(t, "an unknown cluster", runCLI(t, "crd", "pull", "mars", crd), `the hub has no cluster "mars"`, "exit status 1")
	kubectlAt(t, member3, "", "create clusterrole crd-pullers --verb=get,list --resource=customresourcedefinitions")
	kubectlAtEnd(t, "member3", "delete clusterrole crd-pullers")
	grantRole(t, "member3", "crd-pullers", "--clusterrole crd-pullers --user atoll-admin")

	expectOutput(t, "Atoll's own", runCLI(t, "crd", "pull", "member3", "agentpolicies.agent.atoll.dev", "--force"), "the hub brings this definition itself", "exit status 1")
	out := runCLI(t, "crd", "pull", "member3", "--all", "--group", "pulled.example", "--dry-run")
	expectOutput(t, "dry run", out, "lamps.pulled.example created: v1 (stored), v1beta1 (dry run)\n", "app.kubernetes.io/managed-by, meta.helm.sh/release-name", "service lamps/hook", "stays on the hub until an object of its kind is placed")
	if err := inCluster("hub", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", crd, false)(t.Context()); err != nil {
		t.Error(err)
	}
	expectOutput(t, "manifests", runCLI(t, "crd", "pull", "member3", "Lamp", "-o", "yaml"), "kind: CustomResourceDefinition", "atoll.dev/conflict-resolution: AdoptIfSame")
	if out = runCLI(t, "crd", "pull", "member3", "lp"); strings.Contains(out, "exit status") {
		t.Fatal(out)
	}
	expectOutput(t, "pull", out, "lamps.pulled.example created: v1 (stored), v1beta1\n")
	expectOutput(t, "again", runCLI(t, "crd", "pull", "member3", "lamps"), "lamps.pulled.example unchanged: v1 (stored), v1beta1\n")

	kubectlAt(t, hub, "", "wait crd/"+crd+" --for=condition=Established --timeout=60s")
	kubectlAt(t, hub, placedLamp, "apply -f -")
	testwait.UntilNil(t, "both clusters have the Lamp", allChecks(
		inCluster("member2", "pulled.example/v1", "Lamp", ns, "desk", true), inCluster("member3", "pulled.example/v1", "Lamp", ns, "desk", true),
	))
	fieldAt := func(kubeconfig, path string) string {
		return strings.TrimSpace(kubectlAt(t, kubeconfig, "", "get crd "+crd+" -o jsonpath={"+path+"}"))
	}
	const adopted = `.metadata.labels.atoll\.dev/adopted`
	testwait.UntilNil(t, "the first member adopts its definition", func(context.Context) error {
		if got := fieldAt(member3, adopted); got != "true" {
			return fmt.Errorf("adopted: %s; explained: %s", got, onHub(t, ns, "explain lamp/desk"))
		}
		return nil
	})
	for path, want := range map[string]string{
		".spec.conversion.strategy": "Webhook", ".spec.conversion.webhook.clientConfig.service.name": "hook",
		`.metadata.annotations.meta\.helm\.sh/release-name`: "lamps", ".metadata.labels.team": "light",
	} {
		if got := fieldAt(member3, path); got != want {
			t.Errorf("member3 has %s=%s, want %s", path, got, want)
		}
	}
	if got := fieldAt(member2, ".spec.conversion.strategy") + fieldAt(member2, adopted); got != "None" {
		t.Errorf("in member2 the definition converts by %s, want None", got)
	}
	testwait.UntilNil(t, "nothing is in conflict", func(context.Context) error {
		if out := onHub(t, ns, "get lamps"); !strings.Contains(out, "2/2") {
			return fmt.Errorf("the output is: %s", out)
		}
		return nil
	})
	kubectlAt(t, hub, "", "delete -n "+ns+" lamp desk")
	testwait.UntilNil(t, "the Lamp leaves", inCluster("member3", "pulled.example/v1", "Lamp", ns, "desk", false))
	if got := fieldAt(member3, ".spec.conversion.strategy"); got != "Webhook" {
		t.Errorf("after the objects left, the definition of member3 converts by %q", got)
	}
	expectPulledChanges(t, hub, member3)
}

// expectPulledChanges checks what becomes of edits in the member and on the hub, of a definition that
// nothing takes along: one that the member adopted would follow the hub.
func expectPulledChanges(t *testing.T, hub, member3 string) {
	t.Helper()
	const crd = "lamps.pulled2.example"
	for _, cluster := range []string{"hub", "member3"} {
		kubectlAtEnd(t, cluster, "delete crd "+crd+" --ignore-not-found --wait=false")
	}
	install := func(text string) {
		t.Helper()
		text = strings.NewReplacer("name: lamps.pulled.example", "name: "+crd, "group: pulled.example", "group: pulled2.example").Replace(text)
		if out := kubectlAt(t, member3, text, "apply --server-side --field-manager=helm -f -"); strings.Contains(out, "exit status") {
			t.Fatal(out)
		}
	}
	storeOnlyV1 := func(kubeconfig string) {
		t.Helper()
		if out := kubectlAt(t, kubeconfig, "", "patch crd "+crd+` --subresource=status --type=merge -p {"status":{"storedVersions":["v1"]}}`); strings.Contains(out, "exit status") {
			t.Fatal(out)
		}
	}
	install(strings.NewReplacer("storage: true", "storage: false", "storage: false", "storage: true").Replace(lampDefinition))
	policy := strings.ReplaceAll(policyForDefinition, "$CRD", crd)
	kubectlAtEnd(t, "hub", "delete clusterpropagationpolicy pulled2 --ignore-not-found")
	kubectlAt(t, hub, policy, "apply -f -")
	testwait.UntilNil(t, "a policy that places the definition is foreseen", func(context.Context) error {
		out := runCLI(t, "crd", "pull", "member3", crd, "--dry-run")
		if !strings.Contains(out, "It goes at once to member1 (ClusterPropagationPolicy pulled2).") {
			return fmt.Errorf("the output is: %s", out)
		}
		return nil
	})
	kubectlAt(t, hub, "", "delete clusterpropagationpolicy pulled2")
	expectOutput(t, "v1beta1 is stored", runCLI(t, "crd", "pull", "member3", crd), crd+" created: v1, v1beta1 (stored)")

	kubectlAt(t, hub, "", "label crd "+crd+" team=sales --overwrite --field-manager=sales")
	expectOutput(t, "a conflict", runCLI(t, "crd", "pull", "member3", crd), "others changed it on the hub at .metadata.labels.team (sales); --force takes these fields over", "exit status 1")
	expectOutput(t, "by force", runCLI(t, "crd", "pull", "member3", crd, "--force"), crd+" changed: its versions stay v1, v1beta1 (stored), and it differs at /metadata/labels/team")

	// A version in which the hub may have stored objects stays, until a person states that none is left.
	install(lampDefinition)
	storeOnlyV1(member3)
	install(lampDefinition[:strings.Index(lampDefinition, "  - {name: v1beta1")])
	expectOutput(t, "a removed version", runCLI(t, "crd", "pull", "member3", crd), "may have stored objects in a version", `"v1beta1"`, "kubectl patch crd "+crd, "exit status 1")
	expectOutput(t, "both versions stay", kubectlAt(t, hub, "", "get crd "+crd+" -o jsonpath={.spec.versions[*].name}"), "v1 v1beta1")
	storeOnlyV1(hub)
	expectOutput(t, "the version is removed", runCLI(t, "crd", "pull", "member3", crd), crd+" changed: v1beta1 removed")

	// A definition that another writer made is not taken over, and keeps its webhook when it is.
	kubectlAt(t, hub, "", "delete crd "+crd)
	other := strings.NewReplacer("name: lamps.pulled.example", "name: "+crd, "group: pulled.example", "group: pulled2.example").Replace(lampDefinition)
	kubectlAt(t, hub, other, "create --field-manager=sales -f -")
	expectOutput(t, "of another writer", runCLI(t, "crd", "pull", "member3", crd), "the hub has another definition of this name", "/spec/versions (sales)", "exit status 1")
	expectOutput(t, "taken over", runCLI(t, "crd", "pull", "member3", crd, "--force"), crd+" changed: v1beta1 removed")
	expectOutput(t, "its webhook", kubectlAt(t, hub, "", "get crd "+crd+" -o jsonpath={.metadata.annotations.atoll\\.dev/conversion}"), `"strategy":"Webhook"`)
	expectOutput(t, "pulled again", runCLI(t, "crd", "pull", "member3", crd), crd+" unchanged: v1")
}
