package render_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// renderVariants renders plain files with the variants, and charts as a ConfigMap of their values. It returns the Result and
// how many parts were rendered.
func renderVariants(t *testing.T, files map[string]string, w render.Want) (render.Result, int) {
	t.Helper()
	tree, runs := newTree(files), 0
	s, err := render.Select(tree, w)
	if err != nil {
		return render.Result{Failure: err.(*render.Failure)}, 0
	}
	result, err := s.Render(tree, func(j render.Job) (render.Result, error) {
		return render.RenderVariants(j, func(one render.Job) render.Result {
			runs++
			var r render.Reader
			r.ReadPlain(one)
			for _, b := range one.Builds {
				h := one.Options.Helm
				r.ReadFile(b.Dir+"/a.yaml", fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: chart}\ndata: {v: '%s%s'}\n", h.ValuesFiles, h.VariantFiles))
			}
			result := r.NewResult()
			result.Builds = one.Builds
			return result
		}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return result, runs
}

// describeObjects names objects with their files and data.
func describeObjects(objects []render.Object) string {
	var out []string
	for _, o := range objects {
		data, err := json.Marshal(o.Fields["data"])
		if err != nil {
			panic(err)
		}
		out = append(out, fmt.Sprintf("%s:%d %v %s", o.File, o.Line, o.Fields["metadata"].(map[string]any)["name"], data))
	}
	return strings.Join(out, "; ")
}

// describeVariant returns the objects of a variant in a few words.
func describeVariant(t *testing.T, r render.Result, name string) string {
	t.Helper()
	objects, ok := r.ObjectsOf(name)
	if !ok {
		return "none"
	}
	return describeObjects(objects)
}

// Another path, values and patches make the objects of a variant. The objects without a variant stay as they are.
func TestVariantsOfATree(t *testing.T) {
	files := map[string]string{
		"a/a.yaml": object + "data: {v: \"1\", w: x}\n", "a/b.yaml": strings.Replace(object, "name: a", "name: b", 1), "b/a.yaml": object + "data: {v: \"2\"}\n",
		"chart/Chart.yaml": chartFile, "prod.yaml": "a: 1\n", "base.yaml": "a: 1\n",
	}
	patch := func(text string) render.Variant {
		return render.Variant{Name: "v", Patches: []json.RawMessage{json.RawMessage(text)}}
	}
	const base = `a/a.yaml:1 a {"v":"1","w":"x"}; a/b.yaml:1 b null`
	for name, c := range map[string]struct {
		variant render.Variant
		want    string
	}{
		"the same":          {render.Variant{Name: "v"}, base},
		"a path":            {render.Variant{Name: "v", Paths: []string{"b"}}, `b/a.yaml:1 a {"v":"2"}`},
		"two paths":         {render.Variant{Name: "v", Paths: []string{"b", "a/b.yaml"}}, `a/b.yaml:1 b null; b/a.yaml:1 a {"v":"2"}`},
		"a patch":           {patch(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":""},"data":{"v":"3","w":null}}`), `a/b.yaml:1 b null; a/a.yaml:1 a {"v":"3"}`},
		"a patch that ends": {patch(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"$patch":"delete"}`), `a/b.yaml:1 b null`},
	} {
		r, _ := renderVariants(t, files, render.Want{Paths: []string{"a"}, Variants: []render.Variant{c.variant}})
		if got := describeVariant(t, r, "v"); got != c.want || describeObjects(r.Objects) != base {
			t.Errorf("%s:\n%s, want\n%s (%+v)", name, got, c.want, r)
		}
	}
	helm := func(files ...string) render.Options {
		return render.Options{Helm: &render.HelmOptions{ValuesFiles: []string{"base.yaml"}, VariantFiles: files}}
	}
	r, runs := renderVariants(t, files, render.Want{Paths: []string{"chart"}, Options: helm(), Variants: []render.Variant{{Name: "same", Options: helm()}, {Name: "v", Options: helm("prod.yaml")}, {Name: "w", Options: helm("prod.yaml")}}})
	if describeVariant(t, r, "same") != describeObjects(r.Objects) || describeVariant(t, r, "w") != `chart/a.yaml:1 chart {"v":"[base.yaml][prod.yaml]"}` || runs != 2 || describeVariant(t, r, "x") != "none" {
		t.Errorf("%d runs: %+v", runs, r)
	}
	mayBeUnused := helm()
	mayBeUnused.Helm.MayBeUnused = true
	r, _ = renderVariants(t, files, render.Want{Paths: []string{"chart"}, Options: helm(), Variants: []render.Variant{{Name: "v", Paths: []string{"b"}, Options: mayBeUnused}}})
	if describeVariant(t, r, "v") != `b/a.yaml:1 a {"v":"2"}` || len(r.Builds) != 1 {
		t.Errorf("without the chart: %+v", r)
	}
}

// A strategic merge changes the element of a list that has its name.
func TestPatchesMergeLists(t *testing.T) {
	const web = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"template":{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}]}}}}`
	patch := strings.NewReplacer(`{"name":"a","image":"x"},`, ``, `"y"`, `"z"`).Replace(web)
	r, _ := renderVariants(t, map[string]string{"a.yaml": web, "b.yaml": strings.NewReplacer("apps/v1", "example.com/v1", "Deployment", "Thing").Replace(web)}, render.Want{Variants: []render.Variant{
		{Name: "v", Patches: []json.RawMessage{json.RawMessage(patch), json.RawMessage(strings.NewReplacer("apps/v1", "example.com/v1", "Deployment", "Thing").Replace(patch))}},
	}})
	got, _ := json.Marshal(r.Variants)
	if !strings.Contains(string(got), `"containers":[{"image":"x","name":"a"},{"image":"z","name":"b"}]`) || !strings.Contains(string(got), `"containers":[{"image":"z","name":"b"}]`) {
		t.Errorf("%s %+v", got, r)
	}
}

// A problem of a variant makes the whole content incomplete, and names the variant.
func TestVariantsThatAreIncomplete(t *testing.T) {
	files := map[string]string{"a/a.yaml": object, "bad/a.yaml": "kind: ConfigMap\n", "empty/readme.md": "x", "chart/Chart.yaml": chartFile, "big/a.yaml": object + "data: {v: " + strings.Repeat("x", 900<<10) + "}\n"}
	patches := func(texts ...string) (out render.Variant) {
		for out.Name = "v"; len(texts) > 0; texts = texts[1:] {
			out.Patches = append(out.Patches, json.RawMessage(texts[0]))
		}
		return out
	}
	var big []render.Variant
	for i := range 5 {
		big = append(big, render.Variant{Name: fmt.Sprint("v", i), Paths: []string{"big"}})
	}
	for name, c := range map[string]struct {
		variants []render.Variant
		want     string
	}{
		"an object of no form": {[]render.Variant{{Name: "v", Paths: []string{"bad"}}}, "bad/a.yaml:1: variant v: it is no Kubernetes object"},
		"no object":            {[]render.Variant{{Name: "v", Paths: []string{"empty"}}}, string(atoll.ReasonContentEmpty) + " variant v has no object, which is not an exclusion"},
		"no such file":         {[]render.Variant{{Name: "v", Paths: []string{"chart"}, Options: render.Options{Helm: &render.HelmOptions{VariantFiles: []string{"x.yaml"}}}}}, "x.yaml: variant v: helm.valuesFiles names the file, which the repository does not have"},
		"values without chart": {[]render.Variant{{Name: "v", Options: render.Options{Helm: &render.HelmOptions{VariantFiles: []string{"a/a.yaml"}}}}}, "a: variant v: helm is stated, and no path"},
		"a patch of no object": {[]render.Variant{patches(`7`)}, "spec.variants[v].patches[0]: the patch is no part of an object"},
		"a patch without kind": {[]render.Variant{patches(`{"apiVersion":"v1","metadata":{"name":"a"}}`)}, "spec.variants[v].patches[0]: it is no Kubernetes object, because it has no kind"},
		"a patch of another":   {[]render.Variant{patches(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"z"}}`)}, "spec.variants[v].patches[0]: the variant has no ConfigMap z"},
		"a patch of no fit":    {[]render.Variant{patches(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":1}}}`)}, "spec.variants[v].patches[0]: a value in metadata.labels is no text"},
		"patches that end all": {[]render.Variant{patches(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"$patch":"delete"}`)}, "spec.variants[v].patches: the patches delete every object"},
		"too many bytes":       {big, string(atoll.ReasonContentTooLarge) + " the objects that differ in variants have more than 4194304 bytes"},
		"a directory too deep": {[]render.Variant{{Name: "v", Paths: []string{"a"}, Options: render.Options{Type: render.Helm}}}, "a: variant v: spec.build.type is Helm"},
	} {
		r, _ := renderVariants(t, files, render.Want{Paths: []string{"a"}, Variants: c.variants})
		got := ""
		if r.Failure != nil {
			got = string(r.Failure.Reason) + " " + r.Failure.Message
		}
		for _, p := range r.Problems {
			got += p.Format() + "\n"
		}
		if !strings.HasPrefix(got, c.want) || len(r.Objects) > 0 && len(r.Problems)+len(r.Variants) > 0 {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The files of a variant, and how objects are made of them, are of the digest.
func TestDigestsHaveVariants(t *testing.T) {
	digest := func(v render.Variant) string {
		t.Helper()
		s, err := render.Select(newTree(map[string]string{"a/a.yaml": object, "b/b.yaml": object}), render.Want{Paths: []string{"a"}, Variants: []render.Variant{v}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest()
	}
	v := render.Variant{Name: "v", Paths: []string{"b"}}
	if digest(v) == digest(render.Variant{Name: "v", Paths: []string{"a"}}) || digest(v) == digest(render.Variant{Name: "v", Paths: []string{"b"}, Patches: []json.RawMessage{json.RawMessage("{}")}}) {
		t.Error("two variants have one digest")
	}
}
