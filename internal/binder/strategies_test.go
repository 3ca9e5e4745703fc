package binder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// strategyTable is a table of strategies, by key.
type strategyTable map[types.NamespacedName]state.RolloutStrategy

func (x strategyTable) Get(key types.NamespacedName) (state.RolloutStrategy, bool) {
	s, ok := x[key]
	return s, ok
}

func (x strategyTable) GetRollout(key types.NamespacedName) (*v1alpha1.Rollout, bool) {
	s, ok := x[key]
	return &s.Spec.Rollout, ok
}

func (x strategyTable) List() []state.RolloutStrategy { return slices.Collect(maps.Values(x)) }

func (x strategyTable) ListEnforcedFor(labels map[string]string) []string {
	var enforced rollout.Enforcement
	for key, s := range x {
		if key.Namespace == "" {
			enforced = enforced.WithStrategy(key.Name, s.Spec.EnforcedFor)
		}
	}
	return enforced.ListFor(labels)
}

func (strategyTable) Subscribe(func(types.NamespacedName)) {}

// add adds a strategy that is known by its bound. It is enforced for the namespaces of a tier, if one is given.
func (x strategyTable) add(namespace, name string, bound int32, tier string) {
	s := state.RolloutStrategy{Meta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: int64(bound)}, Spec: v1alpha1.ClusterRolloutStrategySpec{Rollout: *rolloutWithBound(bound)}}
	if tier != "" {
		s.Spec.EnforcedFor = &v1alpha1.StrategyEnforcement{NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}}
	}
	x[s.Key()] = s
}

func rolloutWithBound(n int32) *v1alpha1.Rollout {
	bound := intstr.FromInt32(n)
	return &v1alpha1.Rollout{MaxUnavailable: &bound}
}

func rolloutRefTo(kind, name string) *v1alpha1.RolloutRef {
	return &v1alpha1.RolloutRef{Kind: kind, Name: name}
}

// describeRollout returns text such as "2 of RolloutStrategy a enforced".
func describeRollout(r *v1alpha1.Rollout, s *v1alpha1.AppliedStrategy) string {
	text := "none"
	if r != nil {
		text = r.MaxUnavailable.String()
	}
	if s != nil {
		text += " of " + s.String()
		if s.Enforced {
			text += " enforced"
		}
	}
	return text
}

// namespaceTiers is a table of namespaces with a label.
type namespaceTiers map[string]string

func (x namespaceTiers) Get(name string) (*corev1.Namespace, bool) {
	tier, ok := x[name]
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}, ok
}
func (x namespaceTiers) List() []string       { return slices.Sorted(maps.Keys(x)) }
func (namespaceTiers) Subscribe(func(string)) {}

