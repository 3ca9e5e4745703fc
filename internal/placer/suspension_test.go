package placer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// suspendBundle states a suspension of a Bundle, or ends it where is is nil.
func (m *fakeHub) suspendBundle(uid string, is *v1alpha1.Suspension) {
	m.changeBundle(uid, func(b *state.Bundle) { b.Spec.Suspension = is })
}

func suspendClusters(names ...string) *v1alpha1.Suspension {
	return &v1alpha1.Suspension{DispatchingOnClusters: &v1alpha1.SuspendedClusters{ClusterNames: names}}
}

// reasonOf returns the reason of a row.
func (m *fakeHub) reasonOf(uid, cluster string) atoll.Reason {
	r, _ := fakeRows{m}.Get(uid, cluster)
	return atoll.ParseRowReason(r.Spec.Reason).Reason
}

// A suspension of dispatching writes nothing to rows at rest, and holds changes, first copies and moves, in an exempt Bundle too. Its end
// lets them go at once.
func TestASuspensionHoldsChanges(t *testing.T) {
	m := newRings("a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a", "b")
		writes, _ := m.countsAfterWait()
		m.suspendBundle("web", &v1alpha1.Suspension{Dispatching: true})
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.FreezeExemption = &v1alpha1.FreezeExemption{By: "bob", At: metav1.Now()} })
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r1, b Active r1")
		if w, _ := m.countsAfterWait(); w != writes {
			t.Errorf("%d writes of a suspended Bundle", w-writes)
		}
		m.moveBundle("web", "a", "c")
		m.settleRows("web")
		time.Sleep(24 * time.Hour)
		expectRows(t, m, "web", "a Active r1, b Leaving r1, c Pending r2")
		if r := m.reasonOf("web", "c"); r != atoll.ReasonDispatchingSuspended {
			t.Errorf("c waits with %q", r)
		}
		_, steps := m.countsAfterWait()
		time.Sleep(24 * time.Hour)
		if _, n := m.countsAfterWait(); n != steps {
			t.Errorf("%d steps while nothing changes", n-steps)
		}
		m.suspendBundle("web", nil)
		expectRows(t, m, "web", "a Active r2, b Leaving r2, c Active r2")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r2, c Active r2")
	})
}

// Suspended clusters do not change, and the others do. A suspended cluster that is chosen waits for its first copy, over a restart and under another
// leader.
func TestASuspensionOfClusters(t *testing.T) {
	m := newRings("a", "b", "c")
	runWithRestarts(t, m, func(t *testing.T) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a", "b")
		m.suspendBundle("web", suspendClusters("a", "c"))
		m.cutRevision("web", &atoll.Content{})
		expectRows(t, m, "web", "a Active r1, b Active r2")
		m.settleRows("web")
		m.moveBundle("web", "a", "b", "c")
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r2, c Pending r2")
	}, func(t *testing.T) {
		expectRows(t, m, "web", "a Active r1, b Active r2, c Pending r2")
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r1, b Active r3, c Pending r3")
		m.settleRows("web")
		m.suspendBundle("web", suspendClusters("c"))
		expectRows(t, m, "web", "a Active r3, b Active r3, c Pending r3")
		m.settleRows("web")
	}, func(t *testing.T) {
		m.suspendBundle("web", nil)
		expectRows(t, m, "web", "a Active r3, b Active r3, c Active r3")
	})
}

// A suspension that ends or begins during a step counts after it.
func TestASuspensionChangesDuringAStep(t *testing.T) {
	m := newRings("a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a")
		m.suspendBundle("web", &v1alpha1.Suspension{Dispatching: true})
		m.mu.Lock()
		m.beforeWrite = func() { m.suspendBundle("web", nil) }
		m.mu.Unlock()
		m.moveBundle("web", "a", "b") // the Pending row of b is the write
		expectRows(t, m, "web", "a Active r1, b Active r1")
		m.settleRows("web")
		m.mu.Lock()
		m.beforeWrite = func() { m.suspendBundle("web", &v1alpha1.Suspension{Dispatching: true}) }
		m.mu.Unlock()
		m.cutRevision("web", &atoll.Content{})
		synctest.Wait()
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Hour)
		if rows := m.rowsOf("web"); strings.Contains(rows, "r3") {
			t.Errorf("a suspended Bundle changes: %s", rows)
		}
	})
}

