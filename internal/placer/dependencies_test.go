package placer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/state"
)

// oneItem is the content of an application.
func oneItem() *atoll.Content {
	return &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "some"}, APIVersion: "v1", UID: "u"}}}
}

// noItems is the content after all objects are deleted.
func noItems() *atoll.Content {
	return &atoll.Content{Tombstones: []atoll.Tombstone{{Key: oneItem().Items[0].Key, UID: "u", Cause: atoll.CauseDeleted}}}
}

// orderBundle makes a Bundle of a policy of its name that depends on others.
func (m *fakeHub) orderBundle(uid string, clusters []string, dependsOn ...v1alpha1.PolicyDependency) {
	m.changeBundle(uid, func(b *state.Bundle) {
		b.Spec.Source = v1alpha1.BundleSource{Kind: v1alpha1.SourcePropagationPolicy, Name: uid}
		b.Spec.Placement, b.Spec.DependsOn = placementNamed(clusters...), dependsOn
	})
}

func dependOn(name string) v1alpha1.PolicyDependency { return v1alpha1.PolicyDependency{Name: name} }

// markDeleted begins the deletion of a Bundle.
func (m *fakeHub) markDeleted(uid string) {
	now := metav1.Now()
	m.changeBundle(uid, func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now })
	synctest.Wait()
}

// awaitWakes waits as long as a wake may be delayed for further changes.
func awaitWakes() {
	time.Sleep(maxTouchDelay)
	synctest.Wait()
}

// expectOrdered checks the rows of a Bundle after wakes.
func expectOrdered(t *testing.T, m *fakeHub, uid, rows string) {
	t.Helper()
	awaitWakes()
	expectRows(t, m, uid, rows)
}

// expectReason checks the reason of a row after wakes.
func expectReason(t *testing.T, m *fakeHub, uid, cluster string, want atoll.Reason) {
	t.Helper()
	awaitWakes()
	if got := m.reasonOf(uid, cluster); got != want {
		t.Errorf("%s in %s has the reason %q, want %q", uid, cluster, got, want)
	}
}

// A Bundle waits in each cluster for the one that it depends on, over restarts. A change of a dependency wakes no Bundle that does not wait.
func TestBundlesComeInOrder(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runWithRestarts(t, m, func(t *testing.T) {
		m.orderBundle("web", []string{"a", "b"}, dependOn("db"))
		m.cutRevision("web", oneItem())
		expectOrdered(t, m, "web", "a Pending r1, b Pending r1")
		expectReason(t, m, "web", "a", atoll.ReasonDependencyMissing)
		m.orderBundle("db", []string{"a"})
		expectReason(t, m, "web", "a", atoll.ReasonDependencyNotPlaced)
		m.cutRevision("db", oneItem())
		expectOrdered(t, m, "db", "a Active r1")
		expectReason(t, m, "web", "a", atoll.ReasonWaitsForDependency)
		expectReason(t, m, "web", "b", atoll.ReasonDependencyNotPlaced)
	}, func(t *testing.T) {
		time.Sleep(time.Hour)
		expectOrdered(t, m, "web", "a Pending r1, b Pending r1")
		m.settleRows("db")
		expectOrdered(t, m, "web", "a Active r1, b Pending r1")
		m.settleRows("web")
		m.orderBundle("db", []string{"a", "b"})
		m.settleRows("db")
		expectOrdered(t, m, "web", "a Active r1, b Active r1")
		m.settleRows("web")
		_, steps := m.countsAfterWait()
		m.reportState("db", "a", atoll.RowDegraded)
		synctest.Wait()
		if _, n := m.countsAfterWait(); n > steps+1 {
			t.Errorf("%d reads of rows while no Bundle waits", n-steps)
		}
		m.cutRevision("db", oneItem())
		m.cutRevision("web", oneItem())
		expectOrdered(t, m, "web", "a Active r1, b Active r1")
	}, func(t *testing.T) {
		expectReason(t, m, "web", "a", atoll.ReasonWaitsForDependency)
		m.reportState("db", "b", atoll.RowReady)
		expectOrdered(t, m, "web", "a Active r1, b Active r2")
		m.settleRows("db")
		expectOrdered(t, m, "web", "a Active r2, b Active r2")
		expectReason(t, m, "web", "a", "")
	})
}

