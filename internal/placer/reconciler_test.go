package placer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

func addClusters(m *fakeHub, clusters ...string) {
	for _, c := range clusters {
		m.changeCluster(c, nil)
	}
}

func TestNewBundleIsOneWrite(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r1, b Active r1, c Active r1")
		if writes, _ := m.countsAfterWait(); writes != 1 {
			t.Fatalf("%d writes for a new bundle, want 1", writes)
		}
		for _, r := range (fakeRows{m}).ListOfBundle("web") {
			if r.Spec.UID != "uid-"+r.Cluster || r.Spec.Generation <= 7 {
				t.Errorf("row %+v", r.Spec)
			}
		}
		m.settleRows("web")
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r2, b Active r2, c Active r2")
		m.settleRows("web")
		time.Sleep(time.Hour)
		if writes, _ := m.countsAfterWait(); writes != 2 {
			t.Fatalf("%d writes after a second revision, want 2", writes)
		}
	})
}

func TestMoveMakesBeforeItBreaks(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.reportState("web", "b", atoll.RowProgressing)
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.reportState("web", "b", atoll.RowReady)
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		m.settleRows("web")
		expectRows(t, m, "web", "b Active r1")
	})
}

// A report that comes after a step's write and before the step's end is not lost: the move goes on.
func TestReportDuringAStepIsNotLost(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1")
		reported := false
		m.onRows = append(m.onRows, func(uid string, clusters, _ []string) {
			if !reported && slices.Contains(clusters, "b") {
				reported = true
				m.reportState(uid, "b", atoll.RowReady)
			}
		})
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "web", "a Removing r1, b Active r1")
	})
}

func TestMoveToAClusterThatIsAwayAsks(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		synctest.Wait()
		m.reportState("web", "b", atoll.RowProgressing)
		m.setOnline("b", false)
		time.Sleep(rollout.ReadinessTimeout + time.Second)
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		row, _ := (fakeRows{m}).Get("web", "a")
		plan := atoll.ParseRowReason(row.Spec.Reason)
		if plan.Reason != atoll.ReasonReplacementsNotReady || plan.Plan == "" || len(m.takeWarnings()) != 1 {
			t.Fatalf("reason %q, warnings %q", row.Spec.Reason, m.takeWarnings())
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: "other"} })
		expectRows(t, m, "web", "a Leaving r1, b Active r1")
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan.Plan} })
		expectRows(t, m, "web", "a Removing r1, b Active r1")
	})
}

func TestMoveGoesOnWhenTheReplacementComesBack(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		synctest.Wait()
		m.reportState("web", "b", atoll.RowReady)
		m.mu.Lock()
		r := m.rows["web"]["a"]
		r.Spec.Phase = atoll.RowLeaving
		m.mu.Unlock()
		expectRows(t, m, "web", "a Removing r1, b Active r1")
	})
}

func TestClusterChangesCostTheBundlesThatTheyTouch(t *testing.T) {
	m := newFakeHub()
	for i := range 20 {
		m.changeCluster(fmt.Sprintf("c%02d", i), func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"n": fmt.Sprint(i)} })
	}
	for i := range 20 {
		uid := fmt.Sprintf("b%02d", i)
		m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement = placementLabelled(map[string]string{"n": fmt.Sprint(i)}) })
		m.cutRevision(uid, &atoll.Content{})
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		for i := range 20 {
			m.settleRows(fmt.Sprintf("b%02d", i))
		}
		expectRows(t, m, "b03", "c03 Active r1")
		writes, _ := m.countsAfterWait()
		looks := countWrites(m)
		m.changeCluster("c03", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"n": "4"} })
		expectRows(t, m, "b03", "c03 Active r1")
		expectRows(t, m, "b04", "c03 Active r1, c04 Active r1")
		row, _ := (fakeRows{m}).Get("b03", "c03")
		if w := atoll.ParseRowReason(row.Spec.Reason).Reason; w != atoll.ReasonUnfit {
			t.Errorf("the row that drifted says %q", row.Spec.Reason)
		}
		after, _ := m.countsAfterWait()
		if after-writes != 2 || countWrites(m)-looks > 6 {
			t.Errorf("a change that touches 2 of 20 bundles cost %d writes and %d looks", after-writes, countWrites(m)-looks)
		}
		looks = countWrites(m)
		m.changeCluster("c07", func(c *v1alpha1.Cluster) { c.Status.KubernetesVersion = "v1.37.0" })
		m.setOnline("c07", false)
		synctest.Wait()
		if n := countWrites(m) - looks; n != 0 {
			t.Errorf("news that place nothing cost %d looks", n)
		}
	})
}

// countWrites that were made, without those that the test makes to look itself.
func countWrites(m *fakeHub) int {
	synctest.Wait()
	_, looks := m.countsAfterWait()
	return looks
}

