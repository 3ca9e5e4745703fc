package placer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// TestStepsInPartEndWhereWholeStepsDo: whatever happens to clusters and rows, once all
// is quiet a step over the whole fleet has nothing to add to what the Reconciler did,
// most of it by steps over the clusters that were touched.
func TestStepsInPartEndWhereWholeStepsDo(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		m := newFakeHub()
		join := func(i int) {
			name := fmt.Sprintf("c%02d", i)
			if _, there := m.clusters[name]; there {
				return
			}
			m.changeCluster(name, func(c *v1alpha1.Cluster) {
				c.UID = types.UID("uid-" + name)
				c.Labels = map[string]string{"env": fmt.Sprint(rnd.IntN(2)), "country": fmt.Sprint(rnd.IntN(3))}
			})
		}
		for i := range 20 {
			join(i)
		}
		runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
			m.changeBundle("all", nil)
			m.changeBundle("keep", func(b *state.Bundle) { b.Spec.Placement = placementLabelled(map[string]string{"env": "1"}) })
			m.changeBundle("remove", func(b *state.Bundle) {
				b.Spec.Placement, b.Spec.WhenUnfit = placementLabelled(map[string]string{"env": "1"}), v1alpha1.UnfitRemove
			})
			m.changeBundle("named", func(b *state.Bundle) { b.Spec.Placement = placementNamed("c01", "c02", "c03", "c33") })
			uids := []string{"all", "keep", "remove", "named"}
			for _, uid := range uids {
				m.cutRevision(uid, newRegionalContent(1))
			}
			for range 60 {
				for range 1 + rnd.IntN(4) {
					applyRandomEvent(m, rnd, join, uids)
				}
				time.Sleep(2 * time.Second)
				for _, uid := range uids {
					m.settleRows(uid)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				for _, uid := range uids {
					p, err := r.PreviewBundle(t.Context(), m.bundles[uid])
					if err != nil {
						t.Fatal(err)
					}
					if len(p.Output.Changes) > 0 {
						t.Fatalf("seed %d, bundle %s: a whole step would still change %+v of\n%s", seed, uid, p.Output.Changes, m.rowsOf(uid))
					}
				}
			}
		})
	}
}

// A partial step adds its rows to the known number, and removes the touches that it has seen.
func TestRecordPartialStep(t *testing.T) {
	x, filter := newBundleIndex(), schedule.PlacementTerms{}.CompilePlacement()
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	for _, c := range []struct {
		name          string
		uid           string
		filter        *schedule.CompiledPlacement
		due, requeue  time.Time
		rows, touches int
		wantDue       time.Time
	}{
		{"no recheck", "b", filter, late, time.Time{}, 9, 1, late},
		{"the first recheck", "b", filter, time.Time{}, late, 9, 1, late},
		{"an earlier recheck", "b", filter, late, early, 9, 1, early},
		{"a later recheck", "b", filter, early, late, 9, 1, early},
		{"other terms came", "b", schedule.PlacementTerms{}.CompilePlacement(), late, early, 7, 3, late},
		{"another Bundle", "gone", filter, late, early, 7, 3, late},
	} {
		e := &bundleEntry{uid: "b", filter: filter, rowCount: 7, placedClusters: 4, dueAt: c.due, touchedClusters: map[string]uint64{"a": 1, "b": 2, "c": 3}}
		x.entries["b"] = e
		x.recordPartialStep(bundleView{uid: c.uid, filter: c.filter, touchCount: 2, placedElsewhere: 3}, stepResult{output: rollout.Output{RequeueAt: c.requeue}, rowCount: 2, placedClusters: 1})
		if e.rowCount != c.rows || len(e.touchedClusters) != c.touches || e.touchedClusters["c"] != 3 || !e.dueAt.Equal(c.wantDue) || e.placedClusters != 4 {
			t.Errorf("%s: %d rows, %d placed, touches %v, due %s", c.name, e.rowCount, e.placedClusters, e.touchedClusters, e.dueAt)
		}
	}
}

