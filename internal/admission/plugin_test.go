package admission

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/utils/clock"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
)

func TestThePluginHandlesWritesAndNeedsTheAPIServersParts(t *testing.T) {
	p := New(Options{})
	if !p.Handles(admission.Create) || !p.Handles(admission.Update) || !p.Handles(admission.Delete) || p.Handles(admission.Connect) {
		t.Error("it handles other operations than writes")
	}
	if p.Clock != (clock.RealClock{}) {
		t.Errorf("its clock is a %T", p.Clock)
	}
	const want = "admission: the API server gave no authorizer or no REST mapper"
	whole := newGrantingPlugin(Hub{})
	for name, c := range map[string]struct {
		authorizer, mapper bool
		want               string
	}{
		"nothing":       {false, false, want},
		"no mapper":     {true, false, want},
		"no authorizer": {false, true, want},
		"both":          {true, true, ""},
	} {
		p := New(Options{})
		if c.authorizer {
			p.SetAuthorizer(whole.authorizer)
		}
		if c.mapper {
			p.SetRESTMapper(whole.mapper)
		}
		if err := p.ValidateInitialization(); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A write to a member is no write to a template of the hub: nothing is added to it, and nothing refused.
func TestWritesToMembersPass(t *testing.T) {
	p := newDefaultPlugin()
	for _, c := range []struct{ isMembers, refused bool }{{true, false}, {false, true}} {
		ctx := t.Context()
		if c.isMembers {
			ctx = fleetview.WithMemberWrite(ctx)
		}
		now := newThing("", map[string]string{atoll.AnnotationClusters: "tokyo", atoll.KeyHubOnly: "no"})
		if err := p.Validate(ctx, thingAttributes("ann", now, nil), nil); (err != nil) != c.refused {
			t.Errorf("of a member %t: %v", c.isMembers, err)
		}
		now = newThing("", nil)
		if err := p.Admit(ctx, thingAttributes("fleet", now, nil), nil); err != nil {
			t.Fatal(err)
		}
		if has := len(now.GetFinalizers()) > 0; has == c.isMembers {
			t.Errorf("of a member %t: the object has finalizers: %t", c.isMembers, has)
		}
	}
}

// Only whole objects that are created or updated get a finalizer. Subresources and deletes are left as
// they are.
func TestOnlyWholeObjectsAreAdmittedWithAFinalizer(t *testing.T) {
	p := newDefaultPlugin()
	thing := newThing("", nil)
	a := thingAttributes("fleet", thing, nil)
	if err := p.Admit(t.Context(), onSubresource(a, "status"), nil); err != nil || len(thing.GetFinalizers()) > 0 {
		t.Errorf("on a status: %v, %v", thing, err)
	}
	deleted := admission.NewAttributesRecord(thing, thing, a.GetKind(), "", "t", a.GetResource(), "", admission.Delete, nil, false, a.GetUserInfo())
	if err := p.Admit(t.Context(), deleted, nil); err != nil || len(thing.GetFinalizers()) > 0 {
		t.Errorf("on a delete: %v, %v", thing, err)
	}
	nothing := admission.NewAttributesRecord(nil, nil, a.GetKind(), "", "t", a.GetResource(), "", admission.Create, nil, false, a.GetUserInfo())
	if err := p.Admit(t.Context(), nothing, nil); err != nil {
		t.Errorf("without an object: %v", err)
	}
	if err := p.Admit(t.Context(), a, nil); err != nil || !slices.Equal(thing.GetFinalizers(), []string{atoll.Finalizer}) {
		t.Errorf("a new object: %v, %v", thing, err)
	}
	for _, kind := range []schema.GroupVersionKind{{Group: "atoll.dev", Version: "v1alpha1", Kind: "Placement"}, {Group: "engine.atoll.dev", Version: "v1alpha1", Kind: "Revision"}} {
		own := newThing("", nil)
		own.SetGroupVersionKind(kind)
		if err := p.Admit(t.Context(), requestOf("ann", own, nil), nil); err != nil || len(own.GetFinalizers())+len(own.GetAnnotations()) > 0 {
			t.Errorf("an object of the hub's own API is changed to %v, %v", own, err)
		}
	}
}

// Agents write nothing on the hub. The hub writes everything, but its garbage collector deletes nothing
// that is protected.
func TestTheHubAndAgentsHaveTheirOwnRules(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	p.Own, p.Hub = func(u user.Info) bool { return u.GetName() == "hub" || u.GetName() == collector }, nil
	bad := newThing("shop", map[string]string{atoll.KeyHubOnly: "no"})
	protected := newThing("shop", nil)
	protected.SetLabels(map[string]string{atoll.LabelProtected: "true"})
	const why = `t is labelled atoll.dev/deletion-protected=true: take the label off first if it is to go`
	for name, c := range map[string]struct {
		a      admission.Attributes
		reason atoll.Reason
		want   string
	}{
		"a user's wrong annotation":     {requestOf("ann", bad, nil), atoll.ReasonInvalidField, `atoll.dev/hub-only is "true" or absent, and not "no"`},
		"the hub's":                     {requestOf("hub", bad, nil), "", ""},
		"the garbage collector's":       {requestOf(collector, bad, nil), "", ""},
		"a user deletes it":             {requestOf("ann", nil, protected), atoll.ReasonProtected, why},
		"the hub deletes it":            {requestOf("hub", nil, protected), "", ""},
		"the garbage collector follows": {requestOf(collector, nil, protected), atoll.ReasonProtected, why},
		"a user deletes another":        {requestOf("ann", nil, bad), "", ""},
	} {
		wantRefusal(t, name, p.Validate(t.Context(), c.a, nil), c.reason, c.want)
	}
	agents := &user.DefaultInfo{Name: "tokyo", Groups: []string{"system:authenticated", atoll.GroupAgents}}
	for group, want := range map[string]string{
		"example.com": "agents write nothing on the hub: they report over their stream", "authorization.k8s.io": "", "authentication.k8s.io": "",
	} {
		gvk := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"}
		a := admission.NewAttributesRecord(newThing("shop", nil), nil, gvk, "shop", "t", gvk.GroupVersion().WithResource("things"), "", admission.Create, nil, false, agents)
		wantRefusal(t, group, p.Validate(t.Context(), a, nil), atoll.ReasonWrittenByAgent, want)
	}
}

// Each of the hub's kinds is checked by its own rules.
func TestEachKindOfTheHubIsChecked(t *testing.T) {
	const wrongNames = "{clusterAffinity: {clusterNames: [A]}}"
	for kind, c := range map[string]struct{ spec, want string }{
		"Cluster":                  {"{taints: [{key: 'a b', effect: NoExecute}]}", "spec.taints[0].key"},
		"PropagationPolicy":        {"{placement: " + wrongNames + "}", "spec.placement.clusterAffinity.clusterNames[0]"},
		"ClusterPropagationPolicy": {"{placement: " + wrongNames + "}", "spec.placement.clusterAffinity.clusterNames[0]"},
		"Placement":                {wrongNames, "spec.clusterAffinity.clusterNames[0]"},
		"ClusterPlacement":         {wrongNames, "spec.clusterAffinity.clusterNames[0]"},
		"RolloutStrategy":          {"{maxUnavailable: some}", "spec.maxUnavailable"},
		"ClusterRolloutStrategy":   {"{maxUnavailable: some}", "spec.maxUnavailable"},
		"OverridePolicy":           {"{overrideRules: [{overriders: {}}]}", "spec.overrideRules[0].overriders"},
		"ClusterOverridePolicy":    {"{overrideRules: [{overriders: {}}]}", "spec.overrideRules[0].overriders"},
		"ResourceInterpreter":      {"{target: {apiVersion: v1, kinds: [Secret]}, health: {lua: return nil}}", "spec.target.kinds"},
		"ClusterSet":               {"{clusterSelector: {labelSelector: {matchLabels: {'a b': c}}}}", "spec.clusterSelector.labelSelector.matchLabels"},
		"ClusterSetBinding":        {"{clusterSet: 'a b'}", "spec.clusterSet"},
	} {
		now := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: "+kind+", metadata: {name: web, namespace: shop}, spec: "+c.spec+"}")
		p := newGrantingPlugin(Hub{})
		err := p.Validate(t.Context(), requestOf("ann", now, nil), nil)
		if err == nil || !strings.Contains(err.Error(), "is invalid: "+c.want+": ") {
			t.Errorf("%s: %v, want a refusal at %s", kind, err, c.want)
		}
		wantRefusal(t, kind+" by the hub", p.Validate(t.Context(), requestOf("hub", now, nil), nil), "", "")
		wantRefusal(t, "the status of a "+kind, p.Validate(t.Context(), onSubresource(requestOf("ann", now, nil), "status"), nil), "", "")
		now.Object["spec"] = "text"
		wantRefusal(t, "a "+kind+" that cannot be read", p.Validate(t.Context(), requestOf("ann", now, now), nil), atoll.ReasonUnreadable, "read it: cannot restore struct from: string")
	}
	text := unstructuredOf(t, "{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization, metadata: {name: c}, spec: text}")
	wantRefusal(t, "a customization that cannot be read", newGrantingPlugin(Hub{}).Validate(t.Context(), requestOf("ann", text, nil), nil), atoll.ReasonUnreadable, "read it: cannot restore struct from: string")
	free := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: HubSettings, metadata: {name: web}}")
	wantRefusal(t, "a kind without rules", newGrantingPlugin(Hub{}).Validate(t.Context(), requestOf("ann", free, nil), nil), "", "")
}

