package offline

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/schedule"
)

const threeClusters = `
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: tokyo, labels: {env: prod}}
---
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: oslo, labels: {env: prod}}
spec: {accepted: true, taints: [{key: night, effect: NoSchedule}]}
---
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: lima}
spec: {accepted: false}
`

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 5, template: {spec: {containers: [{name: web, envFrom: [{secretRef: {name: key}}]}]}}}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: shop}
`

// objects of YAML documents.
func objects(t *testing.T, texts ...string) (out []*unstructured.Unstructured) {
	t.Helper()
	for _, doc := range strings.Split(strings.Join(texts, "\n---\n"), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
	return out
}

// placed says who gets what: "namespace/bundle: cluster=replicas …", and what is not
// placed.
func placed(t *testing.T, list []*unstructured.Unstructured) string {
	t.Helper()
	w, err := New(list, "default")
	if err != nil {
		return "refused: " + err.Error()
	}
	outcome, err := w.Decide(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range ResultOf(outcome).Bundles {
		s := b.Namespace + "/" + b.Name + "["
		for i, item := range b.Items {
			if i > 0 {
				s += " "
			}
			if s += item.Key; item.Dependency {
				s += "+"
			}
		}
		s += "]:"
		for _, c := range b.Clusters {
			if c.Outcome != schedule.Placed {
				continue
			}
			s += " " + c.Cluster
			for _, n := range c.Replicas {
				s += "=" + string(rune('0'+n))
			}
		}
		out = append(out, s)
	}
	for _, u := range outcome.Unplaced {
		out = append(out, "not "+u.Key.String()+" ("+u.Why+")")
	}
	return strings.Join(out, "; ")
}

func TestDecide(t *testing.T) {
	policy := func(spec string) string {
		return "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: web, namespace: shop}\nspec:\n  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]\n" + spec
	}
	const rest = "not /Secret/shop/key (no policy and no annotation selects it)"
	for name, tc := range map[string]struct {
		text string
		want string
	}{
		"a policy": {policy("  placement: {clusterAffinity: {clusterNames: [tokyo]}}"), "shop/web[apps/Deployment/shop/web]: tokyo; " + rest},
		"with what it needs": {policy("  propagateDeps: true"),
			"shop/web[/Secret/shop/key+ apps/Deployment/shop/web]: tokyo"},
		"a toleration": {policy("  placement: {clusterTolerations: [{key: night, operator: Exists}]}"), "shop/web[apps/Deployment/shop/web]: oslo tokyo; " + rest},
		"divided": {policy("  placement: {clusterTolerations: [{operator: Exists}], replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [oslo]}, weight: 3}, {targetCluster: {clusterNames: [tokyo]}, weight: 2}]}}}"),
			"shop/web[apps/Deployment/shop/web]: oslo=3 tokyo=2; " + rest},
		"nowhere to go": {policy("  placement: {clusterAffinity: {clusterNames: [lima]}}"), "shop/web[apps/Deployment/shop/web]:; " + rest},
		"a namespace's annotation": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {atoll.dev/clusters: 'tokyo'}}",
			"shop/shop-6942f3496a[/Secret/shop/key apps/Deployment/shop/web]: tokyo; not /Namespace//shop (no policy and no annotation selects it)"},
		"without a namespace": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {atoll.dev/clusters: '*'}}",
			"default/configmap-c-7f012519d4[/ConfigMap/default/c]: tokyo; " + rest + "; not apps/Deployment/shop/web (no policy and no annotation selects it)"},
		"an unknown field":       {policy("  placement: {clusterAffinty: {}}"), `refused: PropagationPolicy shop/web: strict decoding error: unknown field "spec.placement.clusterAffinty"`},
		"no valid value":         {policy("  whenUnfit: Maybe"), `refused: PropagationPolicy shop/web: spec.whenUnfit in body should be one of [Keep Remove]`},
		"a malformed annotation": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {atoll.dev/clusters: 'No!'}}", `refused: /ConfigMap/default/c: its annotation atoll.dev/clusters: "No!" is not the name of a cluster: `},
		"a Placement": {policy("  placementRef: {name: far}") + "\n---\napiVersion: atoll.dev/v1alpha1\nkind: Placement\nmetadata: {name: far, namespace: shop}\nspec: {clusterAffinity: {clusterNames: [tokyo]}}",
			"shop/web[apps/Deployment/shop/web]: tokyo; " + rest},
		"a Placement that is not there": {policy("  placementRef: {name: far}"), rest + "; not apps/Deployment/shop/web (the Placement far that its policy refers to is not among the files)"},
		"twice":                         {web, "refused: apps/Deployment/shop/web is there twice"},
		"what a hub alone knows":        {"apiVersion: atoll.dev/v1alpha1\nkind: Bundle\nmetadata: {name: b, namespace: shop}", "refused: atoll.dev/Bundle/shop/b: a hub writes every Bundle itself: leave it out"},
	} {
		t.Run(name, func(t *testing.T) {
			got := placed(t, objects(t, threeClusters, web, tc.text))
			if got != tc.want && !(strings.HasPrefix(tc.want, "refused: ") && strings.HasPrefix(got, tc.want)) {
				t.Errorf("comes to\n  %s\nwant\n  %s", got, tc.want)
			}
		})
	}
}

// The order of files and documents says nothing.
func TestOrderSaysNothing(t *testing.T) {
	const more = `
apiVersion: atoll.dev/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: all}
spec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: Namespace, name: shop}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: a, namespace: shop}
spec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: b, namespace: shop}
spec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`
	list := objects(t, threeClusters, web, more)
	want := placed(t, list)
	if !strings.HasPrefix(want, "/all-") || !strings.Contains(want, "shop/a[apps/Deployment/shop/web]: tokyo") {
		t.Fatal(want)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if got := placed(t, list); got != want {
			t.Fatalf("comes to\n  %s\nand in another order to\n  %s", want, got)
		}
	}
}

// Defaults are those of the CRDs, as the hub would fill them in.
func TestDefaults(t *testing.T) {
	w, err := New(objects(t, "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: web}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], removal: {}}"), "shop")
	if err != nil {
		t.Fatal(err)
	}
	s := w.propagation[0].Spec
	if w.propagation[0].Namespace != "shop" || s.WhenUnfit != "Keep" || s.Removal.Mode != "Delete" || s.Removal.Budget.String() != "10%" || s.GroupBy.Type != "Namespace" {
		t.Errorf("%+v", s)
	}
}

// A kind that files define is in a namespace or not as its definition says, and is
// followed by it.
func TestDefinitions(t *testing.T) {
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wands.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Wand, plural: wands}}
---
apiVersion: example.com/v1
kind: Wand
metadata: {name: w}
---
apiVersion: atoll.dev/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: wands}
spec: {resourceSelectors: [{apiVersion: example.com/v1, kind: Wand}], propagateDeps: true}
`
	got := placed(t, objects(t, threeClusters, crd))
	if !strings.Contains(got, "[apiextensions.k8s.io/CustomResourceDefinition//wands.example.com+ example.com/Wand//w]: tokyo") {
		t.Error(got)
	}
}

func TestAnObjectNeedsAName(t *testing.T) {
	if _, err := New([]*unstructured.Unstructured{{Object: map[string]any{"kind": "ConfigMap"}}}, "default"); err == nil {
		t.Error("taken without a name")
	}
}
