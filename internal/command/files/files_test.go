package files

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	config  = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {k: v}\n"
	other   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: shop}\n"
	secret  = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop}\nstringData: {word: xyzzy}\n"
	another = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {k: other}\n"
)

// read writes the files, reads what names say, DIR standing for where they are, and tells
// the objects as kind/namespace/name, or the error.
func read(t *testing.T, written map[string]string, recursive bool, stdin string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range written {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := FileFlags{recursive: recursive}
	for _, name := range names {
		n.paths = append(n.paths, strings.ReplaceAll(name, "DIR", dir))
	}
	objects, err := n.Read(t.Context(), strings.NewReader(stdin))
	if err != nil {
		return "error: " + strings.ReplaceAll(err.Error(), dir, "DIR")
	}
	var out []string
	for _, u := range objects {
		out = append(out, fmt.Sprintf("%s/%s/%s", u.GetKind(), u.GetNamespace(), u.GetName()))
	}
	return strings.Join(out, " ")
}

func TestRead(t *testing.T) {
	const helm = "---\n# Source: shop/templates/a.yaml\n" + config + "---\n# Source: shop/templates/off.yaml\n\n---\n# a comment alone\n---\n" + other + "\n---\n"
	for name, tc := range map[string]struct {
		files     map[string]string
		recursive bool
		stdin     string
		names     []string
		want      string
	}{
		"a file":                        {files: map[string]string{"a.yaml": config}, names: []string{"DIR/a.yaml"}, want: "ConfigMap/shop/a"},
		"what helm prints":              {stdin: helm, names: []string{"-"}, want: "ConfigMap/shop/a ConfigMap/shop/b"},
		"from Windows":                  {stdin: "\ufeff" + strings.ReplaceAll(config+"---\n"+other, "\n", "\r\n"), names: []string{"-"}, want: "ConfigMap/shop/a ConfigMap/shop/b"},
		"JSON":                          {stdin: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, names: []string{"-"}, want: "ConfigMap//a"},
		"JSON, one after another":       {stdin: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}} {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`, names: []string{"-"}, want: "ConfigMap//a ConfigMap//b"},
		"YAML that begins as JSON does": {stdin: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n", names: []string{"-"}, want: "ConfigMap//a ConfigMap//b"},
		"a List":                        {stdin: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}\n", names: []string{"-"}, want: "Secret//s ConfigMap//a"},
		"a list of a kind":              {stdin: "apiVersion: atoll.dev/v1alpha1\nkind: ClusterList\nitems: [{metadata: {name: tokyo}}]\n", names: []string{"-"}, want: "Cluster//tokyo"},
		"the same twice":                {files: map[string]string{"a.yaml": config, "b/a.yaml": config}, recursive: true, names: []string{"DIR", "DIR/a.yaml"}, want: "ConfigMap/shop/a"},
		"not the same twice":            {files: map[string]string{"a.yaml": other + "---\n" + config, "b.yaml": another}, names: []string{"DIR"}, want: "error: DIR/b.yaml, document 1: ConfigMap shop/a is in DIR/a.yaml, document 2 already, with other content"},
		"another version of it":         {stdin: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n---\n{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: a}}\n", names: []string{"-"}, want: "error: standard input, document 2: Deployment a is in standard input, document 1 already, with other content"},
		"an empty file":                 {files: map[string]string{"a.yaml": "# nothing\n"}, names: []string{"DIR/a.yaml"}, want: "error: there are no objects in DIR/a.yaml"},
		"no standard input":             {names: []string{"-"}, want: "error: there are no objects in -"},
		"standard input twice":          {stdin: config, names: []string{"-", "-"}, want: "error: -f - appears twice: the standard input can be read once"},
		"no file":                       {want: "error: name the files with -f; - is the standard input"},
		"a directory of others":         {files: map[string]string{"README.md": "x", "b/a.yaml": config}, names: []string{"DIR"}, want: "error: DIR: no file ends in .yaml, .yml or .json; -R goes into the directories below"},
		"a directory of a chart": {
			files: map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\n", "values.yaml": "image: web\n", "a.yaml": config}, names: []string{"DIR"},
			want: "error: DIR/Chart.yaml, document 1: it is no Kubernetes object, having no kind; give what `helm template NAME DIR` prints to -f -\nDIR/values.yaml, document 1: it is no Kubernetes object, having no apiVersion and no kind; give what `helm template NAME DIR` prints to -f -",
		},
		"a kustomization": {
			files: map[string]string{"kustomization.yaml": "resources: [a.yaml]\n"}, names: []string{"DIR"},
			want: "error: DIR/kustomization.yaml, document 1: it is no Kubernetes object, having no apiVersion and no kind; give what `kubectl kustomize DIR` prints to -f -",
		},
		"a kustomization of a kind": {
			stdin: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n", names: []string{"-"},
			want: "error: standard input, document 1: a Kustomization is no object of a cluster; give what `kubectl kustomize DIR` prints to -f -",
		},
		"a compose file":      {stdin: "services: {web: {image: web}}\n", names: []string{"-"}, want: "error: standard input, document 1: it is no Kubernetes object, having no apiVersion and no kind; name the files that hold objects, or keep others elsewhere"},
		"text":                {stdin: "hello\n", names: []string{"-"}, want: "error: standard input, document 1: it is no Kubernetes object, which is a map of fields; name the files that hold objects, or keep others elsewhere"},
		"no name":             {stdin: "{apiVersion: v1, kind: ConfigMap}", names: []string{"-"}, want: "error: standard input, document 1: ConfigMap: it has no metadata.name"},
		"a name to be made":   {stdin: "{apiVersion: batch/v1, kind: Job, metadata: {generateName: run-}}", names: []string{"-"}, want: "error: standard input, document 1: Job: it has a generateName, and each apply would make another object"},
		"an item that is bad": {stdin: "apiVersion: v1\nkind: List\nitems: [{kind: Secret, metadata: {name: s}}, 5]\n", names: []string{"-"}, want: "error: standard input, document 1, items[0]: it is no Kubernetes object, having no apiVersion; name the files that hold objects, or keep others elsewhere\nstandard input, document 1, items[1]: it is no Kubernetes object, which is a map of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(t, tc.files, tc.recursive, tc.stdin, tc.names...); got != tc.want {
				t.Errorf("comes to\n  %s\nwant\n  %s", got, tc.want)
			}
		})
	}
}

// A document that cannot be read is reported by its place, and never by its content.
func TestErrorsTellNoSecrets(t *testing.T) {
	for name, text := range map[string]string{
		"not indented":      config + "---\n" + secret + "  bad: [\n",
		"a template":        config + "---\n" + strings.ReplaceAll(secret, "xyzzy", `{{ .Values.word }} xyzzy: {{`),
		"not a number":      config + "---\n" + secret + "x: .nan\n",
		"a kind is missing": config + "---\n" + strings.ReplaceAll(secret, "kind: Secret\n", ""),
	} {
		got := read(t, nil, false, text, "-")
		if !strings.HasPrefix(got, "error: standard input, document 2: ") || strings.Contains(got, "xyzzy") {
			t.Errorf("%s: %s", name, got)
		}
		if (name == "a template") != strings.Contains(got, "it looks like a template") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestManyBadDocumentsAreCut(t *testing.T) {
	got := read(t, nil, false, strings.Repeat("a: 1\n---\n", 50), "-")
	if strings.Count(got, "\n") != mostTold || !strings.HasSuffix(got, "and 40 more") {
		t.Error(got)
	}
}

func TestURLs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a.yaml" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, config)
	}))
	defer server.Close()
	if got := read(t, nil, false, "", server.URL+"/a.yaml"); got != "ConfigMap/shop/a" {
		t.Error(got)
	}
	if got := read(t, nil, false, "", server.URL+"/b.yaml"); got != "error: "+server.URL+"/b.yaml answers 404 Not Found" {
		t.Error(got)
	}
	server.Close()
	if got := read(t, nil, false, "", server.URL+"/a.yaml"); !strings.HasPrefix(got, "error: fetch objects: ") {
		t.Error(got)
	}
}

func TestAFileThatIsNotThere(t *testing.T) {
	n := FileFlags{paths: []string{filepath.Join(t.TempDir(), "nowhere.yaml")}}
	if _, err := n.Read(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
