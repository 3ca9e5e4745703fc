package generate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

const plainTemplate = "{metadata: {name: '{{.name}}'}, spec: {repository: shop, ref: {branch: main}, paths: ['{{.name}}']}}"

// newSet returns the SourceSet apps in the namespace shop.
func newSet(t *testing.T, generators, template string) *v1alpha1.SourceSet {
	t.Helper()
	set := &v1alpha1.SourceSet{}
	text := "{metadata: {name: apps, namespace: shop, uid: u}, spec: {generators: " + generators + ", template: " + template + "}}"
	if err := yaml.UnmarshalStrict([]byte(text), set); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return set
}

// newListing returns a listing of paths, each with values after a space.
func newListing(entries ...string) *render.Listing {
	l := &render.Listing{}
	for i, e := range entries {
		path, values, hasValues := strings.Cut(e, " ")
		one := render.ListedEntry{Path: path}
		if hasValues {
			one.Values, one.Line = json.RawMessage(values), i+1
		}
		l.Entries = append(l.Entries, one)
	}
	return l
}

var twoClusters = []Cluster{{"oslo", map[string]string{"env": "prod", "a.b/c": "d"}}, {"bergen", map[string]string{"env": "test"}}}

// describeResult returns the names of what is made, or the problems.
func describeResult(r Result, problems []Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, string(p.Reason)+" "+p.Format())
	}
	for _, m := range r.Made {
		out = append(out, m.Name)
	}
	for _, i := range r.Empty {
		out = append(out, fmt.Sprint("empty ", i))
	}
	return strings.Join(out, " ")
}

