package admission

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// carrier is a hub that carries what has no value of over a million bytes.
type carrier struct{ Placed }

func (carrier) IsUnexpectedlyUnplaced(policymatch.Subject) bool { return false }

func (carrier) CheckItemSize(t *unstructured.Unstructured) error {
	if raw, _ := json.Marshal(t.Object); len(raw) > 1_000_000 {
		return errors.New("too large to be sent")
	}
	return nil
}

func newWidget(bytes int, finalizers ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "shop"},
		"spec": map[string]any{"notes": "few", "files": map[string]any{"large.bin": strings.Repeat("x", bytes), "small.bin": "x"}},
	}}
	u.SetFinalizers(finalizers)
	return u
}

func TestWhatIsPlacedAndTooLargeIsRefusedByItsPath(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Placed: carrier{}})})
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	placed := atoll.Finalizer
	for _, c := range []struct {
		what        string
		now, before *unstructured.Unstructured
		refused     bool
	}{
		{"small", newWidget(100, placed), nil, false},
		{"large, and placed", newWidget(1_200_000, placed), nil, true},
		{"large, and placed nowhere", newWidget(1_200_000), nil, false},
		{"rather large", newWidget(900_000, placed), nil, false},
		{"it grows", newWidget(1_200_000, placed), newWidget(100, placed), true},
		{"it is placed by the same write", newWidget(1_200_000, placed), newWidget(1_200_000), true},
		{"it was too large when a placement came to select it", newWidget(1_200_000, placed), newWidget(1_300_000, placed), false},
	} {
		op, old := admission.Create, runtime.Object(nil)
		if c.before != nil {
			op, old = admission.Update, c.before
		}
		a := admission.NewAttributesRecord(c.now, old, gvk, "shop", "w", gvk.GroupVersion().WithResource("widgets"), "", op, nil, false, &user.DefaultInfo{Name: "ann"})
		err := p.Validate(t.Context(), a, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", c.what, err)
		}
		wantReason(t, err)
		if c.refused && !strings.Contains(err.Error(), "spec.files.large.bin: Invalid value: too large to be sent") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// Objects of the API server's own types come in its internal form, and are weighed as they are
// stored.
func TestATypedTemplateIsLookedAtAsItIsStored(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Placed: carrier{}})})
	c := &core.ConfigMap{BinaryData: map[string][]byte{"noise": make([]byte, 1_000_000)}}
	c.Name, c.Namespace, c.Finalizers = "c", "shop", []string{atoll.Finalizer}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	a := admission.NewAttributesRecord(c, nil, gvk, "shop", "c", gvk.GroupVersion().WithResource("configmaps"), "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	err := p.Validate(t.Context(), a, admission.NewObjectInterfacesFromScheme(scheme))
	if err == nil || !strings.Contains(err.Error(), "binaryData.noise: Invalid value: too large to be sent") {
		t.Error(err)
	}
}

func TestAPolicyThatNoBundleCouldHoldIsRefused(t *testing.T) {
	spec := v1alpha1.PropagationSpec{}
	spec.Placement.ClusterAffinity = &v1alpha1.ClusterAffinity{}
	for range 50_000 {
		spec.Placement.ClusterAffinity.ClusterNames = append(spec.Placement.ClusterAffinity.ClusterNames, "a-cluster-00000")
	}
	if errs := checkSpecSize(&spec, field.NewPath("spec")); len(errs) > 0 {
		t.Errorf("50,000 clusters by name: %v", errs)
	}
	spec.Placement.ClusterAffinity.ClusterNames = append(spec.Placement.ClusterAffinity.ClusterNames, spec.Placement.ClusterAffinity.ClusterNames...)
	errs := checkSpecSize(&spec, field.NewPath("spec"))
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec: Invalid value: has 1800") || !strings.Contains(errs[0].Error(), "1000000 are allowed") {
		t.Errorf("100,000 clusters by name: %v", errs)
	}
}

// An object that counts as small is small, however much longer its JSON is.
func TestWhatIsSmallIsSoAsJSON(t *testing.T) {
	for what, v := range map[string]any{
		"text": strings.Repeat("x", 1000), "markup": strings.Repeat("<", 1000), "bytes": strings.Repeat("\x00\xff", 500),
		"numbers": []any{int64(math.MinInt64), -math.MaxFloat64, -1.2345678901234567e-6, true, nil}, "empty": map[string]any{"": map[string]any{}, "a": []any{}},
	} {
		obj := map[string]any{"<<<": v}
		raw, err := json.Marshal(obj)
		if n, _ := estimateJSONSize(obj); err != nil || len(raw) > n*jsonOfCharacter {
			t.Errorf("%s: %d bytes as JSON weigh %d, %v", what, len(raw), n, err)
		}
	}
	messages := map[reflect.Type]bool{}
	for _, typ := range scheme.Scheme.AllKnownTypes() {
		messagesOf(typ, messages)
	}
	messagesOf(reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), messages)
	most := 0.0
	for typ := range messages {
		for i := range typ.NumField() {
			// A message's holder writes at least its length, in two bytes.
			least := reflect.New(typ)
			setLittle(least.Elem().Field(i))
			raw, err := json.Marshal(least.Interface())
			n := least.Interface().(sized).Size() + 2
			if most = max(most, float64(len(raw))/float64(n)); err != nil || len(raw) > n*jsonOfProtobuf {
				t.Errorf("%s with %s: %d bytes as JSON are %d as protobuf, %v", typ, typ.Field(i).Name, len(raw), n, err)
			}
		}
	}
	if len(messages) < 500 {
		t.Errorf("only %d messages were found", len(messages))
	}
	t.Logf("%d messages, at most %.1f bytes of JSON of one of protobuf", len(messages), most)
}

type sized interface{ Size() int }

// messagesOf a type: itself, and what its fields are made of.
func messagesOf(typ reflect.Type, found map[reflect.Type]bool) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		messagesOf(typ.Elem(), found)
	case reflect.Struct:
		if _, ok := reflect.New(typ).Interface().(sized); !ok || found[typ] {
			return
		}
		found[typ] = true
		for i := range typ.NumField() {
			messagesOf(typ.Field(i).Type, found)
		}
	}
}

// setLittle sets a field to the least that is written of it, where its name counts most.
func setLittle(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 { // bytes may have to be JSON
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

func TestTheLargestFieldIsNamed(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	for want, obj := range map[string]map[string]any{
		"data.a":             {"data": map[string]any{"a": text(900), "b": text(90)}, "metadata": map[string]any{"name": "c"}},
		"data":               {"data": map[string]any{"a": text(300), "b": text(290), "c": text(310)}},
		"spec.template.list": {"spec": map[string]any{"template": map[string]any{"list": []any{text(300), text(300), map[string]any{"a": text(900)}}}}},
		"two":                {"one": text(300), "two": map[string]any{"a": text(200), "b": text(210)}, "three": text(300)},
	} {
		if got := largestField(obj).String(); got != want {
			t.Errorf("%s is named, not %s", got, want)
		}
	}
}
