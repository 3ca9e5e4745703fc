package render

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// mergePatch carries out a JSON merge patch (RFC 7386).
func (o *overriding) mergePatch(raw []byte) error {
	p, err := parseMerge(raw)
	if err != nil {
		return err
	}
	before := copied(o.obj)
	merge(o.obj, p)
	o.noteChanges(before, o.obj)
	return nil
}

// merge the patch into m, which it changes. Nothing of the patch is shared with it.
func merge(m, patch map[string]any) {
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
			merge(into, sub)
		default:
			m[name] = runtime.DeepCopyJSONValue(v)
		}
	}
}

// strategicMerge carries out a strategic merge patch, by what the kind's type says of
// its lists.
func (o *overriding) strategicMerge(raw []byte) error {
	p, err := parseMerge(raw)
	if err != nil {
		return err
	}
	kind := kindOf(o.obj)
	lists, err := listsOf(kind)
	if err != nil {
		return err
	}
	before := copied(o.obj)
	if o.obj, err = strategic(o.obj, p, lists); err != nil {
		return blame(before, p, lists)
	}
	o.noteChanges(before, o.obj)
	return nil
}

// blame says of a patch that cannot be merged which part of it is wrong, of several the
// first: the library meets them in no order, and what is said of a row must not change by
// itself.
func blame(obj, patch map[string]any, lists strategicpatch.LookupPatchMeta) error {
	path, why := fault(patch, nil, func(one map[string]any) error {
		_, err := strategic(copied(obj), copied(one), lists)
		return err
	})
	if why == "" {
		return errors.New("the patch cannot be merged into the object")
	}
	return fmt.Errorf("merge %s: %s", pointerTo(path...), why)
}

// fault finds the first part of a patch, below the path, that cannot be merged alone. Of a
// list it says no more than that: its elements cannot be told apart without their keys.
func fault(part map[string]any, path []string, merges func(map[string]any) error) (at []string, why string) {
	for _, name := range sortedKeys(part) {
		here := append(slices.Clone(path), name)
		err := merges(nested(path, map[string]any{name: part[name]}))
		if err == nil {
			continue
		}
		switch v := part[name].(type) {
		case map[string]any:
			if at, why := fault(v, here, merges); why != "" {
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

// nested gives a value at a path.
func nested(path []string, v map[string]any) map[string]any {
	for _, name := range slices.Backward(path) {
		v = map[string]any{name: v}
	}
	return v
}

// strategic turns what the library says by panicking into an error: it does on lists
// whose elements are of several types.
func strategic(obj, patch map[string]any, lists strategicpatch.LookupPatchMeta) (out map[string]any, err error) {
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

// Lists of a built-in kind, how they are merged; other kinds are not known.
func Lists(kind schema.GroupVersionKind) (lists strategicpatch.LookupPatchMeta, known bool, err error) {
	t, err := types.New(kind)
	if err != nil {
		return nil, false, nil // the one error there is
	}
	if lists, err = strategicpatch.NewPatchMetaFromStruct(t); err != nil {
		return nil, false, fmt.Errorf("read how lists of a %s are merged: %w", kind.Kind, err)
	}
	return lists, true, nil
}

func listsOf(kind schema.GroupVersionKind) (strategicpatch.LookupPatchMeta, error) {
	lists, known, err := Lists(kind)
	if err == nil && !known {
		err = fmt.Errorf("a %s of %s is no built-in kind, so that nothing says how its lists are merged: use mergePatch", kind.Kind, kind.GroupVersion())
	}
	return lists, err
}

func kindOf(obj map[string]any) schema.GroupVersionKind {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// builtIn tells whether the object is of a kind that Kubernetes itself serves.
func builtIn(obj map[string]any) bool { return types.IsGroupRegistered(kindOf(obj).Group) }

// maxDepth is how deep the value of an override may be nested.
const maxDepth = 64

var tooDeep = fmt.Sprintf("it is nested more than %d deep", maxDepth)

// parseMerge reads a patch, and refuses one that names fields which overrides never
// touch.
func parseMerge(raw []byte) (map[string]any, error) {
	var p map[string]any
	if err := json.Unmarshal(raw, &p); err != nil || p == nil {
		return nil, errors.New("a merge patch has to be an object")
	}
	if deep(p, maxDepth) {
		return nil, errors.New(tooDeep)
	}
	for _, name := range sortedKeys(p) {
		v := p[name]
		if name != "metadata" {
			if _, err := allowed(pointerTo(name), v); err != nil {
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
			if _, err := allowed(pointerTo("metadata", field), meta[field]); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// deep tells whether the value is nested more than n deep.
func deep(v any, n int) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if n == 0 || deep(e, n-1) {
				return true
			}
		}
	case []any:
		for _, e := range v {
			if n == 0 || deep(e, n-1) {
				return true
			}
		}
	}
	return false
}

func copied(m map[string]any) map[string]any { return runtime.DeepCopyJSON(m) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// noteChanges notes every field that is another one than before. Lists of other
// lengths are noted as a whole.
func (o *overriding) noteChanges(before, after map[string]any) { o.changes("", before, after) }

func (o *overriding) changes(path string, before, after any) {
	if is, ok := after.(map[string]any); ok {
		if was, ok := before.(map[string]any); ok {
			for _, name := range sortedKeys(was) {
				if _, stays := is[name]; !stays {
					o.noteAt(path+pointerTo(name), nil)
				}
			}
			for _, name := range sortedKeys(is) {
				if v, ok := was[name]; ok {
					o.changes(path+pointerTo(name), v, is[name])
				} else {
					o.noteAt(path+pointerTo(name), is[name])
				}
			}
			return
		}
	}
	if is, ok := after.([]any); ok {
		if was, ok := before.([]any); ok && len(was) == len(is) {
			for i := range is {
				o.changes(path+pointerTo(strconv.Itoa(i)), was[i], is[i])
			}
			return
		}
	}
	if !equal(before, after) {
		o.noteAt(path, after)
	}
}
