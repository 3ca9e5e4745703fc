package placer

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// contentOfTier has a Deployment with the label tier; an empty value: without labels.
func contentOfTier(name, value string) *atoll.Content {
	object := `{}`
	if value != "" {
		object = `{"metadata":{"labels":{"tier":"` + value + `"}}}`
	}
	return &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: name}, Object: []byte(object)}}}
}

func keptApart() *v1alpha1.WorkloadAffinity {
	return &v1alpha1.WorkloadAffinity{AntiAffinity: &v1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "tier"}}
}

func keptTogether() *v1alpha1.WorkloadAffinity {
	return &v1alpha1.WorkloadAffinity{Affinity: &v1alpha1.WorkloadAffinityTerm{GroupByLabelKey: "tier"}}
}

// addMember adds a Bundle of the tier db for one cluster.
func (m *fakeHub) addMember(uid string, terms *v1alpha1.WorkloadAffinity, change func(*state.Bundle)) {
	m.changeBundle(uid, func(b *state.Bundle) {
		b.Spec.Placement.MaxClusters, b.Spec.Placement.WorkloadAffinity = 1, terms
		if change != nil {
			change(b)
		}
	})
	m.cutRevision(uid, contentOfTier(uid, "db"))
}

// deleteBundle deletes a Bundle with its rows.
func (m *fakeHub) deleteBundle(uid string) {
	m.markDeleted(uid)
	m.settleRows(uid)
	m.mu.Lock()
	delete(m.bundles, uid)
	m.mu.Unlock()
	for _, fn := range m.onBundle {
		fn(uid)
	}
	synctest.Wait()
}

// endRows marks a Bundle as deleted, and waits until its rows are gone: a Bundle is deleted after them, and a failed write is
// repeated.
func (m *fakeHub) endRows(t *testing.T, uid string) {
	t.Helper()
	m.markDeleted(uid)
	for range 600 {
		if m.settleRows(uid); len((fakeRows{m}).ListOfBundle(uid)) == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("%s has rows ten minutes after its deletion", uid)
}

// clustersChosen returns the clusters of a Bundle's rows that are chosen.
func (m *fakeHub) clustersChosen(uid string) (names []string) {
	for _, r := range (fakeRows{m}).ListOfBundle(uid) {
		if r.Spec.Phase.IsChosen() {
			names = append(names, r.Cluster)
		}
	}
	return names
}

// storeConditions stores the conditions that a Reconciler writes.
func storeConditions(m *fakeHub) func(*Config) {
	return func(cfg *Config) {
		cfg.SetCondition = func(_ context.Context, b state.Bundle, c metav1.Condition) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			is := m.bundles[b.Ref.UID]
			is.Status.Conditions = slices.Clone(is.Status.Conditions)
			meta.SetStatusCondition(&is.Status.Conditions, c)
			m.bundles[b.Ref.UID] = is
			return nil
		}
	}
}

func (m *fakeHub) affinityCondition(uid string) string {
	c := m.conditionOf(uid, v1alpha1.BundleAffinityMet)
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// Members that are decided at one time take different clusters. A member without a place waits for the one that leaves, and
// its condition names another member.
func TestMembersAreKeptApart(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runWith(t, m, storeConditions(m), func(t *testing.T, _ *PlacementReconciler) {
		for i := range 4 {
			m.addMember(fmt.Sprint("m", i), keptApart(), nil)
		}
		synctest.Wait()
		holders, waiting := map[string]string{}, ""
		for i := range 4 {
			uid := fmt.Sprint("m", i)
			switch chosen := m.clustersChosen(uid); {
			case len(chosen) == 0:
				waiting += uid
			case holders[chosen[0]] != "":
				t.Fatalf("%s and %s are both in %s", uid, holders[chosen[0]], chosen[0])
			default:
				holders[chosen[0]] = uid
			}
		}
		if len(holders) != 3 {
			t.Fatalf("the clusters have %v", holders)
		}
		want := fmt.Sprintf("False KeptApart: kept apart from Deployment shop/%s, which runs in a (group tier=db), and from others in 2 more", holders["a"])
		if got := m.affinityCondition(waiting); got != want {
			t.Errorf("the condition is %q, want %q", got, want)
		}
		m.deleteBundle(holders["b"])
		expectRows(t, m, waiting, "b Active r1")
		if got := m.affinityCondition(waiting); !strings.HasPrefix(got, "True AffinityMet") {
			t.Errorf("the condition is %q", got)
		}
	})
}

// A cluster is taken until the row is gone, also while the removal is under way.
func TestARemovalThatIsUnderWayTakesTheCluster(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
		m.addMember("m1", keptApart(), nil)
		m.markDeleted("m0")
		expectRows(t, m, "m0", "a Removing r1")
		expectRows(t, m, "m1", "")
		m.dropRow("m0", "a")
		expectRows(t, m, "m1", "a Active r1")
	})
}

