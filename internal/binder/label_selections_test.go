package binder

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// countedTemplates is a table that counts how often it is listed.
type countedTemplates struct {
	fakeTemplates
	lists *int
}

func (c countedTemplates) ListOfKind(gk schema.GroupKind, ns string) []*unstructured.Unstructured {
	*c.lists++
	return c.fakeTemplates.ListOfKind(gk, ns)
}

func newConfigMap(ns, name string, has map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": name}}}
	o.SetLabels(has)
	return o
}

// selectionWalk is selections over a table that changes, which hear of changes some time later.
type selectionWalk struct {
	t           *testing.T
	random      *rand.Rand
	selections  *labelSelections
	tables      *fakeTables
	templates   countedTemplates
	askedBy     map[atoll.Selection]map[policymatch.BundleID]bool
	pendingKeys map[atoll.ItemKey]bool
}

func templateMatches(s atoll.Selection, key atoll.ItemKey, o *unstructured.Unstructured) bool {
	return s.SelectsKey(key) && bundlecontent.ParseSelection(s).Matches(labels.Set(o.GetLabels()))
}

// changeRandomTemplate a template, or another edition of it.
func (f *selectionWalk) changeRandomTemplate() {
	has := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if n := f.random.IntN(3); n > 0 {
			has[k] = fmt.Sprint(n)
		}
	}
	o := newConfigMap([]string{"shop", "till"}[f.random.IntN(2)], fmt.Sprint("c", f.random.IntN(4)), has)
	f.tables.templates[policymatch.ItemKeyOf(o)], f.pendingKeys[policymatch.ItemKeyOf(o)] = o, true
}

// handleTemplate handles a change, which touches exactly the Bundles whose selections match.
func (f *selectionWalk) handleTemplate(key atoll.ItemKey) {
	delete(f.pendingKeys, key)
	o, ok := f.tables.templates[key]
	if !ok {
		f.selections.templateDeleted(key)
		return
	}
	want := map[policymatch.BundleID]bool{}
	for s, users := range f.askedBy {
		if templateMatches(s, key, o) {
			maps.Copy(want, users)
		}
	}
	if touched := f.selections.templateChanged(o); len(touched) != len(want) || slices.ContainsFunc(touched, func(id policymatch.BundleID) bool { return !want[id] }) {
		f.t.Fatalf("touched %v, want %v", touched, want)
	}
}

// askForSelection finds a selection, which is listed only at its first use.
func (f *selectionWalk) askForSelection() {
	texts := []string{"", "a=1", "a in (1,2)", "b", "a=1,b notin (2)", "!a"}
	s := atoll.Selection{Kind: "ConfigMap", Namespace: []string{"shop", "till"}[f.random.IntN(2)], Labels: texts[f.random.IntN(len(texts))]}
	id, before := policymatch.BundleID{Name: fmt.Sprint("b", f.random.IntN(3))}, *f.templates.lists
	f.selections.findMatching(s, id, f.templates)
	if f.askedBy[s] != nil && *f.templates.lists != before {
		f.t.Fatalf("%+v is listed again", s)
	}
	if f.askedBy[s] == nil {
		f.askedBy[s] = map[policymatch.BundleID]bool{}
	}
	f.askedBy[s][id] = true
}

// checkResults returns what is wrong with the results: each selection has what matches and nothing
// else, and so has a clone.
func (f *selectionWalk) checkResults() {
	for key := range maps.Clone(f.pendingKeys) {
		f.handleTemplate(key)
	}
	twin, before := f.selections.clone(), *f.templates.lists
	for s := range f.askedBy {
		want := map[atoll.ItemKey]bool{}
		for key, o := range f.tables.templates {
			if templateMatches(s, key, o) {
				want[key] = true
			}
		}
		for _, one := range []*labelSelections{f.selections, twin} {
			got := one.findMatching(s, policymatch.BundleID{Name: "b"}, f.templates)
			if len(got) != len(want) || slices.ContainsFunc(got, func(key atoll.ItemKey) bool { return !want[key] }) || !maps.Equal(one.states[s].keys, want) {
				f.t.Fatalf("%+v finds %v and keeps %v, want %v", s, got, one.states[s].keys, want)
			}
		}
	}
	if *f.templates.lists != before {
		f.t.Fatal("listed to find what is known")
	}
}