func TestGenerate(t *testing.T) {
	const (
		list  = "{list: {elements: [{name: a, v: 1}, {name: b, v: 2}]}}"
		dirs  = "{directories: {repository: shop, ref: {branch: main}, paths: ['apps/*']}}"
		files = "{files: {repository: shop, ref: {branch: main}, paths: ['c/*.yaml']}}"
	)
	byName := func(text string) string {
		return "{metadata: {name: '" + text + "'}, spec: {repository: shop, ref: {branch: main}}}"
	}
	for name, c := range map[string]struct {
		generators, template string
		listings             map[string]*render.Listing
		want                 string
	}{
		"a list":                 {"[" + list + "]", plainTemplate, nil, "a b"},
		"an empty list":          {"[{list: {elements: []}}]", plainTemplate, nil, "empty 0"},
		"clusters":               {"[{clusters: {}}]", byName("{{.cluster.name}}"), nil, "bergen oslo"},
		"selected clusters":      {"[{clusters: {labelSelector: {matchLabels: {env: prod}}}}]", byName("x-{{.cluster.labels.env}}-{{.cluster.name}}"), nil, "x-prod-oslo"},
		"no cluster":             {"[{clusters: {labelSelector: {matchLabels: {env: none}}}}, " + list + "]", byName("{{.name}}"), nil, "a b empty 0"},
		"directories":            {"[" + dirs + "]", byName("{{.path.basenameNormalized}}-{{len .path.segments}}"), map[string]*render.Listing{"generators[0].directories": newListing("apps/Web_1", "apps/db")}, "db-2 web-1-2"},
		"no directory":           {"[" + dirs + "]", byName("{{.path.basename}}"), map[string]*render.Listing{"generators[0].directories": newListing()}, "empty 0"},
		"files":                  {"[" + files + "]", byName("{{.name}}-{{.path.basename}}-{{.path.filenameNormalized}}-{{.port}}"), map[string]*render.Listing{"generators[0].files": newListing(`c/a.yaml {"name":"x","port":80}`)}, "x-c-a-yaml-80"},
		"files at the root":      {"[" + files + "]", byName("{{.name}}{{.path.basename}}"), map[string]*render.Listing{"generators[0].files": newListing(`a.yaml {"name":"x"}`)}, "x"},
		"a file with path":       {"[" + files + "]", byName("x"), map[string]*render.Listing{"generators[0].files": newListing(`c/a.yaml {"path":"x"}`)}, "ParametersInvalid spec.generators[0].files: c/a.yaml:1: the key path is the one of the file itself; rename it"},
		"a missing key":          {"[" + list + "]", byName("{{.names}}"), nil, `TemplateFailed spec.generators[0].list: spec.template.metadata.name: text:1:2: executing "text" at <.names>: map has no entry for key "names" TemplateFailed spec.generators[0].list: spec.template.metadata.name: text:1:2: executing "text" at <.names>: map has no entry for key "names"`},
		"one name twice":         {"[{list: {elements: [{name: a}, {name: a}]}}]", plainTemplate, nil, "ParametersInvalid spec.generators[0].list: the entry gives the name a, as another entry of generators[0].list does; use more parameters in spec.template.metadata.name"},
		"one name of two":        {"[" + list + ", {list: {elements: [{name: b}]}}]", plainTemplate, nil, "ParametersInvalid spec.generators[1].list: the entry gives the name b, as another entry of generators[0].list does; use more parameters in spec.template.metadata.name"},
		"no name":                {"[{list: {elements: [{name: A_b}]}}]", plainTemplate, nil, `TemplateFailed spec.generators[0].list: spec.template.metadata.name gives "A_b", which is no name of a Source: a lowercase RFC 1123 subdomain`},
		"a long name":            {"[{list: {elements: [{name: " + strings.Repeat("a", 64) + "}]}}]", plainTemplate, nil, `TemplateFailed spec.generators[0].list: spec.template.metadata.name gives "` + strings.Repeat("a", 64)},
		"a matrix":               {"[{matrix: {generators: [" + list + ", {clusters: {}}]}}]", byName("{{.name}}-{{.cluster.name}}"), nil, "a-bergen a-oslo b-bergen b-oslo"},
		"a matrix, one empty":    {"[{matrix: {generators: [" + list + ", {list: {elements: []}}]}}, {list: {elements: [{name: c}]}}]", plainTemplate, nil, "c empty 0"},
		"a matrix in conflict":   {"[{matrix: {generators: [" + list + ", {list: {elements: [{name: c}]}}]}}]", plainTemplate, nil, "ParametersInvalid spec.generators[0].matrix.generators[1].list: both generators of the matrix give the parameter name, with other values; rename it in one of them"},
		"a matrix in agreement":  {"[{matrix: {generators: [{list: {elements: [{name: a, x: {w: 1}}]}}, {list: {elements: [{z: b, x: {w: 1}}]}}]}}]", byName("{{.name}}{{.z}}{{.x.w}}"), nil, "ab1"},
		"a merge":                {"[{merge: {keys: [name], generators: [" + list + ", {list: {elements: [{name: b, v: 3, w: x}, {name: c}]}}]}}]", byName("{{.name}}-{{.v}}{{if hasKey . \"w\"}}-{{.w}}{{end}}"), nil, "a-1 b-3-x"},
		"a merge of three":       {"[{merge: {keys: [name], generators: [" + list + ", {list: {elements: [{name: a, v: 3}]}}, {list: {elements: [{name: a, v: 4}]}}]}}]", byName("{{.name}}-{{.v}}"), nil, "a-4 b-2"},
		"a merge by two keys":    {"[{merge: {keys: [cluster.name, name], generators: [{list: {elements: [{name: a, cluster: {name: x}}, {name: a, cluster: {name: w}}]}}, {list: {elements: [{name: a, cluster: {name: w}, z: 1}]}}]}}]", byName("{{.name}}-{{.cluster.name}}{{if hasKey . \"z\"}}-{{.z}}{{end}}"), nil, "a-w-1 a-x"},
		"a merge of clusters":    {"[{merge: {keys: [cluster.name], generators: [{clusters: {}}, {list: {elements: [{cluster: {name: oslo, size: 3}}]}}]}}]", byName("{{.cluster.name}}-{{.cluster.labels.env}}{{if hasKey .cluster \"size\"}}-{{.cluster.size}}{{end}}"), nil, "bergen-test oslo-prod-3"},
		"a merge without a key":  {"[{merge: {keys: [id], generators: [" + list + ", " + list + "]}}]", plainTemplate, nil, "ParametersInvalid spec.generators[0].merge.generators[0].list: an entry has no text, number or boolean in id, which is a key of the merge"},
		"a merge, one key twice": {"[{merge: {keys: [v], generators: [{list: {elements: [{v: 1, name: a}]}}, {list: {elements: [{v: 1}, {v: 1}]}}]}}]", plainTemplate, nil, "ParametersInvalid spec.generators[0].merge.generators[1].list: two entries of one generator have the same keys of the merge (v)"},
		"a merge, later empty":   {"[{merge: {keys: [name], generators: [" + list + ", {list: {elements: []}}]}}]", plainTemplate, nil, "empty 0"},
		"a field of no Source":   {"[" + list + "]", "{metadata: {name: '{{.name}}'}, spec: {repository: shop, path: x}}", nil, "TemplateFailed spec.generators[0].list: spec.template.spec gives no spec of a Source"},
		"a bad label":            {"[" + list + "]", "{metadata: {name: '{{.name}}', labels: {a: 'x y'}}, spec: {repository: shop}}", nil, `TemplateFailed spec.generators[0].list: spec.template.metadata.labels: a: "x y" is no value of a label`},
	} {
		set := newSet(t, c.generators, c.template)
		got := describeResult(Generate(set, Facts{Listings: c.listings, Clusters: twoClusters}))
		if got != c.want && (len(c.want) < 60 || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}

// Parameters reach each text of the template, and what it does not state is not in the Source.
func TestMadeSource(t *testing.T) {
	set := newSet(t, "[{matrix: {generators: [{list: {elements: [{team: Blue, num: 3, deep: {list: [x, w]}}]}}, {clusters: {labelSelector: {matchLabels: {env: prod}}}}]}}]", `
  {metadata: {name: '{{.team | lower}}-{{.cluster.name}}', labels: {team: '{{.team}}'}, annotations: {note: 'n is {{.num}}, {{index .cluster.labels "a.b/c"}}'}},
   spec: {repository: shop, ref: {branch: '{{index .deep.list 1}}'}, paths: ['a/{{.team}}', plain], force: true,
          placement: {clusterAffinity: {clusterNames: ['{{.cluster.name}}']}}, build: {helm: {values: {num: 3, text: '{{"{{"}} {{.num}}'}}}}}`)
	result, problems := Generate(set, Facts{Clusters: twoClusters})
	if len(problems) > 0 || len(result.Made) != 1 {
		t.Fatal(describeResult(result, problems))
	}
	got, err := json.Marshal(result.Made[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"atoll.dev/v1alpha1","kind":"Source","metadata":{"annotations":{"note":"n is 3, d"},"labels":{"atoll.dev/source-set":"apps","team":"Blue"},"name":"blue-oslo","namespace":"shop"},` +
		`"spec":{"build":{"helm":{"values":{"num":3,"text":"{{ 3"}}},"force":true,"paths":["a/Blue","plain"],"placement":{"clusterAffinity":{"clusterNames":["oslo"]}},"ref":{"branch":"w"},"repository":"shop"}}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if m := result.Made[0]; m.Cluster != "oslo" || m.Generator != 0 || m.Path != "generators[0].matrix" || len(m.Hash) != 16 {
		t.Errorf("%+v", m)
	}
}

// numberedKeys returns keys of parameters.
func numberedKeys(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("k%d", i))
	}
	return out
}

// Each bound is a problem with the place that exceeds it.
func TestBounds(t *testing.T) {
	elements := func(n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("{name: n%d, i%d: 1}", i, i))
		}
		return "{list: {elements: [" + strings.Join(out, ", ") + "]}}"
	}
	wide := strings.ReplaceAll(elements(40), "name", strings.Join(numberedKeys(300), ": 1, ")+": 1, name")
	long := strings.Repeat("x", MaxTextBytes)
	for name, c := range map[string]struct {
		generators, template, want string
	}{
		"as many as allowed": {"[" + elements(v1alpha1.MaxGeneratedSources) + "]", plainTemplate, ""},
		"too many":           {"[" + elements(v1alpha1.MaxGeneratedSources) + ", {list: {elements: [{name: more}]}}]", plainTemplate, "TooManySources spec.generators: it gives 1001 entries, and a SourceSet makes at most 1000 Sources"},
		"a large matrix":     {"[{matrix: {generators: [" + elements(40) + ", " + strings.ReplaceAll(elements(26), "name", "other") + "]}}]", plainTemplate, "TooManySources spec.generators[0].matrix: it gives 1040 entries"},
		"a wide matrix":      {"[{matrix: {generators: [" + wide + ", " + strings.ReplaceAll(elements(25), "name", "other") + "]}}]", plainTemplate, "ParametersInvalid spec.generators[0].matrix: its combinations have 304000 parameters together, and at most 262144 are allowed"},
		"much work":          {"[{list: {elements: [{name: a, x: " + long[:8000] + "}, {name: b, x: " + long[:8000] + "}, {name: c, x: " + long[:8000] + "}]}}]", "{metadata: {name: '{{.name}}'}, spec: {repository: shop, paths: [" + strings.Repeat("'{{$x := print .x .x}}"+strings.Repeat("{{$y := lower $x}}", 800)+"a', ", 4) + "]}}", "TemplateFailed spec.generators[0].list: spec.template.spec.paths[2]: the texts of all Sources together take more than 128 MiB of work"},
		"a large element":    {"[{list: {elements: [{name: a, x: " + long[:MaxElementBytes] + "}]}}]", plainTemplate, "ParametersInvalid spec.generators[0].list.elements[0]: the element has more than 8192 bytes"},
		"a large text":       {"[{list: {elements: [{name: a, x: " + long[:6000] + "}]}}]", "{metadata: {name: '{{.name}}'}, spec: {repository: shop, targetNamespace: '{{.x}}{{.x}}{{.x}}'}}", "TemplateFailed spec.generators[0].list: spec.template.spec.targetNamespace: the text has more than 16384 bytes"},
		"a growing text":     {"[{list: {elements: [{name: a}]}}]", `{metadata: {name: '{{$x := print .name .name}}` + strings.Repeat("{{$x = print $x $x}}", 30) + `{{.name}}'}, spec: {repository: shop}}`, "the text has more than 16384 bytes"},
		"a large Source":     {"[{list: {elements: [{name: a, x: " + long[:8000] + "}]}}]", "{metadata: {name: '{{.name}}'}, spec: {repository: shop, paths: [" + strings.Repeat("'{{.x}}{{.x}}', ", 10) + "a]}}", "the Source a has more than 131072 bytes"},
		"many large Sources": {"[" + elements(900) + "]", "{metadata: {name: '{{.name}}'}, spec: {repository: shop, paths: ['" + long[:16000] + "', '" + long[:10000] + "']}}", "the Sources have more than 16777216 bytes together"},
	} {
		got := ""
		if _, problems := Generate(newSet(t, c.generators, c.template), Facts{}); len(problems) > 0 {
			got = string(problems[0].Reason) + " " + problems[0].Format()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200s, want %s", name, got, c.want)
		}
	}
}

