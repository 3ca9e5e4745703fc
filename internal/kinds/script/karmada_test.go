package script_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/kinds/script"
)

func parseCustomization(t *testing.T, spec string) *karmada.ResourceInterpreterCustomization {
	t.Helper()
	c := &karmada.ResourceInterpreterCustomization{ObjectMeta: metav1.ObjectMeta{Name: "things", UID: "c"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
		t.Fatal(err)
	}
	return c
}

// Each field of a customization becomes a field of the interpreter, with the same script.
func TestWhatCustomizationsBecome(t *testing.T) {
	for field, want := range map[string]string{
		"retention": "retain", "replicaResource": "replicas", "replicaRevision": "revise", "statusReflection": "status",
		"statusAggregation": "aggregate", "healthInterpretation": "health", "dependencyInterpretation": "dependencies", "componentResource": "components",
	} {
		t.Run(field, func(t *testing.T) {
			i, err := script.FromKarmada(parseCustomization(t, "{target: {apiVersion: example.com/v1, kind: Thing}, customizations: {"+field+": {luaScript: return obj}}}"), nil)
			if err != nil {
				t.Fatal(err)
			}
			got := asJSON(t, i.Spec)
			if want := `{target: {apiVersion: example.com/v1, kinds: [Thing]}, ` + want + `: {lua: return obj}}`; !reflect.DeepEqual(parseObject(t, got), parseObject(t, want)) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// The hub makes the same interpreter as `atoll interpret convert`.
func TestTheHubsTranslationIsThatOfTheCommand(t *testing.T) {
	text, err := os.ReadFile("testdata/karmada.yaml")
	if err != nil {
		t.Fatal(err)
	}
	converted, err := script.ConvertFile("karmada.yaml", text, nil)
	if err != nil || len(converted) != 1 {
		t.Fatal(len(converted), err)
	}
	var c karmada.ResourceInterpreterCustomization
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		t.Fatal(err)
	}
	made, err := script.FromKarmada(&c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if made.Name != converted[0].Name || !reflect.DeepEqual(made.Spec, converted[0].Spec) {
		t.Errorf("the hub: %s\nthe command: %s", asJSON(t, made.Spec), asJSON(t, converted[0].Spec))
	}
	if errs := script.CheckKarmada(c.Spec); errs != nil {
		t.Error(errs)
	}
}

func TestCustomizationsThatAreRefused(t *testing.T) {
	const thing = "target: {apiVersion: example.com/v1, kind: Thing}"
	for spec, want := range map[string]string{
		"{" + thing + ", customizations: {}}":                                                                                                "answers no question",
		"{target: {kind: Thing}, customizations: {retention: {luaScript: x}}}":                                                               "spec.target.apiVersion: name the group and version",
		"{target: {apiVersion: a/b/c, kind: Thing}, customizations: {retention: {luaScript: x}}}":                                            "spec.target.apiVersion: unexpected GroupVersion",
		"{target: {apiVersion: v1}, customizations: {retention: {luaScript: x}}}":                                                            "spec.target.kind: name",
		"{target: {apiVersion: v1, kind: Secret}, customizations: {healthInterpretation: {luaScript: return obj}}}":                          "spec.target.kind: scripts see no Secrets",
		"{" + thing + ", customizations: {replicaRevision: {luaScript: \"\\n  return {\"}}}":                                                 "spec.customizations.replicaRevision.luaScript, line 2, column",
		"{" + thing + ", customizations: {retention: {luaScript: return os.clock()}}}":                                                       "spec.customizations.retention.luaScript, line 1, column 8: os.clock is not here",
		"{" + thing + ", customizations: {statusReflection: {luaScript: return 1}}}":                                                         "it makes no function ReflectStatus(object)",
		"{" + thing + ", customizations: {dependencyInterpretation: {luaScript: 'function('}, componentResource: {luaScript: 'function('}}}": "spec.customizations.dependencyInterpretation.luaScript, line 1",
	} {
		var messages []string
		for _, e := range script.CheckKarmada(parseCustomization(t, spec).Spec) {
			messages = append(messages, e.Error())
		}
		if all := strings.Join(messages, "\n"); !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q", spec, all, want)
		}
	}
}

// An interpreter that was not made from the customization is not changed. Other fields of one
// that was are kept.
func TestInterpretersOfCustomizations(t *testing.T) {
	c := parseCustomization(t, "{target: {apiVersion: example.com/v1, kind: Thing}, customizations: {retention: {luaScript: return obj}}}")
	made, err := script.FromKarmada(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if script.KarmadaSourceName(made) != "things" || made.OwnerReferences[0].UID != "c" || made.Labels["atoll.dev/dialect"] != "karmada" {
		t.Errorf("made: %+v", made.ObjectMeta)
	}
	again, err := script.FromKarmada(c, made)
	if err != nil || !reflect.DeepEqual(made, again) {
		t.Errorf("made of what is made, %v:\n%+v\n%+v", err, made, again)
	}
	for name, tc := range map[string]struct {
		now   func(*v1alpha1.ResourceInterpreter)
		taken bool
	}{
		"one that a person wrote":   {func(i *v1alpha1.ResourceInterpreter) { i.OwnerReferences = nil }, true},
		"one with a label alone":    {func(i *v1alpha1.ResourceInterpreter) { i.OwnerReferences[0].Controller = nil }, true},
		"one of another controller": {func(i *v1alpha1.ResourceInterpreter) { i.OwnerReferences[0].APIVersion = "example.com/v1" }, true},
		"one of another name":       {func(i *v1alpha1.ResourceInterpreter) { i.OwnerReferences[0].Name = "other" }, true},
		"of the one before this":    {func(i *v1alpha1.ResourceInterpreter) { i.OwnerReferences[0].UID = "gone" }, false},
		"another version's":         {func(i *v1alpha1.ResourceInterpreter) { i.OwnerReferences[0].APIVersion = "config.karmada.io/v1" }, false},
		"edited": {func(i *v1alpha1.ResourceInterpreter) {
			i.Spec.Retain.Lua, i.Spec.Health = "return 1", &v1alpha1.InterpreterRule{CEL: "true"}
		}, false},
		"labelled, and owned by others too": {func(i *v1alpha1.ResourceInterpreter) {
			i.Labels["team"] = "a"
			i.OwnerReferences = append(i.OwnerReferences, metav1.OwnerReference{UID: "o", Name: "o", Kind: "ConfigMap", APIVersion: "v1"})
		}, false},
	} {
		now := made.DeepCopy()
		tc.now(now)
		before := now.DeepCopy()
		got, err := script.FromKarmada(c, now)
		if (err != nil) != tc.taken {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(now, before) {
			t.Errorf("%s: the argument was changed", name)
		}
		if err != nil {
			continue
		}
		ref := metav1.GetControllerOf(got)
		if !reflect.DeepEqual(got.Spec, made.Spec) || ref == nil || ref.UID != "c" || got.Labels["team"] != now.Labels["team"] || len(got.OwnerReferences) != len(now.OwnerReferences) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
