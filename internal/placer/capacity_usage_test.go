package placer

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// withCapacity so many replicas.
func withCapacity(replicas int64) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) { c.Spec.Capacity = &v1alpha1.ClusterCapacity{Replicas: &replicas} }
}

// undividedContent content: what asking is, and not divided.
func undividedContent(name string, replicas int) *atoll.Content {
	c := contentAsking(name, replicas)
	c.Items[0].Divided = false
	return c
}

var dividedPlacement = v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}}

// clustersOf are the Bundles that have a row.
func (m *fakeHub) clustersOf(uids ...string) (out []string) {
	synctest.Wait()
	for _, uid := range uids {
		if len((fakeRows{m}).ListOfBundle(uid)) > 0 {
			out = append(out, uid)
		}
	}
	return out
}

// Many Bundles come at the same time, and one gets the last place. When it goes, another gets
// the place without a recheck.
func TestTheLastPlaceGoesToOne(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(5))
	var uids []string
	for i := range 20 {
		uids = append(uids, fmt.Sprint("app", i))
		m.placeBundle(uids[i], v1alpha1.PlacementSpec{}, undividedContent(uids[i], 3))
	}
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		for range 20 {
			got := m.clustersOf(uids...)
			if len(got) != 1 {
				t.Fatalf("%s have a place where one has", got)
			}
			_, looks := m.countsAfterWait()
			time.Sleep(time.Hour)
			if _, now := m.countsAfterWait(); now-looks > len(uids) {
				t.Fatalf("waiting costs %d looks an hour", now-looks)
			}
			m.deleteBundle(got[0])
		}
		if got := m.clustersOf(uids...); len(got) != 0 {
			t.Errorf("%s are left", got)
		}
	})
}

// Two steps that were decided by the same last place: one takes it, the other one decides
// again, however often that happens.
func TestTwoStepsRaceForTheLastPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		m.changeCluster("a", withCapacity(3))
		m.changeCluster("b", withCapacity(3))
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		for _, uid := range []string{"web", "api"} {
			m.placeBundle(uid, atMostClusters(1), undividedContent(uid, 3))
		}
		b, _ := fakeBundles{m}.Get("web")
		terms, err := r.termsOf(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		// Another Bundle takes the chosen place, between the decision and the step, each time.
		tries := 0
		a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) {
			snap, end, err := r.decideWithReservation(t.Context(), b, r.index.viewOf(b, terms, time.Now()))
			if tries++; tries == 1 {
				for i := range snap.rollout.Decision.Verdicts {
					if v := &snap.rollout.Decision.Verdicts[i]; v.Outcome == schedule.OutcomePlaced {
						m.changeBundle("api", func(b *state.Bundle) { b.Spec.Placement = placementNamed(v.Cluster) })
					}
				}
				if err := r.reconcileBundle(t.Context(), "api"); err != nil {
					t.Fatal(err)
				}
			}
			return snap, end, err
		})
		if err != nil || tries != 2 {
			t.Fatalf("%d decisions, %v", tries, err)
		}
		// Taken capacity counts before it is written, whatever event of the row comes in
		// between.
		r.rowsChanged("web", []string{"a", "b"}, []string{"a", "b"})
		m.placeBundle("more", v1alpha1.PlacementSpec{}, undividedContent("more", 1))
		if err := r.reconcileBundle(t.Context(), "more"); err != nil {
			t.Fatal(err)
		}
		if got := m.clustersOf("more"); len(got) > 0 {
			t.Errorf("what is being written has a place in %s", m.rowsOf("more"))
		}
		if err := r.writeRowChanges(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.endStep()
		if web, api := clustersHolding(m, "web"), clustersHolding(m, "api"); len(web) != 1 || len(api) != 1 || web[0] == api[0] {
			t.Errorf("web in %s, api in %s", web, api)
		}
	})
}

