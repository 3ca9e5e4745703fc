package hub

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bind"
	"atoll.dev/atoll/internal/plan"
	"atoll.dev/atoll/internal/render"
)

// refuseDivided takes out the override policies that set replicas which a placement divides,
// as all that is supposed would have it, and tells whether there were any: admission, which
// sees one object at a time, would refuse one whose placement hands replicas over in the same
// files.
func (s *supposed) refuseDivided(foreseen []bind.Foreseen) bool {
	had := len(s.ours)
	s.ours = slices.DeleteFunc(s.ours, func(o client.Object) bool {
		if o.GetDeletionTimestamp() != nil {
			return false
		}
		kind := ""
		switch o.(type) {
		case *v1alpha1.OverridePolicy:
			kind = "OverridePolicy"
		case *v1alpha1.ClusterOverridePolicy:
			kind = "ClusterOverridePolicy"
		default:
			return false
		}
		name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		for i := range foreseen {
			if err := setsDivided(foreseen[i].Content, kind+"/"+name); err != nil {
				s.refused = append(s.refused, plan.Refusal{Object: kind + " " + name, Why: err.Error()})
				return true
			}
		}
		return false
	})
	return len(s.ours) < had
}

// setsDivided says which replicas that are divided, and not handed over, a policy's rules set
// in a content; nil: none.
func setsDivided(content *atoll.Content, policy string) error {
	if content == nil {
		return nil
	}
	for i := range content.Rules {
		r := &content.Rules[i]
		if r.Policy != policy || !render.SetsReplicas(r.Overriders) {
			continue
		}
		for j := range content.Items {
			if item := &content.Items[j]; item.Divided && !item.ReplicaOverrides && slices.Contains(r.Items, item.Key) {
				at := field.NewPath("spec", "overrideRules").Index(r.Index).Child("overriders")
				return admission.NotDivided(r.Overriders, item.Key, at)
			}
		}
	}
	return nil
}
