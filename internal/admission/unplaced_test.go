package admission

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

// defaultPlaces is a hub whose default placement places everything without a namespace. In namespaces,
// only children of Tenants, which have no namespace, are placed.
type defaultPlaces struct{ Placed }

func (defaultPlaces) IsPlacedFromOutsideNamespace(s policymatch.Subject) bool {
	_, stated := s.Annotations[atoll.AnnotationClusters]
	return (s.Key.Namespace == "" || s.Parent.Key.Kind == "Tenant") && !stated
}
func (d defaultPlaces) IsPlacedOrNeeded(s policymatch.Subject) bool {
	return d.IsPlacedFromOutsideNamespace(s)
}
func (defaultPlaces) IsUnexpectedlyUnplaced(s policymatch.Subject) bool { return s.Key.Namespace != "" }
func (defaultPlaces) TwoControllersWarning(s policymatch.Subject) string {
	return "two controllers act on " + s.Controller
}

func newDefaultPlugin() *AdmissionPlugin {
	p := New(Options{Own: func(user.Info) bool { return false }, Hub: readyHub(Hub{Placed: defaultPlaces{}})})
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "fleet" && a.GetVerb() == "create" && a.GetResource() == "clusterpropagationpolicies" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	return p
}

func newThing(namespace string, annotations map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}}
	u.SetNamespace(namespace)
	u.SetName("t")
	u.SetAnnotations(annotations)
	return u
}

func thingAttributes(who string, now, before *unstructured.Unstructured) admission.Attributes {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	op, old := admission.Create, runtime.Object(nil)
	if before != nil {
		op, old = admission.Update, before
	}
	return admission.NewAttributesRecord(now, old, gvk, now.GetNamespace(), "t", gvk.GroupVersion().WithResource("things"), "", op, nil, false, &user.DefaultInfo{Name: who})
}

// The default placement sends an object without a namespace to members only where its writer may
// place such objects. An object that was kept on the hub stays there when such a writer drops the
// annotation, and one that travels already is changed as with a policy.
func TestOnlyUsersThatMayPlaceSendClusterScopedObjects(t *testing.T) {
	kept := map[string]string{atoll.AnnotationClusters: ""}
	for name, c := range map[string]struct {
		who         string
		now, before map[string]string
		isNew, keep bool
	}{
		"a new object, by an administrator":        {who: "fleet", isNew: true},
		"a new object":                             {who: "ann", isNew: true, keep: true},
		"a new object with other annotations":      {who: "ann", isNew: true, now: map[string]string{"a": "b"}, keep: true},
		"the annotation is dropped":                {who: "ann", before: kept, keep: true},
		"an administrator drops the annotation":    {who: "fleet", before: kept},
		"a change of an object that travels":       {who: "ann"},
		"the annotation is there":                  {who: "ann", now: kept, before: kept, keep: true},
		"the writer keeps a new object on the hub": {who: "ann", now: kept, isNew: true, keep: true},
	} {
		var before *unstructured.Unstructured
		if !c.isNew {
			before = newThing("", c.before)
		}
		now := newThing("", c.now)
		var h heard
		if err := newDefaultPlugin().Admit(warning.WithWarningRecorder(t.Context(), &h), thingAttributes(c.who, now, before), nil); err != nil {
			t.Fatal(err)
		}
		if value, stated := now.GetAnnotations()[atoll.AnnotationClusters]; stated != c.keep || value != "" {
			t.Errorf("%s: the annotation is %q, %t", name, value, stated)
		}
		if travels := len(now.GetFinalizers()) > 0; travels == c.keep {
			t.Errorf("%s: it travels: %t", name, travels)
		}
		if _, had := c.now[atoll.AnnotationClusters]; len(h) > 0 != (c.keep && !had) {
			t.Errorf("%s: warnings %q", name, h)
		}
		if c.now["a"] != now.GetAnnotations()["a"] {
			t.Errorf("%s: another annotation is lost", name)
		}
	}
}

func TestTheWriterOfAnUnplacedObjectIsWarned(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		isUpdate  bool
		want      int
	}{
		"new":      {namespace: "shop", want: 1},
		"placed":   {want: 0},
		"a change": {namespace: "shop", isUpdate: true, want: 0},
	} {
		now := newThing(c.namespace, nil)
		var before *unstructured.Unstructured
		if c.isUpdate {
			before = now
		}
		var h heard
		newDefaultPlugin().warnOfUnplaced(warning.WithWarningRecorder(t.Context(), &h), thingAttributes("ann", now, before))
		if len(h) != c.want || c.want > 0 && !strings.Contains(h[0], "kubectl annotate things.example.com/t -n shop atoll.dev/clusters='*'") {
			t.Errorf("%s: %q", name, h)
		}
	}
}

