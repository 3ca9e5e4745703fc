// Package v1alpha1 is what people write to Atoll: Clusters, propagation and
// override policies, and the Bundles that Atoll makes of them.
//
// Contract: the types hold exactly the fields that Atoll honours. A field that
// nothing reads does not exist, so that the API server's strict field
// validation refuses it with its path. Every default is stated in the field's
// comment and is applied by the CRD schema, never by a reader of the object.
// The policy kinds use the field names and meanings of Karmada's
// policy.karmada.io/v1alpha1; fields that Karmada does not have say so.
//
// +kubebuilder:object:generate=true
// +groupName=atoll.dev
package v1alpha1
