package plan

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
)

// Field that would change.
type Field struct {
	// Path of the field, a JSON Pointer.
	Path string `json:"path"`
	// Before and After; nil where the field is not there.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
	// Hidden: the values are a Secret's and not shown.
	Hidden bool `json:"hidden,omitempty"`
}

// mostFields of an item are listed.
const mostFields = 200

func fieldsOf(was, now *atoll.Rendered) (out []Field) {
	var before, after map[string]any
	if utiljson.Unmarshal(was.Object, &before) != nil || utiljson.Unmarshal(now.Object, &after) != nil {
		return nil
	}
	differ(&out, "", before, after)
	if len(out) > mostFields {
		out = out[:mostFields]
	}
	if now.Key.IsSecret() {
		for i := range out {
			out[i].Before, out[i].After, out[i].Hidden = nil, nil, true
		}
	}
	return out
}

// differ lists where two values differ, as deep down as both have the same shape. Lists of
// maps that all have a name are compared by it.
func differ(out *[]Field, path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch a := after.(type) {
	case map[string]any:
		if b, ok := before.(map[string]any); ok {
			differMaps(out, path, b, a)
			return
		}
	case []any:
		if b, ok := before.([]any); ok && (len(a) == len(b) && !named(a, b)) {
			for i := range a {
				differ(out, path+"/"+strconv.Itoa(i), b[i], a[i])
			}
			return
		} else if ok && named(a, b) {
			differMaps(out, path, byName(b), byName(a))
			return
		}
	}
	*out = append(*out, Field{Path: path, Before: before, After: after})
}

func differMaps(out *[]Field, path string, before, after map[string]any) {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		differ(out, path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(k), before[k], after[k])
	}
}

// named tells whether all elements of both lists are maps with names of their own.
func named(lists ...[]any) bool {
	for _, list := range lists {
		if len(list) == 0 || len(byName(list)) != len(list) {
			return false
		}
	}
	return true
}

// byName gives the elements that have one, by it, as name=NAME.
func byName(list []any) map[string]any {
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