// newChildThing returns an object that a controller made of another one.
func newChildThing(namespace, parentKind string) *unstructured.Unstructured {
	u, yes := newThing(namespace, nil), true
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: parentKind, Name: "p", UID: types.UID(parentKind), Controller: &yes}})
	return u
}

// A parent without a namespace places objects in namespaces only where their writer may place outside of
// namespaces. An edit that names such a parent counts as a new object.
func TestAParentWithoutANamespaceNeedsTheRightToPlaceOutside(t *testing.T) {
	for name, c := range map[string]struct {
		who         string
		now, before *unstructured.Unstructured
		keep        bool
	}{
		"a new child, by an administrator":     {who: "fleet", now: newChildThing("shop", "Tenant")},
		"a new child":                          {who: "ann", now: newChildThing("shop", "Tenant"), keep: true},
		"an edit names the parent":             {who: "ann", now: newChildThing("shop", "Tenant"), before: newThing("shop", nil), keep: true},
		"an edit of a child":                   {who: "ann", now: newChildThing("shop", "Tenant"), before: newChildThing("shop", "Tenant")},
		"an edit changes the parent":           {who: "ann", now: newChildThing("shop", "Tenant"), before: newChildThing("shop", "Shop"), keep: true},
		"a child of a parent in its namespace": {who: "ann", now: newChildThing("shop", "Shop")},
		"no child":                             {who: "ann", now: newThing("shop", nil)},
	} {
		var h heard
		if err := newDefaultPlugin().Admit(warning.WithWarningRecorder(t.Context(), &h), thingAttributes(c.who, c.now, c.before), nil); err != nil {
			t.Fatal(err)
		}
		if _, stated := c.now.GetAnnotations()[atoll.AnnotationClusters]; stated != c.keep || len(h) > 0 != c.keep {
			t.Errorf("%s: the annotation is there: %t; warnings %q", name, stated, h)
		}
	}
}

func TestTheControllerOfAChildIsWarned(t *testing.T) {
	for name, c := range map[string]struct {
		now, before *unstructured.Unstructured
		want        int
	}{
		"new":      {now: newChildThing("shop", "Shop"), want: 1},
		"no child": {now: newThing("shop", nil)},
		"an edit":  {now: newChildThing("shop", "Shop"), before: newChildThing("shop", "Shop")},
	} {
		var h heard
		newDefaultPlugin().warnOfTwoControllers(warning.WithWarningRecorder(t.Context(), &h), thingAttributes("ann", c.now, c.before))
		if len(h) != c.want || c.want > 0 && h[0] != "two controllers act on Shop/p" {
			t.Errorf("%s: %q", name, h)
		}
	}
}