// A clusters generator stops at the bound of entries, and makes nothing.
func TestTooManyClusters(t *testing.T) {
	clusters := make([]Cluster, v1alpha1.MaxGeneratedSources+1)
	for i := range clusters {
		clusters[i].Name = fmt.Sprintf("c%d", i)
	}
	leaf := ListLeaves(&newSet(t, "[{clusters: {}}]", plainTemplate).Spec)[0]
	for n, want := range map[int]int{v1alpha1.MaxGeneratedSources: v1alpha1.MaxGeneratedSources, len(clusters): 0} {
		var found problems
		out := expandClusters(&leaf, Facts{Clusters: clusters[:n]}, &found)
		if hasProblem := len(found) == 1 && found[0].Reason == atoll.ReasonTooManySources; len(out) != want || hasProblem != (want == 0) {
			t.Errorf("%d Clusters: %d entries, %v", n, len(out), found)
		}
	}
}

// The order of elements, clusters and listed entries changes nothing of what is made, and neither do values that are not used.
func TestOrderChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var elements []string
	for i := range 12 {
		elements = append(elements, fmt.Sprintf("{name: n%d, v: %d}", i, i%3))
	}
	dirs := []string{"a/x", "a/y", "a/z"}
	shuffled := func() Result {
		rng.Shuffle(len(elements), func(i, j int) { elements[i], elements[j] = elements[j], elements[i] })
		rng.Shuffle(len(dirs), func(i, j int) { dirs[i], dirs[j] = dirs[j], dirs[i] })
		clusters := slices.Clone(twoClusters)
		rng.Shuffle(2, func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
		set := newSet(t, "[{matrix: {generators: [{list: {elements: ["+strings.Join(elements, ", ")+"]}}, {clusters: {}}]}}, {directories: {repository: shop, ref: {branch: main}, paths: ['a/*']}}]",
			"{metadata: {name: '{{if hasKey . \"name\"}}{{.name}}-{{.cluster.name}}{{else}}{{.path.basename}}{{end}}'}, spec: {repository: shop, ref: {branch: main}}}")
		r, problems := Generate(set, Facts{Clusters: clusters, Listings: map[string]*render.Listing{"generators[1].directories": newListing(dirs...)}})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return r
	}
	first := shuffled()
	if len(first.Made) != 27 {
		t.Fatalf("%d Sources", len(first.Made))
	}
	for range 20 {
		if again := shuffled(); !reflect.DeepEqual(again, first) {
			t.Fatal("another order gives other Sources")
		}
	}
}

