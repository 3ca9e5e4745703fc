package changes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/userfields"
)

// fixedFields are those that no override changes.
var fixedFields = []string{"apiVersion", "kind", "metadata", "status"}

// clusterMetadata are the fields of metadata that may differ by cluster.
var clusterMetadata = []string{"labels", "annotations"}

// findFixedDifference returns why an object of a variant cannot be had by an override; empty when it can.
func findFixedDifference(on, of map[string]any) string {
	if isSameMap(on, of) {
		return ""
	}
	if on["apiVersion"] != of["apiVersion"] {
		return fmt.Sprintf("it has the version %v, and %v without the variant; one version is on the hub", of["apiVersion"], on["apiVersion"])
	}
	was, _ := on["metadata"].(map[string]any)
	is, _ := of["metadata"].(map[string]any)
	for _, name := range sortedKeys(was, is) {
		if slices.Contains(clusterMetadata, name) {
			a, _ := was[name].(map[string]any)
			b, _ := is[name].(map[string]any)
			for _, key := range sortedKeys(a, b) {
				if userfields.IsHubKey(key) && a[key] != b[key] {
					return fmt.Sprintf("its metadata.%s differ in %s, which the hub reads, so that it is the same for all clusters", name, key)
				}
			}
			continue
		}
		if !userfields.EqualJSON(dropNulls(was[name]), dropNulls(is[name])) {
			return fmt.Sprintf("metadata.%s differs; of metadata only labels and annotations may differ by cluster", name)
		}
	}
	return ""
}

// newMergePatch returns the JSON merge patch that makes an object of a variant of that on the hub. A null field is as one that
// is left out. Lists are replaced as a whole, because what the hub has of a list may be in another order.
func newMergePatch(on, of map[string]any) map[string]any {
	if isSameMap(on, of) {
		return map[string]any{} // most objects are the same in most variants
	}
	return objectdiff.MergePatch(overridableFields(on), overridableFields(of))
}

// isSameMap reports whether both are one map, and not an equal one.
func isSameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// newTransitionPatch returns a patch that makes an object of a variant both of what the hub has had of it and of its new form.
// Transition.FitObjects adds what the hub has had of it and none of its new forms has.
func newTransitionPatch(on, of map[string]any) map[string]any {
	out := joinPatches(overridableFields(of), newMergePatch(on, of))
	if meta, ok := out["metadata"].(map[string]any); ok {
		maps.DeleteFunc(meta, func(_ string, keys any) bool { return len(keys.(map[string]any)) == 0 })
		if len(meta) == 0 {
			delete(out, "metadata")
		}
	}
	was, _ := on["spec"].(map[string]any)
	is, _ := of["spec"].(map[string]any)
	if spec, ok := out["spec"].(map[string]any); ok && userfields.EqualJSON(was["replicas"], is["replicas"]) {
		delete(spec, "replicas") // a placement may divide them
	}
	if isSecret(of) {
		delete(out, "data") // is the same for all clusters, and policies have no values of Secrets
	}
	return out
}

// ownedMaps returns the fields of a set of managed fields, as maps. The elements of a list are none of them.
func ownedMaps(set map[string]any) map[string]any {
	out := map[string]any{}
	for key, below := range set {
		if name, ok := strings.CutPrefix(key, "f:"); ok {
			fields, _ := below.(map[string]any)
			out[name] = ownedMaps(fields)
		}
	}
	return out
}

// formerFields returns the owned fields of an object that a transition may take away.
func formerFields(owned map[string]any, existing *unstructured.Unstructured) map[string]any {
	out := maps.Clone(owned)
	for _, name := range fixedFields {
		delete(out, name)
	}
	was, _ := owned["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, name := range clusterMetadata {
		if keys, ok := was[name].(map[string]any); ok {
			maps.DeleteFunc(keys, func(key string, _ any) bool { return userfields.IsHubKey(key) })
			if len(keys) > 0 {
				kept[name] = keys
			}
		}
	}
	if len(kept) > 0 {
		out["metadata"] = kept
	}
	if spec, ok := out["spec"].(map[string]any); ok {
		delete(spec, "replicas") // a placement may divide them
	}
	if isSecret(existing.Object) {
		delete(out, "data")
		delete(out, "stringData")
	}
	return out
}

