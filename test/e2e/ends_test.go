package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// settings is a ConfigMap without users.
const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS, labels: {app: web}}
data: {colour: blue}
`

// selecting is a PropagationPolicy of ConfigMaps with label app=web on the clusters.
func selecting(name, more string, clusters ...string) string {
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

// data gives a check of a ConfigMap's colour in a member.
func data(cluster, ns, name, want string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		o, err := get(ctx, cluster, "v1", "ConfigMap", ns, name)
		if err != nil || o == nil {
			return fmt.Sprintf("%s: no ConfigMap %s/%s (%v)", cluster, ns, name, err)
		}
		if got, _, _ := unstructured.NestedString(o.Object, "data", "colour"); got != want {
			return fmt.Sprintf("%s: ConfigMap %s/%s is %s, want %s", cluster, ns, name, got, want)
		}
		return ""
	}
}

// What no longer wants an object freezes it: its last content stays, edits are not
// sent, and deleting it still removes it.
func TestWhatNobodyPlacesAnyMoreIsFrozen(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct{ begin, end func(t *testing.T, ns string) }{
		"policy-deleted": {
			func(t *testing.T, ns string) { apply(t, ns, settings+"---"+selecting("web", "", "member1")) },
			func(t *testing.T, ns string) { remove(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web") },
		},
		"selector-edited": {
			func(t *testing.T, ns string) { apply(t, ns, settings+"---"+selecting("web", "", "member1")) },
			func(t *testing.T, ns string) {
				patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"other"}]}}`)
			},
		},
		"label-removed": {
			func(t *testing.T, ns string) { apply(t, ns, settings+"---"+selecting("web", "", "member1")) },
			func(t *testing.T, ns string) {
				patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"labels":{"app":null}}}`)
			},
		},
		"annotation-removed": {
			func(t *testing.T, ns string) {
				apply(t, ns, settings)
				patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
			},
			func(t *testing.T, ns string) {
				patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
			},
		},
		"namespace-annotation-removed": {
			func(t *testing.T, ns string) {
				apply(t, ns, settings)
				patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
			},
			func(t *testing.T, ns string) {
				patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := namespace(t, "ends-"+name)
			end.begin(t, ns)
			eventually(t, converge, "delivery", data("member1", ns, "web", "blue"))
			end.end(t, ns)
			eventually(t, converge, "a Bundle says so", bundleSays(ns, "ConfigMap/web is Unclaimed"))
			patch(t, "v1", "ConfigMap", ns, "web", `{"data":{"colour":"red"}}`)
			// Something later that arrives shows that the edit has had its time.
			apply(t, ns, strings.Replace(settings, "name: web", "name: later, annotations: {atoll.dev/clusters: member1}", 1))
			eventually(t, converge, "a later object", data("member1", ns, "later", "blue"))
			if why := data("member1", ns, "web", "blue")(t.Context()); why != "" {
				t.Fatalf("the edit was sent: %s", why)
			}
			remove(t, "v1", "ConfigMap", ns, "web")
			eventually(t, converge, "its deletion removes it", all(
				inCluster("member1", "v1", "ConfigMap", ns, "web", false), inCluster("hub", "v1", "ConfigMap", ns, "web", false)))
		})
	}
}

// bundleSays gives a check that some Bundle of the namespace, or Event there, has the words.
func bundleSays(ns, words string) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("atoll.dev/v1alpha1")
		list.SetKind("BundleList")
		if err := hub().List(ctx, &list); err != nil {
			return err.Error()
		}
		said := ""
		for _, b := range list.Items {
			if b.GetNamespace() != ns {
				continue
			}
			said += fmt.Sprintln(b.Object["status"])
		}
		if !strings.Contains(said, words) {
			return fmt.Sprintf("no Bundle says %q:\n%s", words, said)
		}
		return ""
	}
}

func TestAnEmptyAnnotationRemoves(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "ends-empty")
	apply(t, ns, settings+"---"+strings.Replace(settings, "name: web", "name: other", 1))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1,member2"}}}`)
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":"member3"}}}`)
	eventually(t, converge, "delivery", all(there("v1", "ConfigMap", ns, "web", "member1", "member2"), there("v1", "ConfigMap", ns, "other", "member3")))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":""}}}`)
	eventually(t, converge, "an empty annotation takes it away", there("v1", "ConfigMap", ns, "web"))
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":""}}}`)
	eventually(t, converge, "so does the namespace's", there("v1", "ConfigMap", ns, "other"))
	if why := all(inCluster("hub", "v1", "ConfigMap", ns, "web", true), inCluster("hub", "v1", "ConfigMap", ns, "other", true))(t.Context()); why != "" {
		t.Fatal(why)
	}
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member2"}}}`)
	eventually(t, converge, "it comes back", there("v1", "ConfigMap", ns, "web", "member2"))
}

