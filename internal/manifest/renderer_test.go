package manifest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/overrides"
)

// someOverriders: some are the same everywhere, some take values, some do not apply.
var someOverriders = []string{
	`{imageOverrider: [{component: Registry, operator: replace, value: m.io}]}`,
	`{envOverrider: [{operator: add, value: [{name: A, value: b}]}]}`,
	`{envOverrider: [{operator: add, value: [{name: DNS, valueFrom: {cel: "cluster.labels['dns']"}}]}]}`,
	`{labelsOverrider: [{operator: add, valueFrom: {at: {cel: "cluster.region"}}}, {operator: add, value: {by: two}}]}`,
	`{plaintext: [{path: /spec/template/spec/containers/0/env/0/value, operator: replace, value: c}]}`,
	`{plaintext: [{path: /spec/template/spec/containers/0/env, operator: remove}]}`,
	`{strategicMerge: {spec: {template: {spec: {containers: [{name: a, imagePullPolicy: Always}]}}}}}`,
	`{mergePatch: {metadata: {labels: {app: null, deep: "x"}}, spec: {paused: true}}}`,
	`{replicas: 7}`,
	`{notHere: true}`,
	`{notHere: false}`,
}

// someTargets are what rules select clusters by.
var someTargets = []*v1alpha1.ClusterTarget{
	{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}},
	{ClusterSets: []string{"edge", "none"}},
	{CELSelector: "cluster.region == 'eu'"},
	// Rules do not read what agents report.
	{CELSelector: "'gpus' in cluster.properties"},
}

func randomContent(t *testing.T, r *rand.Rand) *atoll.Content {
	const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":%q,"namespace":"shop"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":"nginx:1","name":"a"}]}}}}`
	c := &atoll.Content{}
	var keys []atoll.ItemKey
	for _, name := range []string{"a", "b", "c", "d"} {
		item := atoll.Item{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}, APIVersion: "apps/v1", Object: fmt.Appendf(nil, object, name)}
		item.Divided = r.IntN(3) == 0
		item.ReplicaOverrides = item.Divided && r.IntN(2) == 0
		if r.IntN(8) == 0 {
			item.State = atoll.ItemRemovalHeld
		}
		if r.IntN(12) == 0 {
			item.Object = []byte(`["no object"]`)
		}
		c.Items, keys = append(c.Items, item), append(keys, item.Key)
	}
	if r.IntN(3) == 0 {
		c.Items = append(c.Items, atoll.Item{
			Key:    atoll.ItemKey{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Namespace: "shop", Name: "h"},
			Object: []byte(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}}}`),
		})
	}
	for i := range r.IntN(6) {
		rule := atoll.Rule{Policy: "ClusterOverridePolicy/p", Index: i, Semantics: r.IntN(2), Atomic: r.IntN(6) == 0}
		if err := yaml.UnmarshalStrict([]byte(someOverriders[r.IntN(len(someOverriders))]), &rule.Overriders); err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if r.IntN(2) == 0 {
				rule.Items = append(rule.Items, k)
			}
		}
		if r.IntN(3) == 0 {
			rule.OnMissing = v1alpha1.OnMissingSkip
		}
		if r.IntN(2) == 0 {
			rule.Target = someTargets[r.IntN(len(someTargets))]
		}
		c.Rules = append(c.Rules, rule)
	}
	return c
}

func randomRow(r *rand.Rand, c *atoll.Content) (atoll.ClusterView, atoll.RowSpec) {
	view := atoll.ClusterView{Name: fmt.Sprint("c", r.IntN(9)), Region: []string{"eu", "us"}[r.IntN(2)], Labels: map[string]string{"env": []string{"prod", "test"}[r.IntN(2)]}}
	if r.IntN(4) > 0 {
		view.Labels["dns"] = fmt.Sprint("10.0.0.", r.IntN(3))
	}
	if r.IntN(2) == 0 {
		view.Sets = []string{"edge"}
	}
	if r.IntN(2) == 0 {
		view.Properties = map[string]string{"gpus": "2"}
	}
	row := atoll.RowSpec{Assigned: map[string]int64{}, OrdinalStarts: map[string]int64{}, ExcludedPending: map[string]int64{}}
	for i := range c.Items {
		if r.IntN(4) > 0 {
			row.Assigned[c.Items[i].Key.String()] = r.Int64N(9)
		}
		if r.IntN(3) == 0 {
			row.ExcludedPending[c.Items[i].Key.String()] = 1
		}
		if r.IntN(4) == 0 {
			row.OrdinalStarts[c.Items[i].Key.String()] = 10 * r.Int64N(3)
		}
	}
	return view, row
}

