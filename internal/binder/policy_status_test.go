package binder

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
)

// The condition of a policy says the first of: its Placement is missing, a kind cannot be read, objects cannot be
// sent, it selects nothing. Objects of a cluster policy are counted in all namespaces.
func TestAPolicyIsToldWhatIsWrong(t *testing.T) {
	const no = metav1.ConditionFalse
	shop, blog := policymatch.BundleID{Namespace: "shop", Name: "all"}, policymatch.BundleID{Namespace: "blog", Name: "all"}
	type problems = []bundlecontent.TemplateProblem
	selectKinds := func(kinds ...string) (out []v1alpha1.ResourceSelector) {
		for _, kind := range kinds {
			out = append(out, v1alpha1.ResourceSelector{APIVersion: "x.dev/v1", Kind: kind})
		}
		return out
	}
	tooLarge := problems{{Key: newKey("ConfigMap", "z"), Err: errors.New("too large")}, {Key: newKey("Secret", "s"), Err: errors.New("s is too large")}}
	rules := problems{{Err: errors.New("the rules are too large")}}
	unread := "objects of kind Widget.x.dev cannot be read since 2000-01-01T00:00:00Z: no CRD; what is placed stays as it is, and changes wait. Look at the hub's log, and repair or remove what cannot be read"
	missing := "ClusterPlacement edge, which placementRef names, does not exist: what is placed stays in its clusters, and nothing new is placed. Create it, or name another"
	for what, tc := range map[string]struct {
		spec     v1alpha1.PropagationSpec
		placed   int
		problems problems // of Bundle shop
		more     problems // of Bundle blog
		status   metav1.ConditionStatus
		reason   atoll.Reason
		message  string
	}{
		"all is well":       {v1alpha1.PropagationSpec{}, 3, nil, nil, metav1.ConditionTrue, atoll.ReasonPlaced, "what it selects is bound to Bundles"},
		"selects nothing":   {v1alpha1.PropagationSpec{}, 0, nil, nil, no, atoll.ReasonSelectsNothing, "no object that is not held by another policy or annotation matches resourceSelectors"},
		"cannot be sent":    {v1alpha1.PropagationSpec{}, 3, tooLarge, rules, no, atoll.ReasonCannotSend, "ConfigMap z: too large; a Secret cannot be sent as it is: an Event on it has the reason; the rules are too large"},
		"a long list":       {v1alpha1.PropagationSpec{}, 3, problems{{Err: errors.New(strings.Repeat("x", 1025))}}, nil, no, atoll.ReasonCannotSend, strings.Repeat("x", 1021) + "..."},
		"as long as it may": {v1alpha1.PropagationSpec{}, 3, problems{{Err: errors.New(strings.Repeat("x", 1024))}}, nil, no, atoll.ReasonCannotSend, strings.Repeat("x", 1024)},
		"cannot be read":    {v1alpha1.PropagationSpec{ResourceSelectors: selectKinds("ConfigMap", "Widget", "Gadget")}, 3, tooLarge, nil, no, atoll.ReasonCannotRead, unread},
		"a kind that the hub does not serve": {
			v1alpha1.PropagationSpec{ResourceSelectors: selectKinds("Unserved")}, 3, nil, nil, metav1.ConditionTrue, atoll.ReasonPlaced, "what it selects is bound to Bundles"},
		"its Placement is missing": {
			v1alpha1.PropagationSpec{ResourceSelectors: selectKinds("Widget"), PlacementRef: &v1alpha1.PlacementRef{Name: "edge"}}, 0, tooLarge, nil, no, atoll.ReasonPlacementMissing, missing},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _, _ := newTestBinder(t)
			b.Kinds = unreadKinds{reasons: map[string]error{"Widget": errors.New("no CRD"), "Gadget": errors.New("no CRD, too"), "Unserved": errors.New("not served")}}
			for _, kind := range []string{"Widget", "Gadget", "Unserved"} {
				b.unreadableKinds.startWait(schema.GroupKind{Group: "x.dev", Kind: kind}, time.Now())
			}
			time.Sleep(time.Minute)
			from := bundleOrigin{source: v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "all"}}
			for i, id := range []policymatch.BundleID{shop, shop, blog}[:tc.placed] {
				b.ownership.assignTemplate(newKey("ConfigMap", string(rune('a'+i))), id, from)
			}
			if tc.placed == 0 {
				b.ownership.setOrigin(shop, from)
			}
			b.policyStatus.reportedProblems[shop], b.policyStatus.reportedProblems[blog] = tc.problems, tc.more
			old := v1alpha1.PropagationStatus{ObservedGeneration: 1, Objects: 9}
			got := b.policyStatus.computeStatus(PolicyKey{from.source.Kind, "", "all"}, old, 4, &tc.spec)
			if got.ObservedGeneration != 4 || got.Objects != int32(tc.placed) || len(got.Conditions) != 1 {
				t.Fatalf("%s: %+v", what, got)
			}
			got.Conditions[0].LastTransitionTime = metav1.Time{}
			want := metav1.Condition{Type: v1alpha1.PolicyApplied, Status: tc.status, Reason: string(tc.reason), Message: tc.message, ObservedGeneration: 4}
			if got.Conditions[0] != want {
				t.Errorf("%s: it says %+v, want %+v", what, got.Conditions[0], want)
			}
		})
	}
}

