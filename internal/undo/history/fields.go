package history

import (
	"maps"
	"reflect"
	"slices"

	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/phrase"
)

// Fields is a tree of fields, by their names. A field without a subtree is in the set with all below it.
// An element of a list is named by the value of its field name, as name=NAME.
type Fields map[string]Fields

// maxDepth bounds a comparison. A field at this depth is compared as a whole.
const maxDepth = 32

// CompareFields returns the fields in which two documents differ; nil: there are none. It visits each
// value once. A map that came or went counts by its fields, because others may add theirs to the map.
func CompareFields(before, after map[string]any) Fields {
	return compareMaps(before, after, 0, listFields)
}

// compareMaps compares the fields of two maps. Below a field that only one of them has are the fields of missing.
func compareMaps(before, after map[string]any, depth int, missing func(v any, depth int) Fields) Fields {
	var out Fields
	add := func(name string, sub Fields) {
		if out == nil {
			out = Fields{}
		}
		out[name] = sub
	}
	for name, b := range before {
		a, has := after[name]
		if !has {
			add(name, missing(b, depth+1))
		} else if sub, differ := compareValues(b, a, depth+1); differ {
			add(name, sub)
		}
	}
	for name, a := range after {
		if _, had := before[name]; !had {
			add(name, missing(a, depth+1))
		}
	}
	return out
}

// listFields returns the fields of a map; nil: the value is one field.
func listFields(v any, depth int) Fields {
	m, _ := v.(map[string]any)
	if len(m) == 0 || depth >= maxDepth {
		return nil
	}
	out := make(Fields, len(m))
	for name, sub := range m {
		out[name] = listFields(sub, depth+1)
	}
	return out
}

// wholeElement returns no fields: an element of a list comes and goes as a whole.
func wholeElement(any, int) Fields { return nil }

// compareValues reports whether two values differ, and in which of their fields; nil: as a whole.
func compareValues(before, after any, depth int) (sub Fields, differ bool) {
	if depth >= maxDepth {
		return nil, !reflect.DeepEqual(before, after)
	}
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			sub = compareMaps(b, a, depth, listFields)
			return sub, sub != nil
		}
		return nil, true
	case []any:
		if a, ok := after.([]any); ok {
			return compareLists(b, a, depth)
		}
		return nil, true
	}
	return nil, !isEqualScalar(before, after)
}

func isEqualScalar(a, b any) bool {
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// compareLists compares lists of named elements by names, and other lists as a whole.
func compareLists(before, after []any, depth int) (Fields, bool) {
	b, namedBefore := objectdiff.IndexByName(before)
	a, namedAfter := objectdiff.IndexByName(after)
	if !namedBefore || !namedAfter || len(a) == 0 || len(b) == 0 {
		return nil, !isEqualList(before, after, depth)
	}
	if !slices.Equal(namesAmong(before, a), namesAmong(after, b)) {
		return nil, true // the order changed
	}
	sub := compareMaps(b, a, depth, wholeElement)
	return sub, sub != nil
}

// isEqualList compares lists without names.
func isEqualList(before, after []any, depth int) bool {
	return slices.EqualFunc(before, after, func(b, a any) bool {
		_, differ := compareValues(b, a, depth+1)
		return !differ
	})
}

// namesAmong lists the names of a list's elements that are in a set, in the order of the list.
func namesAmong(list []any, set map[string]any) (out []string) {
	for _, e := range list {
		if name := objectdiff.ElementName(e); set[name] != nil {
			out = append(out, name)
		}
	}
	return out
}

// UnionFields returns the fields that are in one of two sets. It changes none of them.
func UnionFields(a, b Fields) Fields {
	out := maps.Clone(a)
	if out == nil {
		return maps.Clone(b)
	}
	for name, sub := range b {
		old, has := out[name]
		switch {
		case !has:
			out[name] = sub
		case len(old) == 0 || len(sub) == 0:
			out[name] = nil
		default:
			out[name] = UnionFields(old, sub)
		}
	}
	return out
}

// maxPathBytes bounds a path that people see.
const maxPathBytes = 160

// FirstPaths returns the first paths of a set in their order as JSON Pointers, and counts the others.
func FirstPaths(f Fields, most int) (paths []string, more int) {
	var visit func(prefix string, f Fields)
	visit = func(prefix string, f Fields) {
		if len(paths) >= most {
			more += countLeaves(f)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(f)) {
			path := prefix
			if len(path) < maxPathBytes {
				path += jsonpointer.FormatPointer(name[:min(len(name), maxPathBytes)])
			}
			switch sub := f[name]; {
			case len(sub) > 0:
				visit(path, sub)
			case len(paths) < most:
				paths = append(paths, phrase.TruncateText(path, maxPathBytes))
			default:
				more++
			}
		}
	}
	visit("", f)
	return paths, more
}

func countLeaves(f Fields) (n int) {
	for _, sub := range f {
		if len(sub) == 0 {
			n++
		} else {
			n += countLeaves(sub)
		}
	}
	return n
}
