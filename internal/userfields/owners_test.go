package userfields

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdvalue "sigs.k8s.io/structured-merge-diff/v6/value"
	"sigs.k8s.io/yaml"
)

// collectPaths of a tree of owners, as upstream's library would hold them: those that Apply
// entries own, and those that others do.
func (o *ownerTree) collectPaths(at fieldpath.Path, applied, updated *fieldpath.Set) {
	visit := func(pe fieldpath.PathElement, below *ownerTree) {
		path := append(at.Copy(), pe)
		if below.applied {
			applied.Insert(path)
		}
		if below.updated {
			updated.Insert(path)
		}
		below.collectPaths(path, applied, updated)
	}
	for name, below := range o.fields {
		visit(fieldpath.PathElement{FieldName: &name}, below)
	}
	for _, k := range o.keyed {
		visit(fieldpath.PathElement{Key: fieldpath.KeyByFields(keyPairs(k.key)...)}, k.ownerTree)
	}
	for _, v := range o.values {
		one := smdvalue.NewValueInterface(v.value)
		visit(fieldpath.PathElement{Value: &one}, v.ownerTree)
	}
}

func keyPairs(key map[string]any) (out []any) {
	for name, value := range key {
		out = append(out, name, value)
	}
	return out
}

// parseOwners reads the same of managedFields as upstream's library.
func TestOwnersEqualThoseOfUpstream(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	if err != nil || len(inputs) < 10 {
		t.Fatal(inputs, err)
	}
	owned := 0
	for _, in := range inputs {
		data, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &obj.Object); err != nil {
			t.Fatal(err)
		}
		tree, _, err := parseOwners(obj)
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		want := map[metav1.ManagedFieldsOperationType]*fieldpath.Set{
			metav1.ManagedFieldsOperationApply: fieldpath.NewSet(), metav1.ManagedFieldsOperationUpdate: fieldpath.NewSet(),
		}
		for _, e := range obj.GetManagedFields() {
			if !isByUser(e) || e.FieldsV1 == nil {
				continue
			}
			if e.APIVersion != obj.GetAPIVersion() {
				break
			}
			set := fieldpath.NewSet()
			if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
				t.Fatal(err)
			}
			want[e.Operation] = want[e.Operation].Union(set)
		}
		applied, updated := fieldpath.NewSet(), fieldpath.NewSet()
		tree.collectPaths(nil, applied, updated)
		owned += applied.Size() + updated.Size()
		for operation, got := range map[metav1.ManagedFieldsOperationType]*fieldpath.Set{
			metav1.ManagedFieldsOperationApply: applied, metav1.ManagedFieldsOperationUpdate: updated,
		} {
			if !got.Equals(want[operation]) {
				t.Errorf("%s: by %s are owned\n%v\nwant\n%v", in, operation, got, want[operation])
			}
		}
	}
	if owned < 100 {
		t.Errorf("only %d fields are owned: the test proves nothing", owned)
	}
}

func TestOwnersOfElements(t *testing.T) {
	entry := map[string]any{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": map[string]any{
		"f:finalizers": map[string]any{".": map[string]any{}, `v:"a.example/b"`: map[string]any{}},
		"f:ports":      map[string]any{`k:{"port":80,"protocol":"TCP"}`: map[string]any{"f:name": map[string]any{}}},
		"f:args":       map[string]any{"i:1": map[string]any{}},
	}}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "metadata": map[string]any{"managedFields": []any{entry}}}}
	tree, loose, err := parseOwners(obj)
	if err != nil || loose {
		t.Fatal(loose, err)
	}
	finalizers := tree.childField("finalizers")
	if !finalizers.updated || finalizers.applied || len(finalizers.values) != 1 || finalizers.values[0].value != "a.example/b" || !finalizers.values[0].updated {
		t.Errorf("finalizers: %+v", finalizers)
	}
	ports := tree.childField("ports")
	if ports.updated || len(ports.keyed) != 1 || !reflect.DeepEqual(ports.keyed[0].key, map[string]any{"port": int64(80), "protocol": "TCP"}) ||
		ports.keyed[0].updated || !ports.keyed[0].childField("name").updated {
		t.Errorf("ports: %+v", ports)
	}
	if args := tree.childField("args"); !args.updated || !args.isLeaf() {
		t.Errorf("a list whose elements are owned by index is owned as a whole: %+v", args)
	}
	for _, wrong := range []map[string]any{{"x:a": map[string]any{}}, {"k:{": map[string]any{}}, {"f:a": "b"}, {"v:": map[string]any{}}} {
		entry["fieldsV1"] = wrong
		if _, _, err := parseOwners(obj); err == nil {
			t.Errorf("%v is understood", wrong)
		}
	}
}
