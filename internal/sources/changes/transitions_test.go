package changes

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/render"
)

// A transition is needed where an object that is there changes together with the policy of its variants.
func TestTransitions(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: \"@\"}\n"
	read := func(v string) []render.Object { return objectsOf(t, "a.yaml", strings.Replace(config, "@", v, 1)) }
	for name, c := range map[string]struct {
		before, now [2]string // without and with the variant
		want        string
	}{
		"both change":              {[2]string{"1", "2"}, [2]string{"3", "4"}, "policy 1"},
		"the object alone":         {[2]string{"1", "2"}, [2]string{"3", "2"}, ""},
		"the variant alone":        {[2]string{"1", "2"}, [2]string{"1", "3"}, ""},
		"a policy is new":          {[2]string{"1", "1"}, [2]string{"2", "1"}, "policy 1"},
		"a policy is dropped":      {[2]string{"1", "2"}, [2]string{"2", "2"}, "policy -1"},
		"without a policy":         {[2]string{"1", "1"}, [2]string{"2", "2"}, ""},
		"nothing":                  {[2]string{"1", "2"}, [2]string{"1", "2"}, ""},
		"the object was not there": {[2]string{}, [2]string{"1", "2"}, ""},
	} {
		s := variantsSource("one")
		if c.before[0] != "" {
			was, _ := NewTemplates(s, compareContents(s, read(c.before[0]), read(c.before[1])), "", kindsOfTests)
			s.Status.Inventory = was.Keys
			for i := range s.Status.Inventory {
				s.Status.Inventory[i].UID = "u"
			}
		}
		w, _ := NewTemplates(s, compareContents(s, read(c.now[0]), read(c.now[1])), "", kindsOfTests)
		d := Decide(Input{Source: s, Wanted: w.Keys, Inventory: s.Status.Inventory, SameSettings: true, Prune: v1alpha1.PruneRemove})
		got := ""
		for _, one := range w.FindTransitions(s, d) {
			got += fmt.Sprintf("policy %d", one.Policy)
			if one.Template != 0 || one.Resource.Resource != "overridepolicies" || !reflect.DeepEqual(one.Object.Object["spec"].(map[string]any)["appliedRules"], "First") {
				t.Errorf("%s: %+v", name, one)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// No policy has values of a Secret, also while it is replaced: policies have more readers.
func TestTransitionsHaveNoValuesOfSecrets(t *testing.T) {
	s := variantsSource("one", "-two")
	read := func(token, label string) []render.Object {
		return objectsOf(t, "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s, labels: {l: "+label+"}}\nstringData: {token: "+token+"}\ndata: {more: aHVzaA==}\n")
	}
	was, _ := NewTemplates(s, compareContents(s, read("hush", "a"), read("hush", "b")), "", kindsOfTests)
	s.Status.Inventory = was.Keys
	w, problems := NewTemplates(s, compareContents(s, read("still", "a"), read("still", "c")), "", kindsOfTests)
	found := w.FindTransitions(s, Decide(Input{Source: s, Wanted: w.Keys, Inventory: s.Status.Inventory, SameSettings: true}))
	if len(problems) > 0 || len(found) != 1 {
		t.Fatal(problems, found)
	}
	rule := found[0].Object.Object["spec"].(map[string]any)["overrideRules"].([]any)[0].(map[string]any)
	if patch := rule["overriders"].(map[string]any)["mergePatch"]; !reflect.DeepEqual(patch, map[string]any{"metadata": map[string]any{"labels": map[string]any{"l": "c"}}}) {
		t.Errorf("%v", patch)
	}
}

// A transition has no more than what differs, however large its object is.
func TestTransitionsHaveWhatDiffers(t *testing.T) {
	s := variantsSource("one", "two")
	read := func(v string) []render.Object {
		return objectsOf(t, "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: \""+v+"\", same: "+strings.Repeat("x", 10000)+"}\n")
	}
	was, _ := NewTemplates(s, compareContents(s, read("1"), read("2"), read("1")), "", kindsOfTests)
	s.Status.Inventory = was.Keys
	w, _ := NewTemplates(s, compareContents(s, read("3"), read("4"), read("3")), "", kindsOfTests)
	found := w.FindTransitions(s, Decide(Input{Source: s, Wanted: w.Keys, Inventory: s.Status.Inventory, SameSettings: true}))
	found[0].FitObjects(withOwnedFields(t, was.Objects[0]), w.Objects[0], "m")
	got, _, _ := unstructured.NestedSlice(found[0].Object.Object, "spec", "overrideRules")
	for i, want := range []string{"4", "3"} {
		if does := got[i].(map[string]any)["overriders"]; !reflect.DeepEqual(does, map[string]any{"mergePatch": map[string]any{"data": map[string]any{"v": want}}}) {
			t.Errorf("%v", does)
		}
	}
}
