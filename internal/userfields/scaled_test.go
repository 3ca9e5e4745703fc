package userfields_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/userfields"
)

// TestScaledReplicasAreStated covers replicas for which the API server's scale subresource records
// no owner: a scale to zero, and a scale of what an apply left open. A default is not stated.
func TestScaledReplicasAreStated(t *testing.T) {
	const (
		deployment = "apiVersion: apps/v1\nkind: Deployment"

		applied = `{apiVersion: apps/v1, fieldsType: FieldsV1, manager: kubectl, operation: Apply, fieldsV1: {"f:spec": {"f:selector": {}}}}`
		created = `{apiVersion: apps/v1, fieldsType: FieldsV1, manager: kubectl, operation: Update, fieldsV1: {"f:spec": {"f:selector": {}}}}`
		whole   = `{apiVersion: apps/v1, fieldsType: FieldsV1, manager: kubectl, operation: Apply, fieldsV1: {"f:spec": {}}}`
		scaler  = `{apiVersion: apps/v1, fieldsType: FieldsV1, manager: kubectl, operation: Update, subresource: scale, fieldsV1: {"f:spec": {"f:replicas": {}}}}`
	)
	for _, c := range []struct {
		what, entries string
		replicas      int64
		stated        bool
		kind          string
	}{
		{"to none what was applied", applied, 0, true, deployment},
		{"to none what was created", created, 0, true, deployment},
		{"what was applied without", applied, 3, true, deployment},
		{"as it is noted", applied + ", " + scaler, 3, true, deployment},
		{"no owner, the default", applied, 1, false, deployment},
		{"no owner, the default of what was created", created, 1, false, deployment},
		{"what is owned as a whole", whole, 3, true, deployment},
		{"to none a kind of users", strings.ReplaceAll(applied, "apps/v1", "example.org/v1"), 0, true, "apiVersion: example.org/v1\nkind: Gizmo"},
	} {
		obj := &unstructured.Unstructured{}
		text := fmt.Sprintf(`%s
metadata: {name: web, namespace: shop, managedFields: [%s]}
spec: {replicas: %d, selector: {matchLabels: {app: web}}}`, c.kind, c.entries, c.replicas)
		if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
			t.Fatal(err)
		}
		pruned, err := userfields.ExtractUserFields(obj, newRealDefaulter(t))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Spec struct {
				Replicas *int64
				Selector map[string]any
			}
		}
		if err := json.Unmarshal(pruned, &got); err != nil {
			t.Fatal(err)
		}
		if r := got.Spec.Replicas; (r != nil) != c.stated || r != nil && *r != c.replicas {
			t.Errorf("%s, %d: stated is %s", c.what, c.replicas, pruned)
		}
		if got.Spec.Selector == nil {
			t.Errorf("%s: the selector is lost: %s", c.what, pruned)
		}
	}
}