// The order of who wins, from the weakest; each that comes takes the object over to
// its own cluster, except that policies leave each other what they hold.
func TestWhoWins(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "wins")
	cpp := func(name, more, cluster string) string {
		text := selecting(name, more, cluster)
		text = strings.Replace(text, "kind: PropagationPolicy", "kind: ClusterPropagationPolicy", 1)
		text = strings.Replace(text, ", namespace: $NS}", "}", 1)
		return strings.Replace(text, "kind: ConfigMap,", "kind: ConfigMap, namespace: $NS,", 1)
	}
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "cpp", "wins-cluster", "--ignore-not-found")
	})
	at := func(m string) func(ctx context.Context) string { return there("v1", "ConfigMap", ns, "web", m) }

	apply(t, ns, cpp("wins-cluster", "", "member1")+"---"+settings)
	eventually(t, converge, "a cluster policy places it", at("member1"))
	sh(t, "", "wait -n "+ns+" --for=condition=Ready bundle --all --timeout=60s")

	// A policy of the namespace is ahead of it, but what an agent has told to be placed stays.
	apply(t, ns, selecting("plain", "", "member2"))
	apply(t, ns, strings.Replace(settings, "name: web", "name: web2", 1))
	eventually(t, converge, "new objects go by the namespace's policy", there("v1", "ConfigMap", ns, "web2", "member2"))
	if why := at("member1")(t.Context()); why != "" {
		t.Fatalf("a claim was not sticky: %s", why)
	}
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "plain", `{"spec":{"preemption":"Always"}}`)
	eventually(t, converge, "preemption takes it over", at("member2"))

	// Among policies: priority, then specificity, then age.
	apply(t, ns, selecting("prior", "  priority: 5", "member3"))
	apply(t, ns, strings.Replace(selecting("named", "  priority: 5", "member1"), "labelSelector: {matchLabels: {app: web}}", "name: web3", 1))
	apply(t, ns, selecting("younger", "  priority: 5", "member2"))
	apply(t, ns, strings.Replace(settings, "name: web", "name: web3", 1)+"---"+strings.Replace(settings, "name: web", "name: web4", 1))
	eventually(t, converge, "the most specific of the highest priority wins", there("v1", "ConfigMap", ns, "web3", "member1"))
	eventually(t, converge, "the oldest of equals wins", there("v1", "ConfigMap", ns, "web4", "member3"))
	if why := at("member2")(t.Context()); why != "" {
		t.Fatalf("priority without preemption took it over: %s", why)
	}

	// Annotations are ahead of all policies, and the object's of the namespace's.
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":"member3"}}}`)
	eventually(t, converge, "the namespace's annotation wins", all(at("member3"), there("v1", "ConfigMap", ns, "web3", "member3")))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":"member1"}}}`)
	eventually(t, converge, "the object's annotation wins", all(at("member1"), there("v1", "ConfigMap", ns, "web3", "member3")))
	patch(t, "v1", "ConfigMap", ns, "web", `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
	eventually(t, converge, "then the namespace's again", at("member3"))
	patch(t, "v1", "Namespace", "", ns, `{"metadata":{"annotations":{"atoll.dev/clusters":null}}}`)
	eventually(t, converge, "then policies again", there("v1", "ConfigMap", ns, "web3", "member1"))
}

// kubectlFor is kubectl with a context of its own, for cleaning up.
func kubectlFor(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if out := binaryFor(ctx, t, "", "atoll-lab", append([]string{"kubectl", "--kubeconfig", world.lab.Kubeconfig("hub")}, args...)...); strings.Contains(out, "exit status") {
		t.Errorf("kubectl %v: %s", args, out)
	}
}

// A cluster whose labels or NoSchedule taints stop matching keeps what it has and says
// so, unless the policy says Remove; a NoExecute taint evicts after its toleration,
// replacements first.
func TestClustersThatStopFitting(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "fits-no-more")
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
		for _, m := range members {
			kubectlFor(ctx, t, "label", "cluster", m, "unfit-", "--overwrite")
		}
	})
	mark("member1", `{"metadata":{"labels":{"unfit":"yes"}}}`)
	mark("member2", `{"metadata":{"labels":{"unfit":"yes"}}}`)
	apply(t, ns, policy("keep", "")+"---"+policy("go", "  whenUnfit: Remove"))
	both := []string{"member1", "member2"}
	eventually(t, converge, "delivery", all(there("v1", "ConfigMap", ns, "keep", both...), there("v1", "ConfigMap", ns, "go", both...)))

	mark("member2", `{"metadata":{"labels":{"unfit":"no"}}}`)
	eventually(t, converge, "Remove takes it away", there("v1", "ConfigMap", ns, "go", "member1"))
	eventually(t, converge, "Keep says so", func(context.Context) string {
		if out := cli(t, "get", "rows", "keep", "-n", ns); !strings.Contains(out, "Unfit: labels do not match") {
			return "the output is: " + out
		}
		return ""
	})
	patch(t, "v1", "ConfigMap", ns, "keep", `{"data":{"colour":"red"}}`)
	eventually(t, converge, "what is kept is kept up to date", all(data("member1", ns, "keep", "red"), data("member2", ns, "keep", "red")))
	mark("member2", `{"metadata":{"labels":{"unfit":"yes"}}}`)
	eventually(t, converge, "it fits again", there("v1", "ConfigMap", ns, "go", both...))
	eventually(t, converge, "and does not say so any more", func(context.Context) string {
		if out := cli(t, "get", "rows", "-n", ns); strings.Contains(out, "Unfit") {
			return "the output is: " + out
		}
		return ""
	})
}

// The taints are those of a cluster of the test's own, so that no other test's Bundle
// is repelled: evicted are rows of a fleet whose agents are away.
func TestTaintsRepelAndEvict(t *testing.T) {
	t.Parallel()
	ns := namespace(t, "taints")
	fleet(t, ns, 2)
	apply(t, ns, settings+`---
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
	eventually(t, converge, "delivery", all(data("member1", ns, "web", "blue"), wantPhases(t, ns, map[string]int{"Active": 3})))
	taint := func(m, more string) {
		patch(t, "atoll.dev/v1alpha1", "Cluster", "", m, `{"spec":{"taints":[{"key":"fleet","value":"`+ns+`","effect":"NoSchedule"}`+more+`]}}`)
	}
	row := func(m, words string) func(context.Context) string {
		return func(context.Context) string {
			out := cli(t, "get", "rows", "-n", ns)
			for line := range strings.Lines(out) {
				if strings.Contains(line, m) && strings.Contains(line, words) {
					return ""
				}
			}
			return fmt.Sprintf("%s is not %q:\n%s", m, words, out)
		}
	}
	taint(ns+"-0", `,{"key":"full","effect":"NoSchedule"}`)
	eventually(t, converge, "NoSchedule keeps what is there, and says so", row(ns+"-0", "Unfit: taint full:NoSchedule is not tolerated"))
	if why := row(ns+"-0", "Active")(t.Context()); why != "" {
		t.Error(why)
	}

	begun := time.Now()
	taint(ns+"-1", `,{"key":"maintenance","effect":"NoExecute"}`)
	o, err := get(t.Context(), "hub", "atoll.dev/v1alpha1", "Cluster", "", ns+"-1")
	if err != nil || o == nil || !strings.Contains(fmt.Sprint(o.Object["spec"]), "timeAdded") {
		t.Errorf("since when the taint is there is not noted: %v (%v)", o, err)
	}
	eventually(t, converge, "NoExecute evicts", row(ns+"-1", "Removing"))
	if took := time.Since(begun); took < 3*time.Second {
		t.Errorf("evicted after %s, tolerated for 4 s", took)
	}
	if why := row(ns+"-1", "Evicted")(t.Context()); why != "" {
		t.Error(why)
	}
	taint(ns+"-1", "")
	eventually(t, converge, "without the taint it is back", row(ns+"-1", "Active"))
}

