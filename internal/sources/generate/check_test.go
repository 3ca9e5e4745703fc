package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestCheck(t *testing.T) {
	const list = "{list: {elements: [{name: a}]}}"
	tree := func(kind, more string) string {
		return "[{" + kind + ": {repository: shop, ref: {branch: main}" + more + "}}]"
	}
	for name, c := range map[string]struct{ generators, template, want string }{
		"a list":                   {"[" + list + "]", plainTemplate, ""},
		"all kinds":                {"[" + list + ", {clusters: {labelSelector: {matchLabels: {a: b}}}}, {matrix: {generators: [" + list + ", " + list + "]}}, {merge: {keys: [name], generators: [" + list + ", " + list + "]}}]", plainTemplate, ""},
		"directories":              {tree("directories", ", paths: ['apps/*', '**/x'], exclude: [.git, '*.md']"), plainTemplate, ""},
		"no generator":             {"[]", plainTemplate, "spec.generators: Required value"},
		"many generators":          {"[" + strings.Repeat(list+", ", 8) + list + "]", plainTemplate, "spec.generators: Too many: 9: must have at most 8 items"},
		"none stated":              {"[{}]", plainTemplate, "spec.generators[0]: Invalid value: states 0 generators: give one of list, clusters, directories, files, matrix, merge"},
		"two stated":               {"[{list: {elements: []}, clusters: {}}]", plainTemplate, "spec.generators[0]: Invalid value: states 2 generators"},
		"one and a matrix":         {"[{list: {elements: []}, matrix: {generators: [" + list + ", " + list + "]}}]", plainTemplate, "spec.generators[0]: Invalid value: states 2 generators"},
		"a matrix of one":          {"[{matrix: {generators: [" + list + "]}}]", plainTemplate, "spec.generators[0].matrix.generators: Invalid value: has 1 generators"},
		"a matrix of three":        {"[{matrix: {generators: [" + list + ", " + list + ", " + list + "]}}]", plainTemplate, "spec.generators[0].matrix.generators: Invalid value: has 3 generators"},
		"a matrix of nothing":      {"[{matrix: {generators: [" + list + ", {}]}}]", plainTemplate, "spec.generators[0].matrix.generators[1]: Invalid value: states 0 generators"},
		"a merge of five":          {"[{merge: {keys: [a], generators: [" + strings.Repeat(list+", ", 4) + list + "]}}]", plainTemplate, "spec.generators[0].merge.generators: Invalid value: has 5 generators"},
		"a merge without keys":     {"[{merge: {keys: [], generators: [" + list + ", " + list + "]}}]", plainTemplate, "spec.generators[0].merge.keys: Required value"},
		"a merge, an empty key":    {"[{merge: {keys: [''], generators: [" + list + ", " + list + "]}}]", plainTemplate, "spec.generators[0].merge.keys: Required value"},
		"an element that is none":  {"[{list: {elements: [{name: a}, [a]]}}]", plainTemplate, "spec.generators[0].list.elements[1]: Invalid value: the element is no map of parameters"},
		"a large element":          {"[{list: {elements: [{a: " + strings.Repeat("x", MaxElementBytes) + "}]}}]", plainTemplate, "spec.generators[0].list.elements[0]: Invalid value: the element has more than 8192 bytes"},
		"many large elements":      {"[{list: {elements: [" + strings.Repeat("{a: "+strings.Repeat("x", 8000)+"}, ", 66) + "{}]}}]", plainTemplate, "spec.generators: Too long"},
		"large lists together":     {"[" + strings.Repeat("{list: {elements: ["+strings.Repeat("{a: "+strings.Repeat("x", 8000)+"}, ", 34)+"{}]}}, ", 2) + "]", plainTemplate, "spec.generators: Too long"},
		"many elements":            {"[{list: {elements: [" + strings.Repeat("{a: b}, ", 1000) + "{}]}}]", plainTemplate, "spec.generators[0].list.elements: Too many: 1001"},
		"a selector of nothing":    {"[{clusters: {labelSelector: {matchLabels: {'a b': c}}}}]", plainTemplate, "spec.generators[0].clusters.labelSelector: Invalid value"},
		"no paths":                 {tree("files", ""), plainTemplate, "spec.generators[0].files.paths: Required value"},
		"a path out":               {tree("files", ", paths: [../a]"), plainTemplate, "spec.generators[0].files.paths[0]: Invalid value"},
		"an absolute path":         {tree("files", ", paths: [a, /a]"), plainTemplate, "spec.generators[0].files.paths[1]: Invalid value"},
		"an empty part":            {tree("files", ", paths: [a//b]"), plainTemplate, "spec.generators[0].files.paths[0]: Invalid value"},
		"no pattern":               {tree("directories", ", paths: ['[']"), plainTemplate, "spec.generators[0].directories.paths[0]: Invalid value"},
		"a class over two parts":   {tree("directories", ", paths: ['apps/[a/b]']"), plainTemplate, "is no pattern"},
		"a slash alone":            {tree("directories", ", paths: ['/']"), plainTemplate, "is no pattern"},
		"a backslash":              {tree("directories", `, paths: ['a\b']`), plainTemplate, "control characters"},
		"an exclusion out":         {tree("directories", ", paths: [a], exclude: [../b]"), plainTemplate, "spec.generators[0].directories.exclude[0]: Invalid value"},
		"no repository":            {"[{files: {repository: 'A b', ref: {branch: main}, paths: [a]}}]", plainTemplate, "spec.generators[0].files.repository: Invalid value"},
		"a text that is none":      {"[" + list + "]", "{metadata: {name: '{{.name'}, spec: {repository: shop}}", "spec.template.metadata.name: Invalid value: text:1: unclosed action"},
		"a text in the spec":       {"[" + list + "]", "{metadata: {name: a}, spec: {repository: shop, paths: [a, '{{range .x}}{{end}}']}}", "spec.template.spec.paths[1]: Invalid value"},
		"an unknown field":         {"[" + list + "]", "{metadata: {name: a}, spec: {repository: shop, path: a}}", `spec.template.spec: Invalid value: error unmarshaling JSON: while decoding JSON: json: unknown field "path"`},
		"no repository in it":      {"[" + list + "]", "{metadata: {name: a}, spec: {paths: [a]}}", "spec.template.spec: Invalid value: repository is missing"},
		"the hub's label":          {"[" + list + "]", "{metadata: {name: a, labels: {atoll.dev/source-set: b}}, spec: {repository: shop}}", "spec.template.metadata.labels[atoll.dev/source-set]: Forbidden: the hub sets it"},
		"an annotation's bad name": {"[" + list + "]", "{metadata: {name: a, annotations: {'a b': c}}, spec: {repository: shop}}", "spec.template.metadata.annotations[a b]: Invalid value"},
	} {
		errs := Check(newSet(t, c.generators, c.template))
		if got := fmt.Sprint(errs); c.want == "" && len(errs) > 0 || !strings.Contains(got, c.want) {
			t.Errorf("%s: %.300s, want %s", name, got, c.want)
		}
	}
	set := newSet(t, "["+list+"]", plainTemplate)
	set.Name, set.Spec.ServiceAccountName = strings.Repeat("a", 64), "A b"
	if got := fmt.Sprint(Check(set)); !strings.Contains(got, "metadata.name: Invalid value") || !strings.Contains(got, "spec.serviceAccountName: Invalid value") {
		t.Error(got)
	}
}

