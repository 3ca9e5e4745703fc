package overrides_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
)

// Each leaf of a rule's targetCluster lets cluster a pass and refuses b, which differs
// from it in everything.
func TestTargetClusterFields(t *testing.T) {
	a := atoll.ClusterViewOf(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Region: "eu", Zone: "eu-a", Provider: "aws"}})
	a.Name, a.Labels, a.Sets = "a", map[string]string{"env": "prod"}, []string{"asia", "paid"}
	b := atoll.ClusterViewOf(&v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Region: "us", Zone: "us-a", Provider: "gcp"}})
	b.Name, b.Labels, b.Sets = "b", map[string]string{"env": "test"}, []string{"free"}
	for _, tc := range []struct{ field, target string }{
		{"clusterNames", "{clusterNames: [a, c]}"},
		{"exclude", "{exclude: [b, c]}"},
		{"labelSelector matchLabels", "{labelSelector: {matchLabels: {env: prod}}}"},
		{"labelSelector matchExpressions In", "{labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, stage]}]}}"},
		{"labelSelector matchExpressions NotIn", "{labelSelector: {matchExpressions: [{key: env, operator: NotIn, values: [test]}]}}"},
		{"fieldSelector.matchExpressions.key region", "{fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}}"},
		{"fieldSelector.matchExpressions.key zone", "{fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [eu-a]}]}}"},
		{"fieldSelector.matchExpressions.key provider", "{fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [aws]}]}}"},
		{"fieldSelector.matchExpressions.operator", "{fieldSelector: {matchExpressions: [{key: region, operator: NotIn, values: [us]}]}}"},
		{"fieldSelector.matchExpressions.values", "{fieldSelector: {matchExpressions: [{key: region, operator: In, values: [ap, eu]}]}}"},
		{"clusterSets", "{clusterSets: [europe, paid]}"},
		{"celSelector", "{celSelector: \"cluster.labels['env'] == 'prod' && 'paid' in cluster.sets && cluster.zone.startsWith('eu-')\"}"},
		{"celSelector that fails elsewhere", "{celSelector: \"cluster.name == 'a' || cluster.labels['tier'] == '1'\"}"},
		{"sets and an expression", "{clusterSets: [paid, free], celSelector: \"cluster.region == 'eu'\"}"},
		{"all of it", "{clusterNames: [a, b], fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu, us]}, {key: provider, operator: NotIn, values: [gcp]}]}}"},
	} {
		t.Run(tc.field, func(t *testing.T) {
			var target v1alpha1.ClusterTarget
			if err := yaml.UnmarshalStrict([]byte(tc.target), &target); err != nil {
				t.Fatal(err)
			}
			c := newContent(newRule("OverridePolicy/shop/p", v1alpha1.Overriders{Replicas: pointerOf(int32(8))}, webKey))
			c.Rules[0].Target = &target
			if rules, _ := manifest.MatchRules(c, a); len(rules) != 1 {
				t.Error("the rule does not apply in cluster a")
			}
			if rules, _ := manifest.MatchRules(c, b); len(rules) != 0 {
				t.Error("the rule applies in cluster b")
			}
		})
	}
}

// add sets what is absent or there, replace what is there, remove takes away: of labels, of
// annotations and at a path.
func TestOperatorFields(t *testing.T) {
	const object = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"a":"1"},"labels":{"a":"1"},"name":"web","namespace":"shop"},"spec":{"paused":true}}`
	with := func(metadata, spec string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{` + metadata + `"name":"web","namespace":"shop"},"spec":{` + spec + `}}`
	}
	const both, paused = `"annotations":{"a":"1"},"labels":{"a":"1"},`, `"paused":true`
	for _, tc := range []struct{ field, overriders, want string }{
		{"labelsOverrider add", "{labelsOverrider: [{operator: add, value: {a: '2', b: '2'}}]}", with(`"annotations":{"a":"1"},"labels":{"a":"2","b":"2"},`, paused)},
		{"labelsOverrider replace", "{labelsOverrider: [{operator: replace, value: {a: '2', b: '2'}}]}", with(`"annotations":{"a":"1"},"labels":{"a":"2"},`, paused)},
		{"labelsOverrider remove", "{labelsOverrider: [{operator: remove, value: {a: '', b: ''}}]}", with(`"annotations":{"a":"1"},`, paused)},
		{"annotationsOverrider add", "{annotationsOverrider: [{operator: add, value: {a: '2', b: '2'}}]}", with(`"annotations":{"a":"2","b":"2"},"labels":{"a":"1"},`, paused)},
		{"annotationsOverrider replace", "{annotationsOverrider: [{operator: replace, value: {a: '2', b: '2'}}]}", with(`"annotations":{"a":"2"},"labels":{"a":"1"},`, paused)},
		{"annotationsOverrider remove", "{annotationsOverrider: [{operator: remove, value: {a: ''}}]}", with(`"labels":{"a":"1"},`, paused)},
		{"plaintext add", "{plaintext: [{path: /spec/minReadySeconds, operator: add, value: 5}]}", with(both, `"minReadySeconds":5,"paused":true`)},
		{"plaintext replace", "{plaintext: [{path: /spec/paused, operator: replace, value: false}]}", with(both, `"paused":false`)},
		{"plaintext replace by null", "{plaintext: [{path: /spec/paused, operator: replace, value: null}]}", with(both, `"paused":null`)},
		{"plaintext remove", "{plaintext: [{path: /spec/paused, operator: remove}]}", with(both, "")},
	} {
		t.Run(tc.field, func(t *testing.T) {
			var o v1alpha1.Overriders
			if err := yaml.UnmarshalStrict([]byte(tc.overriders), &o); err != nil {
				t.Fatal(err)
			}
			c := &atoll.Content{Items: []atoll.Item{newItem(webKey, object)}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", o, webKey)}}
			if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}}, webKey); r.Error != "" || string(r.Object) != tc.want {
				t.Errorf("%s%s\nwant %s", r.Error, r.Object, tc.want)
			}
		})
	}
}
