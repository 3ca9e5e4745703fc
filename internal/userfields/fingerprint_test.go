package userfields_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/userfields"
)

// shiftedDefaulter are those of a hub binary that fills in other values than the one
// that stored the objects.
type shiftedDefaulter struct{ userfields.Defaulter }

func (d shiftedDefaulter) Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out, err := d.Defaulter.Default(obj)
	if err != nil {
		return nil, err
	}
	out = out.DeepCopy()
	shiftValues(out.Object)
	return out, nil
}

// shiftValues every number and every word that API defaults are made of.
func shiftValues(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			if k != "metadata" && k != "apiVersion" && k != "kind" {
				v[k] = shiftValues(v[k])
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = shiftValues(v[i])
		}
		return v
	case int64:
		return v + 1
	case string:
		return v + "-other"
	}
	return v
}

// A hub with other defaults would prune most objects differently; but no user wrote,
// and that is what decides.
func TestOtherDefaultsChangeNoFingerprint(t *testing.T) {
	defaults := newRealDefaulter(t)
	differ := 0
	for _, in := range goldenInputs(t) {
		obj := loadObject(t, in)
		before := userfields.FingerprintUserFields(obj)
		a, err := userfields.ExtractUserFields(obj, defaults)
		if err != nil {
			t.Fatal(err)
		}
		b, err := userfields.ExtractUserFields(obj, shiftedDefaulter{defaults})
		if err != nil {
			t.Fatal(err)
		}
		if string(a) != string(b) {
			differ++
		}
		if after := userfields.FingerprintUserFields(obj); after != before {
			t.Errorf("%s: fingerprint %s became %s", in, before, after)
		}
	}
	if differ < 10 {
		t.Errorf("only %d objects prune differently: the test proves nothing", differ)
	}
}

// Defaults that a newer API server fills in when it reads an old object have no owner.
func TestFieldsWithoutOwnerAreNotStated(t *testing.T) {
	defaults := newRealDefaulter(t)
	for _, in := range goldenInputs(t) {
		if strings.Contains(in, "-bare.") || strings.Contains(in, "otherversion") {
			continue
		}
		obj := loadObject(t, in)
		pruned, err := userfields.ExtractUserFields(obj, defaults)
		if err != nil {
			t.Fatal(err)
		}
		newer := obj.DeepCopy()
		if spec, ok := newer.Object["spec"].(map[string]any); ok {
			spec["introducedLater"] = "by a newer hub"
		}
		newer.Object["introducedLater"] = map[string]any{"a": int64(1)}
		if got := userfields.FingerprintUserFields(newer); got != userfields.FingerprintUserFields(obj) && newer.GetGeneration() != 0 {
			t.Errorf("%s: a field without owner changed the fingerprint", in)
		}
		again, err := userfields.ExtractUserFields(newer, defaults)
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(pruned) {
			t.Errorf("%s: a field without owner is sent:\n%s", in, again)
		}
	}
}

func TestFingerprint(t *testing.T) {
	base := func() *unstructured.Unstructured {
		return loadObject(t, filepath.Join("testdata", "deployment-web-apply.in.yaml"))
	}
	plain := func() *unstructured.Unstructured {
		return loadObject(t, filepath.Join("testdata", "configmap-web-create.in.yaml"))
	}
	entry := func(obj *unstructured.Unstructured, e metav1.ManagedFieldsEntry) {
		obj.SetManagedFields(append(obj.GetManagedFields(), e))
	}
	for name, tc := range map[string]struct {
		base   func() *unstructured.Unstructured
		change func(*unstructured.Unstructured)
		same   bool
	}{
		"status": {base, func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"replicas": int64(3)}
			entry(o, metav1.ManagedFieldsEntry{Manager: "x", Subresource: "status", Operation: "Update"})
		}, true},
		"the hub's new status": {base, func(o *unstructured.Unstructured) {
			entry(o, metav1.ManagedFieldsEntry{Manager: atoll.FieldManager, Operation: "Apply", Time: &metav1.Time{Time: time.Unix(2e9, 0)}})
		}, true},
		"a finalizer of a user": {base, func(o *unstructured.Unstructured) {
			o.SetFinalizers([]string{"example.com/mine"})
		}, false},
		"resource version": {base, func(o *unstructured.Unstructured) { o.SetResourceVersion("999") }, true},
		"the hub's finalizer": {base, func(o *unstructured.Unstructured) {
			o.SetFinalizers([]string{atoll.Finalizer})
			entry(o, metav1.ManagedFieldsEntry{Manager: "atoll-hub", Operation: "Update", APIVersion: "apps/v1"})
		}, true},
		"the hub's annotation": {base, func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{atoll.AnnotationClusters: "*"})
		}, true},
		"a label":       {base, func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"app": "other"}) }, false},
		"an annotation": {base, func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "b"}) }, false},
		"generation":    {base, func(o *unstructured.Unstructured) { o.SetGeneration(2) }, false},
		"owners": {base, func(o *unstructured.Unstructured) {
			entry(o, metav1.ManagedFieldsEntry{Manager: "kubectl-edit", Operation: "Update", APIVersion: "apps/v1"})
		}, false},
		"a value of a kind without generations": {plain, func(o *unstructured.Unstructured) {
			o.Object["data"].(map[string]any)["a"] = "2"
		}, false},
		"another conversion of a CRD": {base, func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{atoll.AnnotationConversion: "{}"})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.base()
			after := tc.base()
			tc.change(after)
			if same := userfields.FingerprintUserFields(before) == userfields.FingerprintUserFields(after); same != tc.same {
				t.Errorf("same fingerprint: %v, want %v", same, tc.same)
			}
			seen := name == "status" || name == "resource version" || name == "the hub's finalizer" || name == "the hub's new status"
			if untouched := userfields.IsUntouchedByUsers(before, after); untouched != seen {
				t.Errorf("untouched: %v, want %v", untouched, seen)
			}
		})
	}
}

func BenchmarkExtractUserFields(b *testing.B) {
	defaults := newRealDefaulter(b)
	for _, name := range []string{"deployment-web-apply", "deployment-web-create", "configmap-web-apply"} {
		obj := loadObject(b, filepath.Join("testdata", name+".in.yaml"))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := userfields.ExtractUserFields(obj, defaults); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/fingerprint", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				userfields.FingerprintUserFields(obj)
			}
		})
		b.Run(name+"/untouched", func(b *testing.B) {
			other := obj.DeepCopy()
			b.ReportAllocs()
			for b.Loop() {
				userfields.IsUntouchedByUsers(obj, other)
			}
		})
	}
}
