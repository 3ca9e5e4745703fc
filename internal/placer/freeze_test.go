package placer

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// fakeSettings are settings with a freeze.
type fakeSettings struct {
	mu     sync.Mutex
	is     *v1alpha1.ChangeFreeze
	notify func(string)
	// isLifted: the freeze is lifted once it has been read.
	isLifted bool
}

func (s *fakeSettings) Freeze() *v1alpha1.ChangeFreeze {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.is
	if s.isLifted && is != nil {
		s.is = nil
		defer s.notify(v1alpha1.HubSettingsName)
	}
	return is
}

func (s *fakeSettings) Subscribe(fn func(string)) { s.notify = fn }

// setFreeze freezes for a time, or for ever where it is 0, or lifts the freeze where by is empty.
func (s *fakeSettings) setFreeze(by string, d time.Duration) {
	s.mu.Lock()
	if s.is = nil; by != "" {
		s.is = &v1alpha1.ChangeFreeze{Reason: "outage", By: by, Since: metav1.Now()}
	}
	if d != 0 {
		s.is.Until = &metav1.Time{Time: time.Now().Add(d)}
	}
	s.mu.Unlock()
	s.notify(v1alpha1.HubSettingsName)
	synctest.Wait()
}

// A freeze writes nothing. It holds changes and first copies of every Bundle, until it is lifted or ends. Lifting it makes a step of the
// Bundles that wait, and of no other.
func TestAFreezeHoldsChanges(t *testing.T) {
	m, s := newRings("a", "b"), &fakeSettings{}
	runWith(t, m, func(c *Config) { c.Settings = s }, func(t *testing.T, _ *PlacementReconciler) {
		for _, uid := range []string{"web", "rest"} {
			m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = placementNamed("a", "b") })
			m.cutRevision(uid, &atoll.Content{})
			m.settleRows(uid)
		}
		writes, steps := m.countsAfterWait()
		s.setFreeze("alice", 0)
		if w, n := m.countsAfterWait(); w != writes || n != steps {
			t.Errorf("a freeze makes %d steps and %d writes of Bundles at rest", n-steps, w-writes)
		}
		m.cutRevision("web", &atoll.Content{})
		m.changeBundle("new", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("new", &atoll.Content{})
		time.Sleep(5 * time.Hour)
		expectRows(t, m, "web", "a Active r1, b Active r1")
		if rows := m.rowsOf("new"); strings.Contains(rows, "Active") {
			t.Errorf("a new Bundle has %s", rows)
		}
		_, steps = m.countsAfterWait()
		s.setFreeze("", 0)
		expectRows(t, m, "web", "a Active r2, b Active r2")
		if rows := m.rowsOf("new"); !strings.Contains(rows, "a Active") {
			t.Errorf("after the freeze the new Bundle has %s", rows)
		}
		if _, n := m.countsAfterWait(); n-steps > 4 {
			t.Errorf("%d steps although two Bundles waited", n-steps)
		}
		m.settleRows("web")
		s.setFreeze("alice", time.Hour)
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(59 * time.Minute)
		expectRows(t, m, "web", "a Active r2, b Active r2")
		time.Sleep(2 * time.Minute)
		expectRows(t, m, "web", "a Active r3, b Active r3")
	})
}

// A freeze that is lifted during a step holds no Bundle after it.
func TestAFreezeIsLiftedDuringAStep(t *testing.T) {
	m, s := newRings("a"), &fakeSettings{}
	runWith(t, m, func(c *Config) { c.Settings = s }, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		s.setFreeze("alice", 0)
		s.mu.Lock()
		s.isLifted = true
		s.mu.Unlock()
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r2")
	})
}

// A preview with a freeze that would be written holds the change, as the freeze would.
func TestAFreezeIsPreviewed(t *testing.T) {
	m, s := newRings("a"), &fakeSettings{}
	runWith(t, m, func(c *Config) { c.Settings = s }, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		b, _ := r.Bundles.Get("web")
		change := []SupposedBundle{{Bundle: b, Revision: "web-1-r2", Content: &atoll.Content{}}}
		for _, c := range []struct {
			tables *SupposedTables
			want   atoll.Reason
		}{{nil, ""}, {&SupposedTables{Settings: &fakeSettings{is: &v1alpha1.ChangeFreeze{By: "alice", Reason: "outage"}}}, atoll.ReasonChangesFrozen}} {
			got, err := r.PreviewBundles(t.Context(), c.tables, change)
			if err != nil {
				t.Fatal(err)
			}
			var reason atoll.Reason
			if got[0].Rollout != nil {
				reason = got[0].Rollout.Wait.Reason
			}
			if reason != c.want {
				t.Errorf("the change waits for %q, want %q", reason, c.want)
			}
		}
	})
}

// An exempt Bundle changes in the freeze, with an Event that names the user and the message. A later freeze holds it.
func TestAnExemptBundleChangesInAFreeze(t *testing.T) {
	m, s := newRings("a"), &fakeSettings{}
	runWith(t, m, func(c *Config) { c.Settings = s }, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		s.setFreeze("alice", 0)
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r1")
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.FreezeExemption = &v1alpha1.FreezeExemption{By: "bob", Message: "CVE", At: metav1.Now()}
		})
		expectRows(t, m, "web", "a Active r2")
		if got := strings.Join(m.takeWarnings(), "\n"); !strings.Contains(got, "FreezeExempted: clusters change in the freeze of alice: bob exempted the Bundle (CVE)") {
			t.Errorf("warnings: %q", got)
		}
		m.settleRows("web")
		time.Sleep(time.Hour)
		s.setFreeze("alice", 0)
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r2")
	})
}
