package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	testingclock "k8s.io/utils/clock/testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// An error of the authorizer allows nothing.
func TestAnErrorOfTheAuthorizerAllowsNothing(t *testing.T) {
	p := newGrantingPlugin(Hub{})
	answer := errors.New("no answer")
	p.SetAuthorizer(authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", answer
	}))
	key, ann := atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}, &user.DefaultInfo{Name: "ann"}
	if p.MayGet(t.Context(), ann, key) {
		t.Error("it allows while the authorizer fails")
	}
	if answer = nil; !p.MayGet(t.Context(), ann, key) {
		t.Error("it refuses what the authorizer allows")
	}
}

// Accepting a Cluster needs the verb accept, and removing one needs the verb delete. Each is asked for
// once, when it is stated.
func TestAcceptingAndRemovingClustersNeedsRights(t *testing.T) {
	cluster := func(spec string) *unstructured.Unstructured {
		return unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: tokyo, uid: u, labels: {atoll.dev/set: asia}}, spec: "+spec+"}")
	}
	const (
		manage, accept, remove = "ann manage clustersets.atoll.dev /asia", "ann accept clusters.atoll.dev /tokyo", "ann delete clusters.atoll.dev /tokyo"
		noAccept               = `spec.accepted: "ann" may not accept clusters: the verb accept on clusters.atoll.dev is needed`
		noRemove               = `spec.removal: "ann" may not remove clusters: the verb delete on clusters.atoll.dev is needed`
		nothing                = `spec.removal.confirm: Invalid value: "p": nothing is in the cluster that would have to be confirmed`
		inNoSet                = `the Cluster is in no set that "ann" manages; the verb manage on clustersets.atoll.dev is needed, which "ann" lacks`
	)
	for name, c := range map[string]struct {
		rights      []string
		now, before *unstructured.Unstructured
		reason      atoll.Reason
		want        string
	}{
		"created":                      {[]string{manage}, cluster("{}"), nil, "", ""},
		"created, of an unmanaged set": {[]string{accept}, cluster("{}"), nil, atoll.ReasonPermissionMissing, `metadata.labels: brings the Cluster into set "asia" or out of it; the verb manage on clustersets.atoll.dev is needed, which "ann" lacks`},
		"edited, of an unmanaged set":  {[]string{accept}, cluster("{}"), cluster("{}"), atoll.ReasonPermissionMissing, inNoSet},
		"created as accepted":          {[]string{manage, accept}, cluster("{accepted: true}"), nil, "", ""},
		"created as accepted, without": {[]string{manage}, cluster("{accepted: true}"), nil, atoll.ReasonPermissionMissing, noAccept},
		"accepted":                     {[]string{manage}, cluster("{accepted: true}"), cluster("{accepted: false}"), atoll.ReasonPermissionMissing, noAccept},
		"accepted before":              {[]string{manage}, cluster("{accepted: true}"), cluster("{accepted: true}"), "", ""},
		"no longer accepted":           {[]string{manage}, cluster("{accepted: false}"), cluster("{accepted: true}"), "", ""},
		"removed":                      {[]string{manage, remove}, cluster("{removal: {mode: Clean}}"), cluster("{}"), "", ""},
		"removed, without":             {[]string{manage}, cluster("{removal: {mode: Clean}}"), cluster("{}"), atoll.ReasonPermissionMissing, noRemove},
		"created as removed, without":  {[]string{manage}, cluster("{removal: {mode: Clean}}"), nil, atoll.ReasonPermissionMissing, noRemove},
		"removed otherwise":            {[]string{manage}, cluster("{removal: {mode: Orphan}}"), cluster("{removal: {mode: Clean}}"), atoll.ReasonPermissionMissing, noRemove},
		"removed before":               {[]string{manage}, cluster("{removal: {mode: Clean}}"), cluster("{removal: {mode: Clean}}"), "", ""},
		"a removal is taken back":      {[]string{manage}, cluster("{}"), cluster("{removal: {mode: Clean}}"), "", ""},
		"created with a confirmation":  {[]string{manage, remove}, cluster("{removal: {mode: Clean, confirm: p}}"), nil, atoll.ReasonPlanChanged, nothing},
	} {
		removals := cleanPlanFunc(func(*v1alpha1.Cluster) (string, error) { return "p", nil })
		p := newGrantingPlugin(Hub{Sets: fakeSets{}, Removals: removals}, c.rights...)
		wantRefusal(t, name, p.Validate(t.Context(), requestOf("ann", c.now, c.before), nil), c.reason, c.want)
	}
	starting := newGrantingPlugin(Hub{}, "ann manage clustersets.atoll.dev /", remove)
	starting.Hub = func() (Hub, bool) { return Hub{}, false }
	err := starting.Validate(t.Context(), requestOf("ann", cluster("{removal: {mode: Clean, confirm: p}}"), cluster("{}")), nil)
	wantRefusal(t, "while the hub starts", err, atoll.ReasonPlanUnknown, "spec.removal.confirm: what is in the cluster is not known yet, try again: the hub has just been started")
}

