package placer

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
	"k8s.io/apimachinery/pkg/types"
)

// copyWatch checks each write: a copy that starts makes no more copies than the placement selects.
type copyWatch struct {
	fakeRows
	wanted func(after map[string]state.Row) int
	onErr  func(string)
	trace  func(format string, args ...any)
	stated bool
}

func mayRunCopy(r state.Row) bool {
	switch r.Spec.Phase {
	case atoll.RowPending, atoll.RowVacant:
		return false
	case atoll.RowRemoving:
		return r.Status == nil || r.Status.Generation != r.Spec.Generation || r.Status.State != atoll.RowRemoved
	}
	return true
}

func (w copyWatch) WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error {
	before := map[string]state.Row{}
	w.mu.Lock()
	for c, r := range w.rows[ref.UID] {
		before[c] = r
	}
	w.mu.Unlock()
	if err := w.fakeRows.WriteSpecs(ctx, ref, base, changes); err != nil {
		return err
	}
	started, running, after := []string(nil), 0, map[string]state.Row{}
	w.mu.Lock()
	for c, r := range w.rows[ref.UID] {
		after[c] = r
		if r.Spec.Phase == atoll.RowActive && !w.online[r.Spec.UID] && !w.stated {
			running++ // it counts, wherever it is
		}
		if mayRunCopy(r) {
			if cl := w.clusters[c]; cl != nil && string(cl.UID) == r.Spec.UID && (w.stated || w.online[r.Spec.UID]) {
				running++
			}
			if was, had := before[c]; !had || !mayRunCopy(was) || was.Spec.UID != r.Spec.UID {
				started = append(started, c)
			}
		}
	}
	w.mu.Unlock()
	w.trace("   write: %s", w.rowsOf(ref.UID))
	if n := w.wanted(after); len(started) > 0 && running > n {
		w.onErr(fmt.Sprintf("%v start, %d copies may run, %d are wanted: %s", started, running, n, w.rowsOf(ref.UID)))
	}
	return nil
}

// moveWalk is one random walk of users, agents and links over a Bundle that moves. The fake hub's mu guards what
// countWanted reads.
type moveWalk struct {
	*fakeHub
	t       *testing.T
	rnd     *rand.Rand
	seed    int64
	mode    string // how the placement chooses: label, max, group, named
	order   v1alpha1.MoveOrder
	names   []string
	label   map[string]string
	tainted map[string]bool
	joins   map[string]int // how often each cluster joined again
	max     int            // clusters of mode max
	named   int            // clusters of mode named
	trace   []string
	failed  bool
}

func walkMoves(t *testing.T, seed int64, mode string, order v1alpha1.MoveOrder) {
	w := &moveWalk{fakeHub: newFakeHub(), t: t, rnd: rand.New(rand.NewSource(seed)), seed: seed, mode: mode, order: order,
		names: []string{"a", "b", "c", "d", "e"}, label: map[string]string{}, tainted: map[string]bool{}, joins: map[string]int{}}
	for i, c := range w.names {
		w.setLabel(c, map[bool]string{true: "yes", false: "no"}[i < 2])
	}
	check := func(c *Config) {
		c.RowWriter = copyWatch{fakeRows{w.fakeHub}, w.countWanted, w.failWalk, w.addTrace, order != ""}
	}
	runWith(t, w.fakeHub, check, func(t *testing.T, r *PlacementReconciler) {
		w.changeBundle("web", func(b *state.Bundle) {
			b.Spec.WhenUnfit, b.Spec.MoveOrder = v1alpha1.UnfitRemove, order
			b.Spec.Placement = w.firstPlacement()
		})
		w.cutRevision("web", statefulSetContent())
		w.settleRows("web")
		for step := 0; step < 60 && !w.failed; step++ {
			w.takeStep()
			synctest.Wait() // a write is checked against what the placement selects now
		}
		w.checkEnd()
	})
}

