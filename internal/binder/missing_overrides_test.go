package binder

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/policymatch"
)

func overrideNamed(name string) *v1alpha1.OverridePolicy {
	return &v1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

// The first Revision of a Bundle waits until each override policy exists that its policy names. One that comes touches the Bundles that wait for
// it. After that Revision an override policy that is deleted stops nothing.
func TestAFirstRevisionWaitsForOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b, writes := newWritingBinder(t)
		refusals := recordedRefusals{}
		b.Events = refusals
		takeTouched := recordTouches(b)
		id, web := policymatch.BundleID{Namespace: "shop", Name: "web"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
		policy := PolicyKey{policyKind, "shop", "web"}
		l.policies[0].Spec.DependentOverrides = []string{"eu", "us"}
		reconcile := func(again time.Duration, want ...string) {
			t.Helper()
			*writes = nil
			got, err := b.reconcileBundle(t.Context(), id)
			if err != nil || got != again || !slices.Equal(*writes, want) {
				t.Errorf("reconciled again after %v, %v, with the writes %q; want %v and %q", got, err, *writes, again, want)
			}
		}
		expectWait := func(missing string) {
			t.Helper()
			want := ""
			if missing != "" {
				want = "nothing is sent before each OverridePolicy of dependentOverrides exists; missing: " + missing + ". Create what is missing, or edit dependentOverrides"
			}
			if got := b.overridesWaitOf(policy, &l.policies[0].Spec); got != want {
				t.Errorf("the policy has the wait %q, want %q", got, want)
			}
			if got := b.MissingOverridesReason(id, v1alpha1.BundleSource{Kind: policyKind, Name: "web"}); got != want {
				t.Errorf("the Bundle has the wait %q, want %q", got, want)
			}
		}
		comes := func(touched string, names ...string) {
			t.Helper()
			for _, name := range names {
				l.overrides = append(l.overrides, overrideNamed(name))
				b.handleEvent(tableEvent{policy: PolicyKey{kindOverridePolicy, "shop", name}})
			}
			if got := takeTouched(); got != touched {
				t.Errorf("%v touch %q, want %q", names, got, touched)
			}
		}

		reconcile(reportWaitAfter)
		expectWait("eu, us")
		if len(refusals) > 0 {
			t.Errorf("Events at once: %v", refusals)
		}
		time.Sleep(reportWaitAfter)
		reconcile(0)
		reconcile(0)
		if got := refusals[web]; len(got) != 1 || atoll.ParseRowReason(got[0]).Reason != atoll.ReasonOverridesMissing {
			t.Errorf("Events %q", got)
		}
		comes("", "asia")
		comes("shop/web", "eu")
		reconcile(0)
		expectWait("us")
		comes("shop/web", "us")
		reconcile(0, "create bundle web", "revision of new: api web", "OnRevision new-1-0")
		expectWait("")

		l.overrides = nil
		l.templates[web] = newDeployment("shop", "web", "web:2", 2)
		reconcile(0, "revision of new: api web", "OnRevision new-1-0")
		expectWait("")
	})
}
