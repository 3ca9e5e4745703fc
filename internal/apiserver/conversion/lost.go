package conversion

import (
	"reflect"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// lost calls report with the path of every value in x, which follows the schema
// from, that the schema to does not know and that would be pruned. A value that
// from itself fills in is nobody's statement, and nothing is lost with it.
func lost(x any, from, to *structuralschema.Structural, isResource bool, path *field.Path, report func(*field.Path)) {
	if to == nil || to.XPreserveUnknownFields {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, value := range x {
			if (isResource || to.XEmbeddedResource) && (name == "apiVersion" || name == "kind" || name == "metadata") {
				continue
			}
			source, target := property(from, name), property(to, name)
			at := path.Child(name)
			if _, listed := to.Properties[name]; !listed && to.AdditionalProperties != nil {
				at = path.Key(name)
			}
			switch {
			case target != nil:
				lost(value, source, target, false, at, report)
			case to.AdditionalProperties != nil && to.AdditionalProperties.Bool:
			case source != nil && source.Default.Object != nil && reflect.DeepEqual(source.Default.Object, value):
			default:
				report(at)
			}
		}
	case []any:
		for i, value := range x {
			if to.Items == nil {
				report(path.Index(i))
				continue
			}
			var source *structuralschema.Structural
			if from != nil {
				source = from.Items
			}
			lost(value, source, to.Items, false, path.Index(i), report)
		}
	}
}

// property returns the schema of a field, or nil when s does not know it.
func property(s *structuralschema.Structural, name string) *structuralschema.Structural {
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
