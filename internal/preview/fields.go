package preview

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
)

// FieldChange that would change.
type FieldChange struct {
	// Path of the field, a JSON Pointer.
	Path string `json:"path"`
	// Before and After; nil where the field is not there.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
	// Hidden: the values are a Secret's and not shown.
	Hidden bool `json:"hidden,omitempty"`
	// MemberOwned: the field belongs to the member, so that only a new object gets the value.
	MemberOwned bool `json:"memberOwned,omitempty"`
}

// maxFields of an item are listed.
const maxFields = 200

func changedFields(was, now *atoll.RenderedItem) (out []FieldChange) {
	var before, after map[string]any
	if utiljson.Unmarshal(was.Object, &before) != nil || utiljson.Unmarshal(now.Object, &after) != nil {
		return nil
	}
	appendDifferences(&out, "", before, after)
	if len(out) > maxFields {
		out = out[:maxFields]
	}
	for i := range out {
		out[i].MemberOwned = slices.ContainsFunc(now.MemberOwned, func(path string) bool {
			return out[i].Path == path || strings.HasPrefix(out[i].Path, path+"/")
		})
	}
	if now.Key.IsSecret() {
		for i := range out {
			out[i].Before, out[i].After, out[i].Hidden = nil, nil, true
		}
	}
	return out
}

// missingFrom returns the paths that are not in the others.
func missingFrom(paths, others []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return slices.Contains(others, path) })
}

// appendDifferences lists where two values differ, as deep down as both have the same shape. Lists of
// maps that all have a name are compared by it.
func appendDifferences(out *[]FieldChange, path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch a := after.(type) {
	case map[string]any:
		if b, ok := before.(map[string]any); ok {
			appendMapDifferences(out, path, b, a)
			return
		}
	case []any:
		if b, ok := before.([]any); ok && (len(a) == len(b) && !haveUniqueNames(a, b)) {
			for i := range a {
				appendDifferences(out, path+"/"+strconv.Itoa(i), b[i], a[i])
			}
			return
		} else if ok && haveUniqueNames(a, b) {
			appendMapDifferences(out, path, elementsByName(b), elementsByName(a))
			return
		}
	}
	*out = append(*out, FieldChange{Path: path, Before: before, After: after})
}

func appendMapDifferences(out *[]FieldChange, path string, before, after map[string]any) {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		appendDifferences(out, path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), before[k], after[k])
	}
}

// haveUniqueNames reports whether all elements of both lists are maps with names of their own.
func haveUniqueNames(lists ...[]any) bool {
	for _, list := range lists {
		if len(list) == 0 || len(elementsByName(list)) != len(list) {
			return false
		}
	}
	return true
}

// elementsByName returns the elements that have one, by it, as name=NAME.
func elementsByName(list []any) map[string]any {
	out := map[string]any{}
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			if name, ok := m["name"].(string); ok {
				out["name="+name] = m
			}
		}
	}
	return out
}