// rolloutRef names a strategy by kind and name. The strategy that is enforced for the namespace comes first, and the policy's own rollout last.
// A missing strategy leaves a Bundle its rollout, and makes none.
func TestRolloutRef(t *testing.T) {
	id := policymatch.BundleID{Namespace: "shop", Name: "web"}
	is := state.Bundle{Ref: enginev1.BundleRef{UID: "u", Namespace: "shop", Name: "web"}, Spec: v1alpha1.BundleSpec{
		Rollout: rolloutWithBound(7), RolloutStrategy: &v1alpha1.AppliedStrategy{Kind: "ClusterRolloutStrategy", Name: "was", Enforced: true},
	}}
	const cluster = v1alpha1.SourceClusterPropagationPolicy
	own := v1alpha1.PropagationSpec{Rollout: rolloutWithBound(9)}
	ref := func(kind, name string) v1alpha1.PropagationSpec {
		return v1alpha1.PropagationSpec{RolloutRef: rolloutRefTo(kind, name)}
	}
	for name, tc := range map[string]struct {
		kind    string
		spec    v1alpha1.PropagationSpec
		tiers   namespaceTiers
		had     bool
		want    string // empty for no intent
		missing string
	}{
		"its own":                           {policyKind, own, namespaceTiers{"shop": ""}, true, "9", ""},
		"of its namespace":                  {policyKind, ref("", "careful"), namespaceTiers{"shop": ""}, true, "1 of RolloutStrategy careful", ""},
		"of all namespaces":                 {policyKind, ref("ClusterRolloutStrategy", "careful"), namespaceTiers{"shop": ""}, false, "2 of ClusterRolloutStrategy careful", ""},
		"of a cluster policy":               {cluster, ref("", "careful"), namespaceTiers{"shop": ""}, false, "2 of ClusterRolloutStrategy careful", ""},
		"missing, with a Bundle":            {policyKind, ref("", "none"), namespaceTiers{"shop": ""}, true, "7 of ClusterRolloutStrategy was", "RolloutStrategy none, which rolloutRef names, does not exist: "},
		"missing, without a Bundle":         {policyKind, ref("", "none"), namespaceTiers{"shop": ""}, false, "", "RolloutStrategy none, which rolloutRef names, does not exist: "},
		"a cluster policy's, missing":       {cluster, ref("", "none"), namespaceTiers{"shop": ""}, false, "", "ClusterRolloutStrategy none, which rolloutRef names, does not exist: "},
		"enforced over its own":             {policyKind, own, namespaceTiers{"shop": "prod"}, false, "3 of ClusterRolloutStrategy first enforced", ""},
		"enforced over a missing one":       {policyKind, ref("", "none"), namespaceTiers{"shop": "prod"}, false, "3 of ClusterRolloutStrategy first enforced", ""},
		"enforced over a cluster policy":    {cluster, own, namespaceTiers{"shop": "prod"}, true, "3 of ClusterRolloutStrategy first enforced", ""},
		"the namespace is not read":         {policyKind, own, namespaceTiers{}, true, "7 of ClusterRolloutStrategy was enforced", ""},
		"the namespace comes with a Bundle": {policyKind, own, namespaceTiers{}, false, "9", ""},
	} {
		b, _, _ := newTestBinder(t)
		bundles, strategies := bundleTable{byID: map[policymatch.BundleID]state.Bundle{}}, strategyTable{}
		strategies.add("shop", "careful", 1, "")
		strategies.add("", "careful", 2, "")
		strategies.add("", "first", 3, "prod")
		strategies.add("", "second", 4, "prod")
		if tc.had {
			bundles.byID[id] = is
		}
		b.Bundles, b.Strategies, b.Namespaces = bundles, strategies, tc.tiers
		got := ""
		if intent := b.resolveIntent(id, tc.kind, tc.spec); intent != nil {
			spec := bundlePlan{intent: intent}.bundleSpec(v1alpha1.BundleSpec{Rollout: rolloutWithBound(8)})
			got = describeRollout(spec.Rollout, spec.RolloutStrategy)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if why := b.missingStrategyReason(tc.kind, "shop", &tc.spec); !strings.HasPrefix(why, tc.missing) || (why == "") != (tc.missing == "") {
			t.Errorf("%s: missing %q, want %q", name, why, tc.missing)
		}
	}
}

// A strategy is enforced over annotations and the default placement, which state no rollout, and never for a ClusterBundle.
func TestEnforcementOverSourcesWithoutARollout(t *testing.T) {
	b, _, _ := newTestBinder(t)
	strategies := strategyTable{}
	strategies.add("", "first", 3, "prod")
	strategies.add("", "second", 4, "prod")
	b.Strategies, b.Namespaces = strategies, namespaceTiers{"shop": "prod", "blog": ""}
	annotations := map[string]string{atoll.AnnotationClusters: "*"}
	for namespace, want := range map[string]string{"shop": "3 of ClusterRolloutStrategy first enforced", "blog": "none", "": "none"} {
		intent := b.resolveAnnotation(policymatch.BundleID{Namespace: namespace, Name: "x"}, v1alpha1.SourceAnnotation, annotations)
		if got := describeRollout(intent.Spec.Rollout, intent.Strategy); got != want {
			t.Errorf("%q: %s, want %s", namespace, got, want)
		}
	}
	if intent := b.resolveAnnotation(policymatch.BundleID{Namespace: "shop"}, v1alpha1.SourceAnnotation, nil); intent != nil {
		t.Errorf("no annotation: %+v", intent)
	}
	choice := b.ExplainRollout(policymatch.BundleID{Namespace: "shop", Name: "x"}, v1alpha1.BundleSource{Kind: v1alpha1.SourceHubSettings, Name: v1alpha1.HubSettingsName})
	if got := describeRollout(choice.Rollout, choice.Strategy); got != "3 of ClusterRolloutStrategy first enforced" || !slices.Equal(choice.Outranked, []string{"second"}) {
		t.Errorf("the default placement: %s, outranked %v", got, choice.Outranked)
	}
}

// newStrategyHub has Bundles of policies with and without a strategy, in two namespaces.
func newStrategyHub(t *testing.T) (*Binder, strategyTable, twoPolicyTables, namespaceTiers) {
	t.Helper()
	b, _, _ := newTestBinder(t)
	policy := func(ns, name string, ref *v1alpha1.RolloutRef) *v1alpha1.PropagationPolicy {
		return &v1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.PropagationSpec{RolloutRef: ref}}
	}
	policies := twoPolicyTables{
		namespaced: map[string]*v1alpha1.PropagationPolicy{
			"web": policy("shop", "web", rolloutRefTo("", "careful")), "api": policy("shop", "api", rolloutRefTo("ClusterRolloutStrategy", "careful")),
			"own": policy("shop", "own", nil), "far": policy("blog", "far", rolloutRefTo("", "careful")),
		},
		cluster: map[string]*v1alpha1.ClusterPropagationPolicy{"all": {ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policy("", "", rolloutRefTo("", "careful")).Spec}},
	}
	tiers, strategies := namespaceTiers{"blog": "test", "shop": "test"}, strategyTable{}
	b.Policies, b.Namespaces, b.Strategies, b.events = policies, tiers, strategies, newEventQueue()
	b.lastClustersAnnotation, b.lastNamespaceMeta = map[string]string{}, map[string]string{}
	for _, p := range policies.namespaced {
		b.strategyUses.setUse(PolicyKey{policyKind, p.Namespace, p.Name}, &p.Spec)
		b.ownership.assignTemplate(atoll.ItemKey{Kind: "ConfigMap", Namespace: p.Namespace, Name: p.Name}, policymatch.BundleID{Namespace: p.Namespace, Name: p.Name}, bundleOrigin{source: v1alpha1.BundleSource{Kind: policyKind, Name: p.Name}})
	}
	all := PolicyKey{v1alpha1.SourceClusterPropagationPolicy, "", "all"}
	b.strategyUses.setUse(all, &policies.cluster["all"].Spec)
	b.ownership.assignTemplate(atoll.ItemKey{Kind: "ConfigMap", Namespace: "blog", Name: "all"}, policymatch.BundleID{Namespace: "blog", Name: "all"}, bundleOrigin{source: v1alpha1.BundleSource{Kind: all.Kind, Name: "all"}})
	return b, strategies, policies, tiers
}

