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
	{Group: "notification.toolkit.fluxcd.io", Kind: "Provider"}:       {health: genericHealth}, // later versions have no status
	{Group: "notification.toolkit.fluxcd.io", Kind: "Alert"}:          {health: genericHealth},
}

// helmRepositoryHealth: one of type oci is only read by others and has no status.
func helmRepositoryHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if text(spec(obj), "type") == "oci" && len(status(obj)) == 0 {
		return healthy()
	}
	return fluxed.health(obj)
}
