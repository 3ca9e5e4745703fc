package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// The settings of one ConfigMap that a policy with a budget places.
const budgetedPolicy = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1, member2, member3]}}
  removal: {budget: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS}
data: {colour: blue}
`

// runCLI runs the CLI against the hub and gives all that it printed.
func runCLI(t *testing.T, args ...string) string {
	t.Helper()
	return binaryOutput(t, "", "atoll", append(args, "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub"))...)
}

// placeOn sets the cluster names of a policy's placement.
func placeOn(t *testing.T, ns, policy string, clusters ...string) {
	t.Helper()
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, policy,
		fmt.Sprintf(`{"spec":{"placement":{"clusterAffinity":{"clusterNames":["%s"]}}}}`, strings.Join(clusters, `","`)))
}

// existsIn returns a check of which members have an object.
func existsIn(apiVersion, kind, ns, name string, want ...string) func(ctx context.Context) error {
	var checks []func(ctx context.Context) error
	for _, m := range memberNames {
		checks = append(checks, inCluster(m, apiVersion, kind, ns, name, strings.Contains(strings.Join(want, " "), m)))
	}
	return allChecks(checks...)
}

// conditionText returns a condition of an object on the hub, as "status reason: message".
func conditionText(ctx context.Context, apiVersion, kind, ns, name, conditionType string) string {
	o, err := get(ctx, "hub", apiVersion, kind, ns, name)
	if err != nil || o == nil {
		return fmt.Sprintf("no %s %s/%s (%v)", kind, ns, name, err)
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		if m := c.(map[string]any); m["type"] == conditionType {
			return fmt.Sprintf("%v %v: %v", m["status"], m["reason"], m["message"])
		}
	}
	return "no condition " + conditionType
}

var planHash = regexp.MustCompile(`--plan ([0-9a-f]{16})`)

// heldPlan waits until the Bundle shows a removal that needs confirmation, with another
// plan than the given one, and returns its hash.
func heldPlan(t *testing.T, kind, ns, name, other string) (hash string) {
	t.Helper()
	testwait.UntilNil(t, "the removal is held", func(ctx context.Context) error {
		c := conditionText(ctx, "atoll.dev/v1alpha1", kind, ns, name, "RemovalHeld")
		found := planHash.FindStringSubmatch(c)
		if !strings.HasPrefix(c, "True") || found == nil || found[1] == other {
			return errors.New("the output is: " + c)
		}
		hash = found[1]
		return nil
	})
	return hash
}

func TestARemovalOverItsBudgetWaitsForItsPlan(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "budget")
	apply(t, ns, budgetedPolicy)
	has := func(clusters ...string) func(ctx context.Context) error {
		return existsIn("v1", "ConfigMap", ns, "web", clusters...)
	}
	testwait.UntilNil(t, "delivery", has("member1", "member2", "member3"))

	placeOn(t, ns, "web", "member1")
	first := heldPlan(t, "Bundle", ns, "web", "")
	testwait.UntilNil(t, "an Event on the template says so", func(ctx context.Context) error {
		var events unstructured.UnstructuredList
		events.SetAPIVersion("v1")
		events.SetKind("EventList")
		if err := hubClient().List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range events.Items {
			about, _, _ := unstructured.NestedString(e.Object, "involvedObject", "kind")
			if message, _, _ := unstructured.NestedString(e.Object, "message"); about == "ConfigMap" && strings.Contains(message, first) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events names plan %s", len(events.Items), first)
	})
	if err := has("member1", "member2", "member3")(t.Context()); err != nil {
		t.Fatalf("what is held is gone: %s", err)
	}

	// An edit that takes back part of it lets the rest pass.
	placeOn(t, ns, "web", "member1", "member2")
	testwait.UntilNil(t, "the rest is within the budget", has("member1", "member2"))

	// The next edit adds up with it, and has another plan.
	placeOn(t, ns, "web", "member1")
	second := heldPlan(t, "Bundle", ns, "web", first)
	out := runCLI(t, "confirm", "bundle/web", "-n", ns, "--plan", first)
	if !strings.Contains(out, "does not wait for plan "+first) || !strings.Contains(out, second) || !strings.Contains(out, "member2") {
		t.Fatalf("a stale plan is not refused with what waits now:\n%s", out)
	}
	if out := runCLI(t, "confirm", "bundle/web", "-n", ns); !strings.Contains(out, second) || !strings.Contains(out, "member2") {
		t.Fatalf("what waits is not shown:\n%s", out)
	}
	if err := has("member1", "member2")(t.Context()); err != nil {
		t.Fatalf("the stale plan released something: %s", err)
	}
	if out := runCLI(t, "confirm", "bundle/web", "-n", ns, "--plan", second); !strings.Contains(out, "is released") {
		t.Fatalf("confirm: %s", out)
	}
	testwait.UntilNil(t, "what was confirmed goes", has("member1"))
	testwait.UntilNil(t, "nothing waits any more", func(ctx context.Context) error {
		if c := conditionText(ctx, "atoll.dev/v1alpha1", "Bundle", ns, "web", "RemovalHeld"); !strings.HasPrefix(c, "False") {
			return errors.New("the output is: " + c)
		}
		return nil
	})
}

// registerFleet registers accepted Clusters whose agents are away, with a label of their own
// and a taint that keeps the Bundles of other tests out.
func registerFleet(t *testing.T, name string, n int) {
	t.Helper()
	for i := range n {
		apply(t, name, fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: %s-%d, labels: {fleet: %s}}
spec: {accepted: true, taints: [{key: fleet, value: %s, effect: NoSchedule}]}`, name, i, name, name))
	}
	t.Cleanup(func() {
		var c unstructured.Unstructured
		c.SetAPIVersion("atoll.dev/v1alpha1")
		c.SetKind("Cluster")
		if err := hubClient().DeleteAllOf(context.WithoutCancel(t.Context()), &c, client.MatchingLabels{"fleet": name}); err != nil {
			t.Error(err)
		}
	})
}