// Taints of a Cluster are labels: their key and value are well formed.
func TestMalformedTaintsAreRefused(t *testing.T) {
	p := newGrantingPlugin(Hub{}, "ann manage clustersets.atoll.dev /", "ann accept clusters.atoll.dev /tokyo")
	for taints, want := range map[string]string{
		"[{key: x.dev/a, value: b, effect: NoExecute}]":                            "",
		"[{key: a, effect: NoExecute}, {key: 'a b', effect: NoExecute}]":           `spec.taints[1].key: Invalid value: "a b"`,
		"[{key: a, value: 'b c', effect: NoSchedule}]":                             `spec.taints[0].value: Invalid value: "b c"`,
		"[{key: a, value: '" + strings.Repeat("b", 64) + "', effect: NoSchedule}]": "spec.taints[0].value: Invalid value",
	} {
		err := p.Validate(t.Context(), requestOf("ann", taintedCluster(t, taints), nil), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "is invalid: "+want)) {
			t.Errorf("%s: %v, want %q", taints, err, want)
		}
	}
}

// The time of a taint is noted in whole seconds of UTC. Values of another shape are left to the schema.
func TestTaintTimesOfOtherShapesAreLeft(t *testing.T) {
	p := New(Options{Clock: testingclock.NewFakePassiveClock(time.Date(2026, 1, 2, 5, 4, 5, 6, time.FixedZone("", 2*3600)))})
	for taints, want := range map[string]string{
		"[{key: a, effect: NoExecute}]":               "2026-01-02T03:04:05Z",
		"[{key: a, effect: NoSchedule}]":              "",
		"[text, {key: a, effect: NoExecute}]":         "2026-01-02T03:04:05Z",
		"[{key: a, effect: NoExecute, timeAdded: x}]": "x",
		"text": "",
	} {
		now := taintedCluster(t, taints)
		if err := p.Admit(t.Context(), requestOf("ann", now, nil), nil); err != nil {
			t.Errorf("%s: %v", taints, err)
		}
		got := ""
		list, _, _ := unstructured.NestedSlice(now.Object, "spec", "taints")
		for _, taint := range list {
			if m, ok := taint.(map[string]any); ok {
				got, _ = m["timeAdded"].(string)
			}
		}
		if got != want {
			t.Errorf("%s: timeAdded %q, want %q", taints, got, want)
		}
	}
	a := requestOf("ann", taintedCluster(t, "[]"), nil)
	other := admission.NewAttributesRecord(&metav1.Status{}, nil, a.GetKind(), "", "tokyo", a.GetResource(), "", admission.Create, nil, false, a.GetUserInfo())
	if err := p.Admit(t.Context(), other, nil); err != nil {
		t.Errorf("an object of another type: %v", err)
	}
	noTaints := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: tokyo}}")
	if err := p.Admit(t.Context(), requestOf("ann", noTaints, nil), nil); err != nil || noTaints.Object["spec"] != nil {
		t.Errorf("a Cluster without taints: %v, %v", noTaints, err)
	}
}

