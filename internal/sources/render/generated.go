package render

import (
	"slices"
	"strings"

	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/objectdiff"
)

// FindGenerated returns the fields of an object that differ between two renderings of the same inputs, as JSON Pointers. An element of
// a list is named as name=NAME, and a list of other elements is one field. The result is false for objects that differ in what they
// are, or in which fields they have: no field of the hub could stand for such a difference.
func FindGenerated(one, other map[string]any) (paths []string, ok bool) {
	if one["apiVersion"] != other["apiVersion"] || nameOf(one) != nameOf(other) {
		return nil, false
	}
	for _, d := range objectdiff.Compare(one, other) {
		path, isList := cutAtList(one, d.Path)
		switch {
		case !isList && (d.Before == nil || d.After == nil):
			return nil, false
		case !hasField(one, path) || !hasField(other, path):
			return nil, false
		case !slices.Contains(paths, path):
			paths = append(paths, path)
		}
	}
	return paths, true
}

func hasField(fields map[string]any, path string) bool {
	_, _, _, ok := GeneratedField(fields, path)
	return ok
}

// cutAtList returns a path up to the first list whose elements have no names, and whether there is one.
func cutAtList(fields map[string]any, path string) (string, bool) {
	parts, err := jsonpointer.ParsePointer(path)
	if err != nil {
		return "", false
	}
	for i := range parts {
		at, found := fieldAt(fields, parts[:i])
		list, isList := at.([]any)
		if _, named := objectdiff.IndexByName(list); found && isList && !named {
			return jsonpointer.FormatPointer(parts[:i]...), true
		}
	}
	at, _ := fieldAt(fields, parts)
	_, isList := at.([]any)
	return path, isList
}

// fieldAt returns the value at a path; false without one.
func fieldAt(v any, path []string) (any, bool) {
	for _, part := range path {
		switch at := v.(type) {
		case map[string]any:
			one, has := at[part]
			if !has {
				return nil, false
			}
			v = one
		case []any:
			i := slices.IndexFunc(at, func(e any) bool { return objectdiff.ElementName(e) == part })
			if i < 0 || !strings.HasPrefix(part, "name=") {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// GeneratedField returns the value of a field that FindGenerated named, and the map that has it with its key; false without one.
func GeneratedField(fields map[string]any, path string) (above map[string]any, key string, value any, ok bool) {
	parts, err := jsonpointer.ParsePointer(path)
	if err != nil || len(parts) == 0 {
		return nil, "", nil, false
	}
	key = parts[len(parts)-1]
	at, _ := fieldAt(fields, parts[:len(parts)-1])
	above, ok = at.(map[string]any)
	if !ok {
		return nil, "", nil, false
	}
	value, ok = above[key]
	return above, key, value, ok
}
