package admission

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// fakeSets are two sets of one cluster each; namespace shop is bound to asia.
type fakeSets struct{ all bool }

func (fakeSets) Bound(ns string) []string {
	return map[string][]string{"shop": {"asia"}}[ns]
}
func (fakeSets) Open() []string           { return nil }
func (s fakeSets) HoldsAll([]string) bool { return s.all }
func (fakeSets) OfCluster(n string) []string {
	return map[string][]string{"tokyo": {"asia"}, "oslo": {"europe"}}[n]
}
func (fakeSets) OfLabels(l map[string]string) []string { return []string{l[v1alpha1.LabelClusterSet]} }

// What a placement names, wherever it does, is found; what it excludes is not.
func TestReachIsFoundInEveryField(t *testing.T) {
	var pl v1alpha1.PlacementSpec
	text := `
clusterSets: [asia, europe]
clusterAffinity: {clusterNames: [tokyo, oslo], exclude: [lima]}
replicaScheduling: {weightPreference: {staticWeightList: [{weight: 1, targetCluster: {clusterNames: [oslo]}}]}}
`
	if err := yaml.UnmarshalStrict([]byte(text), &pl); err != nil {
		t.Fatal(err)
	}
	at := field.NewPath("placement")
	var got []string
	for _, r := range reachOf(&pl, at) {
		got = append(got, r.kind+r.name+" "+r.path.String())
	}
	want := []string{
		"any <nil>",
		"cluster/tokyo placement.clusterAffinity.clusterNames[0]", "cluster/oslo placement.clusterAffinity.clusterNames[1]",
		"set/asia placement.clusterSets[0]", "set/europe placement.clusterSets[1]",
		"cluster/oslo placement.replicaScheduling.weightPreference.staticWeightList[0].targetCluster.clusterNames[0]",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReach(t *testing.T) {
	at := field.NewPath("spec")
	names := func(list ...string) *v1alpha1.PlacementSpec {
		return &v1alpha1.PlacementSpec{ClusterAffinity: &v1alpha1.ClusterAffinity{ClusterNames: list}}
	}
	many := make([]string, 100_000)
	for i := range many {
		many[i] = "x"
	}
	for name, tc := range map[string]struct {
		sets        Sets
		ns          string
		now, before *v1alpha1.PlacementSpec
		want        string
	}{
		"inside":                    {fakeSets{}, "shop", names("tokyo"), nil, ""},
		"outside":                   {fakeSets{}, "shop", names("tokyo", "oslo"), nil, `spec.clusterAffinity.clusterNames[1]: Forbidden: no cluster "oslo"`},
		"not there":                 {fakeSets{}, "shop", names("nosuch"), nil, `spec.clusterAffinity.clusterNames[0]: Forbidden: no cluster "nosuch"`},
		"there before":              {fakeSets{}, "shop", names("oslo"), names("oslo"), ""},
		"more than before":          {fakeSets{}, "shop", names("oslo", "lima"), names("oslo"), "clusterNames[1]"},
		"a set":                     {fakeSets{}, "shop", &v1alpha1.PlacementSpec{ClusterSets: []string{"europe"}}, nil, `spec.clusterSets[0]: Forbidden: namespace "shop" may not place on cluster set "europe", but on asia`},
		"a set of its own":          {fakeSets{}, "shop", &v1alpha1.PlacementSpec{ClusterSets: []string{"asia"}}, nil, ""},
		"all, which is narrowed":    {fakeSets{}, "shop", &v1alpha1.PlacementSpec{}, nil, ""},
		"bound to nothing":          {fakeSets{}, "blog", &v1alpha1.PlacementSpec{}, nil, `spec: Forbidden: namespace "blog" may place on no cluster`},
		"bound to nothing any more": {fakeSets{}, "blog", names("tokyo"), names("tokyo"), ""},
		"bound to all":              {fakeSets{all: true}, "blog", names("nosuch"), nil, ""},
		"a great many":              {fakeSets{}, "shop", names(many...), nil, "and more"},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Options{Sets: func() (Sets, bool) { return tc.sets, true }})
			var had []reach
			if tc.before != nil {
				had = reachOf(tc.before, at)
			}
			errs := p.checkReach(tc.ns, reachOf(tc.now, at), had, at)
			if text := errs.ToAggregate(); tc.want == "" && text != nil || tc.want != "" && (text == nil || !strings.Contains(text.Error(), tc.want)) {
				t.Errorf("refused with %v, not %q", text, tc.want)
			}
			if len(errs) > mostToldOf+1 {
				t.Errorf("%d reasons are given", len(errs))
			}
		})
	}
}
