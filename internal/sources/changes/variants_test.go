package changes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/userfields"
)

// kindsOfTests are namespaced, but for Namespaces, ClusterRoles and kinds that are not served.
func kindsOfTests(gvk schema.GroupVersionKind) (ServedKind, bool) {
	resource := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
	return ServedKind{Resource: resource, IsNamespaced: gvk.Kind != "Namespace" && gvk.Kind != "ClusterRole"}, gvk.Kind != "Unserved"
}

// variantsSource is a Source with a variant for each label tier of clusters.
func variantsSource(names ...string) *v1alpha1.Source {
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	for _, name := range names {
		v := v1alpha1.SourceVariant{Name: strings.TrimPrefix(name, "-"), Exclude: strings.HasPrefix(name, "-")}
		v.TargetCluster.ClusterNames = []string{v.Name, "in-all"}
		s.Spec.Variants = append(s.Spec.Variants, v)
	}
	return s
}

// objectsOf parses YAML documents.
func objectsOf(t testing.TB, file, text string) (out []render.Object) {
	t.Helper()
	var r render.Reader
	r.ReadFile(file, []byte(text))
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	return r.Objects
}

// compareContents returns the Result of contents, of which the first is that without a variant.
func compareContents(s *v1alpha1.Source, contents ...[]render.Object) render.Result {
	j := render.Job{}
	rest := contents[1:]
	for _, v := range s.Spec.Variants {
		if !v.Exclude {
			j.Variants = append(j.Variants, render.VariantJob{Name: v.Name, Options: render.Options{ReleaseName: v.Name}})
		}
	}
	return render.RenderVariants(j, func(one render.Job) render.Result {
		if one.Options.ReleaseName == "" {
			return render.Result{Objects: contents[0]}
		}
		objects := rest[0]
		rest = rest[1:]
		return render.Result{Objects: objects}
	})
}

// renderCluster returns the objects of a cluster, by their names, as the hub renders the templates and the policies.
func renderCluster(t testing.TB, templates []*unstructured.Unstructured, policies []*unstructured.Unstructured, cluster string) map[string]map[string]any {
	t.Helper()
	content := &atoll.Content{}
	for _, u := range templates {
		fields := runtime.DeepCopyJSON(u.Object)
		for _, name := range clusterMetadata {
			keys, _, _ := unstructured.NestedMap(fields, "metadata", name)
			for key := range keys {
				if userfields.IsHubKey(key) {
					unstructured.RemoveNestedField(fields, "metadata", name, key)
				}
			}
		}
		raw, err := json.Marshal(dropNulls(fields))
		if err != nil {
			t.Fatal(err)
		}
		content.Items = append(content.Items, atoll.Item{Key: Key{u.GroupVersionKind().Group, u.GetKind(), u.GetNamespace(), u.GetName()}.ItemKey(), APIVersion: u.GetAPIVersion(), Object: raw})
	}
	for _, u := range policies {
		var p v1alpha1.OverridePolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
			t.Fatal(err)
		}
		name := p.Kind + "/" + p.Namespace + "/" + p.Name
		if p.Namespace == "" {
			name = p.Kind + "/" + p.Name
		}
		on := p.Spec.ResourceSelectors[0]
		gk := schema.FromAPIVersionAndKind(on.APIVersion, on.Kind).GroupKind()
		for i, r := range p.Spec.OverrideRules {
			content.Rules = append(content.Rules, atoll.Rule{
				Policy: name, Index: i, Target: r.TargetCluster, First: p.Spec.AppliedRules == v1alpha1.AppliedRulesFirst, Overriders: r.Overriders, Semantics: atoll.FirstRuleSemantics,
				Items: []atoll.ItemKey{{Group: gk.Group, Kind: gk.Kind, Namespace: on.Namespace, Name: on.Name}},
			})
		}
	}
	rules, _ := manifest.MatchRules(content, atoll.ClusterView{Name: cluster})
	items, _ := manifest.RenderItems(content, manifest.RenderInput{Rules: rules})
	out := map[string]map[string]any{}
	for _, item := range items {
		if item.Error != "" {
			t.Fatalf("%s in %s: %s", item.Key.Name, cluster, item.Error)
		}
		var fields map[string]any
		if err := json.Unmarshal(item.Object, &fields); err != nil {
			t.Fatal(err)
		}
		out[item.Key.Name] = fields
	}
	return out
}