// A rebalance counts from ten minutes ago to one minute from now. Later than the last one it must be.
func TestTheTimesOfARebalance(t *testing.T) {
	clock := time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return atoll.FormatRebalanceTime(clock.Add(d)) }
	p := newGrantingPlugin(Hub{}, "ann update propagationpolicies.atoll.dev shop/web")
	p.Clock = testingclock.NewFakePassiveClock(clock)
	const pp, ask = v1alpha1.SourcePropagationPolicy, atoll.AnnotationRebalance
	const path = "metadata.annotations[atoll.dev/rebalance]: Invalid value: "
	outside := "must be a time of the last 10m; it is 2026-11-22T13:00:00.000Z now"
	for name, c := range map[string]struct{ before, now, want string }{
		"the earliest":         {"", at(-10 * time.Minute), ""},
		"too early":            {"", at(-10*time.Minute - time.Millisecond), outside},
		"the latest":           {"", at(time.Minute), ""},
		"too late":             {"", at(time.Minute + time.Millisecond), outside},
		"as the last one":      {at(-time.Minute), at(-time.Minute), ""},
		"later":                {at(-time.Minute), at(-time.Minute + time.Millisecond), ""},
		"earlier":              {at(0), at(-time.Millisecond), "must be later than the last one, " + at(0)},
		"after a malformed":    {"text", at(0), ""},
		"malformed":            {"", "text", "must be a time such as 2026-11-22T13:00:00.000Z"},
		"the same, written so": {at(0), "2026-11-22T13:00:00Z", "must be later than the last one, " + at(0)},
	} {
		before := bundleOf(pp)
		if c.before != "" {
			before = bundleOf(pp, ask, c.before)
		}
		if c.want != "" {
			c.want = path + `"` + c.now + `": ` + c.want
		}
		wantRefusal(t, name, p.Validate(t.Context(), requestOf("ann", bundleOf(pp, ask, c.now), before), nil), atoll.ReasonInvalidField, c.want)
	}
	unread := bundleOf(pp, ask, at(0))
	before := bundleOf(pp)
	unread.Object["spec"], before.Object["spec"] = "text", "text"
	wantRefusal(t, "an unreadable Bundle", p.Validate(t.Context(), requestOf("ann", unread, before), nil), atoll.ReasonUnreadable, "read it: cannot restore struct from: string")
	placement := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: web, namespace: shop, annotations: {atoll.dev/rebalance: text}}}")
	wantRefusal(t, "on a Placement", p.Validate(t.Context(), requestOf("ann", placement, nil), nil), atoll.ReasonInvalidField, path+`"text": must be a time such as 2026-11-22T13:00:00.000Z`)
}

