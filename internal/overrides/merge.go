package overrides

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"atoll.dev/atoll/internal/jsonpointer"
	"atoll.dev/atoll/internal/userfields"
)

// applyMergePatch carries out a JSON merge patch (RFC 7386).
func (o *ObjectPatcher) applyMergePatch(raw *apiextensionsv1.JSON) error {
	p, err := parseAllowedMergePatch(raw.Raw)
	if err != nil {
		return err
	}
	before := deepCopyMap(o.Object)
	mergeJSON(o.Object, p)
	o.noteObjectChanges(before, o.Object)
	return nil
}

// mergeJSON merges the patch into m. It shares nothing of the patch with m.
func mergeJSON(m, patch map[string]any) {
	for name, v := range patch {
		sub, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(m, name)
		case isMap:
			into, ok := m[name].(map[string]any)
			if !ok {
				into = map[string]any{}
				m[name] = into
			}
			mergeJSON(into, sub)
		default:
			m[name] = runtime.DeepCopyJSONValue(v)
		}
	}
}

// applyStrategicMerge carries out a strategic merge patch, with the merge keys of the kind's Go
// type.
func (o *ObjectPatcher) applyStrategicMerge(raw *apiextensionsv1.JSON) error {
	p, err := parseAllowedMergePatch(raw.Raw)
	if err != nil {
		return err
	}
	kind := objectKind(o.Object)
	lists, err := requireMergeMeta(kind)
	if err != nil {
		return err
	}
	before := deepCopyMap(o.Object)
	if o.Object, err = strategicMergeMap(o.Object, p, lists); err != nil {
		return explainMergeFailure(before, p, lists)
	}
	o.noteObjectChanges(before, o.Object)
	return nil
}

// MergePart returns the object with a part of it merged into it: by a strategic merge for a built-in kind, and by a JSON merge
// patch for another one. It may change the object.
func MergePart(obj, part map[string]any) (map[string]any, error) {
	if isDeeperThan(part, maxDepth) {
		return nil, errors.New(tooDeepReason)
	}
	lists, known, err := BuiltInMergeMeta(objectKind(obj))
	switch {
	case err != nil:
		return nil, err
	case !known:
		mergeJSON(obj, part)
		return obj, nil
	}
	out, err := strategicMergeMap(deepCopyMap(obj), deepCopyMap(part), lists)
	if err != nil {
		return nil, explainMergeFailure(obj, part, lists)
	}
	return out, nil
}

// explainMergeFailure returns which part of a patch cannot be merged, of several the first. The
// library finds them in random order, and the error of a row must not change by itself.
func explainMergeFailure(obj, patch map[string]any, lists strategicpatch.LookupPatchMeta) error {
	path, why := findUnmergeable(patch, nil, func(one map[string]any) error {
		_, err := strategicMergeMap(deepCopyMap(obj), deepCopyMap(one), lists)
		return err
	})
	if why == "" {
		return errors.New("the patch cannot be merged into the object")
	}
	return fmt.Errorf("merge %s: %s", jsonpointer.FormatPointer(path...), why)
}

// findUnmergeable returns the first part of a patch, below the path, that cannot be merged alone.
// It reports a list as a whole, because its elements have no identity without their keys.
func findUnmergeable(part map[string]any, path []string, merges func(map[string]any) error) (at []string, why string) {
	for _, name := range sortedKeys(part) {
		here := append(slices.Clone(path), name)
		err := merges(nestAtPath(path, map[string]any{name: part[name]}))
		if err == nil {
			continue
		}
		switch v := part[name].(type) {
		case map[string]any:
			if at, why := findUnmergeable(v, here, merges); why != "" {
				return at, why
			}
			return here, "it cannot be merged"
		case []any:
			return here, "the list cannot be merged: each element has to be of the kind's form, and a map has to have the key that the list is merged by"
		}
		return here, err.Error()
	}
	return nil, ""
}

// nestAtPath returns a value nested at a path.
func nestAtPath(path []string, v map[string]any) map[string]any {
	for _, name := range slices.Backward(path) {
		v = map[string]any{name: v}
	}
	return v
}