// toFleet places what a selector chooses on a fleet.
const toFleet = `
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {app: web}}}]
  placement:
    clusterAffinity: {labelSelector: {matchLabels: {fleet: $FLEET}}}
    clusterTolerations: [{key: fleet, operator: Exists}]
`

// rowPhases counts the rows of a Bundle by phase.
func rowPhases(t *testing.T, ns string) map[string]int {
	t.Helper()
	count := map[string]int{}
	out := runCLI(t, "get", "rows", "-n", ns)
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == ns {
			count[f[3]]++
		}
	}
	if len(count) == 0 {
		count["none: "+out] = 1
	}
	return count
}

func wantPhases(t *testing.T, ns string, want map[string]int) func(ctx context.Context) error {
	return func(context.Context) error {
		if got := rowPhases(t, ns); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("rows are %v, want %v", got, want)
		}
		return nil
	}
}

// With more than ten clusters, the default budget is a tenth of them.
func TestTheDefaultBudgetIsATenth(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "tenth")
	registerFleet(t, ns, 20)
	apply(t, ns, strings.ReplaceAll(toFleet, "$FLEET", ns)+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: $NS, labels: {app: web}}")
	testwait.UntilNil(t, "twenty rows", wantPhases(t, ns, map[string]int{"Active": 20}))
	exclude := func(n int) {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("%q", fmt.Sprint(ns, "-", i)))
		}
		patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"placement":{"clusterAffinity":{"exclude":[`+strings.Join(names, ",")+`]}}}}`)
	}
	exclude(2)
	testwait.UntilNil(t, "two of twenty pass", wantPhases(t, ns, map[string]int{"Active": 18, "Removing": 2}))
	exclude(3)
	heldPlan(t, "Bundle", ns, "web", "")
	testwait.UntilNil(t, "the third is held", wantPhases(t, ns, map[string]int{"Active": 17, "Held": 1, "Removing": 2}))
	exclude(2)
	testwait.UntilNil(t, "it is taken back", wantPhases(t, ns, map[string]int{"Active": 18, "Removing": 2}))
}

// Direct deletes hold above 1,000 rows in ten minutes, per namespace.
func TestMassDeletesAreHeldPerNamespace(t *testing.T) {
	t.Parallel()
	const clusters = 101
	ns, other := createNamespace(t, "mass"), createNamespace(t, "mass-other")
	registerFleet(t, "mass", clusters)
	text := strings.ReplaceAll(toFleet, "$FLEET", "mass")
	text = strings.ReplaceAll(text, "\nspec:\n", "\nspec:\n  groupBy: {type: Object}\n")
	for i := range 10 {
		text += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: web%d, namespace: $NS, labels: {app: web}}\n", i)
	}
	apply(t, ns, text)
	apply(t, other, text)
	for _, n := range []string{ns, other} {
		testwait.UntilNilWithin(t, 2*testwait.HangLimit, "all rows", wantPhases(t, n, map[string]int{"Active": 10 * clusters}))
	}
	for i := range 10 {
		remove(t, "v1", "ConfigMap", ns, fmt.Sprintf("web%d", i))
	}
	held := ""
	testwait.UntilNil(t, "the tenth is held", func(ctx context.Context) error {
		out := runCLI(t, "get", "bundles", "-n", ns)
		held = ""
		for line := range strings.Lines(out) {
			if strings.Contains(line, "confirmation of plan") {
				held += strings.Fields(line)[1] + " "
			}
		}
		if len(strings.Fields(held)) != 1 {
			return errors.New("held: " + held + "\n" + out)
		}
		return nil
	})
	remove(t, "v1", "ConfigMap", other, "web0")
	testwait.UntilNil(t, "another namespace's delete passes", func(ctx context.Context) error {
		out := runCLI(t, "get", "bundles", "-n", other)
		if strings.Contains(out, "confirmation of plan") {
			t.Fatalf("one tenant's deletes are held for another's:\n%s", out)
		}
		return inCluster("hub", "v1", "ConfigMap", other, "web0", false)(ctx)
	})
	name := strings.TrimSpace(held)
	plan := heldPlan(t, "Bundle", ns, name, "")
	if out := runCLI(t, "confirm", "bundle/"+name, "-n", ns, "--plan", plan); !strings.Contains(out, "is released") {
		t.Fatalf("confirm: %s", out)
	}
	testwait.UntilNil(t, "what was confirmed goes", func(ctx context.Context) error {
		var left unstructured.UnstructuredList
		left.SetAPIVersion("v1")
		left.SetKind("ConfigMapList")
		if err := hubClient().List(ctx, &left, client.InNamespace(ns), client.MatchingLabels{"app": "web"}); err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return fmt.Errorf("%d templates are left", len(left.Items))
		}
		return nil
	})
}

func TestProtectedObjectsAreNotDeleted(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "protected")
	apply(t, ns, strings.Replace(settingsObject, "labels: {app: web}", "labels: {app: web, atoll.dev/deletion-protected: 'true'}", 1)+"---"+selectingPolicy("web", "", "member1")+`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: keeps.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {kind: Keep, plural: keeps}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: owner, namespace: $NS}
