package decommission

import (
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// Only what would be deleted is asked about: nothing of a cluster that keeps all, nor where all
// that is left is on its way; and what was confirmed is not asked about again.
func TestOnlyWhatWouldBeDeletedIsHeld(t *testing.T) {
	active, removing := newRow("web", atoll.RowActive, "", nil), newRow("api", atoll.RowRemoving, "", nil)
	for name, c := range map[string]struct {
		removal   v1alpha1.ClusterRemoval
		confirmed string
		rows      []state.Row
		held      bool
	}{
		"it is cleaned":             {v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, "", []state.Row{active, removing}, true},
		"all of it goes already":    {v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, "", []state.Row{removing}, false},
		"all of it stays":           {v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, "", []state.Row{active, removing}, false},
		"it was confirmed, and is":  {v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "p"}, "p", []state.Row{active}, false},
		"it was confirmed, and not": {v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean, Confirm: "p"}, "", []state.Row{active}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := newTables(t, &c.removal, c.rows...)
				before := m.getCluster(t)
				before.Status.Removal = &v1alpha1.ClusterRemovalStatus{Bundles: 5, Confirmed: c.confirmed}
				if err := m.Status().Update(t.Context(), before); err != nil {
					t.Fatal(err)
				}
				is, _ := finishRemoval(t, m, r, nil)
				if held := removalCondition(is).Reason == string(atoll.ReasonWaitsForConfirmation); held != c.held || held != (is.Status.Removal.Plan != "") || held != (len(m.reported) > 0) {
					t.Errorf("%s, %+v, reported %q", removalCondition(is).Message, is.Status.Removal, m.reported)
				}
			})
		})
	}
}

// The status of a removal is cleared with the removal, whichever part of it is there.
func TestNothingIsSaidOfARemovalThatIsNone(t *testing.T) {
	for name, say := range map[string]func(*v1alpha1.ClusterStatus){
		"how far it is": func(s *v1alpha1.ClusterStatus) {
			s.Removal = &v1alpha1.ClusterRemovalStatus{AgentWaitsFor: "something"}
		},
		"what it waits for": func(s *v1alpha1.ClusterStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ClusterRemoving, Status: metav1.ConditionTrue, Reason: string(atoll.ReasonBundlesLeave)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := newTables(t, nil)
				c := m.getCluster(t)
				say(&c.Status)
				if err := m.Status().Update(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if is, _ := finishRemoval(t, m, r, nil); is.Status.Removal != nil || removalCondition(is) != nil {
					t.Errorf("said is still %+v, %+v", is.Status.Removal, removalCondition(is))
				}
			})
		})
	}
}

// An agent's blocker is written for a Cluster under removal, once; and a Cluster that is gone
// already is forgotten.
func TestWhatAnAgentSaysIsWrittenOnce(t *testing.T) {
	m, r := newTables(t, nil)
	since := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	version := func() string { return m.getCluster(t).ResourceVersion }
	before := version()
	if err := r.RecordDepartureBlocker(t.Context(), m.getCluster(t), "a finalizer", since); err != nil || version() != before {
		t.Errorf("of a cluster that stays: %v, version %s after %s", err, version(), before)
	}
	c := m.getCluster(t)
	c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}
	if err := m.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := r.RecordDepartureBlocker(t.Context(), m.getCluster(t), "a finalizer", since); err != nil {
			t.Fatal(err)
		}
		if now := version(); (now == before) != (i > 0) {
			t.Errorf("the %d. time: version %s after %s", i+1, now, before)
		}
		before = version()
	}
	c = m.getCluster(t)
	for range 2 {
		if err := r.ForgetDepartedCluster(t.Context(), c, nil); err != nil {
			t.Errorf("it is not forgotten: %v", err)
		}
	}
	if err := r.RecordDepartureBlocker(t.Context(), c, "", since); err != nil || apierrors.IsNotFound(err) {
		t.Errorf("of a cluster that is gone: %v", err)
	}
}

// An input that changes the plan changes the key of its computation; another input does not.
func TestWhatMakesAnotherPlan(t *testing.T) {
	m, _ := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	m.items = map[string][]atoll.ItemKey{"r": {deployment, conf}, "more": {deployment, conf, {Kind: "Secret", Namespace: "shop", Name: "web"}}}
	type cluster struct {
		v1alpha1.Cluster
		rows []state.Row
	}
	of := func(change func(*cluster)) (terms, plan string) {
		t.Helper()
		c := &cluster{rows: []state.Row{newRow("web", atoll.RowActive, "", nil), newRow("api", atoll.RowActive, "", nil)}}
		c.UID, c.Annotations = "u", map[string]string{atoll.AnnotationRemovalRequested: "at first"}
		c.rows[1].Spec.Absent = []string{deployment.String()}
		change(c)
		plan, err := HashCleanPlan(t.Context(), memRevisions{m}, &c.Cluster, c.rows)
		if err != nil {
			t.Fatal(err)
		}
		return cleanPlanFingerprint(&c.Cluster, c.rows), plan
	}
	terms, plan := of(func(*cluster) {})
	for name, c := range map[string]struct {
		change func(*cluster)
		other  bool
	}{
		"another Cluster":            {func(c *cluster) { c.UID = "u2" }, true},
		"another removal":            {func(c *cluster) { c.Annotations[atoll.AnnotationRemovalRequested] = "later" }, true},
		"another Revision":           {func(c *cluster) { c.rows[0].Spec.Revision = "more" }, true},
		"an item that is kept out":   {func(c *cluster) { c.rows[0].Spec.Absent = []string{deployment.String()} }, true},
		"a Bundle that goes already": {func(c *cluster) { c.rows[0].Spec.Phase = atoll.RowRemoving }, true},
		"a Bundle that is to leave":  {func(c *cluster) { c.rows[0].Spec.Phase = atoll.RowLeaving }, false},
		"what was reported":          {func(c *cluster) { c.rows[0].Status = &atoll.RowStatus{Generation: 3, State: atoll.RowReady} }, false},
		"another order":              {func(c *cluster) { c.rows[0], c.rows[1] = c.rows[1], c.rows[0] }, false},
		"a namespace that is empty":  {func(c *cluster) { c.rows = append(c.rows, state.Row{Spec: atoll.RowSpec{Phase: atoll.RowVacant}}) }, false},
		"one more that goes already": {func(c *cluster) { c.rows = append(c.rows, newRow("old", atoll.RowRemoving, "", nil)) }, false},
	} {
		if is, p := of(c.change); (p != plan) != c.other || (is != terms) != c.other {
			t.Errorf("%s: another plan: %t, other terms: %t; want %t", name, p != plan, is != terms, c.other)
		}
	}
}
