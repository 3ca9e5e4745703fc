package admission

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

const (
	// specLimit is how large a policy may be, in bytes of JSON. A Bundle has the
	// placement of its policy and a status beside it, a Revision the rules of all that
	// override its items, and etcd takes 1.5 MB by default.
	specLimit = 1_000_000
	// strategyLimit is how large a rollout strategy may be, in bytes of JSON: a Bundle has its rollout and the placement of its policy.
	strategyLimit = 250_000
	// surelyCarried is how large an object may be, in bytes of JSON, before it is looked
	// at how large it is when compressed.
	surelyCarried = 500_000
	// The largest growth from protobuf to JSON, in bytes: for a character, and for a byte of
	// protobuf, where a field may take two and its name is only in JSON.
	jsonOfCharacter = 6
	jsonOfProtobuf  = 32
)

// validatePlacedTemplateSize refuses a template that is placed and too large to be sent. An unplaced one may be
// as large as the API takes: when a placement comes to select it, its Bundle and an Event report
// it. One that was too large before it was placed may be edited.
func (p *AdmissionPlugin) validatePlacedTemplateSize(a admission.Attributes, o admission.ObjectInterfaces) error {
	hub, ok := p.currentHub()
	if !ok || !isPlacedTemplate(a.GetObject()) || state.IsNeverTemplate(a.GetKind().GroupKind()) {
		return nil
	}
	now, err := storedForm(a.GetObject(), a, o)
	if err != nil || now == nil {
		return err
	}
	why := hub.Placed.CheckItemSize(now)
	if why == nil {
		return nil
	}
	if a.GetOperation() == admission.Update && isPlacedTemplate(a.GetOldObject()) {
		if before, err := storedForm(a.GetOldObject(), a, o); err != nil || before != nil && hub.Placed.CheckItemSize(before) != nil {
			return err
		}
	}
	now.SetManagedFields(nil) // no user's doing, nor sent
	return refuseFields(a, atoll.ReasonTooLarge, field.Invalid(largestField(now.Object), field.OmitValueType{}, why.Error()))
}

// isPlacedTemplate reports whether an object is a template that is placed, and not being deleted.
func isPlacedTemplate(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && m.GetDeletionTimestamp() == nil && slices.Contains(m.GetFinalizers(), atoll.Finalizer)
}

// storedForm returns an object as it is stored and templates are read; nil where it is surely
// small enough.
func storedForm(obj runtime.Object, a admission.Attributes, o admission.ObjectInterfaces) (*unstructured.Unstructured, error) {
	gvk := a.GetKind()
	if _, ok := obj.(*unstructured.Unstructured); !ok {
		var err error
		if obj, err = o.GetObjectConvertor().ConvertToVersion(obj, gvk.GroupVersion()); err != nil {
			return nil, refuseRequest(a, atoll.ReasonUnreadable, fmt.Errorf("look how large it is: %w", err))
		}
	}
	if isClearlyBelowSizeLimit(obj) {
		return nil, nil
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, refuseRequest(a, atoll.ReasonUnreadable, fmt.Errorf("look how large it is: %w", err))
	}
	if len(raw) < surelyCarried {
		return nil, nil
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw, &u.Object); err != nil {
		return nil, refuseRequest(a, atoll.ReasonUnreadable, fmt.Errorf("look how large it is: %w", err))
	}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// isClearlyBelowSizeLimit reports, for most objects, that they fit, without encoding them.
func isClearlyBelowSizeLimit(obj runtime.Object) bool {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		n, _ := estimateJSONSize(o.Object)
		return n*jsonOfCharacter < surelyCarried
	case interface{ Size() int }: // as protobuf
		return o.Size()*jsonOfProtobuf < surelyCarried
	}
	return false
}

// estimateJSONSize gives about how long a value is as JSON, if all characters take one byte, and the
// path, innermost first, of the innermost field that has most of it.
func estimateJSONSize(v any) (bytes int, path []string) {
	switch v := v.(type) {
	case map[string]any:
		all, field, of, path := heaviestField(v)
		if 2*of < all {
			return all, nil
		}
		return all, append(path, field)
	case []any:
		for _, e := range v {
			n, _ := estimateJSONSize(e)
			bytes += n + 1
		}
		return bytes + 2, nil
	case string:
		return len(v) + 2, nil
	}
	return 8, nil
}

// heaviestField returns the estimated size of an object and its heaviest field, with that field's
// size and the path of its heaviest part.
func heaviestField(obj map[string]any) (all int, field string, of int, path []string) {
	for k, v := range obj {
		n, within := estimateJSONSize(v)
		if all += len(k) + n + 4; n > of {
			field, of, path = k, n, within
		}
	}
	return all + 2, field, of, path
}

// largestField is the path of the innermost field that has most of an object, or of the
// largest if none has.
func largestField(obj map[string]any) *field.Path {
	_, name, _, within := heaviestField(obj)
	path := field.NewPath(name)
	for _, name := range slices.Backward(within) {
		path = path.Child(name)
	}
	return path
}

// checkSpecSize refuses a policy that could not be carried out for its size.
func checkSpecSize(spec any, at *field.Path) field.ErrorList {
	return checkJSONSize(spec, specLimit, "choose clusters by their labels rather than by name, or divide it into several policies", at)
}

// checkStrategySize refuses a rollout strategy that could not be carried out for its size.
func checkStrategySize(spec *v1alpha1.ClusterRolloutStrategySpec, at *field.Path) field.ErrorList {
	return checkJSONSize(spec, strategyLimit, "choose clusters by their labels rather than by name", at)
}

// checkJSONSize refuses a value with more bytes of JSON than the limit, with what to write instead.
func checkJSONSize(spec any, limit int, instead string, at *field.Path) field.ErrorList {
	raw, _ := json.Marshal(spec) // what was read as JSON
	n := len(raw)
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(at, field.OmitValueType{}, fmt.Sprintf("has %d bytes as JSON, and %d are allowed; %s", n, limit, instead))}
}