// splitPolicies returns the objects of the content, and the policies of its variants.
func splitPolicies(s *v1alpha1.Source, w Templates) (templates, policies []*unstructured.Unstructured) {
	for i, u := range w.Objects {
		switch {
		case w.IsOverridePolicy(s, i):
			policies = append(policies, u)
		case i < w.CountContent():
			templates = append(templates, u)
		}
	}
	return templates, policies
}

// expectedFields are the fields of an object that overrides may change, without empty labels and annotations.
func expectedFields(fields map[string]any) map[string]any {
	out := overridableFields(fields)
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	var read map[string]any
	if err := json.Unmarshal(raw, &read); err != nil {
		panic(err)
	}
	return read
}

// checkVariants checks that each cluster gets the content of its variant, and that a transition is valid for the former
// content, too.
func checkVariants(t testing.TB, s *v1alpha1.Source, former []*unstructured.Unstructured, contents ...[]render.Object) {
	t.Helper()
	w, problems := NewTemplates(s, compareContents(s, contents...), "c0ffee", kindsOfTests)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	templates, policies := splitPolicies(s, w)
	want := map[string][]render.Object{"none": contents[0]}
	next := contents[1:]
	for _, v := range s.Spec.Variants {
		if want[v.Name] = nil; !v.Exclude {
			want[v.Name], next = next[0], next[1:]
		}
	}
	want["in-all"] = want[s.Spec.Variants[0].Name]
	var transitions []*unstructured.Unstructured
	for i := range w.templates {
		if rules := w.templates[i].newRules(s, "", newTransitionPatch); len(rules) > 0 {
			transitions = append(transitions, w.templates[i].newOverridePolicy(s, rules))
		}
	}
	transitions = fitTransitions(t, transitions, former, templates)
	for cluster, objects := range want {
		for what, by := range map[string][]*unstructured.Unstructured{"policies": policies, "transitions": transitions} {
			got := renderCluster(t, templates, by, cluster)
			if len(got) != len(objects) {
				t.Fatalf("%s: %d objects in %s, want %d", what, len(got), cluster, len(objects))
			}
			for _, o := range objects {
				name := nameOfFields(o.Fields)
				if is, want := expectedFields(got[name]), expectedFields(o.Fields); !userfields.EqualJSON(is, want) {
					t.Fatalf("%s: %s in %s is\n%v, want\n%v", what, name, cluster, is, want)
				}
			}
		}
		if cluster == "none" || former == nil {
			continue
		}
		was := renderCluster(t, former, transitions, cluster)
		for _, o := range objects {
			name := nameOfFields(o.Fields)
			is, want := expectedFields(was[name]), expectedFields(o.Fields)
			if i := slices.IndexFunc(w.Keys, func(k v1alpha1.SourceObject) bool { return k.Name == name }); was[name] == nil || len(w.templates[i].newRules(s, "", newTransitionPatch)) == 0 {
				continue
			}
			if !userfields.EqualJSON(is, want) {
				t.Fatalf("a transition over the former object: %s in %s is\n%v, want\n%v", name, cluster, is, want)
			}
		}
	}
}

func nameOfFields(fields map[string]any) string {
	return fields["metadata"].(map[string]any)["name"].(string)
}

// fitTransitions returns the transitions as they are between the former objects, of which the manager m has all fields, and the
// wanted ones.
func fitTransitions(t testing.TB, transitions, former, wanted []*unstructured.Unstructured) (out []*unstructured.Unstructured) {
	t.Helper()
	for _, u := range transitions {
		u = u.DeepCopy()
		on := u.Object["spec"].(map[string]any)["resourceSelectors"].([]any)[0].(map[string]any)["name"]
		for _, o := range former {
			i := slices.IndexFunc(wanted, func(w *unstructured.Unstructured) bool { return w.GetName() == on })
			if o.GetName() == on && i >= 0 {
				one := Transition{Object: u}
				one.FitObjects(withOwnedFields(t, o), wanted[i], "m")
			}
		}
		out = append(out, u)
	}
	return out
}

