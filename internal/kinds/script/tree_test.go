package script_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/kinds/script"
)

// hashSuffix is the end of a name that was taken.
var hashSuffix = regexp.MustCompile(`-[0-9a-f]{8}\b`)

const phaseLua = "return {status = obj.status.phase, message = 'the phase'}\n"

func customizationYAML(name, apiVersion, kind, healthy string) string {
	return fmt.Sprintf(`
apiVersion: config.karmada.io/v1alpha1
kind: ResourceInterpreterCustomization
metadata: {name: %s}
spec:
  target: {apiVersion: %s, kind: %s}
  customizations:
    healthInterpretation:
      luaScript: >
        function InterpretHealth(o)
          return %s
        end
`, name, apiVersion, kind, healthy)
}

// convertFiles converts a tree named lib and describes the result: a line for each interpreter, then
// the errors and the skipped files.
func convertFiles(location string, files map[string]string) string {
	t := script.SourceTree{Name: "lib", Location: location}
	for path, text := range files {
		t.Files = append(t.Files, script.SourceFile{Path: path, Text: []byte(text)})
	}
	c := script.ConvertTree(t)
	var out []string
	for _, r := range c.Interpreters {
		target := r.Spec.Target
		out = append(out, strings.Join(slices.DeleteFunc([]string{r.Name, target.APIVersion, target.Group, strings.Join(target.Kinds, ",")}, func(s string) bool { return s == "" }), " "))
	}
	for _, err := range c.Invalid {
		out = append(out, "invalid: "+err.Error())
	}
	for _, sentence := range c.Skipped {
		out = append(out, "skipped: "+sentence)
	}
	return strings.Join(out, "\n")
}

