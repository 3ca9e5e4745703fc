package render

import (
	"bytes"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// Fingerprint is a hash of what users wrote: labels, annotations, who owns which
// fields since when, and the generation, or the owned values for kinds that do not
// count generations. Status, the hub's own writes and API defaults are no part of
// it. While it is equal, no user wrote, and what Prune gave before still holds even
// if this hub's defaults are others.
func Fingerprint(obj *unstructured.Unstructured) string {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	for _, m := range []map[string]string{labels, annotations} {
		for k := range m {
			if own(k) && k != lastAppliedAnnotation && k != atoll.AnnotationConversion {
				delete(m, k)
			}
		}
	}
	type entry struct{ Manager, Operation, APIVersion, Subresource, Time, Fields string }
	seen := struct {
		Labels, Annotations map[string]string `json:",omitempty"`
		Finalizers          []string
		Entries             []entry
		Generation          int64
		Values              any
	}{Labels: labels, Annotations: annotations, Generation: obj.GetGeneration()}
	for _, f := range obj.GetFinalizers() {
		if !hubFinalizer(f) {
			seen.Finalizers = append(seen.Finalizers, f)
		}
	}
	for _, e := range obj.GetManagedFields() {
		if !byUser(e) {
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
		seen.Values = values(obj)
	}
	return atoll.HashJSON(seen)
}

// Untouched tells of two states of an object that Fingerprint gives the same for both,
// for a tenth of what that costs; false where it cannot tell. The hub's own writes, such as
// that of its finalizer, leave an object untouched.
func Untouched(was, is *unstructured.Unstructured) bool {
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
	return reflect.DeepEqual(kept(before["finalizers"], usersFinalizer), kept(now["finalizers"], usersFinalizer)) &&
		reflect.DeepEqual(kept(before["managedFields"], usersEntry), kept(now["managedFields"], usersEntry))
}

// kept are the elements of a list of which that is true.
func kept(list any, keep func(any) bool) (out []any) {
	l, _ := list.([]any)
	for _, e := range l {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

func usersFinalizer(v any) bool {
	name, _ := v.(string)
	return !hubFinalizer(name)
}

func usersEntry(v any) bool {
	m, _ := v.(map[string]any)
	manager, _ := m["manager"].(string)
	subresource, _ := m["subresource"].(string)
	return byUser(metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource})
}

// values of an object whose kind has no generation: what its owners own.
func values(obj *unstructured.Unstructured) any {
	tree, loose, err := ownersOf(obj)
	if err != nil {
		return obj.Object
	}
	at := ownership{owners: tree, within: loose}
	out := map[string]any{}
	for name, v := range obj.Object {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
			continue
		}
		if f := stated(v, at.child(name)); f != nil {
			out[name], _ = f.emit(emission{drop: func(*field) bool { return false }})
		}
	}
	return out
}