// The only value that keeps an object on the hub is "true". A former value is no new statement.
func TestOtherValuesOfHubOnlyAreRefused(t *testing.T) {
	hubOnly := func(value string) *unstructured.Unstructured {
		return newThing("shop", map[string]string{atoll.KeyHubOnly: value})
	}
	for name, c := range map[string]struct {
		now, before *unstructured.Unstructured
		refused     bool
	}{
		"true":          {now: hubOnly("true")},
		"false":         {now: hubOnly("false"), refused: true},
		"it is dropped": {now: newThing("shop", nil), before: hubOnly("true")},
		"an edit":       {now: hubOnly("yes"), before: hubOnly("true"), refused: true},
		"it was there":  {now: hubOnly("yes"), before: hubOnly("yes")},
	} {
		if err := validateAtollKeys(thingAttributes("ann", c.now, c.before)); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A malformed wave or hook of Argo CD is accepted with a warning. Atoll's own is refused. A former value is no new statement.
func TestAMalformedWaveOfArgoCDIsAnsweredWithAWarning(t *testing.T) {
	waved := func(annotation, value string) *unstructured.Unstructured {
		o := newThing("", nil)
		o.SetAnnotations(map[string]string{annotation: value})
		return o
	}
	const argo, text = "argocd.argoproj.io/sync-wave", `annotation argocd.argoproj.io/sync-wave: a wave is a whole number from -1000000 to 1000000, and not "late": the object is of wave 0`
	const unknownHook = `annotation argocd.argoproj.io/hook: "Before": clusters run hooks in PreSync, Sync, PostSync, SyncFail, PreDelete and PostDelete, or never by Skip, ` +
		"and delete them by BeforeHookCreation, HookSucceeded and HookFailed: clusters do not apply the object"
	p := newDefaultPlugin()
	p.Own = func(u user.Info) bool { return u.GetName() == "hub" }
	for name, c := range map[string]struct {
		a       admission.Attributes
		want    []string
		refused bool
	}{
		"new":              {a: thingAttributes("ann", waved(argo, "late"), nil), want: []string{text}},
		"an edit":          {a: thingAttributes("ann", waved(argo, "late"), waved(argo, "1")), want: []string{text}},
		"it was there":     {a: thingAttributes("ann", waved(argo, "late"), waved(argo, "late"))},
		"well-formed":      {a: thingAttributes("ann", waved(argo, "1"), nil)},
		"by the hub":       {a: thingAttributes("hub", waved(argo, "late"), nil)},
		"on a subresource": {a: onSubresource(thingAttributes("ann", waved(argo, "late"), nil), "scale")},
		"Atoll's own":      {a: thingAttributes("ann", waved("atoll.dev/wave", "late"), nil), refused: true},
		"a hook":           {a: thingAttributes("ann", waved("argocd.argoproj.io/hook", "Before"), nil), want: []string{unknownHook}},
		"it was a hook":    {a: thingAttributes("ann", waved("argocd.argoproj.io/hook", "Before"), waved("argocd.argoproj.io/hook", "Before"))},
		"a known hook":     {a: thingAttributes("ann", waved("argocd.argoproj.io/hook", "PreSync"), nil)},
		"a hook of Helm":   {a: thingAttributes("ann", waved("helm.sh/hook", "never"), nil)},
		"Atoll's own hook": {a: thingAttributes("ann", waved("atoll.dev/hook", "Before"), nil), refused: true},
	} {
		var h heard
		err := p.Validate(warning.WithWarningRecorder(t.Context(), &h), c.a, nil)
		if (err != nil) != c.refused || !slices.Equal(h, c.want) {
			t.Errorf("%s: warnings %q, %v, want %q", name, h, err, c.want)
		}
	}
}

// A ServiceAccount is named on a Namespace alone, and a former value is no new statement.
func TestAnnotationsThatNameAServiceAccount(t *testing.T) {
	named := func(value string) *unstructured.Unstructured {
		o := newThing("shop", nil)
		o.SetAnnotations(map[string]string{atoll.AnnotationServiceAccount: value})
		return o
	}
	err := validateAtollKeys(thingAttributes("ann", named("deployer"), nil))
	if err == nil || !strings.Contains(err.Error(), "counts on a Namespace alone") {
		t.Errorf("a new one: %v", err)
	}
	if err := validateAtollKeys(thingAttributes("ann", named("deployer"), named("deployer"))); err != nil {
		t.Errorf("it was there: %v", err)
	}
}

// The annotation of a system namespace is not ignored in silence. The warning names what places objects there.
func TestTheAnnotationOfASystemNamespaceIsAnsweredWithAWarning(t *testing.T) {
	for name, c := range map[string]struct {
		namespace, value string
		want             int
	}{
		"a system namespace":                     {"kube-system", "*", 1},
		"that of Atoll":                          {atoll.SystemNamespace, "member1", 1},
		"an empty annotation, which is honoured": {"kube-system", "", 0},
		"another namespace":                      {"shop", "*", 0},
	} {
		space := &unstructured.Unstructured{}
		gvk := schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
		a := admission.NewAttributesRecord(space, nil, gvk, c.namespace, c.namespace, gvk.GroupVersion().WithResource("namespaces"), "", admission.Update, nil, false, &user.DefaultInfo{Name: "ann"})
		var h heard
		warnOfSystemNamespace(warning.WithWarningRecorder(t.Context(), &h), a, c.value)
		if len(h) != c.want || c.want > 0 && !strings.Contains(h[0], "annotate the objects in it") {
			t.Errorf("%s: %q", name, h)
		}
		config := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
		other := admission.NewAttributesRecord(space, nil, config, c.namespace, c.namespace, config.GroupVersion().WithResource("configmaps"), "", admission.Update, nil, false, &user.DefaultInfo{Name: "ann"})
		if warnOfSystemNamespace(warning.WithWarningRecorder(t.Context(), &h), other, c.value); len(h) != c.want {
			t.Errorf("%s: an object of its name is warned of: %q", name, h)
		}
		if key := subjectOf(a, space).Key; key != atoll.NamespaceKey(c.namespace) {
			t.Errorf("%s: the Namespace has the key %s", name, key)
		}
	}
}
