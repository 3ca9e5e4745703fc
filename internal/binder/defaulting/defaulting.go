// Package defaulting applies the defaults of the API that this hub serves. Built-in kinds use
// the scheme of the linked API server, and custom resources the schema of their CRD.
//
// Contract: Default never changes its argument. An object of a kind that is neither built in nor
// has a CRD is returned unchanged. Schemas are cached until their CRD changes. Everything is
// safe for concurrent use.
package defaulting

import (
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	registration "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install" // every group that the hub serves
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
)

// Defaulter fills in defaults. Make it with New.
type Defaulter struct {
	findDefinition func(schema.GroupKind) *unstructured.Unstructured
	schemes        []*runtime.Scheme

	mu    sync.Mutex
	cache map[schema.GroupKind]schemaVersions
}

// schemaVersions is a CRD's schemas by version.
type schemaVersions struct {
	uid        string
	generation int64
	versions   map[string]*structuralschema.Structural
}

// New makes a Defaulter. definition returns the CRD of a kind, as apiextensions.k8s.io/v1, or
// nil.
func New(definition func(schema.GroupKind) *unstructured.Unstructured) *Defaulter {
	others := runtime.NewScheme()
	extensions.Install(others)
	registration.Install(others)
	return &Defaulter{
		findDefinition: definition,
		schemes:        []*runtime.Scheme{legacyscheme.Scheme, others},
		cache:          map[schema.GroupKind]schemaVersions{},
	}
}

// Default returns obj with the API's defaults filled in. The error names the part of the object, or
// of its CRD's schema, that does not fit.
func (d *Defaulter) Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	gvk := obj.GroupVersionKind()
	for _, s := range d.schemes {
		if s.Recognizes(gvk) {
			return defaultBuiltin(s, gvk, obj)
		}
	}
	structural, err := d.structuralSchemaOf(gvk)
	if err != nil || structural == nil {
		return obj, err
	}
	filled := obj.DeepCopy()
	structuraldefaulting.Default(filled.Object, structural)
	return filled, nil
}

func defaultBuiltin(s *runtime.Scheme, gvk schema.GroupVersionKind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	typed, err := s.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", gvk, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	s.Default(typed)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("write %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// structuralSchemaOf returns the schema of a custom resource; nil when there is none.
func (d *Defaulter) structuralSchemaOf(gvk schema.GroupVersionKind) (*structuralschema.Structural, error) {
	if d.findDefinition == nil {
		return nil, nil
	}
	crd := d.findDefinition(gvk.GroupKind())
	if crd == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known, ok := d.cache[gvk.GroupKind()]
	if !ok || known.uid != string(crd.GetUID()) || known.generation != crd.GetGeneration() {
		var err error
		if known, err = readSchemas(crd); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", crd.GetName(), err)
		}
		d.cache[gvk.GroupKind()] = known
	}
	return known.versions[gvk.Version], nil
}

func readSchemas(crd *unstructured.Unstructured) (schemaVersions, error) {
	def := schemaVersions{uid: string(crd.GetUID()), generation: crd.GetGeneration(), versions: map[string]*structuralschema.Structural{}}
	var typed apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, &typed); err != nil {
		return def, err
	}
	for _, v := range typed.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		var internal apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
			return def, fmt.Errorf("version %s: %w", v.Name, err)
		}
		structural, err := structuralschema.NewStructural(&internal)
		if err != nil {
			return def, fmt.Errorf("version %s: %w", v.Name, err)
		}
		def.versions[v.Name] = structural
	}
	return def, nil
}
