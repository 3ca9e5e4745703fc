package bind

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/state"
)

// someSpaces are namespaces as a table has them that is behind the others.
type someSpaces map[string]*corev1.Namespace

func (s someSpaces) Get(name string) (*corev1.Namespace, bool) { ns, ok := s[name]; return ns, ok }
func (s someSpaces) List() []string                            { return nil }
func (s someSpaces) Subscribe(func(string))                    {}

func (s someSpaces) put(name, uid, team string) {
	s[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: map[string]string{"team": team}}}
}

// unreadTemplates let nothing be planned, and tell how often it would have been.
type unreadTemplates struct {
	*hubful
	planned int
}

func (u *unreadTemplates) Synced(string, string) bool { u.planned++; return false }

type noBundles struct{ Bundles }

func (noBundles) ByName(string, string) (state.Bundle, bool) { return state.Bundle{}, false }

func (h rules) Overrides(string) []*v1alpha1.OverridePolicy                { return nil }
func (h rules) ClusterOverrides() []*v1alpha1.ClusterOverridePolicy        { return nil }
func (h rules) Interpreters() *script.Library                              { return nil }
func (u *unreadTemplates) Namespaced(string, string) (namespaced, ok bool) { return true, true }

// What members are told of a namespace is content: nothing is cut before it is known, and
// its coming, like another label, touches what is in it.
func TestNothingIsCutBeforeItsNamespaceIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hubful{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, own: map[[2]string]*v1alpha1.PropagationPolicy{}}
		templates, spaces := &unreadTemplates{hubful: h}, someSpaces{}
		b := &Binder{
			Options: Options{Templates: templates, Policies: rules{hubful: h}, Namespaces: spaces, Bundles: noBundles{}, ReadOnly: true},
			claims:  newClaims(), inbox: newInbox(), homeless: newWaits[claim.BundleID](), placeless: newWaits[claim.BundleID](),
			overridden: map[policyKey]kindSet{}, namespaces: map[string]string{}, told: map[string]string{}, seen: map[atoll.ItemKey]looked{},
		}
		var touched []claim.BundleID
		b.quiet = newDebouncer(func(id claim.BundleID) { touched = append(touched, id) })
		b.reports = newReporter(b)
		defer b.reports.queue.ShutDown()
		defer b.quiet.stop()

		h.put(edition("shop", "web", "web:1", 1))
		p := pp("web", "web")
		p.Namespace = "shop"
		h.own[[2]string{"shop", "web"}] = p
		b.handle(event{policy: policyKey{ppKind, "shop", "web"}})
		b.drain()
		for _, step := range []struct {
			what    string
			change  func()
			touched bool
			planned bool
		}{
			{"the template is there, its namespace is not", func() {}, true, false},
			{"the namespace comes", func() { spaces.put("shop", "1", "red") }, true, true},
			{"nothing of it changes", func() {}, false, true},
			{"another label", func() { spaces.put("shop", "1", "blue") }, true, true},
			{"it is gone", func() { delete(spaces, "shop") }, false, false},
			{"it is made anew", func() { spaces.put("shop", "2", "blue") }, true, true},
			{"it is deleted and made anew unseen", func() { spaces.put("shop", "3", "blue") }, true, true},
		} {
			step.change()
			b.handle(event{namespace: "shop"})
			b.drain()
			time.Sleep(time.Minute)
			synctest.Wait()
			id := claim.BundleID{Namespace: "shop", Name: "web"}
			if slices.Contains(touched, id) != step.touched {
				t.Errorf("%s: touched are %v", step.what, touched)
			}
			touched, templates.planned = nil, 0
			if err := b.reconcile(t.Context(), b.claims.inNamespace("shop")[0]); err != nil || (templates.planned > 0) != step.planned {
				t.Errorf("%s: it is planned %d times, %v", step.what, templates.planned, err)
			}
		}
	})
}
