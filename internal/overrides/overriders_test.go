package overrides_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

func parseOverriders(t testing.TB, text string) (o v1alpha1.Overriders) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// yamlToJSON a YAML text.
func yamlToJSON(t testing.TB, text string) string {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// formatNotes an item, as path=value.
func formatNotes(notes []overrides.Provenance) string {
	var out []string
	for _, n := range notes {
		value := n.Value
		if raw, ok := value.(json.RawMessage); ok {
			value = string(raw)
		}
		out = append(out, fmt.Sprintf("%s=%v", n.Path, value))
	}
	return strings.Join(out, " ")
}

// overrideObject an object by one rule, and give the result as JSON, or what failed.
func overrideObject(t testing.TB, kind, object, over string) (result, notes string, failed string) {
	t.Helper()
	gk := map[string]atoll.ItemKey{
		"Deployment": webKey, "Secret": secretKey, "Role": roleKey,
		"ConfigMap": {Kind: "ConfigMap", Namespace: "shop", Name: "c"},
		"Widget":    {Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w"},
	}
	key := gk[kind]
	c := &atoll.Content{Items: []atoll.Item{newItem(key, yamlToJSON(t, object))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", parseOverriders(t, over), key)}}
	items, list := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
	return string(items[0].Object), formatNotes(list), items[0].Error
}

const deploymentYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {a: "1"}}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {name: web, image: "nginx:1", command: [run, --fast], args: [--a, --b, --a], env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}], resources: {limits: {cpu: "1"}, requests: {cpu: 500m}}}
      - {name: log, image: "fluent:1"}
      initContainers:
      - {name: init, image: "busybox:1", args: [--a]}
`

// widgetYAML has two pod templates, of which one is in a list.
const widgetYAML = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: shop}
spec:
  replicas: 2
  parts:
  - {name: p, pod: {containers: [{name: web, image: "a:1"}]}}
  server: {containers: [{name: web, image: "b:1"}, {name: other, image: "c:1"}]}
status: {containers: [{name: web, image: "d:1"}]}
`

// Each overrider and each of its fields, as the documentation says. patched is what is
// merged into the object to make what is wanted; an empty one means that nothing changes.
func TestOverriderFields(t *testing.T) {
	const pod = "/spec/template/spec/"
	for _, tc := range []struct{ name, kind, object, over, want, notes string }{
		{"commandOverrider add", "Deployment", deploymentYAML, `{commandOverrider: [{containerName: web, operator: add, value: [--x, --fast]}]}`,
			`"command":["run","--fast","--x","--fast"]`, pod + "containers/0/command=[run --fast --x --fast]"},
		{"commandOverrider remove", "Deployment", deploymentYAML, `{commandOverrider: [{containerName: web, operator: remove, value: [--fast]}]}`,
			`"command":["run"]`, pod + "containers/0/command=[run]"},
		{"commandOverrider remove all", "Deployment", deploymentYAML, `{commandOverrider: [{containerName: web, operator: remove, value: [run, --fast]}]}`,
			`!command`, pod + "containers/0/command=<nil>"},
		{"commandOverrider of another containerName", "Deployment", deploymentYAML, `{commandOverrider: [{containerName: none, operator: add, value: [x]}]}`, ``, ``},
		{"argsOverrider add", "Deployment", deploymentYAML, `{argsOverrider: [{containerName: log, operator: add, value: [-v]}]}`,
			`"args":["-v"]`, pod + "containers/1/args=[-v]"},
		{"argsOverrider remove", "Deployment", deploymentYAML, `{argsOverrider: [{containerName: web, operator: remove, value: [--a, --none]}]}`,
			`"args":["--b"]`, pod + "containers/0/args=[--b]"},
		{"argsOverrider of an init container", "Deployment", deploymentYAML, `{argsOverrider: [{containerName: init, operator: add, value: [--b]}]}`,
			`"args":["--a","--b"]`, pod + "initContainers/0/args=[--a --b]"},
		{"argsOverrider of a custom kind", "Widget", widgetYAML, `{argsOverrider: [{containerName: web, operator: add, value: [--b]}]}`,
			`"args":["--b"]`, "/spec/parts/0/pod/containers/0/args=[--b] /spec/server/containers/0/args=[--b]"},
		{"envOverrider add", "Deployment", deploymentYAML, `{envOverrider: [{containerName: web, operator: add, value: [{name: B, value: b}, {name: C, value: c}]}]}`,
			`"env":[{"name":"A","value":"1"},{"name":"B","value":"b"},{"name":"C","value":"c"}]`, pod + "containers/0/env/1/value=b " + pod + "containers/0/env/2/value=c"},
		{"envOverrider replace", "Deployment", deploymentYAML, `{envOverrider: [{operator: replace, value: [{name: A, value: a}, {name: C, value: c}]}]}`,
			`"env":[{"name":"A","value":"a"},{"name":"B","valueFrom"`, pod + "containers/0/env/0/value=a"},
		{"envOverrider remove", "Deployment", deploymentYAML, `{envOverrider: [{operator: remove, value: [{name: A}]}]}`,
			`"env":[{"name":"B","valueFrom"`, pod + "containers/0/env/0=<nil>"},
		{"envOverrider in every container", "Deployment", deploymentYAML, `{envOverrider: [{operator: add, value: [{name: Z, value: z}]}]}`,
			`"env":[{"name":"Z","value":"z"}]`, pod + "containers/0/env/2/value=z " + pod + "containers/1/env/0/value=z " + pod + "initContainers/0/env/0/value=z"},
		{"resourcesOverrider limits", "Deployment", deploymentYAML, `{resourcesOverrider: [{containerName: web, operator: add, limits: {cpu: 2, memory: 1Gi}}]}`,
			`"resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"500m"}}`, pod + "containers/0/resources/limits/cpu=2 " + pod + "containers/0/resources/limits/memory=1Gi"},
		{"resourcesOverrider requests", "Deployment", deploymentYAML, `{resourcesOverrider: [{operator: replace, requests: {cpu: 250m, memory: 1Gi}}]}`,
			`"requests":{"cpu":"250m"}`, pod + "containers/0/resources/requests/cpu=250m"},
		{"resourcesOverrider remove", "Deployment", deploymentYAML, `{resourcesOverrider: [{operator: remove, limits: {cpu: 0}, requests: {cpu: 0}}]}`,
			`!resources`, pod + "containers/0/resources/limits/cpu=<nil> " + pod + "containers/0/resources/requests/cpu=<nil>"},
		{"resourcesOverrider of an init container by containerName", "Deployment", deploymentYAML, `{resourcesOverrider: [{containerName: init, operator: add, limits: {cpu: 2}}]}`,
			`"resources":{"limits":{"cpu":"2"}}`, pod + "initContainers/0/resources/limits/cpu=2"},
		{"replicas of a custom kind", "Widget", widgetYAML, `{replicas: 5}`, `"replicas":5`, "/spec/replicas=5"},
		{"imageOverrider of one containerName", "Deployment", deploymentYAML, `{imageOverrider: [{containerName: log, component: Tag, operator: replace, value: "2"}]}`,
			`"image":"fluent:2"`, pod + "containers/1/image=fluent:2"},
		{"imageOverrider of an init container by containerName", "Deployment", deploymentYAML, `{imageOverrider: [{containerName: init, component: Tag, operator: replace, value: "2"}]}`,
			`"image":"busybox:2"`, pod + "initContainers/0/image=busybox:2"},
		{"imageOverrider of another containerName", "Deployment", deploymentYAML, `{imageOverrider: [{containerName: none, component: Tag, operator: replace, value: "2"}]}`, ``, ``},
		{"imageOverrider in a custom kind", "Widget", widgetYAML, `{imageOverrider: [{component: Registry, operator: replace, value: m.io}]}`,
			`"m.io/a:1"`, "/spec/parts/0/pod/containers/0/image=m.io/a:1 /spec/server/containers/0/image=m.io/b:1 /spec/server/containers/1/image=m.io/c:1"},
		{"mergePatch", "Deployment", deploymentYAML, `{mergePatch: {metadata: {labels: {a: null, b: "2"}}, spec: {paused: true, template: {spec: {initContainers: null}}}}}`,
			`"labels":{"b":"2"}`, "/metadata/labels/a=<nil> /metadata/labels/b=2 /spec/paused=true /spec/template/spec/initContainers=<nil>"},
		{"mergePatch replaces lists", "Widget", widgetYAML, `{mergePatch: {spec: {parts: []}}}`, `"parts":[]`, "/spec/parts=[]"},
		{"strategicMerge", "Deployment", deploymentYAML, `{strategicMerge: {spec: {template: {spec: {containers: [{name: log, image: "fluent:2"}]}}}}}`,
			`{"image":"fluent:2","name":"log"}`, pod + "containers/1/image=fluent:2"},
		{"strategicMerge removes from a list", "Deployment", deploymentYAML, `{strategicMerge: {spec: {template: {spec: {containers: [{name: log, $patch: delete}]}}}}}`,
			`!fluent`, ""},
		{"fieldOverrider json", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.json, json: [{subPath: /db/host, operator: replace, value: eu}, {subPath: /tags/-, operator: add, value: 2}]}]}`,
			`"db.json":"{\n  \"big\": 12345678901234567890,\n  \"db\": {\n    \"host\": \"eu\",\n    \"url\": \"a\u0026b\"\n  },\n  \"tags\": [\n    \"x\",\n    2\n  ]\n}\n"`,
			"/data/db.json#/db/host=eu /data/db.json#/tags/-=2"},
		{"fieldOverrider json subPath remove", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/one.json, json: [{subPath: /b, operator: remove}]}]}`,
			`"one.json":"{\"a\":1}"`, "/data/one.json#/b=<nil>"},
		{"fieldOverrider yaml", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.yaml, yaml: [{subPath: /db/host, operator: replace, value: eu}, {subPath: /db/port, operator: add, value: 5432}, {subPath: /tags/0, operator: add, value: {k: "1"}}]}]}`,
			`"db.yaml":"# the database\ndb:\n  url: a\u0026b\n  host: eu # where\n  port: 5432\nbig: 12345678901234567890\ntags:\n  - k: \"1\"\n  - x\n"`,
			"/data/db.yaml#/db/host=eu /data/db.yaml#/db/port=5432 /data/db.yaml#/tags/0=map[k:1]"},
		{"fieldOverrider yaml quotes what is no text to old readers", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.yaml, yaml: [{subPath: /db/host, operator: replace, value: "no"}, {subPath: "/on", operator: add, value: "1:30"}]}]}`,
			`host: \"no\" # where\nbig: 12345678901234567890\ntags:\n  - x\n\"on\": \"1:30\"\n"`, ""},
		{"fieldOverrider yaml remove", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.yaml, yaml: [{subPath: /db, operator: remove}]}]}`,
			`"db.yaml":"big: 12345678901234567890\ntags:\n  - x\n"`, "/data/db.yaml#/db=<nil>"},
		{"fieldOverrider mergePatch of JSON", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.json, mergePatch: {db: {host: eu, url: null, none: null}, tags: null, num: {a: 1, b: null}}}]}`,
			`"db.json":"{\n  \"big\": 12345678901234567890,\n  \"db\": {\n    \"host\": \"eu\"\n  },\n  \"num\": {\n    \"a\": 1\n  }\n}\n"`,
			"/data/db.json#/db/host=eu /data/db.json#/db/url=<nil> /data/db.json#/num=map[a:1] /data/db.json#/tags=<nil>"},
		{"fieldOverrider mergePatch of YAML", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.yaml, mergePatch: {db: {host: "no", port: 5432, none: null}, big: null, tags: [null, z], new: {a: 1, b: null}}}]}`,
			`"db.yaml":"# the database\ndb:\n  url: a\u0026b\n  host: \"no\" # where\n  port: 5432\ntags:\n  - null\n  - z\nnew:\n  a: 1\n"`,
			"/data/db.yaml#/big=<nil> /data/db.yaml#/db/host=no /data/db.yaml#/db/port=5432 /data/db.yaml#/new=map[a:1] /data/db.yaml#/tags=[<nil> z]"},
		{"fieldOverrider mergePatch that changes nothing", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.json, mergePatch: {}}]}`, `"big\": 12345678901234567890`, ""},
		{"fieldOverrider mergePatch in place of a text", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/db.yaml, mergePatch: {db: {host: {name: eu}}}}]}`, `  # where\n  host:\n    name: eu\n`, "/data/db.yaml#/db/host=map[name:eu]"},
		{"fieldOverrider with null", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/one.json, json: [{subPath: /b, operator: replace, value: null}]}, {fieldPath: /data/db.yaml, yaml: [{subPath: /db/host, operator: add, value: null}]}]}`,
			`"db.yaml":"# the database\ndb:\n  url: a\u0026b\n  host: null # where\n`, "/data/one.json#/b=null /data/db.yaml#/db/host=null"},
		{"ordered", "Deployment", deploymentYAML, `{ordered: [{plaintext: {path: /spec/paused, operator: add, value: true}}, {plaintext: {path: /spec/paused, operator: remove}}, {mergePatch: {spec: {paused: false}}}]}`,
			`"paused":false`, "/spec/paused=true /spec/paused=<nil> /spec/paused=false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, notes, failed := overrideObject(t, tc.kind, tc.object, tc.over)
			if failed != "" {
				t.Fatal(failed)
			}
			if again, _, _ := overrideObject(t, tc.kind, tc.object, tc.over); again != got {
				t.Errorf("the same gives first\n%s\nthen\n%s", got, again)
			}
			absent, isAbsent := strings.CutPrefix(tc.want, "!")
			switch before := yamlToJSON(t, tc.object); {
			case tc.want == "" && got != before:
				t.Errorf("changed to %s", got)
			case isAbsent && (strings.Contains(got, `"`+absent) || !strings.Contains(before, `"`+absent)):
				t.Errorf("%s is still in %s", absent, got)
			case !isAbsent && !strings.Contains(got, tc.want):
				t.Errorf("no %s in\n%s", tc.want, got)
			}
			if tc.notes != "" && notes != tc.notes || tc.want == "" && notes != "" {
				t.Errorf("provenance %q\nwant       %q", notes, tc.notes)
			}
		})
	}
}