// withOwnedFields returns an object whose fields the manager m has.
func withOwnedFields(t testing.TB, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	var owned func(fields map[string]any) map[string]any
	owned = func(fields map[string]any) map[string]any {
		out := map[string]any{}
		for key, v := range fields {
			below, _ := v.(map[string]any)
			out["f:"+key] = owned(below)
		}
		return out
	}
	raw, err := json.Marshal(owned(o.Object))
	if err != nil {
		t.Fatal(err)
	}
	o = o.DeepCopy()
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(string(raw))}, {Manager: "other", FieldsV1: metav1.NewFieldsV1(`{"f:other":{}}`)}})
	return o
}

// randomValue returns a value of JSON.
func randomValue(r *rand.Rand, depth int) any {
	texts := []string{"", "a", "a/b", "~", "~1", "a~0/b", "1", "null", "ü", "line\nline", "{{ x }}"}
	switch n := r.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return r.IntN(2) == 0
	case n == 2:
		return int64(r.IntN(3))
	case n == 3:
		return float64(r.IntN(3)) + 0.5
	case n <= 5 || depth == 0:
		return texts[r.IntN(len(texts))]
	case n == 6:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	}
	m := map[string]any{}
	for range r.IntN(4) {
		m[texts[r.IntN(len(texts))]] = randomValue(r, depth-1)
	}
	return m
}

// randomContent returns some of the objects a, b and c, one at least.
func randomContent(r *rand.Rand) (out []render.Object) {
	for len(out) == 0 {
		for i, name := range []string{"a", "b", "c"} {
			if r.IntN(4) == 0 {
				continue
			}
			meta := map[string]any{"name": name}
			for _, field := range clusterMetadata {
				keys := map[string]any{}
				for range r.IntN(3) {
					keys[[]string{"x", "example.com/y", "z"}[r.IntN(3)]] = []string{"1", "2", ""}[r.IntN(3)]
				}
				if len(keys) > 0 {
					meta[field] = keys
				}
			}
			fields := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta}
			for _, field := range []string{"spec", "data", "other"} {
				if v := randomValue(r, 3); r.IntN(4) > 0 {
					fields[field] = v
				}
			}
			out = append(out, render.Object{Fields: fields, File: "a.yaml", Line: i + 1})
		}
	}
	return out
}

// TestVariantsAreOverridesOfOneContent: over random contents, the hub's overrides make of the templates exactly what each
// variant renders to.
func TestVariantsAreOverridesOfOneContent(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		s := variantsSource("one", "-two", "three")
		if r.IntN(2) == 0 {
			s = variantsSource("one", "three", "-two")
		}
		former, _ := NewTemplates(variantsSource(), render.Result{Objects: randomContent(r)}, "", kindsOfTests)
		checkVariants(t, s, former.Objects, randomContent(r), randomContent(r), randomContent(r))
	}
}

// FuzzVariantsAreOverrides has the fields of one object without and with a variant.
func FuzzVariantsAreOverrides(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"spec":{"a":1,"b":{"c":[1,{"d":null}]}}}`, `{"spec":{"b":{"c":[1,{"d":2}]}}}`}, {`{"data":{"a/b":"x","~":""}}`, `{"data":{}}`},
		{`{"spec":[]}`, `{"spec":{}}`}, {`{"spec":{"$patch":"delete"}}`, `{"spec":{"$patch":"x","e":{}}}`}, {`{}`, `{"spec":null,"x":{"y":null}}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, base, variant string) {
		read := func(text string) []render.Object {
			var fields struct{ Spec, Data, Other any }
			if json.Unmarshal([]byte(text), &fields) != nil || strings.Count(text, "{")+strings.Count(text, "[") > 50 {
				t.Skip()
			}
			raw, err := json.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": fields.Spec, "data": fields.Data, "other": fields.Other})
			if err != nil {
				t.Skip()
			}
			var o render.Object
			if err := json.Unmarshal([]byte(`{"fields":`+string(raw)+`}`), &o); err != nil {
				t.Skip()
			}
			return []render.Object{o}
		}
		checkVariants(t, variantsSource("one"), nil, read(base), read(variant))
	})
}

