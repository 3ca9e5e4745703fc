package defaulting_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/binder/defaulting"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return o
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.x.dev, uid: c1, generation: 1}
spec:
  group: x.dev
  versions:
  - name: v1
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, default: {}, properties: {size: {type: integer, default: 3}}}}}}
  - name: v2
`

// Defaults come from the linked API for built-in kinds, and from the CRD's schema for others. The
// argument never changes.
func TestDefaultsAreFilledIn(t *testing.T) {
	d := defaulting.New(func(gk schema.GroupKind) *unstructured.Unstructured {
		if gk.Group == "x.dev" {
			return parse(t, widgets)
		}
		return nil
	})
	for name, c := range map[string]struct {
		object string
		path   []string
		want   any
	}{
		"a Deployment":          {"{apiVersion: apps/v1, kind: Deployment, spec: {}}", []string{"spec", "replicas"}, int64(1)},
		"a stated value":        {"{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 5}}", []string{"spec", "replicas"}, int64(5)},
		"a CRD of the API":      {"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {names: {plural: ws, kind: W}}}", []string{"spec", "names", "listKind"}, "WList"},
		"a custom resource":     {"{apiVersion: x.dev/v1, kind: Widget}", []string{"spec", "size"}, int64(3)},
		"a stated custom value": {"{apiVersion: x.dev/v1, kind: Widget, spec: {size: 9}}", []string{"spec", "size"}, int64(9)},
		"without a schema":      {"{apiVersion: x.dev/v2, kind: Widget}", []string{"spec"}, nil},
		"an unknown version":    {"{apiVersion: x.dev/v9, kind: Widget}", []string{"spec"}, nil},
		"an unknown kind":       {"{apiVersion: y.dev/v1, kind: Gadget}", []string{"spec"}, nil},
	} {
		in := parse(t, c.object)
		out, err := d.Default(in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, _, err := unstructured.NestedFieldNoCopy(out.Object, c.path...)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v is %v, want %v (%v)", name, c.path, got, c.want, err)
		}
		if !reflect.DeepEqual(in, parse(t, c.object)) {
			t.Errorf("%s: the argument is changed to %v", name, in)
		}
	}
	if _, err := d.Default(parse(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: many}}")); err == nil || !strings.Contains(err.Error(), "read Deployment web") {
		t.Errorf("an object that does not fit: %v", err)
	}
	if out, err := defaulting.New(nil).Default(parse(t, "{apiVersion: x.dev/v1, kind: Widget}")); err != nil || out.Object["spec"] != nil {
		t.Errorf("without CRDs: %v, %v", out, err)
	}
}

// A schema is read again when its CRD changes or is made again, and not before.
func TestSchemasFollowTheirCRD(t *testing.T) {
	crd := parse(t, widgets)
	d := defaulting.New(func(schema.GroupKind) *unstructured.Unstructured { return crd })
	size := func() any {
		t.Helper()
		out, err := d.Default(parse(t, "{apiVersion: x.dev/v1, kind: Widget}"))
		if err != nil {
			t.Fatal(err)
		}
		return out.Object["spec"].(map[string]any)["size"]
	}
	next := func(value, from, to string) {
		crd = parse(t, strings.NewReplacer("default: 3", "default: "+value, from, to).Replace(widgets))
	}
	first := size()
	next("4", "generation: 1", "generation: 1")
	if got := size(); got != first {
		t.Errorf("of the same generation, it is %v", got)
	}
	next("4", "generation: 1", "generation: 2")
	second := size()
	next("5", "uid: c1", "uid: c2")
	third := size()
	if second == first || third == second || third == first {
		t.Errorf("its defaults are %v, then %v, then %v", first, second, third)
	}
	crd = parse(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.x.dev, uid: c3}, spec: {versions: many}}`)
	if _, err := d.Default(parse(t, "{apiVersion: x.dev/v1, kind: Widget}")); err == nil || !strings.Contains(err.Error(), "schema of widgets.x.dev") {
		t.Errorf("of a damaged CRD: %v", err)
	}
}
