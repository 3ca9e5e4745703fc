package binder

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/kinds/script"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/state"
)

// fakeTables is tables of plain values.
type fakeTables struct {
	templates  map[atoll.ItemKey]*unstructured.Unstructured
	namespaces map[string]*corev1.Namespace
	policies   []*v1alpha1.PropagationPolicy
	overrides  []*v1alpha1.OverridePolicy
	// interpreters; nil: none.
	interpreters *script.Library
	bundles      map[policymatch.BundleID]state.Bundle
	contents     map[string]*atoll.Content // by Bundle
}

func (l *fakeTables) clone() *fakeTables {
	out := *l
	out.templates = map[atoll.ItemKey]*unstructured.Unstructured{}
	for k, v := range l.templates {
		out.templates[k] = v.DeepCopy()
	}
	out.policies, out.overrides = slices.Clone(l.policies), slices.Clone(l.overrides)
	return &out
}

type fakeTemplates struct {
	Templates
	Kinds
	*fakeTables
}

func (l fakeTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := l.templates[key]
	return t, ok
}

func (l fakeTemplates) InNamespace(ns string) (out []*unstructured.Unstructured) {
	for key, t := range l.templates {
		if key.Namespace == ns {
			out = append(out, t)
		}
	}
	return out
}

func (l fakeTemplates) ListOfKind(gk schema.GroupKind, ns string) (out []*unstructured.Unstructured) {
	for key, t := range l.templates {
		if policymatch.GroupKindOf(key) == gk && key.Namespace == ns {
			out = append(out, t)
		}
	}
	return out
}
func (fakeTemplates) ResourceOfKey(atoll.ItemKey) (schema.GroupVersionResource, bool) {
	return schema.GroupVersionResource{}, false
}
func (fakeTemplates) IsSynced(string, string) bool                         { return true }
func (fakeTemplates) IsNamespaced(string, string) (namespaced, known bool) { return true, true }

type fakeNamespaces struct{ *fakeTables }

func (l fakeNamespaces) Get(name string) (*corev1.Namespace, bool) {
	ns, ok := l.namespaces[name]
	return ns, ok
}
func (l fakeNamespaces) List() []string       { return []string{"shop"} }
func (fakeNamespaces) Subscribe(func(string)) {}

type fakePolicies struct {
	Policies
	Overrides
	*fakeTables
}

func (l fakePolicies) PropagationPolicies(string) []*v1alpha1.PropagationPolicy { return l.policies }
func (l fakePolicies) GetPropagationPolicy(_, name string) (*v1alpha1.PropagationPolicy, bool) {
	for _, p := range l.policies {
		if p.Name == name {
			return p, true
		}
	}
	return nil, false
}
func (fakePolicies) ClusterPropagationPolicies() []*v1alpha1.ClusterPropagationPolicy { return nil }
func (l fakePolicies) OverridePolicies(string) []*v1alpha1.OverridePolicy             { return l.overrides }
func (fakePolicies) ClusterOverridePolicies() []*v1alpha1.ClusterOverridePolicy       { return nil }
func (l fakePolicies) InterpreterLibrary() *script.Library                            { return l.interpreters }

type fakeBundles struct {
	Bundles
	*fakeTables
}

func (l fakeBundles) GetByName(ns, name string) (state.Bundle, bool) {
	b, ok := l.bundles[policymatch.BundleID{Namespace: ns, Name: name}]
	return b, ok
}

type noRows struct{ Rows }

func (noRows) ListOfBundle(string) []state.Row { return nil }

type fakeRevisions struct {
	Revisions
	*fakeTables
}

func (l fakeRevisions) LatestOfBundle(uid string) (*enginev1.Revision, bool) {
	_, ok := l.contents[uid]
	return &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: uid + "-1-0"}, Spec: enginev1.RevisionSpec{Number: 1}}, ok
}

func (l fakeRevisions) GetContent(_ context.Context, name string) (*atoll.Content, error) {
	return l.contents[strings.TrimSuffix(name, "-1-0")], nil
}

func (l *fakeTables) binderOptions() Options {
	return Options{
		Templates: fakeTemplates{nil, nil, l}, Kinds: fakeTemplates{nil, nil, l}, Namespaces: fakeNamespaces{l},
		Policies: fakePolicies{nil, nil, l}, Overrides: fakePolicies{nil, nil, l},
		Bundles: fakeBundles{nil, l}, Rows: noRows{}, Revisions: fakeRevisions{nil, l},
	}
}

