package schedule_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/schedule"
)

const fleet = `
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: tokyo, labels: {region: asia}}
---
apiVersion: atoll.dev/v1alpha1
kind: Cluster
metadata: {name: oslo, labels: {region: europe}}
`

const shop = `
apiVersion: v1
kind: ConfigMap
metadata: {name: web, labels: {app: web}}
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: web}]
  placement: {clusterAffinity: {labelSelector: {matchLabels: {region: asia}}}}
`

func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := schedule.NewCommand()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Equal files give equal output, whatever their order; JSON is the default.
func TestFilesAloneDecide(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"fleet.yaml": fleet, "shop.yaml": shop} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, err := run(t, "", "-f", filepath.Join(dir, "fleet.yaml"), "-f", filepath.Join(dir, "shop.yaml"), "-n", "shop")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bundles []struct {
			Namespace string
			Clusters  []struct{ Cluster, Outcome string }
		}
	}
	if err := json.Unmarshal([]byte(first), &got); err != nil || len(got.Bundles) != 1 || got.Bundles[0].Namespace != "shop" {
		t.Fatalf("%v in %s", err, first)
	}
	placed := map[string]bool{}
	for _, c := range got.Bundles[0].Clusters {
		placed[c.Cluster] = c.Outcome == "Placed"
	}
	if !placed["tokyo"] || placed["oslo"] {
		t.Errorf("placed on %v", placed)
	}
	again, err := run(t, shop+"\n---\n"+fleet, "-f", "-", "-n", "shop")
	if err != nil || again != first {
		t.Errorf("in another order: %v, %s", err, again)
	}
	if text, err := run(t, shop+"\n---\n"+fleet, "-f", "-", "-o", "yaml"); err != nil || !strings.HasPrefix(text, "bundles:") && !strings.Contains(text, "\nbundles:") {
		t.Errorf("as YAML: %v, %s", err, text)
	}
}

func TestScheduleRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"no time":        {fleet, []string{"-f", "-", "--at", "noon"}, "--at"},
		"no YAML":        {"a: [", []string{"-f", "-"}, ""},
		"an odd field":   {strings.Replace(shop, "placement:", "placment:", 1), []string{"-f", "-"}, "placment"},
		"another format": {fleet, []string{"-f", "-", "-o", "xml"}, "xml"},
	} {
		if _, err := run(t, c.in, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
