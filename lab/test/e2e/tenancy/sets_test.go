package tenancy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/testwait"
)

// Two sets with a cluster each, a namespace that is bound to one of them, one that is
// bound to none, and users with the rights that the names say.
const tenantObjects = `
{apiVersion: atoll.dev/v1alpha1, kind: ClusterSet, metadata: {name: asia}}
---
{apiVersion: atoll.dev/v1alpha1, kind: ClusterSet, metadata: {name: europe}}
---
{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: tokyo, labels: {atoll.dev/set: asia}}, spec: {accepted: true}}
---
{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: oslo, labels: {atoll.dev/set: europe}}, spec: {accepted: true}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: blog}}
---
{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding, metadata: {name: asia, namespace: shop}, spec: {clusterSet: asia}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-writes-sets}
rules:
- {apiGroups: [atoll.dev], resources: [clustersets, clustersetbindings, clusters], verbs: ["create", "get", "list", "update", "patch", "delete", "deletecollection", "accept"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-has-asia}
rules:
- {apiGroups: [atoll.dev], resources: [clustersets], resourceNames: [asia], verbs: [bind, manage]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-writes-sets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-writes-sets}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: noel}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: aiko}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-has-asia}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-has-asia}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: aiko}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-ursa}
rules:
- {apiGroups: [atoll.dev], resources: [clusters], verbs: [get, update, patch]}
- {apiGroups: [atoll.dev], resources: [clustersets], resourceNames: [asia], verbs: [manage]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-ursa}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-ursa}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ursa}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sam, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: sam}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sam, namespace: blog}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: sam}]
`