// strategicMergeMap turns the library's panics into errors. The library panics on lists whose
// elements are of several types.
func strategicMergeMap(obj, patch map[string]any, lists strategicpatch.LookupPatchMeta) (out map[string]any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("the patch cannot be merged into the object: %v", p)
		}
	}()
	out, err = strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(obj, patch, lists)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	return out, nil
}

// BuiltInMergeMeta returns how lists of a built-in kind are merged. known is false for other kinds.
func BuiltInMergeMeta(kind schema.GroupVersionKind) (lists strategicpatch.LookupPatchMeta, known bool, err error) {
	t, err := builtInScheme.New(kind)
	if err != nil {
		return nil, false, nil // the only error of New
	}
	if lists, err = strategicpatch.NewPatchMetaFromStruct(t); err != nil {
		return nil, false, fmt.Errorf("read how lists of a %s are merged: %w", kind.Kind, err)
	}
	return lists, true, nil
}

func requireMergeMeta(kind schema.GroupVersionKind) (strategicpatch.LookupPatchMeta, error) {
	lists, known, err := BuiltInMergeMeta(kind)
	if err == nil && !known {
		err = fmt.Errorf("a %s of %s is no built-in kind, so that nothing defines how its lists are merged: use mergePatch", kind.Kind, kind.GroupVersion())
	}
	return lists, err
}

func objectKind(obj map[string]any) schema.GroupVersionKind {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// isBuiltInKind returns whether Kubernetes itself serves the object's kind.
func isBuiltInKind(obj map[string]any) bool {
	return builtInScheme.IsGroupRegistered(objectKind(obj).Group)
}

// maxDepth bounds the nesting of an override's value.
const maxDepth = 64

var tooDeepReason = fmt.Sprintf("it is nested more than %d deep", maxDepth)

// parseAllowedMergePatch parses a patch, and refuses one that names fields which overrides never change.
func parseAllowedMergePatch(raw []byte) (map[string]any, error) {
	var p map[string]any
	if err := json.Unmarshal(raw, &p); err != nil || p == nil {
		return nil, errors.New("a merge patch has to be an object")
	}
	if isDeeperThan(p, maxDepth) {
		return nil, errors.New(tooDeepReason)
	}
	for _, name := range sortedKeys(p) {
		v := p[name]
		if name != "metadata" {
			if _, err := parseAllowedPath(jsonpointer.FormatPointer(name), v); err != nil {
				return nil, err
			}
			if strings.HasPrefix(name, "$") {
				return nil, fmt.Errorf("overrides never touch an object as a whole, as %s would", name)
			}
			continue
		}
		meta, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("overrides never touch /metadata as a whole")
		}
		for _, field := range sortedKeys(meta) {
			if _, err := parseAllowedPath(jsonpointer.FormatPointer("metadata", field), meta[field]); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// isDeeperThan returns whether the value is nested more than n levels deep.
func isDeeperThan(v any, n int) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if n == 0 || isDeeperThan(e, n-1) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if n == 0 || isDeeperThan(e, n-1) {
				return true
			}
		}
	}
	return false
}

func deepCopyMap(m map[string]any) map[string]any { return runtime.DeepCopyJSON(m) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// noteObjectChanges notes every field that differs. A list of another length is noted as a whole.
func (o *ObjectPatcher) noteObjectChanges(before, after map[string]any) {
	o.noteDifferences("", before, after)
}

func (o *ObjectPatcher) noteDifferences(path string, before, after any) {
	if is, ok := after.(map[string]any); ok {
		if was, ok := before.(map[string]any); ok {
			for _, name := range sortedKeys(was) {
				if _, stays := is[name]; !stays {
					o.noteChangeAt(path+jsonpointer.FormatPointer(name), nil)
				}
			}
			for _, name := range sortedKeys(is) {
				if v, ok := was[name]; ok {
					o.noteDifferences(path+jsonpointer.FormatPointer(name), v, is[name])
				} else {
					o.noteChangeAt(path+jsonpointer.FormatPointer(name), is[name])
				}
			}
			return
		}
	}
	if is, ok := after.([]any); ok {
		if was, ok := before.([]any); ok && len(was) == len(is) {
			for i := range is {
				o.noteDifferences(path+jsonpointer.FormatPointer(strconv.Itoa(i)), was[i], is[i])
			}
			return
		}
	}
	if !userfields.EqualJSON(before, after) {
		o.noteChangeAt(path, after)
	}
}
