package offline

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/crds"
	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
)

// atollCRD is what the hub installs of a kind of Atoll's API.
type atollCRD struct {
	namespaced bool
	schema     spec.Schema
}

// readDefinitions caches definitions by kind: to read one takes milliseconds.
var readDefinitions sync.Map

// kindPrefix comes before spec.names.kind in a generated definition.
const kindPrefix = "\n    kind: "

// definitionFiles returns the file of each kind of Atoll's API that people write.
var definitionFiles = sync.OnceValues(func() (map[string]string, error) {
	files := map[string]string{}
	for _, group := range []string{v1alpha1.GroupVersion.Group, karmada.GroupVersion.Group} {
		found, err := fs.Glob(crds.Files, group+"_*.yaml")
		if err != nil {
			return nil, fmt.Errorf("find Atoll's schemas: %w", err)
		}
		for _, f := range found {
			text, err := crds.Files.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("read Atoll's schema %s: %w", f, err)
			}
			_, rest, _ := strings.Cut(string(text), kindPrefix)
			kind, _, _ := strings.Cut(rest, "\n")
			files[kind] = f
		}
	}
	return files, nil
})

// findAtollCRD returns the definition of a kind of Atoll's API; nil where there is none. It is
// read-only.
func findAtollCRD(kind string) (*atollCRD, error) {
	if known, ok := readDefinitions.Load(kind); ok {
		return known.(*atollCRD), nil
	}
	files, err := definitionFiles()
	if err != nil || files[kind] == "" {
		return nil, err
	}
	read, err := readAtollCRD(files[kind])
	if err != nil {
		return nil, fmt.Errorf("read Atoll's schema %s: %w", files[kind], err)
	}
	readDefinitions.Store(kind, read)
	return read, nil
}

func readAtollCRD(file string) (*atollCRD, error) {
	var crd struct {
		Spec struct {
			Scope    string
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				}
			}
		}
	}
	text, err := crds.Files.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	if n := len(crd.Spec.Versions); n != 1 {
		return nil, fmt.Errorf("it has %d versions", n)
	}
	raw, err := utiljson.Marshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	k := &atollCRD{namespaced: crd.Spec.Scope == "Namespaced"}
	return k, utiljson.Unmarshal(raw, &k.schema)
}

// ReadTyped reads an object of Atoll's API as a T, as the hub would store it: with defaults, and with
// an error that names every field that is unknown, has no valid value, or breaks a rule of the schema.
func ReadTyped[T any](u *unstructured.Unstructured) (*T, error) {
	k, err := findAtollCRD(u.GetKind())
	if err != nil {
		return nil, err
	}
	if k == nil {
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
		errs = append(errs, findBrokenRules(obj, &k.schema)...)
	}
	if len(errs) == 0 {
		errs = findUnknownFields(obj, &k.schema)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s %s: %w", u.GetKind(), strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/"), err)
	}
	return &out, nil
}

// findUnknownFields returns an error for each field that the schema does not have. Types that decode
// themselves report none.
func findUnknownFields(obj map[string]any, root *spec.Schema) (errs []error) {
	walkSchema(obj, root, nil, func(v any, s *spec.Schema, at *field.Path) {
		m, isMap := v.(map[string]any)
		keeps, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
		if !isMap || keeps || len(s.Properties) == 0 {
			return
		}
		for name := range m {
			if schemaBelow(s, name) == nil {
				errs = append(errs, fmt.Errorf("unknown field %q", at.Child(name)))
			}
		}
	})
	return errs
}

// fillDefaults adds the fields that the schema adds where they are not stated.
func fillDefaults(obj map[string]any, root *spec.Schema) {
	walkSchema(obj, root, nil, func(v any, s *spec.Schema, _ *field.Path) {
		m, isMap := v.(map[string]any)
		for name, p := range s.Properties {
			if _, has := m[name]; isMap && !has && p.Default != nil {
				m[name] = runtime.DeepCopyJSONValue(p.Default)
			}
		}
	})
}

// walkSchema calls visit with a value and its schema, and then with each value below that has a schema.
// visit may add to a map.
func walkSchema(v any, s *spec.Schema, at *field.Path, visit func(v any, s *spec.Schema, at *field.Path)) {
	visit(v, s, at)
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			if below := schemaBelow(s, name); below != nil {
				walkSchema(child, below, at.Child(name), visit)
			}
		}
	case []any:
		if s.Items != nil && s.Items.Schema != nil {
			for i, e := range v {
				walkSchema(e, s.Items.Schema, at.Index(i), visit)
			}
		}
	}
}

// schemaBelow returns the schema of a field or of a key; nil where there is none.
func schemaBelow(s *spec.Schema, name string) *spec.Schema {
	if p, ok := s.Properties[name]; ok {
		return &p
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Schema
	}
	return nil
}