// An edit of a strategy touches the Bundles of the policies that name it, and no others. The statuses of the policies and of the strategy follow.
func TestAStrategyTouchesThePoliciesThatNameIt(t *testing.T) {
	for key, tc := range map[types.NamespacedName]struct {
		touched string
		due     []PolicyKey
	}{
		{Namespace: "shop", Name: "careful"}: {"shop/web", []PolicyKey{{policyKind, "shop", "web"}, {"RolloutStrategy", "shop", "careful"}}},
		{Namespace: "shop", Name: "none"}:    {"", []PolicyKey{{"RolloutStrategy", "shop", "none"}}},
		{Name: "careful"}: {"blog/all shop/api", []PolicyKey{
			{"ClusterPropagationPolicy", "", "all"}, {"ClusterRolloutStrategy", "", "careful"}, {policyKind, "shop", "api"},
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, strategies, _, _ := newStrategyHub(t)
			strategies.add(key.Namespace, key.Name, 1, "")
			takeDue, takeTouched := recordPolicyQueue(t, b), recordTouches(b)
			b.handleEvent(tableEvent{strategy: key})
			if got := takeTouched(); got != tc.touched {
				t.Errorf("%s touches %q, want %q", key, got, tc.touched)
			}
			due := takeDue()
			slices.SortFunc(due, comparePolicies)
			slices.SortFunc(tc.due, comparePolicies)
			if !slices.Equal(due, tc.due) {
				t.Errorf("%s: statuses of %v, want %v", key, due, tc.due)
			}
		})
	}
}