// The first member chooses, and the others follow it. A placed member is not decided again because others come.
func TestMembersAreKeptTogether(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c", "d")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		for i := range 12 {
			m.addMember(fmt.Sprint("m", i), keptTogether(), nil)
		}
		synctest.Wait()
		first := m.rowsOf("m0")
		for i := range 12 {
			expectRows(t, m, fmt.Sprint("m", i), first)
		}
		writes, looks := m.countsAfterWait()
		m.addMember("late", keptTogether(), nil)
		expectRows(t, m, "late", first)
		// One step reads the rows a few times. Steps of the other members would read theirs.
		if w, l := m.countsAfterWait(); w != writes+1 || l > looks+10 {
			t.Errorf("a late member costs %d writes and %d reads of rows", w-writes, l-looks)
		}
	})
}

// A member that takes all clusters follows the group when that comes to another cluster, and loses nothing when the group leaves.
func TestAMemberFollowsItsGroup(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptTogether(), func(b *state.Bundle) {
			b.Spec.Placement = placementNamed("a")
			b.Spec.Placement.WorkloadAffinity = keptTogether()
		})
		synctest.Wait()
		m.addMember("m1", keptTogether(), func(b *state.Bundle) { b.Spec.Placement.MaxClusters = 0 })
		expectRows(t, m, "m1", "a Active r1")
		m.addMember("m2", nil, func(b *state.Bundle) { b.Spec.Placement = placementNamed("b") })
		expectRows(t, m, "m1", "a Active r1")
		m.changeBundle("m2", func(b *state.Bundle) { b.Spec.Placement.WorkloadAffinity = keptTogether() })
		expectRows(t, m, "m1", "a Active r1, b Active r1")
		m.deleteBundle("m2")
		m.deleteBundle("m0")
		m.settleRows("m1")
		rows := m.rowsOf("m1")
		if !strings.HasPrefix(rows, "a Active r1, b Active r1") {
			t.Errorf("a group that left takes rows away: %s", rows)
		}
	})
}

// A label that changes moves and removes nothing. It frees the group, and later choices count the new one.
func TestALabelChangeMovesNothing(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
		m.addMember("m1", keptApart(), nil)
		expectRows(t, m, "m1", "")
		m.cutRevision("m0", contentOfTier("m0", "web"))
		expectRows(t, m, "m1", "a Active r1")
		m.settleRows("m0")
		expectRows(t, m, "m0", "a Active r2")
		m.cutRevision("m0", contentOfTier("m0", "db"))
		m.settleRows("m0")
		m.settleRows("m1")
		expectRows(t, m, "m0", "a Active r3")
		expectRows(t, m, "m1", "a Active r1")
		m.addMember("m2", keptApart(), nil)
		m.cutRevision("m2", contentOfTier("m2", ""))
		expectRows(t, m, "m2", "a Active r2") // without the label the term does nothing
	})
}

