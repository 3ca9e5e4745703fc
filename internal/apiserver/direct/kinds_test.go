package direct

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// given are the objects that say as little as can be where the schema has a default.
var given = map[string]struct {
	kind   Kind
	object string
	read   func(client.Object) any
}{
	"Cluster .spec.connection.type: Stream": {
		ClusterKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","spec":{"connection":{}}}`,
		func(o client.Object) any { return o.(*v1alpha1.Cluster).Spec.Connection.Type },
	},
	"Bundle .spec.placement.failback.policy: Never": {
		BundleKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","spec":{"placement":{"failback":{}}}}`,
		func(o client.Object) any { return o.(*v1alpha1.Bundle).Spec.Placement.Failback.Policy },
	},
	"Bundle .spec.placement.replicaScheduling.ordinals.size: 1000": {
		BundleKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","spec":{"placement":{"replicaScheduling":{"ordinals":{}}}}}`,
		func(o client.Object) any {
			return fmt.Sprint(o.(*v1alpha1.Bundle).Spec.Placement.ReplicaScheduling.Ordinals.Size)
		},
	},
	"Bundle .spec.placement.replicaScheduling: {}": {
		BundleKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","spec":{"placement":{}}}`,
		func(client.Object) any { return "{}" }, // it shows by what is given below it
	},
	"Bundle .spec.rollout.type: All": {
		BundleKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","spec":{"rollout":{"maxUnavailable":1}}}`,
		func(o client.Object) any { return o.(*v1alpha1.Bundle).Spec.Rollout.Type },
	},
	"Bundle .spec.removal.mode: Delete": {
		BundleKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","spec":{"removal":{}}}`,
		func(o client.Object) any { return o.(*v1alpha1.Bundle).Spec.Removal.Mode },
	},
	"Bundle .spec.removal.budget: 10%": {
		BundleKind(), `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","spec":{"removal":{}}}`,
		func(o client.Object) any { return o.(*v1alpha1.Bundle).Spec.Removal.Budget.String() },
	},
}

func TestEveryDefaultOfTheSchemaIsRead(t *testing.T) {
	var found []string
	for _, kind := range []Kind{ClusterKind(), SliceKind(), RevisionKind(), BundleKind()} {
		manifest, err := crds.Files.ReadFile(kind.Group + "_" + kind.Resource + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal(manifest, &crd); err != nil {
			t.Fatal(err)
		}
		if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Name != kind.Version {
			t.Errorf("%s has versions that this hub does not read: %+v", kind.Kind, crd.Spec.Versions)
		}
		found = append(found, defaultedFields(kind.Kind+" ", crd.Spec.Versions[0].Schema.OpenAPIV3Schema)...)
	}
	slices.Sort(found)
	if known := slices.Sorted(maps.Keys(given)); !slices.Equal(found, known) {
		t.Errorf("the schemas give %q, and this test knows %q: let Kind.Default give the others", found, known)
	}
	for what, g := range given {
		obj, _, err := (storedObjectCodec{kind: g.kind}).Decode([]byte(g.object), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want, _ := strings.Cut(what, ": ")
		if got := g.read(obj.(client.Object)); reflect.ValueOf(got).String() != want {
			t.Errorf("%s: read %v", what, got)
		}
	}
}

// defaultedFields below a schema: paths and values.
func defaultedFields(at string, schema map[string]any) (out []string) {
	if value, ok := schema["default"]; ok {
		text, err := json.Marshal(value)
		if err != nil {
			return []string{at + ": " + err.Error()}
		}
		out = append(out, at+": "+strings.Trim(string(text), `"`))
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, below := range properties {
		out = append(out, defaultedFields(at+"."+name, below.(map[string]any))...)
	}
	for _, every := range []string{"items", "additionalProperties"} {
		if below, ok := schema[every].(map[string]any); ok {
			out = append(out, defaultedFields(at+"[]", below)...)
		}
	}
	return out
}

func TestWhatIsReadHoldsNoneOfItsBytes(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		full client.Object
	}{
		{ClusterKind(), sampleCluster("tokyo")}, {SliceKind(), sampleSlice("b-0")},
		{BundleKind(), &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.BundleSpec{
			Source: v1alpha1.BundleSource{Kind: "Annotation", Name: "web"}, Placement: v1alpha1.PlacementSpec{CELSelector: "true"},
		}}},
		{RevisionKind(), &enginev1.Revision{Spec: enginev1.RevisionSpec{Bundle: enginev1.BundleRef{UID: "u", Name: "n"}, Content: []byte("content")}}},
	} {
		c.full.GetObjectKind().SetGroupVersionKind(c.kind.GroupVersionKind)
		c.full.SetAnnotations(map[string]string{"key": "value"})
		data, err := json.Marshal(c.full)
		if err != nil {
			t.Fatal(err)
		}
		obj, _, err := (storedObjectCodec{kind: c.kind}).Decode(data, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		from := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
		texts := 0
		walkPointers(reflect.ValueOf(obj), func(p uintptr) {
			if texts++; p >= from && p < from+uintptr(cap(data)) {
				t.Errorf("%s: a text of it lies in what was read", c.kind.Kind)
			}
		})
		if texts < 5 {
			t.Fatalf("%s: only %d texts were found", c.kind.Kind, texts)
		}
	}
}

// walkPointers calls at with the address of every text in a value.
func walkPointers(v reflect.Value, at func(uintptr)) {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); s != "" {
			at(uintptr(unsafe.Pointer(unsafe.StringData(s))))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walkPointers(v.Elem(), at)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walkPointers(v.Field(i), at)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Len() > 0 {
			at(v.Pointer())
			return
		}
		for i := range v.Len() {
			walkPointers(v.Index(i), at)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			walkPointers(k, at)
			walkPointers(v.MapIndex(k), at)
		}
	}
}

func TestACodecReadsNothingElse(t *testing.T) {
	for what, data := range map[string]string{
		"another version": `{"apiVersion":"atoll.dev/v1beta1","kind":"Cluster","metadata":{"name":"c"}}`,
		"another kind":    `{"apiVersion":"atoll.dev/v1alpha1","kind":"Bundle","metadata":{"name":"c"}}`,
		"no kind":         `{"metadata":{"name":"c"}}`,
		"another shape":   `{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":"c"},"spec":{"region":{"name":"asia"}}}`,
	} {
		var reported error
		c := storedObjectCodec{ClusterKind(), func(err error) { reported = err }}
		var into runtime.Object
		for _, into = range []runtime.Object{nil, &v1alpha1.Cluster{}} {
			if obj, _, err := c.Decode([]byte(data), nil, into); err == nil || reported == nil || obj != nil {
				t.Errorf("%s: read %+v, reported %v", what, obj, reported)
			}
			reported = nil
		}
	}
}