// describePolicies returns the policies in a few words, by the names of their objects.
func describePolicies(t *testing.T, s *v1alpha1.Source, w Templates) string {
	t.Helper()
	_, policies := splitPolicies(s, w)
	var out []string
	for _, u := range policies {
		var p v1alpha1.OverridePolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
			t.Fatal(err)
		}
		var rules []string
		for _, r := range p.Spec.OverrideRules {
			target := "*"
			if r.TargetCluster != nil {
				target = r.TargetCluster.ClusterNames[0]
			}
			switch {
			case r.Overriders.NotHere != nil:
				rules = append(rules, target+" none")
			case r.Overriders.MergePatch != nil:
				rules = append(rules, target+" "+string(r.Overriders.MergePatch.Raw))
			default:
				rules = append(rules, target)
			}
		}
		on := p.Spec.ResourceSelectors[0]
		if on.Namespace != p.Namespace && p.Namespace != "" || p.Spec.AppliedRules != v1alpha1.AppliedRulesFirst || u.GetLabels()[v1alpha1.LabelSource] != s.Name || u.Object["spec"].(map[string]any)["priority"] != int64(0) {
			t.Errorf("%+v", p)
		}
		out = append(out, fmt.Sprintf("%s %s/%s: %s", p.Kind, on.Namespace, on.Name, strings.Join(rules, ", ")))
	}
	return strings.Join(out, "\n")
}

func TestPoliciesOfVariants(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: \"1\", w: x}\n"
	role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: []\n"
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {token: a}\n"
	for name, c := range map[string]struct {
		variants []string
		contents []string
		want     string
		problem  string
	}{
		"the same":             {[]string{"one"}, []string{config, config}, "", ""},
		"a null field":         {[]string{"one"}, []string{config, config + "immutable: null\n"}, "", ""},
		"a value":              {[]string{"one"}, []string{config, strings.Replace(config, `"1"`, `"2"`, 1)}, `OverridePolicy shop/a: one {"data":{"v":"2"}}`, ""},
		"a field less":         {[]string{"one"}, []string{config, strings.Replace(config, `, w: x`, ``, 1)}, `OverridePolicy shop/a: one {"data":{"w":null}}`, ""},
		"the first is the one": {[]string{"one", "two"}, []string{config, config, strings.Replace(config, `"1"`, `"2"`, 1)}, `OverridePolicy shop/a: one, two {"data":{"v":"2"}}`, ""},
		"the last is the same": {[]string{"two", "one"}, []string{config, strings.Replace(config, `"1"`, `"2"`, 1), config}, `OverridePolicy shop/a: two {"data":{"v":"2"}}`, ""},
		"excluded":             {[]string{"one", "-two"}, []string{config, config}, `OverridePolicy shop/a: one, two none`, ""},
		"only in a variant": {[]string{"one"}, []string{config, config + "---\n" + strings.Replace(config, "name: a", "name: b", 1)},
			`OverridePolicy shop/b: one, * none`, ""},
		"missing in a variant": {[]string{"one"}, []string{config + "---\n" + strings.Replace(config, "name: a", "name: b", 1), config}, `OverridePolicy shop/b: one none`, ""},
		"a namespace of its own": {[]string{"-one"}, []string{strings.Replace(config, "name: a", "name: a, namespace: other", 1)},
			`OverridePolicy other/a: one none`, ""},
		"a stated namespace is the same object": {[]string{"one"}, []string{config, strings.Replace(config, "name: a", "name: a, namespace: shop", 1)}, "", ""},
		"a Role":                                {[]string{"-one"}, []string{role}, `ClusterOverridePolicy shop/r: one none`, ""},
		"a cluster-scoped object":               {[]string{"-one"}, []string{strings.ReplaceAll(role, "Role", "ClusterRole")}, `ClusterOverridePolicy /r: one none`, ""},
		"data of a Secret":                      {[]string{"one"}, []string{secret, strings.Replace(secret, "token: a", "token: b", 1)}, "", "variant one: Secret s: its data differs by cluster"},
		"a key of a Secret":                     {[]string{"one"}, []string{secret, strings.Replace(secret, "token: a", "other: a", 1)}, "", "its data differs"},
		"no data of a Secret":                   {[]string{"one"}, []string{secret, strings.Replace(secret, "stringData: {token: a}\n", "", 1)}, "", "its data differs"},
		"Secrets of variants":                   {[]string{"one", "two"}, []string{config, secret + "---\n" + config, strings.Replace(secret, "token: a", "token: b", 1) + "---\n" + config}, "", "variant two: Secret s: its data differs"},
		"a Secret for each":                     {[]string{"one", "two"}, []string{config, secret + "---\n" + config, strings.Replace(secret, "name: s", "name: t", 1) + "---\n" + config}, "OverridePolicy shop/s: one, two none, * none\nOverridePolicy shop/t: one none, two, * none", ""},
		"labels of a Secret":                    {[]string{"one"}, []string{secret, strings.Replace(secret, "name: s", "name: s, labels: {a: b}", 1)}, `OverridePolicy shop/s: one {"metadata":{"labels":{"a":"b"}}}`, ""},
		"an excluded Secret":                    {[]string{"-one"}, []string{secret}, `OverridePolicy shop/s: one none`, ""},
		"the same Secret":                       {[]string{"one"}, []string{secret, strings.Replace(secret, "stringData: {token: a}", "data: {token: YQ==}", 1)}, "", ""},
		"an excluded Namespace":                 {[]string{"-one"}, []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"}, "", ""},
		"another Namespace":                     {[]string{"one"}, []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {a: b}}\n"}, "", "a.yaml:1: variant one: Namespace team: it differs"},
		"another version":                       {[]string{"one"}, []string{"apiVersion: a.b/v1\nkind: X\nmetadata: {name: x}\n", "apiVersion: a.b/v2\nkind: X\nmetadata: {name: x}\n"}, "", "variant one: X x: it has the version a.b/v2"},
		"finalizers":                            {[]string{"one"}, []string{config, strings.Replace(config, "name: a", "name: a, finalizers: [a/b]", 1)}, "", "metadata.finalizers differs"},
		"an annotation of Atoll":                {[]string{"one"}, []string{config, strings.Replace(config, "name: a", "name: a, annotations: {atoll.dev/clusters: x}", 1)}, "", "metadata.annotations differ in atoll.dev/clusters"},
		"twice in a variant":                    {[]string{"one"}, []string{config, strings.Replace(config, `"1"`, `"2"`, 1) + "---\n" + strings.Replace(config, `"1"`, `"3"`, 1)}, "", "variant one: ConfigMap a is in a.yaml:1, too"},
	} {
		s := variantsSource(c.variants...)
		var contents [][]render.Object
		for _, text := range c.contents {
			contents = append(contents, objectsOf(t, "a.yaml", text))
		}
		w, problems := NewTemplates(s, compareContents(s, contents...), "", kindsOfTests)
		if c.problem == "" && len(problems) > 0 || c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0].Format(), c.problem)) {
			t.Errorf("%s: %v", name, problems)
		}
		if got := describePolicies(t, s, w); len(problems) == 0 && got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// The rules of a policy have the targets of the variants, in their order.