func (w *moveWalk) addTrace(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *moveWalk) failWalk(reason string) {
	if !w.failed {
		w.failed = true
		w.t.Errorf("seed %d mode %s: %s\n%s", w.seed, w.mode, reason, strings.Join(w.trace, "\n"))
	}
}

func (w *moveWalk) firstPlacement() v1alpha1.PlacementSpec {
	switch w.mode {
	case "max":
		if w.max = 1; w.order != "" {
			w.max += w.rnd.Intn(2)
		}
		return atMostClusters(int32(w.max))
	case "group":
		return ownThenCloudPlacement(time.Minute)
	case "named":
		w.named = 1
		return placementNamed("a")
	}
	return placementLabelled(map[string]string{"db": "yes"})
}

// countWanted returns how many copies may run with the given rows.
func (w *moveWalk) countWanted(after map[string]state.Row) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.mode {
	case "max":
		if w.max > 0 {
			return w.max
		}
		return len(w.names)
	case "group":
		return 1
	case "named":
		return w.named
	}
	n := 0
	for c, r := range after {
		fits := w.label[c] == "yes" && !w.tainted[c]
		kept := !fits && (r.Spec.Phase == atoll.RowActive || r.Spec.Phase == atoll.RowPending)
		if fits || kept {
			n++
		}
	}
	return n
}

// currentUID returns the UID of the Cluster object that has the name now.
func (w *moveWalk) currentUID(c string) string {
	if w.joins[c] == 0 {
		return "uid-" + c
	}
	return fmt.Sprintf("uid-%s-%d", c, w.joins[c])
}

func (w *moveWalk) setConnected(c string, on bool) {
	w.setOnline(strings.TrimPrefix(w.currentUID(c), "uid-"), on)
	w.changeCluster(c, nil)
}

func (w *moveWalk) setLabel(c, value string) {
	w.mu.Lock()
	w.label[c] = value
	w.mu.Unlock()
	w.changeCluster(c, func(x *v1alpha1.Cluster) { x.Labels = map[string]string{"db": value} })
}

func (w *moveWalk) setTaint(c string, on bool) {
	w.mu.Lock()
	w.tainted[c] = on
	w.mu.Unlock()
	w.changeCluster(c, func(x *v1alpha1.Cluster) {
		x.Spec.Taints = nil
		if on {
			x.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
		}
	})
}

func (w *moveWalk) takeStep() {
	c := w.names[w.rnd.Intn(len(w.names))]
	switch w.rnd.Intn(10) {
	case 0, 1:
		w.addTrace("label %s, was %s", c, w.label[c])
		w.setLabel(c, map[string]string{"yes": "no", "no": "yes"}[w.label[c]])
	case 2, 3:
		on := !(fakeClusters{w.fakeHub}).IsOnline(w.currentUID(c))
		w.addTrace("online %s=%v", c, on)
		w.setConnected(c, on)
	case 4:
		w.addTrace("taint %s, was %v", c, w.tainted[c])
		w.setTaint(c, !w.tainted[c])
	case 5:
		w.editBundle(c)
	case 6, 7:
		w.reportRow()
	case 8:
		d := time.Duration(w.rnd.Intn(900)) * time.Second
		w.addTrace("sleep %s", d)
		time.Sleep(d)
	case 9:
		if w.rnd.Intn(6) == 0 {
			w.rejoinCluster(c)
			return
		}
		w.addTrace("settle")
		w.settleRows("web")
	}
}

// editBundle gives the Bundle a new revision, other named clusters, or a rebalance.
func (w *moveWalk) editBundle(c string) {
	switch {
	case w.rnd.Intn(3) == 0:
		w.addTrace("revision")
		w.cutRevision("web", statefulSetContent())
	case w.mode == "named":
		n := []string{c, w.names[w.rnd.Intn(len(w.names))]}
		if n[0] == n[1] || w.order == "" || w.rnd.Intn(2) == 0 {
			n = n[:1]
		}
		w.mu.Lock()
		w.named = len(n)
		w.mu.Unlock()
		w.addTrace("named %v", n)
		w.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed(n...) })
	case w.mode == "max" && w.rnd.Intn(3) == 0:
		w.addTrace("rebalance")
		w.changeBundle("web", rebalanceAskedAt(time.Now()))
	}
}

