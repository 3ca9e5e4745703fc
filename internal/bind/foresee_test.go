package bind

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
	"atoll.dev/atoll/internal/claim"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/state"
)

// lagoon is tables of plain values.
type lagoon struct {
	templates map[atoll.ItemKey]*unstructured.Unstructured
	spaces    map[string]*corev1.Namespace
	policies  []*v1alpha1.PropagationPolicy
	overrides []*v1alpha1.OverridePolicy
	// interpreters; nil: none.
	interpreters *script.Library
	bundles      map[claim.BundleID]state.Bundle
	contents     map[string]*atoll.Content // by Bundle
}

func (l *lagoon) clone() *lagoon {
	out := *l
	out.templates = map[atoll.ItemKey]*unstructured.Unstructured{}
	for k, v := range l.templates {
		out.templates[k] = v.DeepCopy()
	}
	out.policies, out.overrides = slices.Clone(l.policies), slices.Clone(l.overrides)
	return &out
}

type lagoonTemplates struct {
	Templates
	*lagoon
}

func (l lagoonTemplates) Get(key atoll.ItemKey) (*unstructured.Unstructured, bool) {
	t, ok := l.templates[key]
	return t, ok
}

func (l lagoonTemplates) InNamespace(ns string) (out []*unstructured.Unstructured) {
	for key, t := range l.templates {
		if key.Namespace == ns {
			out = append(out, t)
		}
	}
	return out
}

func (l lagoonTemplates) OfKind(gk schema.GroupKind, ns string) (out []*unstructured.Unstructured) {
	for key, t := range l.templates {
		if claim.GroupKind(key) == gk && key.Namespace == ns {
			out = append(out, t)
		}
	}
	return out
}
func (lagoonTemplates) Resource(atoll.ItemKey) (schema.GroupVersionResource, bool) {
	return schema.GroupVersionResource{}, false
}
func (lagoonTemplates) Synced(string, string) bool                         { return true }
func (lagoonTemplates) Namespaced(string, string) (namespaced, known bool) { return true, true }

type lagoonSpaces struct{ *lagoon }

func (l lagoonSpaces) Get(name string) (*corev1.Namespace, bool) {
	ns, ok := l.spaces[name]
	return ns, ok
}
func (l lagoonSpaces) List() []string       { return []string{"shop"} }
func (lagoonSpaces) Subscribe(func(string)) {}

type lagoonPolicies struct {
	Policies
	*lagoon
}

func (l lagoonPolicies) Propagation(string) []*v1alpha1.PropagationPolicy { return l.policies }
func (l lagoonPolicies) PropagationPolicy(_, name string) (*v1alpha1.PropagationPolicy, bool) {
	for _, p := range l.policies {
		if p.Name == name {
			return p, true
		}
	}
	return nil, false
}
func (lagoonPolicies) ClusterPropagation() []*v1alpha1.ClusterPropagationPolicy { return nil }
func (l lagoonPolicies) Overrides(string) []*v1alpha1.OverridePolicy            { return l.overrides }
func (lagoonPolicies) ClusterOverrides() []*v1alpha1.ClusterOverridePolicy      { return nil }
func (l lagoonPolicies) Interpreters() *script.Library                          { return l.interpreters }

type lagoonBundles struct {
	Bundles
	*lagoon
}

func (l lagoonBundles) ByName(ns, name string) (state.Bundle, bool) {
	b, ok := l.bundles[claim.BundleID{Namespace: ns, Name: name}]
	return b, ok
}

type lagoonRows struct{ Rows }

func (lagoonRows) OfBundle(string) []state.Row { return nil }

type lagoonRevisions struct {
	Revisions
	*lagoon
}

func (l lagoonRevisions) Latest(uid string) (*enginev1.Revision, bool) {
	_, ok := l.contents[uid]
	return &enginev1.Revision{ObjectMeta: metav1.ObjectMeta{Name: uid + "-1-0"}, Spec: enginev1.RevisionSpec{Number: 1}}, ok
}

func (l lagoonRevisions) Content(_ context.Context, name string) (*atoll.Content, error) {
	return l.contents[strings.TrimSuffix(name, "-1-0")], nil
}

func (l *lagoon) options() Options {
	return Options{
		Templates: lagoonTemplates{nil, l}, Namespaces: lagoonSpaces{l}, Policies: lagoonPolicies{nil, l},
		Bundles: lagoonBundles{nil, l}, Rows: lagoonRows{}, Revisions: lagoonRevisions{nil, l},
	}
}