// While a Bundle waits, only its own dependency wakes it, and no time does.
func TestAWaitForADependencyCostsNothing(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.orderBundle("other", []string{"a", "b"})
		m.cutRevision("other", oneItem())
		m.settleRows("other")
		m.orderBundle("db", []string{"a", "b"})
		m.cutRevision("db", oneItem())
		m.orderBundle("web", []string{"a"}, dependOn("db"))
		m.cutRevision("web", oneItem())
		awaitWakes()
		writes, steps := m.countsAfterWait()
		m.reportState("other", "a", atoll.RowProgressing)
		m.reportState("db", "b", atoll.RowProgressing) // web is not in b
		time.Sleep(24 * time.Hour)
		if w, n := m.countsAfterWait(); w != writes || n > steps+4 {
			t.Errorf("%d writes and %d reads of rows while a Bundle waits", w-writes, n-steps)
		}
		m.reportState("db", "a", atoll.RowReady)
		expectOrdered(t, m, "web", "a Active r1")
	})
}

// With scope All, connected clusters count, and the loss of one is seen. A dependency of which all clusters are lost is known to be nothing.
func TestADependencyInAllClusters(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.orderBundle("db", []string{"a", "b"})
		m.cutRevision("db", oneItem())
		m.orderBundle("web", []string{"c"}, v1alpha1.PolicyDependency{Name: "db", Scope: v1alpha1.DependencyAll, AcceptedStates: []v1alpha1.DependencyState{v1alpha1.DependencyReady}})
		m.cutRevision("web", oneItem())
		synctest.Wait()
		m.reportState("db", "a", atoll.RowReady)
		expectOrdered(t, m, "web", "c Pending r1")
		m.setOnline("b", false)
		time.Sleep(time.Hour)
		expectOrdered(t, m, "web", "c Active r1")
		m.settleRows("web")
		m.setOnline("a", false)
		time.Sleep(time.Hour)
		m.cutRevision("web", oneItem())
		expectOrdered(t, m, "web", "c Active r1")
		expectReason(t, m, "web", "c", atoll.ReasonDependencyDisconnected)
		m.setOnline("a", true)
		expectOrdered(t, m, "web", "c Active r2")
	})
}

// Policies that depend on each other have the reason, over several steps, and go on when one of them is edited.
func TestACircleOfDependencies(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		names := []string{"a1", "a2", "a3"}
		for i, name := range names {
			m.orderBundle(name, []string{"a"}, dependOn(names[(i+1)%3]))
			m.cutRevision(name, oneItem())
		}
		for _, name := range names {
			expectReason(t, m, name, "a", atoll.ReasonDependencyCycle)
		}
		m.orderBundle("a2", []string{"a"})
		expectOrdered(t, m, "a2", "a Active r1")
		expectReason(t, m, "a1", "a", atoll.ReasonWaitsForDependency)
		expectReason(t, m, "a3", "a", atoll.ReasonWaitsForDependency)
		for _, name := range []string{"a2", "a1", "a3"} {
			m.settleRows(name)
			expectOrdered(t, m, name, "a Active r1")
		}
		// Both are deleted in a circle: none is first.
		m.orderBundle("a2", []string{"a"}, dependOn("a3"))
		for _, name := range names {
			m.markDeleted(name)
		}
		for _, name := range names {
			expectOrdered(t, m, name, "a Removing r1")
		}
	})
}

// Bundles that are deleted leave each cluster in reverse order, also after a restart of the hub. One that stays delays a removal for a moment.
func TestBundlesLeaveInReverse(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runWithRestarts(t, m, func(t *testing.T) {
		m.orderBundle("db", []string{"a", "b"})
		m.cutRevision("db", oneItem())
		m.settleRows("db")
		m.orderBundle("web", []string{"a"}, dependOn("db"))
		m.cutRevision("web", oneItem())
		m.settleRows("web")
		m.markDeleted("db")
		expectOrdered(t, m, "db", "a Leaving r1, b Removing r1")
		expectReason(t, m, "db", "a", atoll.ReasonWaitsForDependents)
		time.Sleep(rollout.DependentsGrace / 2)
		m.markDeleted("web")
		time.Sleep(time.Hour)
		expectOrdered(t, m, "db", "a Leaving r1, b Removing r1")
		expectOrdered(t, m, "web", "a Removing r1")
	}, func(t *testing.T) {
		expectOrdered(t, m, "db", "a Leaving r1, b Removing r1")
		m.dropRow("web", "a")
		expectOrdered(t, m, "db", "a Removing r1, b Removing r1")
		expectReason(t, m, "db", "a", atoll.ReasonBundleDeleted)
	})
}

