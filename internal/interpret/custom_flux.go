package interpret

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// fluxed kinds report as kstatus reads it: Stalled, Reconciling, Ready.
var fluxed = kind{health: judge(reading{paused: at("spec.suspend"), bad: []string{"Stalled"}, busy: []string{"Reconciling"}, must: []string{"Ready"}})}

// flux: what it installs, the sources it does so from, and whom it tells.
var flux = custom{
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}:     fluxed,
	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}:            fluxed,
	{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}:        fluxed,
	{Group: "source.toolkit.fluxcd.io", Kind: "OCIRepository"}:        fluxed,
	{Group: "source.toolkit.fluxcd.io", Kind: "Bucket"}:               fluxed,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmChart"}:            fluxed,
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmRepository"}:       {health: helmRepositoryHealth},
	{Group: "image.toolkit.fluxcd.io", Kind: "ImageRepository"}:       fluxed,
	{Group: "image.toolkit.fluxcd.io", Kind: "ImagePolicy"}:           fluxed,
	{Group: "image.toolkit.fluxcd.io", Kind: "ImageUpdateAutomation"}: fluxed,
	{Group: "notification.toolkit.fluxcd.io", Kind: "Receiver"}:       fluxed,
	{Group: "notification.toolkit.fluxcd.io", Kind: "Provider"}:       {health: unlessSilent}, // later versions have no status
	{Group: "notification.toolkit.fluxcd.io", Kind: "Alert"}:          {health: unlessSilent},
}

// helmRepositoryHealth: one of type oci is only read by others, and nobody reports on it
// since version 2.3.
func helmRepositoryHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if text(spec(obj), "type") == "oci" {
		return unlessSilent(obj)
	}
	return fluxed.health(obj)
}

// unlessSilent is for kinds on which older versions report and later ones do not: without a
// condition they are healthy by existing, although the API server fills in a status that
// says observedGeneration: -1.
func unlessSilent(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if !unreadable(obj) && len(conditionsOf(status(obj))) == 0 {
		return healthy()
	}
	return fluxed.health(obj)
}
