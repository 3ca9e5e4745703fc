package interpret

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Revise gives a copy of the object with that many replicas: the replicas that are shared
// out, a Job's parallelism, or, of a kind that is not known, the spec.replicas that it
// states. An error tells that the object has none, or that the number is below zero.
func Revise(obj *unstructured.Unstructured, n int64) (*unstructured.Unstructured, error) {
	k := known(obj)
	p := k.replicas
	if p == nil {
		p = k.number
	}
	if _, stated := number(spec(obj), "replicas"); p == nil && k.pods == nil && stated && !builtinGroups[groupKind(obj).Group] {
		p = specReplicas
	}
	switch {
	case n < 0:
		return nil, fmt.Errorf("%d replicas cannot be: give 0 or more", n)
	case p == nil:
		return nil, fmt.Errorf("a %s has no replicas that can be set", groupKind(obj))
	}
	out := obj.DeepCopy()
	if err := unstructured.SetNestedField(out.Object, n, p...); err != nil {
		return nil, fmt.Errorf("set the replicas of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return out, nil
}

// Retain gives desired as it is once it has been applied over observed: with the labels,
// annotations and finalizers that others put there, and with the fields that are the
// member's by their kind. What desired states stays as it states it, but for the fields in
// left, which are the member's whatever desired states: an autoscaler's replicas.
//
// Members are applied to by server-side apply, which keeps what is not stated by itself;
// this says what that comes to where it matters, without a member.
func Retain(desired, observed *unstructured.Unstructured, left ...[]string) *unstructured.Unstructured {
	out := desired.DeepCopy()
	keepMetadata(out, observed)
	for _, p := range known(desired).member {
		keep(out.Object, observed.Object, p, false)
	}
	for _, p := range left {
		keep(out.Object, observed.Object, p, true)
	}
	return out
}

func keepMetadata(out, observed *unstructured.Unstructured) {
	labels, annotations := merged(observed.GetLabels(), out.GetLabels()), merged(observed.GetAnnotations(), out.GetAnnotations())
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

func merged(under, over map[string]string) map[string]string {
	out := make(map[string]string, len(under)+len(over))
	for k, v := range under {
		out[k] = v
	}
	for k, v := range over {
		out[k] = v
	}
	return out
}

// keep copies what from has at the path into to: where to has nothing there, or whatever
// it has. Maps are merged; elements of lists are those of the same name, or port.
func keep(to, from map[string]any, p path, always bool) {
	key, rest := p[0], p[1:]
	if name, isList := strings.CutSuffix(key, "[]"); isList {
		for _, e := range list(from, name) {
			element, _ := e.(map[string]any)
			if same := counterpart(list(to, name), element); same != nil {
				keep(same, element, rest, always)
			}
		}
		return
	}
	value, there := from[key]
	if !there {
		if always && len(rest) == 0 {
			delete(to, key)
		}
		return
	}
	stated, has := to[key]
	into, isMap := stated.(map[string]any)
	inner, fromMap := value.(map[string]any)
	switch {
	case len(rest) == 0 && isMap && fromMap && !always:
		for k := range inner {
			keep(into, inner, path{k}, false)
		}
	case len(rest) == 0 && (!has || always):
		to[key] = runtime.DeepCopyJSONValue(value)
	case len(rest) == 0 || !fromMap || has && !isMap:
	case !has:
		into = map[string]any{}
		if keep(into, inner, rest, always); len(into) > 0 {
			to[key] = into
		}
	default:
		keep(into, inner, rest, always)
	}
}

// counterpart finds the element of a list that is the same thing: by name, else by port
// and protocol.
func counterpart(l []any, of map[string]any) map[string]any {
	for _, e := range l {
		m, _ := e.(map[string]any)
		switch name := text(m, "name"); {
		case m == nil:
		case name != "" && name == text(of, "name"):
			return m
		case name == "" && count(m, "port") != 0 && count(m, "port") == count(of, "port") &&
			orElse(text(m, "protocol"), "TCP") == orElse(text(of, "protocol"), "TCP"):
			return m
		}
	}
	return nil
}

// Changed lists, in dotted form, the fields that nobody can change once an object of the
// kind exists and that desired states otherwise than observed has them, as far as such
// fields are known: the member would refuse to apply it. The content of a ConfigMap or
// Secret that says immutable: true is one.
func Changed(desired, observed *unstructured.Unstructured) []string {
	var out []string
	fields := known(desired).frozen
	if flag(observed.Object, "immutable") {
		fields = append(slices.Clone(fields), path{"data"}, path{"binaryData"}, path{"immutable"})
	}
	for _, p := range fields {
		want := dig(desired.Object, p)
		if want != nil && !covers(dig(observed.Object, p), want) {
			out = append(out, strings.Join(p, "."))
		}
	}
	return out
}

// covers tells whether all that want states is so in have, which may hold more.
func covers(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return void(want)
		}
		for k, v := range w {
			if !covers(h[k], v) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		return (ok || len(w) == 0) && slices.EqualFunc(h, w, covers)
	}
	return same(have, want)
}

// Scaled names the object whose replicas a HorizontalPodAutoscaler sets; ok is false for
// any other object, and where it names none.
func Scaled(obj *unstructured.Unstructured) (gk schema.GroupKind, name string, ok bool) {
	if groupKind(obj) != (schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}) {
		return gk, "", false
	}
	ref := child(obj.Object, "spec", "scaleTargetRef")
	gv, err := schema.ParseGroupVersion(text(ref, "apiVersion"))
	gk = schema.GroupKind{Group: gv.Group, Kind: text(ref, "kind")}
	name = text(ref, "name")
	return gk, name, err == nil && gk.Kind != "" && name != ""
}
