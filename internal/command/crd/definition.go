package crd

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"atoll.dev/atoll/internal/atoll"
)

const definitionKind = "CustomResourceDefinition"

var definitionResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// definition is a CustomResourceDefinition whose form was checked. Its object is shared and not to be
// changed.
type definition struct {
	object *unstructured.Unstructured
	spec   definitionSpec
}

// definitionSpec has the fields of a definition that this package reads.
type definitionSpec struct {
	Group string `json:"group"`
	Names struct {
		Plural     string   `json:"plural"`
		Singular   string   `json:"singular"`
		Kind       string   `json:"kind"`
		ShortNames []string `json:"shortNames"`
	} `json:"names"`
	Versions   []definitionVersion                       `json:"versions"`
	Conversion *apiextensionsv1.CustomResourceConversion `json:"conversion"`
}

type definitionVersion struct {
	Name    string `json:"name"`
	Served  bool   `json:"served"`
	Storage bool   `json:"storage"`
}

// readDefinition checks the form of what an API answered. The error continues a sentence about the API.
func readDefinition(o *unstructured.Unstructured) (definition, error) {
	d := definition{object: o}
	if gvk := o.GroupVersionKind(); gvk != apiextensionsv1.SchemeGroupVersion.WithKind(definitionKind) {
		return d, fmt.Errorf("answered with %s in place of a %s", gvk, definitionKind)
	}
	var read struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec definitionSpec `json:"spec"`
	}
	name := o.GetName()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &read); err != nil {
		return d, fmt.Errorf("answered with a definition %q that has another form: %w", name, err)
	}
	d.spec = read.Spec
	problems := validation.IsDNS1123Subdomain(name)
	if len(problems) > 0 || name != d.spec.Names.Plural+"."+d.spec.Group || d.spec.Names.Kind == "" || len(d.spec.Versions) == 0 {
		return d, fmt.Errorf("answered with a definition %q that has another name than its resource, no kind or no version", name)
	}
	return d, nil
}

func (d definition) fullName() string { return d.object.GetName() }

// isCalled reports whether the definition has a short form of a name, whatever its case.
func (d definition) isCalled(name string) bool {
	for _, own := range append([]string{d.spec.Names.Plural, d.spec.Names.Singular, d.spec.Names.Kind}, d.spec.Names.ShortNames...) {
		if own != "" && strings.EqualFold(own, name) {
			return true
		}
	}
	return false
}

// isHubOwned reports whether the hub, or an agent, brings the definition itself: Atoll's kinds, and those
// of other systems that the hub serves.
func (d definition) isHubOwned() bool {
	return atoll.IsOwnMetadataKey(d.spec.Group+"/") || atoll.IsHubOwnedKind(schema.GroupKind{Group: d.spec.Group, Kind: d.spec.Names.Kind})
}
