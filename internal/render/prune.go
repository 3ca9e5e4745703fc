package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
)

// Prune gives the template as JSON with only the fields that a user stated: without
// status, without what the API server, its defaults or Atoll filled in. The errors
// name what of the object cannot be read.
func Prune(obj *unstructured.Unstructured, defaults Defaulter) (json.RawMessage, error) {
	tree, loose, err := ownersOf(obj)
	if err != nil {
		return nil, fmt.Errorf("prune %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	live := withoutRecords(obj)
	last := lastApplied(obj)
	aliases(live, tree, last)
	scaled(live, tree)
	clean(live, loose)

	at := ownership{owners: tree, within: loose, last: last, hasLast: last != nil}
	root := &field{kind: mapField, explicit: true, children: map[string]*field{}}
	for name, v := range live.Object {
		switch name {
		case "apiVersion", "kind", "status":
			continue
		case "metadata":
			if m := statedMetadata(v, at.child(name)); m != nil {
				root.children[name] = m
			}
			continue
		}
		if f := stated(v, at.child(name)); f != nil {
			root.children[name] = f
		}
	}
	if err := settle(live, root, defaults); err != nil {
		return nil, fmt.Errorf("prune %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	pruned := assemble(live, root, emission{drop: func(f *field) bool { return f.defaulted }})
	if err := restoreConversion(obj, pruned); err != nil {
		return nil, fmt.Errorf("prune %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	out, err := json.Marshal(pruned)
	if err != nil {
		return nil, fmt.Errorf("prune %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return out, nil
}

// withoutRecords is a copy of the template without what the API server notes about it: its
// status and who owns which field, which may be the larger half.
func withoutRecords(obj *unstructured.Unstructured) *unstructured.Unstructured {
	live := make(map[string]any, len(obj.Object))
	for name, v := range obj.Object {
		meta, ok := v.(map[string]any)
		switch {
		case name == "status":
		case name == "metadata" && ok:
			kept := make(map[string]any, len(meta))
			for name, v := range meta {
				if name != "managedFields" {
					kept[name] = runtime.DeepCopyJSONValue(v)
				}
			}
			live[name] = kept
		default:
			live[name] = runtime.DeepCopyJSONValue(v)
		}
	}
	return &unstructured.Unstructured{Object: live}
}

// statedMetadata keeps labels, annotations and finalizers that users wrote.
func statedMetadata(v any, o ownership) *field {
	meta, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	kept := map[string]any{}
	for _, name := range []string{"labels", "annotations", "finalizers"} {
		if v, ok := meta[name]; ok {
			kept[name] = v
		}
	}
	f := stated(kept, o)
	if f == nil || f.kind != mapField {
		return nil
	}
	for _, c := range f.children {
		if c.kind == mapField && len(c.children) == 0 || c.kind == leafField && empty(c.value) {
			c.explicit, c.doubtful, c.defaulted = false, true, true
		}
	}
	return f
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// assemble puts what stays of root under the object's identity.
func assemble(obj *unstructured.Unstructured, root *field, e emission) map[string]any {
	kept, _ := root.emit(e)
	out := kept.(map[string]any)
	meta, _ := out["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	for name, v := range meta {
		if empty(v) {
			delete(meta, name)
		}
	}
	meta["name"] = obj.GetName()
	if ns := obj.GetNamespace(); ns != "" {
		meta["namespace"] = ns
	}
	out["metadata"] = meta
	out["apiVersion"], out["kind"] = obj.GetAPIVersion(), obj.GetKind()
	return out
}

// own tells of labels and annotations that are Atoll's or of the tools that
// brought the object to the hub, and mean nothing in a member.
func own(key string) bool {
	return atoll.OwnKey(key) || key == lastAppliedAnnotation
}

// hubFinalizer tells of finalizers that the hub sets or serves itself.
func hubFinalizer(name string) bool {
	switch name {
	case atoll.Finalizer, "orphan", "foregroundDeletion", "kubernetes",
		"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection",
		"customresourcecleanup.apiextensions.k8s.io":
		return true
	}
	return strings.HasPrefix(name, "atoll.dev/")
}
