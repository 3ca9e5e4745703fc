package objectdiff

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/jsonpointer"
)

// ManagersOf returns the managers of a field of an object, as its managedFields list them, sorted. For
// an element of a list they are the managers of the list. It returns none for a field without a
// manager.
func ManagersOf(obj *unstructured.Unstructured, path string) []string {
	parts, err := jsonpointer.Parse(path)
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range obj.GetManagedFields() {
		var fields map[string]any
		if f.FieldsV1 != nil && json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) == nil && hasManagedField(fields, parts) {
			out = append(out, f.Manager)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hasManagedField follows a path in fieldsV1. It ends where a list begins, whose elements have keys of
// their own.
func hasManagedField(fields map[string]any, path []string) bool {
	for _, part := range path {
		next, has := fields["f:"+part].(map[string]any)
		if !has {
			return isManagedList(fields)
		}
		fields = next
	}
	return true
}

func isManagedList(fields map[string]any) bool {
	for name := range fields {
		if strings.HasPrefix(name, "k:") || strings.HasPrefix(name, "v:") {
			return true
		}
	}
	return false
}
