// Package objectdiff lists where two objects differ.
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
