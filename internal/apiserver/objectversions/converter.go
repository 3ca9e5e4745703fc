// Package objectversions converts objects of Kubernetes' own kinds between API versions, as the API server
// does.
//
// Contract: pure functions of their arguments and of the scheme of the linked Kubernetes. A conversion succeeds only
// if the way back gives the object again, also with the defaults of both versions. A Converter is safe for
// concurrent use.
package objectversions

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // each adds the versions of its group to the scheme
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"

	"atoll.dev/atoll/internal/objectdiff"
	"atoll.dev/atoll/internal/phrase"
)

// Converter converts objects by the scheme of the linked Kubernetes.
type Converter struct{}

// oldestMinor is the first release of Kubernetes 1 whose removed versions still count. Each older member that
// serves a version removed before also serves the one that replaced it.
const oldestMinor = 25

// maxNamedFields bounds the fields that an error names, and maxErrorBytes the text of an error.
const (
	maxNamedFields = 5
	maxErrorBytes  = 1024
)

// ListVersions returns the API versions between which it converts objects of the kind, best first. There are none
// for a kind with one version. Shared, not to be changed.
func (Converter) ListVersions(gk schema.GroupKind) []string { return versionsByKind()[gk] }

// versionsByKind has the current API versions of each kind that has several, best first. The scheme finds those of one
// kind by reading all its types.
var versionsByKind = sync.OnceValue(func() map[schema.GroupKind][]string {
	names := map[schema.GroupKind][]string{}
	for gvk := range legacyscheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal && isCurrent(gvk) {
			names[gvk.GroupKind()] = append(names[gvk.GroupKind()], gvk.Version)
		}
	}
	out := map[schema.GroupKind][]string{}
	for gk, versions := range names {
		if len(versions) < 2 {
			continue
		}
		slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
		for _, name := range versions {
			out[gk] = append(out[gk], schema.GroupVersion{Group: gk.Group, Version: name}.String())
		}
	}
	return out
})

// isCurrent reports whether a supported release of Kubernetes serves the version.
func isCurrent(gvk schema.GroupVersionKind) bool {
	typed, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return false
	}
	removed, ok := typed.(interface{ APILifecycleRemoved() (major, minor int) })
	if !ok {
		return true
	}
	major, minor := removed.APILifecycleRemoved()
	return major == 0 || major > 1 || minor >= oldestMinor
}

// ConvertObject returns the object in another version of its kind, without fields that no user stated, and shares no
// memory with it. The error names the fields that the version cannot hold.
func (Converter) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	stated, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	from := schema.FromAPIVersionAndKind(stated, kind)
	to := schema.FromAPIVersionAndKind(apiVersion, kind)
	if from.Group != to.Group {
		return nil, errors.New("is of another group")
	}
	before, err := readTyped(object, from)
	if err != nil {
		return nil, err
	}
	converted, err := convertTyped(before, to)
	if err != nil {
		return nil, err
	}
	full, err := writeTyped(converted, to)
	if err != nil {
		return nil, err
	}
	if before, err = convertTyped(before, from); err != nil { // with the empty values that each conversion adds
		return nil, err
	}
	if out := keepStated(full, object); checkWayBack(before, out, from, to) == nil {
		return out, nil
	}
	out, err := dropImplied(full, to)
	if err != nil {
		return nil, err
	}
	if err := checkWayBack(before, out, from, to); err != nil {
		return nil, err
	}
	return out, nil
}

// readTyped returns the object as its type. Fields that the type does not have are an error.
func readTyped(object map[string]any, gvk schema.GroupVersionKind) (runtime.Object, error) {
	typed, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, typed, true); err != nil {
		return nil, boundError(err)
	}
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	return typed, nil
}

// boundError returns the error of a conversion with at most maxNamedFields fields and maxErrorBytes: a user's object
// may have any number of fields that its type does not have.
func boundError(err error) error {
	text := err.Error()
	if unknown, ok := runtime.AsStrictDecodingError(err); ok {
		var fields []string
		for _, e := range unknown.Errors() {
			fields = append(fields, e.Error())
		}
		slices.Sort(fields) // the reading has no order of its own
		text = phrase.JoinFirst(fields, maxNamedFields, len(fields))
	}
	return errors.New("cannot be converted to: " + phrase.TruncateText(text, maxErrorBytes))
}

// writeTyped returns the object without its status and without null values.
func writeTyped(typed runtime.Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	typed.GetObjectKind().SetGroupVersionKind(gvk)
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("cannot be written: %w", err)
	}
	delete(out, "status")
	dropNulls(out)
	return out, nil
}

