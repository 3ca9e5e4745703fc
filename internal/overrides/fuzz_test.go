package overrides_test

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

// A render ends with any patch, gives the same twice, and leaves the identity of the object alone.
func FuzzPatches(f *testing.F) {
	for _, seed := range [][2]string{
		{"/spec/replicas", "1"}, {"/spec/template/spec/containers/-", `{"name":"x"}`}, {"/metadata/labels/a~1b", `"c"`}, {"/metadata", `{"name":"x"}`},
		{"/spec", `{"$patch":"replace"}`}, {"/metadata/labels/x", `"/spec/replicas"`}, {"/spec/template/spec/containers/-", `"/spec/template/spec/containers/0"`}, {"/spec/replicas", `3`}, {"/", "null"}, {"/spec/template/spec/containers/99999999999999999999", "{}"},
		{"/x", `{"metadata":{"labels":{"$patch":"replace"}},"spec":{"template":{"spec":{"containers":[{"name":"web","$patch":"delete"}]}}}}`},
		{"/x", `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"log"}],"$retainKeys":["containers"]}}}}`},
		{"/a", strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	object := yamlToJSON(f, deploymentYAML)
	from := func(value []byte) (path string) {
		if json.Unmarshal(value, &path) != nil {
			path = "/spec/template"
		}
		return path
	}
	f.Fuzz(func(t *testing.T, path string, value []byte) {
		if len(path)+len(value) > 1<<12 || !json.Valid(value) {
			return
		}
		v := &apiextensionsv1.JSON{Raw: value}
		one := []v1alpha1.OrderedOverrider{
			{Plaintext: &v1alpha1.PlaintextOverrider{Path: path, Operator: v1alpha1.OverrideAdd, Value: v}},
			{Plaintext: &v1alpha1.PlaintextOverrider{Path: path, Operator: v1alpha1.OverrideReplace, Value: v}},
			{Plaintext: &v1alpha1.PlaintextOverrider{Path: path, Operator: v1alpha1.OverrideRemove}},
			{Plaintext: &v1alpha1.PlaintextOverrider{Path: path, From: from(value), Operator: v1alpha1.OverrideMove}},
			{Plaintext: &v1alpha1.PlaintextOverrider{Path: path, From: from(value), Operator: v1alpha1.OverrideCopy}},
			{Plaintext: &v1alpha1.PlaintextOverrider{Path: path, Operator: v1alpha1.OverrideTest, Value: v}},
			{MergePatch: v}, {StrategicMerge: v},
		}
		for i := range one {
			o := v1alpha1.Overriders{Ordered: one[i : i+1]}
			refused := len(overrides.CheckOverriders(o)) > 0
			c := &atoll.Content{Items: []atoll.Item{newItem(webKey, object)}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", o, webKey)}}
			first, notes := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
			again, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
			if string(first[0].Object) != string(again[0].Object) || first[0].Hash != again[0].Hash || first[0].Error != again[0].Error {
				t.Fatalf("overrider %d: first %s, then %s", i, first[0].Object, again[0].Object)
			}
			if first[0].Error != "" {
				continue
			}
			var got struct {
				APIVersion, Kind string
				Metadata         map[string]any
			}
			if err := json.Unmarshal(first[0].Object, &got); err != nil {
				t.Fatal(err)
			}
			if got.APIVersion != "apps/v1" || got.Kind != "Deployment" || got.Metadata["name"] != "web" || got.Metadata["namespace"] != "shop" {
				t.Fatalf("overrider %d changed the identity: %s", i, first[0].Object)
			}
			for k := range got.Metadata {
				if !strings.Contains("name namespace labels annotations", k) {
					t.Fatalf("overrider %d set metadata/%s", i, k)
				}
			}
			if refused && !strings.Contains(overrides.CheckOverriders(o)[0].Reason, "deep") {
				t.Fatalf("overrider %d is refused at admission (%v), and rendered: %s", i, overrides.CheckOverriders(o), first[0].Object)
			}
			if string(first[0].Object) != object && len(notes) == 0 && one[i].StrategicMerge == nil {
				t.Fatalf("overrider %d changed the object, and nothing says so: %s", i, first[0].Object)
			}
		}
	})
}

// The result is a document again with any document and patch, in which only the named place has
// changed.
func FuzzDocuments(f *testing.F) {
	for _, seed := range []struct{ doc, path, value string }{
		{"a: 1\n", "/a", "2"}, {"# c\na: &x {b: 1}\nc: *x\n", "/c", "null"}, {"- 1\n- 2\n", "/-", `{"a":"b\nc"}`}, {`{"a":[1,2]}`, "/a/0", "1e400"},
		{"a: &a [*a]", "/a", "1"}, {"a: !!binary x\n? {k: v}\n: 1\n", "/a", `"~"`}, {"<<: {a: 1}\na: |\n  x\n", "/a", `"- x"`}, {"\ufeffa: 1", "/a", "true"},
		{"# c\na: {b: 1} # d\nc: 2\n", "/a", `{"a":{"b":null,"d":[1,null]},"c":"no","e":{"f":null,"g":1.50}}`}, {`{"a":{"b":1}}`, "/a", `{"a":{"b":null,"c":1e400}}`},
		{"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n", "/e", "1"},
	} {
		f.Add(seed.doc, seed.path, []byte(seed.value))
	}
	f.Fuzz(func(t *testing.T, doc, path string, value []byte) {
		if len(doc)+len(path)+len(value) > 1<<12 || !json.Valid(value) {
			return
		}
		object, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c", "namespace": "shop"}, "data": map[string]any{"d": doc}})
		if err != nil {
			t.Skip()
		}
		key := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "c"}
		v := &apiextensionsv1.JSON{Raw: value}
		checkDocumentMerge(t, key, string(object), v)
		for _, yaml := range []bool{false, true} {
			for _, op := range []v1alpha1.OverriderOperator{"add", "replace", "remove"} {
				p := v1alpha1.DocumentPatch{SubPath: path, Operator: op, Value: v}
				if op == "remove" {
					p.Value = nil
				}
				fo := v1alpha1.FieldOverrider{FieldPath: "/data/d"}
				if yaml {
					fo.YAML = []v1alpha1.DocumentPatch{p}
				} else {
					fo.JSON = []v1alpha1.DocumentPatch{p}
				}
				c := &atoll.Content{Items: []atoll.Item{newItem(key, string(object))}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", v1alpha1.Overriders{FieldOverrider: []v1alpha1.FieldOverrider{fo}}, key)}}
				first, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
				if first[0].Error != "" || op == "remove" || strings.HasSuffix(path, "/-") {
					continue
				}
				// Once it is there, to set it again changes nothing.
				c.Items[0] = newItem(key, string(first[0].Object))
				p.Operator = "replace"
				if yaml {
					fo.YAML[0] = p
				} else {
					fo.JSON[0] = p
				}
				again, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
				if again[0].Error != "" || string(again[0].Object) != string(first[0].Object) {
					t.Fatalf("yaml %v, %s %s %s of %q:\nfirst %s\nagain %s%s", yaml, op, path, value, doc, first[0].Object, again[0].Error, again[0].Object)
				}
			}
		}
	})
}

// checkDocumentMerge checks that a merge into a document ends, and that the same merge changes nothing
// afterwards.
func checkDocumentMerge(t *testing.T, key atoll.ItemKey, object string, patch *apiextensionsv1.JSON) {
	t.Helper()
	o := v1alpha1.Overriders{FieldOverrider: []v1alpha1.FieldOverrider{{FieldPath: "/data/d", MergePatch: patch}}}
	c := &atoll.Content{Items: []atoll.Item{newItem(key, object)}, Rules: []atoll.Rule{newRule("ClusterOverridePolicy/p", o, key)}}
	first, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}})
	if first[0].Error != "" {
		return
	}
	c.Items[0] = newItem(key, string(first[0].Object))
	if again, _ := manifest.RenderItems(c, manifest.RenderInput{Rules: []int{0}}); again[0].Error != "" || string(again[0].Object) != string(first[0].Object) {
		t.Fatalf("merge %s into %s:\nfirst %s\nagain %s%s", patch.Raw, object, first[0].Object, again[0].Error, again[0].Object)
	}
}
