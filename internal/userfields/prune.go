package userfields

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
)

// ExtractUserFields returns the template as JSON with only the fields that a user stated: without
// status, and without what the API server, its defaults or Atoll filled in. Errors name the part of
// the object that cannot be read.
func ExtractUserFields(obj *unstructured.Unstructured, defaults Defaulter) (json.RawMessage, error) {
	tree, loose, err := parseOwners(obj)
	if err != nil {
		return nil, fmt.Errorf("prune %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	live := copyWithoutManagedFields(obj)
	last := parseLastApplied(obj)
	transferStringDataOwnership(live, tree, last)
	addOwnerlessReplicasToTree(live, tree)
	removeSystemFields(live, loose)
	removeHubControllerFinalizers(live, obj)
	markLabelsUserOwned(live, tree)

	at := fieldOwnership{ownerTree: tree, isOwnedAbove: loose, last: last, hasLast: last != nil}
	root := &fieldNode{kind: mapField, explicit: true, children: map[string]*fieldNode{}}
	for name, v := range live.Object {
		switch name {
		case "apiVersion", "kind", "status":
			continue
		case "metadata":
			if m := userFieldsOfMetadata(v, at.childOwnership(name)); m != nil {
				root.children[name] = m
			}
			continue
		}
		if f := findUserFields(v, at.childOwnership(name)); f != nil {
			root.children[name] = f
		}
	}
	if err := markDefaultedFields(live, root, defaults); err != nil {
		return nil, fmt.Errorf("prune %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	pruned := assembleObject(live, root, emitOptions{drop: func(f *fieldNode) bool { return f.defaulted }})
	if err := restoreCRDConversion(obj, pruned); err != nil {
		return nil, fmt.Errorf("prune %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	out, err := json.Marshal(pruned)
	if err != nil {
		return nil, fmt.Errorf("prune %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	return out, nil
}

// copyWithoutManagedFields returns a copy of the template without status and managedFields, which may be
// its larger half.
func copyWithoutManagedFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
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

// userFieldsOfMetadata keeps the labels, annotations and finalizers that users wrote.
func userFieldsOfMetadata(v any, o fieldOwnership) *fieldNode {
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
	f := findUserFields(kept, o)
	if f == nil || f.kind != mapField {
		return nil
	}
	for _, c := range f.children {
		if c.kind == mapField && len(c.children) == 0 || c.kind == leafField && isEmptyCollection(c.value) {
			c.explicit, c.doubtful, c.defaulted = false, true, true
		}
	}
	return f
}

func isEmptyCollection(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// assembleObject puts the fields of root that stay under the object's identity.
func assembleObject(obj *unstructured.Unstructured, root *fieldNode, e emitOptions) map[string]any {
	kept, _ := root.buildKeptValue(e)
	out := kept.(map[string]any)
	meta, _ := out["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	for name, v := range meta {
		if isEmptyCollection(v) {
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

// IsHubKey returns whether a label or annotation belongs to Atoll, or to the tool that brought the
// object to the hub. Such keys have no meaning in a member.
func IsHubKey(key string) bool {
	return atoll.IsOwnMetadataKey(key) || key == lastAppliedAnnotation
}

// isHubFinalizer returns whether the hub sets or serves the finalizer itself.
func isHubFinalizer(name string) bool {
	switch name {
	case atoll.Finalizer, "orphan", "foregroundDeletion", "kubernetes",
		"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection",
		"customresourcecleanup.apiextensions.k8s.io":
		return true
	}
	return strings.HasPrefix(name, "atoll.dev/")
}
