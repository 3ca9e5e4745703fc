package objectdiff

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/jsonpointer"
)

// Managers are the managers of an object with their fields, decoded.
type Managers []managedFields

type managedFields struct {
	manager, subresource string
	fields               map[string]any
}

// ManagersOf returns the managers that managedFields of an object list.
func ManagersOf(obj *unstructured.Unstructured) (out Managers) {
	for _, f := range obj.GetManagedFields() {
		var fields map[string]any
		if f.FieldsV1 != nil && json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) == nil {
			out = append(out, managedFields{f.Manager, f.Subresource, fields})
		}
	}
	return out
}

// OfField returns the managers of the field at a JSON Pointer, sorted. For an element of a list they are
// the managers of the list. It returns none for a field without a manager.
func (m Managers) OfField(pointer string) []string {
	return m.collectOfField(pointer, func(one managedFields) string { return one.manager })
}

// SubresourcesOfField returns the subresources by which managers own the field at a JSON Pointer, sorted; an empty text for the object itself.
// It returns none for a field without a manager.
func (m Managers) SubresourcesOfField(pointer string) []string {
	return m.collectOfField(pointer, func(one managedFields) string { return one.subresource })
}

// collectOfField returns a text of each manager of a field, sorted.
func (m Managers) collectOfField(pointer string, text func(managedFields) string) (out []string) {
	path, err := jsonpointer.ParsePointer(pointer)
	if err != nil {
		return nil
	}
	for _, one := range m {
		if hasManagedField(one.fields, path) {
			out = append(out, text(one))
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
