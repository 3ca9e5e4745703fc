package binder

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// recordedRefusals that people read of templates. Read them after synctest.Wait.
type recordedRefusals map[atoll.ItemKey][]string

// refusalsMu guards writes of several timers.
var refusalsMu sync.Mutex

func (e recordedRefusals) RecordRefusal(key atoll.ItemKey, reason atoll.Reason, message string) {
	refusalsMu.Lock()
	defer refusalsMu.Unlock()
	e[key] = append(e[key], string(reason)+": "+message)
}

// singleBundle is a table of the Bundle that is there, if one is.
type singleBundle struct {
	putBundles
	stored *v1alpha1.Bundle
}

func (o *singleBundle) Put(obj client.Object) {
	o.putBundles.Put(obj)
	o.stored = obj.(*v1alpha1.Bundle)
}

func (o *singleBundle) GetByName(string, string) (state.Bundle, bool) {
	if o.stored == nil {
		return state.Bundle{}, false
	}
	return state.BundleOf(o.stored)
}

// noRevisions were cut.
type noRevisions struct{ Revisions }

func (noRevisions) LatestOfBundle(string) (*enginev1.Revision, bool) { return nil, false }

// A wait for a namespace is reported after a while, and once: on an existing Bundle, the policy,
// and the objects, which may have no Bundle yet.
func TestWaitingForANamespaceIsSaid(t *testing.T) {
	source := v1alpha1.BundleSource{Kind: policyKind, Name: "web"}
	for what, there := range map[string]*v1alpha1.Bundle{
		"no Bundle yet": nil,
		"a Bundle":      {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "bundle-uid"}, Spec: v1alpha1.BundleSpec{Source: source}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPolicy("web", "web")
				p.Namespace = "shop"
				objects := []client.Object{p}
				if there != nil {
					objects = append(objects, there)
				}
				b, _, _ := newTestBinder(t, objects...)
				h := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, ownPolicies: map[[2]string]*v1alpha1.PropagationPolicy{{"shop", "web"}: p}}
				templates, spaces, refusals := &unsyncedTemplates{fakeHub: h}, namespaceMap{}, recordedRefusals{}
				table := &singleBundle{stored: there}
				b.Templates, b.Kinds, b.Policies, b.Overrides, b.Namespaces, b.Bundles, b.Revisions, b.Events = syncedTemplates{}, syncedTemplates{}, fakeHubPolicies{fakeHub: h}, fakeHubPolicies{fakeHub: h}, spaces, table, noRevisions{}, refusals

				id, web := policymatch.BundleID{Namespace: "shop", Name: "web"}, newKey("Deployment", "web")
				b.ownership.assignTemplate(web, id, bundleOrigin{source: source})
				look := func() (again time.Duration) {
					t.Helper()
					again, err := b.reconcileBundle(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					return again
				}
				if again := look(); again != reportWaitAfter {
					t.Fatalf("the Bundle is reconciled again after %v, want %v", again, reportWaitAfter)
				}
				if why := b.MissingHubNamespaceReason(id); why != "" || len(refusals) > 0 || len(table.written) > 0 {
					t.Errorf("at once: %q, %v", why, refusals)
				}
				since := time.Now().UTC().Format(time.RFC3339)
				time.Sleep(recheckWaitAfter)
				for range 3 { // and whenever something of it changes
					look()
				}
				why := b.MissingHubNamespaceReason(id)
				if !strings.Contains(why, "namespace shop ") || !strings.Contains(why, since) {
					t.Errorf("it says %q, and waits since %s", why, since)
				}
				if got := refusals[web]; len(got) != 1 || !strings.HasPrefix(got[0], string(atoll.ReasonNamespaceUnknown)+": "+why) {
					t.Errorf("events %q", got)
				}
				if err := b.policyStatus.writeStatus(t.Context(), PolicyKey{policyKind, "shop", "web"}); err != nil {
					t.Fatal(err)
				}
				if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
					t.Fatal(err)
				}
				if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.PolicyApplied); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, why) {
					t.Errorf("the policy says %+v", c)
				}
				if there != nil {
					checkWaitOfBundle(t, table.written, why)
				}

				spaces.putNamespace("shop", "1", "red")
				b.Templates, b.Kinds, b.ReadOnly = templates, templates, true
				if look(); b.MissingHubNamespaceReason(id) != "" || len(b.missingNamespaces.startTimes) > 0 {
					t.Errorf("the namespace is known: %q", b.MissingHubNamespaceReason(id))
				}
			})
		})
	}
}

// checkWaitOfBundle checks that a status has the wait as its condition Bound, and that the first one
// has every condition.
func checkWaitOfBundle(t *testing.T, written []client.Object, why string) {
	t.Helper()
	bound := func(o client.Object) bool {
		c := meta.FindStatusCondition(o.(*v1alpha1.Bundle).Status.Conditions, v1alpha1.BundleBound)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(atoll.ReasonNamespaceUnknown) && c.Message == why
	}
	if !slices.ContainsFunc(written, bound) {
		t.Fatalf("the Bundle says %+v", written)
	}
	for _, is := range atoll.ConditionTypes["Bundle"] {
		c := meta.FindStatusCondition(written[0].(*v1alpha1.Bundle).Status.Conditions, is.Type)
		if is.Temporary && c == nil {
			continue
		}
		if c == nil || c.Reason == "" || c.Message == "" || c.LastTransitionTime.IsZero() || atoll.IsUndetermined(c) != (is.Type != v1alpha1.BundleBound) {
			t.Errorf("condition %s after the first write: %+v", is.Type, c)
		}
	}
}
