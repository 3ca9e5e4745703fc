// Package v1alpha1 holds the kinds that people write: Clusters, propagation and override
// policies, and the Bundles that Atoll creates from them.
//
// Contract: the types hold exactly the fields that Atoll honours. A field that no code reads
// does not exist, so that strict field validation refuses it with its path. Every default is
// stated in the field's comment and is applied by the CRD schema, never by a reader of the
// object. The policy kinds use the field names and meanings of Karmada's
// policy.karmada.io/v1alpha1; the comment of a field that Karmada does not have names the
// difference.
//
// +kubebuilder:object:generate=true
// +groupName=atoll.dev
package v1alpha1
