// Package jsonpointer reads and follows JSON Pointers (RFC 6901) in decoded JSON.
//
// Contract: functions change nothing but what Remove and RemoveMapFields are called for. All may be called concurrently.
package jsonpointer

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
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

// FormatPointer joins the parts that Parse splits.
func FormatPointer(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// ParseIndex returns the index of a list that a part of a JSON Pointer names.
func ParseIndex(s string) (int, error) {
	i, err := strconv.Atoi(s)
	if err != nil || i < 0 || strconv.Itoa(i) != s {
		return 0, fmt.Errorf("%q is not an index of a list", s)
	}
	return i, nil
}

// Get returns the value at a path of a document; false where the document has none.
func Get(doc any, path []string) (value any, has bool) {
	for _, part := range path {
		switch at := doc.(type) {
		case map[string]any:
			doc, has = at[part]
		case []any:
			i, err := ParseIndex(part)
			if has = err == nil && i < len(at); has {
				doc = at[i]
			}
		default:
			has = false
		}
		if !has {
			return nil, false
		}
	}
	return doc, true
}

// LookupParent reports whether a document has the field at a path, which is not empty, and returns the map or
// list that holds the field.
func LookupParent(doc any, path []string) (above any, has bool) {
	last := len(path) - 1
	if above, has = Get(doc, path[:last]); has {
		_, has = Get(above, path[last:])
	}
	if !has {
		return nil, false
	}
	return above, true
}

// RemoveMapField removes a field from a document, if the document has it. An element of a list stays.
func RemoveMapField(doc any, path []string) {
	above, has := LookupParent(doc, path)
	if m, isMap := above.(map[string]any); has && isMap {
		delete(m, path[len(path)-1])
	}
}

// RemoveMapFields removes the fields at JSON Pointers from a document, as Remove does.
func RemoveMapFields(doc any, pointers []string) error {
	for _, pointer := range pointers {
		path, err := ParsePointer(pointer)
		if err != nil {
			return err
		}
		RemoveMapField(doc, path)
	}
	return nil
}