func TestTargetsOfVariants(t *testing.T) {
	s := variantsSource("one", "two")
	text := "labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}]}\nfieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}\n" +
		"clusterNames: [oslo]\nexclude: [bergen]\nclusterSets: [edge]\ncelSelector: cluster.region == 'eu'\n"
	target := v1alpha1.ClusterTarget{}
	if err := yaml.UnmarshalStrict([]byte(text), &target); err != nil {
		t.Fatal(err)
	}
	s.Spec.Variants[1].TargetCluster = target
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	w, _ := NewTemplates(s, compareContents(s, objectsOf(t, "a.yaml", config), objectsOf(t, "a.yaml", config+"data: {v: x}\n"), objectsOf(t, "a.yaml", config+"data: {v: y}\n")), "", kindsOfTests)
	var p v1alpha1.OverridePolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.Objects[1].Object, &p); err != nil {
		t.Fatal(err)
	}
	if r := p.Spec.OverrideRules; len(r) != 2 || r[0].TargetCluster.ClusterNames[0] != "one" || !reflect.DeepEqual(*r[1].TargetCluster, target) {
		t.Errorf("%+v", p.Spec)
	}
}

// A policy names the commit that changed it, which is none of its hash.
func TestPoliciesNameTheCommit(t *testing.T) {
	s := variantsSource("one")
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: \"1\"}\n"
	made := func(commit string) (string, string) {
		w, _ := NewTemplates(s, compareContents(s, objectsOf(t, "a.yaml", config), objectsOf(t, "over/b.yaml", strings.Replace(config, `"1"`, `"2"`, 1))), commit, kindsOfTests)
		raw, err := yaml.Marshal(w.Objects[1])
		if err != nil {
			t.Fatal(err)
		}
		return string(raw), w.Keys[1].Hash
	}
	one, hash := made("0123456789abcdef")
	two, again := made("fedcba9876543210")
	if !strings.Contains(one, "description: 'variant one of Source web: over/b.yaml of commit 0123456789ab'\n") || one == two || hash != again {
		t.Errorf("%s\n%s", one, two)
	}
}

