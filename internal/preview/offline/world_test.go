package offline

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/schedule"
)

// clusterWide returns the text of a policy as one of the whole cluster.
func clusterWide(text string) string {
	text = strings.NewReplacer("kind: PropagationPolicy", "kind: ClusterPropagationPolicy", "kind: Placement", "kind: ClusterPlacement", "kind: OverridePolicy", "kind: ClusterOverridePolicy").Replace(text)
	return strings.Replace(strings.Replace(text, ", namespace: shop", "", 1), ", namespace: blog", "", 1)
}

func overrideYAML(name, namespace string) string {
	return objectHeader + "OverridePolicy\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}"
}

// decideFiles returns what files come to.
func decideFiles(t *testing.T, texts ...string) Outcome {
	t.Helper()
	w, err := NewWorld(parseObjects(t, texts...), "default")
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.DecidePlacements(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A policy of which nothing comes is listed by kind, namespace and name, with the reason. One that places or
// overrides something is not.
func TestPoliciesWithoutEffectAreListed(t *testing.T) {
	const places, overrides = "it places nothing: it selects none of the templates, or what else selects them wins", "it overrides nothing that is placed"
	out := decideFiles(t, clusterYAML("tokyo", ""), configMapYAML("shop", "c"),
		policyYAML("z", "blog", ""), policyYAML("busy", "shop", ""), strings.Replace(policyYAML("idle", "shop", ""), "kind: ConfigMap", "kind: Secret", 1), policyYAML("a", "blog", ""),
		clusterWide(strings.Replace(policyYAML("wide", "shop", ""), "kind: ConfigMap", "kind: Secret", 1)), clusterWide(policyYAML("busy", "shop", "")),
		overrideYAML("busy", "shop"), overrideYAML("o", "blog"), clusterWide(overrideYAML("busy", "shop")),
		clusterWide(strings.Replace(overrideYAML("none", "shop"), "spec: {", "spec: {resourceSelectors: [{apiVersion: v1, kind: Secret}], ", 1)))
	want := []IdlePolicy{
		{"ClusterOverridePolicy", "", "none", overrides}, {"ClusterPropagationPolicy", "", "busy", places}, {"ClusterPropagationPolicy", "", "wide", places},
		{"OverridePolicy", "blog", "o", overrides}, {"PropagationPolicy", "blog", "a", places}, {"PropagationPolicy", "blog", "z", places}, {"PropagationPolicy", "shop", "idle", places},
	}
	if !reflect.DeepEqual(out.Idle, want) {
		t.Errorf("%v\nwant %v", out.Idle, want)
	}
	var rules []string
	for _, r := range out.Bundles[0].Content.Rules {
		rules = append(rules, r.Policy)
	}
	if got := strings.Join(rules, ", "); got != "ClusterOverridePolicy/busy, OverridePolicy/shop/busy" {
		t.Errorf("the Bundle is overridden by %s", got)
	}
}

// Clusters and Placements come by namespace and name, in whatever order the files are.
func TestWhatAWorldHasIsSorted(t *testing.T) {
	placement := func(name, namespace string) string {
		return objectHeader + "Placement\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {}"
	}
	texts := []string{clusterYAML("b", ""), clusterYAML("c", ""), clusterYAML("a", ""), placement("b", "shop"), placement("a", "shop"), placement("c", "blog"), clusterWide(placement("x", "shop")), clusterWide(placement("w", "shop"))}
	w, err := NewWorld(parseObjects(t, texts...), "default")
	if err != nil {
		t.Fatal(err)
	}
	var clusters, placements []string
	for _, c := range w.Clusters() {
		clusters = append(clusters, c.Name)
	}
	out, err := w.DecidePlacements(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range NewResult(out).Placements {
		placements = append(placements, p.Namespace+"/"+p.Name)
	}
	if got := strings.Join(clusters, " ") + " " + strings.Join(placements, " "); got != "a b c /w /x blog/c shop/a shop/b" {
		t.Errorf("%s", got)
	}
}

// A template that nothing places has the reason that a hub gives.
func TestReasonsForWhichTemplatesAreUnplaced(t *testing.T) {
	annotated := func(name, value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: shop, annotations: {atoll.dev/clusters: '" + value + "'}}"
	}
	out := decideFiles(t, clusterYAML("tokyo", ""), annotated("nowhere", ""), configMapYAML("shop", "kube-root-ca.crt"), configMapYAML("blog", "free"),
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {atoll.dev/clusters: tokyo}}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: web}",
		objectHeader+"ClusterPropagationPolicy\nmetadata: {name: far}\nspec: {resourceSelectors: [{apiVersion: v1, kind: Secret}], placementRef: {name: far}}")
	want := []Unplaced{
		{atoll.ItemKey{Kind: "ConfigMap", Namespace: "blog", Name: "free"}, "no policy and no annotation selects it", atoll.ReasonNotSelected},
		{atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt"}, "the annotation of its namespace leaves it out: made by the hub in every namespace", atoll.ReasonMachineMade},
		{atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "nowhere"}, "its annotation places it nowhere", atoll.ReasonNowhere},
		{atoll.ItemKey{Kind: "Secret", Namespace: "web", Name: "s"}, "the ClusterPlacement far that what places it refers to is not among the files", atoll.ReasonPlacementMissing},
	}
	var got []Unplaced
	for _, u := range out.Unplaced {
		if u.Key.Kind != "Namespace" {
			got = append(got, u)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// A policy places by the Placement of its namespace, and a cluster policy by the ClusterPlacement.
func TestPoliciesReferToThePlacementsOfTheirNamespace(t *testing.T) {
	placement := func(namespace, cluster string) string {
		return objectHeader + "Placement\nmetadata: {name: near, namespace: " + namespace + "}\nspec: {clusterAffinity: {clusterNames: [" + cluster + "]}}"
	}
	refers := func(name, namespace, kind string) string {
		return objectHeader + "PropagationPolicy\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: {resourceSelectors: [{apiVersion: v1, kind: " + kind + "}], placementRef: {name: near}}"
	}
	out := decideFiles(t, clusterYAML("a", ""), clusterYAML("b", ""), clusterYAML("c", ""), placement("blog", "a"), placement("shop", "b"), clusterWide(placement("shop", "c")),
		refers("p", "shop", "ConfigMap"), clusterWide(refers("q", "shop", "Secret")), configMapYAML("shop", "c"), "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}")
	got := map[string]string{}
	for _, b := range NewResult(out).Bundles {
		for _, c := range b.Clusters {
			if c.Outcome == schedule.OutcomePlaced {
				got[b.Source.Name] += c.Cluster
			}
		}
	}
	if want := map[string]string{"p": "b", "q": "c"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, b := range out.Bundles {
		if b.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType != v1alpha1.Duplicated {
			t.Errorf("%s has a placement without defaults", b.ID)
		}
	}
}

// The result of a Bundle lists its items by key, those that cannot be sent with the problem, and the replicas
// that have no place.
func TestResultsOfBundles(t *testing.T) {
	web, key, big := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "key"}, atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "big"}
	b := Bundle{
		ID: policymatch.BundleID{Namespace: "shop", Name: "b"}, Source: v1alpha1.BundleSource{Kind: "PropagationPolicy", Name: "p"},
		Content:  &atoll.Content{Items: []atoll.Item{{Key: web}, {Key: key, Dependency: true}}},
		Decision: schedule.Decision{NoFit: true, UnmetSpread: "too few zones", Verdicts: []schedule.Verdict{{Cluster: "a", Outcome: schedule.OutcomeOut, Filter: "f", Reason: "why", Score: 3, Group: "g", OverflowStep: 2}}},
		Shares:   schedule.ReplicaAssignment{Shortages: []schedule.Shortage{{Key: web, Replicas: 5, Unplaced: 2}}},
		Why:      map[atoll.ItemKey]string{web: "by kind"},
		Problems: []bundlecontent.TemplateProblem{{Key: big, Err: errors.New("too large")}, {Key: web, Err: errors.New("stale")}},
	}
	want := BundleResult{
		Namespace: "shop", Name: "b", Source: SourceResult{"PropagationPolicy", "p"}, NoFit: true, Unmet: "too few zones",
		Items: []ItemResult{
			{Key: big.String(), Problem: "too large", ProblemReason: atoll.ReasonCannotSend}, {Key: key.String(), Dependency: true},
			{Key: web.String(), Why: "by kind", Problem: "stale", ProblemReason: atoll.ReasonCannotSend},
		},
		Clusters:    []ClusterResult{{Cluster: "a", Outcome: schedule.OutcomeOut, Filter: "f", ReasonCode: b.Decision.Verdicts[0].ReasonCode(), Reason: "why", Score: 3, Group: "g", OverflowStep: 2}},
		Unscheduled: map[string]int64{web.String(): 2},
	}
	if got := bundleResult(&b); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	empty := NewResult(Outcome{Unplaced: []Unplaced{{key, "x", atoll.ReasonNotSelected}}, Idle: []IdlePolicy{{"K", "n", "p", "y"}}})
	if !reflect.DeepEqual(empty, Result{Bundles: []BundleResult{}, Unplaced: []UnplacedResult{{key.String(), "x", atoll.ReasonNotSelected}}, Idle: []IdleResult{{"K", "n", "p", "y"}}}) {
		t.Errorf("%+v", empty)
	}
}

// Objects that a hub would not take are refused by name.
func TestObjectsThatAWorldRefuses(t *testing.T) {
	const interpreter = "ResourceInterpreter\nmetadata: {name: i}\nspec: {target: {apiVersion: example.com/v1, kinds: [Thing]}, health: {lua: \"if obj then\"}}"
	many := strings.Repeat("{targetCluster: {celSelector: \"cluster.labels.exists(k, k == 'aN')\"}, overriders: {notHere: true}}, ", 256)
	for i := range 256 {
		many = strings.Replace(many, "'aN'", fmt.Sprintf("'a%d'", i), 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"twice":                   {configMapYAML("shop", "c") + "\n---\n" + configMapYAML("shop", "c"), "/ConfigMap/shop/c is there twice"},
		"without a name":          {"apiVersion: v1\nkind: ConfigMap\nmetadata: {}", `an object has no kind or no name: ConfigMap ""`},
		"without a kind":          {"apiVersion: v1\nmetadata: {name: a}", `an object has no kind or no name:  "a"`},
		"two errors, sorted":      {policyYAML("p", "shop", "maxClusters: many") + "\n  whenUnfit: Maybe\n  preemption: Maybe", "PropagationPolicy shop/p: spec.placement.maxClusters in body must be of type integer: \"string\"\nspec.preemption in body should be one of [Always Never]\nspec.whenUnfit in body should be one of [Keep Remove]"},
		"what the hub writes":     {objectHeader + "Bundle\nmetadata: {name: b, namespace: shop}", "atoll.dev/Bundle/shop/b: a hub writes every Bundle itself: leave it out"},
		"what the engine has":     {"apiVersion: engine.atoll.dev/v1alpha1\nkind: Revision\nmetadata: {name: r}", "engine.atoll.dev/Revision//r: a hub writes every Revision itself: leave it out"},
		"a Cluster's spec":        {objectHeader + "Cluster\nmetadata: {name: c}\nspec: text", "atoll.dev/Cluster//c: spec: "},
		"a field of a rule":       {policyYAML("p", "shop", "") + "\n  itemRules: [{ignoreFields: [/spec/a, /status]}]", `PropagationPolicy shop/p: spec.itemRules[0].ignoreFields[1]: Invalid value: "/status"`},
		"of a cluster's policy":   {clusterWide(policyYAML("p", "shop", "celSelector: '1'")), "ClusterPropagationPolicy p: spec.placement.celSelector: "},
		"a script":                {objectHeader + interpreter, "ResourceInterpreter i: spec: Invalid value: spec.health.lua, line 1, column"},
		"costs of overrides":      {objectHeader + "OverridePolicy\nmetadata: {name: o, namespace: shop}\nspec: {overrideRules: [" + strings.TrimSuffix(many, ", ") + "]}", "OverridePolicy shop/o: spec.overrideRules: Forbidden: their expressions may cost "},
		"of a cluster's override": {clusterWide(strings.Replace(overrideYAML("o", "shop"), "{labelsOverrider: [{operator: add, value: {a: b}}]}", "{plaintext: [{path: a, operator: add, value: 1}]}", 1)), "ClusterOverridePolicy o: spec.overrideRules[0].overriders.plaintext[0]"},
	} {
		if _, err := NewWorld(parseObjects(t, c.text), "default"); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// An object without a namespace is in the default one, unless its kind has no namespaces.
func TestScopesOfKindsInFiles(t *testing.T) {
	definition := func(scope string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gifts.example.com}\nspec: {group: example.com, scope: " + scope + ", names: {plural: gifts, kind: Gift}}"
	}
	for name, c := range map[string]struct {
		kind, more string
		want       bool
	}{
		"a ConfigMap": {"v1/ConfigMap", "", true}, "a Namespace": {"v1/Namespace", "", false}, "a ClusterRole": {"rbac.authorization.k8s.io/v1/ClusterRole", "", false}, "a Role": {"rbac.authorization.k8s.io/v1/Role", "", true},
		"a webhook": {"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", "", false}, "a flow schema": {"flowcontrol.apiserver.k8s.io/v1/FlowSchema", "", false},
		"an unknown kind": {"example.com/v1/Gift", "", true}, "of a cluster": {"example.com/v1/Gift", definition("Cluster"), false}, "of namespaces": {"example.com/v1/Gift", definition("Namespaced"), true},
		"a policy": {"atoll.dev/v1alpha1/PropagationPolicy", "", true}, "a cluster policy": {"atoll.dev/v1alpha1/ClusterPropagationPolicy", "", false},
	} {
		w, err := NewWorld(parseObjects(t, c.more), "default")
		if err != nil {
			t.Fatal(err)
		}
		at := strings.LastIndex(c.kind, "/")
		if got := w.isNamespaced(parseObjects(t, "apiVersion: "+c.kind[:at]+"\nkind: "+c.kind[at+1:])[0].GroupVersionKind().GroupKind()); got != c.want {
			t.Errorf("%s: in namespaces %t", name, got)
		}
	}
}

// A Cluster among files is accepted unless it states otherwise, and its namespace's metadata travels.
func TestFilesHaveTheDefaultsOfAHub(t *testing.T) {
	w, err := NewWorld(parseObjects(t, objectHeader+"Cluster\nmetadata: {name: a}", objectHeader+"Cluster\nmetadata: {name: b}\nspec: {accepted: false}",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: pay, atoll.dev/x: z}}"), "default")
	if err != nil {
		t.Fatal(err)
	}
	if c := w.Clusters(); len(c) != 2 || !c[0].Spec.Accepted || c[1].Spec.Accepted {
		t.Errorf("%+v", c)
	}
	if got := w.namespaceMetadata("shop"); got == nil || !reflect.DeepEqual(got.Labels, map[string]string{"team": "pay"}) {
		t.Errorf("%+v", got)
	}
	if got := w.namespaceMetadata("blog"); got == nil || len(got.Labels)+len(got.Annotations) > 0 {
		t.Errorf("of a namespace that is not among the files: %+v", got)
	}
	if got := w.namespaceMetadata(""); got != nil {
		t.Errorf("without a namespace: %+v", got)
	}
}
