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

// Failures of an application, drains, lost connections and edits in any order neither end the last healthy copy, nor run a copy twice that should
// not, nor bring one back to a cluster that is avoided.
func TestFailoversInAnyOrderLoseNoCopy(t *testing.T) {
	clusters := strings.Split("a b c d", " ")
	seed := rand.Uint64()
	for round := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, round))
		exclusive := round%2 == 1
		m := newFakeHub()
		addClusters(m, clusters...)
		w := &failoverWriter{hub: m}
		runWith(t, m, func(c *Config) { c.SetFailover = w.setFailover }, func(t *testing.T, _ *PlacementReconciler) {
			m.changeBundle("web", func(b *state.Bundle) {
				terms := failingAfter(10 + random.Int32N(300))
				terms.PurgeMode = []v1alpha1.PurgeMode{"", v1alpha1.PurgeDirectly, v1alpha1.PurgeNever}[random.IntN(3)]
				b.Spec.Placement.MaxClusters, b.Spec.Failover = 1+random.Int32N(2), &v1alpha1.Failover{Application: terms}
				if exclusive {
					b.Spec.Placement.MaxClusters, b.Spec.MoveOrder = 1, v1alpha1.MoveRecreate
				}
			})
			m.cutRevision("web", &atoll.Content{})
			m.settleRows("web")
			copies, log := copiesInMembers{}, []string{m.rowsOf("web")}
			m.updateCopies(copies)
			for range 25 {
				healthy, before, avoided := m.listHealthy(), m.rowsByCluster(), m.avoidedUntil()
				cluster := clusters[random.IntN(4)]
				log = append(log, m.failRandomly(random, cluster))
				synctest.Wait()
				m.updateCopies(copies)
				log = append(log, m.rowsOf("web"))
				stayed := slices.DeleteFunc(healthy, func(c string) bool { return !m.isOnline(c) || c == cluster })
				switch {
				case !exclusive && len(stayed) > 0 && len(m.listHealthy()) == 0:
					t.Fatalf("seed %d, round %d: no healthy copy is left: %s", seed, round, strings.Join(log, "\n"))
				case exclusive && len(copies) > 1:
					t.Fatalf("seed %d, round %d: it runs in %v: %s", seed, round, copies, strings.Join(log, "\n"))
				}
				for c, spec := range m.rowsByCluster() {
					if _, had := before[c]; !had && spec.Since < avoided[c] {
						t.Fatalf("seed %d, round %d: it comes back to %s: %s", seed, round, c, strings.Join(log, "\n"))
					}
				}
			}
			if rows := m.rowsOf("web"); rows == "" {
				t.Errorf("seed %d, round %d: it is nowhere: %s", seed, round, strings.Join(log, "\n"))
			}
		})
	}
}

// rowsByCluster returns the rows of the Bundle.
func (m *fakeHub) rowsByCluster() map[string]atoll.RowSpec {
	out := map[string]atoll.RowSpec{}
	for _, r := range (fakeRows{m}).ListOfBundle("web") {
		out[r.Cluster] = r.Spec
	}
	return out
}

// avoidedUntil returns until when clusters are avoided, in Unix seconds.
func (m *fakeHub) avoidedUntil() map[string]int64 {
	out := map[string]int64{}
	if b, _ := (fakeBundles{m}).Get("web"); b.Status.Failover != nil {
		for _, e := range b.Status.Failover.Clusters {
			if e.AvoidedUntil != nil {
				out[e.Cluster] = e.AvoidedUntil.Unix()
			}
		}
	}
	return out
}

// failRandomly changes something about the copy in a cluster, or lets time pass, and returns its name.
func (m *fakeHub) failRandomly(random *rand.Rand, cluster string) string {
	row, has := m.rowsByCluster()[cluster]
	reports := has && m.isOnline(cluster) && row.Phase != atoll.RowPending && row.Phase != atoll.RowRemoving
	switch n := random.IntN(12); {
	case n < 3 && reports:
		m.reportState("web", cluster, []atoll.RowState{atoll.RowDegraded, atoll.RowProgressing, atoll.RowFailed}[n])
		return "unhealthy in " + cluster
	case n < 5 && reports:
		m.reportState("web", cluster, atoll.RowReady)
		return "healthy in " + cluster
	case n < 5 && has && row.Phase == atoll.RowRemoving && m.isOnline(cluster):
		m.dropRow("web", cluster)
		return "removed from " + cluster
	case n < 9:
		d := time.Duration(1+random.IntN(900)) * time.Second
		time.Sleep(d)
		return "wait for " + d.String()
	case n == 9:
		m.setOnline(cluster, !m.isOnline(cluster))
		return "connect or disconnect " + cluster
	case n == 10:
		m.setTaints(cluster, []v1alpha1.Taint{drained}[:random.IntN(2)]...)
		return "drain " + cluster + " or give it back"
	}
	m.cutRevision("web", &atoll.Content{})
	return "edit the content"
}
