package userfields_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/binder/defaulting"
	"atoll.dev/atoll/internal/userfields"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

func loadObject(t testing.TB, path string) *unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(asJSON); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return u
}

// newRealDefaulter are those of the hub's API, with the CRD of the test data.
func newRealDefaulter(t testing.TB) userfields.Defaulter {
	crd := loadObject(t, "testdata/customresourcedefinition-widgets.example.com-apply.in.yaml")
	return defaulting.New(func(gk schema.GroupKind) *unstructured.Unstructured {
		if gk == (schema.GroupKind{Group: "example.com", Kind: "Widget"}) {
			return crd
		}
		return nil
	})
}

func goldenInputs(t testing.TB) []string {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden inputs: %v", err)
	}
	return files
}

// The inputs are live objects of a hub: written by server-side apply (-apply), by
// kubectl create (-create) and by client-side apply (-lastapplied).
func TestExtractUserFieldsGolden(t *testing.T) {
	defaults := newRealDefaulter(t)
	for _, in := range goldenInputs(t) {
		name := strings.TrimSuffix(filepath.Base(in), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			obj := loadObject(t, in)
			before := obj.DeepCopy()
			got, err := userfields.ExtractUserFields(obj, defaults)
			if err != nil {
				t.Fatal(err)
			}
			if !isEqualJSON(t, before.Object, obj.Object) {
				t.Error("Prune changed its argument")
			}
			asYAML, err := yaml.JSONToYAML(got)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(in, ".in.yaml") + ".out.yaml"
			if *updateGolden {
				if err := os.WriteFile(golden, asYAML, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(asYAML) != string(want) {
				t.Errorf("pruned differs from %s:\n%s", golden, asYAML)
			}
		})
	}
}

func isEqualJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}
