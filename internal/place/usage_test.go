package place

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
	"atoll.dev/atoll/internal/state"
)

// admits so many replicas.
func admits(replicas int64) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) { c.Spec.Capacity = &v1alpha1.ClusterCapacity{Replicas: &replicas} }
}

// whole content: what asking is, and not divided.
func whole(name string, replicas int) *atoll.Content {
	c := asking(name, replicas)
	c.Items[0].Divided = false
	return c
}

var divided = v1alpha1.PlacementSpec{ReplicaScheduling: v1alpha1.ReplicaScheduling{ReplicaSchedulingType: v1alpha1.Divided}}

// end a Bundle, and let everybody act on it.
func (m *memory) end(uid string) {
	now := metav1.NewTime(time.Now())
	m.bundle(uid, func(b *state.Bundle) { b.Meta.DeletionTimestamp = &now })
	m.settle(uid)
	m.mu.Lock()
	delete(m.bundles, uid)
	m.mu.Unlock()
	for _, fn := range m.onBundle {
		fn(uid)
	}
	synctest.Wait()
}

// winners are the Bundles that have a row.
func (m *memory) winners(uids ...string) (out []string) {
	synctest.Wait()
	for _, uid := range uids {
		if len((memRows{m}).OfBundle(uid)) > 0 {
			out = append(out, uid)
		}
	}
	return out
}

// Of many that come at the same time, one gets the last place. When it goes, another one
// does, without anybody looking before.
func TestTheLastPlaceGoesToOne(t *testing.T) {
	m := newMemory()
	m.cluster("a", admits(5))
	var uids []string
	for i := range 20 {
		uids = append(uids, fmt.Sprint("app", i))
		m.place(uids[i], v1alpha1.PlacementSpec{}, whole(uids[i], 3))
	}
	run(t, m, func(t *testing.T, _ *Reconciler) {
		for range 20 {
			got := m.winners(uids...)
			if len(got) != 1 {
				t.Fatalf("%s have a place where one has", got)
			}
			_, looks := m.counts()
			time.Sleep(time.Hour)
			if _, now := m.counts(); now-looks > len(uids) {
				t.Fatalf("waiting costs %d looks an hour", now-looks)
			}
			m.end(got[0])
		}
		if got := m.winners(uids...); len(got) != 0 {
			t.Errorf("%s are left", got)
		}
	})
}

// Two steps that were decided by the same last place: one takes it, the other one decides
// again, however often that happens.
func TestTwoStepsRaceForTheLastPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.cluster("a", admits(3))
		m.cluster("b", admits(3))
		r, shutDown := unworked(m)
		defer shutDown()
		for _, uid := range []string{"web", "api"} {
			m.place(uid, most(1), whole(uid, 3))
		}
		b, _ := memBundles{m}.Get("web")
		terms, err := r.terms(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		// Somebody takes what was chosen, between the decision and the step, each time.
		tries := 0
		a, err := r.attempt(func() (snapshot, func(), error) {
			snap, end, err := r.decide(t.Context(), b, r.index.view(b, terms, time.Now()))
			if tries++; tries == 1 {
				for i := range snap.in.Decision.Verdicts {
					if v := &snap.in.Decision.Verdicts[i]; v.Outcome == schedule.Placed {
						m.bundle("api", func(b *state.Bundle) { b.Spec.Placement = names(v.Cluster) })
					}
				}
				if err := r.reconcile(t.Context(), "api"); err != nil {
					t.Fatal(err)
				}
			}
			return snap, end, err
		})
		if err != nil || tries != 2 {
			t.Fatalf("%d decisions, %v", tries, err)
		}
		// What is taken and not written yet counts, whatever is told of the row meanwhile.
		r.rowsChanged("web", []string{"a", "b"}, []string{"a", "b"})
		m.place("more", v1alpha1.PlacementSpec{}, whole("more", 1))
		if err := r.reconcile(t.Context(), "more"); err != nil {
			t.Fatal(err)
		}
		if got := m.winners("more"); len(got) > 0 {
			t.Errorf("what is being written has a place in %s", m.show("more"))
		}
		if err := r.write(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		a.end()
		if web, api := holders(m, "web"), holders(m, "api"); len(web) != 1 || len(api) != 1 || web[0] == api[0] {
			t.Errorf("web in %s, api in %s", web, api)
		}
	})
}