// A removal ends when the time for a dependent is over that stays.
func TestADependentThatStays(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.orderBundle("db", []string{"a"})
		m.cutRevision("db", oneItem())
		m.settleRows("db")
		m.orderBundle("web", []string{"a"}, dependOn("db"))
		m.cutRevision("web", oneItem())
		m.settleRows("web")
		m.markDeleted("db")
		expectOrdered(t, m, "db", "a Leaving r1")
		time.Sleep(rollout.DependentsGrace + time.Second)
		expectOrdered(t, m, "db", "a Removing r1")
		expectOrdered(t, m, "web", "a Active r1")
		m.cutRevision("web", oneItem())
		expectOrdered(t, m, "web", "a Active r1")
		expectReason(t, m, "web", "a", atoll.ReasonDependencyMissing)
	})
}

// Templates that are deleted leave in reverse order, too. A Bundle that is removed waits for none on which it depends.
func TestTemplatesLeaveInReverse(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.orderBundle("db", []string{"a"})
		m.cutRevision("db", oneItem())
		m.settleRows("db")
		m.orderBundle("web", []string{"a"}, dependOn("db"))
		m.cutRevision("web", oneItem())
		m.settleRows("web")
		m.reportState("db", "a", atoll.RowDegraded)
		m.cutRevision("web", noItems())
		expectOrdered(t, m, "web", "a Active r2")
		m.cutRevision("db", noItems())
		time.Sleep(time.Hour)
		expectOrdered(t, m, "db", "a Active r1")
		expectReason(t, m, "db", "a", atoll.ReasonWaitsForDependents)
		m.mu.Lock()
		r := m.rows["web"]["a"]
		r.Status = &atoll.RowStatus{UID: r.Spec.UID, Generation: r.Spec.Generation, State: atoll.RowReady, Applied: true, AllTombstonesDone: true}
		m.rows["web"]["a"] = r
		m.mu.Unlock()
		for _, fn := range m.onRows {
			fn("web", []string{"a"}, nil)
		}
		expectOrdered(t, m, "db", "a Active r2")
	})
}

// A plan shows for what the clusters would wait, and what would come of it.
func TestADependencyIsPreviewed(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.orderBundle("db", []string{"a"})
		m.cutRevision("db", oneItem())
		m.orderBundle("web", []string{"a"}, dependOn("db"))
		m.cutRevision("web", oneItem())
		m.settleRows("db")
		m.settleRows("web")
		of := func(uid string) state.Bundle { b, _ := r.Bundles.Get(uid); return b }
		for name, c := range map[string]struct {
			list []SupposedBundle
			want atoll.Reason
		}{
			"ready":       {[]SupposedBundle{{of("web"), "web-1-r2", oneItem()}}, ""},
			"both change": {[]SupposedBundle{{of("web"), "web-1-r2", oneItem()}, {of("db"), "db-1-r2", oneItem()}}, atoll.ReasonWaitsForDependency},
			"it is edited": {[]SupposedBundle{{func() state.Bundle {
				b := of("web")
				b.Spec.DependsOn = []v1alpha1.PolicyDependency{dependOn("none")}
				return b
			}(), "web-1-r2", oneItem()}}, atoll.ReasonDependencyMissing},
		} {
			got, err := r.PreviewBundles(t.Context(), nil, c.list)
			if err != nil {
				t.Fatal(err)
			}
			var reason atoll.Reason
			if got[0].Rollout != nil {
				reason = got[0].Rollout.Wait.Reason
			}
			if reason != c.want || got[0].After["a"].Revision != "web-1-r2" {
				t.Errorf("%s: the change waits for %q, want %q, and leads to %+v", name, reason, c.want, got[0].After["a"])
			}
		}
		m.cutRevision("db", oneItem())
		m.cutRevision("web", oneItem())
		synctest.Wait()
		p, err := r.PreviewBundle(t.Context(), of("web"))
		if err != nil || len(p.Output.Waits) != 1 || p.Output.Waits[0].Reason != atoll.ReasonWaitsForDependency || p.Output.Waits[0].For != "PropagationPolicy db to be ready in the same cluster" {
			t.Errorf("the waits are %+v: %v", p.Output.Waits, err)
		}
	})
}

