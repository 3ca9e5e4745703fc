package server

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/binder"
	"atoll.dev/atoll/internal/overrides"
	"atoll.dev/atoll/internal/preview"
)

// refuseDividedReplicas takes out the override policies that set replicas which a placement divides,
// as all that is supposed would have it, and reports whether there were any: admission, which
// sees one object at a time, would refuse one whose placement hands replicas over in the same
// files.
func (s *hypotheticalState) refuseDividedReplicas(foreseen []binder.PreviewedBundle) bool {
	had := len(s.ownObjects)
	s.ownObjects = slices.DeleteFunc(s.ownObjects, func(o client.Object) bool {
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
			if err := checkDividedReplicas(foreseen[i].Content, kind+"/"+name); err != nil {
				s.refused = append(s.refused, preview.Refusal{Object: kind + " " + name, Why: err.Error(), Reason: atoll.ReasonReplicasDivided})
				return true
			}
		}
		return false
	})
	return len(s.ownObjects) < had
}

// checkDividedReplicas returns which replicas that are divided, and not handed over, a policy's rules set
// in a content; nil: none.
func checkDividedReplicas(content *atoll.Content, policy string) error {
	if content == nil {
		return nil
	}
	for i := range content.Rules {
		r := &content.Rules[i]
		if r.Policy != policy || !overrides.CanSetReplicas(r.Overriders) {
			continue
		}
		for j := range content.Items {
			if item := &content.Items[j]; item.Divided && !item.ReplicaOverrides && slices.Contains(r.Items, item.Key) {
				at := field.NewPath("spec", "overrideRules").Index(r.Index).Child("overriders")
				return admission.DividedReplicasError(r.Overriders, item.Key, at)
			}
		}
	}
	return nil
}