// A write that fails takes nothing, and who was refused for it comes.
func TestAFailedWriteTakesNoCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.cluster("a", admits(3))
		r, shutDown := unworked(m)
		defer shutDown()
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 3))
		m.place("api", v1alpha1.PlacementSpec{}, whole("api", 3))
		m.beforeWrite = func() {
			if err := r.reconcile(t.Context(), "api"); err != nil || len(m.winners("api")) > 0 {
				t.Errorf("api while web is written: %s, %v", m.show("api"), err)
			}
			m.mu.Lock()
			delete(m.revisions, "web")
			m.rows["web"] = map[string]state.Row{"a": {Cluster: "a", Spec: atoll.RowSpec{UID: "uid-a", Phase: atoll.RowVacant}}}
			m.mu.Unlock()
		}
		if err := r.reconcile(t.Context(), "web"); !errors.Is(err, state.ErrRowsMoved) {
			t.Fatalf("written: %v", err)
		}
		if !r.index.entry("api").hasTouched("a") {
			t.Error("api is not told")
		}
		if err := r.reconcile(t.Context(), "api"); err != nil || len(m.winners("api")) != 1 {
			t.Errorf("api: %s, %v", m.show("api"), err)
		}
	})
}

// What comes free after a step asked, and before it is noted that it waits, is not lost.
func TestCapacityThatComesDuringAStepIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.cluster("a", admits(3))
		r, shutDown := unworked(m)
		defer shutDown()
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 3))
		if err := r.reconcile(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		m.place("api", v1alpha1.PlacementSpec{}, whole("api", 3))
		b, _ := memBundles{m}.Get("api")
		terms, err := r.terms(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.attempt(func() (snapshot, func(), error) {
			return r.decide(t.Context(), b, r.index.view(b, terms, time.Now()))
		})
		if err != nil {
			t.Fatal(err)
		}
		m.drop("web", "a")
		if err := r.write(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r.waitForCapacity(&a.snap, a.out, nil)
		if !r.index.entry("api").hasTouched("a") {
			t.Error("api does not hear of it")
		}
	})
}

// Nor is capacity lost that a cluster comes to state while a step decides by what it stated
// before, however late the step asks what is used.
func TestCapacityStatedWhileItIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.cluster("a", admits(3))
		r, shutDown := unworked(m)
		defer shutDown()
		m.place("api", v1alpha1.PlacementSpec{}, whole("api", 5))
		b, _ := memBundles{m}.Get("api")
		terms, err := r.terms(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		end := r.index.begin("api")
		v := r.index.view(b, terms, time.Now()) // with the cluster as it was
		m.cluster("a", admits(8))
		r.compare(t.Context(), "a")
		a, err := r.attempt(func() (snapshot, func(), error) { return r.decide(t.Context(), b, v) })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.write(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		r.waitForCapacity(&a.snap, a.out, nil)
		end()
		if len(a.out.Changes) > 0 || !r.index.entry("api").hasTouched("a") {
			t.Errorf("changes %v; api does not hear of it", a.out.Changes)
		}
	})
}

func (e *entry) hasTouched(cluster string) bool { _, ok := e.touched[cluster]; return ok }