// The index has nothing of Bundles that are gone or state no dependency any more, after any changes.
func TestDependencyIndexForgets(t *testing.T) {
	m, x := newFakeHub(), newDependencyIndex()
	for n := range 300 {
		uid := fmt.Sprint("b", n%7)
		switch n % 5 {
		case 0, 1, 2:
			m.orderBundle(uid, nil, dependOn(fmt.Sprint("b", n%3)), dependOn(fmt.Sprint("b", n%4)))
		case 3:
			m.orderBundle(uid, nil)
		default:
			m.mu.Lock()
			delete(m.bundles, uid)
			m.mu.Unlock()
		}
		x.recordBundle(uid, fakeBundles{m})
		x.beginStep(uid)
		if n%2 == 0 {
			x.endStep(uid, []string{"a"})
		}
		x.listWaiting(uid, []string{"a"})
	}
	for uid := range m.bundles {
		delete(m.bundles, uid)
		x.recordBundle(uid, fakeBundles{m})
	}
	for n := range 7 {
		x.recordBundle(fmt.Sprint("b", n), fakeBundles{m})
	}
	if len(x.bundles)+len(x.policies) > 0 {
		t.Errorf("%d Bundles and %d policies are left", len(x.bundles), len(x.policies))
	}
}

// A path names each policy once, in its order.
func TestPathOfDependencies(t *testing.T) {
	m, x := newFakeHub(), newDependencyIndex()
	for _, edge := range []string{"a b", "b c", "c a", "d a"} {
		from, to, _ := strings.Cut(edge, " ")
		m.orderBundle(from, nil, dependOn(to))
		x.recordBundle(from, fakeBundles{m})
	}
	ref := func(name string) v1alpha1.PolicyRef {
		return v1alpha1.PolicyRef{Kind: v1alpha1.SourcePropagationPolicy, Namespace: "shop", Name: name}
	}
	for _, c := range []struct {
		from, to string
		want     []v1alpha1.PolicyRef
	}{{"b", "a", []v1alpha1.PolicyRef{ref("b"), ref("c"), ref("a")}}, {"a", "a", []v1alpha1.PolicyRef{ref("b"), ref("c"), ref("a")}}, {"a", "d", nil}, {"e", "a", nil}} {
		if got := x.findPath(ref(c.from), ref(c.to)); !slices.Equal(got, c.want) {
			t.Errorf("from %s to %s: %v", c.from, c.to, got)
		}
	}
}

// A Bundle in a namespace waits for those of a cluster policy, in whatever namespace they are. Those hold for a bounded time what the cluster
// policy removes, since other users write them.
func TestADependencyOnAClusterPolicy(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		cluster := v1alpha1.BundleSource{Kind: v1alpha1.SourceClusterPropagationPolicy, Name: "db"}
		for _, uid := range []string{"db1", "db2"} {
			m.changeBundle(uid, func(b *state.Bundle) {
				b.Ref.Namespace, b.Spec.Source, b.Spec.Placement = "operators-"+uid, cluster, placementNamed("a")
			})
			m.cutRevision(uid, oneItem())
		}
		m.orderBundle("web", []string{"a"}, v1alpha1.PolicyDependency{Kind: cluster.Kind, Name: "db"})
		m.cutRevision("web", oneItem())
		expectReason(t, m, "web", "a", atoll.ReasonWaitsForDependency)
		m.settleRows("db1")
		expectOrdered(t, m, "web", "a Pending r1")
		m.settleRows("db2")
		expectOrdered(t, m, "web", "a Active r1")
		m.settleRows("web")
		m.markDeleted("web")
		m.markDeleted("db1")
		time.Sleep(rollout.DependentsLimit - time.Minute)
		expectOrdered(t, m, "db1", "a Leaving r1")
		time.Sleep(2 * time.Minute)
		expectOrdered(t, m, "db1", "a Removing r1")
		expectOrdered(t, m, "db2", "a Active r1")
	})
}
