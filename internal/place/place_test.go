package place

import (
	"errors"
	"fmt"
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

func fleet(m *memory, clusters ...string) {
	for _, c := range clusters {
		m.cluster(c, nil)
	}
}

func TestNewBundleIsOneWrite(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b", "c")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", nil)
		m.cut("web", &atoll.Content{})
		want(t, m, "web", "a Active r1, b Active r1, c Active r1")
		if writes, _ := m.counts(); writes != 1 {
			t.Fatalf("%d writes for a new bundle, want 1", writes)
		}
		for _, r := range (memRows{m}).OfBundle("web") {
			if r.Spec.UID != "uid-"+r.Cluster || r.Spec.Generation <= 7 {
				t.Errorf("row %+v", r.Spec)
			}
		}
		m.settle("web")
		m.cut("web", &atoll.Content{})
		want(t, m, "web", "a Active r2, b Active r2, c Active r2")
		m.settle("web")
		time.Sleep(time.Hour)
		if writes, _ := m.counts(); writes != 2 {
			t.Fatalf("%d writes after a second revision, want 2", writes)
		}
	})
}

func TestMoveMakesBeforeItBreaks(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		want(t, m, "web", "a Active r1")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("b") })
		want(t, m, "web", "a Leaving r1, b Active r1")
		m.report("web", "b", atoll.RowProgressing)
		want(t, m, "web", "a Leaving r1, b Active r1")
		m.report("web", "b", atoll.RowReady)
		want(t, m, "web", "a Removing r1, b Active r1")
		m.settle("web")
		want(t, m, "web", "b Active r1")
	})
}

func TestMoveToAClusterThatIsAwayAsks(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("b") })
		synctest.Wait()
		m.report("web", "b", atoll.RowProgressing)
		m.setOnline("b", false)
		time.Sleep(rollout.Patience + time.Second)
		want(t, m, "web", "a Leaving r1, b Active r1")
		row, _ := (memRows{m}).Get("web", "a")
		plan := atoll.ParseRowReason(row.Spec.Reason)
		if plan.Word != atoll.RowReplacementsNotReady || plan.Plan == "" || len(m.told()) != 1 {
			t.Fatalf("reason %q, warnings %q", row.Spec.Reason, m.told())
		}
		m.bundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: "other"} })
		want(t, m, "web", "a Leaving r1, b Active r1")
		m.bundle("web", func(b *state.Bundle) { b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: plan.Plan} })
		want(t, m, "web", "a Removing r1, b Active r1")
	})
}

func TestMoveGoesOnWhenTheReplacementComesBack(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("b") })
		synctest.Wait()
		m.report("web", "b", atoll.RowReady)
		m.mu.Lock()
		r := m.rows["web"]["a"]
		r.Spec.Phase = atoll.RowLeaving
		m.mu.Unlock()
		want(t, m, "web", "a Removing r1, b Active r1")
	})
}

func TestClusterChangesCostTheBundlesThatTheyTouch(t *testing.T) {
	m := newMemory()
	for i := range 20 {
		m.cluster(fmt.Sprintf("c%02d", i), func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"n": fmt.Sprint(i)} })
	}
	for i := range 20 {
		uid := fmt.Sprintf("b%02d", i)
		m.bundle(uid, func(b *state.Bundle) { b.Spec.Placement = labelled(map[string]string{"n": fmt.Sprint(i)}) })
		m.cut(uid, &atoll.Content{})
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		for i := range 20 {
			m.settle(fmt.Sprintf("b%02d", i))
		}
		want(t, m, "b03", "c03 Active r1")
		writes, _ := m.counts()
		looks := steps(m)
		m.cluster("c03", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"n": "4"} })
		want(t, m, "b03", "c03 Active r1")
		want(t, m, "b04", "c03 Active r1, c04 Active r1")
		row, _ := (memRows{m}).Get("b03", "c03")
		if w := atoll.ParseRowReason(row.Spec.Reason).Word; w != atoll.RowUnfit {
			t.Errorf("the row that drifted says %q", row.Spec.Reason)
		}
		after, _ := m.counts()
		if after-writes != 2 || steps(m)-looks > 6 {
			t.Errorf("a change that touches 2 of 20 bundles cost %d writes and %d looks", after-writes, steps(m)-looks)
		}
		looks = steps(m)
		m.cluster("c07", func(c *v1alpha1.Cluster) { c.Status.KubernetesVersion = "v1.37.0" })
		m.setOnline("c07", false)
		synctest.Wait()
		if n := steps(m) - looks; n != 0 {
			t.Errorf("news that place nothing cost %d looks", n)
		}
	})
}