// shop has Deployments web and api, both placed by policy web.
func shop(t *testing.T) (*lagoon, *Binder) {
	t.Helper()
	l := &lagoon{
		templates: map[atoll.ItemKey]*unstructured.Unstructured{}, bundles: map[claim.BundleID]state.Bundle{}, contents: map[string]*atoll.Content{},
		spaces: map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns"}}},
	}
	for _, name := range []string{"api", "web"} {
		o := edition("shop", name, name+":1", 1)
		l.templates[claim.KeyOf(o)] = o
	}
	l.policies = []*v1alpha1.PropagationPolicy{pp("web", "")}
	b := &Binder{
		Options: l.options(), claims: newClaims(), inbox: newInbox(),
		overridden: map[policyKey]kindSet{}, namespaces: map[string]string{}, told: map[string]string{}, seen: map[atoll.ItemKey]looked{}, decided: map[string]string{},
	}
	b.index.setNamespace("shop", l.policies)
	id := claim.BundleID{Namespace: "shop", Name: "web"}
	for key := range l.templates {
		b.claims.place(key, id, origin{source: v1alpha1.BundleSource{Kind: ppKind, Name: "web", UID: "uid-x"}})
	}
	b.quiet = collector{}
	l.bundles[id] = state.Bundle{Ref: enginev1.BundleRef{UID: "b", Namespace: "shop", Name: "web"}}
	p, err := b.prepare(t.Context(), id, state.Bundle{}, false)
	if err != nil {
		t.Fatal(err)
	}
	out := claim.Plan(p.in)
	l.contents["b"] = &out.Content
	b.claims.has(id, "b", 0, &out.Content)
	return l, b
}

// supposedEdit is one that is only supposed.
type supposedEdit struct {
	edit func(*lagoon, *Supposed)
	want string
}

func supposedEdits() map[string]supposedEdit {
	key := func(name string) atoll.ItemKey {
		return atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}
	}
	return map[string]supposedEdit{
		"nothing": {func(*lagoon, *Supposed) {}, ""},
		"another image": {func(l *lagoon, s *Supposed) {
			l.templates[key("web")] = edition("shop", "web", "web:2", 2)
			s.ChangedTemplates = []atoll.ItemKey{key("web")}
		}, "web@2: api web"},
		"the same again": {func(_ *lagoon, s *Supposed) { s.ChangedTemplates = []atoll.ItemKey{key("web")} }, "web@1: api web"},
		"one more object": {func(l *lagoon, s *Supposed) {
			l.templates[key("db")] = edition("shop", "db", "db:1", 1)
			s.ChangedTemplates = []atoll.ItemKey{key("db")}
		}, "web@2: api db web"},
		"deleted": {func(l *lagoon, s *Supposed) {
			now := metav1.Now()
			l.templates[key("api")].SetDeletionTimestamp(&now)
			s.ChangedTemplates = []atoll.ItemKey{key("api")}
		}, "web@2: web -api:Deleted[]"},
		"a policy goes": {func(l *lagoon, s *Supposed) {
			l.policies = nil
			s.ChangedPolicies = []PolicyKey{{ppKind, "shop", "web"}}
		}, "web@2: api(Unclaimed) web(Unclaimed)"},
		"a policy that preempts": {func(l *lagoon, s *Supposed) {
			p := pp("api", "api")
			p.Spec.Priority, p.Spec.Preemption = 5, v1alpha1.PreemptAlways
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{ppKind, "shop", "api"}}
		}, "api@1+: api; web@2: web -api:Moved[new:shop/api]"},
		"a policy that does not": {func(l *lagoon, s *Supposed) {
			l.policies = append(l.policies, pp("api", "api"))
			s.ChangedPolicies = []PolicyKey{{ppKind, "shop", "api"}}
		}, "web@1: api web"},
		"an annotation": {func(l *lagoon, s *Supposed) {
			l.templates[key("web")].SetAnnotations(map[string]string{atoll.AnnotationClusters: "tokyo"})
			s.ChangedTemplates = []atoll.ItemKey{key("web")}
		}, "deployment-web-*@1+: web; web@2: api -web:Moved[new:shop/deployment-web-*]"},
		"an override": {func(l *lagoon, s *Supposed) {
			o := &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Name: "o", Namespace: "shop"}}
			o.Spec.OverrideRules = []v1alpha1.RuleWithCluster{{Overriders: v1alpha1.Overriders{Replicas: new(int32)}}}
			l.overrides = append(l.overrides, o)
			s.ChangedPolicies = []PolicyKey{{"OverridePolicy", "shop", "o"}}
		}, "web@2: api web rules=1"},
		"an annotation of the namespace": {func(l *lagoon, s *Supposed) {
			l.spaces = map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", Annotations: map[string]string{atoll.AnnotationClusters: "*"}}}}
			s.ChangedNamespaces = []string{"shop"}
		}, "shop-*@1+: api web; web@2: -api:Moved[new:shop/shop-*] -web:Moved[new:shop/shop-*]"},
		"a policy that refers to a Placement that is not there": {func(l *lagoon, s *Supposed) {
			p := pp("api", "api")
			p.Spec.Priority, p.Spec.Preemption, p.Spec.PlacementRef = 5, v1alpha1.PreemptAlways, &v1alpha1.PlacementRef{Name: "far"}
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{ppKind, "shop", "api"}}
			s.Placements = placements{}
		}, "api@0+ waits; web@1: api web"},
		"the same with the Placement": {func(l *lagoon, s *Supposed) {
			p := pp("api", "api")
			p.Spec.Priority, p.Spec.Preemption, p.Spec.PlacementRef = 5, v1alpha1.PreemptAlways, &v1alpha1.PlacementRef{Name: "far"}
			l.policies = append(l.policies, p)
			s.ChangedPolicies = []PolicyKey{{ppKind, "shop", "api"}}
			s.Placements = placements{{Namespace: "shop", Name: "far"}: {}}
			s.ChangedPlacements = []types.NamespacedName{{Namespace: "shop", Name: "far"}}
		}, "api@1+: api; web@2: web -api:Moved[new:shop/api]"},
		"the namespace goes": {func(l *lagoon, s *Supposed) {
			now := metav1.Now()
			l.spaces = map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", DeletionTimestamp: &now}}}
			s.ChangedNamespaces = []string{"shop"}
		}, "web@1-: api web"},
	}
}

