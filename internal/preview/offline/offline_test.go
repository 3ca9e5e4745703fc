package offline

import (
	"math/rand/v2"
	"regexp"
	"strconv"
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

const webYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {replicas: 5, template: {spec: {containers: [{name: web, envFrom: [{secretRef: {name: key}}]}]}}}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: shop}
`

// parseObjects of YAML documents.
func parseObjects(t *testing.T, texts ...string) (out []*unstructured.Unstructured) {
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

// describePlacement returns the assigned replicas: "namespace/bundle: cluster=replicas …", and
// the unplaced ones.
func describePlacement(t *testing.T, list []*unstructured.Unstructured) string {
	t.Helper()
	return describePlacementAt(t, list, time.Time{})
}

func describePlacementAt(t *testing.T, list []*unstructured.Unstructured, now time.Time) string {
	t.Helper()
	w, err := NewWorld(list, "default")
	if err != nil {
		return "refused: " + err.Error()
	}
	outcome, err := w.DecidePlacements(now)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, b := range NewResult(outcome).Bundles {
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
			if c.Outcome != schedule.OutcomePlaced {
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
			"shop/shop-6942f3496a[/Secret/shop/key apps/Deployment/shop/web]: tokyo"},
		"an empty namespace": {"apiVersion: v1\nkind: Namespace\nmetadata: {name: empty, annotations: {atoll.dev/clusters: 'tokyo'}}\n---\napiVersion: atoll.dev/v1alpha1\nkind: HubSettings\nmetadata: {name: hub}\nspec: {emptyNamespaces: Create}",
			"empty/empty-128536070a[]: tokyo; " + rest + "; not apps/Deployment/shop/web (no policy and no annotation selects it)"},
		"without a namespace": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {atoll.dev/clusters: '*'}}",
			"default/configmap-c-7f012519d4[/ConfigMap/default/c]: tokyo; " + rest + "; not apps/Deployment/shop/web (no policy and no annotation selects it)"},
		"a cluster that is full": {policy("  placement: {clusterTolerations: [{operator: Exists}]}") + "\n---\napiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: brim}\nspec: {capacity: {replicas: 4}}",
			"shop/web[apps/Deployment/shop/web]: oslo tokyo; " + rest},
		"Bundles share what a cluster states": {"apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: brim, labels: {only: brim}}\nspec: {capacity: {replicas: 7}}\n---\n" +
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: api, namespace: shop, annotations: {atoll.dev/clusters: brim}}\nspec: {replicas: 3, template: {spec: {containers: [{name: c}]}}}\n---\n" +
			policy("  placement: {clusterAffinity: {labelSelector: {matchLabels: {only: brim}}}, replicaScheduling: {replicaSchedulingType: Divided}}"),
			"shop/deployment-api-e514c32d27[apps/Deployment/shop/api]: brim; shop/web[apps/Deployment/shop/web]: brim=4; " + rest},
		"capacity of nothing": {"apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: brim}\nspec: {capacity: {resources: {gpu: 1}}}",
			`refused: Cluster brim: spec.capacity.resources[gpu]: Invalid value: "gpu": is no resource that pods request`},
		"an unknown field":     {policy("  placement: {clusterAffinty: {}}"), `refused: PropagationPolicy shop/web: strict decoding error: unknown field "spec.placement.clusterAffinty"`},
		"no valid value":       {policy("  whenUnfit: Maybe"), `refused: PropagationPolicy shop/web: spec.whenUnfit in body should be one of [Keep Remove]`},
		"scores of no choice":  {policy("  placement: {scores: [{name: Balance}]}"), "refused: PropagationPolicy shop/web: spec.placement.scores: Invalid value: 1: all clusters that fit are chosen"},
		"a closed window":      {policy("  rollout: {windows: [{type: Allow, schedule: '0 22 31 2 *', duration: 1h}]}"), "refused: PropagationPolicy shop/web: spec.rollout.windows[0].schedule: Invalid value: \"0 22 31 2 *\": never starts"},
		"no name of a Cluster": {policy("  suspension: {dispatchingOnClusters: {clusterNames: [Oslo]}}"), `refused: PropagationPolicy shop/web: spec.suspension.dispatchingOnClusters.clusterNames[0]: Invalid value: "Oslo": is not the name of a cluster`},
		"on itself":            {policy("  dependsOn: [{name: web}]"), "refused: PropagationPolicy shop/web: spec.dependsOn[0]: Forbidden: the policies would depend on each other: PropagationPolicy web on PropagationPolicy web"},
		"an unlisted property": {policy("  placement: {celSelector: \"'gpus' in cluster.properties\"}") + "\n---\napiVersion: atoll.dev/v1alpha1\nkind: HubSettings\nmetadata: {name: hub}\nspec: {placementProperties: [nodes]}",
			`refused: PropagationPolicy shop/web: spec.placement.celSelector: Invalid value: "gpus": is a property that the hub's admin did not list: placement is steered by nodes`},
		"a target by properties": {"apiVersion: atoll.dev/v1alpha1\nkind: OverridePolicy\nmetadata: {name: o, namespace: shop}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], overrideRules: [{targetCluster: {celSelector: \"'gpus' in cluster.properties\"}, overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}",
			`refused: OverridePolicy shop/o: spec.overrideRules[0].targetCluster.celSelector: Invalid value: "gpus": is a property that agents report`},
		"a malformed annotation": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, annotations: {atoll.dev/clusters: 'No!'}}", `refused: /ConfigMap/default/c: its annotation atoll.dev/clusters: "No!" is not the name of a cluster: `},
		"a Placement": {policy("  placementRef: {name: far}") + "\n---\napiVersion: atoll.dev/v1alpha1\nkind: Placement\nmetadata: {name: far, namespace: shop}\nspec: {clusterAffinity: {clusterNames: [tokyo]}}",
			"shop/web[apps/Deployment/shop/web]: tokyo; " + rest},
		"a Placement that is not there": {policy("  placementRef: {name: far}"), rest + "; not apps/Deployment/shop/web (the Placement far that its policy refers to is not among the files)"},
		"twice":                         {webYAML, "refused: apps/Deployment/shop/web is there twice"},
		"what a hub alone knows":        {"apiVersion: atoll.dev/v1alpha1\nkind: Bundle\nmetadata: {name: b, namespace: shop}", "refused: atoll.dev/Bundle/shop/b: a hub writes every Bundle itself: leave it out"},
	} {
		t.Run(name, func(t *testing.T) {
			got := describePlacement(t, parseObjects(t, threeClusters, webYAML, tc.text))
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
	list := parseObjects(t, threeClusters, webYAML, more)
	want := describePlacement(t, list)
	if !strings.HasPrefix(want, "/all-") || !strings.Contains(want, "shop/a[apps/Deployment/shop/web]: tokyo") {
		t.Fatal(want)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if got := describePlacement(t, list); got != want {
			t.Fatalf("comes to\n  %s\nand in another order to\n  %s", want, got)
		}
	}
}

// Defaults are those of the CRDs, as the hub would fill them in.
func TestDefaults(t *testing.T) {
	w, err := NewWorld(parseObjects(t, "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: web}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], removal: {}}"), "shop")
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
	got := describePlacement(t, parseObjects(t, threeClusters, crd))
	if !strings.Contains(got, "[apiextensions.k8s.io/CustomResourceDefinition//wands.example.com+ example.com/Wand//w]: tokyo") {
		t.Error(got)
	}
}

// Dependencies by labels of an interpreter go along as on a hub.
func TestDependenciesByLabels(t *testing.T) {
	const files = `
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: wands}
spec:
  target: {apiVersion: example.com/v1, kinds: [Wand]}
  dependencies: {cel: "[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'labelSelector': {'matchLabels': {'for': object.metadata.name}}}]"}
---
apiVersion: example.com/v1
kind: Wand
metadata: {name: w, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop, labels: {for: w}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: shop, labels: {for: x}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: till, labels: {for: w}}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: wands, namespace: shop}
spec: {resourceSelectors: [{apiVersion: example.com/v1, kind: Wand}], propagateDeps: true}
`
	if got := describePlacement(t, parseObjects(t, threeClusters, files)); !strings.Contains(got, "[/ConfigMap/shop/a+ example.com/Wand/shop/w]: tokyo") {
		t.Error(got)
	}
}

func TestAnObjectNeedsAName(t *testing.T) {
	if _, err := NewWorld([]*unstructured.Unstructured{{Object: map[string]any{"kind": "ConfigMap"}}}, "default"); err == nil {
		t.Error("taken without a name")
	}
}

const objectHeader = "apiVersion: atoll.dev/v1alpha1\nkind: "

// policyYAML places all ConfigMaps of a namespace.
func policyYAML(name, namespace, placement string) string {
	return objectHeader + "PropagationPolicy\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec:\n" +
		"  resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]\n  placement: {" + placement + "}"
}

func configMapYAML(namespace, name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + namespace + "}"
}

func clusterYAML(name, rest string) string {
	return objectHeader + "Cluster\nmetadata: {name: " + name + ", labels: {atoll.dev/set: " + name + ", env: prod}}\n" + rest
}

var hashSuffix = regexp.MustCompile(`-[0-9a-f]{10}\[`)

// reportingClusters clusters: room for two pods is left in tokyo and for three in oslo.
var reportingClusters = strings.Join([]string{
	clusterYAML("tokyo", "status: {properties: [{name: price, value: '7'}], resources: {room: {classes: ['1 cpu=2000m memory=4096Mi pods=2']}}}"),
	clusterYAML("oslo", "status: {properties: [{name: price, value: '3'}], resources: {room: {classes: ['1 cpu=2000m memory=4096Mi pods=3']}}}"),
}, "\n---\n")

// Sets of tenants, scores of clusters and their free capacity count as on a hub.
func TestTheRestOfAHub(t *testing.T) {
	const asia = objectHeader + "ClusterSet\nmetadata: {name: tokyo}"
	const prod = objectHeader + "ClusterSet\nmetadata: {name: prod}\nspec: {clusterSelector: {selectorType: LabelSelector, labelSelector: {matchLabels: {env: prod}}}}"
	bind := func(ns, set string) string {
		return objectHeader + "ClusterSetBinding\nmetadata: {name: " + set + ", namespace: " + ns + "}\nspec: {clusterSet: " + set + "}"
	}
	score := func(ns, name, cluster string, value int, until string) string {
		return objectHeader + "ClusterScore\nmetadata: {name: " + name + ", namespace: " + ns + "}\nspec: {clusterName: " + cluster + ", scores: [{name: cheap, value: " + strconv.Itoa(value) + "}]" + until + "}"
	}
	const cheapest = "maxClusters: 1, scores: [{name: ClusterScore, measure: cheap}]"
	for name, tc := range map[string]struct {
		text []string
		want string
	}{
		"a fresh hub's set":            {[]string{policyYAML("p", "shop", "")}, "shop/p[/ConfigMap/shop/c]: oslo tokyo"},
		"a binding":                    {[]string{policyYAML("p", "shop", ""), asia, bind("shop", "tokyo")}, "shop/p[/ConfigMap/shop/c]: tokyo"},
		"the binding of another":       {[]string{policyYAML("p", "shop", ""), asia, bind("blog", "tokyo")}, "shop/p[/ConfigMap/shop/c]: oslo tokyo"},
		"a binding to a set by labels": {[]string{policyYAML("p", "shop", ""), prod, bind("shop", "prod")}, "shop/p[/ConfigMap/shop/c]: oslo tokyo"},
		"a binding to no set":          {[]string{policyYAML("p", "shop", ""), bind("shop", "nosuch")}, "shop/p[/ConfigMap/shop/c]:"},
		"a strict hub":                 {[]string{policyYAML("p", "shop", ""), objectHeader + "ClusterSet\nmetadata: {name: default}\nspec: {clusterSelector: {selectorType: LabelSelector, labelSelector: {}}, unboundNamespaces: Deny}"}, "shop/p[/ConfigMap/shop/c]:"},
		"a placement's own sets":       {[]string{policyYAML("p", "shop", "clusterSets: [tokyo]"), asia}, "shop/p[/ConfigMap/shop/c]: tokyo"},
		"a cluster policy has none":    {[]string{strings.Replace(policyYAML("p", "shop", ""), "PropagationPolicy\nmetadata: {name: p, namespace: shop}", "ClusterPropagationPolicy\nmetadata: {name: p}", 1), asia, bind("shop", "tokyo")}, "shop/p-HASH[/ConfigMap/shop/c]: oslo tokyo"},
		"scores":                       {[]string{policyYAML("p", "shop", cheapest), score("shop", "a", "tokyo", 900, ""), score("shop", "b", "oslo", 100, "")}, "shop/p[/ConfigMap/shop/c]: tokyo"},
		"the hub's scores":             {[]string{policyYAML("p", "shop", cheapest), score("atoll-system", "a", "tokyo", 100, ""), score("atoll-system", "b", "oslo", 900, "")}, "shop/p[/ConfigMap/shop/c]: oslo"},
		"own scores before the hub's":  {[]string{policyYAML("p", "shop", cheapest), score("shop", "c", "tokyo", 950, ""), score("atoll-system", "b", "oslo", 900, "")}, "shop/p[/ConfigMap/shop/c]: tokyo"},
		"scores that are over":         {[]string{policyYAML("p", "shop", cheapest), score("shop", "a", "tokyo", 900, ", validUntil: '2000-01-01T00:00:00Z'"), score("shop", "b", "oslo", 100, "")}, "shop/p[/ConfigMap/shop/c]: oslo"},
		"a property that is listed":    {[]string{policyYAML("p", "shop", "celSelector: \"cluster.properties['price'] == '7'\""), objectHeader + "HubSettings\nmetadata: {name: hub}\nspec: {placementProperties: [price]}"}, "shop/p[/ConfigMap/shop/c]: tokyo"},
		"a property that is not":       {[]string{policyYAML("p", "shop", "celSelector: \"cluster.properties['price'] == '7'\"")}, "shop/p[/ConfigMap/shop/c]:"},
		"near another": {[]string{
			policyYAML("a", "shop", "maxClusters: 1, scores: [{name: Affinity, bundles: {names: [q]}}]"), configMapYAML("shop", "d"),
			strings.Replace(policyYAML("q", "shop", "clusterAffinity: {clusterNames: [tokyo]}"), "kind: ConfigMap", "kind: ConfigMap, name: d", 1) + "\n  priority: 5",
		}, "shop/a[/ConfigMap/shop/c]: tokyo; shop/q[/ConfigMap/shop/d]: tokyo"},
		"far from another": {[]string{
			policyYAML("a", "shop", "maxClusters: 1, scores: [{name: AntiAffinity, bundles: {names: [q]}}]"), configMapYAML("shop", "d"),
			strings.Replace(policyYAML("q", "shop", "clusterAffinity: {clusterNames: [tokyo]}"), "kind: ConfigMap", "kind: ConfigMap, name: d", 1) + "\n  priority: 5",
		}, "shop/a[/ConfigMap/shop/c]: oslo; shop/q[/ConfigMap/shop/d]: tokyo"},
	} {
		t.Run(name, func(t *testing.T) {
			got := describePlacementAt(t, parseObjects(t, append(tc.text, reportingClusters, configMapYAML("shop", "c"))...), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			if got = hashSuffix.ReplaceAllString(got, "-HASH["); got != tc.want {
				t.Errorf("comes to\n  %s\nwant\n  %s", got, tc.want)
			}
		})
	}
}

// Room that one Bundle takes is not the next one's.
func TestRoomIsTakenOnce(t *testing.T) {
	// Three have room in oslo and two in tokyo: a fifth replica of the two Bundles, which
	// need four and two, has none. The first by name is placed first.
	deployment := func(name string, replicas int) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + ", namespace: shop}\nspec: {replicas: " + strconv.Itoa(replicas) + ", template: {spec: {containers: [{name: c, resources: {requests: {cpu: 10m}}}]}}}\n---\n" +
			objectHeader + "PropagationPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: " + name + "}]\n" +
			"  placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}"
	}
	w, err := NewWorld(parseObjects(t, reportingClusters, deployment("a", 4), deployment("b", 2)), "default")
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.DecidePlacements(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	total := map[string]int64{}
	for _, b := range NewResult(out).Bundles {
		for _, c := range b.Clusters {
			for _, n := range c.Replicas {
				total[b.Name] += n
				total[c.Cluster] += n
			}
		}
		for _, n := range b.Unscheduled {
			total["none"] += n
		}
	}
	if total["a"] != 4 || total["b"] != 1 || total["oslo"] != 3 || total["tokyo"] != 2 || total["none"] != 1 {
		t.Errorf("%v", total)
	}
}

// Bundles are balanced over the files as a hub balances them: none finds the load that the
// ones before it made to be nothing.
func TestLoadCounts(t *testing.T) {
	text := []string{clusterYAML("tokyo", ""), clusterYAML("oslo", "")}
	for _, ns := range []string{"a", "b", "c", "d"} {
		text = append(text, configMapYAML(ns, "c"), policyYAML("p", ns, "maxClusters: 1"))
	}
	got := describePlacement(t, parseObjects(t, text...))
	if strings.Count(got, "tokyo") != 2 || strings.Count(got, "oslo") != 2 {
		t.Error(got)
	}
}

// A Placement publishes its choice, within the sets of its namespace; a policy without effect is
// reported.
func TestPlacementsAndIdlePolicies(t *testing.T) {
	const placement = objectHeader + "Placement\nmetadata: {name: near, namespace: shop}\nspec: {clusterAffinity: {labelSelector: {matchLabels: {env: prod}}}}"
	w, err := NewWorld(parseObjects(t, clusterYAML("tokyo", ""), clusterYAML("oslo", ""), placement, strings.NewReplacer("kind: Placement", "kind: ClusterPlacement", ", namespace: shop", "").Replace(placement),
		objectHeader+"ClusterSet\nmetadata: {name: oslo}", objectHeader+"ClusterSetBinding\nmetadata: {name: oslo, namespace: shop}\nspec: {clusterSet: oslo}",
		policyYAML("none", "shop", ""), objectHeader+"OverridePolicy\nmetadata: {name: none, namespace: shop}\nspec: {overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}"), "default")
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.DecidePlacements(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	r := NewResult(out)
	chosen := func(p PlacementResult) (names string) {
		for _, c := range p.Clusters {
			if c.Outcome == schedule.OutcomePlaced {
				names += " " + c.Cluster
			} else {
				names += " not " + c.Cluster + " (" + c.Filter + ")"
			}
		}
		return p.Namespace + ":" + names
	}
	if len(r.Placements) != 2 || chosen(r.Placements[0]) != ": oslo tokyo" || chosen(r.Placements[1]) != "shop: oslo not tokyo (NotInBoundSet)" {
		t.Errorf("%+v", r.Placements)
	}
	if len(r.Idle) != 2 || r.Idle[0].Kind != "OverridePolicy" || r.Idle[1].Kind != "PropagationPolicy" {
		t.Errorf("%+v", r.Idle)
	}
}

func TestAWorldNeedsClusters(t *testing.T) {
	w, err := NewWorld(parseObjects(t, configMapYAML("shop", "c"), policyYAML("p", "shop", "")), "default")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.DecidePlacements(time.Time{}); err == nil || !strings.Contains(err.Error(), "there is no Cluster among the files") {
		t.Error(err)
	}
}

// A field that the definition of a custom kind among the files does not have is refused, in whatever
// order the files come.
func TestUnknownFieldsOfCustomKinds(t *testing.T) {
	const definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\nspec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets}, versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}"
	policy := func(field string) string {
		return objectHeader + "OverridePolicy\nmetadata: {name: o, namespace: shop}\nspec: {resourceSelectors: [{apiVersion: example.com/v1, kind: Widget}], overrideRules: [{overriders: {plaintext: [{path: /spec/" + field + ", operator: add, value: 1}]}}]}"
	}
	if _, err := NewWorld(parseObjects(t, policy("siz"), definition), "default"); err == nil || !strings.Contains(err.Error(), "spec.overrideRules[0].overriders.plaintext[0].path: Invalid value: objects of the kind Widget.example.com have no field /spec/siz") {
		t.Errorf("an unknown field: %v", err)
	}
	for _, texts := range [][]string{{policy("size"), definition}, {policy("siz")}} {
		if _, err := NewWorld(parseObjects(t, texts...), "default"); err != nil {
			t.Errorf("a known field, or an unknown kind: %v", err)
		}
	}
}

// A refusal by a hub is a refusal with its path, for expressions with line and column.
func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"an expression":  {policyYAML("p", "shop", "celSelector: \"cluster.labels['env'] ==\\n  prod\""), "PropagationPolicy shop/p: spec.placement.celSelector: Invalid value: \"cluster.labels['env'] ==\\n  prod\": line 2, column 3: undeclared reference to 'prod'"},
		"of a group":     {policyYAML("p", "shop", "clusterAffinities: [{affinityName: a, celSelector: 'cluster.nam'}]"), "PropagationPolicy shop/p: spec.placement.clusterAffinities[0].celSelector: Invalid value: \"cluster.nam\": line 1, column "},
		"of a Placement": {objectHeader + "ClusterPlacement\nmetadata: {name: p}\nspec: {celSelector: '1'}", "ClusterPlacement p: spec.celSelector: Invalid value: \"1\": gives a int, and true or false is needed"},
		"a quantity":     {policyYAML("p", "shop", "maxClusters: 1, scores: [{name: ResourceAvailable, resource: cpu, full: NaN}]"), "PropagationPolicy shop/p: spec.placement.scores[0].full in body "},
		"a number":       {policyYAML("p", "shop", "maxClusters: many"), "PropagationPolicy shop/p: spec.placement.maxClusters in body must be of type integer: \"string\""},
		"a patch":        {objectHeader + "OverridePolicy\nmetadata: {name: o, namespace: shop}\nspec: {overrideRules: [{overriders: {plaintext: [{path: nowhere, operator: add, value: 1}]}}]}", "OverridePolicy shop/o: spec.overrideRules[0].overriders.plaintext[0]"},
		"a kind":         {objectHeader + "Placment\nmetadata: {name: p}", "atoll.dev/Placment//p: atoll.dev has no kind Placment"},
		"a set":          {objectHeader + "ClusterSet\nmetadata: {name: s}\nspec: {clusterSelector: {selectorType: Some}}", "ClusterSet s: spec.clusterSelector.selectorType in body should be one of [ExclusiveClusterSetLabel LabelSelector]"},
		"a rule":         {policyYAML("p", "shop", "spreadConstraints: [{spreadByField: zone, minGroups: 3, maxGroups: 2}]"), "PropagationPolicy shop/p: spec.placement.spreadConstraints[0]: Invalid value: minGroups is more than maxGroups"},
		"a rule on text": {objectHeader + "Cluster\nmetadata: {name: c}\nspec: {connection: {type: CheckIn, interval: 5s}}", "Cluster c: spec.connection.interval: Invalid value: interval must be a duration from 10s to 24h"},
		"a name":         {objectHeader + "HubSettings\nmetadata: {name: other}", "HubSettings other: there is one HubSettings"},
		"a score":        {objectHeader + "ClusterScore\nmetadata: {name: s, namespace: shop}\nspec: {clusterName: a, scores: [{name: m, value: 1001}]}", "ClusterScore shop/s: spec.scores[0].value in body should be less than or equal to 1000"},
		"a field": {objectHeader + "OverridePolicy\nmetadata: {name: o, namespace: shop}\nspec: {resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], overrideRules: [{overriders: {mergePatch: {spec: {resourcez: 1}}}}]}",
			"OverridePolicy shop/o: spec.overrideRules[0].overriders.mergePatch: Invalid value: objects of the kind Deployment.apps have no field /spec/resourcez"},
		"a field of an operation": {objectHeader + "OverridePolicy\nmetadata: {name: o, namespace: shop}\nspec: {overrideRules: [{overriders: {plaintext: [{path: /spec/a, operator: remove, vale: 1}]}}]}",
			"OverridePolicy shop/o: unknown field \"spec.overrideRules[0].overriders.plaintext[0].vale\""},
	} {
		_, err := NewWorld(parseObjects(t, tc.text), "default")
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v\nwant %s", name, err, tc.want)
		}
	}
}