// steps that were made, without those that the test makes to look itself.
func steps(m *memory) int {
	synctest.Wait()
	_, looks := m.counts()
	return looks
}

func TestRelabelledClusterGetsItsOverrides(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	content := &atoll.Content{Rules: []atoll.Rule{{
		Policy: "ClusterOverridePolicy/x",
		Target: &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"country": "cn"}}}},
	}}}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", nil)
		m.cut("web", content)
		m.settle("web")
		m.cluster("a", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"country": "cn"} })
		synctest.Wait()
		a, _ := (memRows{m}).Get("web", "a")
		b, _ := (memRows{m}).Get("web", "b")
		if a.Spec.Variant == "" || b.Spec.Variant != "" || a.Spec.Generation == b.Spec.Generation {
			t.Fatalf("rows after the relabel: %+v, %+v", a.Spec, b.Spec)
		}
	})
}

func TestDeletedClusterIsGivenUp(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", nil)
		m.cut("web", &atoll.Content{})
		m.settle("web")
		m.deleteCluster("b")
		want(t, m, "web", "a Active r1")
		if len(m.told()) != 1 || !strings.Contains(m.told()[0], "cluster b is deleted") {
			t.Errorf("warnings %q", m.told())
		}
		m.cluster("b", func(c *v1alpha1.Cluster) { c.UID = "another" })
		want(t, m, "web", "a Active r1, b Active r1")
		if row, _ := (memRows{m}).Get("web", "b"); row.Spec.UID != "another" {
			t.Errorf("row of the new cluster: %+v", row.Spec)
		}
	})
}

func TestLostRowsComeBack(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", nil)
		m.cut("web", &atoll.Content{})
		m.settle("web")
		before, _ := (memRows{m}).Get("web", "a")
		m.drop("web", "a")
		want(t, m, "web", "a Active r1, b Active r1")
		if after, _ := (memRows{m}).Get("web", "a"); after.Spec.Generation < before.Spec.Generation {
			t.Errorf("generation went back from %d to %d", before.Spec.Generation, after.Spec.Generation)
		}
	})
}

func TestNoExecuteTaintEvictsWhenItsTimeIsUp(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		seconds := int64(300)
		m.bundle("web", func(b *state.Bundle) {
			b.Spec.Placement.ClusterTolerations = []corev1.Toleration{{Key: "down", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
		})
		m.cut("web", &atoll.Content{})
		m.settle("web")
		added := metav1.Now()
		m.cluster("a", func(c *v1alpha1.Cluster) {
			c.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}}
		})
		time.Sleep(299 * time.Second)
		want(t, m, "web", "a Active r1, b Active r1")
		time.Sleep(2 * time.Second)
		want(t, m, "web", "a Removing r1, b Active r1")
		m.settle("web")
		m.cluster("a", func(c *v1alpha1.Cluster) { c.Spec.Taints = nil })
		want(t, m, "web", "a Active r1, b Active r1")
	})
}

func TestDeletedBundleAndNamespace(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		now := metav1.Now()
		for _, uid := range []string{"web", "api"} {
			m.bundle(uid, nil)
			m.cut(uid, &atoll.Content{})
			m.settle(uid)
		}
		m.bundle("web", func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now; b.Spec.Removal.Mode = v1alpha1.RemoveOrphan })
		want(t, m, "web", "a Removing r1")
		if row, _ := (memRows{m}).Get("web", "a"); !row.Spec.Orphan {
			t.Error("the row is not orphaned")
		}
		want(t, m, "api", "a Active r1")
		m.mu.Lock()
		m.spaces["shop"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now}}
		m.mu.Unlock()
		for _, fn := range m.onSpace {
			fn("shop")
		}
		want(t, m, "api", "a Removing r1")
	})
}

func TestHoldingHubIssuesNothing(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	m.holding = true
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", nil)
		m.cut("web", &atoll.Content{})
		want(t, m, "web", "")
		m.mu.Lock()
		m.holding = false
		m.mu.Unlock()
		for _, fn := range m.onHub {
			fn()
		}
		want(t, m, "web", "a Active r1, b Active r1")
	})
}

