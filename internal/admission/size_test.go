package admission

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// carrier is a hub that carries what has no value of over a million bytes.
type carrier struct{ Hub }

func (carrier) Carries(t *unstructured.Unstructured) error {
	if raw, _ := json.Marshal(t.Object); len(raw) > 1_000_000 {
		return errors.New("too large to be sent")
	}
	return nil
}

func widget(bytes int, finalizers ...string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "shop"},
		"spec": map[string]any{"notes": "few", "files": map[string]any{"large.bin": strings.Repeat("x", bytes), "small.bin": "x"}},
	}}
	u.SetFinalizers(finalizers)
	return u
}

func TestWhatIsPlacedAndTooLargeIsRefusedByItsPath(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: func() (Hub, bool) { return carrier{}, true }})
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	placed := atoll.Finalizer
	for _, c := range []struct {
		what        string
		now, before *unstructured.Unstructured
		refused     bool
	}{
		{"small", widget(100, placed), nil, false},
		{"large, and placed", widget(1_200_000, placed), nil, true},
		{"large, and placed nowhere", widget(1_200_000), nil, false},
		{"rather large", widget(900_000, placed), nil, false},
		{"it grows", widget(1_200_000, placed), widget(100, placed), true},
		{"it is placed by the same write", widget(1_200_000, placed), widget(1_200_000), true},
		{"it was too large when a placement came to select it", widget(1_200_000, placed), widget(1_300_000, placed), false},
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
		if c.refused && !strings.Contains(err.Error(), "spec.files.large.bin: Invalid value: too large to be sent") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// What the API server knows by type comes as it keeps it inside, and is looked at as it is
// stored.
func TestATypedTemplateIsLookedAtAsItIsStored(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: func() (Hub, bool) { return carrier{}, true }})
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
