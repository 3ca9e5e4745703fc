package inventory

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	"sigs.k8s.io/yaml"
)

const (
	ours     = "../../api/crds/multicluster.x-k8s.io_clusterprofiles.yaml"
	testdata = "../../internal/inventory/profiles/testdata/"
)

// crd as far as it decides what may be stored: without texts for people and columns.
func crd(t *testing.T, path string) any {
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
	return facts(o.Spec)
}

// facts without words: what is called description and is no field of that name, what a
// validation says when it fails, and columns.
func facts(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if _, word := e.(string); word && (k == "description" || k == "message") || k == "additionalPrinterColumns" {
				continue
			}
			out[k] = facts(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = facts(v[i])
		}
		return out
	}
	return v
}

// differ tells where two schemas do.
func differ(path string, a, b any, tell func(path string, a, b any)) {
	x, ok1 := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if !ok1 || !ok2 {
		xs, list1 := a.([]any)
		ys, list2 := b.([]any)
		if list1 && list2 && len(xs) == len(ys) {
			for i := range xs {
				differ(path+"[]", xs[i], ys[i], tell)
			}
		} else if !reflect.DeepEqual(a, b) {
			tell(path, a, b)
		}
		return
	}
	for k := range x {
		differ(path+"."+k, x[k], y[k], tell)
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
	theirs := filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases", filepath.Base(ours))
	differ("spec", crd(t, ours), crd(t, theirs), func(path string, a, b any) {
		t.Errorf("%s is %v, and upstream's %v", path, a, b)
	})
}

// profile of a file, by upstream's types.
func profile(t *testing.T, file string) (p v1alpha1.ClusterProfile, text []byte) {
	t.Helper()
	text, err := os.ReadFile(testdata + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p, text
}

// TestUpstreamsTypesReadAndWriteProfiles: what a hub publishes, and what others may, without
// loss.
func TestUpstreamsTypesReadAndWriteProfiles(t *testing.T) {
	for _, file := range []string{"published.yaml", "others.yaml"} {
		p, text := profile(t, file)
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
		if in, out := stored(in), stored(out); !reflect.DeepEqual(in, out) {
			t.Errorf("%s came out as\n%v\nand was\n%v", file, out, in)
		}
	}
}

// stored is what an API server keeps of an object: nothing that is null.
func stored(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if e != nil {
				out[k] = stored(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = stored(v[i])
		}
		return out
	}
	return v
}

// TestUpstreamsConfigurationFindsTheWay: a program that goes by upstream's library comes to the
// hub, with the CA that verifies it and the plugin that it names, by what a hub publishes.
func TestUpstreamsConfigurationFindsTheWay(t *testing.T) {
	p, _ := profile(t, "published.yaml")
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
