package place

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

// storm is a fleet whose clusters state capacity, and Bundles of all kinds of placements,
// that are edited at random.
type storm struct {
	*memory
	rec *Reconciler
	r   *rand.Rand
	log []string
}

func (s *storm) note(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }

// restate what a cluster has capacity for, or its labels.
func (s *storm) restate() {
	name, how, n := fmt.Sprint("c", s.r.IntN(6)), s.r.IntN(5), int64(s.r.IntN(12))
	few := n/2 + 3
	s.note("cluster %s %d %d", name, how, n)
	s.cluster(name, func(c *v1alpha1.Cluster) {
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

func (s *storm) placement() (p v1alpha1.PlacementSpec) {
	switch s.r.IntN(9) {
	case 0, 1, 2:
		p = labelled(map[string]string{"x": fmt.Sprint(s.r.IntN(2))})
	case 3, 4:
		p.ClusterAffinities = []v1alpha1.ClusterAffinityTerm{
			{AffinityName: "one", ClusterAffinity: *names("c0", "c1", "c2").ClusterAffinity},
			{AffinityName: "two", ClusterAffinity: *names("c3", "c4", "c5").ClusterAffinity},
		}
	}
	if s.r.IntN(2) == 0 {
		p.MaxClusters = int32(1 + s.r.IntN(3))
	}
	switch s.r.IntN(6) {
	case 0:
		p.ReplicaScheduling = byRoom.ReplicaScheduling
	case 1:
		p.ReplicaScheduling.ReplicaDivisionPreference = v1alpha1.DivideAggregated
		fallthrough
	case 2:
		p.ReplicaScheduling.ReplicaSchedulingType = v1alpha1.Divided
	}
	return p
}

func (s *storm) content(uid string) *atoll.Content {
	b, _ := memBundles{s.memory}.Get(uid)
	c := asking(uid, s.r.IntN(7))
	c.Items[0].Divided = b.Spec.Placement.ReplicaScheduling.ReplicaSchedulingType == v1alpha1.Divided
	s.note("cut %s %s", uid, c.Items[0].Object)
	return c
}

// act once.
func (s *storm) act() {
	uid := fmt.Sprint("b", s.r.IntN(7))
	_, has := memBundles{s.memory}.Get(uid)
	loose := intstr.FromString("100%")
	switch k := s.r.IntN(8); {
	case !has:
		p := s.placement()
		s.note("place %s %s", uid, atoll.HashJSON(p))
		s.memory.bundle(uid, func(b *state.Bundle) { b.Spec.Placement, b.Spec.Removal.Budget = p, &loose })
		s.cut(uid, s.content(uid))
	case k < 3:
		s.restate()
	case k < 5:
		s.cut(uid, s.content(uid))
	case k == 5:
		s.note("rebalance %s", uid)
		s.memory.bundle(uid, asked(time.Now()))
	case k == 6:
		s.note("end %s", uid)
		s.end(uid)
	default:
		time.Sleep(time.Second)
	}
}

func (s *storm) uids() []string { return slices.Sorted(maps.Keys(s.memory.bundles)) }

func (s *storm) all() (out string) {
	for _, uid := range s.uids() {
		out += uid + ": " + s.show(uid) + "\n"
	}
	return out
}

// rest until nothing more comes of anything.
func (s *storm) rest() {
	for range 6 {
		for _, uid := range s.uids() {
			s.settle(uid)
		}
		time.Sleep(rollout.Patience)
		synctest.Wait()
	}
}

// counted: what is counted of clusters is what their rows use.
func (s *storm) counted(t *testing.T) {
	for _, c := range (memClusters{s.memory}).List() {
		v := schedule.ClusterOf(c)
		m, loaded := s.rec.usage.member(v.UID)
		if !loaded || len(v.Capacity) == 0 {
			continue
		}
		var sum schedule.Use
		for _, row := range (memRows{s.memory}).OfCluster(v.UID) {
			d, err := s.rec.demand(t.Context(), row.Spec.Revision)
			if err != nil {
				t.Fatal(err)
			}
			sum = sum.With(d.Use(row.Spec.Assigned), 1)
		}
		if err := s.rec.refresh(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.sum, sum) {
			t.Fatalf("%s is counted %v, and uses %v; %v", c.Name, m.sum, sum, s.log)
		}
	}
}

// unheard: looking at all anew changes nothing, so that nobody waits for what came.
func (s *storm) unheard(t *testing.T) {
	before := s.all()
	for _, uid := range s.uids() {
		s.rec.index.incomplete(uid)
		s.rec.index.spend(uid)
		s.rec.now(uid)
	}
	s.rest()
	if after := s.all(); after != before {
		t.Fatalf("at rest\n%sand when all is looked at anew\n%s%v", before, after, s.log)
	}
}

// foreseen: an edit of a Bundle comes to what was foreseen.
func (s *storm) foreseen(t *testing.T) {
	uids := s.uids()
	if len(uids) == 0 {
		return
	}
	uid := uids[s.r.IntN(len(uids))]
	b, _ := (memBundles{s.memory}).Get(uid)
	latest, _ := (memRevisions{s.memory}).Latest(uid)
	edit := Supposed{Bundle: b, Revision: latest.Name, Content: s.contents[latest.Name]}
	var content *atoll.Content
	switch s.r.IntN(4) {
	case 0:
		asked(time.Now())(&edit.Bundle)
	case 1:
		edit.Bundle.Spec.Placement = s.placement()
		edit.Bundle.Spec.Placement.ReplicaScheduling = b.Spec.Placement.ReplicaScheduling
	default:
		content = s.content(uid)
		n := atoll.RevisionNumber(latest.Name) + 1
		edit.Revision, edit.Content = fmt.Sprintf("%s-%d-r%d", uid, n, n), content
	}
	got, err := s.rec.Foresee(t.Context(), nil, []Supposed{edit})
	if err != nil {
		t.Fatal(err)
	}
	s.memory.bundle(uid, func(x *state.Bundle) { x.Meta, x.Spec = edit.Bundle.Meta, edit.Bundle.Spec })
	if content != nil {
		s.cut(uid, content)
	}
	s.settle(uid)
	did := map[string]atoll.RowSpec{}
	for _, row := range (memRows{s.memory}).OfBundle(uid) {
		did[row.Cluster] = row.Spec
	}
	if shown(did) != shown(got[0].After) {
		t.Fatalf("%s: before %s, foreseen %s, came about %s; %v", uid, shown(got[0].Before), shown(got[0].After), shown(did), s.log)
	}
}

// However capacity, placements, contents and rebalances come together: what is counted is
// what is used, nobody waits for what is there, and what is foreseen comes about.
func TestStorm(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := &storm{memory: newMemory(), r: rand.New(rand.NewPCG(seed, 7))}
			for i := range 6 {
				s.cluster(fmt.Sprint("c", i), nil)
			}
			for range 8 {
				s.restate()
			}
			run(t, s.memory, func(t *testing.T, r *Reconciler) {
				s.rec = r
				for range 25 {
					if s.act(); s.r.IntN(3) == 0 {
						s.rest()
						s.counted(t)
						s.unheard(t)
						s.foreseen(t)
					}
				}
			})
		})
	}
}