// Templates come, go and change their labels in any order. A selection has what matches, its
// users are touched for each new match, and nothing is listed twice.
func TestSelectionsFollowTheirTemplates(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := &fakeTables{templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
			f := &selectionWalk{
				t: t, random: rand.New(rand.NewPCG(seed, 1)), selections: newLabelSelections(), tables: l, templates: countedTemplates{fakeTemplates{nil, nil, l}, new(int)},
				askedBy: map[atoll.Selection]map[policymatch.BundleID]bool{}, pendingKeys: map[atoll.ItemKey]bool{},
			}
			for range 120 {
				switch f.random.IntN(5) {
				case 0, 1:
					f.changeRandomTemplate()
				case 2:
					for key := range l.templates {
						delete(l.templates, key)
						f.pendingKeys[key] = true
						break
					}
				case 3:
					for key := range f.pendingKeys {
						f.handleTemplate(key)
						break
					}
				case 4:
					f.askForSelection()
				}
			}
			f.checkResults()
			for _, id := range []string{"b", "b0", "b1", "b2"} {
				f.selections.setBundleSelections(policymatch.BundleID{Name: id}, nil)
			}
			if !reflect.DeepEqual(f.selections, newLabelSelections()) {
				t.Fatalf("no Bundle uses them, and left is %+v", f.selections)
			}
		})
	}
}

// newLabelTables is shop with a Trainer cats that policy train places with all ConfigMaps that
// have the label of=cats, such as pictures.
func newLabelTables(t *testing.T) (*fakeTables, *Binder, *int) {
	t.Helper()
	l, b := newShopTables(t)
	lists := 0
	counted := countedTemplates{fakeTemplates{nil, nil, l}, &lists}
	b.Templates, b.Kinds = counted, counted
	x := &v1alpha1.ResourceInterpreter{}
	x.Name, x.Spec.Target = "x", v1alpha1.InterpreterTarget{Group: "ai.example", Kinds: []string{"Trainer"}}
	x.Spec.Dependencies = &v1alpha1.InterpreterRule{CEL: `[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'labelSelector': {'matchLabels': {'of': object.spec.data}}}]`}
	l.interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{x})
	cats := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ai.example/v1", "kind": "Trainer", "metadata": map[string]any{"name": "cats", "namespace": "shop", "uid": "t", "generation": int64(1)},
		"spec": map[string]any{"data": "cats"},
	}}
	pictures := newConfigMap("shop", "pictures", map[string]string{"of": "cats"})
	for _, o := range []*unstructured.Unstructured{cats, pictures, newConfigMap("shop", "sounds", map[string]string{"of": "dogs"})} {
		l.templates[policymatch.ItemKeyOf(o)] = o
	}
	p := newPolicy("train", "cats")
	p.Spec.ResourceSelectors[0].APIVersion, p.Spec.ResourceSelectors[0].Kind, p.Spec.PropagateDeps = "ai.example/v1", "Trainer", true
	l.policies = append(l.policies, p)
	b.index.setNamespacePolicies("shop", l.policies)
	return l, b, &lists
}

// previewText is what comes of some templates that are news, and of nothing else.
func previewText(t *testing.T, b *Binder, keys ...atoll.ItemKey) string {
	t.Helper()
	out, err := b.PreviewBundles(t.Context(), SupposedTables{Templates: b.Templates, Kinds: b.Kinds, Namespaces: b.Namespaces, Policies: b.Policies, Overrides: b.Overrides, ChangedTemplates: keys})
	if err != nil {
		t.Fatal(err)
	}
	return describePreview(out)
}

// A template that begins to match touches the Bundles that ask for it, whose plan lists
// nothing; one that does not match touches none.
func TestWhatBeginsToMatchTouchesWhoAsks(t *testing.T) {
	l, b, lists := newLabelTables(t)
	cats := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	b.handleEvent(tableEvent{template: cats, force: true})
	id := policymatch.BundleID{Namespace: "shop", Name: "train"}
	plan := func() string {
		p, err := b.preparePlan(t.Context(), id, state.Bundle{}, false)
		if err != nil {
			t.Fatal(err)
		}
		p.output = bundlecontent.NextContent(p.input)
		b.ownership.setDependencies(id, p.output.Dependencies, p.output.Selections)
		b.ownership.setContent(id, "train", 1, &p.output.Content)
		var names []string
		for _, i := range p.output.Content.Items {
			names = append(names, i.Key.Name)
		}
		return fmt.Sprint(names)
	}
	if got := plan(); got != "[pictures cats]" || *lists != 1 {
		t.Fatalf("%s after %d lists", got, *lists)
	}
	news := func(name string, has map[string]string) string {
		o := newConfigMap("shop", name, has)
		l.templates[policymatch.ItemKeyOf(o)] = o
		touched := map[policymatch.BundleID]bool{}
		b.touchBundle = func(id policymatch.BundleID) { touched[id] = true }
		b.handleEvent(tableEvent{template: policymatch.ItemKeyOf(o)})
		return fmt.Sprint(slices.SortedFunc(maps.Keys(touched), policymatch.BundleID.Compare))
	}
	for _, tc := range []struct {
		name, of, touched, content string
	}{
		{"sounds", "birds", "[]", "[pictures cats]"},
		{"sounds", "cats", "[shop/train]", "[pictures sounds cats]"},
		{"sounds", "dogs", "[shop/train]", "[pictures cats]"},
		{"sounds", "birds", "[]", "[pictures cats]"},
		{"films", "cats", "[shop/train]", "[films pictures cats]"},
	} {
		if touched := news(tc.name, map[string]string{"of": tc.of}); touched != tc.touched {
			t.Errorf("%s of %s touches %s, want %s", tc.name, tc.of, touched, tc.touched)
		}
		if got := plan(); got != tc.content {
			t.Errorf("%s of %s: %s, want %s", tc.name, tc.of, got, tc.content)
		}
	}
	if *lists != 1 {
		t.Errorf("listed %d times", *lists)
	}
	if !b.IsPlacedOrNeeded(policymatch.Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "new"}, Labels: map[string]string{"of": "cats"}}) {
		t.Error("what will match is not held")
	}
}