// An object and the object before it are read as their type. An object of another type is refused.
func TestObjectsThatCannotBeReadAreRefused(t *testing.T) {
	good := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: web}, spec: {maxClusters: 3}}")
	bad := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: web}, spec: text}")
	now, before, err := typedObjects[v1alpha1.Placement](requestOf("ann", good, nil))
	if err != nil || now == nil || now.Spec.MaxClusters != 3 || before != nil {
		t.Errorf("created: %v, %v, %v", now, before, err)
	}
	now, before, err = typedObjects[v1alpha1.Placement](requestOf("ann", good, good))
	if err != nil || now == nil || before == nil || before.Spec.MaxClusters != 3 {
		t.Errorf("updated: %v, %v, %v", now, before, err)
	}
	const unreadable = "read it: cannot restore struct from: string"
	_, _, err = typedObjects[v1alpha1.Placement](requestOf("ann", bad, nil))
	wantRefusal(t, "the object", err, atoll.ReasonUnreadable, unreadable)
	_, _, err = typedObjects[v1alpha1.Placement](requestOf("ann", good, bad))
	wantRefusal(t, "the object before", err, atoll.ReasonUnreadable, unreadable)
	a := requestOf("ann", good, good)
	ofStatus := func(now, before runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(now, before, a.GetKind(), "", "web", a.GetResource(), "", admission.Update, nil, false, a.GetUserInfo())
	}
	_, _, err = typedObjects[v1alpha1.Placement](ofStatus(&metav1.Status{}, good))
	wantRefusal(t, "another type", err, atoll.ReasonUnreadable, "custom resource has type *v1.Status")
	_, _, err = objectMetas(ofStatus(&metav1.Status{}, good))
	wantRefusal(t, "without metadata", err, atoll.ReasonUnreadable, "object does not implement the Object interfaces")
	_, _, err = objectMetas(ofStatus(good, &metav1.Status{}))
	wantRefusal(t, "without metadata before", err, atoll.ReasonUnreadable, "object does not implement the Object interfaces")
	is, was, err := objectMetas(ofStatus(good, nil))
	if err != nil || is.GetName() != "web" || was != nil {
		t.Errorf("an update of an unknown object: %v, %v, %v", is, was, err)
	}
}

