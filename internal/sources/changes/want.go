package changes

import (
	"cmp"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/sources/render"
)

// NewWant returns what a Source reads of a commit, and how objects are made of it, without the inputs. Variants that are excluded
// read nothing.
func NewWant(s *v1alpha1.Source) render.Want {
	w := render.Want{Paths: s.Spec.Paths, Exclude: s.Spec.Exclude, Options: newOptions(s)}
	for _, v := range s.Spec.Variants {
		if v.Exclude {
			continue
		}
		one := render.Variant{Name: v.Name, Paths: v.Paths, Options: newOptions(s)}
		for _, p := range v.Patches {
			one.Patches = append(one.Patches, p.Raw)
		}
		if h := one.Options.Helm; h != nil {
			h.MayBeUnused = len(v.Paths) > 0
		}
		if v.Helm != nil {
			if one.Options.Helm == nil {
				one.Options.Helm = &render.HelmOptions{}
			}
			one.Options.Helm.VariantFiles, one.Options.Helm.MayBeUnused = v.Helm.ValuesFiles, false
			one.Options.Helm.VariantFrom = inputIDs(v.Helm.ValuesFrom)
			if v.Helm.Values != nil {
				one.Options.Helm.VariantValues = v.Helm.Values.Raw
			}
		}
		w.Variants = append(w.Variants, one)
	}
	return w
}

// newOptions returns the options of the builds of a Source.
func newOptions(s *v1alpha1.Source) render.Options {
	o := render.Options{ReleaseName: s.Name, Namespace: cmp.Or(s.Spec.TargetNamespace, s.Namespace)}
	b := s.Spec.Build
	if b == nil {
		return o
	}
	o.Type = render.Type(b.Type)
	if h := b.Helm; h != nil {
		o.ReleaseName = cmp.Or(h.ReleaseName, s.Name)
		o.Helm = &render.HelmOptions{ValuesFiles: h.ValuesFiles, KubeVersion: h.KubeVersion, APIVersions: h.APIVersions, OmitHooks: h.Hooks == v1alpha1.HooksOmit, RefuseHooks: h.Hooks == v1alpha1.HooksRefuse}
		o.Helm.ValuesFrom = inputIDs(h.ValuesFrom)
		if h.Values != nil {
			o.Helm.Values = h.Values.Raw
		}
	}
	return o
}
