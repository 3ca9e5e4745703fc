package overrides

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"atoll.dev/atoll/api/v1alpha1"
)

// ParsePointer splits a JSON Pointer (RFC 6901).
func ParsePointer(path string) ([]string, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("%q is not a JSON Pointer: it has to begin with /", path)
	}
	if !utf8.ValidString(path) {
		return nil, fmt.Errorf("%q is not a JSON Pointer: it is no UTF-8", path)
	}
	parts := strings.Split(path[1:], "/")
	for i, p := range parts {
		for j := range len(p) {
			if p[j] == '~' && (j+1 == len(p) || p[j+1] != '0' && p[j+1] != '1') {
				return nil, fmt.Errorf("%q is not a JSON Pointer: ~ has to be followed by 0 or 1", path)
			}
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

// FormatPointer joins the parts that ParsePointer splits.
func FormatPointer(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

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
	i, err := ParseListIndex(path[0])
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

// ParseListIndex returns the index of a list that a part of a JSON Pointer names.
func ParseListIndex(s string) (int, error) {
	i, err := strconv.Atoi(s)
	if err != nil || i < 0 || strconv.Itoa(i) != s {
		return 0, fmt.Errorf("%q is not an index of a list", s)
	}
	return i, nil
}
