package render

import (
	"fmt"
	"strings"
	"testing"
)

// readText returns the objects and problems of one file, as text.
func readText(text string) (out []string) {
	var r Reader
	r.ReadFile("a.yaml", []byte(text))
	for _, o := range r.Objects {
		meta := o.Fields["metadata"].(map[string]any)
		out = append(out, fmt.Sprintf("%d %v/%v", o.Line, o.Fields["kind"], meta["name"]))
	}
	for _, p := range r.Problems {
		out = append(out, fmt.Sprintf("%d! %s", p.Line, p.Message))
	}
	return out
}

func TestObjectsComeWithTheirLines(t *testing.T) {
	const cm = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, c := range map[string]struct{ text, want string }{
		"one":                    {cm, "1 ConfigMap/a"},
		"behind comments":        {"# no\n\n---\n# more\n" + cm, "5 ConfigMap/a"},
		"two":                    {cm + "---\n" + cm, "1 ConfigMap/a, 5 ConfigMap/a"},
		"empty documents":        {"---\n---\nnull\n---\n# nothing\n", ""},
		"CRLF and a mark":        {"\ufeff" + strings.ReplaceAll(cm+"---\n"+cm, "\n", "\r\n"), "1 ConfigMap/a, 5 ConfigMap/a"},
		"JSON":                   {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, "1 ConfigMap/a"},
		"a List":                 {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n", "1 Secret/b"},
		"a kind that ends so":    {"apiVersion: x.dev/v1\nkind: AllowList\nmetadata: {name: l}\nitems: []\n", "1 AllowList/l"},
		"a separator in a text":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    ---\n    y\n", "1 ConfigMap/a"},
		"no YAML":                {cm + "---\nkind: [\n", "1 ConfigMap/a, 5! yaml: : did not find expected node content"},
		"a key twice":            {"kind: A\nkind: B\n", `2! yaml: unmarshal errors: : key "kind" already set in map`},
		"no kind":                {"apiVersion: v1\nmetadata: {name: a}\n", "1! it is no Kubernetes object, because it has no kind; exclude files that hold none"},
		"no name":                {"apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n", "1! it has no metadata.name"},
		"no map":                 {"- a\n", "1! it is no Kubernetes object, which is a map of fields"},
		"a Kustomization":        {"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", "1! a Kustomization is in a directory that is read as it is; state its directory in spec.paths, or exclude it"},
		"a name that is a path":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ../a}\n", "1! metadata.name may not contain / or %"},
		"a namespace of no form": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: a/b}\n", "1! metadata.namespace is no name of a namespace"},
		"a label of no text":     {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: 1}}\n", "1! a value in metadata.labels is no text; quote it"},
		"labels of no map":       {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: [x]}\n", "1! metadata.annotations is no map"},
	} {
		if got := strings.Join(readText(c.text), ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// A file is read as a whole, or is a problem: an object that is not seen would look like one that a commit dropped.
func TestNoObjectOfAFileIsOverlooked(t *testing.T) {
	const (
		a, b = "{apiVersion: v1, kind: A, metadata: {name: a}}", "{apiVersion: v1, kind: B, metadata: {name: b}}"
		more = "1! text follows the end of the document; begin a further document with a line ---"
	)
	for name, c := range map[string]struct{ text, want string }{
		"behind the end of a document":      {a + "\n...\n" + b + "\n", more},
		"behind the end, with a separator":  {a + "\n...\n---\n" + b + "\n", "1 A/a, 4 B/b"},
		"the end alone":                     {a + "\n...\n# more\n", "1 A/a"},
		"behind an empty document":          {"# no\n...\n" + b + "\n", "1! yaml: : did not find expected node content"},
		"in the line of the separator":      {"--- " + a + "\n---\t" + b + "\n", "1 A/a, 2 B/b"},
		"a comment in the line":             {"--- # a\n" + a + "\n", "2 A/a"},
		"a text in the line":                {"--- |\n " + a + "\n", "1! it is no Kubernetes object, which is a map of fields"},
		"lines that end with CR alone":      {a + "\r---\r" + b + "\r", "1 A/a, 3 B/b"},
		"other breaks of lines":             {a + "\u2028---\u2028" + b, more},
		"the break of lines of a mainframe": {a + "\u0085---\u0085" + b, more},
		"two objects of JSON":               {`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}` + "\n" + `{"apiVersion":"v1","kind":"B","metadata":{"name":"b"}}`, more},
		"two objects of JSON in one line":   {`{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"B","metadata":{"name":"b"}}`, more},
	} {
		if got := strings.Join(readText(c.text), ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// The text of a field, which may be a Secret, is in no message.
func TestProblemsHaveNoValues(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: hunter2: x\n",
		"hunter2\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {p: [hunter2]}}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {p: \"hunter2\\q\"}\n",
		"apiVersion: v1\nkind: Secret\nmetadata: hunter2\n",
	} {
		got := strings.Join(readText(text), ", ")
		if !strings.Contains(got, "!") || strings.Contains(got, "hunter2") {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestServerFieldsAreDropped(t *testing.T) {
	var r Reader
	r.ReadFile("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, uid: x, resourceVersion: '1', managedFields: [], generation: 3, creationTimestamp: null, selfLink: /a}\nstatus: {}\ndata: {n: '1'}\ncount: 12345678901\n"))
	o := r.Objects[0].Fields
	if len(o["metadata"].(map[string]any)) != 1 || o["status"] != nil || o["count"] != int64(12345678901) {
		t.Errorf("%#v", o)
	}
}

func TestBombsAreRefused(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9))
	}
	deep := strings.Repeat("[", 200_000)
	many := strings.Repeat("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n", MaxObjects+1)
	nested := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	for range maxListDepth + 2 {
		nested = "{apiVersion: v1, kind: List, items: [" + nested + "]}"
	}
	large := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: &d {x: '" + strings.Repeat("x", 400_000) + "'}\n" + "b: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
	for name, c := range map[string]struct{ text, want string }{
		"aliases":            {bomb, "bytes when its aliases are expanded"},
		"depth":              {deep, "!"},
		"objects":            {many, "more than 2000 objects"},
		"Lists":              {nested, "Lists are in Lists"},
		"a large file":       {strings.Repeat("#", MaxFileBytes+1), "more than 1048576 bytes"},
		"large aliases":      {large, "bytes when its aliases are expanded"},
		"many aliases":       {"a: &a " + strings.Repeat("x", 200_000) + "\nb: [" + strings.Repeat("*a,", 200_000) + "]\n", "bytes when its aliases are expanded"},
		"an alias in itself": {"a: &a {b: *a}\n", "bytes when its aliases are expanded"},
		"no anchor":          {"a: *a\nb: &b x\n", "unknown anchor"},
	} {
		got := strings.Join(readText(c.text), ", ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200s", name, got)
		}
	}
	var r Reader
	for i := range MaxFiles + 1 {
		r.ReadFile(fmt.Sprint(i), nil)
	}
	if !r.IsFull() || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, "5000 files") {
		t.Errorf("%d files: %v", MaxFiles+1, r.Problems)
	}
	r = Reader{}
	for i := range 6 {
		r.ReadFile(fmt.Sprint(i), fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '%s'}\n", strings.Repeat("x", 900_000)))
	}
	if len(r.Objects) != 5 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, "4194304 bytes") {
		t.Errorf("large objects: %d, %v", len(r.Objects), r.Problems)
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.json", "a/b.json", true}, {"*.json", "b.yaml", false}, {"test", "a/test/b.yaml", true}, {"a/*.yaml", "a/b.yaml", true},
		{"a/*.yaml", "a/c/b.yaml", false}, {"a/**/b.yaml", "a/b.yaml", true}, {"a/**/b.yaml", "a/c/d/b.yaml", true}, {"a/", "a/b.yaml", true},
		{"**", "a", true}, {"a/**", "b/a/c", false}, {"a?c", "abc", true}, {"[", "a", false}, {"**/x/**/y", "x/x/q/y", true}, {"a", "ab", false},
	} {
		if got := MatchPattern(c.pattern, c.name); got != c.want {
			t.Errorf("%s for %s: %v", c.pattern, c.name, got)
		}
	}
}

func TestContentFiles(t *testing.T) {
	for name, want := range map[string]bool{"a.yaml": true, "b/a.YML": true, "a.json": true, "README.md": false, ".github/a.yaml": false, "a/.b.yaml": false} {
		if IsContentFile(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// The reading of any file ends, and every object has the fields that an apply needs.
func FuzzReadFile(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: A, metadata: {name: b}}]\n---\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"A","metadata":{"name":"b","labels":{"x":"y"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Reader
		r.ReadFile("a.yaml", text)
		if len(r.Problems) > MaxProblems || len(r.Objects) > MaxObjects+1 {
			t.Fatal("a bound is passed")
		}
		for _, o := range r.Objects {
			if problem := checkObject(o.Fields); problem != "" || o.Line < 1 {
				t.Fatalf("line %d: %s", o.Line, problem)
			}
		}
	})
}
