package overrides

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// patcherOf is a patcher of an object for a rule of a ClusterOverridePolicy.
func patcherOf(obj map[string]any) *ObjectPatcher {
	return &ObjectPatcher{Item: &atoll.Item{}, Object: obj, rule: &atoll.Rule{Policy: "ClusterOverridePolicy/p", Semantics: atoll.CurrentRuleSemantics}}
}

// A copy counts about as many bytes as its JSON has: texts with quotes, keys with quotes, a colon and a comma, and 8
// for a number or a bracket.
func TestCopiedBytes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value any
		want  int
	}{
		{"a text", "abc", 5}, {"a number", int64(7), 8}, {"nothing", nil, 8}, {"a list", []any{"a", int64(1)}, 3 + 8 + 8},
		{"a map", map[string]any{"key": "abc"}, 3 + 4 + 5 + 8}, {"nested", map[string]any{"k": []any{map[string]any{}}}, 1 + 4 + 8 + 8 + 8},
	} {
		o := patcherOf(nil)
		if err := o.countCopiedBytes(tc.value); err != nil || o.patchBytes != tc.want {
			t.Errorf("%s: %d bytes, %v; want %d", tc.name, o.patchBytes, err, tc.want)
		}
		o = &ObjectPatcher{patchBytes: maxPatchBytes - tc.want + 1}
		if err := o.countCopiedBytes(tc.value); !errors.Is(err, errOverBound) {
			t.Errorf("%s beyond the bound: %v", tc.name, err)
		}
	}
	deep := patcherOf(nil)
	deep.patchBytes = maxPatchBytes - 3
	if err := deep.countCopiedBytes(map[string]any{"a": "b"}); !errors.Is(err, errOverBound) || deep.patchBytes != maxPatchBytes-3+5 {
		t.Errorf("the count goes on after the bound: %v, %d", err, deep.patchBytes-maxPatchBytes)
	}
}

// The documents that overriders read and write are bounded together.
func TestDocumentsCountBytes(t *testing.T) {
	f := &v1alpha1.FieldOverrider{FieldPath: "/data/a", JSON: newDocumentPatch(v1alpha1.OverrideAdd, "/b", `"xyz"`)}
	const text, changed = `{"a":1}`, `{"a":1,"b":"xyz"}`
	o := patcherOf(nil)
	if got, _, err := o.patchDocument(f, text); err != nil || got != changed || o.patchBytes != len(text)+len(changed) {
		t.Errorf("%s, %v; %d bytes", got, err, o.patchBytes)
	}
	for name, left := range map[string]int{"to read it": len(text) - 1, "to write it": len(text) + len(changed) - 1} {
		o := patcherOf(map[string]any{"data": map[string]any{"a": text}})
		o.patchBytes = maxPatchBytes - left
		if err := o.overrideDocument(f); !errors.Is(err, errOverBound) {
			t.Errorf("too few bytes are left %s: %v", name, err)
		}
	}
}

// An overrider is one step, and there is a bound of steps.
func TestStepsAreBounded(t *testing.T) {
	o := &ObjectPatcher{steps: maxSteps - 1}
	if err := o.countStep(); err != nil {
		t.Errorf("the last step: %v", err)
	}
	if err := o.countStep(); !errors.Is(err, errOverBound) {
		t.Errorf("one more: %v", err)
	}
}

// The document of an overrider has to be a text in an allowed field. No error quotes the one of a Secret.
func TestDocumentsThatCannotBePatched(t *testing.T) {
	secret := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}
	for _, tc := range []struct {
		name string
		f    v1alpha1.FieldOverrider
		key  atoll.ItemKey
		want string
	}{
		{"a field that overrides never touch", v1alpha1.FieldOverrider{FieldPath: "/status/a"}, atoll.ItemKey{}, "overrides never touch /status/a"},
		{"no such field", v1alpha1.FieldOverrider{FieldPath: "/data/b"}, atoll.ItemKey{}, "there is no text at /data/b"},
		{"no text", v1alpha1.FieldOverrider{FieldPath: "/data/n"}, atoll.ItemKey{}, "there is no text at /data/n"},
		{"no JSON", v1alpha1.FieldOverrider{FieldPath: "/data/a", JSON: newDocumentPatch(v1alpha1.OverrideRemove, "/x", "")}, atoll.ItemKey{}, "in the document at /data/a: it is not JSON: invalid character 'h' in literal true (expecting 'r')"},
		{"no JSON in a Secret", v1alpha1.FieldOverrider{FieldPath: "/data/a", JSON: newDocumentPatch(v1alpha1.OverrideRemove, "/x", "")}, secret, "the document at /data/a cannot be patched so"},
		{"nothing at the path", v1alpha1.FieldOverrider{FieldPath: "/data/j", JSON: newDocumentPatch(v1alpha1.OverrideReplace, "/x", "1")}, atoll.ItemKey{}, `in the document at /data/j: replace /x: there is no "x" to replace`},
		{"no value", v1alpha1.FieldOverrider{FieldPath: "/data/j", JSON: newDocumentPatch(v1alpha1.OverrideAdd, "/x", "")}, atoll.ItemKey{}, "in the document at /data/j: add /x: operator add needs a value"},
		{"a merge into no map", v1alpha1.FieldOverrider{FieldPath: "/data/l", MergePatch: &apiextensionsv1.JSON{Raw: []byte(`{}`)}}, atoll.ItemKey{}, "in the document at /data/l: it is no map, into which alone a merge patch can be merged"},
		{"a merge into a YAML list", v1alpha1.FieldOverrider{FieldPath: "/data/y", MergePatch: &apiextensionsv1.JSON{Raw: []byte(`{}`)}}, atoll.ItemKey{}, "in the document at /data/y: it is no map, into which alone a merge patch can be merged"},
	} {
		o := patcherOf(map[string]any{"data": map[string]any{"a": "this is none", "n": int64(1), "j": "{}", "l": "[]", "y": "- a\n"}})
		o.Item.Key = tc.key
		if err := o.overrideDocument(&tc.f); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}

