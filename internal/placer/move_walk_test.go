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

// copyWatch checks each write: a copy that starts makes no more copies than the placement wants.
type copyWatch struct {
	fakeRows
	wanted func(after map[string]state.Row) int
	onErr  func(string)
	trace  *[]string
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
	*w.trace = append(*w.trace, "   write: "+w.rowsOf(ref.UID))
	if n := w.wanted(after); len(started) > 0 && running > n {
		w.onErr(fmt.Sprintf("%v start, %d copies may run, %d are wanted: %s", started, running, n, w.rowsOf(ref.UID)))
	}
	return nil
}

func walkMoves(t *testing.T, seed int64, mode string, order v1alpha1.MoveOrder) {
	m := newFakeHub()
	rnd := rand.New(rand.NewSource(seed))
	names := []string{"a", "b", "c", "d", "e"}
	label := map[string]string{}
	for i, c := range names {
		v := "no"
		if i < 2 {
			v = "yes"
		}
		label[c] = v
		m.changeCluster(c, func(c *v1alpha1.Cluster) { c.Labels = map[string]string{"db": v} })
	}
	tainted, gen := map[string]bool{}, map[string]int{}
	uidOf := func(c string) string {
		if gen[c] == 0 {
			return "uid-" + c
		}
		return fmt.Sprintf("uid-%s-%d", c, gen[c])
	}
	setOnline := func(c string, on bool) {
		m.setOnline(strings.TrimPrefix(uidOf(c), "uid-"), on)
		m.changeCluster(c, nil)
	}
	var trace []string
	failed := false
	fail := func(s string) {
		if !failed {
			failed = true
			t.Errorf("seed %d mode %s: %s\n%s", seed, mode, s, strings.Join(trace, "\n"))
		}
	}
	max := 0
	named := 0
	wanted := func(after map[string]state.Row) int {
		switch mode {
		case "max":
			if max > 0 {
				return max
			}
			return len(names)
		case "group":
			return 1
		case "named":
			return named
		}
		n := 0
		for c := range after {
			if label[c] == "yes" && !tainted[c] {
				n++
			}
		}
		for c, r := range after { // kept rows
			if (label[c] != "yes" || tainted[c]) && (r.Spec.Phase == atoll.RowActive || r.Spec.Phase == atoll.RowPending) {
				n++
			}
		}
		return n
	}
	runWith(t, m, func(c *Config) { c.RowWriter = copyWatch{fakeRows{m}, wanted, fail, &trace, order != ""} }, func(t *testing.T, r *PlacementReconciler) {
		m.changeBundle("web", func(b *state.Bundle) {
			b.Spec.WhenUnfit, b.Spec.MoveOrder = v1alpha1.UnfitRemove, order
			switch mode {
			case "max":
				if max = 1; order != "" {
					max += rnd.Intn(2)
				}
				b.Spec.Placement = atMostClusters(int32(max))
			case "group":
				b.Spec.Placement = ownThenCloudPlacement(time.Minute)
			case "named":
				named = 1
				b.Spec.Placement = placementNamed("a")
			default:
				b.Spec.Placement = placementLabelled(map[string]string{"db": "yes"})
			}
		})
		m.cutRevision("web", statefulSetContent())
		m.settleRows("web")
		for step := 0; step < 60 && !failed; step++ {
			c := names[rnd.Intn(len(names))]
			op := ""
			switch rnd.Intn(10) {
			case 0, 1:
				label[c] = map[string]string{"yes": "no", "no": "yes"}[label[c]]
				op = "label " + c + "=" + label[c]
				m.changeCluster(c, func(x *v1alpha1.Cluster) { x.Labels = map[string]string{"db": label[c]} })
			case 2, 3:
				on := !(fakeClusters{m}).IsOnline(uidOf(c))
				op = fmt.Sprintf("online %s=%v", c, on)
				setOnline(c, on)
			case 4:
				tainted[c] = !tainted[c]
				op = fmt.Sprintf("taint %s=%v", c, tainted[c])
				m.changeCluster(c, func(x *v1alpha1.Cluster) {
					x.Spec.Taints = nil
					if tainted[c] {
						x.Spec.Taints = []v1alpha1.Taint{{Key: "down", Effect: corev1.TaintEffectNoExecute}}
					}
				})
			case 5:
				if rnd.Intn(3) == 0 {
					op = "revision"
					m.cutRevision("web", statefulSetContent())
				} else if mode == "named" {
					n := []string{c, names[rnd.Intn(len(names))]}
					named = 2
					if n[0] == n[1] || order == "" || rnd.Intn(2) == 0 {
						n, named = n[:1], 1
					}
					op = fmt.Sprint("named ", n)
					m.changeBundle("web", func(b *state.Bundle) { b.Spec.Placement = placementNamed(n...) })
				} else if mode == "max" && rnd.Intn(3) == 0 {
					op = "rebalance"
					m.changeBundle("web", rebalanceAskedAt(time.Now()))
				}
			case 6, 7:
				rows := (fakeRows{m}).ListOfBundle("web")
				if len(rows) > 0 {
					row := rows[rnd.Intn(len(rows))]
					if (fakeClusters{m}).IsOnline(row.Spec.UID) && row.Spec.Phase != atoll.RowPending {
						st := atoll.RowReady
						if row.Spec.Phase == atoll.RowRemoving {
							st = atoll.RowRemoved
						}
						op = fmt.Sprintf("report %s %s", row.Cluster, st)
						trace = append(trace, op)
						m.reportState("web", row.Cluster, st)
						if st == atoll.RowRemoved && rnd.Intn(2) == 0 {
							synctest.Wait()
							if now, ok := (fakeRows{m}).Get("web", row.Cluster); ok && now.Spec.Phase == atoll.RowRemoving && now.Spec.Generation == row.Spec.Generation {
								m.dropRow("web", row.Cluster)
							}
						}
						op = ""
					}
				}
			case 8:
				d := time.Duration(rnd.Intn(900)) * time.Second
				op = "sleep " + d.String()
				trace = append(trace, op)
				time.Sleep(d)
				op = ""
			case 9:
				if rnd.Intn(6) == 0 {
					op = "rejoin " + c
					trace = append(trace, op)
					m.deleteCluster(c)
					if rnd.Intn(2) == 0 {
						synctest.Wait()
					}
					gen[c]++
					uid := fmt.Sprintf("uid-%s-%d", c, gen[c])
					m.mu.Lock()
					m.online[uid] = true
					m.mu.Unlock()
					m.changeCluster(c, func(x *v1alpha1.Cluster) {
						x.UID, x.Labels = types.UID(uid), map[string]string{"db": label[c]}
					})
					tainted[c] = false
					op = ""
					break
				}
				op = "settle"
				trace = append(trace, op)
				m.settleRows("web")
				op = ""
			}
			if op != "" {
				trace = append(trace, op)
			}
			if rnd.Intn(3) > 0 {
				synctest.Wait()
			}
		}
		trace = append(trace, "END: all online, all fit")
		for _, c := range names {
			setOnline(c, true)
			tainted[c], label[c] = false, "yes"
			m.changeCluster(c, func(x *v1alpha1.Cluster) { x.Spec.Taints, x.Labels = nil, map[string]string{"db": "yes"} })
		}
		for range 8 {
			m.settleRows("web")
			time.Sleep(3 * time.Minute)
		}
		m.settleRows("web")
		for _, row := range (fakeRows{m}).ListOfBundle("web") {
			if row.Spec.Phase != atoll.RowActive {
				fail("at the end " + m.rowsOf("web") + " " + row.Spec.Reason)
			}
		}
		writes, _ := m.countsAfterWait()
		for range 6 {
			time.Sleep(30 * time.Minute)
			m.settleRows("web")
		}
		if now, _ := m.countsAfterWait(); now > writes+1 {
			fail(fmt.Sprintf("%d writes in a quiet day", now-writes))
		}
	})
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
