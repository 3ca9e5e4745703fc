package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

// fakeSets are two sets of one cluster each; namespace shop is bound to asia.
type fakeSets struct{ all bool }

func (fakeSets) AllowedSets(ns string) []string {
	return map[string][]string{"shop": {"asia"}}[ns]
}
func (fakeSets) OpenSets() []string              { return nil }
func (s fakeSets) HasUniversalSet([]string) bool { return s.all }
func (fakeSets) OfCluster(n string) []string {
	return map[string][]string{"tokyo": {"asia"}, "oslo": {"europe"}}[n]
}
func (fakeSets) OfLabels(l map[string]string) (out []string) {
	if set := l[v1alpha1.LabelClusterSet]; set != "" && set != "planned" { // this one is not there yet
		out = append(out, set)
	}
	if area := l["area"]; area != "" { // of a set that selects by labels
		out = append(out, area)
	}
	return out
}

// Every name in a placement is found; an excluded one is not.
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
	for _, r := range placementReferences(&pl, at) {
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
			p := New(Options{Hub: readyHub(Hub{Sets: tc.sets})})
			var had []placementReference
			if tc.before != nil {
				had = placementReferences(tc.before, at)
			}
			errs := p.checkPlacementReferences(tc.ns, placementReferences(tc.now, at), had, at)
			if text := errs.ToAggregate(); tc.want == "" && text != nil || tc.want != "" && (text == nil || !strings.Contains(text.Error(), tc.want)) {
				t.Errorf("refused with %v, not %q", text, tc.want)
			}
			if len(errs) > mostToldOf+1 {
				t.Errorf("%d reasons are given", len(errs))
			}
		})
	}
}

// A user changes the membership of a Cluster only for sets that the user manages, and creates one
// only in such a set.
func TestMembershipNeedsTheRightToManageTheSets(t *testing.T) {
	in := func(set string) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{}
		if c.Name = "lima"; set != "" {
			c.Labels = map[string]string{v1alpha1.LabelClusterSet: set}
		}
		return c
	}
	of := func(set, area string) *v1alpha1.Cluster {
		c := in(set)
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels["area"] = area
		return c
	}
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Sets: fakeSets{}})})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if name := a.GetUser().GetName(); name == "fleet" || a.GetName() != "" && a.GetName() == name {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	for name, c := range map[string]struct {
		user        string
		now, before *v1alpha1.Cluster
		want        string
	}{
		"created in a managed set":      {"asia", in("asia"), nil, ""},
		"created in another set":        {"asia", in("europe"), nil, `into set "europe" or out of it`},
		"created in no set":             {"asia", in(""), nil, "in no set that"},
		"created in no set by fleet":    {"fleet", in(""), nil, ""},
		"changed within a managed set":  {"asia", in("asia"), in("asia"), ""},
		"changed within another set":    {"asia", in("europe"), in("europe"), "in no set that"},
		"taken out of a managed set":    {"asia", in(""), in("asia"), ""},
		"moved to another set":          {"asia", in("europe"), in("asia"), `into set "europe" or out of it`},
		"moved out of another set":      {"asia", in("asia"), in("europe"), "in no set that"},
		"deleted from a managed set":    {"asia", nil, in("asia"), ""},
		"deleted from another set":      {"asia", nil, in("europe"), "in no set that"},
		"moved to another set by fleet": {"fleet", in("europe"), in("asia"), ""},
		"labelled into another set":     {"asia", of("asia", "europe"), in("asia"), `into set "europe" or out of it`},
		"labelled out of another set":   {"asia", in("asia"), of("asia", "europe"), `into set "europe" or out of it`},
		"labelled as before":            {"asia", of("asia", "europe"), of("asia", "europe"), ""},
		"labelled into a managed set":   {"asia", of("", "asia"), nil, ""},
		"kept in another set":           {"asia", of("europe", "asia"), of("europe", "asia"), ""},
		"into a set to come":            {"asia", of("planned", "asia"), of("", "asia"), `into set "planned" or out of it`},
		"out of a set to come":          {"asia", of("", "asia"), of("planned", "asia"), `into set "planned" or out of it`},
		"kept in a set to come":         {"asia", of("planned", "asia"), of("planned", "asia"), ""},
	} {
		gvk := v1alpha1.GroupVersion.WithKind("Cluster")
		a := admission.NewAttributesRecord(c.now, c.before, gvk, "", "lima", gvk.GroupVersion().WithResource("clusters"), "", admission.Update, nil, false, &user.DefaultInfo{Name: c.user})
		err := p.validateSetMembership(t.Context(), a, c.now, c.before)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