// convertTyped converts as the API server does: by the internal version.
func convertTyped(typed runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	internal, err := legacyscheme.Scheme.ConvertToVersion(typed, schema.GroupVersion{Group: to.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, fmt.Errorf("cannot be converted to: %w", err)
	}
	out, err := legacyscheme.Scheme.ConvertToVersion(internal, to.GroupVersion())
	if err != nil {
		return nil, fmt.Errorf("cannot be converted to: %w", err)
	}
	return out, nil
}

// checkWayBack returns an error with the fields that differ once the converted object is converted back. Both have the
// defaults of their versions: a field that is not stated must mean the same in both.
func checkWayBack(before runtime.Object, converted map[string]any, from, to schema.GroupVersionKind) error {
	there, err := readTyped(converted, to)
	if err != nil {
		return err
	}
	legacyscheme.Scheme.Default(there)
	back, err := convertTyped(there, from)
	if err != nil {
		return err
	}
	want := before.DeepCopyObject()
	legacyscheme.Scheme.Default(want)
	legacyscheme.Scheme.Default(back)
	return compareTyped(want, back, from)
}

func compareTyped(want, got runtime.Object, gvk schema.GroupVersionKind) error {
	a, err := writeTyped(want, gvk)
	if err != nil {
		return err
	}
	b, err := writeTyped(got, gvk)
	if err != nil {
		return err
	}
	sortUnordered(a, gvk)
	sortUnordered(b, gvk)
	differences := objectdiff.Compare(a, b)
	if len(differences) == 0 {
		return nil
	}
	var paths []string
	for _, d := range differences[:min(len(differences), maxNamedFields)] {
		paths = append(paths, d.Path)
	}
	more := ""
	if n := len(differences) - len(paths); n > 0 {
		more = fmt.Sprintf(" and %d more fields", n)
	}
	return errors.New(phrase.TruncateText("cannot hold "+strings.Join(paths, ", ")+more, maxErrorBytes))
}

// unorderedLists has the path of a list, by kind, whose order the conversion changes and nothing reads.
var unorderedLists = map[schema.GroupKind][]string{
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {"spec", "metrics"},
}

// sortUnordered sorts the object's list of unorderedLists.
func sortUnordered(object map[string]any, gvk schema.GroupVersionKind) {
	list, _, err := unstructured.NestedFieldNoCopy(object, unorderedLists[gvk.GroupKind()]...)
	if elements, ok := list.([]any); ok && err == nil {
		slices.SortFunc(elements, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// dropNulls removes the null values of maps, at any depth.
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, field any) bool { return field == nil })
		for _, field := range v {
			dropNulls(field)
		}
	case []any:
		for _, element := range v {
			dropNulls(element)
		}
	}
}

// keepStated returns a copy of the object without empty fields that the source does not have at the same path.
func keepStated(full, source map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range full {
		stated, has := source[key]
		if value = keepStatedValue(value, stated); has || !isEmpty(value) {
			out[key] = value
		}
	}
	return out
}

func keepStatedValue(value, source any) any {
	switch v := value.(type) {
	case map[string]any:
		stated, _ := source.(map[string]any)
		return keepStated(v, stated)
	case []any:
		stated, _ := source.([]any)
		out := make([]any, len(v))
		for i := range v {
			var element any
			if len(stated) == len(v) {
				element = stated[i]
			}
			out[i] = keepStatedValue(v[i], element)
		}
		return out
	}
	return value
}

// dropImplied returns the object without the empty values that its type writes in any case. Those that are gone once
// they are left out, such as an empty selector, stay.
func dropImplied(full map[string]any, gvk schema.GroupVersionKind) (map[string]any, error) {
	bare := runtime.DeepCopyJSON(full)
	dropEmpty(bare)
	typed, err := readTyped(bare, gvk)
	if err != nil {
		return nil, err
	}
	implied, err := writeTyped(typed, gvk)
	if err != nil {
		return nil, err
	}
	return mergeStated(full, bare, implied).(map[string]any), nil
}

// dropEmpty removes empty fields of maps, at any depth.
func dropEmpty(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			dropEmpty(field)
		}
		maps.DeleteFunc(v, func(_ string, field any) bool { return isEmpty(field) })
	case []any:
		for _, element := range v {
			dropEmpty(element)
		}
	}
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}

// mergeStated returns full without what bare left out and implied has again. Lists have equal lengths in all three.
func mergeStated(full, bare, implied any) any {
	switch f := full.(type) {
	case map[string]any:
		b, _ := bare.(map[string]any)
		i, _ := implied.(map[string]any)
		out := map[string]any{}
		for key, value := range f {
			_, kept := b[key]
			_, again := i[key]
			switch {
			case kept:
				out[key] = mergeStated(value, b[key], i[key])
			case !again:
				out[key] = value
			default:
				if v := mergeStated(value, nil, i[key]); !isEmpty(v) {
					out[key] = v
				}
			}
		}
		return out
	case []any:
		b, _ := bare.([]any)
		i, _ := implied.([]any)
		out := make([]any, len(f))
		for n := range f {
			out[n] = f[n]
			if len(b) == len(f) && len(i) == len(f) {
				out[n] = mergeStated(f[n], b[n], i[n])
			}
		}
		return out
	}
	return full
}