// waitSettled waits until RBAC and the tables know what apply wrote.
func waitSettled(t *testing.T) {
	t.Helper()
	testwait.UntilNil(t, "the hub knows the sets", func(ctx context.Context) error {
		return refusalDiffers(tryAs(t, "sam", "create", placingPolicy("shop", "{clusterAffinity: {clusterNames: [tokyo]}}")), "")
	})
	testwait.UntilNil(t, "the hub knows the bindings", func(ctx context.Context) error {
		return refusalDiffers(tryAs(t, "sam", "create", placingPolicy("shop", "{clusterAffinity: {clusterNames: [oslo]}}")), `no cluster "oslo"`)
	})
	testwait.UntilNil(t, "RBAC knows aiko", func(ctx context.Context) error {
		return refusalDiffers(tryAs(t, "aiko", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding, metadata: {name: asia, namespace: blog}, spec: {clusterSet: asia}}"), "")
	})
}

func refusalDiffers(message, want string) error {
	if want == "" && message == "" || want != "" && strings.Contains(message, want) {
		return nil
	}
	return fmt.Errorf("it says %q, not %q", message, want)
}

// placingPolicy returns a policy that places the namespace's ConfigMaps so.
func placingPolicy(ns, placement string) string {
	return fmt.Sprintf("{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: try, namespace: %s}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], placement: %s}}", ns, placement)
}

// makeStrict turns the hub strict until the test ends.
func makeStrict(t *testing.T) {
	t.Helper()
	turn := func(ctx context.Context, to v1alpha1.UnboundNamespaces) {
		set := &v1alpha1.ClusterSet{}
		set.Name = v1alpha1.DefaultClusterSet
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unboundNamespaces":%q}}`, to))
		if err := clientAs(t, "").Patch(ctx, set, patch); err != nil {
			t.Fatal(err)
		}
	}
	turn(t.Context(), v1alpha1.UnboundDeny)
	t.Cleanup(func() { turn(context.WithoutCancel(t.Context()), v1alpha1.UnboundAllow) })
}

// tryAs something dry as a user: create, patch (a merge patch), delete or
// deletecollection. It gives the refusal, or "" where there is none.
func tryAs(t *testing.T, user, verb, text string) string {
	t.Helper()
	c, o := clientAs(t, user), decodeObjects(t, text)[0]
	var err error
	switch verb {
	case "create":
		err = c.Create(t.Context(), o, client.DryRunAll)
	case "patch":
		var raw []byte
		if raw, err = o.MarshalJSON(); err == nil {
			to := &unstructured.Unstructured{}
			to.SetGroupVersionKind(o.GroupVersionKind())
			to.SetName(o.GetName())
			to.SetNamespace(o.GetNamespace())
			err = c.Patch(t.Context(), to, client.RawPatch(types.MergePatchType, raw), client.DryRunAll)
		}
	case "delete":
		err = c.Delete(t.Context(), o, client.DryRunAll)
	case "deletecollection":
		err = c.DeleteAllOf(t.Context(), o, client.InNamespace(o.GetNamespace()), client.DryRunAll)
	default:
		t.Fatalf("cannot try %s", verb)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// userAttempt is an attempt by a user; refused is the text of the refusal, "" if it is
// allowed.
type userAttempt struct{ name, user, verb, object, refused string }

func playAttempts(t *testing.T, list []userAttempt) {
	t.Helper()
	for _, a := range list {
		t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) {
			if err := refusalDiffers(tryAs(t, a.user, a.verb, a.object), a.refused); err != nil {
				t.Error(err)
			}
		})
	}
}

func set(name, spec string) string {
	return fmt.Sprintf("{apiVersion: atoll.dev/v1alpha1, kind: ClusterSet, metadata: {name: %s}, spec: %s}", name, spec)
}

func bindTo(ns, set string) string {
	return fmt.Sprintf("{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding, metadata: {name: %s, namespace: %s}, spec: {clusterSet: %s}}", set, ns, set)
}

func clusterOf(name, rest string) string {
	return fmt.Sprintf("{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: %s%s}", name, rest)
}

var writesOfSets = []userAttempt{
	{"a manager of all sets makes a set", "", "create", set("new", "{}"), ""},
	{"a set without the right", "noel", "create", set("new", "{}"), "the verb manage on all clustersets.atoll.dev"},
	{"a set with the right on one", "aiko", "patch", set("asia", "{clusterSelector: {selectorType: LabelSelector, labelSelector: {}}}"), "the verb manage on all"},
	{"a set opened to everybody", "aiko", "patch", set("asia", "{unboundNamespaces: Allow}"), "the verb manage on all"},
	{"the default set deleted", "", "delete", set("default", "{}"), "spec.unboundNamespaces to Deny"},
	{"all sets deleted", "", "deletecollection", set("any", "{}"), "spec.unboundNamespaces to Deny"},
	{"a selector without its type", "", "create", set("new", "{clusterSelector: {labelSelector: {}}}"), "labelSelector is for selectorType LabelSelector"},
	{"a type without its selector", "", "create", set("new", "{clusterSelector: {selectorType: LabelSelector}}"), "labelSelector is for selectorType LabelSelector"},
	{"a selector that contradicts itself", "", "create", set("new", "{clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: DoesNotExist}]}}}"), "spec.clusterSelector.labelSelector"},
	{"a malformed selector", "", "create", set("new", "{clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {'a b': c}}}}"), "spec.clusterSelector.labelSelector"},
	{"an unknown type", "", "create", set("new", "{clusterSelector: {selectorType: ByName}}"), "spec.clusterSelector.selectorType"},
	{"an unknown answer", "", "create", set("new", "{unboundNamespaces: Maybe}"), "spec.unboundNamespaces"},
	{"an unknown field", "", "create", set("new", "{managedBy: me}"), "spec.managedBy"},
	{"a name that is no label", "", "create", set(strings.Repeat("a", 64), "{}"), "at most 63"},
	{"a binding", "aiko", "create", bindTo("blog", "asia"), ""},
	{"a binding without the right", "noel", "create", bindTo("blog", "asia"), `the verb bind on clustersets.atoll.dev "asia"`},
	{"a binding to another set", "aiko", "create", bindTo("blog", "europe"), `the verb bind on clustersets.atoll.dev "europe"`},
	{"a binding to a set to come", "aiko", "create", bindTo("blog", "moon"), `the verb bind on clustersets.atoll.dev "moon"`},
	{"a binding by an editor of the namespace", "sam", "create", bindTo("blog", "asia"), "forbidden"},
	{"a binding under another name", "aiko", "create", strings.Replace(bindTo("blog", "europe"), "{name: europe", "{name: asia", 1), "must be that of its ClusterSet"},
	{"a binding turned to another set", "aiko", "patch", strings.Replace(bindTo("shop", "europe"), "{name: europe", "{name: asia", 1), "must be that of its ClusterSet"},
	{"a binding to nothing", "", "create", bindTo("blog", "a/b"), "ClusterSet"},
	{"a binding taken away, which opens the default set", "aiko", "delete", bindTo("shop", "asia"), `the verb bind on clustersets.atoll.dev "default"`},
	{"all bindings taken away", "aiko", "deletecollection", bindTo("shop", "asia"), `the verb bind on clustersets.atoll.dev "default"`},
	{"a binding removed without the right", "noel", "delete", bindTo("shop", "asia"), `the verb bind on clustersets.atoll.dev "asia"`},
	{"a binding removed with the right", "", "delete", bindTo("shop", "asia"), ""},
}

var writesOfClusters = []userAttempt{
	{"a taint on one's own", "aiko", "patch", clusterOf("tokyo", "}, spec: {taints: [{key: a, effect: NoSchedule}]}"), ""},
	{"a label on one's own", "aiko", "patch", clusterOf("tokyo", ", labels: {env: prod}}"), ""},
	{"one's own deleted", "aiko", "delete", clusterOf("tokyo", "}"), ""},
	{"one's own removed from the fleet", "aiko", "patch", clusterOf("tokyo", "}, spec: {removal: {mode: Clean}}"), ""},
	{"another's removed from the fleet", "aiko", "patch", clusterOf("oslo", "}, spec: {removal: {mode: Orphan}}"), "in no set that"},
	{"one's own removed without the right to delete it", "ursa", "patch", clusterOf("tokyo", "}, spec: {removal: {mode: Orphan}}"), "the verb delete on clusters.atoll.dev"},
	{"one's own given up without the right to delete it", "ursa", "patch", clusterOf("tokyo", "}, spec: {removal: {mode: Orphan, force: true}}"), "the verb delete on clusters.atoll.dev"},
	{"a label without the right to delete the cluster", "ursa", "patch", clusterOf("tokyo", ", labels: {env: prod}}"), ""},
	{"a removal without a mode", "aiko", "patch", clusterOf("tokyo", "}, spec: {removal: {force: true}}"), "spec.removal.mode"},
	{"another's taint", "aiko", "patch", clusterOf("oslo", "}, spec: {taints: [{key: a, effect: NoSchedule}]}"), "in no set that"},
	{"another's cluster deleted", "aiko", "delete", clusterOf("oslo", "}"), "in no set that"},
	{"all clusters deleted", "aiko", "deletecollection", clusterOf("any", "}"), "in no set that"},
	{"another's cluster taken", "aiko", "patch", clusterOf("oslo", ", labels: {atoll.dev/set: asia}}"), "in no set that"},
	{"one's own given away", "aiko", "patch", clusterOf("tokyo", ", labels: {atoll.dev/set: europe}}"), `brings the Cluster into set "europe"`},
	{"one's own set free", "aiko", "patch", clusterOf("tokyo", ", labels: {atoll.dev/set: null}}"), ""},
	{"one's own into a set to come", "aiko", "patch", clusterOf("tokyo", ", labels: {atoll.dev/set: moon}}"), `brings the Cluster into set "moon"`},
	{"a cluster in one's own set", "aiko", "create", clusterOf("kyoto", ", labels: {atoll.dev/set: asia}}"), `into set "default"`},
	{"a cluster with no right on any set", "noel", "patch", clusterOf("tokyo", ", labels: {env: prod}}"), "in no set that"},
	{"a label that brings in by a selector", "aiko", "patch", clusterOf("tokyo", ", labels: {edge: 'yes'}}"), `brings the Cluster into set "edge"`},
}

var reachAttempts = []userAttempt{
	{"what selectors choose is narrowed", "sam", "create", placingPolicy("shop", "{clusterAffinity: {labelSelector: {matchLabels: {atoll.dev/set: europe}}}}"), ""},
	{"everything is narrowed", "sam", "create", placingPolicy("shop", "{}"), ""},
	{"a cluster of the set", "sam", "create", placingPolicy("shop", "{clusterAffinity: {clusterNames: [tokyo]}}"), ""},
	{"a cluster outside", "sam", "create", placingPolicy("shop", "{clusterAffinity: {clusterNames: [tokyo, oslo]}}"), `spec.placement.clusterAffinity.clusterNames[1]: Forbidden: no cluster "oslo"`},
	{"a cluster that is not there sounds alike", "sam", "create", placingPolicy("shop", "{clusterAffinity: {clusterNames: [nosuch]}}"), `spec.placement.clusterAffinity.clusterNames[0]: Forbidden: no cluster "nosuch" is in a cluster set that namespace "shop" may place on (asia)`},
	{"a set of its own", "sam", "create", placingPolicy("shop", "{clusterSets: [asia]}"), ""},
	{"a set outside", "sam", "create", placingPolicy("shop", "{clusterSets: [asia, europe]}"), `spec.placement.clusterSets[1]: Forbidden: namespace "shop" may not place on cluster set "europe", but on asia`},
	{"a cluster outside that is excluded", "sam", "create", placingPolicy("shop", "{clusterAffinity: {exclude: [oslo]}}"), ""},
	{"a weight outside", "sam", "create", placingPolicy("shop", "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [oslo]}, weight: 1}]}}}"), "staticWeightList[0].targetCluster.clusterNames[0]"},
	{"an override outside", "sam", "create", "{apiVersion: atoll.dev/v1alpha1, kind: OverridePolicy, metadata: {name: try, namespace: shop}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], overrideRules: [{targetCluster: {clusterNames: [oslo]}, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}}", "spec.overrideRules[0].targetCluster.clusterNames[0]"},
	{"an annotation outside", "sam", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: shop, annotations: {atoll.dev/clusters: 'tokyo,oslo'}}}", `no cluster "oslo"`},
	{"an annotation inside", "sam", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: shop, annotations: {atoll.dev/clusters: tokyo}}}", ""},
	{"an annotation of all", "sam", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: shop, annotations: {atoll.dev/clusters: '*'}}}", ""},
	{"the namespace's annotation outside", "", "patch", "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {atoll.dev/clusters: oslo}}}", `no cluster "oslo"`},
	{"a namespace without bindings on a fresh hub", "sam", "create", placingPolicy("blog", "{clusterAffinity: {clusterNames: [oslo, nosuch]}}"), ""},
}