// A Bundle is placed from scratch by a user that may patch it and update what places it.
func TestRightsToRebalance(t *testing.T) {
	source := func(kind string) v1alpha1.BundleSource { return v1alpha1.BundleSource{Kind: kind, Name: "web"} }
	const patch, patchCluster = "ann patch bundles.atoll.dev shop/b", "ann patch clusterbundles.atoll.dev /b"
	placedBy := func(kind string) string {
		return `it is placed by ` + kind + ` web: a user that has it placed from scratch must be able to update that, and "ann" may not`
	}
	for name, c := range map[string]struct {
		rights    []string
		namespace string
		kind      string
		want      string
	}{
		"nothing":                         {nil, "shop", v1alpha1.SourceAnnotation, `the verb patch on bundles.atoll.dev is needed, which "ann" lacks`},
		"nothing, of the cluster":         {nil, "", v1alpha1.SourceAnnotation, `the verb patch on clusterbundles.atoll.dev is needed, which "ann" lacks`},
		"of an annotation":                {[]string{patch}, "shop", v1alpha1.SourceAnnotation, ""},
		"of an annotation of the cluster": {[]string{patchCluster}, "", v1alpha1.SourceAnnotation, ""},
		"of a policy":                     {[]string{patch}, "shop", v1alpha1.SourcePropagationPolicy, placedBy(v1alpha1.SourcePropagationPolicy)},
		"of its policy":                   {[]string{patch, "ann update propagationpolicies.atoll.dev shop/web"}, "shop", v1alpha1.SourcePropagationPolicy, ""},
		"of a cluster policy":             {[]string{patch, "ann update clusterpropagationpolicies.atoll.dev shop/web"}, "shop", v1alpha1.SourceClusterPropagationPolicy, placedBy(v1alpha1.SourceClusterPropagationPolicy)},
		"of its cluster policy":           {[]string{patch, "ann update clusterpropagationpolicies.atoll.dev /web"}, "shop", v1alpha1.SourceClusterPropagationPolicy, ""},
		"of the hub's default":            {[]string{patchCluster}, "", v1alpha1.SourceHubSettings, placedBy(v1alpha1.SourceHubSettings)},
		"of its own default":              {[]string{patchCluster, "ann update hubsettings.atoll.dev /web"}, "", v1alpha1.SourceHubSettings, ""},
	} {
		err := newGrantingPlugin(Hub{}, c.rights...).MayRebalance(t.Context(), &user.DefaultInfo{Name: "ann"}, c.namespace, "b", source(c.kind))
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A writer that annotates a namespace reads everything in it. One that annotates an object without a
// namespace may write cluster policies.
func TestAnnotationsOfNamespacesAndClusterScopedObjectsNeedRights(t *testing.T) {
	namespace := unstructuredOf(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {atoll.dev/clusters: tokyo}}}")
	kept := unstructuredOf(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {atoll.dev/clusters: ''}}}")
	thing := newThing("", map[string]string{atoll.AnnotationClusters: "tokyo"})
	thingInShop := newThing("shop", map[string]string{atoll.AnnotationClusters: "oslo"})
	oslo := newThing("shop", map[string]string{atoll.AnnotationClusters: "oslo", "a": "b"})
	oslo.SetAnnotations(map[string]string{atoll.AnnotationClusters: "oslo, lima"})
	var all, along []string
	p := newGrantingPlugin(Hub{Templates: dividedWeb{}})
	for _, x := range p.requiredNamespaceReads("shop") {
		all = append(all, "ann get "+p.resourceOf(x.kind).String()+" shop/")
	}
	for _, x := range requiredDependencyReads("") {
		along = append(along, "ann get "+x.resource.String()+" /", "ann get "+x.resource.String()+" shop/")
	}
	along = append(along, "ann get things.example.com /t", "ann get things.example.com shop/t")
	const reads = "annotation atoll.dev/clusters: a user that places objects must be able to read them: "
	const places = `annotation atoll.dev/clusters: placing what is in no namespace needs the right to create clusterpropagationpolicies.atoll.dev, which "ann" lacks`
	for name, c := range map[string]struct {
		rights      []string
		now, before *unstructured.Unstructured
		reason      atoll.Reason
		want        string
	}{
		"a namespace":                     {all, namespace, nil, "", ""},
		"a namespace, without a right":    {slices.DeleteFunc(slices.Clone(all), func(r string) bool { return strings.Contains(r, "cronjobs") }), namespace, nil, atoll.ReasonPermissionMissing, reads + `"ann" may not get cronjobs.batch in namespace "shop"`},
		"a namespace that is kept":        {all, kept, nil, "", ""},
		"a namespace kept by a stranger":  {nil, kept, nil, atoll.ReasonPermissionMissing, reads + `"ann" may not get configmaps in namespace "shop"`},
		"no namespace":                    {along, thing, nil, atoll.ReasonPermissionMissing, places},
		"no namespace, with the right":    {append([]string{"ann create clusterpropagationpolicies.atoll.dev /"}, along...), thing, nil, "", ""},
		"what it takes along is not read": {[]string{"ann get things.example.com shop/t"}, thingInShop, nil, atoll.ReasonPermissionMissing, reads + `"ann" may not get configmaps in namespace "shop"`},
		"it is not read itself":           {along[:len(along)-2], thingInShop, nil, atoll.ReasonPermissionMissing, reads + `"ann" may not get "t" of things.example.com in namespace "shop"`},
		"outside of its sets":             {along, thingInShop, nil, atoll.ReasonOutsideBoundSets, `annotation atoll.dev/clusters: no cluster "oslo" is in a cluster set that namespace "shop" may place on (asia)`},
		"one more, outside of its sets":   {along, oslo, thingInShop, atoll.ReasonOutsideBoundSets, `annotation atoll.dev/clusters: no cluster "lima" is in a cluster set that namespace "shop" may place on (asia)`},
		"fewer, outside of its sets":      {along, thingInShop, oslo, "", ""},
	} {
		p := newGrantingPlugin(Hub{Sets: fakeSets{}, Templates: dividedWeb{}, Placed: quietPlaced{}}, c.rights...)
		wantRefusal(t, name, p.Validate(t.Context(), requestOf("ann", c.now, c.before), nil), c.reason, c.want)
	}
}

// A labelled annotation is checked as the label selector of a policy is, and names what is wrong.
func TestSelectorsInAnnotationsAreChecked(t *testing.T) {
	p := newGrantingPlugin(Hub{Sets: fakeSets{}, Placed: quietPlaced{}})
	now := newThing("shop", map[string]string{atoll.AnnotationClusters: "selector: a=b,a notin (b)"})
	wantRefusal(t, "a contradiction", p.Validate(t.Context(), requestOf("ann", now, nil), nil), atoll.ReasonInvalidField,
		`metadata.annotations[atoll.dev/clusters]: Invalid value: "selector: a=b,a notin (b)": a: the requirements of this key contradict each other, so that nothing matches`)
}