// A status is written when it changes, to a policy of either kind, and on what was read of it. A policy that is gone has
// none.
func TestTheStatusOfAPolicyIsWrittenWhenItChanges(t *testing.T) {
	own, all := newPolicy("web", ""), &v1alpha1.ClusterPropagationPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all", Generation: 2}}
	b, _, _ := newTestBinder(t)
	var writes []string
	b.Client = fake.NewClientBuilder().WithScheme(b.Client.Scheme()).WithObjects(own, all).
		WithStatusSubresource(&v1alpha1.PropagationPolicy{}, &v1alpha1.ClusterPropagationPolicy{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes = append(writes, o.GetName())
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}).Build()
	table := twoPolicyTables{namespaced: map[string]*v1alpha1.PropagationPolicy{"web": own}, cluster: map[string]*v1alpha1.ClusterPropagationPolicy{"all": all}}
	b.Policies = table
	refresh := func() {
		t.Helper()
		for _, o := range []client.Object{own, all} {
			if err := b.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	refresh()
	stale := own.DeepCopy()
	keys := []PolicyKey{{policyKind, "shop", "web"}, {v1alpha1.SourceClusterPropagationPolicy, "", "all"}, {policyKind, "shop", "gone"}, {v1alpha1.SourceClusterPropagationPolicy, "", "gone"}}
	for range 2 {
		for _, key := range keys {
			if err := b.policyStatus.writeStatus(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		refresh()
	}
	if !slices.Equal(writes, []string{"web", "all"}) || len(own.Status.Conditions) != 1 || len(all.Status.Conditions) != 1 || all.Status.ObservedGeneration != 2 {
		t.Errorf("writes %v, statuses %+v and %+v", writes, own.Status, all.Status)
	}
	table.namespaced["web"] = stale
	if err := b.policyStatus.writeStatus(t.Context(), keys[0]); !apierrors.IsConflict(err) {
		t.Errorf("a policy that has changed since: %v", err)
	}
}

// The status of a policy follows 10 s after the first change, in one write. A failure is tried again; a policy
// that is gone is not.
func TestTheStatusOfAPolicyLagsBehind(t *testing.T) {
	for what, tc := range map[string]struct {
		answers []error
		tries   int64
	}{
		"it is written":     {nil, 1},
		"it is gone":        {[]error{apierrors.NewNotFound(schema.GroupResource{}, "web")}, 1},
		"the store is away": {[]error{errors.New("the store is away")}, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPolicy("web", "")
			b, _, table := newTestBinder(t)
			table.policies = []*v1alpha1.PropagationPolicy{p}
			var tries atomic.Int64
			b.Client = fake.NewClientBuilder().WithScheme(b.Client.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					if n := int(tries.Add(1)); n <= len(tc.answers) {
						return tc.answers[n-1]
					}
					return nil
				},
			}).Build()
			b.policyStatus = newPolicyStatusWriter(b)
			b.policyStatus.loop.AcceptKeys()
			go b.policyStatus.loop.Run(t.Context(), nil)
			key := PolicyKey{policyKind, "shop", "web"}
			b.policyStatus.enqueuePolicy(key)
			time.Sleep(statusDelay - 1)
			b.policyStatus.enqueuePolicy(key)
			synctest.Wait()
			if tries.Load() > 0 {
				t.Errorf("%s: written before 10 s", what)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if tries.Load() != tc.tries {
				t.Errorf("%s: tried %d times, want %d", what, tries.Load(), tc.tries)
			}
		})
	}
}