// Applications are deleted, or move away, and their namespace long after them: it goes
// everywhere, also from clusters that are away at the time.
func TestANamespaceGoesAfterWhatWasInIt(t *testing.T) {
	ns := namespace(t, "outlived")
	apply(t, ns, settings+"---"+selecting("web", "", members...))
	eventually(t, converge, "delivery", there("v1", "ConfigMap", ns, "web", members...))
	place(t, ns, "web", "member1", "member2")
	eventually(t, converge, "it moves away from one", there("v1", "ConfigMap", ns, "web", "member1", "member2"))
	remove(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web")
	remove(t, "v1", "ConfigMap", ns, "web")
	eventually(t, converge, "it is deleted", all(there("v1", "ConfigMap", ns, "web"), inCluster("hub", "v1", "ConfigMap", ns, "web", false)))
	eventually(t, converge, "the hub knows where the namespace stays", wantPhases(t, ns, map[string]int{"Vacant": 3}))
	if why := there("v1", "Namespace", "", ns, members...)(t.Context()); why != "" {
		t.Fatalf("nobody deleted the namespace: %s", why)
	}
	cut(t, "member2")
	remove(t, "v1", "Namespace", "", ns)
	eventually(t, converge, "the namespace goes", there("v1", "Namespace", "", ns, "member2"))
	heal(t, "member2")
	eventually(t, converge, "it goes where it was away", there("v1", "Namespace", "", ns))
	eventually(t, converge, "nothing is left of it on the hub", func(context.Context) string {
		if out := cli(t, "get", "rows", "-n", ns); !strings.HasPrefix(out, "no rows") {
			return "the output is: " + out
		}
		return ""
	})
}