// What waits for capacity is tried again when some comes, by whatever it comes.
func TestCapacityThatComesIsUsed(t *testing.T) {
	for name, come := range map[string]func(m *memory){
		"the bound is raised": func(m *memory) { m.cluster("a", admits(8)) },
		"no bound any more":   func(m *memory) { m.cluster("a", func(c *v1alpha1.Cluster) { c.Spec.Capacity = nil }) },
		"a Bundle goes":       func(m *memory) { m.end("web") },
		"a Bundle moves": func(m *memory) {
			m.bundle("web", func(b *state.Bundle) { b.Spec.Placement = names("b") })
			m.settle("web")
		},
		"a Bundle shrinks": func(m *memory) { m.cut("web", whole("web", 1)) },
		"a Bundle shrinks, after the one that waits was looked at again": func(m *memory) {
			m.cut("api", whole("api", 2))
			synctest.Wait()
			m.cut("web", whole("web", 1))
		},
		"it asks for less itself": func(m *memory) { m.cut("api", whole("api", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.cluster("a", admits(5))
			m.cluster("b", nil)
			run(t, m, func(t *testing.T, _ *Reconciler) {
				m.place("web", names("a"), whole("web", 4))
				m.settle("web")
				m.place("api", names("a"), whole("api", 3))
				m.place("many", func() v1alpha1.PlacementSpec {
					p := names("a")
					p.ReplicaScheduling = divided.ReplicaScheduling
					return p
				}(), asking("many", 0))
				m.settle("api")
				want(t, m, "api", "")
				come(m)
				m.settle("web")
				if want(t, m, "many", "a Active r1 0"); !strings.HasPrefix(m.show("api"), "a Active r") {
					t.Errorf("api is %q", m.show("api"))
				}
			})
		})
	}
}

// What asks for more than can be counted takes nothing of others with it when it goes.
func TestSumsThatRanOverAreCountedAnew(t *testing.T) {
	m := newMemory()
	m.cluster("a", nil)
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("huge", names("a"), whole("huge", math.MaxInt64))
		m.place("web", names("a"), whole("web", 3))
		m.settle("web")
		m.cluster("a", admits(5))
		synctest.Wait()
		m.place("api", names("a"), whole("api", 3))
		m.settle("api")
		want(t, m, "api", "")
		m.end("huge")
		m.settle("huge")
		want(t, m, "api", "") // 3 of 5 are used
		m.end("web")
		m.settle("web")
		want(t, m, "api", "a Active r1")
	})
}

// Replicas without a place are told, and get one when there is one.
func TestShortOfStatedCapacity(t *testing.T) {
	for name, p := range map[string]v1alpha1.PlacementSpec{"by weight": divided, "by room": byRoom} {
		t.Run(name, func(t *testing.T) {
			m := newMemory()
			m.cluster("a", func(c *v1alpha1.Cluster) { left(50)(c); admits(3)(c) })
			m.cluster("b", func(c *v1alpha1.Cluster) {
				left(50)(c)
				c.Spec.Capacity = &v1alpha1.ClusterCapacity{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
			})
			run(t, m, func(t *testing.T, r *Reconciler) {
				m.place("web", p, asking("web", 9))
				m.settle("web")
				want(t, m, "web", "a Active r1 3, b Active r1 2")
				b, _ := r.Bundles.Get("web")
				pre, err := r.Preview(t.Context(), b)
				if err != nil || len(pre.Output.Short) != 1 || pre.Output.Short[0].Unplaced != 4 {
					t.Errorf("short of %+v, %v", pre.Output.Short, err)
				}
				if got := fmt.Sprint(pre.Decision.Bounds("a")); got != "[{capacity.replicas 3 3 false}]" {
					t.Errorf("a states %s", got)
				}
				m.cluster("a", admits(5))
				m.settle("web")
				want(t, m, "web", "a Active r1 5, b Active r1 2")
				m.cluster("a", admits(1))
				m.settle("web")
				want(t, m, "web", "a Active r1 5, b Active r1 2")
			})
		})
	}
}

// Lowering a bound takes nothing, and costs no write.
func TestWhatRunsStaysWhenABoundIsLowered(t *testing.T) {
	m := newMemory()
	m.cluster("a", admits(10))
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 4))
		m.place("api", v1alpha1.PlacementSpec{}, whole("api", 4))
		m.settle("web")
		m.settle("api")
		writes, _ := m.counts()
		m.cluster("a", admits(2))
		m.settle("web")
		m.bundle("web", func(b *state.Bundle) { b.Spec.WhenUnfit = v1alpha1.UnfitRemove })
		m.cut("api", whole("api", 3))
		m.settle("web")
		m.settle("api")
		want(t, m, "web", "a Active r1")
		want(t, m, "api", "a Active r2")
		if now, _ := m.counts(); now != writes+1 {
			t.Errorf("%d writes where one moves api to its revision", now-writes)
		}
		b, _ := r.Bundles.Get("web")
		p, err := r.Preview(t.Context(), b)
		if got := fmt.Sprint(p.Decision.Bounds("a")); err != nil || got != "[{capacity.replicas 2 7 true}]" {
			t.Errorf("a states %s, %v", got, err)
		}
	})
}