// A variant is computed for rows below the target, touched clusters and clusters that are placed.
func TestVariantsOfClustersThatMayChange(t *testing.T) {
	var clusters []schedule.Cluster
	for _, name := range []string{"below", "new", "out", "target", "touched", "unknown"} {
		clusters = append(clusters, schedule.Cluster{ClusterView: atoll.ClusterView{Name: name}, UID: "uid-" + name})
	}
	const hash = "0123456789abcdef"
	row := func(name string, revision int64) atoll.RowSpec {
		return atoll.RowSpec{UID: "uid-" + name, Revision: atoll.RevisionName("b", revision, hash)}
	}
	p := stepParts{
		clusters: clusters, rows: map[string]atoll.RowSpec{"below": row("below", 1), "target": row("target", 2), "touched": row("touched", 2)},
		decision: schedule.Decision{Verdicts: []schedule.Verdict{{Cluster: "new", Outcome: schedule.OutcomePlaced}, {Cluster: "out", Outcome: schedule.OutcomeOut}}},
	}
	v := bundleView{isComplete: true, touchedClusters: map[string]bool{"touched": true}}
	got := slices.Sorted(maps.Keys(variantsOfAffectedClusters(&atoll.Content{}, atoll.RevisionName("b", 2, hash), p, v)))
	if want := []string{"below", "new", "touched"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := variantsOfAffectedClusters(nil, "", p, v); len(got) > 0 {
		t.Errorf("without a content: %v", got)
	}
}

// applyRandomEvent something to a cluster or a row.
func applyRandomEvent(m *fakeHub, rnd *rand.Rand, join func(int), uids []string) {
	i := rnd.IntN(40)
	name := fmt.Sprintf("c%02d", i)
	if _, there := m.clusters[name]; !there {
		join(i)
		return
	}
	switch rnd.IntN(9) {
	case 0:
		m.deleteCluster(name)
	case 1, 2, 3:
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			c.Labels = map[string]string{"env": fmt.Sprint(rnd.IntN(2)), "country": fmt.Sprint(rnd.IntN(3)), "group": fmt.Sprint("g", rnd.IntN(5))}
		})
	case 4:
		m.changeCluster(name, func(c *v1alpha1.Cluster) { c.Spec.Accepted = !c.Spec.Accepted })
	case 5:
		m.changeCluster(name, func(c *v1alpha1.Cluster) {
			if c.Spec.Taints = nil; rnd.IntN(2) == 0 {
				c.Spec.Taints = []v1alpha1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			}
		})
	case 6:
		// The cluster is recreated under its name, as another one.
		m.changeCluster(name, func(c *v1alpha1.Cluster) { c.UID = types.UID(fmt.Sprint("uid-", name, "-", rnd.IntN(1000))) })
		m.setOnline(name, true)
	case 7:
		uid := uids[rnd.IntN(len(uids))]
		if row, ok := (fakeRows{m}).Get(uid, name); ok {
			m.reportState(uid, row.Cluster, atoll.RowDegraded)
		}
	case 8:
		m.cutRevision(uids[rnd.IntN(len(uids))], newRegionalContent(1))
	}
}

// A change that touches one cluster costs a step over that cluster, and reads no other row.
func TestStepsReadOnlyTheRowsThatAreTouched(t *testing.T) {
	m := newFakeHub()
	for i := range 20 {
		addClusters(m, fmt.Sprintf("c%02d", i))
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.changeBundle("all", nil)
		m.cutRevision("all", newRegionalContent(1))
		m.settleRows("all")
		synctest.Wait()
		_, before := m.countsAfterWait()
		addClusters(m, "late")
		synctest.Wait()
		if _, looks := m.countsAfterWait(); looks != before {
			t.Errorf("a new cluster costs %d reads of all rows", looks-before)
		}
		if row, ok := (fakeRows{m}).Get("all", "late"); !ok || row.Spec.Phase != atoll.RowActive {
			t.Errorf("the new cluster has the row %+v, %t", row.Spec, ok)
		}
	})
}
