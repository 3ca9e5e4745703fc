package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// fluxTraits are for kinds with the conditions of kstatus: Stalled, Reconciling, Ready.
var fluxTraits = kindTraits{health: newHealthFunc(healthReader{pausedField: parsePath("spec.suspend"), degradedConditions: []string{"Stalled"}, progressingConditions: []string{"Reconciling"}, requiredConditions: []string{"Ready"}})}

// fluxKinds: releases, sources and notifications of Flux.
var fluxKinds = customKinds{
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}:     fluxTraits,
	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}:            {health: fluxTraits.health, sumFields: parsePaths("failures", "installFailures", "upgradeFailures")},
	{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}:        fluxTraits,
	{Group: "source.toolkit.fluxcd.io", Kind: "OCIRepository"}:        fluxTraits,
	{Group: "source.toolkit.fluxcd.io", Kind: "Bucket"}:               fluxTraits,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmChart"}:            fluxTraits,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmRepository"}:       {health: helmRepositoryHealth},
	{Group: "image.toolkit.fluxcd.io", Kind: "ImageRepository"}:       fluxTraits,
	{Group: "image.toolkit.fluxcd.io", Kind: "ImagePolicy"}:           fluxTraits,
	{Group: "image.toolkit.fluxcd.io", Kind: "ImageUpdateAutomation"}: fluxTraits,
	{Group: "notification.toolkit.fluxcd.io", Kind: "Receiver"}:       fluxTraits,
	{Group: "notification.toolkit.fluxcd.io", Kind: "Provider"}:       {health: fluxHealthIfReported}, // later versions have no status
	{Group: "notification.toolkit.fluxcd.io", Kind: "Alert"}:          {health: fluxHealthIfReported},
}

// helmRepositoryHealth: since version 2.3 repositories of type oci have no status.
func helmRepositoryHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if stringField(specOf(obj), "type") == "oci" {
		return fluxHealthIfReported(obj)
	}
	return fluxTraits.health(obj)
}

// fluxHealthIfReported is for kinds whose later versions report nothing. Without a condition
// they are healthy by existence, although the API server defaults observedGeneration to -1.
func fluxHealthIfReported(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if !hasUnreadableStatus(obj) && len(conditionsOf(statusOf(obj))) == 0 {
		return healthyResult()
	}
	return fluxTraits.health(obj)
}
