package bundlestatus

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quarantine"
	"atoll.dev/atoll/internal/state"
)

var aside = quarantine.Quarantine{Revision: "r2", Since: time.Unix(0, 0), Until: time.Unix(60, 0), Cost: 61 * time.Second}

func TestAQuarantinedBundleReportsIt(t *testing.T) {
	behind := &atoll.RowStatus{Generation: 4, State: atoll.RowReady, Applied: true}
	in := StatusInput{Rows: []Row{newRow("a", behind)}, Latest: latest, Quarantine: &aside, Now: time.Unix(10, 0)}
	st := ComputeStatus(in)
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.BundleQuarantined)
	want := "revision r2 is not rendered since 1970-01-01T00:00:00Z, because its Bundle cost 61.0 s of work; clusters keep what they have. " +
		"Removals of the Bundle from clusters go on, and removals of single objects wait with the revision. " +
		"Edit the templates, or the override rules that apply to them, or delete the Bundle's templates. The hub tries the revision again at 1970-01-01T00:01:00Z"
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Quarantined" || c.Message != want {
		t.Errorf("condition %+v", c)
	}
	if st.Wait == nil || st.Wait.Reason != "Quarantined" || st.Wait.Actor != "the application's owner" || st.WaitsFor != "a cheaper revision, or the end of its quarantine at 1970-01-01T00:01:00Z; the application's owner must act" {
		t.Errorf("waits for %q, %+v", st.WaitsFor, st.Wait)
	}
	// A plan that a person must confirm goes first.
	in.Rows = append(in.Rows, newRow("b", behind, withPhase(atoll.RowLeaving, "RemovalHeld plan=abc")))
	if st := ComputeStatus(in); st.Wait == nil || st.Wait.Reason != "WaitsForConfirmation" {
		t.Errorf("waits for %q", st.WaitsFor)
	}
	// The condition goes with the quarantine.
	in.Bundle.Status, in.Quarantine = st, nil
	if st := ComputeStatus(in); meta.FindStatusCondition(st.Conditions, v1alpha1.BundleQuarantined) != nil {
		t.Error("the condition stays")
	}
	// Clusters that hold what they are to hold wait for nothing.
	in = StatusInput{Rows: []Row{newRow("a", readyStatus())}, Latest: latest, Quarantine: &aside, Now: time.Unix(10, 0)}
	if st := ComputeStatus(in); st.WaitsFor != "" || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.BundleQuarantined) {
		t.Errorf("waits for %q", st.WaitsFor)
	}
}

// A quarantine is shown with one Event, and its condition goes when its time is over.
func TestAQuarantineIsShownAndEnds(t *testing.T) {
	m, accounts := newMemory(), quarantine.NewAccounts()
	m.quarantines = accounts
	m.addCluster("a")
	countEvents := func() (n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.said {
			if strings.HasPrefix(s, "web Quarantined: revision b-r1 is not rendered since") {
				n++
			}
		}
		return n
	}
	isShown := func() bool {
		return meta.IsStatusConditionTrue(m.getBundle().Status.Conditions, v1alpha1.BundleQuarantined)
	}
	run(t, m, func(step func(time.Duration)) {
		m.apply()
		m.setRow("b", "a", func(r *state.Row) { r.Spec.Revision = "b-r1" })
		step(time.Minute)
		for range 120 { // half a second each
			accounts.ChargeRender(m.getBundle().Ref, "b-r1", quarantine.RenderWork{HasPanicked: true})
		}
		if step(10 * time.Second); !isShown() || countEvents() != 1 {
			t.Errorf("shown: %t, %d Events of %q", isShown(), countEvents(), m.said)
		}
		if step(100 * time.Second); !isShown() {
			t.Error("not shown during its probation")
		}
		if step(20 * time.Second); isShown() || countEvents() != 1 {
			t.Errorf("after its end: shown: %t, %d Events", isShown(), countEvents())
		}
	})
}
