package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// lastAppliedAnnotation is where `kubectl apply` without --server-side keeps what it
// was given.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// owners is the tree of owned fields: managedFields of all users in one.
type owners struct {
	applied bool // an Apply entry owns this very field
	updated bool // an Update entry does
	fields  map[string]*owners
	keyed   []keyedOwners
	values  []valueOwners
}

type keyedOwners struct {
	key map[string]any
	*owners
}

type valueOwners struct {
	value any
	*owners
}

// leaf tells that nothing below the field is owned on its own.
func (o *owners) leaf() bool {
	return len(o.fields) == 0 && len(o.keyed) == 0 && len(o.values) == 0
}

func (o *owners) field(name string) *owners {
	if o == nil {
		return nil
	}
	return o.fields[name]
}

func (o *owners) owned() bool { return o != nil && (o.applied || o.updated) }

// ownersOf reads the object's managedFields. loose tells that they do not cover the
// whole object, because there are none or because an entry speaks of another API
// version: then every field counts as one that an Update entry owns.
func ownersOf(obj *unstructured.Unstructured) (tree *owners, loose bool, err error) {
	meta, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	tree, loose = &owners{}, true
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if !usersEntry(entry) || fields == nil {
			continue
		}
		if entry["apiVersion"] != obj.Object["apiVersion"] {
			return tree, true, nil
		}
		if err := tree.insert(fields, entry["operation"] == string(metav1.ManagedFieldsOperationApply)); err != nil {
			return nil, false, fmt.Errorf("managedFields of %s: %w", entry["manager"], err)
		}
		loose = false
	}
	return tree, loose, nil
}

// byUser leaves out entries about status and those of the hub itself.
func byUser(e metav1.ManagedFieldsEntry) bool {
	if e.Subresource == "status" {
		return false
	}
	switch e.Manager {
	case atoll.FieldManager, atoll.HandoverManager, "atoll-hub":
		return false
	}
	return !strings.HasPrefix(e.Manager, "system:atoll:") && !strings.HasPrefix(e.Manager, "system:controller:")
}

// insert what an entry of managedFields owns, as its FieldsV1 have it: "f:", "k:" and "v:"
// stand before the name of a field, the key and the value of an element; what is below is
// owned on its own, and "." among it is the thing itself.
func (o *owners) insert(fields map[string]any, applied bool) error {
	for _, element := range slices.Sorted(maps.Keys(fields)) {
		if element == "." {
			continue
		}
		child, err := o.descend(element)
		if err != nil {
			return err
		}
		below, ok := fields[element].(map[string]any)
		if !ok {
			return fmt.Errorf("below %q there is no object", element)
		}
		if _, itself := below["."]; itself || len(below) == 0 {
			child.applied = child.applied || applied
			child.updated = child.updated || !applied
		}
		if err := child.insert(below, applied); err != nil {
			return err
		}
	}
	return nil
}

// descend finds or makes the node of a path element. Indexes are not followed: a
// list whose elements are owned by index is owned as a whole.
func (o *owners) descend(element string) (*owners, error) {
	kind, text, _ := strings.Cut(element, ":")
	switch kind {
	case "f":
		return o.descendField(text), nil
	case "k":
		var key map[string]any
		if err := utiljson.Unmarshal([]byte(text), &key); err != nil {
			return nil, fmt.Errorf("key %q: %w", element, err)
		}
		for _, k := range o.keyed {
			if maps.EqualFunc(k.key, key, equal) {
				return k.owners, nil
			}
		}
		child := &owners{}
		o.keyed = append(o.keyed, keyedOwners{key, child})
		return child, nil
	case "v":
		var value any
		if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("value %q: %w", element, err)
		}
		for _, v := range o.values {
			if equal(v.value, value) {
				return v.owners, nil
			}
		}
		child := &owners{}
		o.values = append(o.values, valueOwners{value, child})
		return child, nil
	case "i":
		return o, nil
	}
	return nil, fmt.Errorf("path element %q is of no known kind", element)
}

func (o *owners) descendField(name string) *owners {
	if o.fields == nil {
		o.fields = map[string]*owners{}
	}
	if o.fields[name] == nil {
		o.fields[name] = &owners{}
	}
	return o.fields[name]
}

// element gives the node of a list's element, if any.
func (o *owners) element(e any) *keyedOwners {
	m, ok := e.(map[string]any)
	if o == nil || !ok {
		return nil
	}
	i := slices.IndexFunc(o.keyed, func(k keyedOwners) bool {
		for name, want := range k.key {
			if !equal(m[name], want) {
				return false
			}
		}
		return true
	})
	if i < 0 {
		return nil
	}
	return &o.keyed[i]
}

func (o *owners) value(e any) *owners {
	if o == nil {
		return nil
	}
	for _, v := range o.values {
		if equal(v.value, e) {
			return v.owners
		}
	}
	return nil
}

// scaled counts the number of replicas as written by somebody where nobody is noted as its owner.
// The API server's scale subresource notes nobody who scales to none, takes the field from who
// owned it then, and notes nobody either who scales what an apply did not state.
func scaled(obj *unstructured.Unstructured, tree *owners) {
	_, path, ok := interpret.Replicas(obj)
	if !ok {
		if !interpret.Custom(obj.GroupVersionKind().GroupKind()) {
			return
		}
		path = []string{"spec", "replicas"} // where most definitions have what their scale subresource writes
	}
	for _, name := range path {
		if tree.owned() && tree.leaf() {
			return // as a whole
		}
		tree = tree.descendField(name)
	}
	tree.updated = tree.updated || !tree.applied
}

// lastApplied reads the annotation; nil when there is none or it cannot be read.
func lastApplied(obj *unstructured.Unstructured) map[string]any {
	raw, ok := obj.GetAnnotations()[lastAppliedAnnotation]
	if !ok {
		return nil
	}
	var v map[string]any
	if json.Unmarshal([]byte(raw), &v) != nil {
		return nil
	}
	return v
}

// equal compares JSON values; numbers by value, however they are held.
func equal(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return a == b
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case int:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}
