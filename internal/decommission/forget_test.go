package decommission

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// finishRemoval runs the Reconciler for a minute, after that was done; it reports whether the Cluster is there
// still, and as what.
func finishRemoval(t *testing.T, m *tables, r *RemovalReconciler, meanwhile func()) (c *v1alpha1.Cluster, there bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer synctest.Wait()
	defer cancel()
	go r.Run(ctx)
	synctest.Wait()
	if meanwhile != nil {
		meanwhile()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	return m.Get("tokyo")
}

// A Cluster is not forgotten as one in which no agent ever was where anything says that one is:
// its stream, or what was reported, though the Cluster's own status does not say so yet.
func TestWhoWasHeardOfIsNotForgotten(t *testing.T) {
	vacant := state.Row{Cluster: "tokyo", Spec: atoll.RowSpec{UID: "u", Generation: 3, Phase: atoll.RowVacant}}
	vacant.Bundle.UID = "ns"
	reported := vacant
	reported.Status = &atoll.RowStatus{Generation: 3, State: atoll.RowReady}
	for name, c := range map[string]struct {
		online bool
		rows   []state.Row
		stays  bool
	}{
		"never was an agent":           {false, nil, false},
		"nothing was reported":         {false, []state.Row{newRow("web", atoll.RowActive, "", nil), vacant}, false},
		"its stream is up":             {true, nil, true},
		"something was reported":       {false, []state.Row{newRow("web", atoll.RowActive, "", &atoll.RowStatus{State: atoll.RowProgressing})}, true},
		"of an empty namespace, alone": {false, []state.Row{reported}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, c.rows...)
				unsaid := m.getCluster(t)
				unsaid.Status.Conditions = nil
				if err := m.Status().Update(t.Context(), unsaid); err != nil {
					t.Fatal(err)
				}
				m.online = c.online
				is, there := finishRemoval(t, m, r, nil)
				if there != c.stays {
					t.Fatalf("it is there: %t", there)
				}
				if left := len(c.rows); there && (is.Status.Removal == nil || left > 0 && c.rows[0].Bundle.IsNamespaceRef() != (is.Status.Removal.Bundles == 0)) {
					t.Errorf("of %d rows is said %+v", left, is.Status.Removal)
				}
			})
		})
	}
}

// While the hub holds nothing goes on, and that is said as soon as it does, and no longer.
func TestARemovalHoldsWithTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, newRow("web", atoll.RowRemoving, "", nil))
		finishRemoval(t, m, r, func() {
			for _, why := range []string{"set back", ""} {
				m.holds = why
				for _, fn := range m.held {
					fn()
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if got := removalCondition(m.getCluster(t)).Reason; (got == string(atoll.ReasonHubHolds)) != (why != "") {
					t.Errorf("while it holds for %q: %s", why, got)
				}
			}
		})
	})
}

// A failed read of the content makes the hub look again by itself.
func TestAPlanThatIsNotKnownIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, newRow("web", atoll.RowActive, "", nil))
		m.broken = map[string]bool{"r": true}
		c, _ := finishRemoval(t, m, r, func() {
			if is := m.getCluster(t); is.Status.Removal.Plan != "" || !strings.Contains(removalCondition(is).Message, "what would be is not known") {
				t.Errorf("while it is not known: %+v", removalCondition(is))
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.broken = nil
		})
		if c.Status.Removal.Plan == "" {
			t.Errorf("once it can be known: %+v", removalCondition(c))
		}
	})
}

// A Cluster is given up once it is written down what is left there: not while that cannot be
// read, nor written; and over what was written of an earlier one.
func TestNobodyIsForgottenBeforeWhatIsLeftIsWrittenDown(t *testing.T) {
	ready := newRow("web", atoll.RowActive, "", &atoll.RowStatus{State: atoll.RowReady})
	lost := newRow("old", atoll.RowActive, "", &atoll.RowStatus{State: atoll.RowReady})
	lost.Spec.Revision = "r0"
	earlier := &corev1.ConfigMap{Data: map[string]string{"behind": "of another"}}
	earlier.Namespace, earlier.Name = atoll.SystemNamespace, atoll.RemovedRecordName("tokyo")
	for name, c := range map[string]struct {
		broken, refused bool
		earlier         bool
		behind          string // "": it is not forgotten
	}{
		"as it should be":         {behind: "Deployment.apps shop/web (bundle shop/web)\n"},
		"after an earlier one":    {earlier: true, behind: "Deployment.apps shop/web (bundle shop/web)\n"},
		"it cannot be read":       {broken: true},
		"it cannot be written":    {refused: true},
		"nor over an earlier one": {refused: true, earlier: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan, Force: true}, lost, ready)
				m.broken, m.lost = map[string]bool{"r": c.broken}, map[string]bool{"r0": true}
				if c.earlier {
					if err := m.Create(t.Context(), earlier.DeepCopy()); err != nil {
						t.Fatal(err)
					}
				}
				full := func(obj client.Object) error {
					if _, is := obj.(*corev1.ConfigMap); is && c.refused {
						return errors.New("no space is left")
					}
					return nil
				}
				r.Client = interceptor.NewClient(m.Client.(client.WithWatch), interceptor.Funcs{
					Create: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.CreateOption) error {
						if err := full(obj); err != nil && !c.earlier {
							return err
						}
						return w.Create(ctx, obj, o...)
					},
					Update: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
						if err := full(obj); err != nil {
							return err
						}
						return w.Update(ctx, obj, o...)
					},
				})
				if _, there := finishRemoval(t, m, r, nil); there != (c.behind == "") {
					t.Fatalf("it is there: %t", there)
				}
				var written corev1.ConfigMap
				err := m.Client.Get(t.Context(), client.ObjectKeyFromObject(earlier), &written)
				if c.behind != "" && (err != nil || written.Data["behind"] != c.behind) {
					t.Errorf("written down is %q, %v", written.Data["behind"], err)
				}
			})
		})
	}
}

// A row that goes is counted though nothing else changes.
func TestRowsThatGoAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, newRow("web", atoll.RowRemoving, "", nil), newRow("api", atoll.RowRemoving, "", nil))
		c, _ := finishRemoval(t, m, r, func() {
			m.mu.Lock()
			m.rows = m.rows[:1]
			m.mu.Unlock()
			for _, fn := range m.moved {
				fn("b-api", []string{"oslo", "tokyo"})
			}
		})
		if c.Status.Removal.Gone != 1 {
			t.Errorf("of two bundles one is gone: %+v", c.Status.Removal)
		}
	})
}
