package generate

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/api/v1alpha1"
)

// IsAsStated reports whether a Source has each field that an object states. Other fields of the Source are not compared.
func IsAsStated(object map[string]any, live *v1alpha1.Source) bool {
	var typed v1alpha1.Source
	if err := json.Unmarshal(encodeObject(object), &typed); err != nil {
		return false
	}
	stated, ok := fieldsOf(&typed)
	has, read := fieldsOf(live)
	return ok && read && includesStated(comparedFields(object), stated, has)
}

// fieldsOf returns the compared fields of a Source in the types of JSON.
func fieldsOf(s *v1alpha1.Source) (map[string]any, bool) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	return comparedFields(fields), err == nil
}

// comparedFields returns what a template can state of an object, as far as the object has it.
func comparedFields(object map[string]any) map[string]any {
	out := map[string]any{}
	meta, _ := object["metadata"].(map[string]any)
	for name, value := range map[string]any{"spec": object["spec"], "labels": meta["labels"], "annotations": meta["annotations"]} {
		if value != nil {
			out[name] = value
		}
	}
	return out
}

// includesStated reports whether a live value has what is stated. typed is the stated value in the form in which the API's types write
// it, as a duration of 1m0s for one of 60s.
func includesStated(stated, typed, live any) bool {
	switch v := stated.(type) {
	case map[string]any:
		typedMap, _ := typed.(map[string]any)
		liveMap, isMap := live.(map[string]any)
		if !isMap && live != nil {
			return false
		}
		for key, one := range v {
			if form, isRead := typedMap[key]; one == nil && (!isRead || form != nil) {
				continue // the API's types read null as no statement, and a default may stand there
			}
			if !includesStated(one, typedMap[key], liveMap[key]) {
				return false
			}
		}
		return true
	case []any:
		return includesList(v, typed, live)
	}
	return isSame(stated, live) || typed != nil && isSame(typed, live)
}

// includesList reports whether a live list has the items that are stated, and no others.
func includesList(stated []any, typed, live any) bool {
	typedList, _ := typed.([]any)
	liveList, _ := live.([]any)
	if len(stated) != len(liveList) {
		return false
	}
	for i, one := range stated {
		var form any
		if i < len(typedList) {
			form = typedList[i]
		}
		if !includesStated(one, form, liveList[i]) {
			return false
		}
	}
	return true
}

// isSame reports whether two scalars are the same. An empty one is the same as none, which the API's types leave out.
func isSame(a, b any) bool {
	if b == nil {
		return a == nil || reflect.ValueOf(a).IsZero()
	}
	x, xIsNumber := asNumber(a)
	y, yIsNumber := asNumber(b)
	if xIsNumber && yIsNumber {
		return x == y
	}
	return reflect.DeepEqual(a, b)
}

func asNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