// Bundles in a namespace are touched when another strategy is enforced there, when the enforced one is edited, and when the enforcement ends. A
// strategy that another one outranks touches none of them.
func TestAnEnforcementTouchesTheBundlesInItsNamespaces(t *testing.T) {
	b, strategies, _, tiers := newStrategyHub(t)
	takeTouched := recordTouches(b)
	const shop, blog = "shop/api shop/own shop/web", "blog/all blog/far"
	changeNamespace := func(name, tier string) func() {
		return func() {
			tiers[name] = tier
			b.lastNamespaceMeta[name] = b.namespaceFingerprint(name) // members get the label, too
			b.handleEvent(tableEvent{namespace: name})
		}
	}
	changeStrategy := func(name string, bound int32, tier string) func() {
		return func() {
			if strategies.add("", name, bound, tier); bound == 0 {
				delete(strategies, types.NamespacedName{Name: name})
			}
			b.handleEvent(tableEvent{strategy: types.NamespacedName{Name: name}})
		}
	}
	for _, step := range []struct {
		what   string
		change func()
		want   string
	}{
		{"it is enforced nowhere", changeStrategy("m", 1, ""), ""},
		{"for another tier", changeStrategy("m", 1, "prod"), ""},
		{"a namespace is of the tier", changeNamespace("shop", "prod"), shop},
		{"the namespace again", changeNamespace("shop", "prod"), ""},
		{"an edit", changeStrategy("m", 2, "prod"), shop},
		{"a later one by name", changeStrategy("z", 3, "prod"), ""},
		{"an edit of the later one", changeStrategy("z", 4, "prod"), ""},
		{"an earlier one by name", changeStrategy("a", 5, "prod"), shop},
		{"an edit of the one after it", changeStrategy("m", 6, "prod"), ""},
		{"the other tier", changeStrategy("a", 5, "test"), blog + " " + shop},
		{"the deletion of it", changeStrategy("a", 0, ""), blog},
		{"a namespace leaves the tier", changeNamespace("shop", "none"), shop},
	} {
		step.change()
		if got := takeTouched(); got != step.want {
			t.Errorf("%s: touches %q, want %q", step.what, got, step.want)
		}
	}
	changeNamespace("shop", "prod")()
	takeTouched()
	delete(tiers, "shop")
	b.handleEvent(tableEvent{namespace: "shop"})
	if got := takeTouched(); got != "" || len(b.lastEnforcement) > 0 {
		t.Errorf("a namespace that is gone touches %q, and leaves %v", got, b.lastEnforcement)
	}
}

// A policy that names another strategy, or none, requests the statuses of both. Any other edit requests none.
func TestTheUseOfStrategiesFollowsThePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, policies, _ := newStrategyHub(t)
		takeDue := recordPolicyQueue(t, b)
		web := policies.namespaced["web"]
		edit := func(what, want string, change func()) {
			t.Helper()
			change()
			b.recordStrategyUse(PolicyKey{policyKind, "shop", "web"}, b.policySpecOf(policymatch.BundleID{Namespace: "shop"}, v1alpha1.BundleSource{Kind: policyKind, Name: "web"}))
			var got []string
			for _, key := range takeDue() {
				got = append(got, key.Kind+" "+key.Name)
			}
			slices.Sort(got)
			if strings.Join(got, ", ") != want {
				t.Errorf("%s: statuses of %v, want %s", what, got, want)
			}
		}
		edit("no edit", "", func() {})
		edit("another one", "RolloutStrategy careful, RolloutStrategy fast", func() { web.Spec.RolloutRef = rolloutRefTo("", "fast") })
		edit("another kind", "ClusterRolloutStrategy fast, RolloutStrategy fast", func() { web.Spec.RolloutRef = rolloutRefTo("ClusterRolloutStrategy", "fast") })
		edit("none", "ClusterRolloutStrategy fast", func() { web.Spec.RolloutRef = nil })
		edit("one again", "RolloutStrategy careful", func() { web.Spec.RolloutRef = rolloutRefTo("", "careful") })
		edit("deleted", "RolloutStrategy careful", func() { delete(policies.namespaced, "web") })
		if len(b.strategyUses.byPolicy) != 3 || len(b.strategyUses.byStrategy) != 2 {
			t.Errorf("the policies that are left: %v", b.strategyUses.byPolicy)
		}
		var copied strategyUses
		copied.copyFrom(&b.strategyUses)
		copied.setUse(PolicyKey{policyKind, "shop", "api"}, nil)
		if len(b.strategyUses.listPolicies(types.NamespacedName{Name: "careful"})) != 2 || len(copied.listPolicies(types.NamespacedName{Name: "careful"})) != 1 {
			t.Error("a copy shares what it was made of")
		}
		copied.copyFrom(&strategyUses{})
		if got := copied.setUse(PolicyKey{policyKind, "shop", "api"}, &v1alpha1.PropagationSpec{RolloutRef: rolloutRefTo("", "x")}); len(got) != 1 {
			t.Errorf("a copy of nothing: %v", got)
		}
	})
}

