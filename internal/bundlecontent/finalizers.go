package bundlecontent

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/atoll"
)

// sentFinalizers returns the finalizers that members have of the item. Content that cannot be read has
// none: its finalizers stay in members.
func sentFinalizers(item *atoll.Item) []string {
	obj := &unstructured.Unstructured{}
	if utiljson.Unmarshal(item.Object, &obj.Object) != nil {
		return nil
	}
	return obj.GetFinalizers()
}

// recordReleasedFinalizers moves the finalizers that the template lost since its deletion began to the released
// ones. A template that is gone has lost all of them. A template that is missing without a deletion that
// was seen releases none.
func (p *contentBuilder) recordReleasedFinalizers(t atoll.Tombstone) atoll.Tombstone {
	if len(t.Finalizers) == 0 {
		return t
	}
	var left []string
	template, exists := p.templates.TemplateOf(t.Key)
	switch {
	case exists && string(template.GetUID()) == t.UID:
		left = template.GetFinalizers()
	case !p.templates.WasDeleted(t.Key, t.UID):
		return t
	}
	var kept []string
	released := slices.Clone(t.ReleasedFinalizers)
	for _, f := range t.Finalizers {
		if slices.Contains(left, f) {
			kept = append(kept, f)
		} else {
			released = append(released, f)
		}
	}
	slices.Sort(released)
	t.Finalizers, t.ReleasedFinalizers = kept, released
	return t
}
