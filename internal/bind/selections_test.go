package bind

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
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/state"
)

// counted is a table that counts how often it is listed.
type counted struct {
	lagoonTemplates
	lists *int
}

func (c counted) OfKind(gk schema.GroupKind, ns string) []*unstructured.Unstructured {
	*c.lists++
	return c.lagoonTemplates.OfKind(gk, ns)
}

func settings(ns, name string, has map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": ns, "name": name}}}
	o.SetLabels(has)
	return o
}

// following is selections over a table that changes, which hear of changes some time later.
type following struct {
	t       *testing.T
	r       *rand.Rand
	x       *selections
	lagoon  *lagoon
	table   counted
	asked   map[atoll.Selection]map[claim.BundleID]bool
	pending map[atoll.ItemKey]bool
}

func matchesOf(s atoll.Selection, key atoll.ItemKey, o *unstructured.Unstructured) bool {
	return s.Covers(key) && claim.Labels(s).Matches(labels.Set(o.GetLabels()))
}

// write a template, or another edition of it.
func (f *following) write() {
	has := map[string]string{}
	for _, k := range []string{"a", "b"} {
		if n := f.r.IntN(3); n > 0 {
			has[k] = fmt.Sprint(n)
		}
	}
	o := settings([]string{"shop", "till"}[f.r.IntN(2)], fmt.Sprint("c", f.r.IntN(4)), has)
	f.lagoon.templates[claim.KeyOf(o)], f.pending[claim.KeyOf(o)] = o, true
}

// hear of a change: all whose selections match are told, and nobody else.
func (f *following) hear(key atoll.ItemKey) {
	delete(f.pending, key)
	o, ok := f.lagoon.templates[key]
	if !ok {
		f.x.gone(key)
		return
	}
	want := map[claim.BundleID]bool{}
	for s, users := range f.asked {
		if matchesOf(s, key, o) {
			maps.Copy(want, users)
		}
	}
	if told := f.x.hear(o); len(told) != len(want) || slices.ContainsFunc(told, func(id claim.BundleID) bool { return !want[id] }) {
		f.t.Fatalf("told %v, want %v", told, want)
	}
}

// ask for a selection: it is listed where nobody has asked for it before.
func (f *following) ask() {
	texts := []string{"", "a=1", "a in (1,2)", "b", "a=1,b notin (2)", "!a"}
	s := atoll.Selection{Kind: "ConfigMap", Namespace: []string{"shop", "till"}[f.r.IntN(2)], Labels: texts[f.r.IntN(len(texts))]}
	id, before := claim.BundleID{Name: fmt.Sprint("b", f.r.IntN(3))}, *f.table.lists
	f.x.find(s, id, f.table)
	if f.asked[s] != nil && *f.table.lists != before {
		f.t.Fatalf("%+v is listed again", s)
	}
	if f.asked[s] == nil {
		f.asked[s] = map[claim.BundleID]bool{}
	}
	f.asked[s][id] = true
}

// settled tells what is wrong once all is heard: each selection has what matches and nothing
// else, and so has a clone.
func (f *following) settled() {
	for key := range maps.Clone(f.pending) {
		f.hear(key)
	}
	twin, before := f.x.clone(), *f.table.lists
	for s := range f.asked {
		want := map[atoll.ItemKey]bool{}
		for key, o := range f.lagoon.templates {
			if matchesOf(s, key, o) {
				want[key] = true
			}
		}
		for _, one := range []*selections{f.x, twin} {
			got := one.find(s, claim.BundleID{Name: "b"}, f.table)
			if len(got) != len(want) || slices.ContainsFunc(got, func(key atoll.ItemKey) bool { return !want[key] }) || !maps.Equal(one.all[s].keys, want) {
				f.t.Fatalf("%+v finds %v and keeps %v, want %v", s, got, one.all[s].keys, want)
			}
		}
	}
	if *f.table.lists != before {
		f.t.Fatal("listed to find what is known")
	}
}

// Whatever comes, goes and changes its labels, in whatever order it is heard of, a selection
// has what matches, its users are told of each template that matches now, and nothing is
// listed twice.
func TestSelectionsFollowTheirTemplates(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := &lagoon{templates: map[atoll.ItemKey]*unstructured.Unstructured{}}
			f := &following{
				t: t, r: rand.New(rand.NewPCG(seed, 1)), x: newSelections(), lagoon: l, table: counted{lagoonTemplates{nil, l}, new(int)},
				asked: map[atoll.Selection]map[claim.BundleID]bool{}, pending: map[atoll.ItemKey]bool{},
			}
			for range 120 {
				switch f.r.IntN(5) {
				case 0, 1:
					f.write()
				case 2:
					for key := range l.templates {
						delete(l.templates, key)
						f.pending[key] = true
						break
					}
				case 3:
					for key := range f.pending {
						f.hear(key)
						break
					}
				case 4:
					f.ask()
				}
			}
			f.settled()
			for _, id := range []string{"b", "b0", "b1", "b2"} {
				f.x.uses(claim.BundleID{Name: id}, nil)
			}
			if !reflect.DeepEqual(f.x, newSelections()) {
				t.Fatalf("nobody uses them, and left is %+v", f.x)
			}
		})
	}
}

