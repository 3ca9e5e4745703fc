package changes

import (
	"cmp"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/render"
)

// NewWant returns what a Source reads of a commit, and how objects are made of it.
func NewWant(s *v1alpha1.Source) render.Want {
	w := render.Want{Paths: s.Spec.Paths, Exclude: s.Spec.Exclude}
	w.Options.ReleaseName, w.Options.Namespace = s.Name, cmp.Or(s.Spec.TargetNamespace, s.Namespace)
	b := s.Spec.Build
	if b == nil {
		return w
	}
	w.Options.Type = render.Type(b.Type)
	if h := b.Helm; h != nil {
		w.Options.ReleaseName = cmp.Or(h.ReleaseName, s.Name)
		w.Options.Helm = &render.HelmOptions{ValuesFiles: h.ValuesFiles, KubeVersion: h.KubeVersion, APIVersions: h.APIVersions, OmitHooks: h.Hooks == v1alpha1.HooksOmit, RefuseHooks: h.Hooks == v1alpha1.HooksRefuse}
		if h.Values != nil {
			w.Options.Helm.Values = h.Values.Raw
		}
	}
	return w
}