// A matrix has the product of its parts, and a merge the entries of its first part, whatever the later ones have.
func TestCombinationsHaveTheirSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	list := func(key string, n int) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("{%s: k%d, %sValue: %d}", key, i, key, rng.IntN(9)))
		}
		return "{list: {elements: [" + strings.Join(out, ", ") + "]}}"
	}
	for range 50 {
		a, b := 1+rng.IntN(9), 1+rng.IntN(9)
		matrix := newSet(t, "[{matrix: {generators: ["+list("x", a)+", "+list("w", b)+"]}}]", "{metadata: {name: '{{.x}}-{{.w}}'}, spec: {repository: shop}}")
		if r, problems := Generate(matrix, Facts{}); len(problems) > 0 || len(r.Made) != a*b {
			t.Errorf("%d x %d: %d, %v", a, b, len(r.Made), problems)
		}
		merge := newSet(t, "[{merge: {keys: [x], generators: ["+list("x", a)+", "+list("x", b)+"]}}]", "{metadata: {name: '{{.x}}'}, spec: {repository: shop}}")
		if r, problems := Generate(merge, Facts{}); len(problems) > 0 || len(r.Made) != a {
			t.Errorf("merge of %d and %d: %d, %v", a, b, len(r.Made), problems)
		}
	}
}

