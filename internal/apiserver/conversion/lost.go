package conversion

import (
	"maps"
	"reflect"
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reportLostFields calls report with the path of every value in x, which follows the schema from,
// that the schema to does not have and would prune. A value that from itself fills in is not a
// user's, and nothing is lost with it. It ends once report returns false, and returns false then.
func reportLostFields(x any, from, to *structuralschema.Structural, isResource bool, path *field.Path, report func(*field.Path) bool) bool {
	if to == nil || to.XPreserveUnknownFields {
		return true
	}
	switch x := x.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if (isResource || to.XEmbeddedResource) && (name == "apiVersion" || name == "kind" || name == "metadata") {
				continue
			}
			if !reportLostField(name, x[name], from, to, path, report) {
				return false
			}
		}
	case []any:
		return reportLostItems(x, from, to, path, report)
	}
	return true
}

// reportLostItems does the same for the items of a list.
func reportLostItems(list []any, from, to *structuralschema.Structural, path *field.Path, report func(*field.Path) bool) bool {
	var source *structuralschema.Structural
	if from != nil {
		source = from.Items
	}
	for i, value := range list {
		at := path.Index(i)
		if to.Items == nil && !report(at) || !reportLostFields(value, source, to.Items, false, at, report) {
			return false
		}
	}
	return true
}

// reportLostField does the same for one field of an object.
func reportLostField(name string, value any, from, to *structuralschema.Structural, path *field.Path, report func(*field.Path) bool) bool {
	source, target := fieldSchema(from, name), fieldSchema(to, name)
	at := path.Child(name)
	if _, listed := to.Properties[name]; !listed && to.AdditionalProperties != nil {
		at = path.Key(name)
	}
	switch {
	case target != nil:
		return reportLostFields(value, source, target, false, at, report)
	case to.AdditionalProperties != nil && to.AdditionalProperties.Bool:
	case source != nil && source.Default.Object != nil && reflect.DeepEqual(source.Default.Object, value):
	default:
		return report(at)
	}
	return true
}

// fieldSchema returns the schema of a field, or nil when s does not have it.
func fieldSchema(s *structuralschema.Structural, name string) *structuralschema.Structural {
	if s == nil {
		return nil
	}
	if p, ok := s.Properties[name]; ok {
		return &p
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Structural
	}
	return nil
}
