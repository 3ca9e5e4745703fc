package placer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// The caller of the compiler unlocks by defer. An unlock without the lock would end the process, which
// no recover prevents.
func TestAPanicOfTheCompilerKeepsTheLock(t *testing.T) {
	x := newBundleIndex()
	x.termsCache = nil
	x.mu.Lock()
	if p := reconcile.ContainPanicCounted("test", func() { x.compileUnlocked(schedule.PlacementTerms{}) }); p == nil {
		t.Error("the compiler does not panic without its cache")
	}
	if x.mu.TryLock() {
		t.Error("the lock is not held after the panic")
	}
	x.mu.Unlock()
}

// A panic under a lock unlocks it: one Bundle must not stop the others.
func TestAPanicKeepsNoLock(t *testing.T) {
	pods := schedule.ResourceUsage{{Name: schedule.MeasureReplicas, Quantity: 1}}
	broken := &memberUsage{staleBundles: map[string]uint64{"web": 1}} // it has no map of Bundles
	for name, c := range map[string]struct {
		act    func(r *PlacementReconciler)
		isHeld func(r *PlacementReconciler) *sync.Mutex
	}{
		"a change of a cluster": {func(r *PlacementReconciler) {
			r.index.entries["web"] = nil
			r.index.bundlesToReconsider(nil, schedule.Cluster{}, schedule.Cluster{})
		}, func(r *PlacementReconciler) *sync.Mutex { return &r.index.mu }},
		"a stale row": {func(r *PlacementReconciler) {
			r.usage.recordUse(broken, "web", 1, pods)
		}, func(r *PlacementReconciler) *sync.Mutex { return &r.usage.mu }},
		"a written row": {func(r *PlacementReconciler) {
			r.usage.members["uid-a"] = broken
			r.settleTakenCapacity("web", nil, map[string]schedule.ResourceUsage{"uid-a": pods}, true)
		}, func(r *PlacementReconciler) *sync.Mutex { return &r.usage.mu }},
	} {
		r := &PlacementReconciler{index: newBundleIndex(), usage: newCapacityUsage()}
		if p := reconcile.ContainPanicCounted("test", func() { c.act(r) }); p == nil {
			t.Errorf("%s: no panic", name)
		}
		if !c.isHeld(r).TryLock() {
			t.Errorf("%s: the lock is held", name)
		}
	}
}

// brokenWriter panics at every write.
type brokenWriter struct{}

func (brokenWriter) WriteSpecs(context.Context, enginev1.BundleRef, []state.Row, map[string]*atoll.RowSpec) error {
	panic("defect")
}

// A step that panics releases what it reserved and took: pods when it decided, and capacity before it
// writes.
func TestAPanicOfAStepLeavesNoReservation(t *testing.T) {
	placement := dividedPlacement
	placement.MaxClusters = 1
	for name, step := range map[string]func(ctx context.Context, m *fakeHub, r *PlacementReconciler) error{
		"the write": func(ctx context.Context, _ *fakeHub, r *PlacementReconciler) error {
			r.RowWriter = brokenWriter{}
			return r.reconcileBundle(ctx, "web")
		},
		"between the decision and the write": func(ctx context.Context, m *fakeHub, r *PlacementReconciler) error {
			b, _ := fakeBundles{m}.Get("web")
			terms, err := r.termsOf(ctx, b)
			if err != nil {
				return err
			}
			_, err = r.attemptStepWithRetries(func() (stepInput, func(), error) {
				snap, end, err := r.decideWithReservation(ctx, b, r.index.viewOf(b, terms, time.Now()))
				if len(r.index.reserved.pods) == 0 {
					err = errors.New("no pods are reserved")
				}
				r.capacity = nil // its promise comes when the capacity is taken
				return snap, end, err
			})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newFakeHub()
			m.changeCluster("a", withCapacity(3))
			r, shutDown := newIdleReconciler(m)
			defer shutDown()
			m.placeBundle("web", placement, contentAsking("web", 1))
			if p := reconcile.ContainPanicCounted("test", func() {
				if err := step(t.Context(), m, r); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}); p == nil {
				t.Errorf("%s: no panic", name)
			}
			if pods := r.index.reserved.pods; len(pods) > 0 {
				t.Errorf("%s: the reservations %v are left", name, pods)
			}
			if u := r.usage.members["uid-a"]; u == nil || len(u.takenBundles) > 0 {
				t.Errorf("%s: capacity is still taken: %+v", name, u)
			}
			if !r.ledgerMu.TryLock() {
				t.Fatalf("%s: the ledger is locked", name)
			}
			r.ledgerMu.Unlock()
		})
	}
}

// brokenRows panics at the next list of a cluster while it is broken.
type brokenRows struct {
	fakeRows
	isBroken *atomic.Bool
}

func (b brokenRows) ListOfCluster(uid string) []state.Row {
	if b.isBroken.CompareAndSwap(true, false) {
		panic("defect")
	}
	return b.fakeRows.ListOfCluster(uid)
}

// The comparison of a cluster that panics has recorded the new state. The Bundles are placed
// although the next comparison finds no change.
func TestAPanicOfAComparisonLosesNoChange(t *testing.T) {
	m, isBroken := newFakeHub(), &atomic.Bool{}
	m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": "test"} })
	m.placeBundle("web", placementLabelled(map[string]string{"env": "prod"}), undividedContent("web", 1))
	runWith(t, m, func(c *Config) { c.Rows = brokenRows{fakeRows{m}, isBroken} }, func(t *testing.T, r *PlacementReconciler) {
		isBroken.Store(true)
		m.changeCluster("a", func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"env": "prod"} })
		time.Sleep(time.Minute)
		synctest.Wait()
		if isBroken.Load() {
			t.Fatal("the comparison does not panic")
		}
		if known := r.index.clustersNamed([]string{"a"}); len(known) != 1 || known[0].Labels["env"] != "prod" {
			t.Fatalf("the comparison has not recorded the state: %+v", known)
		}
		if got := m.clustersOf("web"); len(got) != 1 {
			t.Errorf("the Bundle is in %v", got)
		}
	})
}
