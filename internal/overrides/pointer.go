package overrides

import (
	"fmt"
	"slices"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/jsonpointer"
)

// patchJSONValue carries out one operation of a JSON Patch (RFC 6902) and returns the changed
// document. It changes maps in place; doc is undefined after an error.
func patchJSONValue(doc any, op v1alpha1.OverriderOperator, path []string, value any) (any, error) {
	switch at := doc.(type) {
	case map[string]any:
		return patchMap(at, op, path, value)
	case []any:
		return patchList(at, op, path, value)
	}
	return nil, fmt.Errorf("there is no %q: the value above it is neither a map nor a list", path[0])
}

func patchMap(m map[string]any, op v1alpha1.OverriderOperator, path []string, value any) (any, error) {
	old, there := m[path[0]]
	if len(path) > 1 {
		if !there {
			return nil, fmt.Errorf("there is no %q", path[0])
		}
		changed, err := patchJSONValue(old, op, path[1:], value)
		m[path[0]] = changed
		return m, err
	}
	if !there && op != v1alpha1.OverrideAdd {
		return nil, fmt.Errorf("there is no %q to %s", path[0], op)
	}
	if op == v1alpha1.OverrideRemove {
		delete(m, path[0])
		return m, nil
	}
	m[path[0]] = value
	return m, nil
}

func patchList(l []any, op v1alpha1.OverriderOperator, path []string, value any) (any, error) {
	last := len(path) == 1
	if last && op == v1alpha1.OverrideAdd && path[0] == "-" {
		return append(slices.Clip(l), value), nil
	}
	i, err := jsonpointer.ParseIndex(path[0])
	if err != nil {
		return nil, err
	}
	end := len(l)
	if last && op == v1alpha1.OverrideAdd {
		end++
	}
	if i >= end {
		return nil, fmt.Errorf("there is no element %d in a list of %d", i, len(l))
	}
	if !last {
		l[i], err = patchJSONValue(l[i], op, path[1:], value)
		return l, err
	}
	switch op {
	case v1alpha1.OverrideAdd:
		return slices.Insert(slices.Clip(l), i, value), nil
	case v1alpha1.OverrideRemove:
		return slices.Delete(l, i, i+1), nil
	}
	l[i] = value
	return l, nil
}