// Shared results equal what each cluster would get alone, with and without room for shared results.
func TestSharedResultsEqualSeparateOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for range 300 {
		c := randomContent(t, r)
		shared, cramped := NewRenderer(c), NewRenderer(c)
		cramped.freeBytes = 0
		for range 12 {
			view, row := randomRow(r, c)
			rules, variant := MatchRules(c, view)
			items, notes := renderAlone(c, RenderInputOf(row, rules, &view))
			handed := overriddenReplicasAlone(c, rules, &view)
			for _, renderer := range []*Renderer{shared, cramped} {
				gotItems, gotNotes, gotVariant := renderer.RenderRow(row, view)
				if gotVariant != variant || !reflect.DeepEqual(gotItems, items) || !reflect.DeepEqual(gotNotes, notes) {
					t.Errorf("variant %s, want %s\n%+v\n%+v\nwant\n%+v\n%+v", gotVariant, variant, gotItems, gotNotes, items, notes)
				}
				if got := renderer.overriddenReplicas(rules, &view); !reflect.DeepEqual(got, handed) {
					t.Errorf("handed %v, want %v", got, handed)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("content %+v", c)
		}
	}
}

// newUnsharedRuleSet is a plan in which nothing is shared: all rules are applied for the cluster.
func newUnsharedRuleSet(c *atoll.Content, rules []int) *ruleSet {
	p, _ := NewRenderer(c).newRuleSet(rules)
	for i := range p.items {
		p.items[i].sharedRules = 0
	}
	return p
}

func renderAlone(c *atoll.Content, in RenderInput) ([]atoll.RenderedItem, []overrides.Provenance) {
	p, r := newUnsharedRuleSet(c, in.Rules), NewRenderer(c)
	r.ruleSets[string(encodeRuleKey(in.Rules))] = p
	return r.RenderItems(in)
}

func overriddenReplicasAlone(c *atoll.Content, rules []int, view *atoll.ClusterView) map[string]int64 {
	p, r := newUnsharedRuleSet(c, rules), NewRenderer(c)
	r.ruleSets[string(encodeRuleKey(rules))] = p
	return r.overriddenReplicas(rules, view)
}

// Clusters of one set of rules share the bytes of what no value goes into, also where
// Values go into other items; and a row more costs only what is its own.
func TestEqualResultsShareBytes(t *testing.T) {
	c := &atoll.Content{}
	for i := range 50 {
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprint("c", i)}
		c.Items = append(c.Items, atoll.Item{Key: key, Object: fmt.Appendf(nil, `{"apiVersion":"v1","data":{"n":"%d"},"kind":"ConfigMap","metadata":{"name":"c%d","namespace":"shop"}}`, i, i)})
	}
	for i, text := range []string{`{labelsOverrider: [{operator: add, value: {a: b}}]}`, `{labelsOverrider: [{operator: add, valueFrom: {at: {cel: "cluster.name"}}}]}`} {
		rule := atoll.Rule{Policy: "ClusterOverridePolicy/p", Index: i, Semantics: atoll.CurrentRuleSemantics}
		if err := yaml.UnmarshalStrict([]byte(text), &rule.Overriders); err != nil {
			t.Fatal(err)
		}
		for j := range c.Items[:len(c.Items)-1] {
			if i == 0 || j == 0 {
				rule.Items = append(rule.Items, c.Items[j].Key)
			}
		}
		c.Rules = append(c.Rules, rule)
	}
	r := NewRenderer(c)
	first, _, _ := r.RenderRow(atoll.RowSpec{}, atoll.ClusterView{Name: "one"})
	second, _, _ := r.RenderRow(atoll.RowSpec{}, atoll.ClusterView{Name: "two"})
	for i := range first {
		same := unsafe.SliceData(first[i].Object) == unsafe.SliceData(second[i].Object)
		if own := i == 0; same == own || own == (first[i].Hash == second[i].Hash) {
			t.Errorf("item %d: shared %t: %s and %s", i, same, first[i].Object, second[i].Object)
		}
	}
	view := atoll.ClusterView{Name: "three"}
	rules, _ := r.MatchRules(&view)
	// One item of its own, and the list of all; 49 more would be some 2,000.
	if n := testing.AllocsPerRun(20, func() { r.RenderItems(RenderInput{Rules: rules, Cluster: &view}) }); n > 120 {
		t.Errorf("one more cluster costs %.0f allocations", n)
	}
}
