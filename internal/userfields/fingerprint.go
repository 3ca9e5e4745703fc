package userfields

import (
	"bytes"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// FingerprintUserFields returns a hash of what users wrote: labels, annotations, finalizers, the
// owners of fields with their times, and the generation. For kinds without generations the owned
// values replace the generation. Status, the hub's own writes and API defaults do not count. While
// the hash is equal, an earlier result of ExtractUserFields holds, even on a hub with other
// defaults.
func FingerprintUserFields(obj *unstructured.Unstructured) string {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	removeHubKeys(labels)
	removeHubKeys(annotations)
	type entry struct{ Manager, Operation, APIVersion, Subresource, Time, Fields string }
	seen := struct {
		Labels, Annotations map[string]string `json:",omitempty"`
		Finalizers          []string
		Entries             []entry
		Generation          int64
		Values              any
	}{Labels: labels, Annotations: annotations, Generation: obj.GetGeneration()}
	for _, f := range obj.GetFinalizers() {
		if !isHubFinalizer(f) {
			seen.Finalizers = append(seen.Finalizers, f)
		}
	}
	for _, e := range obj.GetManagedFields() {
		if !isByUser(e) {
			continue
		}
		x := entry{Manager: e.Manager, Operation: string(e.Operation), APIVersion: e.APIVersion, Subresource: e.Subresource}
		if e.Time != nil {
			x.Time = e.Time.UTC().Format("20060102T150405")
		}
		if e.FieldsV1 != nil {
			x.Fields = string(bytes.TrimSpace(e.FieldsV1.GetRawBytes()))
		}
		seen.Entries = append(seen.Entries, x)
	}
	if seen.Generation == 0 {
		seen.Values = userOwnedValues(obj)
	}
	return atoll.HashJSON(seen)
}

// removeHubKeys removes the keys that the hub writes by itself.
func removeHubKeys(m map[string]string) {
	for k := range m {
		if IsHubKey(k) && k != lastAppliedAnnotation && k != atoll.AnnotationConversion {
			delete(m, k)
		}
	}
}

// IsUntouchedByUsers returns whether FingerprintUserFields is known to be the same for both states
// of an object, at a tenth of its cost. It returns false where it cannot decide. The hub's own
// writes, such as that of its finalizer, leave an object untouched.
func IsUntouchedByUsers(was, is *unstructured.Unstructured) bool {
	if was.GetGeneration() == 0 || was.GetGeneration() != is.GetGeneration() {
		return false
	}
	before, _ := was.Object["metadata"].(map[string]any)
	now, _ := is.Object["metadata"].(map[string]any)
	for _, name := range []string{"labels", "annotations"} {
		if !reflect.DeepEqual(before[name], now[name]) {
			return false
		}
	}
	return reflect.DeepEqual(filterList(before["finalizers"], isUserFinalizer), filterList(now["finalizers"], isUserFinalizer)) &&
		reflect.DeepEqual(filterList(before["managedFields"], isUserManagedEntry), filterList(now["managedFields"], isUserManagedEntry))
}

// filterList returns the elements of a list for which keep is true.
func filterList(list any, keep func(any) bool) (out []any) {
	l, _ := list.([]any)
	for _, e := range l {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

func isUserFinalizer(v any) bool {
	name, _ := v.(string)
	return !isHubFinalizer(name)
}

func isUserManagedEntry(v any) bool {
	m, _ := v.(map[string]any)
	manager, _ := m["manager"].(string)
	subresource, _ := m["subresource"].(string)
	return isByUser(metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource})
}

// userOwnedValues returns what users own in an object whose kind has no generation.
func userOwnedValues(obj *unstructured.Unstructured) any {
	tree, loose, err := parseOwners(obj)
	if err != nil {
		return obj.Object
	}
	at := fieldOwnership{ownerTree: tree, isOwnedAbove: loose}
	out := map[string]any{}
	for name, v := range obj.Object {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
			continue
		}
		if f := findUserFields(v, at.childOwnership(name)); f != nil {
			out[name], _ = f.buildKeptValue(emitOptions{drop: func(*fieldNode) bool { return false }})
		}
	}
	return out
}