// Values in are not changed.
func TestValuesInStay(t *testing.T) {
	set := newSet(t, "[{merge: {keys: [cluster.name], generators: [{clusters: {}}, {list: {elements: [{cluster: {name: oslo, labels: {env: other}}}]}}]}}]", "{metadata: {name: '{{.cluster.name}}'}, spec: {repository: shop}}")
	before := set.DeepCopy()
	clusters := []Cluster{{"oslo", map[string]string{"env": "prod"}}}
	if _, problems := Generate(set, Facts{Clusters: clusters}); len(problems) > 0 {
		t.Fatal(problems)
	}
	if DigestSettings(&set.Spec); !reflect.DeepEqual(set, before) || clusters[0].Labels["env"] != "prod" {
		t.Error("a value was changed")
	}
}

// An edit of elements is none of the settings. Every other edit of generators and template is.
func TestDigestSettings(t *testing.T) {
	digest := func(generators, template string) string { return DigestSettings(&newSet(t, generators, template).Spec) }
	const matrix = "[{matrix: {generators: [{list: {elements: [{a: 1}]}}, {clusters: {}}]}}]"
	one := digest("[{list: {elements: [{name: a}]}}]", plainTemplate)
	if one != digest("[{list: {elements: [{name: b}, {name: c}]}}]", plainTemplate) || digest(matrix, plainTemplate) != digest(strings.Replace(matrix, "{a: 1}", "", 1), plainTemplate) {
		t.Error("an edit of a list is one of the settings")
	}
	seen := map[string]bool{one: true}
	for _, c := range [][2]string{
		{"[{list: {elements: []}}, {clusters: {}}]", plainTemplate}, {"[{clusters: {}}]", plainTemplate}, {matrix, plainTemplate},
		{"[{clusters: {labelSelector: {matchLabels: {a: b}}}}]", plainTemplate}, {"[{list: {elements: []}}]", strings.Replace(plainTemplate, "main", "next", 1)},
	} {
		if d := digest(c[0], c[1]); seen[d] {
			t.Errorf("%s %s: the settings are the same", c[0], c[1])
		} else {
			seen[d] = true
		}
	}
	suspended := newSet(t, "[{list: {elements: [{name: a}]}}]", plainTemplate)
	suspended.Spec.Suspend, suspended.Spec.Prune, suspended.Spec.ServiceAccountName = true, v1alpha1.PruneKeep, "other"
	if DigestSettings(&suspended.Spec) != one {
		t.Error("a suspension is one of the settings")
	}
}

func TestProblemsHaveAPlace(t *testing.T) {
	p := Problem{Reason: atoll.ReasonContentInvalid, Generator: "generators[0].files", File: "a\nb", Line: 3, Message: "bad"}
	if e := p.SourceError(); strings.Contains(e.File, "\n") || e.Line != 3 || e.Message != "spec.generators[0].files: bad" {
		t.Errorf("%+v", e)
	}
	if got := p.Format(); got != "spec.generators[0].files: a\nb:3: bad" {
		t.Error(got)
	}
}
