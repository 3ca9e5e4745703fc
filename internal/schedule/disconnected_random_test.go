package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/freecapacity"
)

// connectionWorld is a random fleet with a Bundle, whose decisions are carried out at once.
type connectionWorld struct {
	text      string
	placement v1alpha1.PlacementSpec
	clusters  []Cluster
	down      map[string]bool
	places    map[string]int64
	rows      map[string]atoll.RowSpec
	workloads []Workload
	overrides map[string]map[string]int64
	age       int64
	uid       string
	failed    map[string]FailedCluster
	// last decision, and age, which counts the steps.
	last Decision
}

func (w *connectionWorld) countAssigned(cluster string) (n int64) {
	for _, v := range w.rows[cluster].Assigned {
		n += v
	}
	return n
}

func (w *connectionWorld) freeCapacityOf(cluster string) (freecapacity.NodeClasses, bool) {
	n, known := w.places[cluster]
	return freecapacity.NodeClasses{{Nodes: max(n-w.countAssigned(cluster), 0), Pods: 1}}, known
}

func (w *connectionWorld) decideOnce() (Decision, ReplicaAssignment) {
	in := Input{
		BundleUID: w.uid, Placement: w.placement, Clusters: w.clusters, Rows: maps.Clone(w.rows), Now: now, FailedClusters: w.failed, UseFreeCapacity: true, AvoidDisconnected: true, Workloads: w.workloads, OverriddenShares: w.overrides,
		Facts: fakeFacts{
			connected: func(c *Cluster) bool { return !w.down[c.Name] },
			replicas: func(c *Cluster) (int64, bool) {
				room, known := w.freeCapacityOf(c.Name)
				return CountFittingWorkloads(room, w.workloads, w.rows[c.Name].Assigned), known
			},
		},
	}
	d := DecidePlacement(in).WithFreeCapacity(w.freeCapacityOf)
	return d, d.AssignReplicas(nil)
}

func (w *connectionWorld) applyStep() string {
	d, a := w.decideOnce()
	w.last = d
	rows := map[string]atoll.RowSpec{}
	w.age++
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.IsHolder() {
			s := a.ShareOf(v.Cluster)
			rows[v.Cluster] = atoll.RowSpec{UID: v.UID, Since: cmp.Or(w.rows[v.Cluster].Since, w.age), Phase: atoll.RowActive, PlacementFingerprint: v.PlacementFingerprint, Assigned: s.AssignedReplicas(), HomeItems: s.Home, OrdinalStarts: s.OrdinalStarts()}
		}
	}
	w.rows = rows
	return w.String()
}

func (w *connectionWorld) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.rows)) {
		r := w.rows[name]
		out = append(out, fmt.Sprintf("%s=%v%v%v", name, r.Assigned, r.HomeItems, r.OrdinalStarts))
	}
	return strings.Join(out, " ")
}

func (w *connectionWorld) describe() string {
	var down []string
	for _, c := range w.clusters {
		if w.down[c.Name] {
			down = append(down, c.Name)
		}
	}
	return fmt.Sprintf("%s uid %s down %v places %v workloads %v overrides %v", w.text, w.uid, down, w.places, w.workloads, w.overrides)
}

