package render_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/render/filetree"
)

const (
	object    = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	chartFile = "apiVersion: v2\nname: shop\nversion: 1.0.0\n"
)

// newTree returns a tree of files. A text that begins with -> is the target of a link.
func newTree(files map[string]string) filetree.Tree {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text)}
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			out[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink}
		}
	}
	return filetree.Tree{FS: out}
}

// selectFiles returns the files of a selection as text: plain ones, and those of builds.
func selectFiles(t *testing.T, files map[string]string, w render.Want) string {
	t.Helper()
	tree := newTree(files)
	s, err := render.Select(tree, w)
	var failure *render.Failure
	if errors.As(err, &failure) {
		return "failure " + string(failure.Reason)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	result, err := s.Render(tree, func(j render.Job) (render.Result, error) {
		for _, b := range j.Builds {
			out = append(out, fmt.Sprintf("%s in %q", b.Type, b.Dir))
		}
		var names []string
		for name, text := range j.Files {
			if string(text) != files[name] {
				t.Errorf("%s has another content", name)
			}
			if !slices.Contains(j.Plain, name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		out = append(out, names...)
		for _, name := range j.Plain {
			out = append(out, "plain "+name)
		}
		return render.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range result.Objects {
		out = append(out, "plain "+o.File)
	}
	for _, p := range result.Problems {
		out = append(out, "problem "+p.File+": "+p.Message)
	}
	if result.Failure != nil {
		out = append(out, "failure "+string(result.Failure.Reason))
	}
	return strings.Join(out, "\n")
}

func TestSelectedFiles(t *testing.T) {
	base := map[string]string{
		"base/kustomization.yaml": "resources: [a.yaml]\n", "base/a.yaml": object, "base/unnamed.yaml": object,
		"over/kustomization.yaml": "resources: [../base]\nnamePrefix: over\nnamespace: other\n", "other/kustomization.yaml": "resources: [https://example.com]\n",
	}
	with := func(more map[string]string) map[string]string {
		out := map[string]string{}
		for _, files := range []map[string]string{base, more} {
			for name, text := range files {
				out[name] = text
			}
		}
		return out
	}
	plain := map[string]string{"a/b.yaml": object, "ab/b.yaml": object, "c.json": `{"apiVersion":"v1","kind":"A","metadata":{"name":"b"}}`, "a/README.md": "x", ".github/x.yaml": "x", "a/.b.yaml": "x"}
	chart := map[string]string{"c/Chart.yaml": chartFile, "c/templates/a.yaml": "x", "c/.helmignore": "*.md\nsub/\n", "c/README.md": "x", "c/sub/x": "x", "c/ok/sub": "x", "env.yaml": "a: 1"}
	helm := render.Options{Helm: &render.HelmOptions{ValuesFiles: []string{"./env.yaml"}}}
	for name, c := range map[string]struct {
		files map[string]string
		want  render.Want
		text  string
	}{
		"all":                   {plain, render.Want{}, "plain a/b.yaml\nplain ab/b.yaml\nplain c.json"},
		"a directory":           {plain, render.Want{Paths: []string{"./a/"}}, "plain a/b.yaml"},
		"a file":                {plain, render.Want{Paths: []string{"a/b.yaml", "c.json"}}, "plain a/b.yaml\nplain c.json"},
		"without":               {plain, render.Want{Paths: []string{"a", "c.json"}, Exclude: []string{"b.yaml"}}, "plain c.json"},
		"the root by a dot":     {plain, render.Want{Paths: []string{"."}, Exclude: []string{"a"}}, "plain ab/b.yaml\nplain c.json"},
		"nothing":               {plain, render.Want{Paths: []string{"absent"}}, ""},
		"a hidden directory":    {plain, render.Want{Paths: []string{".github"}}, ""},
		"a chart":               {chart, render.Want{Paths: []string{"c"}}, "Helm in \"c\"\nc/.helmignore\nc/Chart.yaml\nc/ok/sub\nc/templates/a.yaml"},
		"a chart with values":   {chart, render.Want{Paths: []string{"c"}, Options: helm}, "Helm in \"c\"\nc/.helmignore\nc/Chart.yaml\nc/ok/sub\nc/templates/a.yaml\nenv.yaml"},
		"a chart without files": {chart, render.Want{Paths: []string{"c"}, Exclude: []string{"c/ok", ".helmignore", "*.md", "c/sub"}}, "Helm in \"c\"\nc/Chart.yaml\nc/templates/a.yaml"},
		"no chart by exclusion": {map[string]string{"Chart.yaml": chartFile, "a.yaml": object}, render.Want{Exclude: []string{"Chart.yaml"}}, "plain a.yaml"},
		"a chart below":         {map[string]string{"x/Chart.yaml": chartFile}, render.Want{}, "problem x/Chart.yaml: a Helm chart is in a directory that is read as it is; state its directory in spec.paths, or exclude it"},
		"a stated type": {map[string]string{"Chart.yaml": "x", "kustomization.yaml": "resources: [a.yaml]", "a.yaml": object}, render.Want{Options: render.Options{Type: render.Kustomize}},
			"Kustomize in \"\"\na.yaml\nkustomization.yaml"},
		"plain, as stated": {base, render.Want{Paths: []string{"base"}, Options: render.Options{Type: render.Plain}, Exclude: []string{"kustomization.yaml"}}, "plain base/a.yaml\nplain base/unnamed.yaml"},
		"an overlay":       {base, render.Want{Paths: []string{"over"}}, "Kustomize in \"over\"\nbase/a.yaml\nbase/kustomization.yaml\nover/kustomization.yaml"},
		"several": {with(map[string]string{"base/kustomization.yml": "x"}), render.Want{Paths: []string{"base"}},
			"Kustomize in \"base\"\nbase/a.yaml\nbase/kustomization.yaml\nbase/kustomization.yml"},
		"files that fields name": {with(map[string]string{
			"over/kustomization.yaml": "resources: [../base]\nconfigMapGenerator: [{name: a, files: [key=text/a.txt], envs: [b.env]}]\npatches: [{path: p.yaml}]\ntransformers: [t.yaml]\nopenapi: {path: ../schema.json}\n",
			"over/text/a.txt":         "x", "over/b.env": "x", "over/p.yaml": "x", "over/t.yaml": "path: more.yaml\n", "over/more.yaml": "x", "schema.json": "{}", "over/not.yaml": "x",
		}), render.Want{Paths: []string{"over"}}, "Kustomize in \"over\"\nbase/a.yaml\nbase/kustomization.yaml\nover/b.env\nover/kustomization.yaml\nover/more.yaml\nover/p.yaml\nover/t.yaml\nover/text/a.txt\nschema.json"},
		"a file in a text": {with(map[string]string{"over/kustomization.yaml": "resources: [../base]\ntransformers:\n- |-\n  kind: PatchTransformer\n  path: p.yaml\n", "over/p.yaml": "x"}), render.Want{Paths: []string{"over"}},
			"Kustomize in \"over\"\nbase/a.yaml\nbase/kustomization.yaml\nover/kustomization.yaml\nover/p.yaml"},
		"a cycle": {map[string]string{"a/kustomization.yaml": "resources: [../b]", "b/kustomization.yaml": "resources: [../a]"}, render.Want{Paths: []string{"a"}},
			"Kustomize in \"a\"\na/kustomization.yaml\nb/kustomization.yaml"},
		"a base of another host": {base, render.Want{Paths: []string{"other"}}, "problem other/kustomization.yaml: resources: \"https://example.com\" is not in the repository, or is excluded; nothing else is fetched, so commit it"},
		"a link in a chart": {map[string]string{"Chart.yaml": chartFile, "x": "-> /etc/passwd"}, render.Want{},
			"problem x: it is a symbolic link, which is not followed; commit the file, or leave it out by .helmignore or spec.exclude"},
		"a link of a kustomization": {map[string]string{"kustomization.yaml": "-> /etc/passwd"}, render.Want{}, "problem kustomization.yaml: the file is a symbolic link, which is not followed; exclude it or commit the file"},
		"links":                     {map[string]string{"a/b": "-> ../LICENSE", "LICENSE": "x", "a/c": "-> /x", "x/y/z": "-> ../../../.."}, render.Want{}, "problem a/c: the directory is a symbolic link, which is not followed; exclude it or commit the files\nproblem x/y/z: the directory is a symbolic link, which is not followed; exclude it or commit the files"},
		"large files":               {map[string]string{"Chart.yaml": chartFile, "large": strings.Repeat("x", render.MaxFileBytes+1)}, render.Want{}, "problem large: the file has more than 1048576 bytes"},
		"a deep directory":          {map[string]string{strings.Repeat("d/", render.MaxTreeDepth+1) + "a.yaml": object}, render.Want{}, "failure " + string(atoll.ReasonContentTooLarge)},
	} {
		if got := selectFiles(t, c.files, c.want); got != c.text {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.text)
		}
	}
}

// The files of a build have a bound together, and so has their number.
func TestSelectionsAreBounded(t *testing.T) {
	files := map[string]string{"Chart.yaml": chartFile}
	for i := range 17 {
		files[fmt.Sprint("f", i)] = strings.Repeat("x", render.MaxFileBytes)
	}
	want := "failure " + string(atoll.ReasonContentTooLarge)
	if got := selectFiles(t, files, render.Want{}); got != want {
		t.Error(got)
	}
	for _, name := range []string{"Chart.yaml", "README.md"} {
		files = map[string]string{name: chartFile}
		for i := range render.MaxFiles + 1 {
			files[fmt.Sprintf("f%d.yaml", i)] = ""
		}
		if got := selectFiles(t, files, render.Want{}); got != want {
			t.Error(name, got)
		}
	}
	files = map[string]string{}
	for i := range 1100 {
		files[fmt.Sprintf("k%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../k%d]", i+1)
	}
	if got := selectFiles(t, files, render.Want{Paths: []string{"k0"}}); got != want {
		t.Error(got)
	}
}

// The digest changes with the files that a build reads, and with nothing else.
func TestDigests(t *testing.T) {
	digest := func(files map[string]string) string {
		t.Helper()
		s, err := render.Select(hashedTree{newTree(files), files}, render.Want{Paths: []string{"k", "c"}})
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest()
	}
	files := map[string]string{"k/kustomization.yaml": "resources: [a.yaml]\n", "k/a.yaml": "1", "k/b.yaml": "1", "c/Chart.yaml": chartFile, "c/x": "1", "README.md": "1"}
	before := digest(files)
	for name, changes := range map[string]bool{"k/a.yaml": true, "c/x": true, "k/b.yaml": false, "README.md": false, "c/new": true, "k/new.yaml": false} {
		old, had := files[name]
		files[name] = "2"
		if got := digest(files); (got != before) != changes {
			t.Errorf("%s: changes %v", name, got != before)
		}
		if files[name] = old; !had {
			delete(files, name)
		}
	}
}

// hashedTree is a tree with the contents as hashes.
type hashedTree struct {
	filetree.Tree
	files map[string]string
}

// List lists a directory.
func (h hashedTree) List(dir string, e render.Entry) ([]render.Entry, error) {
	out, err := h.Tree.List(dir, e)
	for i := range out {
		out[i].Hash = h.files[strings.TrimPrefix(dir+"/"+out[i].Name, "/")]
	}
	return out, err
}

// The selection of any kustomization ends, and its files are those of the tree.
func FuzzSelect(f *testing.F) {
	f.Add("resources: [../b, /etc, c.yaml]\ntransformers: [t.yaml]\n", "x/../../..")
	f.Add("components: [.]\npatches: [{path: ../../x}]\n", "*")
	f.Add("generators:\n- |-\n  a: [c.yaml]\n", "**/c.yaml")
	f.Fuzz(func(t *testing.T, text, pattern string) {
		tree := newTree(map[string]string{"a/kustomization.yaml": text, "a/c.yaml": text, "b/kustomization.yaml": text, "t.yaml": text, "a/t.yaml": text, "a/l": "-> ../b"})
		s, err := render.Select(tree, render.Want{Paths: []string{"a"}, Exclude: []string{pattern}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Render(tree, func(j render.Job) (render.Result, error) {
			for name := range j.Files {
				if !fs.ValidPath(name) {
					t.Errorf("the file %q is selected", name)
				}
			}
			return render.Result{}, nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// The process that selects files is that of all Sources of a Repository, so a kustomization may not take its memory or its time.
func TestHostileKustomizations(t *testing.T) {
	aliases := "a: &a " + strings.Repeat("x", 200_000) + "\nb: [" + strings.Repeat("*a,", 200_000) + "]\n"
	nested := "x"
	for range 600 {
		nested = "a: |\n  " + strings.ReplaceAll(nested, "\n", "\n  ")
	}
	patch := "patches:\n- patch: |\n    " + strings.ReplaceAll(strings.TrimSpace(aliases), "\n", "\n    ") + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"aliases":            {aliases, "problem kustomization.yaml: the document has more than 4194304 bytes when its aliases are expanded"},
		"aliases of a patch": {patch, "problem kustomization.yaml: the document has more than 4194304 bytes when its aliases are expanded"},
		"texts in texts":     {nested, "failure ContentTooLarge"},
	} {
		if got := selectFiles(t, map[string]string{"kustomization.yaml": c.text}, render.Want{}); got != c.want {
			t.Errorf("%s: %.300s", name, got)
		}
	}
}

// Each pattern of a .helmignore is compared with each file, so it has a bound of its own.
func TestALargeHelmignoreIsAProblem(t *testing.T) {
	files := map[string]string{"Chart.yaml": chartFile, ".helmignore": strings.Repeat("*a*b\n", 2000)}
	if got := selectFiles(t, files, render.Want{}); got != "problem .helmignore: the file has more than 8192 bytes" {
		t.Error(got)
	}
}

// twiceTree is a tree with each file twice.
type twiceTree struct{ filetree.Tree }

func (t twiceTree) List(dir string, e render.Entry) ([]render.Entry, error) {
	entries, err := t.Tree.List(dir, e)
	return append(entries, entries...), err
}

// Readers of a directory with one name twice find one file or the other, so that a person could check another one than is applied.
func TestOneNameTwiceIsRefused(t *testing.T) {
	for _, dir := range []string{"", "a"} {
		var failure *render.Failure
		_, err := render.Select(twiceTree{newTree(map[string]string{"a/a.yaml": "x"})}, render.Want{Paths: []string{dir}})
		if !errors.As(err, &failure) || failure.Reason != atoll.ReasonFetchFailed || !strings.Contains(failure.Message, "two files of one name") {
			t.Errorf("%q: %v", dir, err)
		}
	}
}
