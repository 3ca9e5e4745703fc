package interpret

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// writeTree writes files below a new directory.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runCommand runs atoll interpret. DIR in arguments and in the result is the directory. The
// result has the names of printed interpreters or else the output, then warnings, then the error.
func runCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var out, warnings bytes.Buffer
	cmd := NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&warnings)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", dir)
	}
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	text := out.String()
	if args[0] == "convert" {
		var names []string
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(line, "  name: "); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
		text = strings.Join(names, " ") + "\n"
	}
	text += warnings.String()
	if err != nil {
		text += "error: " + err.Error() + "\n"
	}
	return strings.TrimSpace(strings.ReplaceAll(text, dir, "DIR"))
}

const widget = "{apiVersion: g.example/v1, kind: Widget, metadata: {namespace: shop}, status: {phase: Missing}}"

func TestConvertDirectory(t *testing.T) {
	library := map[string]string{
		"resource_customizations/g.example/Widget/health.lua": lua, "resource_customizations/Pod/health.lua": lua,
		"resource_customizations/g.example/Widget/testdata/x.yaml": "kind: ResourceInterpreter\n",
		"karmada/a.yaml": trainers, "README.md": "x",
	}
	broken := map[string]string{"g.example/A/health.lua": "return {{", "g.example/B/health.lua": lua, "g.example/C/health.lua": "local x\nx = load()\nreturn x", "Rollout/health.lua": lua}
	const errors = "2 interpreters are not valid:\nDIR/g.example/A/health.lua, line 1, column 10: syntax error: the script ends too soon\nDIR/g.example/C/health.lua, line 2, column 5: load is not here"
	for name, tc := range map[string]struct {
		files map[string]string
		args  []string
		want  string // a prefix
	}{
		"all interpreters, by path": {library, []string{"convert", "-f", "DIR"}, "zebra yak all health-pod health-widget.g.example"},
		"one kind of the library":   {library, []string{"convert", "-f", "DIR/resource_customizations/g.example/Widget"}, "health-widget.g.example"},
		"errors list all files":     {broken, []string{"convert", "-f", "DIR"}, "warning: DIR/Rollout/health.lua is skipped: Rollout is no kind of the core group, and its group would be the directory above: Argo CD's layout is GROUP/KIND/health.lua, or KIND/health.lua for the core group\nerror: " + errors},
		"the valid ones":            {broken, []string{"convert", "-f", "DIR", "--skip-invalid"}, "health-b.g.example\nwarning: DIR/Rollout/health.lua is skipped: "},
		"no valid one":              {map[string]string{"g.example/A/health.lua": "return {{"}, []string{"convert", "-f", "DIR", "--skip-invalid"}, "error: 1 interpreter is not valid:\n"},
		"no interpreter":            {map[string]string{"a.yaml": "a: b", "health.lua": lua}, []string{"convert", "-f", "DIR"}, "error: DIR: there are no interpreters\nDIR/health.lua is skipped: its path names no kind: "},
		"an empty directory":        {nil, []string{"convert", "-f", "DIR"}, "error: DIR: there are no interpreters"},
		"no directory":              {nil, []string{"convert", "-f", "DIR/none"}, "error: open DIR/none: no such file or directory"},
		"a kind for a directory":    {library, []string{"convert", "-f", "DIR", "--kind", "v1/Pod"}, "error: DIR: the paths state the kinds, so --kind does not apply"},
		"--skip-invalid for a file": {library, []string{"convert", "-f", "DIR/karmada/a.yaml", "--skip-invalid"}, "error: DIR/karmada/a.yaml: --skip-invalid is for directories and artifacts"},
		"a large file":              {map[string]string{"a.json": strings.Repeat(" ", maxSourceFile+1)}, []string{"convert", "-f", "DIR"}, "error: DIR: a.json has more than 4 MiB: "},
		"--with and a missing name": {
			map[string]string{"lib/g.example/Widget/health.lua": lua, "w.yaml": widget}, []string{"-f", "DIR/w.yaml", "--with", "DIR/lib"},
			"Widget in shop\n  health        Progressing, Missing\n",
		},
		"--with and errors": {
			map[string]string{"lib/g.example/Widget/health.lua": "return {{", "w.yaml": widget}, []string{"-f", "DIR/w.yaml", "--with", "DIR/lib"},
			"error: --with DIR/lib: 1 interpreter is not valid:\nDIR/lib/g.example/Widget/health.lua, line 1, column 10: ",
		},
		"cases": {
			map[string]string{"lib/g.example/Widget/health.lua": lua, "c/1.yaml": "{object: " + widget + ", with: ../lib, expect: {health: {status: Missing}}}", "c/2.yaml": "{object: " + widget + ", expect: {health: {status: Missing}}}"},
			[]string{"test", "DIR/c", "--with", "DIR/lib"}, "2 cases pass",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := runCommand(t, writeTree(t, tc.files), tc.args...); !strings.HasPrefix(got, strings.TrimSpace(tc.want)) {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Links to files in the directory are read, as those of a mounted ConfigMap. Others are not followed.
func TestLinksOfADirectory(t *testing.T) {
	outside := writeTree(t, map[string]string{"x.yaml": interpreterYAML("health: {cel: 'true'}"), "g.example/Widget/health.lua": lua})
	dir := writeTree(t, map[string]string{"..data/a.yaml": interpreterYAML("health: {cel: 'true'}")})
	for name, to := range map[string]string{
		"a.yaml": "..data/a.yaml", "b.yaml": filepath.Join(outside, "x.yaml"), "c": outside, "d.yaml": "d.yaml", "e.yaml": "none",
		"f": ".", "g.yaml": "..data",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "h.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := "one\nwarning: DIR/b.yaml is skipped: it links to no file in DIR\nwarning: DIR/d.yaml is skipped: it links to no file in DIR\nwarning: DIR/e.yaml is skipped: it links to no file in DIR"
	if got := runCommand(t, dir, "convert", "-f", "DIR"); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestObjectsWithoutAName(t *testing.T) {
	const job = "{apiVersion: batch/v1, kind: Job, metadata: {generateName: run-}, spec: {completions: 2}, status: {succeeded: 1}}"
	for name, tc := range map[string]struct{ object, want string }{
		"no metadata":      {"{apiVersion: g.example/v1, kind: Widget, status: {conditions: [{type: Ready, status: 'True'}]}}", "Widget\n  health        Healthy\n"},
		"a namespace":      {"{apiVersion: g.example/v1, kind: Widget, metadata: {namespace: shop}}", "Widget in shop\n"},
		"a name":           {"{apiVersion: g.example/v1, kind: Widget, metadata: {namespace: shop, name: a}}", "Widget shop/a\n"},
		"a generateName":   {job, "Job\n  replicas"},
		"two objects":      {job + "\n---\n" + job, "error: the files hold several objects: "},
		"a kind is needed": {"{status: {}}", "error: DIR/o.yaml, document 1: it is no Kubernetes object, having no apiVersion and no kind"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := runCommand(t, writeTree(t, map[string]string{"o.yaml": tc.object}), "-f", "DIR/o.yaml"); !strings.HasPrefix(got+"\n", tc.want) {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}
