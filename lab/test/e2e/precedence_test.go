package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
)

// settingsObject is a ConfigMap without users.
const settingsObject = `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS, labels: {app: web}}
data: {colour: blue}
`

// selectingPolicy is a PropagationPolicy of ConfigMaps with label app=web on the clusters.
func selectingPolicy(name, more string, clusters ...string) string {
	return fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {app: web}}}]
  placement: {clusterAffinity: {clusterNames: [%s]}}
%s
`, name, strings.Join(clusters, ", "), more)
}

// colourIn returns a check of a ConfigMap's colour in a member.
func colourIn(cluster, ns, name, want string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := get(ctx, cluster, "v1", "ConfigMap", ns, name)
		if err != nil || o == nil {
			return fmt.Errorf("%s: no ConfigMap %s/%s (%v)", cluster, ns, name, err)
		}
		if got, _, _ := unstructured.NestedString(o.Object, "data", "colour"); got != want {
			return fmt.Errorf("%s: ConfigMap %s/%s is %s, want %s", cluster, ns, name, got, want)
		}
		return nil
	}
}

// An object without a policy is frozen: its last content stays, edits are not sent, and
// deleting it still removes it.
func TestObjectsWithoutAPolicyAreFrozen(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct{ begin, end func(t *testing.T, ns string) }{
		"policy-deleted": {
			func(t *testing.T, ns string) {
				apply(t, ns, settingsObject+"---"+selectingPolicy("web", "", "member1"))
			},
			func(t *testing.T, ns string) { remove(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web") },
		},
		"selector-edited": {
			func(t *testing.T, ns string) {
				apply(t, ns, settingsObject+"---"+selectingPolicy("web", "", "member1"))
			},
			func(t *testing.T, ns string) {
				patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"other"}]}}`)
			},
		},
		"label-removed": {
			func(t *testing.T, ns string) {
				apply(t, ns, settingsObject+"---"+selectingPolicy("web", "", "member1"))
			},
			func(t *testing.T, ns string) {
				patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"labels":{"app":null}}}`)
			},
		},
		"annotation-removed": {
			func(t *testing.T, ns string) {
				apply(t, ns, settingsObject)
				patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
			},
			func(t *testing.T, ns string) {
				patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
			},
		},
		"namespace-annotation-removed": {
			func(t *testing.T, ns string) {
				apply(t, ns, settingsObject)
				patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
			},
			func(t *testing.T, ns string) {
				patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := createNamespace(t, "ends-"+name)
			end.begin(t, ns)
			testwait.UntilNil(t, "delivery", colourIn("member1", ns, "web", "blue"))
			end.end(t, ns)
			testwait.UntilNil(t, "a Bundle says so", bundleSays(ns, "ConfigMap/web is Unclaimed"))
			patch(t, "v1", "ConfigMap", ns, "web", `{"data":{"colour":"red"}}`)
			// Something later that arrives shows that the edit has had its time.
			apply(t, ns, strings.Replace(settingsObject, "name: web", "name: later, annotations: {atoll.dev/clusters: member1}", 1))
			testwait.UntilNil(t, "a later object", colourIn("member1", ns, "later", "blue"))
			if err := colourIn("member1", ns, "web", "blue")(t.Context()); err != nil {
				t.Fatalf("the edit was sent: %s", err)
			}
			remove(t, "v1", "ConfigMap", ns, "web")
			testwait.UntilNil(t, "its deletion removes it", allChecks(
				inCluster("member1", "v1", "ConfigMap", ns, "web", false), inCluster("hub", "v1", "ConfigMap", ns, "web", false)))
		})
	}
}

// bundleSays returns a check that some Bundle of the namespace, or Event there, has the words.
func bundleSays(ns, words string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("atoll.dev/v1alpha1")
		list.SetKind("BundleList")
		if err := hubClient().List(ctx, &list); err != nil {
			return err
		}
		said := ""
		for _, b := range list.Items {
			if b.GetNamespace() != ns {
				continue
			}
			said += fmt.Sprintln(b.Object["status"])
		}
		if !strings.Contains(said, words) {
			return fmt.Errorf("no Bundle says %q:\n%s", words, said)
		}
		return nil
	}
}

func TestAnEmptyAnnotationRemoves(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "ends-empty")
	apply(t, ns, settingsObject+"---"+strings.Replace(settingsObject, "name: web", "name: other", 1))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1,member2"}}}`)
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":"member3"}}}`)
	testwait.UntilNil(t, "delivery", allChecks(existsIn("v1", "ConfigMap", ns, "web", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "other", "member3")))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":""}}}`)
	testwait.UntilNil(t, "an empty annotation takes it away", existsIn("v1", "ConfigMap", ns, "web"))
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":""}}}`)
	testwait.UntilNil(t, "so does the namespace's", existsIn("v1", "ConfigMap", ns, "other"))
	if err := allChecks(inCluster("hub", "v1", "ConfigMap", ns, "web", true), inCluster("hub", "v1", "ConfigMap", ns, "other", true))(t.Context()); err != nil {
		t.Fatal(err)
	}
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member2"}}}`)
	testwait.UntilNil(t, "it comes back", existsIn("v1", "ConfigMap", ns, "web", "member2"))
}

