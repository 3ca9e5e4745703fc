package render

import (
	"bytes"

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
