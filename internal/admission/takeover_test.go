package admission

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

func TestThePolicyFieldThatOverwrites(t *testing.T) {
	rules := func(all ...v1alpha1.ConflictResolution) (out []v1alpha1.ItemRule) {
		for _, r := range all {
			out = append(out, v1alpha1.ItemRule{ConflictResolution: r})
		}
		return out
	}
	for want, spec := range map[string]v1alpha1.PropagationSpec{
		"":                                     {ConflictResolution: v1alpha1.ConflictAdoptIfSame, ItemRules: rules(v1alpha1.ConflictAbort, "")},
		"spec.conflictResolution":              {ConflictResolution: v1alpha1.ConflictOverwrite},
		"spec.itemRules[1].conflictResolution": {ConflictResolution: v1alpha1.ConflictAbort, ItemRules: rules("", v1alpha1.ConflictOverwrite)},
	} {
		if got := overwritingField(&spec); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An annotation that overwrites needs the verb takeover on the policies of the namespace, and only when it is new.
func TestAnAnnotationThatOverwrites(t *testing.T) {
	p := New(Options{Own: func(user.Info) bool { return false }})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "fleet" && a.GetVerb() == "takeover" && (a.GetResource() == "clusterpropagationpolicies") == (a.GetNamespace() == "") {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	overwrites, aborts := map[string]string{atoll.AnnotationConflict: "Overwrite"}, map[string]string{atoll.AnnotationConflict: "Abort"}
	for name, c := range map[string]struct {
		who, namespace string
		now, before    map[string]string
		isUpdate       bool
		refused        string
	}{
		"a new object":               {who: "ann", namespace: "shop", now: overwrites, refused: "takeover on propagationpolicies.atoll.dev"},
		"a new cluster-wide object":  {who: "ann", now: overwrites, refused: "takeover on clusterpropagationpolicies.atoll.dev"},
		"an edit":                    {who: "ann", namespace: "shop", now: overwrites, before: aborts, isUpdate: true, refused: "takeover"},
		"it was stated before":       {who: "ann", namespace: "shop", now: overwrites, before: overwrites, isUpdate: true},
		"it is taken back":           {who: "ann", namespace: "shop", now: aborts, before: overwrites, isUpdate: true},
		"a user with the right":      {who: "fleet", namespace: "shop", now: overwrites},
		"the right on all of a kind": {who: "fleet", now: overwrites},
	} {
		before := newThing(c.namespace, c.before)
		if !c.isUpdate {
			before = nil
		}
		err := p.validateConflictAnnotationRight(t.Context(), thingAttributes(c.who, newThing(c.namespace, c.now), before))
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
}