// A write that fails takes the choice back.
func TestAFailedWriteTakesNoCluster(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	synctest.Test(t, func(t *testing.T) {
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		m.addMember("m0", keptApart(), nil)
		m.addMember("m1", keptApart(), nil)
		m.writeError = errors.New("the store is down")
		if err := r.reconcileBundle(t.Context(), "m0"); err == nil {
			t.Fatal("the write did not fail")
		}
		// Between the decision and the end of its write, the cluster is taken.
		m.beforeWrite = func() {
			if err := r.reconcileBundle(t.Context(), "m0"); err != nil {
				t.Error(err)
			}
		}
		runStep(t, r, "m1")
		expectRows(t, m, "m0", "")
		expectRows(t, m, "m1", "a Active r1")
	})
}

// Members that a failed step woke wait a while, so that they do not wake each other without a pause.
func TestFailedWritesWakeNoStorm(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	tries := 0
	watch := func(cfg *Config) { cfg.RowWriter = failingRows{fakeRows{m}, &tries} }
	runWith(t, m, watch, func(t *testing.T, _ *PlacementReconciler) {
		for i := range 20 {
			m.addMember(fmt.Sprint("m", i), keptApart(), nil)
		}
		time.Sleep(10 * time.Minute)
		m.mu.Lock()
		got := tries
		m.mu.Unlock()
		if got == 0 || got > 2000 {
			t.Errorf("%d writes are tried in ten minutes", got)
		}
	})
}

// failingRows fails each write of a row.
type failingRows struct {
	fakeRows
	tries *int
}

func (w failingRows) WriteSpecs(_ context.Context, _ enginev1.BundleRef, _ []state.Row, changes map[string]*atoll.RowSpec) error {
	if len(changes) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	*w.tries++
	return errors.New("the store is down")
}

// A hub that starts reads all members of a namespace before it decides about one.
func TestAStartReadsAllMembersFirst(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
	})
	held := m.clustersChosen("m0")[0]
	m.addMember("m1", keptApart(), nil)
	content := m.contents["m0-1-r1"]
	delete(m.contents, "m0-1-r1")
	synctest.Test(t, func(t *testing.T) {
		r, shutDown := newIdleReconciler(m)
		defer shutDown()
		if err := r.reconcileBundle(t.Context(), "m1"); err == nil || m.rowsOf("m1") != "" {
			t.Fatalf("decided without the other member's labels: %v, %s", err, m.rowsOf("m1"))
		}
		m.contents["m0-1-r1"] = content
		runStep(t, r, "m1")
		if chosen := m.clustersChosen("m1"); len(chosen) != 1 || chosen[0] == held {
			t.Errorf("m0 is in %s, m1 in %v", held, chosen)
		}
	})
}

// chosenWatch reports a write after which a Bundle that had a cluster has none.
type chosenWatch struct {
	fakeRows
	report func(string)
}

func (w chosenWatch) WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error {
	before := w.rowsOf(ref.UID)
	if err := w.fakeRows.WriteSpecs(ctx, ref, base, changes); err != nil {
		return err
	}
	if b, _ := (fakeBundles{w.fakeHub}).Get(ref.UID); before != "" && len(w.clustersChosen(ref.UID)) == 0 && b.Meta.DeletionTimestamp == nil && !strings.Contains(w.rowsOf(ref.UID), "Held") {
		w.report(fmt.Sprintf("%s: %s, before %s", ref.UID, w.rowsOf(ref.UID), before))
	}
	return nil
}

// A drain moves a group together, one member after the other, in each order of a move. No member is without a cluster at any
// time.
func TestADrainMovesAGroupTogether(t *testing.T) {
	for _, order := range []v1alpha1.MoveOrder{"", v1alpha1.MoveRecreate} {
		t.Run(string(order), func(t *testing.T) {
			m := newFakeHub()
			addClusters(m, "a")
			watch := func(cfg *Config) { cfg.RowWriter = chosenWatch{fakeRows{m}, func(s string) { t.Error(s) }} }
			runWith(t, m, watch, func(t *testing.T, _ *PlacementReconciler) {
				members := []string{"m0", "m1", "m2"}
				for _, uid := range members {
					m.addMember(uid, keptTogether(), func(b *state.Bundle) { b.Spec.MoveOrder = order })
					m.settleRows(uid)
				}
				addClusters(m, "b", "c", "d")
				synctest.Wait()
				m.setTaints("a", drained)
				for range 4 {
					for _, uid := range members {
						m.settleRows(uid)
					}
				}
				to := m.rowsOf("m0")
				if to == "" || strings.HasPrefix(to, "a") {
					t.Fatalf("the drain left %s", to)
				}
				for _, uid := range members {
					expectRows(t, m, uid, to)
				}
			})
		})
	}
}

