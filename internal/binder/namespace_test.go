package binder

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
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// namespaceMap are namespaces as a table has them that is behind the others.
type namespaceMap map[string]*corev1.Namespace

func (s namespaceMap) Get(name string) (*corev1.Namespace, bool) { ns, ok := s[name]; return ns, ok }
func (s namespaceMap) List() []string                            { return nil }
func (s namespaceMap) Subscribe(func(string))                    {}

func (s namespaceMap) putNamespace(name, uid, team string) {
	s[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: map[string]string{"team": team}}}
}

// unsyncedTemplates let nothing be planned, and tell how often it would have been.
type unsyncedTemplates struct {
	*fakeHub
	syncedCalls int
}

func (u *unsyncedTemplates) IsSynced(string, string) bool { u.syncedCalls++; return false }

type emptyBundles struct{ Bundles }

func (emptyBundles) GetByName(string, string) (state.Bundle, bool) { return state.Bundle{}, false }

func (h fakeHubPolicies) OverridePolicies(string) []*v1alpha1.OverridePolicy         { return nil }
func (h fakeHubPolicies) ClusterOverridePolicies() []*v1alpha1.ClusterOverridePolicy { return nil }
func (h fakeHubPolicies) InterpreterLibrary() *script.Library                        { return nil }
func (u *unsyncedTemplates) IsNamespaced(string, string) (namespaced, ok bool)       { return true, true }

// The metadata of a namespace is content. No Revision is created before the namespace is read,
// and its coming, like another label, touches its Bundles.
func TestNothingIsCutBeforeItsNamespaceIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHub{templates: map[atoll.ItemKey]*unstructured.Unstructured{}, ownPolicies: map[[2]string]*v1alpha1.PropagationPolicy{}}
		templates, spaces := &unsyncedTemplates{fakeHub: h}, namespaceMap{}
		b := &Binder{
			Options:   Options{Templates: templates, Kinds: templates, Policies: fakeHubPolicies{fakeHub: h}, Overrides: fakeHubPolicies{fakeHub: h}, Namespaces: spaces, Bundles: emptyBundles{}, ReadOnly: true},
			ownership: newOwnershipIndex(), events: newEventQueue(),
			overrideSelections: map[PolicyKey]objectSet{}, lastClustersAnnotation: map[string]string{}, lastNamespaceMeta: map[string]string{}, lastTemplates: map[atoll.ItemKey]templateState{},
		}
		var touched []policymatch.BundleID
		b.touchBundle = func(id policymatch.BundleID) { touched = append(touched, id) }
		b.policyStatus = newPolicyStatusWriter(b)

		h.put(newDeployment("shop", "web", "web:1", 1))
		p := newPolicy("web", "web")
		p.Namespace = "shop"
		h.ownPolicies[[2]string{"shop", "web"}] = p
		b.handleEvent(tableEvent{policy: PolicyKey{policyKind, "shop", "web"}})
		b.drainEvents()
		for _, step := range []struct {
			what    string
			change  func()
			touched bool
			planned bool
		}{
			{"the template is there, its namespace is not", func() {}, true, false},
			{"the namespace comes", func() { spaces.putNamespace("shop", "1", "red") }, true, true},
			{"nothing of it changes", func() {}, false, true},
			{"another label", func() { spaces.putNamespace("shop", "1", "blue") }, true, true},
			{"it is gone", func() { delete(spaces, "shop") }, false, false},
			{"it is recreated", func() { spaces.putNamespace("shop", "2", "blue") }, true, true},
			{"it is deleted and recreated unseen", func() { spaces.putNamespace("shop", "3", "blue") }, true, true},
		} {
			step.change()
			b.handleEvent(tableEvent{namespace: "shop"})
			b.drainEvents()
			time.Sleep(time.Minute)
			synctest.Wait()
			id := policymatch.BundleID{Namespace: "shop", Name: "web"}
			if slices.Contains(touched, id) != step.touched {
				t.Errorf("%s: touched are %v", step.what, touched)
			}
			touched, templates.syncedCalls = nil, 0
			if _, err := b.reconcileBundle(t.Context(), b.ownership.bundlesInNamespace("shop")[0]); err != nil || (templates.syncedCalls > 0) != step.planned {
				t.Errorf("%s: it is planned %d times, %v", step.what, templates.syncedCalls, err)
			}
		}
	})
}