// reportRow reports success for a random row, and drops a row that reported its removal half of the time.
func (w *moveWalk) reportRow() {
	rows := (fakeRows{w.fakeHub}).ListOfBundle("web")
	if len(rows) == 0 {
		return
	}
	row := rows[w.rnd.Intn(len(rows))]
	if !(fakeClusters{w.fakeHub}).IsOnline(row.Spec.UID) || row.Spec.Phase == atoll.RowPending {
		return
	}
	reported := atoll.RowReady
	if row.Spec.Phase == atoll.RowRemoving {
		reported = atoll.RowRemoved
	}
	w.addTrace("report %s %s", row.Cluster, reported)
	w.reportState("web", row.Cluster, reported)
	if reported != atoll.RowRemoved || w.rnd.Intn(2) == 1 {
		return
	}
	synctest.Wait()
	now, ok := (fakeRows{w.fakeHub}).Get("web", row.Cluster)
	if ok && now.Spec.Phase == atoll.RowRemoving && now.Spec.Generation == row.Spec.Generation {
		w.dropRow("web", row.Cluster)
	}
}

// rejoinCluster gives the Cluster another UID. Half of the time the deletion is seen before.
func (w *moveWalk) rejoinCluster(c string) {
	w.addTrace("rejoin %s", c)
	if w.rnd.Intn(2) == 0 {
		w.deleteCluster(c)
		synctest.Wait()
	}
	w.joins[c]++
	uid := w.currentUID(c)
	w.mu.Lock()
	w.tainted[c] = false
	w.online[uid] = true
	w.mu.Unlock()
	w.changeCluster(c, func(x *v1alpha1.Cluster) {
		x.UID, x.Labels = types.UID(uid), map[string]string{"db": w.label[c]}
		x.Spec.Taints = nil
	})
}

// checkEnd connects all clusters, lets all fit, and checks that all rows become Active and that writes end.
func (w *moveWalk) checkEnd() {
	w.addTrace("END: all online, all fit")
	for _, c := range w.names {
		w.setConnected(c, true)
		w.setTaint(c, false)
		w.setLabel(c, "yes")
	}
	for range 8 {
		w.settleRows("web")
		time.Sleep(3 * time.Minute)
	}
	w.settleRows("web")
	for _, row := range (fakeRows{w.fakeHub}).ListOfBundle("web") {
		if row.Spec.Phase != atoll.RowActive {
			w.failWalk("at the end " + w.rowsOf("web") + " " + row.Spec.Reason)
		}
	}
	writes, _ := w.countsAfterWait()
	for range 6 {
		time.Sleep(30 * time.Minute)
		w.settleRows("web")
	}
	if now, _ := w.countsAfterWait(); now > writes+1 {
		w.failWalk(fmt.Sprintf("%d writes in a quiet day", now-writes))
	}
}

// TestRandomMovesRunNoSecondCopy checks random acts of users, agents and links: no write starts more copies than are
// wanted, all rows end Active, and nothing is written in quiet times.
func TestRandomMovesRunNoSecondCopy(t *testing.T) {
	for _, c := range []string{"label Recreate", "max Recreate", "group Recreate", "named Recreate", "max", "group", "named"} {
		mode, is, _ := strings.Cut(c, " ")
		order := v1alpha1.MoveOrder(is)
		t.Run(c, func(t *testing.T) {
			for seed := int64(0); seed < 8; seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) { walkMoves(t, seed, mode, order) })
				if t.Failed() {
					return
				}
			}
		})
	}
}
