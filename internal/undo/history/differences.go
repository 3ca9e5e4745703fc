package history

import (
	"maps"
	"slices"

	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/phrase"
)

// ListDifferences lists the differences of two documents in the order of their paths, at most so many, and
// counts the others. A missing value is nil.
func ListDifferences(before, after map[string]any, most int) (out []objectdiff.Difference, more int) {
	var visit func(path string, f Fields, b, a any)
	visit = func(path string, f Fields, b, a any) {
		if len(out) >= most {
			more += countLeaves(f)
			return
		}
		bs, as := elementsOf(b), elementsOf(a)
		for _, name := range slices.Sorted(maps.Keys(f)) {
			below := path + jsonpointer.FormatPointer(phrase.TruncateText(name, maxPathBytes))
			switch sub := f[name]; {
			case len(sub) > 0:
				visit(below, sub, bs[name], as[name])
			case len(out) < most:
				out = append(out, objectdiff.Difference{Path: below, Before: bs[name], After: as[name]})
			default:
				more++
			}
		}
	}
	visit("", CompareFields(before, after), before, after)
	return out, more
}

// elementsOf returns the fields of a map, or the named elements of a list.
func elementsOf(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case []any:
		named, _ := objectdiff.IndexByName(v)
		return named
	}
	return nil
}
