package kinds_test

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parseObject decodes YAML as an informer does.
func parseObject(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	js, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("fixture: %v", err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(js); err != nil {
		t.Fatalf("fixture: %v\n%s", err, text)
	}
	return u
}

const deploymentHeadYAML = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop, generation: 2}\n"

func formatDecimal(n int64) string { return strconv.FormatInt(n, 10) }