func TestForesee(t *testing.T) {
	for name, tc := range supposedEdits() {
		t.Run(name, func(t *testing.T) {
			l, b := shop(t)
			next := l.clone()
			s := Supposed{}
			tc.edit(next, &s)
			o := next.options()
			s.Templates, s.Namespaces, s.Policies = o.Templates, o.Namespaces, o.Policies
			for range 2 { // it leaves nothing behind
				got, err := b.Foresee(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if text := told(got); !matches(tc.want, text) {
					t.Errorf("foreseen %q, want %q", text, tc.want)
				}
			}
		})
	}
}

// told in short: "Bundle@NUMBER: items -tombstones".
func told(list []Foreseen) string {
	var out []string
	for _, f := range list {
		s := fmt.Sprintf("%s@%d", f.Bundle.Ref.Name, atoll.RevisionNumber(f.Revision))
		if f.New {
			s += "+"
		}
		if f.Bundle.Meta.DeletionTimestamp != nil {
			s += "-"
		}
		if f.Waits != "" {
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

// matches tells whether the text is as wanted, with any ten digits for each *.
func matches(want, text string) bool {
	for {
		i := strings.IndexByte(want, '*')
		if i < 0 || len(text) < i+suffixed {
			return want == text
		}
		if want[:i] != text[:i] {
			return false
		}
		want, text = want[i+1:], text[i+suffixed:]
	}
}

// suffixed is how long the suffixes of Bundles' names are.
const suffixed = 10

// A Bundle that takes an item over has what interpreters said of it where it was.
func TestWhatIsTakenOverKeepsItsAnswers(t *testing.T) {
	l, b := shop(t)
	replicas := int64(4)
	for i := range l.contents["b"].Items {
		l.contents["b"].Items[i].Interpreted = &atoll.Interpreted{By: "gone", Replicas: &replicas}
	}
	next := l.clone()
	p := pp("api", "api")
	p.Spec.Priority, p.Spec.Preemption = 5, v1alpha1.PreemptAlways
	next.policies = append(next.policies, p)
	o := next.options()
	got, err := b.Foresee(t.Context(), Supposed{
		Templates: o.Templates, Namespaces: o.Namespaces, Policies: o.Policies, ChangedPolicies: []PolicyKey{{ppKind, "shop", "api"}},
	})
	if err != nil || len(got) != 2 || got[0].Bundle.Ref.Name != "api" {
		t.Fatalf("foreseen %q: %v", told(got), err)
	}
	if it := got[0].Content.Items[0]; it.Interpreted == nil || *it.Interpreted.Replicas != 4 {
		t.Errorf("it has %+v", it.Interpreted)
	}
}
