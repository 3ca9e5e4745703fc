package kinds

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReviseReplicas returns a copy of the object with n replicas. It sets the field of a known
// kind, a Job's parallelism, or spec.replicas where an unknown kind states it. It returns an
// error where the object has no such field, or n is negative.
func ReviseReplicas(obj *unstructured.Unstructured, n int64) (*unstructured.Unstructured, error) {
	k := traitsOf(obj)
	p := k.replicasPath
	if p == nil {
		p = k.podCountPath
	}
	if _, stated := integerField(specOf(obj), "replicas"); p == nil && k.podParts == nil && stated && !builtinGroups[groupKindOf(obj).Group] {
		p = specReplicasPath
	}
	switch {
	case n < 0:
		return nil, fmt.Errorf("%d replicas cannot be: give 0 or more", n)
	case p == nil:
		return nil, fmt.Errorf("a %s has no replicas that can be set", groupKindOf(obj))
	}
	out := obj.DeepCopy()
	if err := unstructured.SetNestedField(out.Object, n, p...); err != nil {
		return nil, fmt.Errorf("set the replicas of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return out, nil
}

// RetainMemberFields returns desired as it is after an apply over observed. The result has
// the labels, annotations and finalizers of others, and the fields that the member owns by
// kind. Fields that desired states win, except for the fields in left: these keep the
// member's value, as the replicas of an autoscaler do.
//
// Agents use server-side apply, which retains such fields by itself. This function computes
// the result without a member.
func RetainMemberFields(desired, observed *unstructured.Unstructured, left ...[]string) *unstructured.Unstructured {
	out := desired.DeepCopy()
	keepMetadata(out, observed)
	for _, p := range traitsOf(desired).memberFields {
		retainField(out.Object, observed.Object, p, false)
	}
	for _, p := range left {
		retainField(out.Object, observed.Object, p, true)
	}
	return out
}

func keepMetadata(out, observed *unstructured.Unstructured) {
	labels, annotations := mergeStringMaps(observed.GetLabels(), out.GetLabels()), mergeStringMaps(observed.GetAnnotations(), out.GetAnnotations())
	if len(labels) > 0 {
		out.SetLabels(labels)
	}
	if len(annotations) > 0 {
		out.SetAnnotations(annotations)
	}
	finalizers := out.GetFinalizers()
	for _, f := range observed.GetFinalizers() {
		if !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	if len(finalizers) > 0 {
		out.SetFinalizers(finalizers)
	}
}

func mergeStringMaps(under, over map[string]string) map[string]string {
	out := make(map[string]string, len(under)+len(over))
	for k, v := range under {
		out[k] = v
	}
	for k, v := range over {
		out[k] = v
	}
	return out
}

// retainField copies the value of from at the path into to. With always it replaces the value
// of to; otherwise it fills what to lacks. List elements are matched by name or port.
func retainField(to, from map[string]any, p fieldPath, always bool) {
	key, rest := p[0], p[1:]
	if name, isList := strings.CutSuffix(key, "[]"); isList {
		for _, e := range listField(from, name) {
			element, _ := e.(map[string]any)
			if same := matchingElement(listField(to, name), element); same != nil {
				retainField(same, element, rest, always)
			}
		}
		return
	}
	if len(rest) == 0 {
		retainValue(to, from, key, always)
		return
	}
	inner, isMap := from[key].(map[string]any)
	stated, has := to[key]
	into, intoMap := stated.(map[string]any)
	switch {
	case !isMap || has && !intoMap:
	case !has:
		into = map[string]any{}
		if retainField(into, inner, rest, always); len(into) > 0 {
			to[key] = into
		}
	default:
		retainField(into, inner, rest, always)
	}
}

// retainValue is retainField at the end of the path. Maps are merged unless always.
func retainValue(to, from map[string]any, key string, always bool) {
	value, there := from[key]
	stated, has := to[key]
	into, intoMap := stated.(map[string]any)
	inner, isMap := value.(map[string]any)
	switch {
	case !there && always:
		delete(to, key)
	case !there:
	case intoMap && isMap && !always:
		for k := range inner {
			retainValue(into, inner, k, false)
		}
	case !has || always:
		to[key] = runtime.DeepCopyJSONValue(value)
	}
}

// matchingElement returns the element of the list with the same name, or the same port and
// protocol where there is no name; nil where there is none.
func matchingElement(l []any, of map[string]any) map[string]any {
	for _, e := range l {
		m, _ := e.(map[string]any)
		switch name := stringField(m, "name"); {
		case m == nil:
		case name != "" && name == stringField(of, "name"):
			return m
		case name == "" && countField(m, "port") != 0 && countField(m, "port") == countField(of, "port") &&
			orElse(stringField(m, "protocol"), "TCP") == orElse(stringField(of, "protocol"), "TCP"):
			return m
		}
	}
	return nil
}

// ChangedImmutableFields lists the known immutable fields that desired states and whose value
// differs in observed, in dotted form. The member would refuse to apply desired. The content
// of an immutable ConfigMap or Secret counts as such a field.
func ChangedImmutableFields(desired, observed *unstructured.Unstructured) []string {
	var out []string
	fields := traitsOf(desired).immutableFields
	if boolField(observed.Object, "immutable") {
		fields = append(slices.Clone(fields), fieldPath{"data"}, fieldPath{"binaryData"}, fieldPath{"immutable"})
	}
	for _, p := range fields {
		want := valueAt(desired.Object, p)
		if want != nil && !includesFields(valueAt(observed.Object, p), want) {
			out = append(out, strings.Join(p, "."))
		}
	}
	return out
}

// includesFields reports whether have holds all values of want. It may hold more.
func includesFields(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return isEmptyValue(want)
		}
		for k, v := range w {
			if !includesFields(h[k], v) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		return (ok || len(w) == 0) && slices.EqualFunc(h, w, includesFields)
	}
	return equalValuesIgnoringEmpty(have, want)
}

// AutoscalerTarget returns kind and name of the object that a HorizontalPodAutoscaler scales.
// ok is false for other objects, and for an autoscaler that names no target.
func AutoscalerTarget(obj *unstructured.Unstructured) (gk schema.GroupKind, name string, ok bool) {
	if groupKindOf(obj) != (schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}) {
		return gk, "", false
	}
	ref := nestedMap(obj.Object, "spec", "scaleTargetRef")
	gv, err := schema.ParseGroupVersion(stringField(ref, "apiVersion"))
	gk = schema.GroupKind{Group: gv.Group, Kind: stringField(ref, "kind")}
	name = stringField(ref, "name")
	return gk, name, err == nil && gk.Kind != "" && name != ""
}
