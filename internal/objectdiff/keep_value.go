package objectdiff

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/jsonpointer"
)

// KeepBefore sets the field of a difference to a copy of its value before, and removes the field where that is nil. The document may
// be a part of what the difference is of: it is not changed where it does not have what is above the field. An element that the path names
// by its index must have the value after.
func KeepBefore(doc map[string]any, d Difference) {
	parts, err := jsonpointer.ParsePointer(d.Path)
	if err != nil || len(parts) == 0 {
		return
	}
	var above any = doc
	byIndex := false
	for _, part := range parts[:len(parts)-1] {
		above, byIndex = childOf(above, part), byIndex || isIndexed(above, part)
	}
	last := parts[len(parts)-1]
	if (byIndex || isIndexed(above, last)) && !reflect.DeepEqual(childOf(above, last), d.After) {
		return // the list has other elements than the whole document
	}
	setChild(above, last, runtime.DeepCopyJSONValue(d.Before))
}

// isIndexed reports whether a part of a path names an element of a list by its index.
func isIndexed(above any, part string) bool {
	_, isList := above.([]any)
	return isList && !strings.HasPrefix(part, "name=")
}

// childOf returns the value below a map or a list; nil when there is none.
func childOf(above any, part string) any {
	switch v := above.(type) {
	case map[string]any:
		return v[part]
	case []any:
		if i := indexOf(v, part); i >= 0 {
			return v[i]
		}
	}
	return nil
}

// setChild sets the value below a map, or an element that a list has. A map loses the value for nil.
func setChild(above any, part string, value any) {
	switch v := above.(type) {
	case map[string]any:
		if value == nil {
			delete(v, part)
		} else {
			v[part] = value
		}
	case []any:
		if i := indexOf(v, part); i >= 0 && value != nil {
			v[i] = value
		}
	}
}

// indexOf returns the index of the element that a part of a path names, by its index or as name=NAME; -1 when there is none.
func indexOf(list []any, part string) int {
	if strings.HasPrefix(part, "name=") {
		return slices.IndexFunc(list, func(e any) bool { return ElementName(e) == part })
	}
	i, err := jsonpointer.ParseIndex(part)
	if err != nil || i >= len(list) {
		return -1
	}
	return i
}