var reachesOfStrict = []userAttempt{
	{"a namespace without bindings", "sam", "create", placingPolicy("blog", "{}"), `spec.placement: Forbidden: namespace "blog" may place on no cluster: it has no ClusterSetBinding`},
	{"its annotations", "sam", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: blog, annotations: {atoll.dev/clusters: '*'}}}", `namespace "blog" may place on no cluster`},
	{"what places nowhere", "sam", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: blog, annotations: {atoll.dev/clusters: ''}}}", ""},
	{"a binding taken away, where no set is open", "aiko", "delete", bindTo("shop", "asia"), ""},
	{"a namespace with one", "sam", "create", placingPolicy("shop", "{clusterAffinity: {clusterNames: [tokyo]}}"), ""},
	{"a cluster policy is bound to no set", "", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: try}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: blog}], placement: {clusterAffinity: {clusterNames: [oslo]}}}}", ""},
}

func TestSets(t *testing.T) {
	apply(t, tenantObjects)
	apply(t, set("edge", "{clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {edge: 'yes'}}}}"))
	waitSettled(t)
	t.Run("sets", func(t *testing.T) { playAttempts(t, writesOfSets) })
	t.Run("numbers of clusters", func(t *testing.T) {
		for set, want := range map[string]string{"asia": "1 ClustersSelected", "edge": "0 NoClusterMatched"} {
			testwait.UntilNil(t, "the status of "+set, func(ctx context.Context) error {
				got := &v1alpha1.ClusterSet{}
				if err := clientAs(t, "").Get(ctx, types.NamespacedName{Name: set}, got); err != nil {
					return err
				}
				if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ClusterSetEmpty); c == nil || got.Status.Clusters == nil || fmt.Sprint(*got.Status.Clusters, " ", c.Reason) != want {
					return fmt.Errorf("%+v", got.Status)
				}
				return nil
			})
		}
	})
	t.Run("clusters", func(t *testing.T) { playAttempts(t, writesOfClusters) })
	t.Run("reach", func(t *testing.T) { playAttempts(t, reachAttempts) })
	t.Run("what was there and drifted", func(t *testing.T) {
		apply(t, clusterOf("osaka", ", labels: {atoll.dev/set: asia}}"))
		old := strings.Replace(placingPolicy("shop", "{clusterAffinity: {clusterNames: [osaka]}}"), "name: try", "name: old", 1)
		testwait.UntilNil(t, "osaka is in asia", func(context.Context) error { return refusalDiffers(tryAs(t, "sam", "create", old), "") })
		apply(t, old)
		apply(t, clusterOf("osaka", ", labels: {atoll.dev/set: europe}}"))
		testwait.UntilNil(t, "osaka is in europe", func(context.Context) error {
			return refusalDiffers(tryAs(t, "sam", "create", strings.Replace(old, "name: old", "name: another", 1)), `no cluster "osaka"`)
		})
		playAttempts(t, []userAttempt{
			{"an edit of something else", "sam", "patch", strings.Replace(old, "spec: {", "spec: {priority: 1, ", 1), ""},
			{"an edit that reaches for more", "sam", "patch", strings.Replace(old, "[osaka]", "[osaka, oslo]", 1), `clusterNames[1]: Forbidden: no cluster "oslo"`},
		})
	})
	t.Run("strict", func(t *testing.T) {
		makeStrict(t)
		testwait.UntilNil(t, "the switch is known", func(context.Context) error {
			return refusalDiffers(tryAs(t, "sam", "create", placingPolicy("blog", "{}")), "may place on no cluster")
		})
		playAttempts(t, reachesOfStrict)
	})
}
