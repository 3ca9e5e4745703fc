package builders

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/render/filetree"
)

// renderFiles renders files as the hub does, in this process.
func renderFiles(t *testing.T, files fs.FS, w render.Want) render.Result {
	t.Helper()
	tree := filetree.Tree{FS: files}
	selected, err := render.Select(tree, w)
	if err != nil {
		t.Fatal(err)
	}
	result, err := selected.Render(tree, func(j render.Job) (render.Result, error) { return RenderJob(j), nil })
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// describe returns a result as lines.
func describe(r render.Result) string {
	var out strings.Builder
	for _, b := range r.Builds {
		fmt.Fprintf(&out, "build %s %q %s\n", b.Type, b.Dir, b.Chart)
	}
	for _, o := range r.Objects {
		for _, path := range o.Generated {
			above, key, _, ok := render.GeneratedField(o.Fields, path)
			if !ok {
				panic("no field " + path)
			}
			above[key] = "(generated)"
		}
		raw, err := json.Marshal(o.Fields)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&out, "%s:%d: %s\n", o.File, o.Line, raw)
		if len(o.Generated) > 0 {
			fmt.Fprintf(&out, "generated %s\n", strings.Join(o.Generated, " "))
		}
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&out, "problem %s:%d: %s\n", p.File, p.Line, p.Message)
	}
	if r.Failure != nil {
		fmt.Fprintf(&out, "failure %s: %s\n", r.Failure.Reason, r.Failure.Message)
	}
	if r.Omitted > 0 {
		fmt.Fprintf(&out, "omitted %d\n", r.Omitted)
	}
	return out.String()
}

// Each script has the files of a repository, the file want.json with what the Source states, and the file result.
func TestScripts(t *testing.T) {
	found, err := fs.Glob(os.DirFS("testdata"), "*.txtar")
	if err != nil || len(found) < 10 {
		t.Fatal(found, err)
	}
	for _, name := range found {
		t.Run(strings.TrimSuffix(name, ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile("testdata/" + name)
			if err != nil {
				t.Fatal(err)
			}
			files, want, w := fstest.MapFS{}, "", render.Want{}
			for _, f := range archive.Files {
				switch {
				case f.Name == "want.json":
					if err := json.Unmarshal(f.Data, &w); err != nil {
						t.Fatal(err)
					}
				case f.Name == "result":
					want = string(f.Data)
				case strings.HasPrefix(string(f.Data), "-> "):
					files[f.Name] = &fstest.MapFile{Data: []byte(strings.TrimSpace(string(f.Data[3:]))), Mode: fs.ModeSymlink}
				default:
					files[f.Name] = &fstest.MapFile{Data: f.Data}
				}
			}
			if got := describe(renderFiles(t, files, w)); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// The chart that `helm create` makes renders as it is.
func TestTheChartOfHelmCreate(t *testing.T) {
	dir := t.TempDir()
	if _, err := chartutil.Create("shop", dir); err != nil {
		t.Fatal(err)
	}
	w := render.Want{Paths: []string{"shop"}, Options: render.Options{ReleaseName: "web", Namespace: "shop", Helm: &render.HelmOptions{Values: []byte(`{"autoscaling": {"enabled": true}}`)}}}
	result := renderFiles(t, os.DirFS(dir), w)
	var kinds []string
	for _, o := range result.Objects {
		kinds = append(kinds, fmt.Sprint(o.Fields["kind"]))
	}
	if got := strings.Join(kinds, " "); got != "Deployment HorizontalPodAutoscaler Service ServiceAccount" || len(result.Problems) > 0 {
		t.Errorf("%s\n%s", got, describe(result))
	}
}