// newShopTables has Deployments web and api, both placed by policy web.
func newShopTables(t *testing.T) (*fakeTables, *Binder) {
	t.Helper()
	l := &fakeTables{
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, bundles: map[policymatch.BundleID]state.Bundle{}, contents: map[string]*atoll.Content{},
		namespaces: map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns"}}},
	}
	for _, name := range []string{"api", "web"} {
		o := newDeployment("shop", name, name+":1", 1)
		l.templates[policymatch.ItemKeyOf(o)] = o
	}
	l.policies = []*v1alpha1.PropagationPolicy{newPolicy("web", "")}
	b := &Binder{
		Options: l.binderOptions(), ownership: newOwnershipIndex(), events: newEventQueue(),
		overrideSelections: map[PolicyKey]objectSet{}, lastClustersAnnotation: map[string]string{}, lastNamespaceMeta: map[string]string{}, lastTemplates: map[atoll.ItemKey]templateState{}, lastRecallDecision: map[string]string{},
	}
	b.index.setNamespacePolicies("shop", l.policies)
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	for key := range l.templates {
		b.ownership.assignTemplate(key, id, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: "web", UID: "uid-x"}})
	}
	b.touchBundle, b.unselected = func(policymatch.BundleID) {}, newUnselectedLoop(b)
	l.bundles[id] = state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	p, err := b.preparePlan(t.Context(), id, state.Bundle{}, false)
	if err != nil {
		t.Fatal(err)
	}
	out := bundlecontent.NextContent(p.input)
	l.contents["b"] = &out.Content
	b.ownership.setContent(id, "b", 0, &out.Content)
	return l, b
}

// supposedEdit is one that is only supposed.
type supposedEdit struct {
	edit func(*fakeTables, *SupposedTables)
	want string
}

func supposedEdits() map[string]supposedEdit {
	key := func(name string) atoll.ItemKey {
		return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}
	}
	return map[string]supposedEdit{
		"nothing": {func(*fakeTables, *SupposedTables) {}, ""},
		"another image": {func(l *fakeTables, s *SupposedTables) {
			l.templates[key("web")] = newDeployment("shop", "web", "web:2", 2)
			s.ChangedTemplates = []atoll.ItemKey{key("web")}
		}, "web@2: api web"},
		"the same again": {func(_ *fakeTables, s *SupposedTables) { s.ChangedTemplates = []atoll.ItemKey{key("web")} }, "web@1: api web"},
		"one more object": {func(l *fakeTables, s *SupposedTables) {
			l.templates[key("db")] = newDeployment("shop", "db", "db:1", 1)
			s.ChangedTemplates = []atoll.ItemKey{key("db")}
		}, "web@2: api db web"},
		"deleted": {func(l *fakeTables, s *SupposedTables) {
			now := metav1.Now()
			l.templates[key("api")].SetDeletionTimestamp(&now)
			s.ChangedTemplates = []atoll.ItemKey{key("api")}
		}, "web@2: web -api:Deleted[]"},
		"a policy goes": {func(l *fakeTables, s *SupposedTables) {
			l.policies = nil
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "web"}}
		}, "web@2: api(Unclaimed) web(Unclaimed)"},
		"a policy that preempts": {func(l *fakeTables, s *SupposedTables) {
			p := newPolicy("api", "api")
			p.Spec.Priority, p.Spec.Preemption = 5, v1alpha1.PreemptAlways
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "api"}}
		}, "api@1+: api; web@2: web -api:Moved[new:shop/api]"},
		"a policy that does not": {func(l *fakeTables, s *SupposedTables) {
			l.policies = append(l.policies, newPolicy("api", "api"))
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "api"}}
		}, "web@1: api web"},
		"an annotation": {func(l *fakeTables, s *SupposedTables) {
			l.templates[key("web")].SetAnnotations(map[string]string{atoll.AnnotationClusters: "tokyo"})
			s.ChangedTemplates = []atoll.ItemKey{key("web")}
		}, "deployment-web-*@1+: web; web@2: api -web:Moved[new:shop/deployment-web-*]"},
		"an override": {func(l *fakeTables, s *SupposedTables) {
			o := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "shop"}}
			o.Spec.OverrideRules = []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{Replicas: new(int32)}}}
			l.overrides = append(l.overrides, o)
			s.ChangedPolicies = []PolicyKey{{"OverridePolicy", "shop", "o"}}
		}, "web@2: api web rules=1"},
		"an annotation of the namespace": {func(l *fakeTables, s *SupposedTables) {
			l.namespaces = map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", Annotations: map[string]string{atoll.AnnotationClusters: "*"}}}}
			s.ChangedNamespaces = []string{"shop"}
		}, "shop-*@1+: api web; web@2: -api:Moved[new:shop/shop-*] -web:Moved[new:shop/shop-*]"},
		"a policy that refers to a Placement that is not there": {func(l *fakeTables, s *SupposedTables) {
			p := newPolicy("api", "api")
			p.Spec.Priority, p.Spec.Preemption, p.Spec.PlacementRef = 5, v1alpha1.PreemptAlways, &v1alpha1.PlacementRef{Name: "far"}
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "api"}}
			s.Placements = placementTable{}
		}, "api@0+ waits; web@1: api web"},
		"the same with the Placement": {func(l *fakeTables, s *SupposedTables) {
			p := newPolicy("api", "api")
			p.Spec.Priority, p.Spec.Preemption, p.Spec.PlacementRef = 5, v1alpha1.PreemptAlways, &v1alpha1.PlacementRef{Name: "far"}
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{policyKind, "shop", "api"}}
			s.Placements = placementTable{{Namespace: "shop", Name: "far"}: {}}
			s.ChangedPlacements = []types.NamespacedName{{Namespace: "shop", Name: "far"}}
		}, "api@1+: api; web@2: web -api:Moved[new:shop/api]"},
		"the namespace goes": {func(l *fakeTables, s *SupposedTables) {
			now := metav1.Now()
			l.namespaces = map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", DeletionTimestamp: &now}}}
			s.ChangedNamespaces = []string{"shop"}
		}, "web@1-: api web"},
	}
}