// trainers is shop with a Trainer cats that policy train places with all ConfigMaps that
// have the label of=cats, such as pictures.
func trainers(t *testing.T) (*lagoon, *Binder, *int) {
	t.Helper()
	l, b := shop(t)
	lists := 0
	b.Templates = counted{lagoonTemplates{nil, l}, &lists}
	x := &v1alpha1.ResourceInterpreter{}
	x.Name, x.Spec.Target = "x", v1alpha1.InterpreterTarget{Group: "ai.example", Kinds: []string{"Trainer"}}
	x.Spec.Dependencies = &v1alpha1.InterpreterRule{CEL: `[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'labelSelector': {'matchLabels': {'of': object.spec.data}}}]`}
	l.interpreters = script.NewLibrary([]*v1alpha1.ResourceInterpreter{x})
	cats := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ai.example/v1", "kind": "Trainer", "metadata": map[string]any{"name": "cats", "namespace": "shop", "uid": "t", "generation": int64(1)},
		"spec": map[string]any{"data": "cats"},
	}}
	pictures := settings("shop", "pictures", map[string]string{"of": "cats"})
	for _, o := range []*unstructured.Unstructured{cats, pictures, settings("shop", "sounds", map[string]string{"of": "dogs"})} {
		l.templates[claim.KeyOf(o)] = o
	}
	p := pp("train", "cats")
	p.Spec.ResourceSelectors[0].APIVersion, p.Spec.ResourceSelectors[0].Kind, p.Spec.PropagateDeps = "ai.example/v1", "Trainer", true
	l.policies = append(l.policies, p)
	b.index.setNamespace("shop", l.policies)
	return l, b, &lists
}

// foretold is what comes of some templates that are news, and of nothing else.
func foretold(t *testing.T, b *Binder, keys ...atoll.ItemKey) string {
	t.Helper()
	out, err := b.Foresee(t.Context(), Supposed{Templates: b.Templates, Namespaces: b.Namespaces, Policies: b.Policies, ChangedTemplates: keys})
	if err != nil {
		t.Fatal(err)
	}
	return told(out)
}

// A template that begins to match touches the Bundles that ask for it, whose plan lists
// nothing; one that does not match touches none.
func TestWhatBeginsToMatchTouchesWhoAsks(t *testing.T) {
	l, b, lists := trainers(t)
	cats := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	b.handle(event{template: cats, anew: true})
	id := claim.BundleID{Namespace: "shop", Name: "train"}
	plan := func() string {
		p, err := b.prepare(t.Context(), id, state.Bundle{}, false)
		if err != nil {
			t.Fatal(err)
		}
		p.out = claim.Plan(p.in)
		b.claims.wants(id, p.out.Wants, p.out.Selections)
		b.claims.has(id, "train", 1, &p.out.Content)
		var names []string
		for _, i := range p.out.Content.Items {
			names = append(names, i.Key.Name)
		}
		return fmt.Sprint(names)
	}
	if got := plan(); got != "[pictures cats]" || *lists != 1 {
		t.Fatalf("%s after %d lists", got, *lists)
	}
	news := func(name string, has map[string]string) string {
		o := settings("shop", name, has)
		l.templates[claim.KeyOf(o)] = o
		touched := collector{}
		b.quiet = touched
		b.handle(event{template: claim.KeyOf(o)})
		return fmt.Sprint(slices.SortedFunc(maps.Keys(touched), claim.BundleID.Compare))
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
	if !b.Holds(claim.Subject{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "new"}, Labels: map[string]string{"of": "cats"}}) {
		t.Error("what will match is not held")
	}
}

// What a user would label is foretold to come along, and the Binder stays as it is.
func TestForeseeByLabels(t *testing.T) {
	l, b, _ := trainers(t)
	cats := atoll.ItemKey{Group: "ai.example", Kind: "Trainer", Namespace: "shop", Name: "cats"}
	if got := foretold(t, b, cats); got != "train@1+: pictures cats" {
		t.Error(got)
	}
	b.handle(event{template: cats, anew: true})
	id := claim.BundleID{Namespace: "shop", Name: "train"}
	p, err := b.prepare(t.Context(), id, state.Bundle{}, false)
	if err != nil {
		t.Fatal(err)
	}
	p.out = claim.Plan(p.in)
	b.claims.wants(id, p.out.Wants, p.out.Selections)
	sounds := settings("shop", "sounds", map[string]string{"of": "cats"})
	supposed := l.clone()
	supposed.templates[claim.KeyOf(sounds)] = sounds
	out, err := b.Foresee(t.Context(), Supposed{
		Templates: lagoonTemplates{nil, supposed}, Namespaces: b.Namespaces, Policies: b.Policies, ChangedTemplates: []atoll.ItemKey{claim.KeyOf(sounds)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := told(out); got != "train@1+: pictures sounds cats" {
		t.Error(got)
	}
	if got := b.claims.selections.find(p.out.Selections[0], id, b.Templates); len(got) != 1 {
		t.Errorf("the Binder itself knows of %v", got)
	}
}