// An accepted write is answered with its warnings, in this order. A refused one is answered with none.
func TestOnlyAcceptedWritesAreAnsweredWithWarnings(t *testing.T) {
	p := newDefaultPlugin()
	p.Own = func(u user.Info) bool { return u.GetName() == "hub" }
	bad := newChildThing("shop", "Shop")
	bad.SetAnnotations(map[string]string{atoll.KeyHubOnly: "no"})
	const unplaced = "nothing places it, so that it stays on the hub. To place it: kubectl annotate things.example.com/t -n shop atoll.dev/clusters='*'"
	for name, c := range map[string]struct {
		a    admission.Attributes
		want []string
	}{
		"accepted":         {thingAttributes("ann", newChildThing("shop", "Shop"), nil), []string{unplaced, "two controllers act on Shop/p"}},
		"by the hub":       {thingAttributes("hub", newChildThing("shop", "Shop"), nil), nil},
		"on a subresource": {onSubresource(thingAttributes("ann", newChildThing("shop", "Shop"), nil), "scale"), nil},
		"refused":          {thingAttributes("ann", bad, nil), nil},
	} {
		var h heard
		err := p.Validate(warning.WithWarningRecorder(t.Context(), &h), c.a, nil)
		if (err != nil) != (name == "refused") || !slices.Equal(h, c.want) {
			t.Errorf("%s: warnings %q, %v, want %q", name, h, err, c.want)
		}
	}
}

// Warnings are for new objects that are stored. An object that is placed already needs no warning, and
// the plan of `atoll plan` says more than one.
func TestObjectsWithoutAWarning(t *testing.T) {
	p := newDefaultPlugin()
	placed := newThing("shop", nil)
	placed.SetFinalizers([]string{atoll.Finalizer})
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	with := func(o runtime.Object, gvk schema.GroupVersionKind, options runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(o, nil, gvk, "shop", "t", gvk.GroupVersion().WithResource("things"), "", admission.Create, options, false, &user.DefaultInfo{Name: "ann"})
	}
	event := schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	child := func() *unstructured.Unstructured { return newChildThing("shop", "Shop") }
	for name, c := range map[string]struct {
		a    admission.Attributes
		want int
	}{
		"a child":               {with(child(), gvk, nil), 2},
		"a placed object":       {with(placed, gvk, nil), 0},
		"no object":             {with(nil, gvk, nil), 0},
		"an object unstored":    {with(&metav1.Status{}, gvk, nil), 0},
		"of a generated kind":   {with(child(), event, nil), 0},
		"a dry run of the plan": {with(child(), gvk, &metav1.CreateOptions{FieldManager: atoll.PlanManager}), 0},
	} {
		var h heard
		ctx := warning.WithWarningRecorder(t.Context(), &h)
		p.warnOfUnplaced(ctx, c.a)
		p.warnOfTwoControllers(ctx, c.a)
		if len(h) != c.want {
			t.Errorf("%s: warnings %q, want %d", name, h, c.want)
		}
		starting := New(Options{Own: p.Own, Hub: func() (Hub, bool) { return Hub{}, false }})
		starting.warnOfUnplaced(ctx, c.a)
		starting.warnOfTwoControllers(ctx, c.a)
		if len(h) != c.want {
			t.Errorf("%s: a hub that starts warns: %q", name, h)
		}
	}
}
