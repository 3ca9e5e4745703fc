package kinds

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxMessage is the longest message that AssessHealth returns, in bytes.
const MaxMessage = 256

// LookupPath returns the value at a path of map keys and decimal list indexes, as PodSpecPaths
// returns them. The value is shared with obj.
func LookupPath(obj map[string]any, path []string) (any, bool) {
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

func groupKindOf(obj *unstructured.Unstructured) schema.GroupKind {
	return obj.GroupVersionKind().GroupKind()
}

func nestedMap(m map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		next, ok := m[k].(map[string]any)
		if !ok {
			return nil
		}
		m = next
	}
	return m
}

func listField(m map[string]any, key string) []any {
	l, _ := m[key].([]any)
	return l
}

func stringField(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func boolField(m map[string]any, key string) bool {
	b, _ := m[key].(bool)
	return b
}

// integerField reads an integer whether the JSON was decoded to int64 or float64.
func integerField(m map[string]any, key string) (int64, bool) {
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

func countField(m map[string]any, key string) int64 {
	n, _ := integerField(m, key)
	return n
}

func countFieldOr(m map[string]any, key string, absent int64) int64 {
	if n, ok := integerField(m, key); ok {
		return n
	}
	return absent
}

func statusOf(obj *unstructured.Unstructured) map[string]any { return nestedMap(obj.Object, "status") }

func specOf(obj *unstructured.Unstructured) map[string]any { return nestedMap(obj.Object, "spec") }

// observedGenerationLags reports whether status.observedGeneration is older than the object.
func observedGenerationLags(obj *unstructured.Unstructured) bool {
	return countField(statusOf(obj), "observedGeneration") < obj.GetGeneration()
}

type condition struct {
	conditionType, status, reason, message string
	// observedGeneration of the condition itself, if it has one.
	observedGeneration int64
	hasObserved        bool
}

func (c condition) hasStatus(status string) bool { return c.status == status }

func conditionsOf(st map[string]any) []condition {
	raw := listField(st, "conditions")
	out := make([]condition, 0, len(raw))
	for _, r := range raw {
		m, _ := r.(map[string]any)
		c := condition{conditionType: stringField(m, "type"), status: stringField(m, "status"), reason: stringField(m, "reason"), message: stringField(m, "message")}
		c.observedGeneration, c.hasObserved = integerField(m, "observedGeneration")
		if c.conditionType != "" && c.status != "" {
			out = append(out, c)
		}
	}
	return out
}

const (
	// annotationAutoscalerConditions has the conditions of an autoscaler that is read in autoscaling/v1.
	annotationAutoscalerConditions = "autoscaling.alpha.kubernetes.io/conditions"
	// maxAnnotatedConditions bounds the bytes of that annotation.
	maxAnnotatedConditions = 32 << 10
)

// autoscalerConditions returns the conditions of an autoscaler, which autoscaling/v1 has in an annotation.
func autoscalerConditions(obj *unstructured.Unstructured) []condition {
	cs := conditionsOf(statusOf(obj))
	text := obj.GetAnnotations()[annotationAutoscalerConditions]
	if len(cs) > 0 || text == "" || len(text) > maxAnnotatedConditions || obj.GroupVersionKind().Version != "v1" {
		return cs
	}
	var list []any
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	return conditionsOf(map[string]any{"conditions": list})
}

// markOutdatedConditions sets conditions of an older generation to Unknown, in place.
func markOutdatedConditions(cs []condition, generation int64) {
	for i := range cs {
		if c := &cs[i]; c.hasObserved && c.observedGeneration < generation {
			c.status, c.reason, c.message = "Unknown", notObserved, notObservedYet
		}
	}
}

// findCondition returns the zero condition when there is none of that type.
func findCondition(cs []condition, kind string) condition {
	for _, c := range cs {
		if c.conditionType == kind {
			return c
		}
	}
	return condition{}
}

// DefinedKind returns the kind that a CustomResourceDefinition defines.
func DefinedKind(crd *unstructured.Unstructured) schema.GroupKind {
	spec := specOf(crd)
	return schema.GroupKind{Group: stringField(spec, "group"), Kind: stringField(nestedMap(spec, "names"), "kind")}
}