func randomConnectionWorld(t *testing.T, r *rand.Rand) *connectionWorld {
	w := &connectionWorld{down: map[string]bool{}, places: map[string]int64{}, rows: map[string]atoll.RowSpec{}, uid: fmt.Sprint("b", r.IntN(1000))}
	for i := range 3 + r.IntN(4) {
		name := string(rune('a' + i))
		w.clusters = append(w.clusters, newCluster(name, withLabel("at", []string{"own", "near", "far"}[r.IntN(3)]), locatedIn([]string{"eu", "us", ""}[r.IntN(3)], "", "")))
		if r.IntN(4) > 0 {
			w.places[name] = int64(r.IntN(12))
		}
	}
	var parts []string
	if r.IntN(2) == 0 {
		parts = append(parts, fmt.Sprintf("maxClusters: %d", 1+r.IntN(4)))
	}
	if r.IntN(3) == 0 {
		parts = append(parts, fmt.Sprintf("spreadConstraints: [{spreadByField: region, minGroups: %d}]", 1+r.IntN(2)))
	}
	if r.IntN(3) == 0 {
		parts = append(parts, ownAndNear)
	}
	if r.IntN(5) > 0 {
		s := "replicaSchedulingType: Divided"
		switch r.IntN(4) {
		case 0:
			s = aggregated
		case 1:
			s += ", replicaDivisionPreference: Weighted, weightPreference: {dynamicWeight: AvailableReplicas}"
		case 2:
			s += ", replicaDivisionPreference: Weighted, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 3}, {targetCluster: {clusterNames: [b]}, weight: 1, maxReplicas: 5}, {targetCluster: {clusterNames: [c]}, weight: 2, minReplicas: 2}]}"
		}
		if r.IntN(4) == 0 {
			s += ", onShortage: PlaceNothing"
		}
		if r.IntN(4) == 0 {
			s += ", overflow: Allow"
		}
		if r.IntN(4) == 0 {
			s += ", ordinals: {size: 5}"
		}
		parts = append(parts, "replicaScheduling: {"+s+"}")
		w.workloads = []Workload{{Key: web.Key, Replicas: int64(r.IntN(15))}}
		if r.IntN(2) == 0 {
			key := web.Key
			key.Kind = "StatefulSet"
			w.workloads = append(w.workloads, Workload{Key: key, Replicas: int64(r.IntN(8))})
		}
		if r.IntN(5) == 0 {
			w.overrides = map[string]map[string]int64{"a": {web.Key.String(): int64(r.IntN(4))}}
		}
	}
	w.text = "{" + strings.Join(parts, ", ") + "}"
	w.placement = parsePlacement(t, w.text)
	w.changeConnections(r)
	return w
}

func (w *connectionWorld) changeConnections(r *rand.Rand) {
	for _, c := range w.clusters {
		w.down[c.Name] = r.IntN(3) == 0
	}
}

// TestConnectionProperties checks random fleets with random connections: decisions come to rest, a Bundle
// that fits is placed, a connection that changes the decision is waited for, and a loss takes nothing.
func TestConnectionProperties(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomConnectionWorld(t, r)
		for round := range 3 {
			for _, failure := range []string{w.findUnrest(), w.findBlock(), w.findUnawaited(), w.findLoss()} {
				if failure != "" {
					t.Fatalf("seed %d, %s: %s", seed, w.describe(), failure)
				}
			}
			w.changeConnections(r)
			if round > 0 && len(w.workloads) > 0 {
				w.workloads = slices.Clone(w.workloads)
				w.workloads[0].Replicas += r.Int64N(10)
			}
		}
	}
}

// withConnection returns the world in which one connection is another.
func (w *connectionWorld) withConnection(cluster string, down bool) *connectionWorld {
	c := *w
	c.down = maps.Clone(w.down)
	c.down[cluster] = down
	return &c
}

// findUnrest carries out decisions until they change nothing.
func (w *connectionWorld) findUnrest() string {
	was := w.String()
	for range 6 {
		is := w.applyStep()
		if is == was {
			return ""
		}
		was = is
	}
	return "no rest at " + was
}

// findBlock reports a new Bundle that only connections keep out of all clusters.
func (w *connectionWorld) findBlock() string {
	if !w.last.NoFit || len(w.rows) > 0 {
		return ""
	}
	all := *w
	all.down = map[string]bool{}
	if d, _ := all.decideOnce(); !d.NoFit {
		return "it is in no cluster: " + w.last.UnmetSpread
	}
	return ""
}

// findUnawaited reports a connection that changes the decision, and that nothing waits for.
func (w *connectionWorld) findUnawaited() string {
	if w.last.AwaitsConnection || w.last.Overflows || w.last.AwaitsFailback {
		return ""
	}
	was := w.String()
	for _, c := range w.clusters {
		if !w.down[c.Name] || slices.Contains(w.last.DisconnectedHolders, c.Name) {
			continue
		}
		if is := w.withConnection(c.Name, false).applyStep(); is != was {
			return fmt.Sprintf("%s connects: %s becomes %s", c.Name, was, is)
		}
	}
	return ""
}

// findLoss reports a lost connection that takes a row, a replica or a home.
func (w *connectionWorld) findLoss() string {
	for _, c := range w.clusters {
		if w.down[c.Name] {
			continue
		}
		after := w.withConnection(c.Name, true)
		after.applyStep()
		for name, row := range w.rows {
			is, stays := after.rows[name]
			lost := !stays || len(row.HomeItems) > 0 && !slices.Equal(is.HomeItems, row.HomeItems)
			for item, n := range row.Assigned {
				lost = lost || is.Assigned[item] < n
			}
			if lost {
				return fmt.Sprintf("%s is lost: %s becomes %s", c.Name, w, after)
			}
		}
	}
	return ""
}
