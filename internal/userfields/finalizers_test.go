package userfields_test

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/userfields"
)

// managedEntry returns an entry of managedFields, with fields as in FieldsV1.
func managedEntry(manager, operation, subresource, fields string) any {
	var v map[string]any
	if err := json.Unmarshal([]byte(fields), &v); err != nil {
		panic(err)
	}
	e := map[string]any{"manager": manager, "operation": operation, "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": v}
	if subresource != "" {
		e["subresource"] = subresource
	}
	return e
}

// A finalizer is content when a manager owns it that also owns content.
func TestFinalizersOfTheHubsControllersStay(t *testing.T) {
	const (
		spec     = `{"f:spec":{"f:size":{}}}`
		alone    = `{"f:metadata":{"f:finalizers":{".":{},"v:\"op.example.com/clean\"":{}}}}`
		both     = `{"f:metadata":{"f:finalizers":{"v:\"op.example.com/clean\"":{}}},"f:spec":{"f:size":{}}}`
		marked   = `{"f:metadata":{"f:annotations":{"f:op.example.com/seen":{}},"f:finalizers":{"v:\"op.example.com/clean\"":{}}}}`
		asStatus = `{"f:status":{"f:phase":{}}}`
	)
	person := managedEntry("kubectl", "Apply", "", spec)
	for name, c := range map[string]struct {
		entries []any
		isSent  bool
	}{
		"no managedFields":                  {nil, true},
		"no manager owns it":                {[]any{person}, false},
		"applied with the content":          {[]any{managedEntry("kubectl", "Apply", "", both)}, true},
		"created with the content":          {[]any{managedEntry("kubectl-create", "Update", "", both)}, true},
		"a controller's":                    {[]any{person, managedEntry("manager", "Update", "", alone)}, false},
		"a controller's, applied":           {[]any{person, managedEntry("manager", "Apply", "", alone)}, false},
		"a controller's with annotations":   {[]any{person, managedEntry("manager", "Update", "", marked)}, false},
		"a controller's with status":        {[]any{person, managedEntry("manager", "Update", "", alone), managedEntry("manager", "Update", "status", asStatus)}, false},
		"in two entries of one writer":      {[]any{managedEntry("helm", "Update", "", spec), managedEntry("helm", "Apply", "", alone)}, true},
		"of a writer and a controller":      {[]any{managedEntry("kubectl", "Apply", "", both), managedEntry("manager", "Update", "", alone)}, true},
		"a controller's in a person's list": {[]any{managedEntry("kubectl-create", "Update", "", `{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/own\"":{}}},"f:spec":{"f:size":{}}}`), managedEntry("manager", "Update", "", `{"f:metadata":{"f:finalizers":{"v:\"op.example.com/clean\"":{}}}}`)}, false},
		"of an object of metadata alone":    {[]any{managedEntry("kubectl", "Apply", "", alone)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			meta := map[string]any{"name": "a", "namespace": "shop", "finalizers": []any{"op.example.com/clean"}}
			if c.entries != nil {
				meta["managedFields"] = c.entries
			}
			raw, err := userfields.ExtractUserFields(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, "spec": map[string]any{"size": int64(1)},
			}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if isSent := strings.Contains(string(raw), "op.example.com/clean"); isSent != c.isSent {
				t.Errorf("the finalizer is content: %v, want %v: %s", isSent, c.isSent, raw)
			}
		})
	}
}