func TestConvertTree(t *testing.T) {
	const layout = ": Argo CD's layout is GROUP/KIND/health.lua, or KIND/health.lua for the core group"
	for name, tc := range map[string]struct {
		location string
		files    map[string]string
		want     string
	}{
		"nothing": {files: map[string]string{"README.md": "x", "values.yaml": "a: b"}},
		"Argo CD's library": {files: map[string]string{
			"argoproj.io/Rollout/health.lua":            phaseLua,
			"argoproj.io/Rollout/health_test.yaml":      "tests: [{inputPath: testdata/a.yaml}]",
			"argoproj.io/Rollout/testdata/a.yaml":       "apiVersion: atoll.dev/v1alpha1\nkind: ResourceInterpreter\n",
			"argoproj.io/Rollout/actions/discovery.lua": "broken ((",
			"argoproj.io/Rollout/actions/health.lua":    "broken ((",
			"_.crossplane.io/_/health.lua":              phaseLua,
			"acid.zalan.do/postgresql/health.lua":       phaseLua,
			"PersistentVolumeClaim/health.lua":          phaseLua,
			"apps/Deployment/health.lua":                phaseLua,
			".git/x/Kind/health.lua":                    "broken ((",
			"embed.go":                                  "package x",
		}, want: "health-persistentvolumeclaim PersistentVolumeClaim\nhealth-any.any.crossplane.io *.crossplane.io *\nhealth-postgresql.acid.zalan.do acid.zalan.do postgresql\nhealth-deployment.apps apps Deployment\nhealth-rollout.argoproj.io argoproj.io Rollout"},
		"from the directory above":      {files: map[string]string{"argo-cd/resource_customizations/argoproj.io/Rollout/health.lua": phaseLua}, want: "health-rollout.argoproj.io argoproj.io Rollout"},
		"from the directory of a group": {location: "/src/resource_customizations/argoproj.io", files: map[string]string{"Rollout/health.lua": phaseLua}, want: "health-rollout.argoproj.io argoproj.io Rollout"},
		"from the directory of a kind":  {location: "/src/resource_customizations/argoproj.io/Rollout", files: map[string]string{"health.lua": phaseLua}, want: "health-rollout.argoproj.io argoproj.io Rollout"},
		"paths without a kind": {location: "/src/checks", files: map[string]string{
			"health.lua": phaseLua, "Rollout/health.lua": phaseLua, "beat.example/health.lua": phaseLua, "a/b.example/Kind/health.lua": phaseLua,
			"checks/Pod/health.lua": phaseLua, "b.example/not a kind/health.lua": phaseLua, "b..example/Kind/health.lua": phaseLua,
		}, want: "skipped: lib/Rollout/health.lua is skipped: Rollout is no kind of the core group, and its group would be the directory above" + layout +
			"\nskipped: lib/a/b.example/Kind/health.lua is skipped: it lies too deep" + layout +
			"\nskipped: lib/b..example/Kind/health.lua is skipped: \"b..example\" is no group" + layout +
			"\nskipped: lib/b.example/not a kind/health.lua is skipped: \"not a kind\" is no kind" + layout +
			"\nskipped: lib/beat.example/health.lua is skipped: beat.example is no kind of the core group, and its group would be the directory above" + layout +
			"\nskipped: lib/checks/Pod/health.lua is skipped: \"checks\" is no group" + layout +
			"\nskipped: lib/health.lua is skipped: its path names no kind" + layout},
		"Karmada's customizations": {files: map[string]string{
			"g.example/v1/Widget/customizations.yaml":       customizationYAML("widget", "g.example/v1", "Widget", "true"),
			"g.example/v1/Widget/customizations_tests.yaml": "tests:\n- observedInputPath: testdata/a.yaml\n",
			"g.example/v1/Widget/testdata/a.yaml":           "apiVersion: g.example/v1\nkind: Widget\n",
			"h.example/v1/Gadget/customizations.yaml":       customizationYAML("gadget", "h.example/v1", "Gadget", "true"),
		}, want: "widget g.example/v1 Widget\ngadget h.example/v1 Gadget"},
		"names that are taken": {files: map[string]string{
			"1.yaml":                      customizationYAML("widget", "g.example/v1", "Widget", "true"),
			"2.yaml":                      customizationYAML("widget", "g.example/v1", "Widget", "true"),
			"3.yaml":                      customizationYAML("widget", "g.example/v1", "Widget", "false"),
			"4.yaml":                      customizationYAML("Widget", "g.example/v1", "Widget", "false"),
			"g.example/Widget/health.lua": phaseLua, "g.example/WIDGET/health.lua": phaseLua + "--",
			"resource_customizations/g.example/Widget/health.lua": phaseLua + "-- another",
		}, want: "widget g.example/v1 Widget\nhealth-widget.g.example g.example WIDGET\nhealth-widget.g.example-HASH g.example Widget" +
			"\ninvalid: lib/3.yaml: it has the name widget and answers for Widget of g.example/v1, as lib/1.yaml does: keep one of them" +
			"\ninvalid: lib/4.yaml: metadata.name is \"Widget\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')" +
			"\ninvalid: lib/resource_customizations/g.example/Widget/health.lua: it has the name health-widget.g.example-HASH and answers for Widget of g.example, as lib/g.example/Widget/health.lua does: keep one of them"},
		"other objects of a file are ignored": {files: map[string]string{
			"all.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: ResourceInterpreter}\n---\n" +
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: {resource.customizations.ignoreDifferences.all: x}\n---\n" +
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  resource.customizations.health.g.example_Widget: " + phaseLua + "---\n" +
				"apiVersion: atoll.dev/v1alpha1\nkind: ResourceInterpreter\nmetadata: {name: mine}\nspec: {target: {group: g.example, kinds: [Gadget]}, health: {cel: 'true'}}\n",
			"broken.yaml": "a: [", "list.yaml": "[ResourceInterpreter]", "twice.yaml": "kind: Service\na: ResourceInterpreter\na: b\n",
		}, want: "health-widget.g.example g.example Widget\nmine g.example Gadget"},
		"all that is not valid, with its place": {files: map[string]string{
			"a.example/A/health.lua": "local x = 1\nreturn {{{\n",
			"a.example/B/health.lua": "x = 1\n\nreturn load('x')\n",
			"a.example/C/health.lua": phaseLua,
			"Secret/health.lua":      phaseLua,
			"k.yaml":                 customizationYAML("one", "g/v1", "One", "true") + "---\n" + customizationYAML("two", "g/v1", "Two", "load('x')"),
			"r.yaml":                 "kind: ResourceInterpreter\n  bad: [\n",
			"s.yaml":                 "apiVersion: atoll.dev/v1alpha1\nkind: ResourceInterpreter\nmetadata: {name: twice}\nspec: {}\nspec: {}\n",
		}, want: "health-c.a.example a.example C\none g/v1 One" +
			"\ninvalid: lib/Secret/health.lua: spec.target.kinds: scripts see no Secrets: people without the right to read Secrets see the answers of scripts" +
			"\ninvalid: lib/a.example/A/health.lua, line 2, column 11: syntax error: the script ends too soon" +
			"\ninvalid: lib/a.example/B/health.lua, line 3, column 8: load is not here: a script makes no further code" +
			"\ninvalid: lib/k.yaml, document 2: two: spec.customizations.healthInterpretation.luaScript, line 2, column 10: load is not here: a script makes no further code" +
			"\ninvalid: lib/r.yaml: error converting YAML to JSON: yaml: line 2: mapping values are not allowed in this context" +
			"\ninvalid: lib/s.yaml: twice: yaml: unmarshal errors:   line 5: key \"spec\" already set in map"},
	} {
		t.Run(name, func(t *testing.T) {
			got := hashSuffix.ReplaceAllString(convertFiles(tc.location, tc.files), "-HASH")
			if got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Interpreters of a tree answer under their new names.
func TestTreeAnswers(t *testing.T) {
	c := script.ConvertTree(script.SourceTree{Name: "lib", Files: []script.SourceFile{
		{Path: "1.yaml", Text: []byte(customizationYAML("widget", "g.example/v1", "Widget", "false"))},
		{Path: "2.yaml", Text: []byte(customizationYAML("widget", "g.example/v2", "Widget", "true"))},
		{Path: "_.example/_/health.lua", Text: []byte(phaseLua)},
	}})
	if len(c.Invalid)+len(c.Skipped) > 0 {
		t.Fatal(c.Invalid, c.Skipped)
	}
	known := c.CompiledInterpreters()
	for apiVersion, want := range map[string]string{"g.example/v1": "Progressing", "g.example/v2": "Healthy", "g.example/v3": "Suspended"} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": "Widget", "status": map[string]any{"phase": "Suspended"}}}
		if h, reason, message := known.AssessHealth(obj); string(h) != want {
			t.Errorf("%s is %s (%s, %s), want %s", apiVersion, h, reason, message, want)
		}
	}
}

// Each status of Argo CD has a health. Missing waits, as for an object that its controller still has
// to create. Argo CD takes a status that it does not know as Unknown.
func TestHealthOfArgoStatuses(t *testing.T) {
	known := script.ConvertTree(script.SourceTree{Files: []script.SourceFile{{Path: "g.example/Widget/health.lua", Text: []byte(phaseLua)}}}).CompiledInterpreters()
	for phase, want := range map[string]string{
		"Healthy": "Healthy  ", "Progressing": "Progressing Interpreted the phase", "Degraded": "Degraded Interpreted the phase",
		"Suspended": "Suspended Interpreted the phase", "Missing": "Progressing Missing the phase", "Unknown": "Unknown Interpreted the phase",
		"Fine": "Unknown InterpreterFailed ",
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "g.example/v1", "kind": "Widget", "status": map[string]any{"phase": phase}}}
		h, reason, message := known.AssessHealth(obj)
		if got := fmt.Sprintf("%s %s %s", h, reason, message); !strings.HasPrefix(got, want) || phase != "Fine" && got != want {
			t.Errorf("%s is %q, want %q", phase, got, want)
		}
	}
}

// The name of any kind and group of Argo CD's settings is valid.
func TestNamesOfHealthScriptsAreValid(t *testing.T) {
	for _, key := range []string{"a..b_Kind", "-_-", strings.Repeat("long.", 60) + "example_Kind", "?_?", "*_*", "g.example_Kind-"} {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  \"resource.customizations.health." + key + "\": return {status = 'Healthy'}\n"
		c := script.ConvertTree(script.SourceTree{Files: []script.SourceFile{{Path: "cm.yaml", Text: []byte(text)}}})
		if len(c.Invalid) > 0 || len(c.Interpreters) != 1 {
			t.Errorf("%s: %v, %d interpreters", key, c.Invalid, len(c.Interpreters))
		}
	}
}

// FuzzConvertTree: any file gives valid and unique names, or an error, and no panic.
func FuzzConvertTree(f *testing.F) {
	f.Add("g.example/Widget/health.lua", phaseLua)
	f.Add("cm.yaml", "kind: ConfigMap\napiVersion: v1\ndata: {resource.customizations: 'a/b: {health.lua: x}'}")
	f.Add("k.yaml", customizationYAML("widget", "g.example/v1", "Widget", "false"))
	f.Fuzz(func(t *testing.T, path, text string) {
		c := script.ConvertTree(script.SourceTree{Name: "lib", Files: []script.SourceFile{{Path: path, Text: []byte(text)}, {Path: "x/" + path, Text: []byte(text + "\n")}}})
		names := map[string]bool{}
		for _, r := range c.Interpreters {
			if names[r.Name] || r.Name == "" || len(r.Name) > 253 {
				t.Errorf("the name %q", r.Name)
			}
			names[r.Name] = true
		}
	})
}