// A start reads which policies name which strategies, and which strategies are enforced, so that events about them are no change.
func TestAStartReadsTheStrategies(t *testing.T) {
	h := newStartedHub(t)
	strategies := strategyTable{}
	strategies.add("", "m", 1, "prod")
	h.Strategies = strategies
	h.namespaces["shop"].Labels = map[string]string{"tier": "prod"}
	h.policies[0].Spec.RolloutRef = rolloutRefTo("", "careful")
	if err := h.loadInitialState(t.Context()); err != nil {
		t.Fatal(err)
	}
	takeAllEvents(h.events)
	takeTouched := recordTouches(h.Binder)
	h.policyStatus = newPolicyStatusWriter(h.Binder)
	if h.handleEvent(tableEvent{namespace: "shop"}); takeTouched() != "" {
		t.Error("the namespace is a change")
	}
	if h.handleEvent(tableEvent{strategy: types.NamespacedName{Namespace: "shop", Name: "careful"}}); takeTouched() != "shop/web" {
		t.Error("the strategy of the policy touches nothing")
	}
	if h.handleEvent(tableEvent{strategy: types.NamespacedName{Name: "m"}}); takeTouched() == "" {
		t.Error("the enforced strategy touches nothing")
	}
}

// A Bundle that does not exist yet waits for its strategy, with an Event on its objects after a while. The strategy touches it, and each edit
// writes the terms to the Bundle, and nothing else.
func TestABundleWaitsForItsStrategy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b, writes := newWritingBinder(t)
		refusals, strategies := recordedRefusals{}, strategyTable{}
		b.Events, b.Strategies = refusals, strategies
		takeTouched := recordTouches(b)
		id, web := policymatch.BundleID{Namespace: "shop", Name: "web"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
		key, policy := types.NamespacedName{Namespace: "shop", Name: "careful"}, PolicyKey{policyKind, "shop", "web"}
		l.policies[0].Spec.RolloutRef = rolloutRefTo("", "careful")
		b.strategyUses.setUse(policy, &l.policies[0].Spec)
		reconcile := func(again time.Duration, rolloutIs string, want ...string) {
			t.Helper()
			*writes = nil
			got, err := b.reconcileBundle(t.Context(), id)
			if err != nil || got != again || !slices.Equal(*writes, want) {
				t.Errorf("reconciled again after %v, %v, with the writes %q; want %v and %q", got, err, *writes, again, want)
			}
			if is := l.bundles[id].Spec; describeRollout(is.Rollout, is.RolloutStrategy) != rolloutIs {
				t.Errorf("the rollout is %s, want %s", describeRollout(is.Rollout, is.RolloutStrategy), rolloutIs)
			}
		}
		reconcile(reportWaitAfter, "none")
		if len(refusals) > 0 || !b.missingReferences.isWaiting(id) {
			t.Errorf("Events at once: %v", refusals)
		}
		time.Sleep(reportWaitAfter)
		reconcile(0, "none")
		if got := refusals[web]; len(got) != 1 || atoll.ParseRowReason(got[0]).Reason != atoll.ReasonRolloutStrategyMissing {
			t.Errorf("Events %q", got)
		}
		status := b.policyStatus.computeStatus(policy, v1alpha1.PropagationStatus{}, 1, &l.policies[0].Spec)
		if c := status.Conditions[0]; c.Reason != string(atoll.ReasonRolloutStrategyMissing) || !strings.Contains(c.Message, "Create it, or name another") {
			t.Errorf("the policy has %+v", c)
		}
		for _, bound := range []int32{1, 2} {
			strategies.add("shop", "careful", bound, "")
			if b.handleEvent(tableEvent{strategy: key}); takeTouched() != "shop/web" {
				t.Error("the strategy touches nothing")
			}
			text := fmt.Sprintf("%d of RolloutStrategy careful", bound)
			if bound == 1 {
				reconcile(0, text, "create bundle web", "revision of new: api web", "OnRevision new-1-0")
			} else {
				reconcile(0, text, "update bundle web")
			}
			reconcile(0, text)
		}
	})
}