const configYAML = `
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop}
data:
  one.json: '{"b": 2, "a": 1}'
  db.json: |
    {
      "tags": ["x"],
      "big": 12345678901234567890,
      "db": {"url": "a&b", "host": "us"}
    }
  db.yaml: |
    # the database
    db:
      url: a&b
      host: us # where
    big: 12345678901234567890
    tags: 
    - x
  alias.yaml: |
    base: &base {host: us}
    other: *base
    twice: 1
    twice: 2
  many.yaml: |
    a: 1
    ---
    b: 1
  text: "no: [document"
`

// An overrider that does not apply stops the item, with the place in the error.
func TestOverriderRefusals(t *testing.T) {
	yamlAt := func(field, path, op string) string {
		value := ", value: 1"
		if op == "remove" {
			value = ""
		}
		return fmt.Sprintf("{fieldOverrider: [{fieldPath: /data/%s, yaml: [{subPath: %s, operator: %s%s}]}]}", field, path, op, value)
	}
	for _, tc := range []struct{ name, kind, object, over, want string }{
		{"no text", "ConfigMap", configYAML, yamlAt("none", "/a", "add"), "fieldOverrider[0]: there is no text at /data/none"},
		{"no YAML", "ConfigMap", configYAML, yamlAt("text", "/a", "add"), "in the document at /data/text: it is not YAML"},
		{"no JSON", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/text, json: [{subPath: /a, operator: remove}]}]}`, "in the document at /data/text: it is not JSON"},
		{"several documents", "ConfigMap", configYAML, yamlAt("many.yaml", "/a", "replace"), "more than one YAML document"},
		{"below an alias", "ConfigMap", configYAML, yamlAt("alias.yaml", "/other/host", "replace"), "what *base stands for"},
		{"below an anchor", "ConfigMap", configYAML, yamlAt("alias.yaml", "/base/host", "replace"), "what &base names"},
		{"an anchor that is used", "ConfigMap", configYAML, yamlAt("alias.yaml", "/base", "remove"), "what remains is not YAML"},
		{"a key that is there twice", "ConfigMap", configYAML, yamlAt("alias.yaml", "/twice", "replace"), `"twice" is there twice`},
		{"nothing to replace", "ConfigMap", configYAML, yamlAt("db.yaml", "/none", "replace"), `replace /none: there is no "none"`},
		{"nothing on the way", "ConfigMap", configYAML, yamlAt("db.yaml", "/none/a", "add"), `there is no "none"`},
		{"a large index", "ConfigMap", configYAML, yamlAt("db.yaml", "/tags/99999999999999999999", "add"), "is not an index"},
		{"an index past the end", "ConfigMap", configYAML, yamlAt("db.yaml", "/tags/2", "add"), "there is no element 2 in a list of 1"},
		{"the element after the last to remove", "ConfigMap", configYAML, yamlAt("db.yaml", "/tags/-", "remove"), `"-" is not an index`},
		{"below a text", "ConfigMap", configYAML, yamlAt("db.yaml", "/big/a", "add"), "neither a map nor a list"},
		{"a merge below an alias", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/alias.yaml, mergePatch: {other: {host: eu}}}]}`, `"/other" is what *base stands for`},
		{"a merge below an anchor", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/alias.yaml, mergePatch: {base: {host: eu}}}]}`, `"/base" is in what &base names`},
		{"a merge of an anchor that is used", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/alias.yaml, mergePatch: {base: null}}]}`, "what remains is not YAML"},
		{"a merge of a key that is there twice", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/alias.yaml, mergePatch: {twice: 3}}]}`, `"twice" is there twice`},
		{"a merge into a text", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/text, mergePatch: {a: 1}}]}`, "in the document at /data/text: it is not YAML"},
		{"a merge into several documents", "ConfigMap", configYAML, `{fieldOverrider: [{fieldPath: /data/many.yaml, mergePatch: {a: 1}}]}`, "more than one YAML document"},
		{"a merge into a list", "ConfigMap", strings.Replace(configYAML, "one.json: '", "one.json: '[1]' #", 1), `{fieldOverrider: [{fieldPath: /data/one.json, mergePatch: {a: 1}}]}`, "it is no map"},
		{"strategicMerge of a custom kind", "Widget", widgetYAML, `{strategicMerge: {spec: {parts: []}}}`, "a Widget of example.com/v1 is no built-in kind"},
		{"mergePatch of a name", "Deployment", deploymentYAML, `{mergePatch: {metadata: {name: x}}}`, "never touch /metadata/name"},
		{"mergePatch of finalizers", "Deployment", deploymentYAML, `{mergePatch: {metadata: {finalizers: null}}}`, "never touch /metadata/finalizers"},
		{"mergePatch of a kind", "Deployment", deploymentYAML, `{mergePatch: {kind: Pod}}`, "never touch /kind"},
		{"mergePatch of all metadata", "Deployment", deploymentYAML, `{mergePatch: {metadata: null}}`, "never touch /metadata as a whole"},
		{"mergePatch of Atoll's own", "Deployment", deploymentYAML, `{mergePatch: {metadata: {annotations: {atoll.dev/x: y}}}}`, "Atoll's own"},
		{"mergePatch with a list", "Deployment", deploymentYAML, `{mergePatch: [1]}`, "has to be an object"},
		{"strategicMerge in place of the object", "Deployment", deploymentYAML, `{strategicMerge: {$patch: replace, spec: {}}}`, "an object as a whole"},
		{"strategicMerge in place of the metadata", "Deployment", deploymentYAML, `{strategicMerge: {metadata: {$patch: replace, labels: {}}}}`, "never touch /metadata/$patch"},
		{"strategicMerge that keeps nothing", "Deployment", deploymentYAML, `{strategicMerge: {$retainKeys: [spec], spec: {}}}`, "an object as a whole"},
		{"strategicMerge with Atoll's own from a list", "Deployment", deploymentYAML, `{strategicMerge: {metadata: {$setElementOrder/finalizers: [a]}}}`, "never touch"},
		{"strategicMerge without the key of a list", "Deployment", deploymentYAML, `{strategicMerge: {spec: {template: {spec: {containers: [{image: x}]}}}}}`, "strategicMerge: merge /spec/template/spec/containers: the list cannot be merged"},
		{"strategicMerge of other types", "Deployment", deploymentYAML, `{strategicMerge: {spec: {template: {spec: {containers: [1]}}}}}`, "strategicMerge: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, notes, failed := overrideObject(t, tc.kind, tc.object, tc.over)
			if !strings.Contains(failed, tc.want) || !strings.HasPrefix(failed, "ClusterOverridePolicy/p rule 0 ") || got != "" || notes != "" {
				t.Errorf("error %q, object %s, provenance %s; want %q", failed, got, notes, tc.want)
			}
		})
	}
}

