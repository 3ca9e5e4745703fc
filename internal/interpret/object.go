package interpret

import (
	"strconv"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxMessage is the longest message that Health gives, in bytes.
const MaxMessage = 256

// Lookup finds the value at a path as PodTemplates gives it: map keys and decimal
// list indexes. The value is shared with obj.
func Lookup(obj map[string]any, path []string) (any, bool) {
	var at any = obj
	for _, p := range path {
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[p]
			if !ok {
				return nil, false
			}
			at = next
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}

func groupKind(obj *unstructured.Unstructured) schema.GroupKind {
	return obj.GroupVersionKind().GroupKind()
}

func child(m map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		next, ok := m[k].(map[string]any)
		if !ok {
			return nil
		}
		m = next
	}
	return m
}

func list(m map[string]any, key string) []any {
	l, _ := m[key].([]any)
	return l
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func flag(m map[string]any, key string) bool {
	b, _ := m[key].(bool)
	return b
}

// number reads an integer whether the JSON was decoded to int64 or float64.
func number(m map[string]any, key string) (int64, bool) {
	switch v := m[key].(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int:
		return int64(v), true
	case float64:
		if v == float64(int64(v)) {
			return int64(v), true
		}
	}
	return 0, false
}

func count(m map[string]any, key string) int64 {
	n, _ := number(m, key)
	return n
}

func countOr(m map[string]any, key string, absent int64) int64 {
	if n, ok := number(m, key); ok {
		return n
	}
	return absent
}

func status(obj *unstructured.Unstructured) map[string]any { return child(obj.Object, "status") }

func spec(obj *unstructured.Unstructured) map[string]any { return child(obj.Object, "spec") }

// late tells that the object's controller has not seen its latest generation.
func late(obj *unstructured.Unstructured) bool {
	return count(status(obj), "observedGeneration") < obj.GetGeneration()
}

type condition struct {
	kind, status, reason, message string
	// observed generation of the condition itself, if it has one.
	observed    int64
	hasObserved bool
}

func (c condition) is(status string) bool { return c.status == status }

func conditionsOf(st map[string]any) []condition {
	raw := list(st, "conditions")
	out := make([]condition, 0, len(raw))
	for _, r := range raw {
		m, _ := r.(map[string]any)
		c := condition{kind: text(m, "type"), status: text(m, "status"), reason: text(m, "reason"), message: text(m, "message")}
		c.observed, c.hasObserved = number(m, "observedGeneration")
		if c.kind != "" && c.status != "" {
			out = append(out, c)
		}
	}
	return out
}

// outdate makes Unknown the conditions that tell of an older generation.
func outdate(cs []condition, generation int64) {
	for i := range cs {
		if c := &cs[i]; c.hasObserved && c.observed < generation {
			c.status, c.reason, c.message = "Unknown", notObserved, notObservedYet
		}
	}
}

// find a condition; the zero condition when there is none.
func find(cs []condition, kind string) condition {
	for _, c := range cs {
		if c.kind == kind {
			return c
		}
	}
	return condition{}
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