func TestFailedAndFencedWritesAreTriedAgain(t *testing.T) {
	m := newMemory()
	fleet(m, "a")
	run(t, m, func(t *testing.T, _ *Reconciler) {
		for i, err := range []error{errors.New("the store is away"), state.ErrRowsMoved} {
			uid := fmt.Sprint("b", i)
			m.mu.Lock()
			m.fail = err
			m.mu.Unlock()
			m.bundle(uid, nil)
			m.cut(uid, &atoll.Content{})
			time.Sleep(time.Second)
			want(t, m, uid, "a Active r1")
		}
	})
}

func TestDeletesAreAddedUpPerNamespace(t *testing.T) {
	m := newMemory()
	for i := range 400 {
		m.cluster(fmt.Sprintf("c%03d", i), nil)
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		now := metav1.Now()
		for _, uid := range []string{"b1", "b2", "b3", "other"} {
			m.bundle(uid, func(b *state.Bundle) {
				if uid == "other" {
					b.Ref.Namespace = "other"
				}
			})
			m.cut(uid, &atoll.Content{})
			m.settle(uid)
		}
		phases := func(uid string) map[atoll.RowPhase]int {
			out := map[atoll.RowPhase]int{}
			synctest.Wait()
			for _, r := range (memRows{m}).OfBundle(uid) {
				out[r.Spec.Phase]++
			}
			return out
		}
		for _, uid := range []string{"b1", "b2", "b3", "other"} {
			m.bundle(uid, func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now })
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
		row, _ := (memRows{m}).Get("b3", "c000")
		m.bundle("b3", func(b *state.Bundle) {
			b.Meta.Annotations = map[string]string{atoll.AnnotationConfirm: atoll.ParseRowReason(row.Spec.Reason).Plan}
		})
		if phases("b3")[atoll.RowRemoving] != 400 {
			t.Fatalf("the confirmed plan was not released: %v", phases("b3"))
		}
	})
}

func TestPreviewWritesNothingAndSeesTheWholeFleet(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	m.cluster("c", func(c *v1alpha1.Cluster) { c.Spec.Accepted = false })
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a") })
		m.cut("web", &atoll.Content{})
		m.settle("web")
		writes, _ := m.counts()
		b, _ := (memBundles{m}).Get("web")
		b.Spec.Placement = names("b")
		p, err := r.Preview(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if p.Output.Changes["b"] == nil || p.Output.Changes["a"].Phase != atoll.RowLeaving {
			t.Errorf("changes %v", p.Output.Changes)
		}
		if len(p.Decision.Verdicts) != 3 || len(p.Output.Waits) == 0 {
			t.Errorf("verdicts %v, waits %v", p.Decision.Verdicts, p.Output.Waits)
		}
		if v, _ := p.Decision.Verdict("c"); v.Filter != schedule.FilterAccepted {
			t.Errorf("verdict on c: %s", v)
		}
		if after, _ := m.counts(); after != writes {
			t.Error("a preview wrote")
		}
		want(t, m, "web", "a Active r1")
	})
}

func TestDividedSharesGrowBeforeTheyShrink(t *testing.T) {
	m := newMemory()
	fleet(m, "a", "b")
	deployment := func(n int) *atoll.Content {
		return &atoll.Content{Items: []atoll.Item{{
			Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Divided: true,
			Object: []byte(fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":%d}}`, n)),
		}}}
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.bundle("web", nil)
		m.cut("web", deployment(6))
		m.settle("web")
		want(t, m, "web", "a Active r1 3, b Active r1 3")
		m.cluster("c", nil)
		want(t, m, "web", "a Active r1 3, b Active r1 3, c Active r1 2")
		m.report("web", "c", atoll.RowReady)
		want(t, m, "web", "a Active r1 2, b Active r1 2, c Active r1 2")
		m.settle("web")
		m.cut("web", deployment(3))
		want(t, m, "web", "a Active r2 1, b Active r2 1, c Active r2 1")
		m.settle("web")
		m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("a", "b") })
		synctest.Wait()
		m.settle("web")
		if got := m.show("web"); got != "a Active r2 2, b Active r2 1" && got != "a Active r2 1, b Active r2 2" {
			t.Fatalf("rows %s", got)
		}
	})
}
