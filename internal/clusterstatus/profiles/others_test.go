package profiles

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
)

var update = flag.Bool("update", false, "write the goldens again")

// TestWhatOthersPublishIsKept: a profile of another manager, with every field that there is,
// lastObservedTime, credentialProviders, tls-server-name, insecure-skip-tls-verify,
// certificate-authority, proxy-url, disable-compression, and extensions with their name and
// extension among them, comes out as it went in.
func TestWhatOthersPublishIsKept(t *testing.T) {
	text, err := os.ReadFile("testdata/others.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var in, out map[string]any
	if err := yaml.Unmarshal(text, &in); err != nil {
		t.Fatal(err)
	}
	var p multicluster.ClusterProfile
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(p.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("it came out as\n%s", again)
	}
}

// TestThePublishedGolden is what tools/inventory reads with upstream's types.
func TestThePublishedGolden(t *testing.T) {
	p := ProfileOf(newCluster(), hub)
	p.APIVersion, p.Kind = multicluster.GroupVersion.String(), "ClusterProfile"
	now, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/published.yaml"
	if *update {
		if err := os.WriteFile(golden, now, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(was) != string(now) {
		t.Errorf("published is now (-update writes it)\n%s", now)
	}
}