// Each change of a document is noted by its path in it. A document that stays as it is has no note.
func TestDocumentChangesAreNoted(t *testing.T) {
	o := patcherOf(map[string]any{"data": map[string]any{"j": `{"a":1,"b":2}`}})
	f := v1alpha1.FieldOverrider{FieldPath: "/data/j", JSON: append(newDocumentPatch(v1alpha1.OverrideReplace, "/a", "null"), newDocumentPatch(v1alpha1.OverrideRemove, "/b", "")...)}
	if err := o.overrideDocument(&f); err != nil {
		t.Fatal(err)
	}
	if got := o.Object["data"].(map[string]any)["j"]; got != `{"a":null}` {
		t.Errorf("the document is %v", got)
	}
	if len(o.Notes) != 2 || o.Notes[0].Path != "/data/j#/a" || reflect.ValueOf(o.Notes[0].Value).IsNil() || o.Notes[1].Path != "/data/j#/b" || o.Notes[1].Value != nil {
		t.Errorf("%+v", o.Notes)
	}
	o.Notes = nil
	same := v1alpha1.FieldOverrider{FieldPath: "/data/j", JSON: newDocumentPatch(v1alpha1.OverrideReplace, "/a", "null")}
	if err := o.overrideDocument(&same); err != nil || len(o.Notes) != 0 {
		t.Errorf("nothing changes: %+v, %v", o.Notes, err)
	}
}

