package placer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// autoStagesOf states automatic stages of these sizes.
func autoStagesOf(sizes ...string) *v1alpha1.Rollout {
	out := &v1alpha1.Rollout{Type: v1alpha1.RolloutStaged}
	for _, size := range sizes {
		out.AutoStages = append(out.AutoStages, intstr.Parse(size))
	}
	return out
}

// newAutoStagedBundle makes a Bundle with revision r1 in clusters c00, c01 and so on, which then states automatic stages.
func newAutoStagedBundle(m *fakeHub, clusters int) {
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = v1alpha1.PlacementSpec{} })
	for i := range clusters {
		m.changeCluster(fmt.Sprintf("c%02d", i), nil)
	}
	m.cutRevision("web", &atoll.Content{})
	m.settleRows("web")
	m.changeBundle("web", func(b *state.Bundle) { b.Spec.Rollout = autoStagesOf("1", "10%", "50%") })
}

// settleOnce reports the rows that have changed as healthy, once.
func (m *fakeHub) settleOnce(uid string) {
	synctest.Wait()
	for _, row := range (fakeRows{m}).ListOfBundle(uid) {
		if row.Status == nil || row.Status.Generation != row.Spec.Generation {
			m.reportHealthy(uid, row.Cluster)
		}
	}
	time.Sleep(time.Second) // also over the wait after a conflict
	synctest.Wait()
}

// Automatic stages change as many clusters as their sizes state, by one division that is stored first. A cluster that joins, a conflict
// of the write and a hub that begins in the middle shift nothing.
func TestAutoStages(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "bundles"}, "web", errors.New("changed"))
	for name, fails := range map[string]error{"stored": nil, "after a conflict": conflict, "after an error": errors.New("no connection")} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			w := &gateWriter{hub: m, fails: fails}
			var cut *v1alpha1.StageCut
			expectChanged := func(want int) {
				t.Helper()
				time.Sleep(time.Second)
				if n := strings.Count(m.rowsOf("web")+",", " Active r2,"); n != want {
					t.Fatalf("%d clusters have changed, want %d: %s", n, want, m.rowsOf("web"))
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				is := m.bundles["web"].Status.Rollout.GetStageCut()
				if cut == nil {
					cut = is
				}
				if is == nil || is != cut || len(is.Thresholds) != 3 || w.writes != 1 {
					t.Fatalf("the stages are %+v after %d writes, and were %+v", is, w.writes, cut)
				}
			}
			restart := func(steps func()) {
				runWith(t, m, func(c *Config) { c.SetRollout = w.setRollout }, func(t *testing.T, _ *PlacementReconciler) { steps() })
			}
			restart(func() {
				newAutoStagedBundle(m, 20)
				m.cutRevision("web", &atoll.Content{})
				expectChanged(1)
				m.settleOnce("web")
				expectChanged(2)
			})
			restart(func() {
				m.settleOnce("web")
				expectChanged(10)
				m.changeCluster("joined", func(c *v1alpha1.Cluster) { c.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) })
				expectChanged(10)
				m.settleOnce("web")
				expectChanged(21)
			})
		})
	}
}

// Clusters that another hub created, whose clock is ahead, are divided too.
func TestAutoStagesOfClustersByAClockAhead(t *testing.T) {
	m := newFakeHub()
	w := &gateWriter{hub: m}
	runWith(t, m, func(c *Config) { c.SetRollout = w.setRollout }, func(t *testing.T, _ *PlacementReconciler) {
		newAutoStagedBundle(m, 6)
		for i := range 6 {
			m.changeCluster(fmt.Sprintf("c%02d", i), func(c *v1alpha1.Cluster) { c.CreationTimestamp = metav1.NewTime(time.Now().Add(5 * time.Minute)) })
		}
		time.Sleep(time.Second) // a Cluster never changes its time, so that no step may see both
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Second)
		if n := m.countAt("web", "r2"); n != 1 || w.writes != 1 {
			t.Errorf("%d clusters change at first, after %d writes", n, w.writes)
		}
	})
}

// A hub that stores no division changes no cluster.
func TestAutoStagesWithoutAStoreDoNotBegin(t *testing.T) {
	m := newFakeHub()
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newAutoStagedBundle(m, 6)
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Hour)
		if n := m.countAt("web", "r1"); n != 6 {
			t.Errorf("%d of 6 clusters keep their revision", n)
		}
	})
}

// A preview counts the clusters of each stage by the division that is then stored, and stores nothing.
func TestPreviewOfAutoStages(t *testing.T) {
	m := newFakeHub()
	w := &gateWriter{hub: m}
	runWith(t, m, func(c *Config) { c.SetRollout = w.setRollout }, func(t *testing.T, r *PlacementReconciler) {
		newAutoStagedBundle(m, 20)
		m.setOnline("c07", false)
		m.setOnline("c11", false)
		time.Sleep(time.Hour)
		b, _ := r.Bundles.Get("web")
		got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-2-r2", Content: &atoll.Content{}}})
		if err != nil || got[0].Rollout == nil {
			t.Fatalf("no stages are previewed: %v", err)
		}
		first := got[0].Rollout
		var stages []string
		foreseen := map[string]int{}
		for i, n := range first.Progress.Stages {
			stages = append(stages, fmt.Sprint(first.Terms.StageName(i), " ", n.Clusters, " ", n.Changing))
		}
		for i := range 20 {
			c := fmt.Sprintf("c%02d", i)
			foreseen[c] = first.Terms.StageOf(c, nil, 0)
		}
		if is, want := strings.Join(stages, ", "), "auto 1 1 1, auto 10% 1 0, auto 50% 7 0, auto 100% 9 0"; is != want {
			t.Errorf("stages %s, want %s", is, want)
		}
		if first.DescribeWait() != "stage auto 1 to become healthy" || w.writes != 0 {
			t.Errorf("clusters would wait for %q, and %d writes were made", first.DescribeWait(), w.writes)
		}
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Second)
		synctest.Wait()
		b, _ = r.Bundles.Get("web")
		terms := r.index.turnTermsOf(b)
		for c, stage := range foreseen {
			if is := terms.StageOf(c, nil, 0); is != stage {
				t.Errorf("%s is in stage %d, and was foreseen in %d", c, is, stage)
			}
		}
		if n := m.countAt("web", "r2"); n != 1 {
			t.Errorf("%d clusters change at first", n)
		}
	})
}
