package interpret

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const lua = `
if obj.status == nil then return {status = "Progressing", message = "none"} end
return {status = obj.status.phase}`

// runCases writes the files, runs the command on them, and returns its output, with the error at
// the end.
func runCases(t *testing.T, files map[string]string, flags ...string) string {
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
	var out bytes.Buffer
	cmd := NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	for i := range flags {
		flags[i] = strings.ReplaceAll(flags[i], "DIR", dir)
	}
	cmd.SetArgs(append([]string{"test", dir}, flags...))
	if err := cmd.Execute(); err != nil {
		out.WriteString("error: " + err.Error() + "\n")
	}
	return strings.ReplaceAll(out.String(), dir, "DIR")
}

func TestCases(t *testing.T) {
	const object = "apiVersion: g/v1\nkind: K\nmetadata: {name: x}\nspec: {size: 9007199254740993}\n"
	const interpreter = `
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: k}
spec:
  target: {group: g, kinds: [K]}
  replicas: {cel: "object.spec.size"}
  revise: {cel: "{'spec': {'size': replicas}}"}
  health: {cel: "has(object.status)"}
  aggregate: {cel: "{'n': items.size()}"}
`
	for name, tc := range map[string]struct {
		files map[string]string
		flags []string
		want  string
	}{
		"a directory": {files: map[string]string{
			"a/object.yaml": object, "a/observed.yaml": object + "status: {}\n", "a/items.yaml": "[{clusterName: m, status: {}}]", "a/with.yaml": interpreter,
			"a/ask.yaml":      "replicas: 3",
			"a/expected.json": `{"replicas": 9007199254740993, "health": {"status": "Healthy"}, "aggregated": {"n": 1}, "components": null, "revised": {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": {"size": 3}}}`,
		}, want: "1 case passes\n"},
		"files, and an interpreter beside them": {files: map[string]string{
			"k.yaml": interpreter, "object.txt": object,
			"cases/1.yaml": "{with: ../k.yaml, object: ../object.txt, expect: {replicas: 9007199254740993}}",
			"cases/2.yaml": "{with: ../k.yaml, object: {apiVersion: g/v1, kind: K, spec: {size: 2}, status: {}}, op: InterpretHealth, expect: {health: {status: Healthy}, replicas: null}}",
			"cases/3.yaml": "{with: ../k.yaml, object: {apiVersion: g/v1, kind: K, spec: {}}, error: 'no such key: size'}",
		}, flags: []string{"-v"}, want: "ok    DIR/cases/1.yaml\nok    DIR/cases/2.yaml\nok    DIR/cases/3.yaml\n3 cases pass\n"},
		"a bare health script": {files: map[string]string{
			"a/object.yaml": object, "a/health.lua": lua, "a/expected.yaml": "health: {status: Progressing, message: none}",
		}, want: "1 case passes\n"},
		"differences": {files: map[string]string{
			"h.lua":   lua,
			"1.yaml":  "{object: {kind: K}, expect: {health: {status: Healthy}, replicas: 2}}",
			"2.yaml":  "{object: {kind: K, status: {phase: Healthy}}, error: 'it fails'}",
			"3.yaml":  "{object: {kind: K, status: {phase: Fine}}, error: 'it fails'}",
			"4.yaml":  "{object: {kind: K, status: {phase: Suspended}}, expect: {health: {status: Suspended}}}",
			"5.yaml":  "{objekt: {}, expect: {}}",
			"6.yaml":  "{object: {kind: K}, op: heal, expect: {}}",
			"7.yaml":  "{object: {kind: K}, op: retained, expect: {}}",
			"no.yaml": "a: b",
		}, flags: []string{"--with", "DIR/h.lua"}, want: `FAIL  DIR/1.yaml
      health.message
      - nothing
      + "none"
      health.status
      - "Healthy"
      + "Progressing"
      replicas
      - 2
      + nothing
FAIL  DIR/2.yaml
      error
      - it fails
      + none, but {"health":{"status":"Healthy"}}
FAIL  DIR/3.yaml
      error
      - it fails
      + DIR/h.lua: its answer has the status the string "Fine", which is none of [Healthy Progressing Degraded Suspended Missing Unknown]
FAIL  DIR/5.yaml
      DIR/5.yaml: unknown field "objekt"
FAIL  DIR/6.yaml
      there is no op "heal": it is one of aggregated, components, dependencies, health, replicas, retained, revised, status
FAIL  DIR/7.yaml
      retained needs the observed object
error: 6 of 7 cases fail
`},
		"what is misspelt is no case that passes": {files: map[string]string{
			"h.lua":            lua,
			"1.yaml":           "{object: {kind: K}, expct: {health: {status: Healthy}}}",
			"2.yaml":           "{object: {kind: K}, expect: {error: none}}",
			"3.yaml":           "{object: {kind: K}, expect: {helth: {status: Healthy}}}",
			"4.yaml":           "{object: {kind: K}}",
			"5.yaml":           "{object: {kind: K}, expect: {health: {status: Progressing, message: none}}}",
			"6/object.yaml":    "{kind: K}",
			"6/expected.yaml":  "{error: none}",
			"7/object.yaml":    "{kind: K}",
			"7/ask.yaml":       "{expct: {}}",
			"7/expected.yaml":  "{health: {status: Progressing, message: none}}",
			"an object.yaml":   object,
			"only values.yaml": "{with: me}",
		}, flags: []string{"--with", "DIR/h.lua"}, want: `FAIL  DIR/1.yaml
      DIR/1.yaml: unknown field "expct"
FAIL  DIR/2.yaml
      DIR/2.yaml: expect.error is no answer: an error is expected by error in place of expect, next to object
FAIL  DIR/3.yaml
      DIR/3.yaml: expect.helth is no answer: it is one of aggregated, components, dependencies, health, replicas, requirements, retained, revised, status
FAIL  DIR/4.yaml
      it needs either what to expect, or an error
FAIL  DIR/6
      DIR/6/expected.yaml: error is no answer: an error is expected by error in ask.yaml, without this file
FAIL  DIR/7
      DIR/7/ask.yaml: unknown field "expct"
error: 6 of 7 cases fail
`},
		"no interpreter": {files: map[string]string{"1.yaml": "{object: {kind: K}, expect: {replicas: 1}}"},
			want: "FAIL  DIR/1.yaml\n      it names no interpreter: add with, or give --with\nerror: 1 of 1 cases fail\n"},
		"an interpreter for others": {files: map[string]string{"k.txt": interpreter, "1.yaml": "{object: {apiVersion: g/v1, kind: L}, with: k.txt, expect: {replicas: 1}}"},
			want: "FAIL  DIR/1.yaml\n      no interpreter is for L of g/v1\nerror: 1 of 1 cases fail\n"},
		"no cases": {files: map[string]string{"a.yaml": "a: b"}, want: "error: DIR: there are no cases: files that have object, expect or error, or directories with an object.yaml\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := runCases(t, tc.files, tc.flags...); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}