// The order of precedence, from the weakest; each new one takes the object over to its own
// cluster, except that policies leave each other their objects.
func TestOrderOfPrecedence(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "wins")
	cpp := func(name, more, cluster string) string {
		text := selectingPolicy(name, more, cluster)
		text = strings.Replace(text, "kind: PropagationPolicy", "kind: ClusterPropagationPolicy", 1)
		text = strings.Replace(text, ", namespace: $NS}", "}", 1)
		return strings.Replace(text, "kind: ConfigMap,", "kind: ConfigMap, namespace: $NS,", 1)
	}
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cppol", "wins-cluster", "--ignore-not-found")
	})
	at := func(m string) func(ctx context.Context) error { return existsIn("v1", "ConfigMap", ns, "web", m) }

	apply(t, ns, cpp("wins-cluster", "", "member1")+"---"+settingsObject)
	testwait.UntilNil(t, "a cluster policy places it", at("member1"))
	mustKubectl(t, "", "wait -n "+ns+" --for=condition=Ready bundle --all --timeout=60s")

	// A policy of the namespace has precedence, but content that an agent has reported as
	// placed stays.
	apply(t, ns, selectingPolicy("plain", "", "member2"))
	apply(t, ns, strings.Replace(settingsObject, "name: web", "name: web2", 1))
	testwait.UntilNil(t, "new objects go by the namespace's policy", existsIn("v1", "ConfigMap", ns, "web2", "member2"))
	if err := at("member1")(t.Context()); err != nil {
		t.Fatalf("a claim was not sticky: %s", err)
	}
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "plain", `{"spec":{"preemption":"Always"}}`)
	testwait.UntilNil(t, "preemption takes it over", at("member2"))

	// Among policies: priority, then specificity, then age.
	apply(t, ns, selectingPolicy("prior", "  priority: 5", "member3"))
	apply(t, ns, strings.Replace(selectingPolicy("named", "  priority: 5", "member1"), "labelSelector: {matchLabels: {app: web}}", "name: web3", 1))
	apply(t, ns, selectingPolicy("younger", "  priority: 5", "member2"))
	apply(t, ns, strings.Replace(settingsObject, "name: web", "name: web3", 1)+"---"+strings.Replace(settingsObject, "name: web", "name: web4", 1))
	testwait.UntilNil(t, "the most specific of the highest priority wins", existsIn("v1", "ConfigMap", ns, "web3", "member1"))
	testwait.UntilNil(t, "the oldest of equals wins", existsIn("v1", "ConfigMap", ns, "web4", "member3"))
	if err := at("member2")(t.Context()); err != nil {
		t.Fatalf("priority without preemption took it over: %s", err)
	}

	// Annotations are ahead of all policies, and the object's of the namespace's.
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":"member3"}}}`)
	testwait.UntilNil(t, "the namespace's annotation wins", allChecks(at("member3"), existsIn("v1", "ConfigMap", ns, "web3", "member3")))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
	testwait.UntilNil(t, "the object's annotation wins", allChecks(at("member1"), existsIn("v1", "ConfigMap", ns, "web3", "member3")))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
	testwait.UntilNil(t, "then the namespace's again", at("member3"))
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
	testwait.UntilNil(t, "then policies again", existsIn("v1", "ConfigMap", ns, "web3", "member1"))
}

// kubectlFor is kubectl with a context of its own, for cleaning up.
func kubectlFor(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if out := binaryFor(ctx, t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, args...)...); strings.Contains(out, "exit status") {
		t.Errorf("kubectl %v: %s", args, out)
	}
}

// A cluster whose labels or NoSchedule taints stop matching keeps its content with a
// reason, unless the policy has Remove. A NoExecute taint evicts after its toleration,
// replacements first.
func TestClustersThatStopFitting(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "fits-no-more")
	mark := func(m, json string) { patch(t, "atoll.dev/v1alpha1", "Cluster", "", m, json) }
	policy := func(name, more string) string {
		return fmt.Sprintf(`
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: %s, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: %s}]
  placement: {clusterAffinity: {labelSelector: {matchLabels: {unfit: "yes"}}}}
%s
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %s, namespace: $NS}
data: {colour: blue}
`, name, name, more, name)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, m := range memberNames {
			kubectlFor(ctx, t, "label", "cluster", m, "unfit-", "--overwrite")
		}
	})
	mark("member1", `{"metadata":{"labels":{"unfit":"yes"}}}`)
	mark("member2", `{"metadata":{"labels":{"unfit":"yes"}}}`)
	apply(t, ns, policy("keep", "")+"---"+policy("go", "  whenUnfit: Remove"))
	both := []string{"member1", "member2"}
	testwait.UntilNil(t, "delivery", allChecks(existsIn("v1", "ConfigMap", ns, "keep", both...), existsIn("v1", "ConfigMap", ns, "go", both...)))

	mark("member2", `{"metadata":{"labels":{"unfit":"no"}}}`)
	testwait.UntilNil(t, "Remove takes it away", existsIn("v1", "ConfigMap", ns, "go", "member1"))
	testwait.UntilNil(t, "Keep says so", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "keep", "-n", ns); !strings.Contains(out, "Unfit: labels do not match") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	patch(t, "v1", "ConfigMap", ns, "keep", `{"data":{"colour":"red"}}`)
	testwait.UntilNil(t, "what is kept is kept up to date", allChecks(colourIn("member1", ns, "keep", "red"), colourIn("member2", ns, "keep", "red")))
	mark("member2", `{"metadata":{"labels":{"unfit":"yes"}}}`)
	testwait.UntilNil(t, "it fits again", existsIn("v1", "ConfigMap", ns, "go", both...))
	testwait.UntilNil(t, "and does not show it any more", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns); strings.Contains(out, "Unfit") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}

