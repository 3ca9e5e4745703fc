package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"atoll.dev/atoll/internal/atoll"
)

// Users write nothing that the hub writes, but for their answers: a confirmation on a Bundle, the
// acceptance of a restored state, the deletion of an APISet.
func TestUsersOnlyAnswerWhatTheHubWrites(t *testing.T) {
	object := func(apiVersion, kind, rest string) *unstructured.Unstructured {
		return unstructuredOf(t, "{apiVersion: "+apiVersion+", kind: "+kind+", metadata: {name: web, namespace: shop}"+rest+"}")
	}
	bundle := func(kind string, annotations ...string) *unstructured.Unstructured {
		u := object("atoll.dev/v1alpha1", kind, ", spec: {source: {kind: Annotation}}")
		of := map[string]string{}
		for i := 0; i < len(annotations); i += 2 {
			of[annotations[i]] = annotations[i+1]
		}
		if len(of) > 0 {
			u.SetAnnotations(of)
		}
		return u
	}
	newer := func(u *unstructured.Unstructured) *unstructured.Unstructured {
		u.SetResourceVersion("2")
		u.SetGeneration(3)
		_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"manager": "kubectl"}}, "metadata", "managedFields")
		return u
	}
	const (
		engine  = "engine.atoll.dev/v1alpha1"
		other   = "only the annotation atoll.dev/confirm, atoll.dev/keep, atoll.dev/rebalance, atoll.dev/correct-drift or atoll.dev/removal-hooks, or spec.pause, spec.resume, spec.freezeExemption or spec.approvals, of a Bundle may be changed, and one at a time: edit the policy, annotation or object that it comes from"
		decides = "only the hub writes a PlacementDecision: edit the placement that it comes from"
		state   = "only rewound.accepted of the hub's state may be changed, by: atoll restore accept"
	)
	written := func(kind string) string {
		return "only the hub writes a " + kind + ": edit the policy, annotation or object that it comes from"
	}
	decision := object("atoll.dev/v1alpha1", "PlacementDecision", "")
	for name, c := range map[string]struct {
		a    admission.Attributes
		want string
	}{
		"a Bundle is created":            {requestOf("ann", bundle("Bundle"), nil), written("Bundle")},
		"a Bundle is deleted":            {requestOf("ann", nil, bundle("Bundle")), written("Bundle")},
		"a ClusterBundle is deleted":     {requestOf("ann", nil, bundle("ClusterBundle")), written("ClusterBundle")},
		"a removal is confirmed":         {requestOf("ann", newer(bundle("Bundle", atoll.AnnotationConfirm, "x")), bundle("Bundle")), ""},
		"a removal is withdrawn":         {requestOf("ann", bundle("Bundle", atoll.AnnotationKeep, "x"), bundle("Bundle")), ""},
		"of a ClusterBundle, too":        {requestOf("ann", bundle("ClusterBundle", atoll.AnnotationConfirm, "x"), bundle("ClusterBundle")), ""},
		"a confirmation is taken back":   {requestOf("ann", bundle("Bundle", "a", "b"), bundle("Bundle", "a", "b", atoll.AnnotationConfirm, "x")), ""},
		"two answers at once":            {requestOf("ann", bundle("Bundle", atoll.AnnotationConfirm, "x", atoll.AnnotationKeep, "x"), bundle("Bundle")), other},
		"another annotation":             {requestOf("ann", bundle("Bundle", "a", "b"), bundle("Bundle")), other},
		"hooks of a removal are skipped": {requestOf("ann", bundle("Bundle", atoll.AnnotationRemovalHooks, "Skip"), bundle("Bundle")), ""},
		"they are run again":             {requestOf("ann", bundle("ClusterBundle", atoll.AnnotationRemovalHooks, "Retry-2"), bundle("ClusterBundle", atoll.AnnotationRemovalHooks, "Retry")), ""},
		"the order is taken back":        {requestOf("ann", bundle("Bundle"), bundle("Bundle", atoll.AnnotationRemovalHooks, "Skip")), ""},
		"a confirmation of the status":   {onSubresource(requestOf("ann", bundle("Bundle", atoll.AnnotationConfirm, "x"), bundle("Bundle")), "status"), written("Bundle")},
		"a decision is edited":           {requestOf("ann", decision, decision), decides},
		"a decision is deleted":          {requestOf("ann", nil, decision), decides},
		"a decision goes with its owner": {requestOf(collector, nil, decision), ""},
		"a decision of a whole cluster": {requestOf("ann", nil, object("atoll.dev/v1alpha1", "ClusterPlacementDecision", "")),
			"only the hub writes a ClusterPlacementDecision: edit the placement that it comes from"},
		"a Revision is deleted":        {requestOf("ann", nil, object(engine, "Revision", "")), written("Revision")},
		"a Revision is edited":         {requestOf("ann", object(engine, "Revision", ", data: x"), object(engine, "Revision", "")), written("Revision")},
		"an APISet is deleted":         {requestOf("ann", nil, object(engine, "APISet", "")), ""},
		"an APISet is edited":          {requestOf("ann", object(engine, "APISet", ", a: b"), object(engine, "APISet", "")), written("APISet")},
		"a restored state is accepted": {requestOf("ann", object(engine, "HubState", ", rewound: {accepted: true, at: x}"), object(engine, "HubState", ", rewound: {at: x}")), ""},
		"a state is edited":            {requestOf("ann", object(engine, "HubState", ", rewound: {accepted: true, at: y}"), object(engine, "HubState", ", rewound: {at: x}")), state},
		"a state is deleted":           {requestOf("ann", nil, object(engine, "HubState", "")), written("HubState")},
	} {
		wantRefusal(t, name, newGrantingPlugin(Hub{}).Validate(t.Context(), c.a, nil), atoll.ReasonWrittenByHub, c.want)
	}
}

// Only custom resources are compared by field.
func TestOnlyCustomResourcesAreComparedByField(t *testing.T) {
	u := newThing("shop", nil)
	a := requestOf("ann", u, u)
	path := []string{"metadata", "annotations", "a"}
	if !changesOnlyField(a, path) {
		t.Error("an update without a change changes another field")
	}
	if typed := admission.NewAttributesRecord(nil, u, a.GetKind(), "shop", "t", a.GetResource(), "", admission.Update, nil, false, a.GetUserInfo()); changesOnlyField(typed, path) {
		t.Error("an object of unknown fields is compared")
	}
	if typed := admission.NewAttributesRecord(u, nil, a.GetKind(), "shop", "t", a.GetResource(), "", admission.Update, nil, false, a.GetUserInfo()); changesOnlyField(typed, path) {
		t.Error("an object is compared with nothing")
	}
}