// A preview has the Bundles of the policies that name a strategy, of namespaces in which one is enforced, and of namespaces whose labels change.
func TestAPreviewFollowsTheStrategies(t *testing.T) {
	careful, first := types.NamespacedName{Namespace: "shop", Name: "careful"}, types.NamespacedName{Name: "first"}
	for what, tc := range map[string]struct {
		change func(l *fakeTables, b *Binder, s *SupposedTables)
		want   string
	}{
		"an edit": {func(_ *fakeTables, b *Binder, s *SupposedTables) {
			next := strategyTable{}
			next.add("shop", "careful", 2, "")
			s.Strategies, s.ChangedStrategies = next, []types.NamespacedName{careful}
		}, "2 of RolloutStrategy careful"},
		"a deletion": {func(_ *fakeTables, b *Binder, s *SupposedTables) {
			s.Strategies, s.ChangedStrategies = strategyTable{}, []types.NamespacedName{careful}
		}, "6"},
		"another one": {func(_ *fakeTables, b *Binder, s *SupposedTables) {
			s.ChangedStrategies = []types.NamespacedName{{Namespace: "shop", Name: "other"}}
		}, ""},
		"one that is enforced": {func(_ *fakeTables, b *Binder, s *SupposedTables) {
			next := strategyTable{}
			next.add("", "first", 3, "prod")
			s.Strategies, s.ChangedStrategies = next, []types.NamespacedName{first}
		}, "3 of ClusterRolloutStrategy first enforced"},
		"one that selects nothing": {func(_ *fakeTables, b *Binder, s *SupposedTables) {
			next := strategyTable{}
			next.add("", "first", 3, "none")
			s.Strategies, s.ChangedStrategies = next, []types.NamespacedName{first}
		}, ""},
		"an enforcement that ends": {func(_ *fakeTables, b *Binder, s *SupposedTables) {
			b.Strategies.(strategyTable).add("", "first", 3, "prod")
			next := strategyTable{}
			next.add("shop", "careful", 1, "")
			s.Strategies, s.ChangedStrategies = next, []types.NamespacedName{first}
		}, "1 of RolloutStrategy careful"},
		"labels of the namespace": {func(l *fakeTables, b *Binder, s *SupposedTables) {
			b.Strategies.(strategyTable).add("", "first", 4, "test")
			next := l.clone()
			next.namespaces = map[string]*corev1.Namespace{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "ns", Labels: map[string]string{"tier": "test"}}}}
			s.Namespaces, s.ChangedNamespaces = fakeNamespaces{next}, []string{"shop"}
		}, "4 of ClusterRolloutStrategy first enforced"},
		"a policy that names another": {func(l *fakeTables, b *Binder, s *SupposedTables) {
			b.Strategies.(strategyTable).add("shop", "fast", 5, "")
			next := l.clone()
			next.policies = []*v1alpha1.PropagationPolicy{l.policies[0].DeepCopy()}
			next.policies[0].Spec.RolloutRef = rolloutRefTo("", "fast")
			s.Policies, s.ChangedPolicies = fakePolicies{nil, nil, next}, []PolicyKey{{policyKind, "shop", "web"}}
		}, "5 of RolloutStrategy fast"},
	} {
		l, b := newShopTables(t)
		strategies := strategyTable{}
		strategies.add("shop", "careful", 1, "")
		b.Strategies, b.Settings = strategies, &hubDefault{}
		l.namespaces["shop"].Labels = map[string]string{"tier": "prod"}
		l.policies[0].Spec.RolloutRef = rolloutRefTo("", "careful")
		id := policymatch.BundleID{Namespace: "shop", Name: "web"}
		bundle := l.bundles[id]
		bundle.Spec.Rollout = rolloutWithBound(6)
		l.bundles[id] = bundle
		b.strategyUses.setUse(PolicyKey{policyKind, "shop", "web"}, &l.policies[0].Spec)
		s := supposeSame(b)
		tc.change(l, b, &s)
		previewed, err := b.PreviewBundles(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, one := range previewed {
			got += describeRollout(one.Bundle.Spec.Rollout, one.Bundle.Spec.RolloutStrategy)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", what, got, tc.want)
		}
	}
}