// A revision that asks for more than is left waits, says so, and goes on when there is.
func TestARevisionWaitsForCapacity(t *testing.T) {
	m := newMemory()
	m.cluster("a", admits(5))
	m.cluster("b", nil)
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 4))
		m.settle("web")
		m.cut("web", whole("web", 7))
		m.settle("web")
		want(t, m, "web", "a Active r1, b Active r2")
		row, _ := (memRows{m}).Get("web", "a")
		if reason := atoll.ParseRowReason(row.Spec.Reason); reason.Word != atoll.RowNoCapacity || !strings.Contains(reason.Text, "asks for 7 instead of 4") {
			t.Errorf("the row says %q", row.Spec.Reason)
		}
		b, _ := r.Bundles.Get("web")
		p, err := r.Preview(t.Context(), b)
		if err != nil || len(p.Output.Waits) != 1 || p.Output.Waits[0].Cluster != "a" || !strings.Contains(p.Output.Waits[0].For, "capacity") {
			t.Errorf("waits %+v, %v", p.Output.Waits, err)
		}
		m.cluster("a", admits(7))
		m.settle("web")
		want(t, m, "web", "a Active r2, b Active r2")
		if row, _ := (memRows{m}).Get("web", "a"); row.Spec.Reason != "" {
			t.Errorf("the row still says %q", row.Spec.Reason)
		}
	})
}

// A divided workload of which each pod asks for more stays as it is in its cluster, where
// that is too much.
func TestADividedRevisionWaitsForCapacity(t *testing.T) {
	m := newMemory()
	cpus := func(n string) func(*v1alpha1.Cluster) {
		return func(c *v1alpha1.Cluster) {
			c.Spec.Capacity = &v1alpha1.ClusterCapacity{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}}
		}
	}
	m.cluster("a", cpus("5"))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", divided, asking("web", 4))
		m.settle("web")
		double := asking("web", 6)
		double.Items[0].Object = []byte(strings.Replace(string(double.Items[0].Object), `"cpu":"1"`, `"cpu":"2"`, 1))
		m.cut("web", double)
		m.settle("web")
		want(t, m, "web", "a Active r1 4")
		m.cluster("a", cpus("9"))
		m.settle("web")
		want(t, m, "web", "a Active r2 4")
		m.cluster("a", cpus("12"))
		m.settle("web")
		want(t, m, "web", "a Active r2 6")
	})
}

// Where others always take what a decision goes by, rows stay as they are.
func TestAStepThatIsAlwaysLateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.cluster("a", admits(5))
		r, shutDown := unworked(m)
		defer shutDown()
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 4))
		if err := r.reconcile(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		m.cut("web", whole("web", 5))
		b, _ := memBundles{m}.Get("web")
		terms, err := r.terms(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		tries := 0
		a, err := r.attempt(func() (snapshot, func(), error) {
			tries++
			snap, end, err := r.decide(t.Context(), b, r.index.view(b, terms, time.Now()))
			late := *snap.stake.bounds["a"]
			late.Capacity = schedule.Use{{Name: schedule.MeasureReplicas, N: 4}}
			snap.stake.bounds["a"] = &late
			return snap, end, err
		})
		if err != nil || tries != decideTries {
			t.Fatalf("%d decisions, %v", tries, err)
		}
		if err := r.write(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		row, _ := (memRows{m}).Get("web", "a")
		if !strings.HasSuffix(row.Spec.Revision, "r1") || atoll.ParseRowReason(row.Spec.Reason).Word != atoll.RowNoCapacity {
			t.Errorf("the row is at %s: %q", row.Spec.Revision, row.Spec.Reason)
		}
	})
}