func TestRelabelledClusterGetsItsOverrides(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	content := &atoll.Content{Rules: []atoll.Rule{{
		Policy: "ClusterOverridePolicy/x",
		Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"country": "cn"}}}},
	}}}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", content)
		m.settleRows("web")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"country": "cn"} })
		synctest.Wait()
		a, _ := (fakeRows{m}).Get("web", "a")
		b, _ := (fakeRows{m}).Get("web", "b")
		if a.Spec.Variant == "" || b.Spec.Variant != "" || a.Spec.Generation == b.Spec.Generation {
			t.Fatalf("rows after the relabel: %+v, %+v", a.Spec, b.Spec)
		}
	})
}

func TestDeletedClusterIsGivenUp(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.deleteCluster("b")
		expectRows(t, m, "web", "a Active r1")
		if len(m.takeWarnings()) != 1 || !strings.Contains(m.takeWarnings()[0], "cluster b is deleted") {
			t.Errorf("warnings %q", m.takeWarnings())
		}
		m.changeCluster("b", func(c *v1alpha1.Cluster) { c.UID = "another" })
		expectRows(t, m, "web", "a Active r1, b Active r1")
		if row, _ := (fakeRows{m}).Get("web", "b"); row.Spec.UID != "another" {
			t.Errorf("row of the new cluster: %+v", row.Spec)
		}
	})
}

func TestLostRowsComeBack(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		before, _ := (fakeRows{m}).Get("web", "a")
		m.dropRow("web", "a")
		expectRows(t, m, "web", "a Active r1, b Active r1")
		if after, _ := (fakeRows{m}).Get("web", "a"); after.Spec.Generation < before.Spec.Generation {
			t.Errorf("generation went back from %d to %d", before.Spec.Generation, after.Spec.Generation)
		}
	})
}

func TestNoExecuteTaintEvictsWhenItsTimeIsUp(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		seconds := int64(300)
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement.ClusterTolerations = []corev1.Toleration{{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
		})
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		added := metav1.Now()
		m.changeCluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}}
		})
		time.Sleep(299 * time.Second)
		expectRows(t, m, "web", "a Active r1, b Active r1")
		time.Sleep(2 * time.Second)
		expectRows(t, m, "web", "a Removing r1, b Active r1")
		m.settleRows("web")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		expectRows(t, m, "web", "a Active r1, b Active r1")
	})
}

func TestDeletedBundleAndNamespace(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		now := metav1.Now()
		for _, uid := range []string{"web", "api"} {
			m.changeBundle(uid, nil)
			m.cutRevision(uid, &atoll.Content{})
			m.settleRows(uid)
		}
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now; b.Spec.Removal.Mode = v1alpha1.RemoveOrphan })
		expectRows(t, m, "web", "a Removing r1")
		if row, _ := (fakeRows{m}).Get("web", "a"); !row.Spec.Orphan {
			t.Error("the row is not orphaned")
		}
		expectRows(t, m, "api", "a Active r1")
		m.mu.Lock()
		m.namespaces["shop"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now}}
		m.mu.Unlock()
		for _, fn := range m.onNamespace {
			fn("shop")
		}
		expectRows(t, m, "api", "a Removing r1")
	})
}

func TestHoldingHubIssuesNothing(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	m.holding = true
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "")
		m.mu.Lock()
		m.holding = false
		m.mu.Unlock()
		for _, fn := range m.onHub {
			fn()
		}
		expectRows(t, m, "web", "a Active r1, b Active r1")
	})
}

func TestFailedAndFencedWritesAreTriedAgain(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		for i, err := range []error{errors.New("the store is away"), state.ErrRowsMoved} {
			uid := fmt.Sprint("b", i)
			m.mu.Lock()
			m.writeError = err
			m.mu.Unlock()
			m.changeBundle(uid, nil)
			m.cutRevision(uid, &atoll.Content{})
			time.Sleep(time.Second)
			expectRows(t, m, uid, "a Active r1")
		}
	})
}