// A write that fails takes nothing, and the Bundle that was refused for it is placed.
func TestAFailedWriteTakesNoCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		m.changeCluster("a", withCapacity(3))
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 3))
		m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 3))
		m.beforeWrite = func() {
			if err := r.reconcileBundle(t.Context(), "api"); err != nil || len(m.clustersOf("api")) > 0 {
				t.Errorf("api while web is written: %s, %v", m.rowsOf("api"), err)
			}
			m.mu.Lock()
			delete(m.revisions, "web")
			m.rows["web"] = map[string]state.Row{"a": {Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowVacant}}}
			m.mu.Unlock()
		}
		if err := r.reconcileBundle(t.Context(), "web"); !errors.Is(err, state.ErrRowsMoved) {
			t.Fatalf("written: %v", err)
		}
		if !r.index.ensureEntry("api").hasTouched("a") {
			t.Error("api has no shortage")
		}
		if err := r.reconcileBundle(t.Context(), "api"); err != nil || len(m.clustersOf("api")) != 1 {
			t.Errorf("api: %s, %v", m.rowsOf("api"), err)
		}
	})
}

// Capacity that is released after a step's question, and before its wait is recorded, is not lost.
func TestCapacityThatComesDuringAStepIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		m.changeCluster("a", withCapacity(3))
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 3))
		if err := r.reconcileBundle(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 3))
		b, _ := fakeBundles{m}.Get("api")
		terms, err := r.termsOf(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) {
			return r.decideWithReservation(t.Context(), b, r.index.viewOf(b, terms, time.Now()))
		})
		if err != nil {
			t.Fatal(err)
		}
		m.dropRow("web", "a")
		if err := r.writeRowChanges(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r.recordCapacityWaits(&a.input, a.output, nil)
		if !r.index.ensureEntry("api").hasTouched("a") {
			t.Error("api does not hear of it")
		}
	})
}

// Nor is capacity lost that a cluster comes to state while a step decides by what it stated
// before, however late the step asks what is used.
func TestCapacityStatedWhileItIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		m.changeCluster("a", withCapacity(3))
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 5))
		b, _ := fakeBundles{m}.Get("api")
		terms, err := r.termsOf(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		end := r.index.beginStep("api")
		v := r.index.viewOf(b, terms, time.Now()) // with the cluster as it was
		m.changeCluster("a", withCapacity(8))
		r.handleClusterChange(t.Context(), "a")
		a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) { return r.decideWithReservation(t.Context(), b, v) })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.writeRowChanges(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r.recordCapacityWaits(&a.input, a.output, nil)
		end()
		if len(a.output.Changes) > 0 || !r.index.ensureEntry("api").hasTouched("a") {
			t.Errorf("changes %v; api does not hear of it", a.output.Changes)
		}
	})
}

func (e *bundleEntry) hasTouched(cluster string) bool { _, ok := e.touchedClusters[cluster]; return ok }

// A wait for capacity is tried again when some is released, by whatever cause.
func TestCapacityThatComesIsUsed(t *testing.T) {
	for name, come := range map[string]func(m *fakeHub){
		"the bound is raised": func(m *fakeHub) { m.changeCluster("a", withCapacity(8)) },
		"no bound any more":   func(m *fakeHub) { m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Capacity = nil }) },
		"a Bundle goes":       func(m *fakeHub) { m.deleteBundle("web") },
		"a Bundle moves": func(m *fakeHub) {
			m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
			m.settleRows("web")
		},
		"a Bundle shrinks": func(m *fakeHub) { m.cutRevision("web", undividedContent("web", 1)) },
		"a Bundle shrinks, after the one that waits was looked at again": func(m *fakeHub) {
			m.cutRevision("api", undividedContent("api", 2))
			synctest.Wait()
			m.cutRevision("web", undividedContent("web", 1))
		},
		"it asks for less itself": func(m *fakeHub) { m.cutRevision("api", undividedContent("api", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			m.changeCluster("a", withCapacity(5))
			m.changeCluster("b", nil)
			runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
				m.placeBundle("web", placementNamed("a"), undividedContent("web", 4))
				m.settleRows("web")
				m.placeBundle("api", placementNamed("a"), undividedContent("api", 3))
				m.placeBundle("many", func() v1alpha1.PlacementSpec {
					p := placementNamed("a")
					p.ReplicaScheduling = dividedPlacement.ReplicaScheduling
					return p
				}(), contentAsking("many", 0))
				m.settleRows("api")
				expectRows(t, m, "api", "")
				come(m)
				m.settleRows("web")
				if expectRows(t, m, "many", "a Active r1 0"); !strings.HasPrefix(m.rowsOf("api"), "a Active r") {
					t.Errorf("api is %q", m.rowsOf("api"))
				}
			})
		})
	}
}