`)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "crd", "keeps."+ns+".example.com", "--ignore-not-found")
	})
	testwait.UntilNil(t, "delivery", colourIn("member1", ns, "web", "blue"))
	testwait.UntilNil(t, "a protected custom resource", func(ctx context.Context) error {
		out := kubectlOutput(t, strings.ReplaceAll("apiVersion: $NS.example.com/v1\nkind: Keep\nmetadata: {name: one, namespace: $NS, labels: {atoll.dev/deletion-protected: 'true'}}", "$NS", ns), "apply", "-f", "-")
		if strings.Contains(out, "exit status") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	owner, err := get(t.Context(), "hub", "v1", "ConfigMap", ns, "owner")
	if err != nil || owner == nil {
		t.Fatal(err)
	}
	apply(t, ns, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata:
  name: owned
  namespace: $NS
  labels: {atoll.dev/deletion-protected: "true"}
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}]
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: unprotected
  namespace: $NS
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}]
`, owner.GetUID(), owner.GetUID()))
	refused := func(args ...string) {
		t.Helper()
		if out := kubectlOutput(t, "", append([]string{"delete", "--wait=false"}, args...)...); !strings.Contains(out, "atoll.dev/deletion-protected") {
			t.Errorf("delete %v is not refused: %s", args, out)
		}
	}
	refused("configmap", "web", "-n", ns)
	refused("configmap", "web", "-n", ns, "--force", "--grace-period=0")
	refused("namespace", ns)
	testwait.UntilNil(t, "the hub knows the new kind", func(ctx context.Context) error {
		if out := kubectlOutput(t, "", "delete", "crd", "keeps."+ns+".example.com", "--dry-run=server"); !strings.Contains(out, "atoll.dev/deletion-protected") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	refused("crd", "keeps."+ns+".example.com")
	var all unstructured.Unstructured
	all.SetAPIVersion("v1")
	all.SetKind("ConfigMap")
	if err := hubClient().DeleteAllOf(t.Context(), &all, client.InNamespace(ns), client.MatchingLabels{"app": "web"}); err == nil || !strings.Contains(err.Error(), "web is labelled atoll.dev/deletion-protected") {
		t.Errorf("deleting a collection is not refused: %v", err)
	}
	remove(t, "v1", "ConfigMap", ns, "owner")
	testwait.UntilNil(t, "what is not protected goes with its owner", inCluster("hub", "v1", "ConfigMap", ns, "unprotected", false))
	if err := inCluster("hub", "v1", "ConfigMap", ns, "owned", true)(t.Context()); err != nil {
		t.Error(err)
	}
	if err := colourIn("member1", ns, "web", "blue")(t.Context()); err != nil {
		t.Error(err)
	}
	for _, o := range []string{"configmap/web", "configmap/owned", "keep/one"} {
		kubectlOutput(t, "", "label", "-n", ns, o, "atoll.dev/deletion-protected-")
	}
	testwait.UntilNil(t, "without the label it goes", func(ctx context.Context) error {
		kubectlOutput(t, "", "delete", "namespace", ns, "--wait=false")
		return inCluster("member1", "v1", "ConfigMap", ns, "web", false)(ctx)
	})
}

func TestOrphansStay(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "orphans")
	apply(t, ns, settingsObject+"---"+strings.Replace(settingsObject, "name: web", "name: other", 1)+"---"+selectingPolicy("web", "  removal: {mode: Orphan}", "member1", "member2"))
	both := []string{"member1", "member2"}
	testwait.UntilNil(t, "delivery", allChecks(existsIn("v1", "ConfigMap", ns, "web", both...), existsIn("v1", "ConfigMap", ns, "other", both...)))
	released := func(m, name string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			o, err := get(ctx, m, "v1", "ConfigMap", ns, name)
			if err != nil || o == nil {
				t.Fatalf("%s lost the orphan %s (%v)", m, name, err)
			}
			for label := range o.GetLabels() {
				if strings.HasPrefix(label, "atoll.dev/") {
					return fmt.Errorf("%s: %s still has %s", m, name, label)
				}
			}
			return nil
		}
	}
	placeOn(t, ns, "web", "member1")
	testwait.UntilNil(t, "a cluster that is out keeps them", allChecks(released("member2", "web"), released("member2", "other")))
	remove(t, "v1", "ConfigMap", ns, "web")
	testwait.UntilNil(t, "a template that is deleted leaves its copy", allChecks(released("member1", "web"), inCluster("hub", "v1", "ConfigMap", ns, "web", false)))
	remove(t, "v1", "Namespace", "", ns)
	testwait.UntilNil(t, "so does a namespace", inCluster("hub", "v1", "Namespace", "", ns, false))
	testwait.UntilNil(t, "the rest is let go", released("member1", "other"))
}

