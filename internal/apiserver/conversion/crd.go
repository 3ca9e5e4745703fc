// Package conversion lets CRDs with a conversion webhook live on a hub where
// that webhook does not run.
//
// Contract: such a CRD is stored with strategy None; its own stanza is kept in
// the annotation atoll.dev/conversion, as JSON of apiextensions.k8s.io/v1, from
// which the manifest restores it. Without a webhook an object changes only its
// apiVersion between versions. A write that would lose a field on its way to the
// stored version and back is refused, with the path of the field. A CRD with the label atoll.dev/hub: "true" keeps its webhook.
// Plugins are safe for concurrent use.
package conversion

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

const (
	yes         = "true"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// NewCRDConversionPlugin returns the plugin that sets the conversion of CRDs aside.
func NewCRDConversionPlugin() admission.MutationInterface {
	return crdConversionPlugin{admission.NewHandler(admission.Create, admission.Update)}
}

type crdConversionPlugin struct{ *admission.Handler }

func (crdConversionPlugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiextensions.Resource("customresourcedefinitions") || a.GetSubresource() != "" {
		return nil
	}
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return refusal.WithReason(atoll.ReasonUnreadable, admission.NewForbidden(a, fmt.Errorf("cannot read a CRD from a %T", a.GetObject())))
	}
	var err error
	if crd.Labels[atoll.LabelHub] == yes {
		err = restoreConversion(crd)
	} else {
		err = setConversionAside(crd)
	}
	if err != nil {
		return refusal.WithReason(atoll.ReasonUnreadable, admission.NewForbidden(a, err))
	}
	return nil
}

func usesWebhook(crd *apiextensions.CustomResourceDefinition) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensions.WebhookConverter
}

// setConversionAside moves the conversion stanza into the annotation.
func setConversionAside(crd *apiextensions.CustomResourceDefinition) error {
	if !usesWebhook(crd) {
		if _, kept := crd.Annotations[atoll.AnnotationConversion]; kept && authorRemovedWebhook(crd) {
			delete(crd.Annotations, atoll.AnnotationConversion)
		}
		return nil
	}
	var out apiextensionsv1.CustomResourceConversion
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceConversion_To_v1_CustomResourceConversion(crd.Spec.Conversion, &out, nil); err != nil {
		return fmt.Errorf("read spec.conversion: %w", err)
	}
	stanza, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("keep spec.conversion: %w", err)
	}
	if crd.Annotations == nil {
		crd.Annotations = map[string]string{}
	}
	crd.Annotations[atoll.AnnotationConversion] = string(stanza)
	crd.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter}
	return nil
}

// restoreConversion restores the conversion stanza of a CRD that acts on the hub.
func restoreConversion(crd *apiextensions.CustomResourceDefinition) error {
	stanza, kept := crd.Annotations[atoll.AnnotationConversion]
	if !kept {
		return nil
	}
	delete(crd.Annotations, atoll.AnnotationConversion)
	if usesWebhook(crd) {
		return nil
	}
	var in apiextensionsv1.CustomResourceConversion
	if err := json.Unmarshal([]byte(stanza), &in); err != nil {
		return fmt.Errorf("metadata.annotations[%s] is not a conversion stanza: %w", atoll.AnnotationConversion, err)
	}
	out := &apiextensions.CustomResourceConversion{}
	if err := apiextensionsv1.Convert_v1_CustomResourceConversion_To_apiextensions_CustomResourceConversion(&in, out, nil); err != nil {
		return fmt.Errorf("metadata.annotations[%s]: %w", atoll.AnnotationConversion, err)
	}
	crd.Spec.Conversion = out
	return nil
}

// authorRemovedWebhook reports whether the CRD's author has stated it without a webhook
// after having stated it with one. An update that merely sends back what the
// hub stores must not lose the stanza, so only statements count that are
// recorded as such: an apply, or kubectl's last-applied annotation.
func authorRemovedWebhook(crd *apiextensions.CustomResourceDefinition) bool {
	if text, ok := crd.Annotations[lastApplied]; ok {
		var stated struct {
			Spec struct {
				Conversion *apiextensionsv1.CustomResourceConversion `json:"conversion"`
			} `json:"spec"`
		}
		if json.Unmarshal([]byte(text), &stated) != nil {
			return false
		}
		c := stated.Spec.Conversion
		return c == nil || c.Strategy != apiextensionsv1.WebhookConverter
	}
	applied := false
	for _, entry := range crd.ManagedFields {
		if entry.Operation != metav1.ManagedFieldsOperationApply || entry.FieldsV1 == nil {
			continue
		}
		applied = true
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
			return false
		}
		if _, owns := owned.Spec["f:conversion"]; owns {
			return false
		}
	}
	return applied
}
