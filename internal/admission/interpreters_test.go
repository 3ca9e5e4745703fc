package admission

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"
)

const (
	interpreter   = "{apiVersion: atoll.dev/v1alpha1, kind: ResourceInterpreter, metadata: {name: try}, spec: {target: {apiVersion: example.com/v1, kinds: [Thing]}, health: {lua: "
	customization = "{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization, metadata: {name: try}, spec: {target: {apiVersion: example.com/v1, kind: Thing}, customizations: {healthInterpretation: {luaScript: "
	owned         = ", ownerReferences: [{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization, name: things, uid: u, controller: true}]}"
)

func unstructuredOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(raw) // with integers, as the API server reads them
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return u
}

// A malformed interpreter is refused by the field names of its writer's kind.
func TestInterpretersThatAreRefused(t *testing.T) {
	made := func(text string) string { return strings.Replace(text, "{name: try}", "{name: try"+owned, 1) }
	const good, bad, broken = `"return {status = 'Healthy'}"`, `"return {status = 'Degraded'}"`, `"if obj then\n return {"`
	for name, tc := range map[string]struct{ now, before, want string }{
		"an interpreter":                       {now: interpreter + good + "}}}"},
		"one that does not compile":            {now: interpreter + broken + "}}}", want: "spec.health.lua: Invalid value: line 2, column"},
		"one that was broken before":           {now: interpreter + broken + "}}}", before: interpreter + broken + "}}}"},
		"a target that scripts do not see":     {now: strings.Replace(interpreter+good+"}}}", "example.com/v1, kinds: [Thing]", "v1, kinds: [Secret]", 1), want: "spec.target.kinds: Invalid value: scripts see no Secrets"},
		"a customization":                      {now: customization + good + "}}}}"},
		"one that does not compile either":     {now: customization + broken + "}}}}", want: "spec.customizations.healthInterpretation.luaScript: Invalid value: line 2, column"},
		"a customization as broken as before":  {now: customization + broken + "}}}}", before: customization + broken + "}}}}"},
		"a customization for Secrets":          {now: strings.Replace(customization+good+"}}}}", "example.com/v1, kind: Thing", "v1, kind: Secret", 1), want: "spec.target.kind: Invalid value: scripts see no Secrets"},
		"an edit of what was made":             {now: made(interpreter + bad + "}}}"), before: made(interpreter + good + "}}}"), want: "of the ResourceInterpreterCustomization things: edit that"},
		"what only looks as if it was made":    {now: made(interpreter + good + "}}}"), want: "edit that"},
		"a label on what was made":             {now: strings.Replace(made(interpreter+good+"}}}"), "{name: try", "{name: try, labels: {a: b}", 1), before: made(interpreter + good + "}}}")},
		"what was made, taken into one's hand": {now: interpreter + bad + "}}}", before: made(interpreter + good + "}}}")},
	} {
		t.Run(name, func(t *testing.T) {
			now, op := unstructuredOf(t, tc.now), admission.Create
			var before runtime.Object
			if tc.before != "" {
				before, op = unstructuredOf(t, tc.before), admission.Update
			}
			p := New(Options{Own: func(user.Info) bool { return false }})
			err := p.validateAtollKinds(t.Context(), admission.NewAttributesRecord(now, before, now.GroupVersionKind(), "", "try", schema.GroupVersionResource{}, "", op, nil, false, &user.DefaultInfo{Name: "ann"}))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			wantReason(t, err)
		})
	}
}