// Each leaf has its path in the spec, and what it reads.
func TestListLeaves(t *testing.T) {
	set := newSet(t, `[{list: {elements: []}}, {matrix: {generators: [{directories: {repository: a, ref: {tag: v1}, paths: [x], exclude: [e]}}, {clusters: {}}]}},
	  {merge: {keys: [k], generators: [{files: {repository: b, ref: {branch: main}, paths: [z]}}, {list: {elements: []}}]}}, {}]`, plainTemplate)
	var got []string
	for _, l := range ListLeaves(&set.Spec) {
		text := fmt.Sprint(l.Generator, " ", l.Path, " ", l.UsesClusters())
		if r := l.Reading(); r != nil {
			text += fmt.Sprint(" ", r.Repository, r.Ref.Tag, r.Ref.Branch, r.Want)
		}
		got = append(got, text)
	}
	want := []string{
		"0 generators[0].list false", "1 generators[1].matrix.generators[0].directories false av1{false [x] [e]}", "1 generators[1].matrix.generators[1].clusters true",
		"2 generators[2].merge.generators[0].files false bmain{true [z] []}", "2 generators[2].merge.generators[1].list false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Every kind of generators of the API is in the table.
func TestTheTableHasEveryGenerator(t *testing.T) {
	names := GeneratorNames()
	for _, want := range []string{"list", "clusters", "directories", "files", "matrix", "merge"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
	if n := len(names); n != 6 || countStated(&v1alpha1.SourceEntryGenerator{}) != 0 {
		t.Errorf("%d kinds", n)
	}
}