// Capacity that comes free costs nothing for a Bundle that waited for it and is gone.
func TestAGoneBundleWaitsForNoCapacity(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(3))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 3))
		m.settleRows("web")
		m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 3))
		expectRows(t, m, "api", "")
		readsOfFreedCapacity := func() int {
			before := m.countReads()
			r.capacityFreed("a")
			synctest.Wait()
			return m.countReads() - before
		}
		if readsOfFreedCapacity() == 0 {
			t.Error("the Bundle that waits is not looked at")
		}
		m.mu.Lock()
		delete(m.bundles, "api") // no row held it
		m.mu.Unlock()
		for _, fn := range m.onBundle {
			fn("api")
		}
		synctest.Wait()
		if reads := readsOfFreedCapacity(); reads > 0 {
			t.Errorf("%d reads for a Bundle that is gone", reads)
		}
	})
}

// countReads counts the reads of rows.
func (m *fakeHub) countReads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rowReads + m.contentReads
}

// A Bundle with uncountable requests takes nothing of others with it when it goes.
func TestSumsThatRanOverAreCountedAnew(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", nil)
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("huge", placementNamed("a"), undividedContent("huge", math.MaxInt64))
		m.placeBundle("web", placementNamed("a"), undividedContent("web", 3))
		m.settleRows("web")
		m.changeCluster("a", withCapacity(5))
		synctest.Wait()
		m.placeBundle("api", placementNamed("a"), undividedContent("api", 3))
		m.settleRows("api")
		expectRows(t, m, "api", "")
		m.deleteBundle("huge")
		m.settleRows("huge")
		expectRows(t, m, "api", "") // 3 of 5 are used
		m.deleteBundle("web")
		m.settleRows("web")
		expectRows(t, m, "api", "a Active r1")
	})
}

// Replicas without a place are reported, and get a place when there is one.
func TestShortOfStatedCapacity(t *testing.T) {
	for name, p := range map[string]v1alpha1.PlacementSpec{"by weight": dividedPlacement, "by room": byFreeCapacity} {
		t.Run(name, func(t *testing.T) {
			m := newFakeHub()
			m.changeCluster("a", func(c *v1alpha1.Cluster) { withFreeCPUs(50)(c); withCapacity(3)(c) })
			m.changeCluster("b", func(c *v1alpha1.Cluster) {
				withFreeCPUs(50)(c)
				c.Spec.Capacity = &v1alpha1.ClusterCapacity{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
			})
			runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
				m.placeBundle("web", p, contentAsking("web", 9))
				m.settleRows("web")
				expectRows(t, m, "web", "a Active r1 3, b Active r1 2")
				b, _ := r.Bundles.Get("web")
				pre, err := r.PreviewBundle(t.Context(), b)
				if err != nil || len(pre.Output.Shortages) != 1 || pre.Output.Shortages[0].Unplaced != 4 {
					t.Errorf("short of %+v, %v", pre.Output.Shortages, err)
				}
				if got := fmt.Sprint(pre.Decision.CapacityBounds("a")); got != "[{capacity.replicas 3 3 false}]" {
					t.Errorf("a states %s", got)
				}
				m.changeCluster("a", withCapacity(5))
				m.settleRows("web")
				expectRows(t, m, "web", "a Active r1 5, b Active r1 2")
				m.changeCluster("a", withCapacity(1))
				m.settleRows("web")
				expectRows(t, m, "web", "a Active r1 5, b Active r1 2")
			})
		})
	}
}