// The fixed order is Karmada's (image, command, args, labels, annotations, field,
// plaintext), ours stand before plaintext, and ordered comes last.
func TestOrderOfOverriders(t *testing.T) {
	object := strings.Replace(deploymentYAML, `labels: {a: "1"}`, `labels: {a: "1"}, annotations: {doc: '{"a":1}'}`, 1)
	over := `{
  ordered: [{labelsOverrider: {operator: add, value: {a: o}}}],
  plaintext: [{path: /metadata/labels/a, operator: replace, value: p}],
  strategicMerge: {metadata: {labels: {a: s}}},
  mergePatch: {metadata: {labels: {a: m}}},
  replicas: 4,
  resourcesOverrider: [{containerName: web, operator: add, limits: {cpu: 2}}],
  envOverrider: [{containerName: web, operator: add, value: [{name: A, value: x}]}],
  fieldOverrider: [{fieldPath: /metadata/annotations/doc, json: [{subPath: /a, operator: replace, value: 2}]}],
  annotationsOverrider: [{operator: add, value: {b: "1"}}],
  labelsOverrider: [{operator: add, value: {a: l}}],
  argsOverrider: [{containerName: web, operator: add, value: [x]}],
  commandOverrider: [{containerName: web, operator: add, value: [x]}],
  imageOverrider: [{component: Tag, operator: replace, value: "2"}]}`
	c := &atoll.Content{Items: []atoll.Item{newItem(webKey, yamlToJSON(t, object))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", parseOverriders(t, over), webKey)}}
	items, notes := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
	var got []string
	for _, n := range notes {
		if len(got) == 0 || got[len(got)-1] != n.Overrider {
			got = append(got, n.Overrider)
		}
	}
	want := "imageOverrider[0] commandOverrider[0] argsOverrider[0] labelsOverrider[0] annotationsOverrider[0] fieldOverrider[0] " +
		"envOverrider[0] resourcesOverrider[0] replicas mergePatch strategicMerge plaintext[0] ordered[0].labelsOverrider"
	if strings.Join(got, " ") != want || items[0].Error != "" {
		t.Errorf("order %q\nwant  %q\n%s", got, want, items[0].Error)
	}
	if !strings.Contains(string(items[0].Object), `"labels":{"a":"o"}`) {
		t.Errorf("ordered has not the last word: %s", items[0].Object)
	}
}

// A rule of the first meaning is rendered as it was then.
func TestRulesKeepTheirOldMeaning(t *testing.T) {
	c := newContent(newRule("ClusterOverridePolicy/p", parseOverriders(t, `{labelsOverrider: [{operator: add, value: {app: x, b: z}}], plaintext: [{path: /spec, operator: replace, value: {paused: true}}]}`), webKey))
	c.Rules[0].Semantics = 0
	c.Items[1].Divided = true
	r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey)
	if want := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web","b":"z"},"name":"web","namespace":"shop"},"spec":{"paused":true,"replicas":2}}`; string(r.Object) != want {
		t.Errorf("%s%s, want %s", r.Error, r.Object, want)
	}
}

