package changes

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/render"
)

func parseFields(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestKeepGenerated(t *testing.T) {
	const secret = "apiVersion: v1\nkind: Secret\n"
	for name, c := range map[string]struct {
		form, existing, want string
		paths                []string
	}{
		"a field":              {"data: {a: new, b: new}", "data: {a: old, b: old}", "data: {a: old, b: new}", []string{"/data/a"}},
		"an escaped name":      {"data: {a/b: new}", "data: {a/b: old}", "data: {a/b: old}", []string{"/data/a~1b"}},
		"absent on the hub":    {"data: {a: new}", "data: {b: old}", "data: {a: new}", []string{"/data/a"}},
		"no map on the hub":    {"data: {a: new}", "data: [old]", "data: {a: new}", []string{"/data/a"}},
		"another type":         {"data: {a: new}", "data: {a: {b: old}}", "data: {a: new}", []string{"/data/a"}},
		"numbers":              {"data: {a: 1}", "data: {a: 1.5}", "data: {a: 1.5}", []string{"/data/a"}},
		"absent in the form":   {"data: {b: new}", "data: {a: old}", "data: {b: new}", []string{"/data/a"}},
		"an element by name":   {"l: [{name: x, v: new}, {name: y, v: new}]", "l: [{name: z, v: zz}, {name: y, v: old}, {v: q}, {name: x, v: old}]", "l: [{name: x, v: old}, {name: y, v: new}]", []string{"/l/name=x/v"}},
		"an absent element":    {"l: [{name: x, v: new}]", "l: [{name: z, v: old}]", "l: [{name: x, v: new}]", []string{"/l/name=x/v"}},
		"a list as a whole":    {"l: [new, a]", "l: [old]", "l: [old]", []string{"/l"}},
		"stringData":           {secret + "stringData: {a: new}", secret + "data: {a: b2xk}", secret + "stringData: {a: old}", []string{"/stringData/a"}},
		"stringData of binary": {secret + "stringData: {a: new}", secret + "data: {a: //79}", secret + "stringData: {a: new}", []string{"/stringData/a"}},
		"stringData, absent":   {secret + "stringData: {a: new}", secret, secret + "stringData: {a: new}", []string{"/stringData/a"}},
		"data of a Secret":     {secret + "data: {a: bmV3}", secret + "data: {a: b2xk}", secret + "data: {a: b2xk}", []string{"/data/a"}},
		"stringData of others": {"stringData: {a: new}", "data: {a: b2xk}\nstringData: {a: old}", "stringData: {a: old}", []string{"/stringData/a"}},
		"nothing generated":    {"data: {a: new}", "data: {a: old}", "data: {a: new}", nil},
	} {
		form, existing := parseFields(t, c.form), parseFields(t, c.existing)
		got := KeepGenerated(form, existing, c.paths)
		if want := parseFields(t, c.want); !reflect.DeepEqual(got.Object, want.Object) {
			t.Errorf("%s: %v, want %v", name, got.Object, want.Object)
		}
		if !reflect.DeepEqual(form, parseFields(t, c.form)) || !reflect.DeepEqual(existing, parseFields(t, c.existing)) {
			t.Errorf("%s: an argument is changed", name)
		}
		if again := KeepGenerated(got, existing, c.paths); !reflect.DeepEqual(again, got) {
			t.Errorf("%s: the second time: %v", name, again.Object)
		}
	}
	form := parseFields(t, "data: {a: new}")
	if got := KeepGenerated(form, nil, []string{"/data/a"}); got != form {
		t.Errorf("without an object on the hub: %v", got)
	}
}

// fillRandomly returns a value of a shape whose leaves marked ? are random.
func fillRandomly(r *rand.Rand, shape any) any {
	switch v := shape.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, one := range v {
			out[key] = fillRandomly(r, one)
		}
		return out
	case []any:
		out := []any{}
		for _, one := range v {
			out = append(out, fillRandomly(r, one))
		}
		return out
	case string:
		if v == "?" {
			return fmt.Sprint(r.Uint64())
		}
	}
	return shape
}

// randomShape returns a value in which some texts are ?.
func randomShape(r *rand.Rand, depth int) any {
	switch n := r.IntN(5); {
	case n < 2 && depth > 0:
		out := map[string]any{}
		for range 1 + r.IntN(3) {
			out[string(rune('a'+r.IntN(26)))] = randomShape(r, depth-1)
		}
		return out
	case n == 2 && depth > 0:
		out := []any{}
		for i := range 1 + r.IntN(3) {
			if r.IntN(2) == 0 {
				out = append(out, map[string]any{"name": string(rune('a' + i)), "v": randomShape(r, depth-1)})
			} else {
				out = append(out, randomShape(r, depth-1))
			}
		}
		return out
	}
	return []string{"fixed", "?"}[r.IntN(2)]
}

// The hub keeps all of what it had first of two renderings, and the hash of an object is the same each time.
func TestTheFirstRenderingIsKept(t *testing.T) {
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	find := func(gvk schema.GroupVersionKind) (ServedKind, bool) { return ServedKind{IsNamespaced: true}, true }
	r := rand.New(rand.NewPCG(3, 4))
	generated := 0
	for range 500 {
		shape := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"v": randomShape(r, 4)}}
		rendered := func() map[string]any { return fillRandomly(r, shape).(map[string]any) }
		newTemplates := func() Templates {
			one, other := rendered(), rendered()
			paths, ok := render.FindGenerated(one, other)
			if !ok {
				t.Fatalf("%v and %v are refused", one, other)
			}
			w, problems := NewTemplates(s, render.Result{Objects: []render.Object{{Fields: one, File: "a", Generated: paths}}}, "c", find)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			generated += len(paths)
			return w
		}
		first, second := newTemplates(), newTemplates()
		hub := first.Objects[0]
		if got := KeepGenerated(second.Objects[0], hub, second.Generated[0]); !reflect.DeepEqual(got.Object, hub.Object) || first.Keys[0].Hash != second.Keys[0].Hash {
			t.Fatalf("%v is kept as %v by %q", hub.Object, got.Object, second.Generated[0])
		}
	}
	if generated < 500 {
		t.Errorf("only %d fields differ", generated)
	}
}

func TestDescribeGenerated(t *testing.T) {
	w := Templates{Keys: []v1alpha1.SourceObject{{Kind: "Secret", Name: "a"}, {Kind: "ConfigMap", Name: "b"}}, Generated: [][]string{{"/data/x", "/data/y"}, nil}}
	if got := w.DescribeGenerated(); !strings.Contains(got, "in Secret a at /data/x, /data/y. ") {
		t.Error(got)
	}
	w.Generated[0] = nil
	if got := w.DescribeGenerated(); got != "" {
		t.Error(got)
	}
}