// The policies of a Source have names of their own, also among those of other Sources and namespaces.
func TestNamesOfPolicies(t *testing.T) {
	a, b := variantsSource("one"), variantsSource("one")
	b.Namespace = "other"
	k := Key{"", "ConfigMap", "shop", "a"}
	if overridePolicyName(a, k) == overridePolicyName(b, k) || overridePolicyName(a, k) == overridePolicyName(a, Key{"", "Secret", "shop", "a"}) {
		t.Error("two objects have one name")
	}
	own := v1alpha1.SourceObject{APIVersion: "atoll.dev/v1alpha1", Kind: "OverridePolicy", Namespace: "shop", Name: overridePolicyName(a, k)}
	for change, o := range map[string]v1alpha1.SourceObject{
		"another kind":   {APIVersion: own.APIVersion, Kind: "PropagationPolicy", Name: own.Name},
		"another name":   {APIVersion: own.APIVersion, Kind: own.Kind, Name: "source-web-mine"},
		"another source": {APIVersion: own.APIVersion, Kind: own.Kind, Name: "source-web-2-0123456789ab"},
		"another group":  {APIVersion: "v1", Kind: own.Kind, Name: own.Name},
	} {
		if IsOverridePolicy("web", o) {
			t.Error(change)
		}
	}
	if !IsOverridePolicy("web", own) {
		t.Error("the own one")
	}
}

// A policy goes with its object or stays with it, also where other objects are kept.
func TestPoliciesOfVariantsFollowTheirObjects(t *testing.T) {
	s := variantsSource()
	object := func(kind, name string) v1alpha1.SourceObject {
		return v1alpha1.SourceObject{APIVersion: "v1", Kind: kind, Namespace: "shop", Name: name, UID: "u", Hash: "h"}
	}
	policy := func(name string) v1alpha1.SourceObject {
		return v1alpha1.SourceObject{APIVersion: "atoll.dev/v1alpha1", Kind: "OverridePolicy", Namespace: "shop", Name: overridePolicyName(s, Key{"", "ConfigMap", "shop", name}), UID: "u", Hash: "h"}
	}
	in := Input{Source: s, Wanted: []v1alpha1.SourceObject{object("ConfigMap", "a")}, Inventory: []v1alpha1.SourceObject{policy("a"), policy("b"), object("ConfigMap", "a"), object("ConfigMap", "b")}, Prune: v1alpha1.PruneRemove}
	d := Decide(in)
	if len(d.Remove) != 1 || d.Remove[0].Name != policy("a").Name || d.Remove[0].Kept != "" || len(d.Keep) != 2 {
		t.Errorf("other settings: %+v", d)
	}
	in.SameSettings = true
	d = Decide(in)
	if len(d.Remove) != 3 || d.Remove[0].Name != "b" {
		t.Errorf("a commit that drops: %+v", d)
	}
	d.KeepAll(atoll.ReasonHistoryRewritten)
	if len(d.Remove) != 1 || d.Remove[0].Name != policy("a").Name || len(d.Keep) != 2 {
		t.Errorf("a history that is rewritten: %+v", d)
	}
}

// Objects that are the same in all variants cost nothing for each variant.
func TestEqualObjectsCostNothingForEachVariant(t *testing.T) {
	const objects = 100
	count := func(names ...string) float64 {
		s := variantsSource(names...)
		return testing.AllocsPerRun(1, func() {
			var r render.Result
			for i := range objects {
				r.Objects = append(r.Objects, objectsOf(t, "a.yaml", fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a%d}\ndata: {a: x, b: x, c: x, d: x, e: x, f: x}\n", i))...)
			}
			for _, name := range names {
				r.Variants = append(r.Variants, render.VariantResult{Name: name})
			}
			if w, problems := NewTemplates(s, r, "c0ffee", kindsOfTests); len(w.Keys) != objects || len(problems) > 0 {
				t.Fatal(len(w.Keys), problems)
			}
		})
	}
	var names []string
	for i := range 32 {
		names = append(names, fmt.Sprint("v", i))
	}
	// Each rule is described: a few allocations for each variant of an object, and none for its fields.
	if one, all := count(names[0]), count(names...); all-one > 31*objects*40 {
		t.Errorf("%v allocations with one variant, %v with 32", one, all)
	}
}
