package userfields

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Every kind whose own fields are pruned has a golden in which something was pruned.
func TestEveryPrunedKindHasAGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cleaned := map[schema.GroupKind]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &obj.Object); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
		_, loose, err := parseOwners(obj)
		if err != nil {
			t.Fatal(err)
		}
		gk := obj.GroupVersionKind().GroupKind()
		if c := kindCleaners[gk]; c != nil {
			before := obj.DeepCopy()
			c(obj.Object, loose)
			cleaned[gk] = cleaned[gk] || !equality.Semantic.DeepEqual(before.Object, obj.Object)
		}
	}
	for gk := range kindCleaners {
		if !cleaned[gk] {
			t.Errorf("no golden in testdata shows what is pruned of %s", gk)
		}
	}
}