// The status of a strategy counts the policies that name it and the namespaces in which it is enforced. It is written when it changes.
func TestTheStatusOfAStrategy(t *testing.T) {
	for what, tc := range map[string]struct {
		namespace, name, tier string
		policies, namespaces  int32
		inUse, enforced       string // status and reason
		messages              []string
	}{
		"of a namespace":        {"shop", "careful", "", 1, 0, "True StrategyUsed", "", []string{"rolloutRef of 1 policy names it"}},
		"not used":              {"blog", "fast", "", 0, 0, "False StrategyUnused", "", nil},
		"of all, by two kinds":  {"", "careful", "", 2, 0, "True StrategyUsed", "", []string{"rolloutRef of 2 policies names it"}},
		"enforced":              {"", "alone", "test", 0, 1, "True StrategyUsed", "True Enforced", []string{"it is enforced in 1 namespace", "it is the rollout of all Bundles in 1 namespace"}},
		"outranked in both":     {"", "second", "prod", 0, 0, "False StrategyUnused", "False Outranked", []string{"it is enforced in 0 of 2 namespaces that it selects: in namespace cart, ClusterRolloutStrategy first comes first by name"}},
		"no namespace is of it": {"", "empty", "none", 0, 0, "False StrategyUnused", "False NoNamespaceSelected", nil},
	} {
		b, strategies, _, tiers := newStrategyHub(t)
		tiers["shop"], tiers["cart"] = "prod", "prod"
		strategies.add("", "first", 9, "prod")
		strategies.add(tc.namespace, tc.name, 4, tc.tier)
		key := types.NamespacedName{Namespace: tc.namespace, Name: tc.name}
		stored := strategies[key]
		stored.Meta.ResourceVersion = "1"
		strategies[key] = stored
		var writes int
		b.Client = fake.NewClientBuilder().WithScheme(b.Client.Scheme()).WithObjects(stored.ToObject()).
			WithStatusSubresource(&v1alpha1.RolloutStrategy{}, &v1alpha1.ClusterRolloutStrategy{}).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(sub).Patch(ctx, o, patch, opts...)
			},
		}).Build()
		var is state.RolloutStrategy
		for range 2 { // the second one reads what the first one wrote
			if err := b.policyStatus.writeStatus(t.Context(), strategyKey(key)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if is = storedStrategy(t, b.Client, key); writes != 1 {
				t.Fatalf("%s: %d writes", what, writes)
			}
			strategies[key] = is
		}
		if is.Status.ObservedGeneration != 4 || is.Status.Policies != tc.policies || is.Status.EnforcedNamespaces != tc.namespaces {
			t.Errorf("%s: %+v", what, is.Status)
		}
		text := ""
		for conditionType, want := range map[string]string{v1alpha1.StrategyInUse: tc.inUse, v1alpha1.StrategyEnforced: tc.enforced} {
			got := ""
			if c := meta.FindStatusCondition(is.Status.Conditions, conditionType); c != nil {
				got, text = string(c.Status)+" "+c.Reason, text+c.Message+"\n"
			}
			if got != want {
				t.Errorf("%s: the condition %s is %q, want %q", what, conditionType, got, want)
			}
		}
		for _, message := range tc.messages {
			if !strings.Contains(text, message) {
				t.Errorf("%s: %q is not in\n%s", what, message, text)
			}
		}
		stored = strategies[key]
		stored.Spec.EnforcedFor = nil
		if now := strategyStatus(stored, strategyUse{}); meta.FindStatusCondition(now.Conditions, v1alpha1.StrategyEnforced) != nil {
			t.Errorf("%s: a strategy that is not enforced any more has %+v", what, now.Conditions)
		}
	}
	b, _, _, _ := newStrategyHub(t)
	for _, kind := range []string{"RolloutStrategy", "ClusterRolloutStrategy"} {
		if err := b.policyStatus.writeStatus(t.Context(), PolicyKey{kind, "", "gone"}); err != nil {
			t.Errorf("a strategy that is gone: %v", err)
		}
	}
}

// storedStrategy reads a strategy.
func storedStrategy(t *testing.T, c client.Client, key types.NamespacedName) state.RolloutStrategy {
	t.Helper()
	if key.Namespace == "" {
		o := &v1alpha1.ClusterRolloutStrategy{}
		if err := c.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
		return state.RolloutStrategy{Meta: o.ObjectMeta, Spec: o.Spec, Status: o.Status}
	}
	o := &v1alpha1.RolloutStrategy{}
	if err := c.Get(t.Context(), key, o); err != nil {
		t.Fatal(err)
	}
	return state.RolloutStrategy{
		Meta: o.ObjectMeta, Spec: v1alpha1.ClusterRolloutStrategySpec{Rollout: o.Spec}, Status: v1alpha1.ClusterRolloutStrategyStatus{RolloutStrategyStatus: o.Status},
	}
}