// A member that moves keeps its way when the other one moves on at that moment.
func TestAMoveIsNotLostWhenTheGroupMoves(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	watch := func(cfg *Config) { cfg.RowWriter = chosenWatch{fakeRows{m}, func(s string) { t.Error(s) }} }
	runWith(t, m, watch, func(t *testing.T, _ *PlacementReconciler) {
		pin := func(terms *v1alpha1.WorkloadAffinity, clusters ...string) func(*state.Bundle) {
			return func(b *state.Bundle) {
				b.Spec.Placement = placementNamed(clusters...)
				b.Spec.Placement.MaxClusters, b.Spec.Placement.WorkloadAffinity, b.Spec.MoveOrder = 1, terms, v1alpha1.MoveRecreate
			}
		}
		m.addMember("m2", nil, pin(nil, "c"))
		m.settleRows("m2")
		m.addMember("m0", nil, pin(keptTogether(), "a", "b"))
		m.settleRows("m0")
		m.addMember("m1", nil, pin(keptTogether(), "a", "b"))
		m.settleRows("m1")
		from, to := "a", "b"
		if strings.HasPrefix(m.rowsOf("m0"), "b") {
			from, to = "b", "a"
		}
		m.setTaints(from, drained)
		synctest.Wait()
		for _, uid := range []string{"m0", "m1"} {
			if chosen := m.clustersChosen(uid); len(chosen) != 1 || chosen[0] != to || !strings.Contains(m.rowsOf(uid), "Pending") {
				t.Fatalf("%s moves: %s", uid, m.rowsOf(uid))
			}
		}
		// The group comes to c, and m1 goes there before m0 has arrived.
		m.changeBundle("m2", pin(keptTogether(), "c"))
		synctest.Wait()
		m.changeBundle("m1", pin(keptTogether(), "c"))
		synctest.Wait()
		for range 3 {
			m.settleRows("m1")
			m.settleRows("m0")
		}
		expectRows(t, m, "m0", to+" Active r1")
		expectRows(t, m, "m1", "c Active r1")
	})
}

// A drained cluster keeps a member that nothing fits by its group, with a reason that names the other one.
func TestADrainedMemberWithoutAPlaceStays(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a")
	runReconciler(t, m, func(t *testing.T, _ *PlacementReconciler) {
		m.addMember("web", keptApart(), nil)
		m.settleRows("web")
		addClusters(m, "b")
		m.addMember("m1", keptApart(), nil)
		m.settleRows("m1")
		m.setTaints("a", drained)
		expectRows(t, m, "web", "a Active r1")
		expectRowReason(t, m, "a", atoll.ReasonNoReplacement)
		row, _ := fakeRows{m}.Get("web", "a")
		if !strings.Contains(row.Spec.Reason, "Deployment shop/m1, which runs in b") {
			t.Errorf("the reason is %q", row.Spec.Reason)
		}
		addClusters(m, "c")
		m.settleRows("web")
		expectRows(t, m, "web", "c Active r1")
	})
}