// A deleted template waits in the suspended clusters, and a deleted Bundle goes.
func TestDeletionsInASuspension(t *testing.T) {
	m := newRings("a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		item := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "some"}
		newPlacedBundle(m, "web", &atoll.Content{Items: []atoll.Item{{Key: item, APIVersion: "v1", UID: "u"}}}, "a", "b")
		m.suspendBundle("web", suspendClusters("a"))
		m.cutRevision("web", &atoll.Content{Tombstones: []atoll.Tombstone{{Key: item, UID: "u", Cause: atoll.CauseDeleted}}})
		m.settleRows("web")
		expectRows(t, m, "web", "a Active r1, b Active r2")
		time.Sleep(24 * time.Hour)
		m.suspendBundle("web", nil)
		expectRows(t, m, "web", "a Active r2, b Active r2")
		m.settleRows("web")
		m.suspendBundle("web", &v1alpha1.Suspension{Dispatching: true, Scheduling: true})
		now := metav1.Now()
		m.changeBundle("web", func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now })
		expectRows(t, m, "web", "a Removing r2, b Removing r2")
	})
}

// While scheduling is suspended, no taint moves a copy, no cluster that joins is chosen, and a Bundle without a decision gets none. Chosen
// clusters go on to change. After the suspension, all that happened in it counts.
func TestASuspensionOfScheduling(t *testing.T) {
	m := newRings("a", "b")
	all := v1alpha1.PlacementSpec{}
	runWithRestarts(t, m, func(t *testing.T) {
		m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = all })
		m.cutRevision("web", &atoll.Content{})
		m.settleRows("web")
		m.suspendBundle("web", &v1alpha1.Suspension{Scheduling: true})
		m.changeBundle("new", func(b *state.Bundle) {
			b.Spec.Placement, b.Spec.Suspension = all, &v1alpha1.Suspension{Scheduling: true}
		})
		m.cutRevision("new", &atoll.Content{})
		at := metav1.Now()
		m.setTaints("a", v1alpha1.Taint{Key: "t", Effect: corev1.TaintEffectNoExecute, TimeAdded: &at})
		labelRing(m, "c", "3")
		m.cutRevision("web", &atoll.Content{})
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r2, b Active r2")
		expectRows(t, m, "new", "")
		if r := m.reasonOf("web", "a"); r != atoll.ReasonSchedulingSuspended {
			t.Errorf("a stays with %q", r)
		}
		m.settleRows("web")
	}, func(t *testing.T) {
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Active r2, b Active r2")
		expectRows(t, m, "new", "")
		m.suspendBundle("web", nil)
		m.suspendBundle("new", nil)
		m.settleRows("web")
		m.settleRows("new")
		expectRows(t, m, "web", "b Active r2, c Active r2")
		expectRows(t, m, "new", "b Active r1, c Active r1")
	})
}