// Lowering a bound takes nothing, and costs no write.
func TestWhatRunsStaysWhenABoundIsLowered(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(10))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 4))
		m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 4))
		m.settleRows("web")
		m.settleRows("api")
		writes, _ := m.countsAfterWait()
		m.changeCluster("a", withCapacity(2))
		m.settleRows("web")
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.WhenUnfit = v1alpha1.UnfitRemove })
		m.cutRevision("api", undividedContent("api", 3))
		m.settleRows("web")
		m.settleRows("api")
		expectRows(t, m, "web", "a Active r1")
		expectRows(t, m, "api", "a Active r2")
		if now, _ := m.countsAfterWait(); now != writes+1 {
			t.Errorf("%d writes where one moves api to its revision", now-writes)
		}
		b, _ := r.Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if got := fmt.Sprint(p.Decision.CapacityBounds("a")); err != nil || got != "[{capacity.replicas 2 7 true}]" {
			t.Errorf("a states %s, %v", got, err)
		}
	})
}

// A revision that asks for more than is left waits, says so, and goes on when there is.
func TestARevisionWaitsForCapacity(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(5))
	m.changeCluster("b", nil)
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 4))
		m.settleRows("web")
		m.cutRevision("web", undividedContent("web", 7))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r2")
		row, _ := (fakeRows{m}).Get("web", "a")
		if reason := atoll.ParseRowReason(row.Spec.Reason); reason.Reason != atoll.ReasonNoCapacity || !strings.Contains(reason.Text, "requests 7 instead of 4") {
			t.Errorf("the row says %q", row.Spec.Reason)
		}
		b, _ := r.Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil || len(p.Output.Waits) != 1 || p.Output.Waits[0].Cluster != "a" || !strings.Contains(p.Output.Waits[0].For, "capacity") {
			t.Errorf("waits %+v, %v", p.Output.Waits, err)
		}
		m.changeCluster("a", withCapacity(7))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2, b Active r2")
		if row, _ := (fakeRows{m}).Get("web", "a"); row.Spec.Reason != "" {
			t.Errorf("the row still says %q", row.Spec.Reason)
		}
	})
}

// A divided workload of which each pod asks for more stays as it is in its cluster, where
// that is too much.
func TestADividedRevisionWaitsForCapacity(t *testing.T) {
	m := newFakeHub()
	cpus := func(n string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Spec.Capacity = &v1alpha1.ClusterCapacity{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}}
		}
	}
	m.changeCluster("a", cpus("5"))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", dividedPlacement, contentAsking("web", 4))
		m.settleRows("web")
		double := contentAsking("web", 6)
		double.Items[0].Object = []byte(strings.Replace(string(double.Items[0].Object), `"cpu":"1"`, `"cpu":"2"`, 1))
		m.cutRevision("web", double)
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1 4")
		m.changeCluster("a", cpus("9"))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 4")
		m.changeCluster("a", cpus("12"))
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2 6")
	})
}

// Rows stay as they are while others always take the capacity that a decision counts on.
func TestAStepThatIsAlwaysLateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newFakeHub()
		m.changeCluster("a", withCapacity(5))
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 4))
		if err := r.reconcileBundle(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		m.cutRevision("web", undividedContent("web", 5))
		b, _ := fakeBundles{m}.Get("web")
		terms, err := r.termsOf(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		a, err := r.attemptStepWithRetries(func() (stepInput, func(), error) {
			tries++
			snap, end, err := r.decideWithReservation(t.Context(), b, r.index.viewOf(b, terms, time.Now()))
			late := *snap.demand.bounds["a"]
			late.Capacity = schedule.ResourceUsage{{Name: schedule.MeasureReplicas, Quantity: 4}}
			snap.demand.bounds["a"] = &late
			return snap, end, err
		})
		if err != nil || tries != maxDecideTries {
			t.Fatalf("%d decisions, %v", tries, err)
		}
		if err := r.writeRowChanges(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		row, _ := (fakeRows{m}).Get("web", "a")
		if !strings.HasSuffix(row.Spec.Revision, "r1") || atoll.ParseRowReason(row.Spec.Reason).Reason != atoll.ReasonNoCapacity {
			t.Errorf("the row is at %s: %q", row.Spec.Revision, row.Spec.Reason)
		}
	})
}

