package changes

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// inputIDs returns the IDs of references, in their order.
func inputIDs(references []v1alpha1.ValuesReference) (out []render.InputID) {
	for _, r := range references {
		out = append(out, render.NewInputID(string(r.Kind), r.Name, cmp.Or(r.Key, v1alpha1.DefaultValuesKey)))
	}
	return out
}

// ListReferences lists the ConfigMaps and Secrets that a Source names, also in its variants.
func ListReferences(s *v1alpha1.Source) (out []v1alpha1.ValuesReference) {
	if b := s.Spec.Build; b != nil && b.Helm != nil {
		out = append(out, b.Helm.ValuesFrom...)
	}
	for _, v := range s.Spec.Variants {
		if v.Helm != nil && !v.Exclude {
			out = append(out, v.Helm.ValuesFrom...)
		}
	}
	return out
}

// ReadsSecrets reports whether values of Secrets are in the content of a Source.
func ReadsSecrets(s *v1alpha1.Source) bool {
	return slices.ContainsFunc(ListReferences(s), func(r v1alpha1.ValuesReference) bool { return r.Kind == v1alpha1.ValuesOfSecret })
}

// KeyOfReference returns the key of the object that a reference names.
func KeyOfReference(s *v1alpha1.Source, r v1alpha1.ValuesReference) atoll.ItemKey {
	return atoll.ItemKey{Kind: string(r.Kind), Namespace: s.Namespace, Name: r.Name}
}

// ResourceOfReference returns where the hub's API serves the object that a reference names.
func ResourceOfReference(r v1alpha1.ValuesReference) schema.GroupVersionResource {
	if r.Kind == v1alpha1.ValuesOfSecret {
		return schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	}
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

// CollectInputs returns the values that a Source names. find returns an object, or nil for one that does not exist. The error is a
// *Failure, or one of find.
func CollectInputs(s *v1alpha1.Source, find func(v1alpha1.ValuesReference) (*unstructured.Unstructured, error)) (render.Inputs, error) {
	references := ListReferences(s)
	if len(references) == 0 {
		return nil, nil
	}
	out, size := render.Inputs{}, 0
	for i, id := range inputIDs(references) {
		r := references[i]
		if _, has := out[id]; has {
			continue
		}
		object, err := find(r)
		if err != nil {
			return nil, err
		}
		text, found := readInput(object, r)
		if !found {
			if r.Optional {
				continue
			}
			return nil, render.NewFailure(atoll.ReasonValuesMissing, "%s", describeMissing(s, r, object != nil))
		}
		if size += len(text); size > render.MaxInputBytes {
			return nil, render.NewFailure(atoll.ReasonValuesTooLarge, "the values of valuesFrom have more than %d bytes together, counted up to %s; commit values that are no secrets", render.MaxInputBytes, id.Format())
		}
		out[id] = text
	}
	return out, nil
}

// describeMissing returns which of an object and its key does not exist.
func describeMissing(s *v1alpha1.Source, r v1alpha1.ValuesReference, exists bool) string {
	what := fmt.Sprintf("the %s %s, which valuesFrom names, does not exist in the namespace %s", r.Kind, r.Name, s.Namespace)
	if exists {
		what = fmt.Sprintf("the %s %s in the namespace %s has no key %s, which valuesFrom names", r.Kind, r.Name, s.Namespace, cmp.Or(r.Key, v1alpha1.DefaultValuesKey))
	}
	return what + "; add it, or state optional: true"
}

// readInput returns the text of a key; false without it.
func readInput(object *unstructured.Unstructured, r v1alpha1.ValuesReference) ([]byte, bool) {
	key := cmp.Or(r.Key, v1alpha1.DefaultValuesKey)
	if object == nil {
		return nil, false
	}
	field := "binaryData"
	if r.Kind == v1alpha1.ValuesOfSecret {
		field = "data"
	} else if text, found, err := unstructured.NestedString(object.Object, "data", key); err == nil && found {
		return []byte(text), true
	}
	encoded, found, err := unstructured.NestedString(object.Object, field, key)
	if err != nil || !found {
		return nil, false
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	return text, err == nil
}
