package apiserver

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"atoll.dev/atoll/internal/apiserver/conversion"
	"atoll.dev/atoll/internal/apiserver/inert"
)

// builtinAdmission returns the plugins that make the API server the hub's, ahead of those in the
// options.
func (s *Server) builtinAdmission() []AdmissionPlugin {
	return []AdmissionPlugin{
		{Name: "AtollInert", Handler: inert.NewInertLabelAdmission(s.identities.isProcessUser)},
		{Name: "AtollConversion", Handler: conversion.NewCRDConversionPlugin()},
		{Name: "AtollLossyVersion", Handler: conversion.NewCustomResourceLossPlugin(s.definitions.Wait)},
	}
}

// customResourceReader notifies admission of CRDs and custom resources.
type customResourceReader struct {
	crds    apiextensionslisters.CustomResourceDefinitionLister
	objects dynamic.Interface
}

var _ conversion.Backend = customResourceReader{}

func (s *Server) setDefinitions(extensions *apiextensions.CustomResourceDefinitions) error {
	objects, err := dynamic.NewForConfig(s.LoopbackConfig())
	if err != nil {
		return fmt.Errorf("make client of custom resources: %w", err)
	}
	s.definitions.Set(customResourceReader{crds: extensions.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister(), objects: objects})
	return nil
}

func (d customResourceReader) Definition(_ context.Context, resource schema.GroupResource) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := d.crds.Get(resource.Resource + "." + resource.Group)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return crd, err
}

func (d customResourceReader) Object(ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName) (*unstructured.Unstructured, error) {
	return d.objects.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}