// The taints are those of a cluster of the test's own, so that no other test's Bundle
// is repelled: evicted are rows of a fleet whose agents are away.
func TestTaintsRepelAndEvict(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "taints")
	registerFleet(t, ns, 2)
	apply(t, ns, settingsObject+`---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: web}]
  placement:
    clusterAffinity: {clusterNames: [member1, $NS-0, $NS-1]}
    clusterTolerations:
    - {key: fleet, operator: Exists}
    - {key: maintenance, operator: Exists, effect: NoExecute, tolerationSeconds: 4}
`)
	testwait.UntilNil(t, "delivery", allChecks(colourIn("member1", ns, "web", "blue"), wantPhases(t, ns, map[string]int{"Active": 3})))
	taint := func(m, more string) {
		patch(t, "atoll.dev/v1alpha1", "Cluster", "", m, `{"spec":{"taints":[{"key":"fleet","value":"`+ns+`","effect":"NoSchedule"}`+more+`]}}`)
	}
	row := func(m, words string) func(context.Context) error {
		return func(context.Context) error {
			out := runCLI(t, "get", "rows", "-n", ns)
			for line := range strings.Lines(out) {
				if strings.Contains(line, m) && strings.Contains(line, words) {
					return nil
				}
			}
			return fmt.Errorf("%s is not %q:\n%s", m, words, out)
		}
	}
	taint(ns+"-0", `,{"key":"full","effect":"NoSchedule"}`)
	testwait.UntilNil(t, "NoSchedule keeps what is there, and says so", row(ns+"-0", "Unfit: taint full:NoSchedule is not tolerated"))
	if err := row(ns+"-0", "Active")(t.Context()); err != nil {
		t.Error(err)
	}

	begun := time.Now()
	taint(ns+"-1", `,{"key":"maintenance","effect":"NoExecute"}`)
	o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", ns+"-1")
	if err != nil || o == nil || !strings.Contains(fmt.Sprint(o.Object["spec"]), "timeAdded") {
		t.Errorf("since when the taint is there is not noted: %v (%v)", o, err)
	}
	testwait.UntilNil(t, "NoExecute evicts", row(ns+"-1", "Removing"))
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("evicted after %s, tolerated for 4 s", took)
	}
	if err := row(ns+"-1", "Evicted")(t.Context()); err != nil {
		t.Error(err)
	}
	taint(ns+"-1", "")
	testwait.UntilNil(t, "without the taint it is back", row(ns+"-1", "Active"))
}

// Applications are deleted, or move away, and their namespace long after them: it goes
// everywhere, also from clusters that are away at the time.
func TestANamespaceGoesAfterItsContent(t *testing.T) {
	ns := createNamespace(t, "outlived")
	apply(t, ns, settingsObject+"---"+selectingPolicy("web", "", memberNames...))
	testwait.UntilNil(t, "delivery", existsIn("v1", "ConfigMap", ns, "web", memberNames...))
	placeOn(t, ns, "web", "member1", "member2")
	testwait.UntilNil(t, "it moves away from one", existsIn("v1", "ConfigMap", ns, "web", "member1", "member2"))
	remove(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web")
	remove(t, "v1", "ConfigMap", ns, "web")
	testwait.UntilNil(t, "it is deleted", allChecks(existsIn("v1", "ConfigMap", ns, "web"), inCluster("hub", "v1", "ConfigMap", ns, "web", false)))
	testwait.UntilNil(t, "the hub knows where the namespace stays", wantPhases(t, ns, map[string]int{"Vacant": 3}))
	if err := existsIn("v1", "Namespace", "", ns, memberNames...)(t.Context()); err != nil {
		t.Fatalf("the namespace was not deleted: %s", err)
	}
	cutLink(t, "member2")
	remove(t, "v1", "Namespace", "", ns)
	testwait.UntilNil(t, "the namespace goes", existsIn("v1", "Namespace", "", ns, "member2"))
	healLink(t, "member2")
	testwait.UntilNil(t, "it goes where it was away", existsIn("v1", "Namespace", "", ns))
	testwait.UntilNil(t, "nothing is left of it on the hub", func(context.Context) error {
		if out := runCLI(t, "get", "rows", "-n", ns); !strings.HasPrefix(out, "no rows") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}
