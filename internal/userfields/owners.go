package userfields

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
	"atoll.dev/atoll/internal/kinds"
)

// lastAppliedAnnotation holds the configuration that `kubectl apply` without --server-side was
// given.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// ownerTree is the tree of owned fields: managedFields of all users in one.
type ownerTree struct {
	applied bool // an Apply entry owns this very field
	updated bool // an Update entry does
	fields  map[string]*ownerTree
	keyed   []keyedOwners
	values  []valueOwners
}

type keyedOwners struct {
	key map[string]any
	*ownerTree
}

type valueOwners struct {
	value any
	*ownerTree
}

// isLeaf returns whether no field below this one has an owner of its own.
func (o *ownerTree) isLeaf() bool {
	return len(o.fields) == 0 && len(o.keyed) == 0 && len(o.values) == 0
}

func (o *ownerTree) childField(name string) *ownerTree {
	if o == nil {
		return nil
	}
	return o.fields[name]
}

func (o *ownerTree) isOwned() bool { return o != nil && (o.applied || o.updated) }

// parseOwners reads the object's managedFields. loose: they do not cover the whole object, because
// there are none or because an entry is of another API version. Then every field counts as owned by
// an Update entry.
func parseOwners(obj *unstructured.Unstructured) (tree *ownerTree, loose bool, err error) {
	tree, loose = &ownerTree{}, true
	for _, entry := range userManagedEntries(obj) {
		if entry["apiVersion"] != obj.Object["apiVersion"] {
			return tree, true, nil
		}
		if err := tree.insertManagedFieldsEntry(entry); err != nil {
			return nil, false, err
		}
		loose = false
	}
	return tree, loose, nil
}

// userManagedEntries returns the entries of managedFields that are users' and name fields.
func userManagedEntries(obj *unstructured.Unstructured) (out []map[string]any) {
	meta, _ := obj.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if fields, _ := entry["fieldsV1"].(map[string]any); fields != nil && isUserManagedEntry(entry) {
			out = append(out, entry)
		}
	}
	return out
}

// insertManagedFieldsEntry adds the fields that an entry of userManagedEntries owns.
func (o *ownerTree) insertManagedFieldsEntry(entry map[string]any) error {
	fields, _ := entry["fieldsV1"].(map[string]any)
	if err := o.insertFieldsV1(fields, entry["operation"] == string(metav1.ManagedFieldsOperationApply)); err != nil {
		return fmt.Errorf("managedFields of %s: %w", entry["manager"], err)
	}
	return nil
}

// isByUser returns false for entries about status and for entries of the hub itself.
func isByUser(e metav1.ManagedFieldsEntry) bool {
	if e.Subresource == "status" {
		return false
	}
	switch e.Manager {
	case atoll.FieldManager, atoll.HandoverManager, atoll.HubFieldManager:
		return false
	}
	return !strings.HasPrefix(e.Manager, "system:atoll:") && !strings.HasPrefix(e.Manager, "system:controller:")
}

// insertFieldsV1 adds the fields that an entry of managedFields owns. In FieldsV1, "f:", "k:" and "v:"
// precede the name of a field, the key and the value of an element. Fields below are owned on their
// own, and "." among them is the field itself.
func (o *ownerTree) insertFieldsV1(fields map[string]any, applied bool) error {
	for _, element := range slices.Sorted(maps.Keys(fields)) {
		if element == "." {
			continue
		}
		child, err := o.ensureChild(element)
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
		if err := child.insertFieldsV1(below, applied); err != nil {
			return err
		}
	}
	return nil
}

// ensureChild returns the node of a path element, and adds it if needed. Indexes are not followed:
// a list whose elements are owned by index is owned as a whole.
func (o *ownerTree) ensureChild(element string) (*ownerTree, error) {
	kind, text, _ := strings.Cut(element, ":")
	switch kind {
	case "f":
		return o.ensureField(text), nil
	case "k":
		var key map[string]any
		if err := utiljson.Unmarshal([]byte(text), &key); err != nil {
			return nil, fmt.Errorf("key %q: %w", element, err)
		}
		for _, k := range o.keyed {
			if maps.EqualFunc(k.key, key, EqualJSON) {
				return k.ownerTree, nil
			}
		}
		child := &ownerTree{}
		o.keyed = append(o.keyed, keyedOwners{key, child})
		return child, nil
	case "v":
		var value any
		if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
			return nil, fmt.Errorf("value %q: %w", element, err)
		}
		for _, v := range o.values {
			if EqualJSON(v.value, value) {
				return v.ownerTree, nil
			}
		}
		child := &ownerTree{}
		o.values = append(o.values, valueOwners{value, child})
		return child, nil
	case "i":
		return o, nil
	}
	return nil, fmt.Errorf("path element %q is of no known kind", element)
}

func (o *ownerTree) ensureField(name string) *ownerTree {
	if o.fields == nil {
		o.fields = map[string]*ownerTree{}
	}
	if o.fields[name] == nil {
		o.fields[name] = &ownerTree{}
	}
	return o.fields[name]
}

// findElement returns the node of a list's element, or nil.
func (o *ownerTree) findElement(e any) *keyedOwners {
	m, ok := e.(map[string]any)
	if o == nil || !ok {
		return nil
	}
	i := slices.IndexFunc(o.keyed, func(k keyedOwners) bool {
		for name, want := range k.key {
			if !EqualJSON(m[name], want) {
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

func (o *ownerTree) findValue(e any) *ownerTree {
	if o == nil {
		return nil
	}
	for _, v := range o.values {
		if EqualJSON(v.value, e) {
			return v.ownerTree
		}
	}
	return nil
}

// addOwnerlessReplicasToTree counts the number of replicas as written by a user where managedFields names no
// owner. The API server's scale subresource records no owner for a scale to zero, and takes the
// field from its former owner. It records no owner either for a scale of what an apply did not
// state.
func addOwnerlessReplicasToTree(obj *unstructured.Unstructured, tree *ownerTree) {
	_, path, ok := kinds.ReplicasOf(obj)
	if !ok {
		if !kinds.IsCustomKind(obj.GroupVersionKind().GroupKind()) {
			return
		}
		path = []string{"spec", "replicas"} // where most definitions have what their scale subresource writes
	}
	for _, name := range path {
		if tree.isOwned() && tree.isLeaf() {
			return // as a whole
		}
		tree = tree.ensureField(name)
	}
	tree.updated = tree.updated || !tree.applied
}

// parseLastApplied reads the annotation. It returns nil when there is none, or when it cannot be
// read.
func parseLastApplied(obj *unstructured.Unstructured) map[string]any {
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

// EqualJSON compares JSON values. Numbers are compared by value, whatever their Go type.
func EqualJSON(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, EqualJSON)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, EqualJSON)
	}
	if x, ok := toFloat(a); ok {
		y, ok := toFloat(b)
		return ok && x == y
	}
	return a == b
}

func toFloat(v any) (float64, bool) {
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