// A hub that starts counts what is there.
func TestCapacityIsKnownAfterAStart(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(5))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 4))
		m.settleRows("web")
	})
	m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 2))
	m.placeBundle("one", v1alpha1.PlacementSpec{}, undividedContent("one", 1))
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		expectRows(t, m, "api", "")
		expectRows(t, m, "one", "a Active r1")
	})
}

// The reads of a decision do not grow with the existing rows.
func TestCountingCostsWhatChanges(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(1_000_000))
	for i := range 300 {
		m.placeBundle(fmt.Sprint("app", i), v1alpha1.PlacementSpec{}, undividedContent(fmt.Sprint("app", i), 1))
	}
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		for i := range 300 {
			m.settleRows(fmt.Sprint("app", i))
		}
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 1))
		m.settleRows("web")
		m.mu.Lock()
		reads := m.contentReads
		m.mu.Unlock()
		m.placeBundle("api", v1alpha1.PlacementSpec{}, undividedContent("api", 1))
		m.settleRows("api")
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.contentReads-reads > 20 {
			t.Errorf("one Bundle more costs %d reads of rows where 301 are", m.contentReads-reads)
		}
	})
}

// A preview counts the supposed state: of the Bundles, and of the stated capacity.
func TestCapacityIsForeseen(t *testing.T) {
	m := newFakeHub()
	m.changeCluster("a", withCapacity(5))
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.placeBundle("web", v1alpha1.PlacementSpec{}, undividedContent("web", 4))
		m.settleRows("web")
		supposed := func(uid string, replicas int) SupposedBundle {
			var b state.Bundle
			b.Ref.UID, b.Ref.Namespace, b.Ref.Name = uid, "shop", uid
			b.Meta.Name = uid
			return SupposedBundle{Bundle: b, Revision: uid + "-9-r9", Content: undividedContent(uid, replicas)}
		}
		foresee := func(clusters Clusters, list ...SupposedBundle) string {
			got, err := r.PreviewBundles(t.Context(), &SupposedTables{Clusters: clusters}, list)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, f := range got {
				out = append(out, f.Bundle.Ref.UID+": "+rowsText(f.After))
			}
			return strings.Join(out, "; ")
		}
		if got := foresee(nil, supposed("api", 1), supposed("more", 1)); got != "api: a Active; more: " {
			t.Errorf("%s", got)
		}
		smaller, _ := fakeBundles{m}.Get("web")
		if got := foresee(nil, SupposedBundle{Bundle: smaller, Revision: "web-2-r2", Content: undividedContent("web", 1)}, supposed("api", 4)); got != "web: a Active; api: a Active" {
			t.Errorf("with a smaller web %s", got)
		}
		c, _ := fakeClusters{m}.Get("a")
		c = c.DeepCopy()
		withCapacity(6)(c)
		if got := foresee(overlaidClusters{Clusters: fakeClusters{m}, Changed: map[string]*v1alpha1.Cluster{"a": c}}, supposed("api", 2)); got != "api: a Active" {
			t.Errorf("with more capacity %s", got)
		}
		expectRows(t, m, "web", "a Active r1")
		m.placeBundle("late", v1alpha1.PlacementSpec{}, undividedContent("late", 1))
		m.settleRows("late")
		expectRows(t, m, "late", "a Active r1")
	})
}
