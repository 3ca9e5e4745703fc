package apply

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/jsonpointer"
)

// copyMemberFields copies fields of the item from the live object into the body of an apply. found is
// false when the live object has none of them. It fails for a field that the API cannot assign to
// another manager.
func copyMemberFields(to map[string]any, item *atoll.RenderedItem, live *unstructured.Unstructured, paths []string) (found bool, failure *Failure) {
	var sent map[string]any
	if err := json.Unmarshal(item.Object, &sent); err != nil {
		return false, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(err.Error())}
	}
	fields := ownFields(live)
	for _, path := range paths {
		parts, err := jsonpointer.ParsePointer(path)
		copied := false
		if err == nil {
			copied, err = copyField(to, sent, live.Object, fields, parts)
		}
		if err != nil {
			return false, &Failure{Reason: atoll.ReasonInvalid, Message: truncateText(fmt.Sprintf("%s cannot belong to the member: %v", path, err))}
		}
		found = found || copied
	}
	return found, nil
}

// ownFields returns the fields of Atoll's manager, in the form of fieldsV1.
func ownFields(obj *unstructured.Unstructured) map[string]any {
	for _, f := range obj.GetManagedFields() {
		if observe.IsAtollApplyEntry(&f) && f.FieldsV1 != nil {
			var fields map[string]any
			if json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) == nil {
				return fields
			}
		}
	}
	return nil
}

// copyField copies the field of live at a path of sent, and reports whether live has it. fields are
// Atoll's fields at this place.
func copyField(to map[string]any, sent, live any, fields map[string]any, path []string) (bool, error) {
	source, ok := live.(map[string]any)
	if !ok {
		return false, nil
	}
	value, ok := source[path[0]]
	if !ok {
		return false, nil
	}
	if len(path) == 1 {
		to[path[0]] = value
		return true, nil
	}
	wanted, _ := sent.(map[string]any)
	inside, _ := fields["f:"+path[0]].(map[string]any)
	switch inner := value.(type) {
	case map[string]any:
		next, ok := to[path[0]].(map[string]any)
		if !ok {
			next = map[string]any{}
		}
		copied, err := copyField(next, wanted[path[0]], inner, inside, path[1:])
		if copied {
			to[path[0]] = next
		}
		return copied, err
	case []any:
		list, _ := wanted[path[0]].([]any)
		i, err := jsonpointer.ParseIndex(path[1])
		if err != nil || i >= len(list) || len(path) < 3 {
			return false, nil
		}
		return copyElement(to, path[0], list[i], inner, inside, path[2:])
	}
	return false, nil
}

// copyElement copies a field of a list's element. It finds the element by the key by which the API
// merges the list, since the member may have elements of its own before it.
func copyElement(to map[string]any, field string, wanted any, live []any, fields map[string]any, path []string) (bool, error) {
	key, inside, ok := mergeKey(wanted, fields)
	if !ok {
		return false, fmt.Errorf("the member's API does not merge the list %q by a key: name the whole list", field)
	}
	for _, element := range live {
		if !hasKey(element, key) {
			continue
		}
		list, _ := to[field].([]any)
		next := findElement(list, key)
		if next == nil {
			next = key
			list = append(list, next)
		}
		copied, err := copyField(next, wanted, element, inside, path)
		if copied {
			to[field] = list
		}
		return copied, err
	}
	return false, nil
}

// mergeKey returns the key of an element that Atoll applied, with Atoll's fields in it. The element
// may leave out parts of the key that the API defaults.
func mergeKey(wanted any, fields map[string]any) (key, inside map[string]any, ok bool) {
	element, isMap := wanted.(map[string]any)
	if !isMap {
		return nil, nil, false
	}
	for name, value := range fields {
		text, isKey := strings.CutPrefix(name, "k:")
		var one map[string]any
		if !isKey || json.Unmarshal([]byte(text), &one) != nil || !couldHaveKey(element, one) {
			continue
		}
		if key != nil { // ambiguous
			return nil, nil, false
		}
		key = one
		inside, _ = value.(map[string]any)
	}
	return key, inside, key != nil
}

func couldHaveKey(element, key map[string]any) bool {
	shared := 0
	for field, value := range key {
		has, stated := element[field]
		if stated && !reflect.DeepEqual(has, value) {
			return false
		}
		if stated {
			shared++
		}
	}
	return shared > 0
}

func hasKey(element any, key map[string]any) bool {
	m, ok := element.(map[string]any)
	for field, value := range key {
		ok = ok && reflect.DeepEqual(m[field], value)
	}
	return ok
}

// findElement returns the element of a list with the key; nil without one.
func findElement(list []any, key map[string]any) map[string]any {
	for _, element := range list {
		if hasKey(element, key) {
			return element.(map[string]any)
		}
	}
	return nil
}
