package direct

import (
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	casesensitive "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// storedObject is an object in the form of the store, for writers of a part of it.
type storedObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec,omitempty"`
	Status            json.RawMessage `json:"status,omitempty"`
}

// DeepCopyObject makes it a runtime.Object. Its parts are never changed, only replaced.
func (s *storedObject) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// storedObjectCodec encodes objects of a kind: the JSON that the API server stores custom resources in.
type storedObjectCodec struct {
	kind Kind
	// unreadable is called with the reason why an object cannot be read.
	unreadable func(error)
}

func (storedObjectCodec) Encode(obj runtime.Object, w io.Writer) error {
	return json.NewEncoder(w).Encode(obj)
}

func (storedObjectCodec) Identifier() runtime.Identifier { return "atoll.dev/direct" }

// Decode decodes into a *stored for writers, and into the kind's own type for readers.
func (c storedObjectCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, ok := into.(*storedObject)
	if !ok {
		return c.decodeTyped(data, into)
	}
	*o = storedObject{}
	if err := json.Unmarshal(data, o); err != nil {
		return nil, nil, fmt.Errorf("decode a stored object: %w", err)
	}
	kind := o.GroupVersionKind()
	return o, &kind, nil
}

// decodeTyped reads an object as the API would give it: by the rules of its clients' decoder, with
// the schema's defaults, and without fields that neither the type has nor the schema, which is made
// of the type.
func (c storedObjectCodec) decodeTyped(data []byte, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, ok := into.(client.Object)
	if !ok {
		if into != nil {
			return nil, nil, fmt.Errorf("decode %T directly", into)
		}
		obj = c.kind.New()
	}
	err := casesensitive.Unmarshal(data, obj)
	kind := obj.GetObjectKind().GroupVersionKind()
	if err == nil && kind != c.kind.GroupVersionKind {
		err = fmt.Errorf("it is stored as %s, and this hub reads %s", kind, c.kind)
	}
	if err != nil {
		err = fmt.Errorf("decode %s %q directly: %w", c.kind.groupResource(), obj.GetName(), err)
		c.unreadable(err)
		return nil, nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if obj.GetGeneration() == 0 { // as the API repairs it
		obj.SetGeneration(1)
	}
	if c.kind.Default != nil {
		c.kind.Default(obj)
	}
	return obj, &kind, nil
}
