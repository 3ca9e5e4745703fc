// Package objectdiff lists where two objects differ, and makes patches from one to another.
//
// Contract: pure functions. They share values with their arguments, and change none.
package objectdiff

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/jsonpointer"
)

// Difference of two documents.
type Difference struct {
	// Path of the field, a JSON Pointer. An element of a list is named by its index, or as name=NAME.
	Path string
	// Before and After; nil where the field is not there.
	Before any
	After  any
}

// Compare lists where two documents differ, sorted by the paths of maps.
func Compare(before, after map[string]any) (out []Difference) {
	appendDifferences(&out, "", before, after)
	return out
}

// serverFields of metadata are set by the API server.
var serverFields = []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"}

// WithoutServerFields returns a copy of a member's object without what the API server and Atoll set in
// its metadata, and without its status.
func WithoutServerFields(obj *unstructured.Unstructured) map[string]any {
	c := obj.DeepCopy()
	delete(c.Object, "status")
	for _, field := range serverFields {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	labels := c.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, "atoll.dev/") })
	if len(labels) == 0 {
		labels = nil
	}
	c.SetLabels(labels)
	return c.Object
}

// appendDifferences lists where two values differ, as deep down as both have the same shape. Lists of
// maps that all have a name are compared by it.
func appendDifferences(out *[]Difference, path string, before, after any) {
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
		if b, ok := before.([]any); ok && appendListDifferences(out, path, b, a) {
			return
		}
	}
	*out = append(*out, Difference{Path: path, Before: before, After: after})
}

func appendMapDifferences(out *[]Difference, path string, before, after map[string]any) {
	keys := maps.Clone(before)
	if keys == nil {
		keys = map[string]any{}
	}
	maps.Copy(keys, after)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		appendDifferences(out, path+jsonpointer.FormatPointer(k), before[k], after[k])
	}
}

// appendListDifferences compares lists of named elements by names, and others of one length by index. It
// returns false for lists that differ as a whole.
func appendListDifferences(out *[]Difference, path string, before, after []any) bool {
	b, namedBefore := IndexByName(before)
	a, namedAfter := IndexByName(after)
	switch {
	case namedBefore && namedAfter && len(a) > 0 && len(b) > 0:
		appendMapDifferences(out, path, b, a)
	case len(before) == len(after):
		for i := range after {
			appendDifferences(out, path+"/"+strconv.Itoa(i), before[i], after[i])
		}
	default:
		return false
	}
	return true
}

// ElementName returns the name of an element of a list, as name=NAME; empty: it has none.
func ElementName(e any) string {
	m, _ := e.(map[string]any)
	name, _ := m["name"].(string)
	if name == "" {
		return ""
	}
	return "name=" + name
}

// IndexByName returns the elements of a list by their names; false where an element has none, or two have
// the same.
func IndexByName(list []any) (map[string]any, bool) {
	out := make(map[string]any, len(list))
	for _, e := range list {
		name := ElementName(e)
		if _, twice := out[name]; twice || name == "" {
			return nil, false
		}
		out[name] = e
	}
	return out, true
}