// A template's deletion waits for reachable clusters only.
func TestDeletionWaitsForReachableClusters(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "waiting")
	registerFleet(t, ns, 2)
	apply(t, ns, settingsObject+`---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: web}]
  placement:
    clusterAffinity: {clusterNames: [member1, $NS-0, $NS-1]}
    clusterTolerations: [{key: fleet, operator: Exists}]
`)
	testwait.UntilNil(t, "delivery", colourIn("member1", ns, "web", "blue"))
	o, err := get(t.Context(), "member1", "v1", "ConfigMap", ns, "web")
	if err != nil || o == nil {
		t.Fatal(err)
	}
	o.SetFinalizers([]string{"example.com/hold"})
	if err := sharedWorld.clients["member1"].Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	remove(t, "v1", "ConfigMap", ns, "web")
	testwait.UntilNil(t, "the deletion says what holds it up", bundleSays(ns, "example.com/hold"))
	if err := inCluster("hub", "v1", "ConfigMap", ns, "web", true)(t.Context()); err != nil {
		t.Fatalf("the template did not wait for a reachable cluster: %s", err)
	}
	o, err = get(t.Context(), "member1", "v1", "ConfigMap", ns, "web")
	if err != nil || o == nil {
		t.Fatal(err)
	}
	o.SetFinalizers(nil)
	if err := sharedWorld.clients["member1"].Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	testwait.UntilNil(t, "then it goes, with clusters disconnected", inCluster("hub", "v1", "ConfigMap", ns, "web", false))
	testwait.UntilNil(t, "the rows of disconnected clusters wait for them", wantPhases(t, ns, map[string]int{"Active": 3}))

	out := runCLI(t, "remove", ns+"-0")
	if !strings.Contains(out, "is given up") {
		t.Fatal(out)
	}
	if out := runCLI(t, "remove", ns+"-1"); !strings.Contains(out, "is given up") {
		t.Fatal(out)
	}
	testwait.UntilNil(t, "nothing is waited for any more", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns); strings.Contains(out, ns+"-") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}

// A finalizer that was sent holds the object in members. Removing it from the template that is being
// deleted ends the deletion there and on the hub.
func TestRemovingAFinalizerOnTheHubEndsTheDeletion(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "finalized")
	apply(t, ns, `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS, finalizers: [example.com/hold], annotations: {atoll.dev/clusters: "member1,member2"}}
data: {colour: blue}
`)
	testwait.UntilNil(t, "delivery", allChecks(colourIn("member1", ns, "web", "blue"), colourIn("member2", ns, "web", "blue")))
	remove(t, "v1", "ConfigMap", ns, "web")
	testwait.UntilNil(t, "the deletion says what holds it up", bundleSays(ns, "example.com/hold"))
	if err := allChecks(inCluster("hub", "v1", "ConfigMap", ns, "web", true), existsIn("v1", "ConfigMap", ns, "web", "member1", "member2"))(t.Context()); err != nil {
		t.Fatalf("the finalizer holds nothing: %s", err)
	}
	patch(t, "v1", "ConfigMap", ns, "web", fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, atoll.Finalizer))
	testwait.UntilNil(t, "the object goes everywhere", allChecks(existsIn("v1", "ConfigMap", ns, "web"), inCluster("hub", "v1", "ConfigMap", ns, "web", false)))
}
