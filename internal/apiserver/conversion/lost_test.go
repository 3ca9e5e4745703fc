package conversion

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
)

func parseStructural(t *testing.T, text string) *structuralschema.Structural {
	t.Helper()
	v1, internal := &apiextensionsv1.JSONSchemaProps{}, &apiextensions.JSONSchemaProps{}
	if err := yaml.Unmarshal([]byte(text), v1); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLost(t *testing.T) {
	from := parseStructural(t, `
type: object
properties:
  spec:
    type: object
    properties:
      a: {type: string}
      b: {type: string, default: x}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true}
      m: {type: object, additionalProperties: {type: object, properties: {k: {type: string}, l: {type: string}}}}
      list: {type: array, items: {type: object, properties: {k: {type: string}, l: {type: string}}}}
`)
	to := parseStructural(t, `
type: object
properties:
  spec:
    type: object
    properties:
      free: {type: object, x-kubernetes-preserve-unknown-fields: true}
      m: {type: object, additionalProperties: {type: object, properties: {k: {type: string}}}}
      list: {type: array, items: {type: object, properties: {k: {type: string}}}}
`)
	for name, c := range map[string]struct {
		obj  string
		want []string
	}{
		"nothing":                     {`{metadata: {name: x, labels: {a: b}}, apiVersion: v1, kind: K}`, nil},
		"a field":                     {`{spec: {a: "1"}}`, []string{"spec.a"}},
		"an empty field":              {`{spec: {a: ""}}`, []string{"spec.a"}},
		"a default":                   {`{spec: {b: x}}`, nil},
		"other than the default":      {`{spec: {b: y}}`, []string{"spec.b"}},
		"what is free in both":        {`{spec: {free: {any: {thing: 1}}}}`, nil},
		"in a map":                    {`{spec: {m: {one: {k: "1", l: "2"}}}}`, []string{"spec.m[one].l"}},
		"in a list":                   {`{spec: {list: [{k: "1"}, {l: "2"}]}}`, []string{"spec.list[1].l"}},
		"unknown to both is reported": {`{spec: {z: 1}}`, []string{"spec.z"}},
	} {
		t.Run(name, func(t *testing.T) {
			var obj map[string]any
			if err := yaml.Unmarshal([]byte(c.obj), &obj); err != nil {
				t.Fatal(err)
			}
			var got []string
			reportLostFields(obj, from, to, true, nil, func(p *field.Path) bool { got = append(got, p.String()); return true })
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestARefusalNamesFewFields: a user's object may lose one for each few of its bytes. The first ones
// by path are named.
func TestARefusalNamesFewFields(t *testing.T) {
	lists := parseStructural(t, `{type: object, properties: {a: {type: array, items: {type: object, properties: {k: {type: string}}}}}}`)
	narrow := parseStructural(t, `{type: object, properties: {a: {type: array, items: {type: object}}}}`)
	objects := parseStructural(t, `{type: object, properties: {a: {type: object}}}`)
	items, fields := []any{}, map[string]any{}
	for i := range 300_000 {
		items, fields[fmt.Sprintf("k%06d", i)] = append(items, map[string]any{"k": ""}), ""
	}
	for name, c := range map[string]struct {
		value any
		to    *structuralschema.Structural
		first string
	}{
		"fields of items":             {items, narrow, "a[0].k"},
		"items where objects are now": {items, objects, "a[0]"},
		"fields":                      {fields, objects, "a.k000000"},
	} {
		s := &crdSchemas{versions: map[string]*version{"v1": {structural: lists}, "v2": {structural: c.to}}, storage: "v2"}
		errs := s.checkConversion(map[string]any{"a": c.value}, "v1", "v2", func(string) string { return "lost" })
		if len(errs) != maxLost || errs[0].Field != c.first {
			t.Errorf("%s: %d are named", name, len(errs))
		}
		further := 0
		for _, e := range errs {
			if e.Detail != "lost" {
				further++
			}
		}
		if further != 1 {
			t.Errorf("%s: %d of them say that there are others", name, further)
		}
	}
}

func TestSetAsideFollowsStatements(t *testing.T) {
	const kept = `{"strategy":"Webhook"}`
	crd := func(annotations map[string]string, fields ...string) *apiextensions.CustomResourceDefinition {
		c := &apiextensions.CustomResourceDefinition{}
		c.Annotations = map[string]string{atoll.AnnotationConversion: kept}
		for k, v := range annotations {
			c.Annotations[k] = v
		}
		for _, f := range fields {
			c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{
				Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(f)})
		}
		return c
	}
	for name, c := range map[string]struct {
		crd  *apiextensions.CustomResourceDefinition
		kept bool
	}{
		"sent back as stored":             {crd(nil), true},
		"last applied with a webhook":     {crd(map[string]string{lastApplied: `{"spec":{"conversion":{"strategy":"Webhook"}}}`}), true},
		"last applied without":            {crd(map[string]string{lastApplied: `{"spec":{}}`}), false},
		"last applied with None":          {crd(map[string]string{lastApplied: `{"spec":{"conversion":{"strategy":"None"}}}`}), false},
		"last applied cannot be read":     {crd(map[string]string{lastApplied: `?`}), true},
		"applied with a conversion":       {crd(nil, `{"f:spec":{"f:conversion":{"f:strategy":{}}}}`), true},
		"applied without":                 {crd(nil, `{"f:spec":{"f:group":{}}}`), false},
		"one of two appliers owns it":     {crd(nil, `{"f:spec":{"f:group":{}}}`, `{"f:spec":{"f:conversion":{}}}`), true},
		"applied fields cannot be parsed": {crd(nil, `?`), true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := setConversionAside(c.crd); err != nil {
				t.Fatal(err)
			}
			if _, ok := c.crd.Annotations[atoll.AnnotationConversion]; ok != c.kept {
				t.Errorf("kept: %v", ok)
			}
		})
	}
}
