package bind

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/state"
)

// events that people read of templates.
type events map[atoll.ItemKey][]string

func (e events) Refused(key atoll.ItemKey, reason, message string) {
	e[key] = append(e[key], reason+": "+message)
}

// oneBundle is a table of the Bundle that is there, if one is.
type oneBundle struct {
	bundles
	there *v1alpha1.Bundle
}

func (o *oneBundle) Put(obj client.Object) {
	o.bundles.Put(obj)
	o.there = obj.(*v1alpha1.Bundle)
}

func (o *oneBundle) ByName(string, string) (state.Bundle, bool) {
	if o.there == nil {
		return state.Bundle{}, false
	}
	return state.BundleOf(o.there)
}

// noRevisions were cut.
type noRevisions struct{ Revisions }

func (noRevisions) Latest(string) (*enginev1.Revision, bool) { return nil, false }

// What waits for its namespace says so after a while, and once: a Bundle that is there, the
// policy, and the objects, of which there may be no Bundle yet.
func TestWaitingForANamespaceIsSaid(t *testing.T) {
	source := v1alpha1.BundleSource{Kind: ppKind, Name: "web"}
	for what, there := range map[string]*v1alpha1.Bundle{
		"no Bundle yet": nil,
		"a Bundle":      {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "bundle-uid"}, Spec: v1alpha1.BundleSpec{Source: source}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pp("web", "web")
				p.Namespace = "shop"
				objects := []client.Object{p}
				if there != nil {
					objects = append(objects, there)
				}
				b, _, _ := newShell(t, objects...)
				h := &hubful{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, own: map[[2]string]*v1alpha1.PropagationPolicy{{"shop", "web"}: p}}
				templates, spaces, told := &unreadTemplates{hubful: h}, someSpaces{}, events{}
				table := &oneBundle{there: there}
				b.Templates, b.Policies, b.Namespaces, b.Bundles, b.Revisions, b.Events = readInFull{}, rules{hubful: h}, spaces, table, noRevisions{}, told
				b.unread, b.homeless, b.placeless = newWaits[schema.GroupKind](), newWaits[claim.BundleID](), newWaits[claim.BundleID]()
				b.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[claim.BundleID]())
				defer b.queue.ShutDown()

				id, web := claim.BundleID{Namespace: "shop", Name: "web"}, obj("Deployment", "web")
				b.claims.place(web, id, origin{source: source})
				look := func() {
					t.Helper()
					if err := b.reconcile(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				look()
				if why := b.Homeless(id); why != "" || len(told) > 0 || len(table.put) > 0 {
					t.Errorf("at once: %q, %v", why, told)
				}
				since := time.Now().UTC().Format(time.RFC3339)
				time.Sleep(waitsAgain)
				synctest.Wait()
				if n := b.queue.Len(); n != 1 { // it is looked at again by itself
					t.Fatalf("%d bundles are to be looked at", n)
				}
				for range 3 { // and whenever something of it changes
					look()
				}
				why := b.Homeless(id)
				if !strings.Contains(why, "namespace shop ") || !strings.Contains(why, since) {
					t.Errorf("it says %q, and waits since %s", why, since)
				}
				if got := told[web]; len(got) != 1 || !strings.HasPrefix(got[0], reasonNoNamespace+": "+why) {
					t.Errorf("events %q", got)
				}
				if err := b.reports.report(t.Context(), policyKey{ppKind, "shop", "web"}); err != nil {
					t.Fatal(err)
				}
				if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
					t.Fatal(err)
				}
				if c := meta.FindStatusCondition(p.Status.Conditions, ConditionApplied); c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, why) {
					t.Errorf("the policy says %+v", c)
				}
				if there != nil {
					bound := func(o client.Object) bool {
						c := meta.FindStatusCondition(o.(*v1alpha1.Bundle).Status.Conditions, v1alpha1.BundleBound)
						return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reasonNoNamespace && c.Message == why
					}
					if !slices.ContainsFunc(table.put, bound) {
						t.Errorf("the Bundle says %+v", table.put)
					}
				}

				spaces.put("shop", "1", "red")
				b.Templates, b.ReadOnly = templates, true
				if look(); b.Homeless(id) != "" || len(b.homeless.since) > 0 {
					t.Errorf("the namespace is known: %q", b.Homeless(id))
				}
			})
		})
	}
}
