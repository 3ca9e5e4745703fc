package overrides

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// schemaNode is the schema of a value. nil is the schema of any value.
type schemaNode interface {
	// lookupChild returns the schema of a key of the value or of an element. known is false when the value has
	// none of that name.
	lookupChild(part string) (below schemaNode, known bool)
}

// schemaOfKind returns the schema of a kind, over all of its versions; known is false when there is
// none.
func schemaOfKind(gk schema.GroupKind, definitionOf DefinitionFinder) (root schemaNode, known bool) {
	var all versionNodes
	for _, gv := range builtInScheme.VersionsForGroupKind(gk) {
		if gv.Version == runtime.APIVersionInternal {
			continue
		}
		if t, known := builtInScheme.KnownTypes(gv)[gk.Kind]; known {
			all = append(all, typeNode{t})
		}
	}
	if len(all) == 0 {
		if definition := definitionOf(gk); definition != nil {
			all = schemasOfDefinition(definition)
		}
	}
	return all, len(all) > 0
}

// schemasOfDefinition returns the schemas of the versions of a custom kind; nil when one of them has
// none, or cannot be read.
func schemasOfDefinition(definition *unstructured.Unstructured) (out versionNodes) {
	var crd apiextensionsv1.CustomResourceDefinition
	if runtime.DefaultUnstructuredConverter.FromUnstructured(definition.Object, &crd) != nil {
		return nil
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return nil
		}
		out = append(out, customRoot{propsNode{v.Schema.OpenAPIV3Schema}})
	}
	return out
}

// versionNodes are the schemas of a value in several versions of its kind. It has what one of them has.
type versionNodes []schemaNode

func (n versionNodes) lookupChild(part string) (below schemaNode, known bool) {
	var all versionNodes
	for _, version := range n {
		b, has := version.lookupChild(part)
		if has && b == nil {
			return nil, true
		}
		if has {
			all = append(all, b)
		}
	}
	return all, len(all) > 0
}

// typeNode is the schema of a built-in kind's Go type.
type typeNode struct{ reflect.Type }

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

func (n typeNode) lookupChild(part string) (below schemaNode, known bool) {
	switch n.Kind() {
	case reflect.Map, reflect.Slice:
		return newTypeNode(n.Elem()), true
	case reflect.Struct:
		if t := findJSONField(n.Type, part); t != nil {
			return newTypeNode(t), true
		}
		return nil, false
	}
	return nil, true // below a text or a number, which is no matter of fields
}

// newTypeNode returns the schema of a type; nil for one that decodes itself, which may take anything.
func newTypeNode(t reflect.Type) schemaNode {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Interface || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		t = reflect.TypeFor[string]() // bytes are a text in JSON
	}
	return typeNode{t}
}

// findJSONField returns the type of the field of that name, also in embedded structs; nil: there is
// none.
func findJSONField(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name && name != "" && name != "-":
			return f.Type
		case tag == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			if found := findJSONField(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// customRoot is the schema of an object of a custom kind, which has metadata besides.
type customRoot struct{ propsNode }

func (n customRoot) lookupChild(part string) (below schemaNode, known bool) {
	if slices.Contains([]string{"apiVersion", "kind", "metadata"}, part) {
		return nil, true
	}
	return n.propsNode.lookupChild(part)
}

// propsNode is the schema of a value of a custom kind.
type propsNode struct {
	*apiextensionsv1.JSONSchemaProps
}

func (n propsNode) lookupChild(part string) (below schemaNode, known bool) {
	if p, has := n.Properties[part]; has {
		return propsNode{&p}, true
	}
	switch {
	case n.XPreserveUnknownFields != nil && *n.XPreserveUnknownFields, n.XEmbeddedResource, n.XIntOrString:
		return nil, true
	case n.AdditionalProperties != nil && n.AdditionalProperties.Schema != nil:
		return propsNode{n.AdditionalProperties.Schema}, true
	case n.AdditionalProperties != nil:
		return nil, n.AdditionalProperties.Allows
	case n.Items != nil && n.Items.Schema != nil:
		return propsNode{n.Items.Schema}, true
	}
	return nil, n.Type != "object" && n.Type != "" // below a text or a number, which is no matter of fields
}