// A hub that starts counts what is there.
func TestCapacityIsKnownAfterAStart(t *testing.T) {
	m := newMemory()
	m.cluster("a", admits(5))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 4))
		m.settle("web")
	})
	m.place("api", v1alpha1.PlacementSpec{}, whole("api", 2))
	m.place("one", v1alpha1.PlacementSpec{}, whole("one", 1))
	run(t, m, func(t *testing.T, _ *Reconciler) {
		want(t, m, "api", "")
		want(t, m, "one", "a Active r1")
	})
}

// What a decision reads does not grow with what is there already.
func TestCountingCostsWhatChanges(t *testing.T) {
	m := newMemory()
	m.cluster("a", admits(1_000_000))
	for i := range 300 {
		m.place(fmt.Sprint("app", i), v1alpha1.PlacementSpec{}, whole(fmt.Sprint("app", i), 1))
	}
	run(t, m, func(t *testing.T, r *Reconciler) {
		for i := range 300 {
			m.settle(fmt.Sprint("app", i))
		}
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 1))
		m.settle("web")
		m.mu.Lock()
		reads := m.reads
		m.mu.Unlock()
		m.place("api", v1alpha1.PlacementSpec{}, whole("api", 1))
		m.settle("api")
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.reads-reads > 20 {
			t.Errorf("one Bundle more costs %d reads of rows where 301 are", m.reads-reads)
		}
	})
}

// What is foreseen counts what would be: of the Bundles, and of what clusters state.
func TestCapacityIsForeseen(t *testing.T) {
	m := newMemory()
	m.cluster("a", admits(5))
	run(t, m, func(t *testing.T, r *Reconciler) {
		m.place("web", v1alpha1.PlacementSpec{}, whole("web", 4))
		m.settle("web")
		supposed := func(uid string, replicas int) Supposed {
			var b state.Bundle
			b.Ref.UID, b.Ref.Namespace, b.Ref.Name = uid, "shop", uid
			b.Meta.Name = uid
			return Supposed{Bundle: b, Revision: uid + "-9-r9", Content: whole(uid, replicas)}
		}
		foresee := func(clusters Clusters, list ...Supposed) string {
			got, err := r.Foresee(t.Context(), &Tables{Clusters: clusters}, list)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, f := range got {
				out = append(out, f.Bundle.Ref.UID+": "+shown(f.After))
			}
			return strings.Join(out, "; ")
		}
		if got := foresee(nil, supposed("api", 1), supposed("more", 1)); got != "api: a Active; more: " {
			t.Errorf("%s", got)
		}
		smaller, _ := memBundles{m}.Get("web")
		if got := foresee(nil, Supposed{Bundle: smaller, Revision: "web-2-r2", Content: whole("web", 1)}, supposed("api", 4)); got != "web: a Active; api: a Active" {
			t.Errorf("with a smaller web %s", got)
		}
		c, _ := memClusters{m}.Get("a")
		c = c.DeepCopy()
		admits(6)(c)
		if got := foresee(overlay{Clusters: memClusters{m}, Changed: map[string]*v1alpha1.Cluster{"a": c}}, supposed("api", 2)); got != "api: a Active" {
			t.Errorf("with more capacity %s", got)
		}
		want(t, m, "web", "a Active r1")
		m.place("late", v1alpha1.PlacementSpec{}, whole("late", 1))
		m.settle("late")
		want(t, m, "late", "a Active r1")
	})
}
