package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// Schemas of the hub's own kinds that people write, by kind, as the hub installs them.
// Read-only.
type Schemas map[string]kindSchema

type kindSchema struct {
	namespaced bool
	schema     spec.Schema
}

// ReadSchemas returns the schemas that this program brings along.
func ReadSchemas() (Schemas, error) {
	var files []string
	for _, group := range []string{v1alpha1.GroupVersion.Group, karmada.GroupVersion.Group} {
		found, err := fs.Glob(crds.Files, group+"_*.yaml")
		if err != nil {
			return nil, fmt.Errorf("read Atoll's schemas: %w", err)
		}
		files = append(files, found...)
	}
	out := Schemas{}
	for _, f := range files {
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Scope    string
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		text, err := crds.Files.ReadFile(f)
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil || len(crd.Spec.Versions) != 1 {
			return nil, fmt.Errorf("read Atoll's schema %s: %d versions, %w", f, len(crd.Spec.Versions), err)
		}
		one := kindSchema{namespaced: crd.Spec.Scope == "Namespaced"}
		raw, err := utiljson.Marshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if err == nil {
			err = utiljson.Unmarshal(raw, &one.schema)
		}
		if err != nil {
			return nil, fmt.Errorf("read Atoll's schema %s: %w", f, err)
		}
		out[crd.Spec.Names.Kind] = one
	}
	return out, nil
}

// ReadTyped reads an object of Atoll's API as a T, as the hub would store it: with defaults,
// and with an error that names every field that is unknown or has no valid value.
func ReadTyped[T any](s Schemas, u *unstructured.Unstructured) (*T, error) {
	k, ok := s[u.GetKind()]
	if !ok {
		return nil, fmt.Errorf("atoll.dev has no kind %s", u.GetKind())
	}
	obj := runtime.DeepCopyJSON(u.Object)
	fillDefaults(obj, &k.schema)
	errs := slices.Clone(validate.NewSchemaValidator(&k.schema, nil, "", strfmt.Default).Validate(obj).Errors)
	var out T
	if len(errs) == 0 {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj, &out, true); err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"), err)
	}
	return &out, nil
}

// fillDefaults fills in in what the schema says is there when it is not stated.
func fillDefaults(v any, s *spec.Schema) {
	switch v := v.(type) {
	case map[string]any:
		fillProperties(v, s.Properties)
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			for name := range v {
				fillDefaults(v[name], s.AdditionalProperties.Schema)
			}
		}
	case []any:
		if s.Items == nil || s.Items.Schema == nil {
			return
		}
		for i := range v {
			fillDefaults(v[i], s.Items.Schema)
		}
	}
}

func fillProperties(v map[string]any, properties map[string]spec.Schema) {
	for name, p := range properties {
		if _, has := v[name]; !has && p.Default != nil {
			v[name] = runtime.DeepCopyJSONValue(p.Default)
		}
		if child, has := v[name]; has {
			fillDefaults(child, &p)
		}
	}
}