// A plan places new members apart, as Run does, and changes nothing.
func TestAPlanKeepsMembersApart(t *testing.T) {
	m := newFakeHub()
	addClusters(m, "a", "b", "c")
	runReconciler(t, m, func(t *testing.T, r *PlacementReconciler) {
		m.addMember("m0", keptApart(), nil)
		m.settleRows("m0")
		var list []SupposedBundle
		for _, uid := range []string{"m1", "m2"} {
			b := state.Bundle{Ref: enginev1.BundleRef{UID: uid, Namespace: "shop", Name: uid}}
			b.Spec.Placement.MaxClusters, b.Spec.Placement.WorkloadAffinity = 1, keptApart()
			list = append(list, SupposedBundle{Bundle: b, Revision: uid + "-1-r1", Content: contentOfTier(uid, "db")})
		}
		out, err := r.PreviewBundles(t.Context(), nil, list)
		if err != nil {
			t.Fatal(err)
		}
		all := m.clustersChosen("m0")
		for _, p := range out {
			for c := range p.After {
				all = append(all, c)
			}
		}
		if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c"}) {
			t.Errorf("the members would be in %v", all)
		}
		explained, err := r.PreviewBundle(t.Context(), list[0].Bundle)
		if err != nil || len(explained.Decision.WorkloadTerms) != 1 {
			t.Errorf("terms %v, %v", explained.Decision.WorkloadTerms, err)
		}
		p, err := r.PreviewBundle(t.Context(), m.bundles["m0"])
		if v, _ := p.Decision.FindVerdict(m.clustersChosen("m0")[0]); err != nil || v.Outcome != schedule.OutcomePlaced {
			t.Errorf("m0 is explained as %s, %v", v, err)
		}
	})
}

// groupWatch checks each write: no member comes to a cluster that another one of its group has.
type groupWatch struct {
	fakeRows
	report func(string)
}

func (w groupWatch) WriteSpecs(ctx context.Context, ref enginev1.BundleRef, base []state.Row, changes map[string]*atoll.RowSpec) error {
	had := map[string]bool{}
	for _, r := range w.ListOfBundle(ref.UID) {
		had[r.Cluster] = true
	}
	if err := w.fakeRows.WriteSpecs(ctx, ref, base, changes); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, spec := range changes {
		if spec == nil || had[c] {
			continue
		}
		for other, rows := range w.rows {
			if _, there := rows[c]; there && other != ref.UID {
				w.report(fmt.Sprintf("%s comes to %s, where %s is", ref.UID, c, other))
			}
		}
	}
	return nil
}

// Random acts over members that are kept apart: new clusters, drains, deletions, failed writes and restarts.
func TestRandomMembersAreKeptApart(t *testing.T) {
	for seed := range int64(12) {
		rnd, m := rand.New(rand.NewSource(seed)), newFakeHub()
		watch := func(cfg *Config) {
			cfg.RowWriter = groupWatch{fakeRows{m}, func(s string) { t.Errorf("seed %d: %s", seed, s) }}
		}
		for range 3 { // a hub after the other
			runWith(t, m, watch, func(t *testing.T, _ *PlacementReconciler) {
				for range 25 {
					uid, cluster := fmt.Sprint("m", rnd.Intn(8)), fmt.Sprint("c", rnd.Intn(6))
					switch rnd.Intn(7) {
					case 0, 1:
						m.changeCluster(cluster, nil)
					case 2:
						m.setTaints(cluster, drained)
					case 3:
						m.setTaints(cluster)
					case 4:
						m.mu.Lock()
						m.writeError = errors.New("the store is down")
						m.mu.Unlock()
					case 5:
						if rnd.Intn(3) == 0 {
							m.endRows(t, uid)
							m.deleteBundle(uid)
						}
					default:
						order := []v1alpha1.MoveOrder{"", v1alpha1.MoveRecreate}[rnd.Intn(2)]
						m.addMember(uid, keptApart(), func(b *state.Bundle) { b.Spec.MoveOrder = order })
					}
					if rnd.Intn(3) == 0 {
						m.settleRows(uid)
					}
				}
				time.Sleep(time.Minute)
			})
		}
	}
}

// BenchmarkGroupOfMembers places a group of 1,000 members in one namespace.
func BenchmarkGroupOfMembers(b *testing.B) {
	for name, terms := range map[string]*v1alpha1.WorkloadAffinity{"together": keptTogether(), "apart": keptApart()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m, r := newStepFixture(b, 100)
				for i := range 1000 {
					m.addMember(fmt.Sprint("m", i), terms, nil)
				}
				for i := range 1000 {
					runStep(b, r, fmt.Sprint("m", i))
				}
			}
		})
	}
}