// dropAbsent returns a patch that takes away what it does not state of the former fields, too. Labels and annotations leave by
// their keys, because others may have some of them.
func dropAbsent(patch, former map[string]any, names ...string) map[string]any {
	out := maps.Clone(patch)
	if out == nil {
		out = map[string]any{}
	}
	for key, v := range former {
		below, _ := v.(map[string]any)
		stated, has := out[key]
		inner, isMap := stated.(map[string]any)
		isMeta := slices.Contains(names, key)
		switch {
		case isMeta:
			out[key] = dropAbsent(inner, below, clusterMetadata...)
		case isMap:
			out[key] = dropAbsent(inner, below)
		case !has:
			out[key] = nil
		}
	}
	return out
}

// trimPatch returns a patch without what it changes neither of one object nor of the other.
func trimPatch(patch, one, other map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range patch {
		a, b := one[key], other[key]
		inner, isMap := v.(map[string]any)
		below, isMapA := a.(map[string]any)
		belowB, isMapB := b.(map[string]any)
		switch {
		case isMap && isMapA && isMapB:
			if inner = trimPatch(inner, below, belowB); len(inner) > 0 {
				out[key] = inner
			}
		case !userfields.EqualJSON(v, dropNulls(a)) || !userfields.EqualJSON(v, dropNulls(b)):
			out[key] = v
		}
	}
	return out
}

// overridableFields returns a copy of what overrides may change of an object.
func overridableFields(fields map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range fields {
		if v = dropNulls(v); v != nil && !slices.Contains(fixedFields, name) {
			out[name] = runtime.DeepCopyJSONValue(v)
		}
	}
	meta, _ := fields["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, name := range clusterMetadata {
		keys := map[string]any{} // also where there are none: overrides take keys away, and not the whole
		all, _ := meta[name].(map[string]any)
		for key, v := range all {
			if !userfields.IsHubKey(key) && v != nil {
				keys[key] = v
			}
		}
		kept[name] = keys
	}
	out["metadata"] = kept
	if isSecret(fields) {
		encodeStringData(out)
	}
	return out
}

func isSecret(fields map[string]any) bool {
	return fields["kind"] == "Secret" && fields["apiVersion"] == "v1"
}

// encodeStringData moves the stringData of a Secret to its data, as the API server does.
func encodeStringData(fields map[string]any) {
	texts, ok := fields["stringData"].(map[string]any)
	if !ok {
		return
	}
	data, ok := fields["data"].(map[string]any)
	if !ok {
		data = map[string]any{}
	}
	for key, v := range texts {
		if text, ok := v.(string); ok {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	delete(fields, "stringData")
	if len(data) > 0 {
		fields["data"] = data
	}
}

// dropNulls returns a value without null fields. It does not change the value.
func dropNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, one := range v {
			if one = dropNulls(one); one != nil {
				out[key] = one
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = dropNulls(one)
		}
		return out
	}
	return v
}

// joinPatches returns a patch that does what both do. Both make the same object.
func joinPatches(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for key, v := range b {
		x, okX := out[key].(map[string]any)
		y, okY := v.(map[string]any)
		if okX && okY {
			v = joinPatches(x, y)
		}
		out[key] = v
	}
	return out
}

func sortedKeys(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

func encodePatch(patch map[string]any) *apiextensionsv1.JSON {
	raw, err := json.Marshal(patch)
	if err != nil {
		panic(fmt.Sprintf("changes: a patch of decoded JSON cannot be encoded: %v", err))
	}
	return &apiextensionsv1.JSON{Raw: raw}
}
