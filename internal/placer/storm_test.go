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
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/rollout"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// stormWalk is a fleet whose clusters state capacity, and Bundles of all kinds of placements,
// that are edited at random.
type stormWalk struct {
	*fakeHub
	reconciler *PlacementReconciler
	random     *rand.Rand
	history    []string
}

func (s *stormWalk) logEvent(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf(format, args...))
}

// restartReconciler what a cluster has capacity for, or its labels.
func (s *stormWalk) restartReconciler() {
	name, how, n := fmt.Sprint("c", s.random.IntN(6)), s.random.IntN(5), int64(s.random.IntN(12))
	few := n/2 + 3
	s.logEvent("cluster %s %d %d", name, how, n)
	s.changeCluster(name, func(c *v1alpha1.Cluster) {
		switch how {
		case 0:
			c.Spec.Capacity = nil
		case 1:
			c.Spec.Capacity = &v1alpha1.ClusterCapacity{Replicas: &n}
		case 2:
			c.Spec.Capacity = &v1alpha1.ClusterCapacity{Objects: &n}
		case 3:
			c.Spec.Capacity = &v1alpha1.ClusterCapacity{Objects: &few, Resources: corev1.ResourceList{"cpu": *resource.NewQuantity(n, resource.DecimalSI)}}
		case 4:
			c.Labels = map[string]string{"x": fmt.Sprint(n % 2)}
		}
	})
}

func (s *stormWalk) randomPlacement() (p v1alpha1.PlacementSpec) {
	switch s.random.IntN(9) {
	case 0, 1, 2:
		p = placementLabelled(map[string]string{"x": fmt.Sprint(s.random.IntN(2))})
	case 3, 4:
		p.ClusterAffinities = []v1alpha1.ClusterAffinityTerm{
			{AffinityName: "one", ClusterAffinity: *placementNamed("c0", "c1", "c2").ClusterAffinity},
			{AffinityName: "two", ClusterAffinity: *placementNamed("c3", "c4", "c5").ClusterAffinity},
		}
	}
	if s.random.IntN(2) == 0 {
		p.MaxClusters = int32(1 + s.random.IntN(3))
	}
	switch s.random.IntN(6) {
	case 0:
		p.ReplicaScheduling = byFreeCapacity.ReplicaScheduling
	case 1:
		p.ReplicaScheduling.ReplicaDivisionPreference = v1alpha1.DivideAggregated
		fallthrough
	case 2:
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	}
	return p
}

func (s *stormWalk) randomContent(uid string) *atoll.Content {
	b, _ := fakeBundles{s.fakeHub}.Get(uid)
	c := contentAsking(uid, s.random.IntN(7))
	c.Items[0].Divided = b.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided
	s.logEvent("cut %s %s", uid, c.Items[0].Object)
	return c
}

// applyRandomEvent once.
func (s *stormWalk) applyRandomEvent() {
	uid := fmt.Sprint("b", s.random.IntN(7))
	_, has := fakeBundles{s.fakeHub}.Get(uid)
	loose := intstr.FromString("100%")
	switch k := s.random.IntN(8); {
	case !has:
		p := s.randomPlacement()
		s.logEvent("place %s %s", uid, atoll.HashJSON(p))
		s.fakeHub.changeBundle(uid, func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = p, &loose })
		s.cutRevision(uid, s.randomContent(uid))
	case k < 3:
		s.restartReconciler()
	case k < 5:
		s.cutRevision(uid, s.randomContent(uid))
	case k == 5:
		s.logEvent("rebalance %s", uid)
		s.fakeHub.changeBundle(uid, rebalanceAskedAt(time.Now()))
	case k == 6:
		s.logEvent("end %s", uid)
		s.deleteBundle(uid)
	default:
		time.Sleep(time.Second)
	}
}

func (s *stormWalk) bundleUIDs() []string { return slices.Sorted(maps.Keys(s.fakeHub.bundles)) }

func (s *stormWalk) allRowsText() (out string) {
	for _, uid := range s.bundleUIDs() {
		out += uid + ": " + s.rowsOf(uid) + "\n"
	}
	return out
}

// settleAll until nothing more comes of anything.
func (s *stormWalk) settleAll() {
	for range 6 {
		for _, uid := range s.bundleUIDs() {
			s.settleRows(uid)
		}
		time.Sleep(rollout.ReadinessTimeout)
		synctest.Wait()
	}
}