// A supposed label is previewed with its dependencies, and the Binder stays as it is.
func TestForeseeByLabels(t *testing.T) {
	l, b, _ := newLabelTables(t)
	cats := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	if got := previewText(t, b, cats); got != "train@1+: pictures cats" {
		t.Error(got)
	}
	b.handleEvent(tableEvent{template: cats, force: true})
	id := policymatch.BundleID{Namespace: "shop", Name: "train"}
	p, err := b.preparePlan(t.Context(), id, state.Bundle{}, false)
	if err != nil {
		t.Fatal(err)
	}
	p.output = bundlecontent.NextContent(p.input)
	b.ownership.setDependencies(id, p.output.Dependencies, p.output.Selections)
	sounds := newConfigMap("shop", "sounds", map[string]string{"of": "cats"})
	supposed := l.clone()
	supposed.templates[policymatch.ItemKeyOf(sounds)] = sounds
	out, err := b.PreviewBundles(t.Context(), SupposedTables{
		Templates: fakeTemplates{nil, nil, supposed}, Kinds: fakeTemplates{nil, nil, supposed}, Namespaces: b.Namespaces, Policies: b.Policies, Overrides: b.Overrides, ChangedTemplates: []atoll.ItemKey{policymatch.ItemKeyOf(sounds)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := describePreview(out); got != "train@1+: pictures sounds cats" {
		t.Error(got)
	}
	if got := b.ownership.selections.findMatching(p.output.Selections[0], id, b.Templates); len(got) != 1 {
		t.Errorf("the Binder itself knows of %v", got)
	}
}

// A selection stays for the Bundles that still have it. It goes with the last of them, and leaves nothing in memory.
func TestASelectionStaysForItsOtherBundles(t *testing.T) {
	l, b := newShopTables(t)
	x := newLabelSelections()
	web, api := policymatch.BundleID{Namespace: "shop", Name: "web"}, policymatch.BundleID{Namespace: "shop", Name: "api"}
	shared, own := atoll.Selection{Kind: "ConfigMap", Namespace: "shop", Labels: "app=web"}, atoll.Selection{Kind: "ConfigMap", Namespace: "shop", Labels: "app"}
	conf := l.putObject("ConfigMap", "shop", "conf", map[string]string{"app": "web"})
	for _, id := range []policymatch.BundleID{web, api, web} {
		if got := x.findMatching(shared, id, b.Templates); !slices.Equal(got, []atoll.ItemKey{newKey("ConfigMap", "conf")}) {
			t.Errorf("%v finds %v", id, got)
		}
	}
	x.findMatching(own, web, b.Templates)
	for _, step := range []struct {
		id   policymatch.BundleID
		now  []atoll.Selection
		want []policymatch.BundleID
	}{
		{web, []atoll.Selection{shared, own}, []policymatch.BundleID{api, web}},
		{web, []atoll.Selection{own}, []policymatch.BundleID{api, web}},
		{api, nil, []policymatch.BundleID{web}},
		{web, nil, nil},
	} {
		x.setBundleSelections(step.id, step.now)
		if got := x.templateChanged(conf); !slices.Equal(got, step.want) {
			t.Errorf("%v has %v: the object touches %v, want %v", step.id, step.now, got, step.want)
		}
		if x.isSelected(newKey("ConfigMap", "conf"), conf.GetLabels()) != (step.want != nil) {
			t.Errorf("%v has %v: selected %t", step.id, step.now, step.want == nil)
		}
	}
	if len(x.states)+len(x.byAnchor)+len(x.byBundle)+len(x.byMatchedKey) > 0 {
		t.Errorf("it keeps %v, %v, %v, %v", x.states, x.byAnchor, x.byBundle, x.byMatchedKey)
	}
}

// A selection of one value is found by that label alone, so that a changed object is matched against few selections.
func TestTheAnchorOfASelection(t *testing.T) {
	for text, want := range map[string]string{"app=web": "app=web", "app==web": "app=web", "app in (web)": "app=web", "app in (a,b)": "", "app": "", "app!=web": "", "": "", "app in (a,b),tier=x": "tier=x"} {
		s := atoll.Selection{Group: "x.dev", Kind: "Widget", Namespace: "shop", Labels: text}
		if got, want := anchorOf(s, bundlecontent.ParseSelection(s)), (selectionAnchor{schema.GroupKind{Group: "x.dev", Kind: "Widget"}, "shop", want}); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