// No overrider changes what the placement divides, in whatever way.
func TestOverridersCannotSetDividedReplicas(t *testing.T) {
	for _, over := range []string{
		`{replicas: 5}`, `{mergePatch: {spec: {replicas: 5}}}`, `{mergePatch: {spec: null}}`, `{strategicMerge: {spec: {replicas: 5}}}`,
		`{strategicMerge: {spec: {$patch: replace, paused: true}}}`, `{plaintext: [{path: /spec/replicas, operator: replace, value: 3}]}`,
		`{plaintext: [{path: /spec, operator: replace, value: {replicas: 5}}]}`, `{plaintext: [{path: /spec, operator: remove}]}`,
		`{ordered: [{replicas: 5}]}`,
	} {
		o := parseOverriders(t, over)
		if !overrides.CanSetReplicas(o) {
			t.Errorf("%s: admission would let it pass", over)
		}
		c := newContent(newRule("ClusterOverridePolicy/p", o, webKey))
		c.Items[1].Divided = true
		if r, _ := renderedItem(t, c, manifest.RenderInput{Rules: []int{0}, Assigned: map[string]int64{webKey.String(): 2}}, webKey); !strings.Contains(r.Error, "divides") {
			t.Errorf("%s: %s%s", over, r.Error, r.Object)
		}
	}
	for _, over := range []string{`{mergePatch: {spec: {paused: true}}}`, `{labelsOverrider: [{operator: add, value: {a: b}}]}`, `{plaintext: [{path: /spec/paused, operator: add, value: true}]}`} {
		if overrides.CanSetReplicas(parseOverriders(t, over)) {
			t.Errorf("%s: admission would refuse it", over)
		}
	}
}

