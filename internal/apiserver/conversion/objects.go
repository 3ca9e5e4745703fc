package conversion

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// Backend is what the plugin calls in the hub.
type Backend interface {
	// Definition returns the CRD of a resource, or nil when it is none. The
	// result is shared and must not be changed.
	Definition(ctx context.Context, resource schema.GroupResource) (*apiextensionsv1.CustomResourceDefinition, error)
	// Object reads a custom resource as the given version.
	Object(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName) (*unstructured.Unstructured, error)
}

// NewCustomResourceLossPlugin returns the plugin that refuses lossy writes of custom resources.
// backend is called on each write of a custom resource.
func NewCustomResourceLossPlugin(backend func(context.Context) (Backend, error)) admission.ValidationInterface {
	return &lossyWritePlugin{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		backend: backend,
		schemas: map[string]*crdSchemas{},
	}
}

type lossyWritePlugin struct {
	*admission.Handler
	backend func(context.Context) (Backend, error)

	mu      sync.Mutex
	schemas map[string]*crdSchemas // by the CRD's name
}

// crdSchemas are the versions of one CRD at one generation.
type crdSchemas struct {
	uid        types.UID
	generation int64
	storage    string
	versions   map[string]*version
}

type version struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
}

func (o *lossyWritePlugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, ok := a.GetObject().(*unstructured.Unstructured)
	if !ok || a.GetSubresource() == "scale" {
		return nil
	}
	errs, err := o.findLosses(ctx, a, obj)
	if err != nil {
		return refusal.WithReason(atoll.ReasonUnreadable, admission.NewForbidden(a, err))
	}
	if len(errs) > 0 {
		return refusal.WithReason(atoll.ReasonNotConvertible, apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), errs))
	}
	return nil
}

// findLosses returns the fields that a write loses between the version of the request and the
// stored one.
func (o *lossyWritePlugin) findLosses(ctx context.Context, a admission.Attributes, obj *unstructured.Unstructured) (field.ErrorList, error) {
	backend, err := o.backend(ctx)
	if err != nil {
		return nil, err
	}
	resource := a.GetResource()
	crd, err := backend.Definition(ctx, resource.GroupResource())
	if err != nil || crd == nil || crd.Annotations[atoll.AnnotationConversion] == "" || len(crd.Spec.Versions) < 2 {
		return nil, err
	}
	s, err := o.schemasOf(crd)
	if err != nil || resource.Version == s.storage {
		return nil, err
	}
	errs := s.checkConversion(obj.Object, resource.Version, s.storage, func(path string) string {
		return fmt.Sprintf("%s stores this kind as version %s, which cannot hold this field as version %s has it, and conversion webhooks do not run on the hub; write the object as %s/%s",
			crd.Name, s.storage, resource.Version, resource.Group, s.storage)
	})
	if a.GetOperation() != admission.Update || len(errs) > 0 {
		return errs, nil
	}
	return o.checkStoredObjectLosses(ctx, backend, s, a)
}

// checkStoredObjectLosses looks for what the stored object holds that the writer could not
// see in the version it read, and so would take away without meaning to.
func (o *lossyWritePlugin) checkStoredObjectLosses(ctx context.Context, backend Backend, s *crdSchemas, a admission.Attributes) (field.ErrorList, error) {
	resource := a.GetResource()
	seen := resource.Version
	resource.Version = s.storage
	stored, err := backend.Object(ctx, resource, types.NamespacedName{Namespace: a.GetNamespace(), Name: a.GetName()})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the stored object to see what version %s would lose: %w", seen, err)
	}
	return s.checkConversion(stored.Object, s.storage, seen, func(string) string {
		return fmt.Sprintf("the stored object has this field, which version %s does not show, and this write would remove it; write the object as %s/%s",
			seen, resource.Group, s.storage)
	}), nil
}

// maxLost bounds the fields that one refusal names. An object of 3 MiB can lose hundreds of thousands,
// and a refusal takes a thousand bytes for each.
const maxLost = 20

// checkConversion reports what obj, an object of version from, loses when it is kept as
// version to.
func (s *crdSchemas) checkConversion(obj map[string]any, from, to string, explain func(path string) string) field.ErrorList {
	source, target := s.versions[from], s.versions[to]
	if source == nil || target == nil {
		return nil
	}
	var errs field.ErrorList
	reportLostFields(obj, source.structural, target.structural, true, nil, func(path *field.Path) bool {
		if len(errs) == maxLost {
			errs[maxLost-1].Detail += "; further fields would be lost as well"
			return false
		}
		errs = append(errs, field.Forbidden(path, explain(path.String())))
		return true
	})
	if len(errs) > 0 || to != s.storage {
		slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
		return errs
	}
	kept := (&unstructured.Unstructured{Object: obj}).DeepCopy().Object
	defaulting.Default(kept, target.structural)
	for i, e := range validation.ValidateCustomResource(nil, kept, target.validator) {
		if i == maxLost {
			break
		}
		errs = append(errs, field.Invalid(field.NewPath(e.Field), e.BadValue, e.Detail+"; "+explain(e.Field)))
	}
	return errs
}

// schemasOf returns the compiled versions of a CRD, from before when it has not
// changed.
func (o *lossyWritePlugin) schemasOf(crd *apiextensionsv1.CustomResourceDefinition) (*crdSchemas, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.schemas[crd.Name]; s != nil && s.uid == crd.UID && s.generation == crd.Generation {
		return s, nil
	}
	s, err := compileSchemas(crd)
	if err != nil {
		return nil, fmt.Errorf("compile the schemas of %s: %w", crd.Name, err)
	}
	o.schemas[crd.Name] = s
	return s, nil
}

func compileSchemas(crd *apiextensionsv1.CustomResourceDefinition) (*crdSchemas, error) {
	s := &crdSchemas{uid: crd.UID, generation: crd.Generation, versions: map[string]*version{}}
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			s.storage = v.Name
		}
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		props := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
			return nil, err
		}
		structural, err := structuralschema.NewStructural(props)
		if err != nil {
			return nil, err
		}
		validator, _, err := validation.NewSchemaValidator(props)
		if err != nil {
			return nil, err
		}
		s.versions[v.Name] = &version{structural: structural, validator: validator}
	}
	return s, nil
}
