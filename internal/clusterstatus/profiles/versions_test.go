package profiles

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	"atoll.dev/atoll/api/multicluster/v1alpha2"
)

// A published profile has the same content in both versions.
func TestPublishedProfilesAreTheSameInBothVersions(t *testing.T) {
	text, err := os.ReadFile("testdata/published.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var p v1alpha2.ClusterProfile
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatalf("it has a field that v1alpha2 lacks: %v", err)
	}
	again, err := json.Marshal(p.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	var in, out map[string]any
	if err := yaml.Unmarshal(text, &in); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("it came out as\n%s", again)
	}
}

// definedVersion is a version of the CRD.
type definedVersion struct {
	Name            string
	Served, Storage bool
	Schema          struct {
		OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
	}
}

// listLeaves lists the fields of a schema that hold values, with their types. It notes where unknown fields stay.
func listLeaves(path string, s map[string]any, leaves map[string]string, open map[string]bool) {
	properties, _ := s["properties"].(map[string]any)
	items, isList := s["items"].(map[string]any)
	if s["x-kubernetes-preserve-unknown-fields"] == true {
		open[path] = true
	}
	switch {
	case len(properties) > 0:
		for name, p := range properties {
			listLeaves(path+"."+name, p.(map[string]any), leaves, open)
		}
	case isList:
		listLeaves(path+"[]", items, leaves, open)
	default:
		kind, _ := s["type"].(string)
		leaves[path] = kind
	}
}

// The version v1alpha2 has the fields of v1alpha1 with the same types, but for those that v1alpha1 deprecates. Those stay
// where a profile is written by v1alpha2.
func TestNoVersionLosesAField(t *testing.T) {
	text, err := crds.Files.ReadFile("multicluster.x-k8s.io_clusterprofiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Conversion any
			Versions   []definedVersion
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	leaves, open := map[string]map[string]string{}, map[string]map[string]bool{}
	for _, v := range crd.Spec.Versions {
		if leaves[v.Name], open[v.Name] = map[string]string{}, map[string]bool{}; !v.Served || v.Storage != (v.Name == "v1alpha1") {
			t.Errorf("%s: served %t, stored %t", v.Name, v.Served, v.Storage)
		}
		listLeaves("", v.Schema.OpenAPIV3Schema, leaves[v.Name], open[v.Name])
	}
	first, next := leaves["v1alpha1"], leaves["v1alpha2"]
	if len(next) == 0 || crd.Spec.Conversion != nil {
		t.Fatalf("%d fields, conversion %v", len(next), crd.Spec.Conversion)
	}
	for path, kind := range next {
		if first[path] != kind {
			t.Errorf("%s is %s in v1alpha2, and %q in v1alpha1", path, kind, first[path])
		}
	}
	var missing []string
	for path := range first {
		if _, has := next[path]; !has && !strings.HasPrefix(path, ".status.credentialProviders[]") {
			missing = append(missing, path)
		}
	}
	if want := []string{".status.accessProviders[].cluster.certificate-authority"}; !slices.Equal(missing, want) {
		t.Errorf("v1alpha2 lacks %q, want %q", missing, want)
	}
	for _, path := range []string{".status", ".status.accessProviders[].cluster"} {
		if !open["v1alpha2"][path] {
			t.Errorf("v1alpha2 drops what it does not have of %s", path)
		}
	}
}
