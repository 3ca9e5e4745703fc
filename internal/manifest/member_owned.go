package manifest

import (
	"fmt"
	"maps"
	"slices"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
)

// withTreatment returns the paths of fields that belong to the member, with those that the item's
// treatment leaves to it. Fields that the object lacks need no path. It fails for an element of a list,
// which the API does not assign to a manager as a whole.
func withTreatment(owned []string, t *atoll.Treatment, obj map[string]any) ([]string, error) {
	if t.IsCreateOnly() {
		return listContentPaths(obj), nil
	}
	for _, path := range t.IgnoredFields() {
		parts, err := jsonpointer.ParsePointer(path)
		if err != nil || slices.Contains(owned, path) {
			continue
		}
		switch above, has := jsonpointer.LookupParent(obj, parts); above.(type) {
		case []any:
			return nil, fmt.Errorf("ignoreFields: %s is an element of a list: name the whole list, or a field of the element", path)
		default:
			if has {
				owned = append(owned, path)
			}
		}
	}
	return owned, nil
}

// identityFields of metadata name the object, and belong to no member.
var identityFields = []string{"name", "namespace", "uid"}

// listContentPaths returns the paths of all that the object states apart from its identity. Labels and
// annotations have a path each, since Atoll keeps its own beside them.
func listContentPaths(obj map[string]any) (paths []string) {
	for _, field := range slices.Sorted(maps.Keys(obj)) {
		if field != "apiVersion" && field != "kind" && field != "metadata" {
			paths = append(paths, jsonpointer.FormatPointer(field))
		}
	}
	meta, _ := obj["metadata"].(map[string]any)
	for _, field := range slices.Sorted(maps.Keys(meta)) {
		switch {
		case slices.Contains(identityFields, field):
		case field == "labels" || field == "annotations":
			keys, _ := meta[field].(map[string]any)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				paths = append(paths, jsonpointer.FormatPointer("metadata", field, key))
			}
		default:
			paths = append(paths, jsonpointer.FormatPointer("metadata", field))
		}
	}
	return paths
}