func TestForesee(t *testing.T) {
	for name, tc := range supposedEdits() {
		t.Run(name, func(t *testing.T) {
			l, b := newShopTables(t)
			next := l.clone()
			s := SupposedTables{}
			tc.edit(next, &s)
			o := next.binderOptions()
			s.Templates, s.Kinds, s.Namespaces, s.Policies, s.Overrides = o.Templates, o.Kinds, o.Namespaces, o.Policies, o.Overrides
			for range 2 { // it leaves nothing behind
				got, err := b.PreviewBundles(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if text := describePreview(got); !matchesExpected(tc.want, text) {
					t.Errorf("foreseen %q, want %q", text, tc.want)
				}
			}
		})
	}
}

// describePreview in short: "Bundle@NUMBER: items -tombstones".
func describePreview(list []PreviewedBundle) string {
	var out []string
	for _, f := range list {
		s := fmt.Sprintf("%s@%d", f.Bundle.Ref.Name, atoll.RevisionNumber(f.Revision))
		if f.New {
			s += "+"
		}
		if f.Bundle.Meta.DeletionTimestamp != nil {
			s += "-"
		}
		if f.WaitReason != "" {
			out = append(out, s+" waits")
			continue
		}
		s += ":"
		for _, i := range f.Content.Items {
			if s += " " + i.Key.Name; i.State != "" {
				s += "(" + string(i.State) + ")"
			}
		}
		for _, x := range f.Content.Tombstones {
			s += fmt.Sprintf(" -%s:%s%v", x.Key.Name, x.Cause, x.MovedTo)
		}
		if n := len(f.Content.Rules); n > 0 {
			s += fmt.Sprint(" rules=", n)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

// matchesExpected reports whether the text is as wanted, with any ten digits for each *.
func matchesExpected(want, text string) bool {
	for {
		i := strings.IndexByte(want, '*')
		if i < 0 || len(text) < i+revisionSuffix {
			return want == text
		}
		if want[:i] != text[:i] {
			return false
		}
		want, text = want[i+1:], text[i+revisionSuffix:]
	}
}

// revisionSuffix is how long the suffixes of Bundles' names are.
const revisionSuffix = 10

// A Bundle that takes an item over has what interpreters said of it where it was.
func TestWhatIsTakenOverKeepsItsAnswers(t *testing.T) {
	l, b := newShopTables(t)
	replicas := int64(4)
	for i := range l.contents["b"].Items {
		l.contents["b"].Items[i].Interpreted = &atoll.InterpreterAnswers{AnsweredBy: "gone", Replicas: &replicas}
	}
	next := l.clone()
	p := newPolicy("api", "api")
	p.Spec.Priority, p.Spec.Preemption = 5, v1alpha1.PreemptAlways
	next.policies = append(next.policies, p)
	o := next.binderOptions()
	got, err := b.PreviewBundles(t.Context(), SupposedTables{
		Templates: o.Templates, Kinds: o.Kinds, Namespaces: o.Namespaces, Policies: o.Policies, Overrides: o.Overrides, ChangedPolicies: []PolicyKey{{policyKind, "shop", "api"}},
	})
	if err != nil || len(got) != 2 || got[0].Bundle.Ref.Name != "api" {
		t.Fatalf("foreseen %q: %v", describePreview(got), err)
	}
	if it := got[0].Content.Items[0]; it.Interpreted == nil || *it.Interpreted.Replicas != 4 {
		t.Errorf("it has %+v", it.Interpreted)
	}
}