// A plan of a change under a suspension shows that the change waits, and for what. The decision shows what the suspension of scheduling keeps
// back.
func TestASuspensionIsPreviewed(t *testing.T) {
	m := newRings("a", "b")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		newPlacedBundle(m, "web", &atoll.Content{}, "a")
		for _, c := range []struct {
			is        *v1alpha1.Suspension
			want      atoll.Reason
			suspended int
		}{{nil, "", 0}, {&v1alpha1.Suspension{Dispatching: true}, atoll.ReasonDispatchingSuspended, 0}, {suspendClusters("a"), atoll.ReasonDispatchingSuspended, 1}, {suspendClusters("b"), "", 0}} {
			m.suspendBundle("web", c.is)
			synctest.Wait()
			b, _ := r.Bundles.Get("web")
			got, err := r.PreviewBundles(t.Context(), nil, []SupposedBundle{{Bundle: b, Revision: "web-1-r2", Content: &atoll.Content{}}})
			if err != nil {
				t.Fatal(err)
			}
			var reason atoll.Reason
			suspended := 0
			if got[0].Rollout != nil {
				reason, suspended = got[0].Rollout.Wait.Reason, got[0].Rollout.Progress.Stages[0].SuspendedWaiting
			}
			if reason != c.want || suspended != c.suspended {
				t.Errorf("%+v: the change waits for %q, with %d suspended clusters", c.is, reason, suspended)
			}
		}
		m.suspendBundle("web", &v1alpha1.Suspension{Scheduling: true})
		m.moveBundle("web", "b")
		b, _ := r.Bundles.Get("web")
		p, err := r.PreviewBundle(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for cluster, want := range map[string]string{
			"a": "Kept (suspension: scheduling is suspended; without that, the copy would leave: not named in clusterNames)",
			"b": "Out (suspension: scheduling is suspended; without that, the cluster would be chosen)",
		} {
			if v, _ := p.Decision.FindVerdict(cluster); v.String() != want {
				t.Errorf("%s is %s", cluster, v)
			}
		}
	})
}

// A label by which other override rules apply changes no suspended cluster. It counts after the suspension, although nothing else happens to the
// cluster then.
func TestALabelInASuspension(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		n := int32(1)
		m.changeBundle("web", nil)
		m.cutRevision("web", contentWithRule(v1alpha1.Overriders{Replicas: &n}))
		m.settleRows("web")
		was, _ := fakeRows{m}.Get("web", "a")
		m.suspendBundle("web", suspendClusters("a"))
		m.changeCluster("a", labelSpecial)
		m.settleRows("web")
		if r, _ := (fakeRows{m}).Get("web", "a"); r.Spec.Generation != was.Spec.Generation {
			t.Errorf("a suspended cluster gets %+v, and had %+v", r.Spec, was.Spec)
		}
		time.Sleep(time.Hour)
		m.suspendBundle("web", nil)
		synctest.Wait()
		if r, _ := (fakeRows{m}).Get("web", "a"); r.Spec.Variant == was.Spec.Variant {
			t.Error("the label of the cluster is lost in the suspension")
		}
	})
}

// While scheduling is suspended, nothing takes the place of a copy whose Cluster leaves the fleet. Divided replicas without another place stay, also
// where nothing bounds the rollout, and so does the last copy. They leave after the suspension, once they are replaced.
func TestACopyWithoutAReplacementStaysInASuspension(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	six := &atoll.Content{Items: []atoll.Item{{
		Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, Divided: true,
		Object: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":6}}`),
	}}}
	runWithRestarts(t, m, func(t *testing.T) {
		newPlacedBundle(m, "web", six, "a", "b")
		newPlacedBundle(m, "one", &atoll.Content{}, "a")
		m.suspendBundle("web", &v1alpha1.Suspension{Scheduling: true})
		m.suspendBundle("one", &v1alpha1.Suspension{Scheduling: true})
		m.moveBundle("one", "a", "c")
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan} })
		m.settleRows("web")
		m.settleRows("one")
		time.Sleep(24 * time.Hour)
		expectRows(t, m, "web", "a Leaving r1 3, b Active r1 3")
		expectRows(t, m, "one", "a Active r1")
		if r := m.reasonOf("one", "a"); r != atoll.ReasonSchedulingSuspended {
			t.Errorf("the last copy stays with %q", r)
		}
	}, func(t *testing.T) {
		time.Sleep(time.Hour)
		expectRows(t, m, "web", "a Leaving r1 3, b Active r1 3")
		expectRows(t, m, "one", "a Active r1")
		m.suspendBundle("web", nil)
		m.suspendBundle("one", nil)
		expectRows(t, m, "one", "a Leaving r1, c Active r1")
		m.settleRows("web")
		m.settleRows("one")
		expectRows(t, m, "web", "b Active r1 6")
		expectRows(t, m, "one", "c Active r1")
	})
}