// An index of a list is below its length. Only what is added may come at its end.
func TestFindListIndex(t *testing.T) {
	for _, tc := range []struct {
		op   v1alpha1.OverriderOperator
		part string
		last bool
		want int
		err  string
	}{
		{v1alpha1.OverrideReplace, "1", true, 1, ""}, {v1alpha1.OverrideReplace, "2", true, 0, "there is no element 2 in a list of 2"}, {v1alpha1.OverrideAdd, "2", true, 2, ""},
		{v1alpha1.OverrideAdd, "3", true, 0, "there is no element 3 in a list of 2"}, {v1alpha1.OverrideAdd, "-", true, 2, ""}, {v1alpha1.OverrideAdd, "-", false, 0, `"-" is not an index of a list`},
		{v1alpha1.OverrideRemove, "-", true, 0, `"-" is not an index of a list`}, {v1alpha1.OverrideAdd, "2", false, 0, "there is no element 2 in a list of 2"}, {v1alpha1.OverrideAdd, "1", false, 1, ""},
	} {
		got, err := findListIndex(2, tc.op, tc.part, tc.last)
		if text := errorText(err); got != tc.want || text != tc.err {
			t.Errorf("%s %s, last %t: %d, %q; want %d, %q", tc.op, tc.part, tc.last, got, text, tc.want, tc.err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// No component of an image may change its neighbours. Only a registry may hold the first part of the path.
func TestImageComponentsKeepTheirNeighbours(t *testing.T) {
	for _, tc := range []struct {
		ref       string
		component v1alpha1.ImageComponent
		op        v1alpha1.OverriderOperator
		value     string
		want, err string
	}{
		{"nginx:1", v1alpha1.ImageRepository, v1alpha1.OverrideAdd, "/x", "nginx/x:1", ""},
		{"nginx", v1alpha1.ImageRepository, v1alpha1.OverrideAdd, ":2", "", `add Repository of "nginx": ":2" is not a repository`},
		{"nginx:1", v1alpha1.ImageRepository, v1alpha1.OverrideReplace, "r.io/x", "", `replace Repository of "nginx:1": "r.io/x" is not a repository`},
		{"nginx:1", v1alpha1.ImageRegistry, v1alpha1.OverrideReplace, "r.io/x", "r.io/x/nginx:1", ""},
		{"r.io/nginx:1", v1alpha1.ImageRegistry, v1alpha1.OverrideRemove, "", "nginx:1", ""},
		{"nginx:1", v1alpha1.ImageTag, v1alpha1.OverrideAdd, "-a", "nginx:1-a", ""},
		{"nginx:1", v1alpha1.ImageTag, v1alpha1.OverrideRemove, "", "nginx", ""},
		{"nginx", "Color", v1alpha1.OverrideRemove, "", "", `images have no component "Color"`},
		{"nginx:", v1alpha1.ImageTag, v1alpha1.OverrideRemove, "", "", `"nginx:" is not an image: "" is not a tag`},
		{"nginx@sha256:1", v1alpha1.ImageTag, v1alpha1.OverrideRemove, "", "", `"nginx@sha256:1" is not an image: "sha256:1" is not a digest`},
		{"-.io/nginx", v1alpha1.ImageTag, v1alpha1.OverrideRemove, "", "", `"-.io/nginx" is not an image: "-.io" is not a registry`},
	} {
		got, err := overrideImageReference(tc.ref, v1alpha1.ImageOverrider{Component: tc.component, Operator: tc.op, Value: tc.value})
		if got != tc.want || errorText(err) != tc.err {
			t.Errorf("%s %s %q of %s: %q, %v; want %q, %s", tc.op, tc.component, tc.value, tc.ref, got, err, tc.want, tc.err)
		}
	}
}

// Labels and annotations of Atoll that an overrider brings by any way are refused.
func TestCheckProtectedRefusesHubKeys(t *testing.T) {
	for _, field := range []string{"labels", "annotations"} {
		o := patcherOf(map[string]any{"metadata": map[string]any{}})
		before := o.captureProtected()
		o.Object["metadata"] = map[string]any{field: map[string]any{"mine": "x"}}
		if err := o.checkProtected(before); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		o.Object["metadata"] = map[string]any{field: map[string]any{"atoll.dev/x": "y"}}
		if err := o.checkProtected(before); errorText(err) != "overrides never touch what is Atoll's own in /metadata/"+field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A merge that fails names the first part of the patch that cannot be merged.
func TestUnmergeablePartIsNamed(t *testing.T) {
	lists, known, err := BuiltInMergeMeta(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if err != nil || !known {
		t.Fatal(known, err)
	}
	obj := map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a"}}}}}}
	podSpec := func(containers any) map[string]any {
		return map[string]any{"spec": map[string]any{"replicas": int64(2), "template": map[string]any{"spec": map[string]any{"containers": containers}}}}
	}
	for name, patch := range map[string]map[string]any{
		"no merge key": podSpec([]any{map[string]any{"image": "x"}}), "mixed elements": podSpec([]any{map[string]any{"name": "a"}, "b"}),
	} {
		if _, err := strategicMergeMap(deepCopyMap(obj), deepCopyMap(patch), lists); err == nil {
			t.Errorf("%s: it is merged", name)
		}
		want := "merge /spec/template/spec/containers: the list cannot be merged: each element has to be of the kind's form, and a map has to have the key that the list is merged by"
		if err := explainMergeFailure(obj, patch, lists); errorText(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, known, err := BuiltInMergeMeta(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Toy"}); known || err != nil {
		t.Errorf("an unknown kind: %t, %v", known, err)
	}
	fails := errors.New("no")
	for _, tc := range []struct {
		name  string
		part  map[string]any
		fails func(map[string]any) bool
		at    string
		why   string
	}{
		{"a value", map[string]any{"a": int64(1), "b": int64(2)}, func(m map[string]any) bool { return m["b"] != nil }, "/b", "no"},
		{"a map whose parts can be merged", map[string]any{"a": map[string]any{"x": int64(1), "y": int64(2)}}, func(m map[string]any) bool { return len(m["a"].(map[string]any)) == 2 }, "/a", "it cannot be merged"},
		{"nothing", map[string]any{"a": int64(1)}, func(map[string]any) bool { return false }, "", ""},
	} {
		at, why := findUnmergeable(tc.part, nil, func(m map[string]any) error {
			if tc.fails(m) {
				return fails
			}
			return nil
		})
		if got := strings.Join(append([]string{""}, at...), "/"); got != tc.at || why != tc.why {
			t.Errorf("%s: %s: %s, want %s: %s", tc.name, got, why, tc.at, tc.why)
		}
	}
}

// A merge patch shares no map with the object.
func TestMergeSharesNothingWithThePatch(t *testing.T) {
	obj := map[string]any{"text": "x", "gone": int64(1), "keep": map[string]any{"a": int64(1)}}
	patch := map[string]any{"text": map[string]any{"b": int64(2), "c": nil}, "gone": nil, "keep": map[string]any{"d": []any{"e"}}}
	mergeJSON(obj, patch)
	want := map[string]any{"text": map[string]any{"b": int64(2)}, "keep": map[string]any{"a": int64(1), "d": []any{"e"}}}
	if !reflect.DeepEqual(obj, want) {
		t.Errorf("%v, want %v", obj, want)
	}
	obj["keep"].(map[string]any)["d"].([]any)[0] = "changed"
	obj["text"].(map[string]any)["b"] = int64(9)
	if patch["keep"].(map[string]any)["d"].([]any)[0] != "e" || patch["text"].(map[string]any)["b"] != int64(2) {
		t.Errorf("the patch is now %v", patch)
	}
}

// Before rules, an object states its replicas and ordinals. The ordinals are a copy.
func TestStatedPlacementFields(t *testing.T) {
	ordinals := map[string]any{"start": int64(5)}
	obj := map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": map[string]any{"replicas": int64(3), "ordinals": ordinals}}
	replicas, stated := StatedPlacementFields(obj)
	ordinals["start"] = int64(6)
	if replicas != 3 || !reflect.DeepEqual(stated, map[string]any{"start": int64(5)}) {
		t.Errorf("%d, %v", replicas, stated)
	}
	o := patcherOf(obj)
	if err := o.SetOrdinalsStart(9, stated); errorText(err) != "the placement ranges this object's ordinals, so that no override can set them" {
		t.Errorf("an override set other ordinals: %v", err)
	}
	if err := o.SetOrdinalsStart(9, map[string]any{"start": int64(6)}); err != nil || ordinals["start"] != int64(9) {
		t.Errorf("%v, %v", ordinals, err)
	}
	if len(o.Notes) != 1 || o.Notes[0].Path != "/spec/ordinals/start" || o.Notes[0].Policy != PolicyPlacement || o.Notes[0].Value != int64(9) || o.Notes[0].Overrider != "" {
		t.Errorf("%+v", o.Notes)
	}
	without := patcherOf(map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": map[string]any{}})
	if _, stated := StatedPlacementFields(without.Object); stated != nil {
		t.Errorf("it states the ordinals %v", stated)
	}
	if err := without.SetOrdinalsStart(4, nil); err != nil || !reflect.DeepEqual(without.Object["spec"], map[string]any{"ordinals": map[string]any{"start": int64(4)}}) {
		t.Errorf("%v, %v", without.Object, err)
	}
}

// Variables are replaced by name, with their references, and removed with the list when none is left.
func TestVariables(t *testing.T) {
	env := func(names ...string) (out []any) {
		for _, n := range names {
			out = append(out, map[string]any{"name": n, "value": "old"})
		}
		return out
	}
	for _, tc := range []struct {
		name string
		env  []any
		op   v1alpha1.OverriderOperator
		at   string
		want any
		note string
	}{
		{"add", env("A"), v1alpha1.OverrideAdd, "B", append(env("A"), map[string]any{"name": "B", "value": "new"}), "/spec/template/spec/containers/0/env/1/value"},
		{"add what is there", env("A", "B"), v1alpha1.OverrideAdd, "A", append([]any{map[string]any{"name": "A", "value": "new"}}, env("B")...), "/spec/template/spec/containers/0/env/0/value"},
		{"replace", env("A", "B"), v1alpha1.OverrideReplace, "B", append(env("A"), map[string]any{"name": "B", "value": "new"}), "/spec/template/spec/containers/0/env/1/value"},
		{"replace what is not there", env("A"), v1alpha1.OverrideReplace, "B", env("A"), ""},
		{"remove", env("A", "B"), v1alpha1.OverrideRemove, "A", env("B"), "/spec/template/spec/containers/0/env/0"},
		{"remove the last", env("A"), v1alpha1.OverrideRemove, "A", nil, "/spec/template/spec/containers/0/env/0"},
		{"remove what is not there", env("A"), v1alpha1.OverrideRemove, "B", env("A"), ""},
	} {
		c := map[string]any{"name": "web", "env": tc.env}
		o := patcherOf(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{c}}}}})
		if err := o.overrideEnv(&v1alpha1.EnvOverrider{Operator: tc.op, Value: []v1alpha1.EnvValue{{Name: tc.at, Value: "new"}}}); err != nil {
			t.Fatal(err)
		}
		got, there := c["env"]
		if there != (tc.want != nil) || there && !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if (len(o.Notes) == 1) != (tc.note != "") || len(o.Notes) == 1 && o.Notes[0].Path != tc.note {
			t.Errorf("%s: %+v", tc.name, o.Notes)
		}
	}
}