// checkCounts: what is counted of clusters is what their rows use.
func (s *stormWalk) checkCounts(t *testing.T) {
	for _, c := range (fakeClusters{s.fakeHub}).List() {
		v := schedule.ClusterOf(c)
		m, loaded := s.reconciler.usage.findMember(v.UID)
		if !loaded || len(v.Capacity) == 0 {
			continue
		}
		var sum schedule.ResourceUsage
		for _, row := range (fakeRows{s.fakeHub}).ListOfCluster(v.UID) {
			d, err := s.reconciler.demandOf(t.Context(), row.Spec.Revision)
			if err != nil {
				t.Fatal(err)
			}
			sum = sum.AddTimes(d.UsageFor(row.Spec.Assigned), 1)
		}
		if err := s.reconciler.refreshUsage(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.total, sum) {
			t.Fatalf("%s is counted %v, and uses %v; %v", c.Name, m.total, sum, s.history)
		}
	}
}

// checkMissedEvents: a recheck of everything changes nothing, so that no change was missed.
func (s *stormWalk) checkMissedEvents(t *testing.T) {
	before := s.allRowsText()
	for _, uid := range s.bundleUIDs() {
		s.reconciler.index.requireWholeFleet(uid)
		s.reconciler.index.dropReserveClusters(uid)
		s.reconciler.enqueueAllRows(uid)
	}
	s.settleAll()
	if after := s.allRowsText(); after != before {
		t.Fatalf("at rest\n%sand after a recheck of everything\n%s%v", before, after, s.history)
	}
}

// checkPreview: an edit of a Bundle comes to what was foreseen.
func (s *stormWalk) checkPreview(t *testing.T) {
	uids := s.bundleUIDs()
	if len(uids) == 0 {
		return
	}
	uid := uids[s.random.IntN(len(uids))]
	b, _ := (fakeBundles{s.fakeHub}).Get(uid)
	latest, _ := (fakeRevisions{s.fakeHub}).LatestOfBundle(uid)
	edit := SupposedBundle{Bundle: b, Revision: latest.Name, Content: s.contents[latest.Name]}
	var content *atoll.Content
	switch s.random.IntN(4) {
	case 0:
		rebalanceAskedAt(time.Now())(&edit.Bundle)
	case 1:
		edit.Bundle.Spec.Placement = s.randomPlacement()
		edit.Bundle.Spec.Placement.ReplicaScheduling = b.Spec.Placement.ReplicaScheduling
	default:
		content = s.randomContent(uid)
		n := atoll.RevisionNumber(latest.Name) + 1
		edit.Revision, edit.Content = fmt.Sprintf("%s-%d-r%d", uid, n, n), content
	}
	got, err := s.reconciler.PreviewBundles(t.Context(), nil, []SupposedBundle{edit})
	if err != nil {
		t.Fatal(err)
	}
	s.fakeHub.changeBundle(uid, func(x *state.Bundle) { x.Meta, x.Spec = edit.Bundle.Meta, edit.Bundle.Spec })
	if content != nil {
		s.cutRevision(uid, content)
	}
	s.settleRows(uid)
	did := map[string]atoll.RowSpec{}
	for _, row := range (fakeRows{s.fakeHub}).ListOfBundle(uid) {
		did[row.Cluster] = row.Spec
	}
	if rowsText(did) != rowsText(got[0].After) {
		t.Fatalf("%s: before %s, foreseen %s, came about %s; %v", uid, rowsText(got[0].Before), rowsText(got[0].After), rowsText(did), s.history)
	}
}

// Capacity, placements, contents and rebalances change together. Counted usage equals real
// usage, no Bundle waits for available capacity, and previews come true.
func TestStorm(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &stormWalk{fakeHub: newFakeHub(), random: rand.New(rand.NewPCG(seed, 7))}
			for i := range 6 {
				s.changeCluster(fmt.Sprint("c", i), nil)
			}
			for range 8 {
				s.restartReconciler()
			}
			runReconciler(t, s.fakeHub, func(t *testing.T, r *PlacementReconciler) {
				s.reconciler = r
				for range 25 {
					if s.applyRandomEvent(); s.random.IntN(3) == 0 {
						s.settleAll()
						s.checkCounts(t)
						s.checkMissedEvents(t)
						s.checkPreview(t)
					}
				}
			})
		})
	}
}