// Only a ClusterOverridePolicy changes the data of Secrets, in whatever way.
func TestOnlyClusterPoliciesChangeSecretData(t *testing.T) {
	for _, over := range []string{
		`{mergePatch: {data: {p: eQ==}}}`, `{strategicMerge: {stringData: {p: y}}}`, `{fieldOverrider: [{fieldPath: /data/p, json: [{subPath: /a, operator: remove}]}]}`,
		`{ordered: [{plaintext: {path: /data/p, operator: remove}}]}`, `{ordered: [{mergePatch: {data: null}}]}`,
		`{fieldOverrider: [{fieldPath: /data/p, mergePatch: {a: b}}]}`,
		`{imageOverrider: [{component: Tag, operator: remove, predicate: {path: /data/p}}]}`,
	} {
		o := parseOverriders(t, over)
		if !overrides.ChangesSecretData(o) {
			t.Errorf("%s: admission would let it pass", over)
		}
		r, _ := renderedItem(t, newContent(newRule("OverridePolicy/shop/p", o, secretKey)), manifest.RenderInput{Rules: []int{0}}, secretKey)
		if !strings.Contains(r.Error, "only a ClusterOverridePolicy") {
			t.Errorf("%s: %s%s", over, r.Error, r.Object)
		}
	}
	// An error on a Secret does not quote it.
	for _, over := range []string{
		`{fieldOverrider: [{fieldPath: /data/p, json: [{subPath: /a, operator: remove}]}]}`,
		`{fieldOverrider: [{fieldPath: /data/p, mergePatch: {a: b}}]}`,
		`{imageOverrider: [{component: Tag, operator: remove, predicate: {path: /data/p}}]}`,
	} {
		r, _ := renderedItem(t, newContent(newRule("ClusterOverridePolicy/p", parseOverriders(t, over), secretKey)), manifest.RenderInput{Rules: []int{0}}, secretKey)
		if r.Error == "" || strings.Contains(r.Error, "eA") {
			t.Errorf("%s: error %q", over, r.Error)
		}
	}
}

