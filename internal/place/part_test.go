package place

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// TestStepsInPartEndWhereWholeStepsDo: whatever happens to clusters and rows, once all
// is quiet a step over the whole fleet has nothing to add to what the Reconciler did,
// most of it by steps over the clusters that were touched.
func TestStepsInPartEndWhereWholeStepsDo(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		m := newMemory()
		join := func(i int) {
			name := fmt.Sprintf("c%02d", i)
			if _, there := m.clusters[name]; there {
				return
			}
			m.cluster(name, func(c *v1alpha1.Cluster) {
				c.UID = types.UID("uid-" + name)
				c.Labels = map[string]string{"env": fmt.Sprint(rnd.IntN(2)), "country": fmt.Sprint(rnd.IntN(3))}
			})
		}
		for i := range 20 {
			join(i)
		}
		run(t, m, func(t *testing.T, r *Reconciler) {
			m.bundle("all", nil)
			m.bundle("keep", func(b *state.Bundle) { b.Spec.Placement = labelled(map[string]string{"env": "1"}) })
			m.bundle("remove", func(b *state.Bundle) {
				b.Spec.Placement, b.Spec.WhenUnfit = labelled(map[string]string{"env": "1"}), v1alpha1.UnfitRemove
			})
			m.bundle("named", func(b *state.Bundle) { b.Spec.Placement = names("c01", "c02", "c03", "c33") })
			uids := []string{"all", "keep", "remove", "named"}
			for _, uid := range uids {
				m.cut(uid, regional(1))
			}
			for range 60 {
				for range 1 + rnd.IntN(4) {
					happen(m, rnd, join, uids)
				}
				time.Sleep(2 * time.Second)
				for _, uid := range uids {
					m.settle(uid)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				for _, uid := range uids {
					p, err := r.Preview(t.Context(), m.bundles[uid])
					if err != nil {
						t.Fatal(err)
					}
					if len(p.Output.Changes) > 0 {
						t.Fatalf("seed %d, bundle %s: a whole step would still change %+v of\n%s", seed, uid, p.Output.Changes, m.show(uid))
					}
				}
			}
		})
	}
}

// happen something to a cluster or a row.
func happen(m *memory, rnd *rand.Rand, join func(int), uids []string) {
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
		m.cluster(name, func(c *v1alpha1.Cluster) {
			c.Labels = map[string]string{"env": fmt.Sprint(rnd.IntN(2)), "country": fmt.Sprint(rnd.IntN(3)), "group": fmt.Sprint("g", rnd.IntN(5))}
		})
	case 4:
		m.cluster(name, func(c *v1alpha1.Cluster) { c.Spec.Accepted = !c.Spec.Accepted })
	case 5:
		m.cluster(name, func(c *v1alpha1.Cluster) {
			if c.Spec.Taints = nil; rnd.IntN(2) == 0 {
				c.Spec.Taints = []v1alpha1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			}
		})
	case 6:
		// It is made anew under its name, as another cluster.
		m.cluster(name, func(c *v1alpha1.Cluster) { c.UID = types.UID(fmt.Sprint("uid-", name, "-", rnd.IntN(1000))) })
		m.setOnline(name, true)
	case 7:
		uid := uids[rnd.IntN(len(uids))]
		if row, ok := (memRows{m}).Get(uid, name); ok {
			m.report(uid, row.Cluster, atoll.RowDegraded)
		}
	case 8:
		m.cut(uids[rnd.IntN(len(uids))], regional(1))
	}
}