// quietPlaced is a hub that places nothing and warns of nothing.
type quietPlaced struct{ defaultPlaces }

// A dry run says at most twelve lines of at most 240 bytes each, and how the rest is read.
func TestTheWarningsOfADryRunAreBounded(t *testing.T) {
	for _, c := range []struct{ lines, length, want, wantLength int }{{12, 240, 12, 240}, {13, 241, 12, 240}, {1, 241, 1, 240}, {1, 239, 1, 239}} {
		p := New(Options{Foretell: func(context.Context, user.Info, *unstructured.Unstructured, bool) []string {
			return slices.Repeat([]string{strings.Repeat("x", c.length)}, c.lines)
		}})
		u := unstructuredOf(t, "{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: p, namespace: shop}}")
		a := requestOf("ann", u, nil)
		dry := admission.NewAttributesRecord(u, nil, a.GetKind(), "shop", "p", a.GetResource(), "", admission.Create, &metav1.CreateOptions{}, true, a.GetUserInfo())
		var h heard
		p.warnWithDryRunPlan(warning.WithWarningRecorder(t.Context(), &h), dry)
		if len(h) != c.want || len(h[0]) != c.wantLength || strings.HasSuffix(h[0], "...") != (c.length > 240) {
			t.Errorf("%d lines of %d: %q", c.lines, c.length, h)
		}
		if last := h[len(h)-1]; (last == "and more: `atoll plan -f FILE` shows all of it") != (c.lines > 12) {
			t.Errorf("%d lines end with %q", c.lines, last)
		}
		var none heard
		unknown := admission.NewAttributesRecord(&metav1.Status{}, nil, a.GetKind(), "shop", "p", a.GetResource(), "", admission.Create, &metav1.CreateOptions{}, true, a.GetUserInfo())
		if p.warnWithDryRunPlan(warning.WithWarningRecorder(t.Context(), &none), unknown); len(none) > 0 {
			t.Errorf("an object of another type: %q", none)
		}
	}
}

// The trace of a write begins when the request came.
func TestTheTimeOfAWriteIsThatOfItsRequest(t *testing.T) {
	came := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var key atoll.ItemKey
	var at time.Time
	w := UserWriteRecorder{Own: func(user.Info) bool { return false }, Note: func(_ context.Context, k atoll.ItemKey, _ string, received time.Time) { key, at = k, received }}
	if err := w.Validate(request.WithReceivedTimestamp(t.Context(), came), requestOf("ann", newThing("shop", nil), nil), nil); err != nil {
		t.Fatal(err)
	}
	if want := (atoll.ItemKey{Group: "example.com", Kind: "Thing", Namespace: "shop", Name: "t"}); key != want || !at.Equal(came) {
		t.Errorf("%v at %s", key, at)
	}
}

// A template whose stored form cannot be made is refused. A hub that starts, and kinds that are never
// placed, are let through.
func TestOnlyPlacedTemplatesAreWeighed(t *testing.T) {
	large := newWidget(1_200_000, atoll.Finalizer)
	deleted := large.DeepCopy()
	deleted.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	event := large.DeepCopy()
	event.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Event"})
	interfaces := admission.NewObjectInterfacesFromScheme(runtime.NewScheme())
	p := newGrantingPlugin(Hub{Placed: carrier{}})
	for name, c := range map[string]struct {
		now  *unstructured.Unstructured
		want string
	}{
		"a placed one":   {large, `Widget.example.com "w" is invalid: spec.files.large.bin: Invalid value: too large to be sent`},
		"a deleted one":  {deleted, ""},
		"of other kinds": {event, ""},
	} {
		wantRefusal(t, name, p.Validate(t.Context(), requestOf("ann", c.now, nil), interfaces), atoll.ReasonTooLarge, c.want)
	}
	p.Hub = func() (Hub, bool) { return Hub{Placed: carrier{}}, false }
	wantRefusal(t, "while the hub starts", p.Validate(t.Context(), requestOf("ann", large, nil), interfaces), "", "")
}
