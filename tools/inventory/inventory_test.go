package inventory

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	"sigs.k8s.io/yaml"
)

const (
	ourDefinition   = "../../api/crds/multicluster.x-k8s.io_clusterprofiles.yaml"
	ourDecisions    = "../../api/crds/multicluster.x-k8s.io_placementdecisions.yaml"
	profileTestdata = "../../internal/clusterstatus/profiles/testdata/"
)

// readStoredSchema returns the storage-relevant part of a CRD: of the version v1alpha1, without texts for people and
// columns.
func readStoredSchema(t *testing.T, path string) any {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	versions, _ := o.Spec["versions"].([]any)
	o.Spec["versions"] = slices.DeleteFunc(versions, func(v any) bool { // the module that the test reads has no later version
		version, _ := v.(map[string]any)
		return version["name"] != "v1alpha1"
	})
	return withoutTexts(o.Spec)
}

// withoutTexts removes descriptions, validation messages and columns from a schema. A field
// called description stays.
func withoutTexts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if _, word := e.(string); word && (k == "description" || k == "message") || k == "additionalPrinterColumns" {
				continue
			}
			if none, ok := e.(map[string]any); ok && k == "subresources" && len(none) == 0 {
				continue // generators differ in whether they write none
			}
			out[k] = withoutTexts(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutTexts(v[i])
		}
		return out
	}
	return v
}

// reportDifferences reports the places where two schemas differ.
func reportDifferences(path string, a, b any, tell func(path string, a, b any)) {
	x, ok1 := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if !ok1 || !ok2 {
		xs, list1 := a.([]any)
		ys, list2 := b.([]any)
		if list1 && list2 && len(xs) == len(ys) {
			for i := range xs {
				reportDifferences(path+"[]", xs[i], ys[i], tell)
			}
		} else if !reflect.DeepEqual(a, b) {
			tell(path, a, b)
		}
		return
	}
	for k := range x {
		reportDifferences(path+"."+k, x[k], y[k], tell)
	}
	for k := range y {
		if _, both := x[k]; !both {
			tell(path+"."+k, nil, y[k])
		}
	}
}

// TestTheSchemaIsUpstreams: the same fields, of the same types, bounds, keys of lists and rules.
func TestTheSchemaIsUpstreams(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-inventory-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, ours := range []string{ourDefinition, ourDecisions} {
		theirs := filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases", filepath.Base(ours))
		reportDifferences("spec", readStoredSchema(t, ours), readStoredSchema(t, theirs), func(path string, a, b any) {
			t.Errorf("%s: %s is %v, and upstream's %v", filepath.Base(ours), path, a, b)
		})
	}
}

// readProfile reads the profile of a file, by upstream's types.
func readProfile(t *testing.T, file string) (p v1alpha1.ClusterProfile, text []byte) {
	t.Helper()
	text, err := os.ReadFile(profileTestdata + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p, text
}

// TestUpstreamsTypesReadAndWriteProfiles: a hub's profiles, and others' possible ones,
// without loss.
func TestUpstreamsTypesReadAndWriteProfiles(t *testing.T) {
	for _, file := range []string{"published.yaml", "others.yaml"} {
		p, text := readProfile(t, file)
		var in, out map[string]any
		if err := yaml.Unmarshal(text, &in); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &out); err != nil {
			t.Fatal(err)
		}
		if in, out := withoutNulls(in), withoutNulls(out); !reflect.DeepEqual(in, out) {
			t.Errorf("%s came out as\n%v\nand was\n%v", file, out, in)
		}
	}
}

// withoutNulls removes null values, as an API server does on storage.
func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if e != nil {
				out[k] = withoutNulls(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutNulls(v[i])
		}
		return out
	}
	return v
}

// TestUpstreamsConfigurationFindsTheWay: a program with upstream's library reaches the hub
// by its published profile, with the CA that verifies it and the plugin that it names.
func TestUpstreamsConfigurationFindsTheWay(t *testing.T) {
	p, _ := readProfile(t, "published.yaml")
	if p.Labels[v1alpha1.LabelClusterManagerKey] != p.Spec.ClusterManager.Name {
		t.Errorf("the label says %q, and spec %q", p.Labels[v1alpha1.LabelClusterManagerKey], p.Spec.ClusterManager.Name)
	}
	found := false
	for _, c := range p.Status.Conditions {
		found = found || c.Type == v1alpha1.ClusterConditionControlPlaneHealthy
	}
	if !found {
		t.Errorf("none of the conditions is %s: %v", v1alpha1.ClusterConditionControlPlaneHealthy, p.Status.Conditions)
	}
	c, err := access.New([]access.Provider{{Name: "atoll", ExecConfig: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "atoll", Args: []string{"credential"}, ProvideClusterInfo: true,
	}}}).BuildConfigFromCP(&p)
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != "https://hub.example:6443/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy" || string(c.CAData) != "PEM" ||
		c.ExecProvider.Command != "atoll" || !c.ExecProvider.ProvideClusterInfo {
		t.Errorf("it leads to %s, by %q, with %+v", c.Host, c.CAData, c.ExecProvider)
	}
}
