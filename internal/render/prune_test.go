package render_test

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

	"atoll.dev/atoll/internal/bind/defaulting"
	"atoll.dev/atoll/internal/render"
)

var update = flag.Bool("update", false, "write the golden files anew")

func load(t testing.TB, path string) *unstructured.Unstructured {
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

// realDefaults are those of the hub's API, with the CRD of the test data.
func realDefaults(t testing.TB) render.Defaulter {
	crd := load(t, "testdata/customresourcedefinition-widgets.example.com-apply.in.yaml")
	return defaulting.New(func(gk schema.GroupKind) *unstructured.Unstructured {
		if gk == (schema.GroupKind{Group: "example.com", Kind: "Widget"}) {
			return crd
		}
		return nil
	})
}

func inputs(t testing.TB) []string {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden inputs: %v", err)
	}
	return files
}

// The inputs are live objects of a hub: written by server-side apply (-apply), by
// kubectl create (-create) and by client-side apply (-lastapplied).
func TestPruneGolden(t *testing.T) {
	defaults := realDefaults(t)
	for _, in := range inputs(t) {
		name := strings.TrimSuffix(filepath.Base(in), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			obj := load(t, in)
			before := obj.DeepCopy()
			got, err := render.Prune(obj, defaults)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonEqual(t, before.Object, obj.Object) {
				t.Error("Prune changed its argument")
			}
			asYAML, err := yaml.JSONToYAML(got)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(in, ".in.yaml") + ".out.yaml"
			if *update {
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

func jsonEqual(t *testing.T, a, b any) bool {
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