func TestDeletesAreAddedUpPerNamespace(t *testing.T) {
	m := newFakeHub()
	for i := range 400 {
		m.changeCluster(fmt.Sprintf("c%03d", i), nil)
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		now := metav1.Now()
		for _, uid := range []string{"b1", "b2", "b3", "other"} {
			m.changeBundle(uid, func(b *state.Bundle) {
				if uid == "other" {
					b.Ref.Namespace = "other"
				}
			})
			m.cutRevision(uid, &atoll.Content{})
			m.settleRows(uid)
		}
		phases := func(uid string) map[atoll.RowPhase]int {
			out := map[atoll.RowPhase]int{}
			synctest.Wait()
			for _, r := range (fakeRows{m}).ListOfBundle(uid) {
				out[r.Spec.Phase]++
			}
			return out
		}
		for _, uid := range []string{"b1", "b2", "b3", "other"} {
			m.changeBundle(uid, func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now })
			synctest.Wait()
		}
		if phases("b1")[atoll.RowRemoving] != 400 || phases("b2")[atoll.RowRemoving] != 400 || phases("other")[atoll.RowRemoving] != 400 {
			t.Fatalf("what is within the budget is held: %v %v %v", phases("b1"), phases("b2"), phases("other"))
		}
		if phases("b3")[atoll.RowHeld] != 400 {
			t.Fatalf("1,200 rows of a namespace went: %v", phases("b3"))
		}
		time.Sleep(time.Hour)
		if phases("b3")[atoll.RowHeld] != 400 {
			t.Fatal("time released a held removal")
		}
		row, _ := (fakeRows{m}).Get("b3", "c000")
		m.changeBundle("b3", func(b *state.Bundle) {
			b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: atoll.ParseRowReason(row.Spec.Reason).Plan}
		})
		if phases("b3")[atoll.RowRemoving] != 400 {
			t.Fatalf("the confirmed plan was not released: %v", phases("b3"))
		}
	})
}

// A deletion that a row's revision has already is no deletion of the next revision: 1,001 rows, over the limit of
// 1,000 direct ones, get that revision without a confirmation. They wait for another deletion.
func TestADeletionCountsOnce(t *testing.T) {
	m := newFakeHub()
	var names []string
	for i := range rollout.DirectDeleteLimit + 1 {
		names = append(names, fmt.Sprintf("c%04d", i))
	}
	addClusters(m, names...)
	deleted := func(items ...string) *atoll.Content {
		c := &atoll.Content{}
		for _, name := range items {
			c.Tombstones = append(c.Tombstones, atoll.Tombstone{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}, UID: "u-" + name, Cause: atoll.CauseDeleted})
		}
		return c
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Rollout = allAtOnce() })
		newPlacedBundle(m, "web", deleted("first"), names...)
		m.cutRevision("web", deleted("first"))
		m.settleRows("web")
		if plan := m.heldPlan(t, "web"); plan != "" || strings.Count(m.rowsOf("web"), "r2") != len(names) {
			t.Fatalf("the plan is %q, and the rows are %s", plan, m.rowsOf("web"))
		}
		m.cutRevision("web", deleted("first", "second"))
		m.settleRows("web")
		if plan := m.heldPlan(t, "web"); plan == "" || strings.Count(m.rowsOf("web"), "r2") != len(names) {
			t.Errorf("the plan is %q, and the rows are %s", plan, m.rowsOf("web"))
		}
	})
}

func TestPreviewWritesNothingAndSeesTheWholeFleet(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	m.changeCluster("c", func(c *v1alpha1.Cluster) { c.Spec.Accepted = false })
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a") })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		writes, _ := m.countsAfterWait()
		b, _ := (fakeBundles{m}).Get("web")
		b.Spec.Placement = placementNamed("b")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if p.Output.Changes["b"] == nil || p.Output.Changes["a"].Phase != atoll.RowLeaving {
			t.Errorf("changes %v", p.Output.Changes)
		}
		if len(p.Decision.Verdicts) != 3 || len(p.Output.Waits) == 0 {
			t.Errorf("verdicts %v, waits %v", p.Decision.Verdicts, p.Output.Waits)
		}
		if v, _ := p.Decision.FindVerdict("c"); v.Filter != schedule.FilterAccepted {
			t.Errorf("verdict on c: %s", v)
		}
		if after, _ := m.countsAfterWait(); after != writes {
			t.Error("a preview wrote")
		}
		expectRows(t, m, "web", "a Active r1")
	})
}

func TestDividedSharesGrowBeforeTheyShrink(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	deployment := func(n int) *atoll.Content {
		return &atoll.Content{Items: []atoll.Item{{
			Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Divided: true,
			Object: []byte(fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":%d}}`, n)),
		}}}
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("web", nil)
		m.cutRevision("web", deployment(6))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 3, b Active r1 3")
		m.changeCluster("c", nil)
		expectRows(t, m, "web", "a Active r1 3, b Active r1 3, c Active r1 2")
		m.reportState("web", "c", atoll.RowReady)
		expectRows(t, m, "web", "a Active r1 2, b Active r1 2, c Active r1 2")
		m.settleRows("web")
		m.cutRevision("web", deployment(3))
		expectRows(t, m, "web", "a Active r2 1, b Active r2 1, c Active r2 1")
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("a", "b") })
		synctest.Wait()
		m.settleRows("web")
		if got := m.rowsOf("web"); got != "a Active r2 2, b Active r2 1" && got != "a Active r2 1, b Active r2 2" {
			t.Fatalf("rows %s", got)
		}
	})
}