// An overrider that can never apply is refused at admission, with its path.
func TestCheckOverridersReportsImpossibleOverriders(t *testing.T) {
	for _, tc := range []struct{ over, path, reason string }{
		{`{imageOverrider: [{containerName: web, predicate: {path: /spec/image}, component: Tag, operator: remove}]}`, "imageOverrider[0].containerName", "either a predicate or a containerName"},
		{`{imageOverrider: [{component: Digest, operator: add, value: v1}]}`, "imageOverrider[0].value", "is not a digest"},
		{`{mergePatch: {status: {}}}`, "mergePatch", "never touch /status"},
		{`{mergePatch: "text"}`, "mergePatch", "has to be an object"},
		{`{mergePatch: ` + strings.Repeat("{a: ", 100) + "1" + strings.Repeat("}", 100) + `}`, "mergePatch", "more than 64 deep"},
		{`{strategicMerge: {metadata: {ownerReferences: []}}}`, "strategicMerge", "never touch /metadata/ownerReferences"},
		{`{plaintext: [{path: /spec/a, operator: add, value: ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}]}`, "plaintext[0].value", "more than 64 deep"},
		{`{plaintext: [{path: "/spec/~2", operator: remove}]}`, "plaintext[0].path", "~ has to be followed by 0 or 1"},
		{`{fieldOverrider: [{fieldPath: /metadata/name, yaml: [{subPath: /a, operator: remove}]}]}`, "fieldOverrider[0].fieldPath", "never touch"},
		{`{fieldOverrider: [{fieldPath: /data/a, yaml: [{subPath: "/~", operator: remove}]}]}`, "fieldOverrider[0].yaml[0].subPath", "~ has to be"},
		{`{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: add}]}]}`, "fieldOverrider[0].json[0].value", "needs a value"},
		{`{fieldOverrider: [{fieldPath: /data/a, json: [{subPath: /a, operator: remove}], yaml: [{subPath: /a, operator: remove}]}]}`, "fieldOverrider[0]", "either json, yaml or mergePatch"},
		{`{fieldOverrider: [{fieldPath: /data/a}]}`, "fieldOverrider[0]", "either json, yaml or mergePatch"},
		{`{fieldOverrider: [{fieldPath: /data/a, mergePatch: {a: 1}, yaml: [{subPath: /a, operator: remove}]}]}`, "fieldOverrider[0]", "either json, yaml or mergePatch"},
		{`{fieldOverrider: [{fieldPath: /data/a, mergePatch: [1]}]}`, "fieldOverrider[0].mergePatch", "has to be an object"},
		{`{fieldOverrider: [{fieldPath: /data/a, mergePatch: ` + strings.Repeat("{a: ", 100) + "1" + strings.Repeat("}", 100) + `}]}`, "fieldOverrider[0].mergePatch", "more than 64 deep"},
		{`{fieldOverrider: [{fieldPath: /metadata/name, mergePatch: {a: 1}}]}`, "fieldOverrider[0].fieldPath", "never touch"},
		{`{envOverrider: [{operator: remove, value: [{name: A, value: b}]}]}`, "envOverrider[0].value[0].value", "takes no value"},
		{`{envOverrider: [{operator: add, value: [{name: "A=", value: b}]}]}`, "envOverrider[0].value[0].name", "no ="},
		{`{resourcesOverrider: [{operator: add}]}`, "resourcesOverrider[0]", "neither requests nor limits"},
		{`{ordered: [{replicas: 1}, {plaintext: {path: /kind, operator: remove}}]}`, "ordered[1].plaintext.path", "never touch /kind"},
		{`{ordered: [{labelsOverrider: {operator: add, value: {atoll.dev/x: y}}}]}`, "ordered[0].labelsOverrider.value[atoll.dev/x]", "Atoll's own"},
	} {
		problems := overrides.CheckOverriders(parseOverriders(t, tc.over))
		if len(problems) != 1 || problems[0].Path != tc.path || !strings.Contains(problems[0].Reason, tc.reason) {
			t.Errorf("%.80s: problems %q, want %s: %s", tc.over, problems, tc.path, tc.reason)
		}
	}
}

// TestMergeFailureReportsTheFirstFault: what is said of a row is part of what it is sent, and
// must not change by itself.
func TestMergeFailureReportsTheFirstFault(t *testing.T) {
	for _, tc := range []struct{ merge, want string }{
		{`{metadata: {labels: {$patch: other, a: b}}, spec: {template: {spec: {containers: [{image: x}], volumes: [{emptyDir: {}}]}}}}`, "/metadata/labels/$patch: "},
		// A part that can be merged is no fault, wherever it is.
		{`{metadata: {annotations: {a: b}}, spec: {replicas: 3, template: {spec: {containers: [{image: x}]}}}}`, "/spec/template/spec/containers: the list cannot be merged"},
	} {
		o := parseOverriders(t, "{strategicMerge: "+tc.merge+"}")
		c := &atoll.Content{Items: []atoll.Item{newItem(webKey, yamlToJSON(t, deploymentYAML))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", o, webKey)}}
		for range 50 {
			items, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
			if want := "strategicMerge: merge " + tc.want; !strings.Contains(items[0].Error, want) {
				t.Fatalf("it says %q, and should %q", items[0].Error, want)
			}
		}
	}
}
