package placer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// copiesInMembers is what the members of a fleet run of a Bundle: they start what is ordered while they are connected.
type copiesInMembers map[string]bool

func (m *fakeHub) updateCopies(c copiesInMembers) {
	there := map[string]bool{}
	for _, r := range (fakeRows{m}).ListOfBundle("web") {
		there[r.Cluster] = true
		if m.isOnline(r.Cluster) && r.Spec.Phase != atoll.RowPending && r.Spec.Phase != atoll.RowRemoving {
			c[r.Cluster] = true
		}
	}
	for cluster := range c {
		if !there[cluster] {
			delete(c, cluster)
		}
	}
}

func (m *fakeHub) isOnline(name string) bool { return (fakeClusters{m}).IsOnline("uid-" + name) }

// listHealthy lists the connected clusters that report a healthy copy.
func (m *fakeHub) listHealthy() (names []string) {
	for _, r := range (fakeRows{m}).ListOfBundle("web") {
		if m.isOnline(r.Cluster) && r.Spec.Phase != atoll.RowRemoving && r.Status != nil && r.Status.State == atoll.RowReady {
			names = append(names, r.Cluster)
		}
	}
	return names
}

// Drains, their ends, lost connections, and taints of the hub in any order neither end the last healthy copy, nor run a copy twice
// that should not.
func TestDrainsInAnyOrderLoseNoCopy(t *testing.T) {
	clusters := strings.Split("a b c d", " ")
	seed := rand.Uint64()
	for round := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, round))
		exclusive, content := round%2 == 1, &atoll.Content{}
		m := newFakeHub()
		addClusters(m, clusters...)
		runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
			m.changeBundle("web", func(b *state.Bundle) {
				b.Spec.Placement.MaxClusters = 1
				if exclusive {
					b.Spec.MoveOrder = v1alpha1.MoveRecreate
				} else if random.IntN(3) == 0 {
					b.Spec.Placement.MaxClusters = 0
				} else if random.IntN(2) == 0 {
					b.Spec.Placement.MaxClusters, content = random.Int32N(3), contentAsking("web", 6)
					b.Spec.Placement.ReplicaScheduling = dividedPlacement.ReplicaScheduling
				}
			})
			m.cutRevision("web", content)
			m.settleRows("web")
			copies, log := copiesInMembers{}, []string{m.rowsOf("web")}
			m.updateCopies(copies)
			for range 12 {
				healthy := m.listHealthy()
				log = append(log, m.disturbFleet(random, clusters[random.IntN(4)], content))
				synctest.Wait()
				m.updateCopies(copies)
				log = append(log, m.rowsOf("web"))
				stayed := slices.DeleteFunc(healthy, func(c string) bool { return !m.isOnline(c) })
				if !exclusive && len(stayed) > 0 && len(m.listHealthy()) == 0 {
					t.Fatalf("seed %d, round %d: no healthy copy is left: %s", seed, round, strings.Join(log, "\n"))
				}
				if exclusive && len(copies) > 1 {
					t.Fatalf("seed %d, round %d: it runs in %v: %s", seed, round, copies, strings.Join(log, "\n"))
				}
				if random.IntN(2) == 0 {
					m.settleRows("web")
					m.updateCopies(copies)
					log = append(log, "settled: "+m.rowsOf("web"))
					if n, stays := m.countActiveReplicas(); len(content.Items) > 0 && stays > 0 && n < 6 {
						t.Errorf("seed %d, round %d: %d replicas: %s", seed, round, n, strings.Join(log, "\n"))
					}
				}
			}
		})
	}
}

const rounds = 40

// disturbFleet changes something about a cluster, and names it.
func (m *fakeHub) disturbFleet(random *rand.Rand, cluster string, content *atoll.Content) string {
	switch random.IntN(11) {
	case 0, 1:
		m.setTaints(cluster, drained)
		return "drain " + cluster
	case 2:
		m.setTaints(cluster, drainedOfAll)
		return "drain all of " + cluster
	case 3:
		m.setTaints(cluster)
		return "give back " + cluster
	case 4:
		m.setOnline(cluster, false)
		return "disconnect " + cluster
	case 5:
		m.setOnline(cluster, true)
		return "connect " + cluster
	case 6:
		m.cutRevision("web", content)
		return "edit the content"
	case 7:
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.Placement.ClusterAffinity = &v1alpha1.ClusterAffinity{ExcludeClusters: []string{cluster}}
		})
		return "exclude " + cluster
	case 8:
		time.Sleep(time.Hour)
		return "wait"
	case 9:
		m.changeCluster(cluster, func(c *v1alpha1.Cluster) {
			if c.Spec.Removal = nil; random.IntN(2) == 0 {
				c.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}
			}
		})
		return "remove " + cluster + " or take that back"
	default:
		lost := drained
		lost.Key = v1alpha1.TaintUnreachable
		m.setOnline(cluster, false)
		m.setTaints(cluster, lost, drained)
		return "lose and drain " + cluster
	}
}

// countActiveReplicas returns the replicas of the rows that are not removed.
func (m *fakeHub) countActiveReplicas() (n, rows int64) {
	for _, r := range (fakeRows{m}).ListOfBundle("web") {
		if r.Spec.Phase != atoll.RowRemoving && r.Spec.Phase != atoll.RowPending {
			rows++
			for _, share := range r.Spec.Assigned {
				n += share
			}
		}
	}
	return n, rows
}
