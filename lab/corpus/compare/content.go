package compare

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxFieldDifferences bounds the differences of one object.
const maxFieldDifferences = 50

// DiffContent returns the fields in which two contents differ, in the order of their paths, at most 50.
func DiffContent(cluster, object string, control, live map[string]any) []Difference {
	c := contentDiff{cluster: cluster, object: object}
	c.diffValues("", control, live)
	return c.found
}

type contentDiff struct {
	cluster, object string
	found           []Difference
}

func (c *contentDiff) diffValues(path string, control, live any) {
	if len(c.found) == maxFieldDifferences || reflect.DeepEqual(normalizeNumber(control), normalizeNumber(live)) {
		return
	}
	switch x := control.(type) {
	case map[string]any:
		if y, ok := live.(map[string]any); ok {
			c.diffMaps(path, x, y)
			return
		}
	case []any:
		if y, ok := live.([]any); ok && len(x) == len(y) {
			for i := range x {
				c.diffValues(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])
			}
			return
		}
	}
	c.found = append(c.found, Difference{
		Check: Objects, Cluster: c.cluster, Object: c.object, Path: path, Control: formatField(control), Atoll: formatField(live),
	})
}

func (c *contentDiff) diffMaps(path string, x, y map[string]any) {
	keys := map[string]bool{}
	for k := range x {
		keys[k] = true
	}
	for k := range y {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		c.diffValues(joinPath(path, k), x[k], y[k])
	}
}

// joinPath writes keys with dots in brackets, as in metadata.labels[app.kubernetes.io/name].
func joinPath(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// formatField returns the text of a field's value; a missing field has none.
func formatField(v any) string {
	if v == nil {
		return ""
	}
	return formatValue(v)
}

// normalizeNumber makes integers of one type, since decoders differ.
func normalizeNumber(v any) any {
	switch n := v.(type) {
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case float64:
		if n == float64(int64(n)) {
			return int64(n)
		}
	}
	return v
}
