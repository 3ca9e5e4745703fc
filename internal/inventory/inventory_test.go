package inventory

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// world is a Reconciler over a store in memory that the table follows at once.
type world struct {
	*Reconciler
	t      *testing.T
	client client.Client
	writes atomic.Int64
	told   []string

	mu     sync.Mutex
	byName map[string]*v1alpha1.Cluster
	fns    []func(string)
	// meanwhile happens once, between the next reading of the table and what the reader
	// does with it.
	meanwhile func()
}

func newWorld(t *testing.T, clusters int, adjust ...func(*v1alpha1.Cluster)) *world {
	w := &world{t: t, byName: map[string]*v1alpha1.Cluster{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, enginev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Cluster{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, o ...client.SubResourceUpdateOption) error {
				w.writes.Add(1)
				if err := c.Status().Update(ctx, obj, o...); err != nil {
					return err
				}
				w.see(obj.(*v1alpha1.Cluster).DeepCopy())
				return nil
			},
		}).Build()
	for i := range clusters {
		c := &v1alpha1.Cluster{}
		c.Name, c.UID = fmt.Sprintf("c%d", i), types.UID(fmt.Sprintf("u%d", i))
		c.Spec.Accepted = true
		for _, a := range adjust {
			a(c)
		}
		if err := w.client.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		w.see(c)
	}
	w.Reconciler = New(Options{
		Clusters: w, Client: w.client, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnSilence: func(on bool, m string) { w.told = append(w.told, fmt.Sprint(on)) },
	})
	return w
}

// run the Reconciler while fn runs.
func (w *world) run(fn func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	synctest.Wait()
	fn()
	cancel()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

func (w *world) Get(name string) (*v1alpha1.Cluster, bool) {
	w.mu.Lock()
	c, ok := w.byName[name]
	happens := w.meanwhile
	w.meanwhile = nil
	w.mu.Unlock()
	if happens != nil {
		happens()
	}
	return c, ok
}

func (w *world) ByUID(uid string) (*v1alpha1.Cluster, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byName {
		if string(c.UID) == uid {
			return c, true
		}
	}
	return nil, false
}

func (w *world) List() []*v1alpha1.Cluster {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.byName))
}

func (w *world) Subscribe(fn func(string)) { w.fns = append(w.fns, fn) }

func (w *world) see(c *v1alpha1.Cluster) {
	w.mu.Lock()
	w.byName[c.Name] = c
	w.mu.Unlock()
	for _, fn := range w.fns {
		fn(c.Name)
	}
}

// remove a Cluster from the store; drop tells the table.
func (w *world) remove(name string) {
	c := &v1alpha1.Cluster{}
	c.Name = name
	if err := w.client.Delete(w.t.Context(), c); err != nil {
		w.t.Error(err)
	}
}

// drop a Cluster that was removed from the table.
func (w *world) drop(name string) {
	w.mu.Lock()
	delete(w.byName, name)
	w.mu.Unlock()
	for _, fn := range w.fns {
		fn(name)
	}
}

// join brings up the streams of the first n clusters, with inventory.
func (w *world) join(from, to int) {
	for i := from; i < to; i++ {
		uid := fmt.Sprintf("u%d", i)
		w.StreamUp(uid, "TLS")
		w.Observe(uid, healthy())
	}
	synctest.Wait()
}

func (w *world) lose(from, to int) {
	for i := from; i < to; i++ {
		w.StreamDown(fmt.Sprintf("u%d", i), time.Now())
	}
	synctest.Wait()
}

// pass time and let all settle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) ready(name string) string {
	c, _ := w.Get(name)
	cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	if cond == nil {
		return "none"
	}
	return string(cond.Status) + " " + cond.Reason
}

func (w *world) expect(name, want string) {
	w.t.Helper()
	if got := w.ready(name); got != want {
		w.t.Errorf("Ready of %s is %q, want %q", name, got, want)
	}
}

func healthy() *pb.Inventory {
	return &pb.Inventory{
		KubernetesVersion: "v1.36.3", AgentVersion: "test", NodesTotal: 3, NodesReady: 3, MemberReady: true,
		Allocatable: map[string]string{"cpu": "12", "memory": "24Gi"}, Requested: map[string]string{"cpu": "1500m"},
	}
}

func TestReadyFollowsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.expect("c0", "none") // it is about to connect
			pass(settle)
			w.expect("c0", "Unknown NeverConnected")
			w.StreamUp("u0", "TLS")
			synctest.Wait()
			w.expect("c0", "Unknown NeverConnected") // nothing is known of the member yet
			w.Observe("u0", healthy())
			synctest.Wait()
			w.expect("c0", "True AgentConnected")
			c, _ := w.Get("c0")
			if c.Status.Nodes.Summary != "3/3" || c.Status.Resources.Allocatable.Cpu().Value() != 12 {
				t.Errorf("status is %+v", c.Status)
			}
			w.lose(0, 1)
			pass(34 * time.Second)
			w.expect("c0", "True AgentConnected")
			pass(2 * time.Second)
			w.expect("c0", "Unknown StreamLost")
			w.StreamUp("u0", "TLS")
			synctest.Wait()
			w.expect("c0", "Unknown StreamLost") // until the member is known to answer
			w.Observe("u0", healthy())
			synctest.Wait()
			w.expect("c0", "True AgentConnected")
		})
	})
}

func TestJoinIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		w.run(func() {
			pass(time.Second)
			for i := range 100 {
				w.StreamUp(fmt.Sprintf("u%d", i), "TLS")
			}
			pass(time.Second)
			for i := range 100 {
				w.Observe(fmt.Sprintf("u%d", i), healthy())
				w.Unclaimed(fmt.Sprintf("u%d", i), nil)
			}
			pass(time.Hour)
			if n := w.writes.Load(); n != 100 {
				t.Errorf("%d writes of 100 clusters that joined", n)
			}
			w.expect("c99", "True AgentConnected")
		})
	})
}

func TestNoPeriodicWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.run(func() {
			w.join(0, 3)
			before := w.writes.Load()
			pass(24 * time.Hour)
			for range 10 { // streams that break and come back cost nothing
				w.lose(0, 1)
				pass(5 * time.Second)
				w.join(0, 1)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes while nothing changed", n)
			}
		})
	})
}

func TestChangesOfInventorySettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.join(0, 1)
			pass(time.Minute)
			before := w.writes.Load()
			for i := range 20 {
				inv := healthy()
				inv.NodesReady = int32(i % 3)
				w.Observe("u0", inv)
				pass(500 * time.Millisecond)
			}
			pass(10 * time.Second)
			if n := w.writes.Load() - before; n > 4 {
				t.Errorf("%d writes for 20 changes within 10 s", n)
			}
			c, _ := w.Get("c0")
			if c.Status.Nodes.Ready != 19%3 {
				t.Errorf("the last inventory did not arrive: %+v", c.Status.Nodes)
			}
			broken := healthy()
			broken.MemberReady, broken.MemberMessage = false, "connection refused"
			w.Observe("u0", broken)
			synctest.Wait()
			w.expect("c0", "False MemberNotReady") // at once
		})
	})
}

func TestHubStartWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, func(c *v1alpha1.Cluster) {
			meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
			meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
		})
		<-time.After(time.Hour) // between making and running nothing counts
		w.run(func() {
			pass(34 * time.Second)
			w.expect("c0", "True AgentConnected")
			w.join(1, 2)
			pass(2 * time.Second)
			w.expect("c0", "Unknown StreamLost")
			w.expect("c1", "True AgentConnected")
		})
	})
}

func TestMassSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 40)
		w.run(func() {
			w.join(0, 40)
			pass(time.Minute)
			before := w.writes.Load()
			w.lose(0, 9) // 22.5 %
			pass(time.Hour)
			if n := w.writes.Load() - before; n != 0 || w.Silent() != 9 {
				t.Errorf("%d writes and %d held when 9 of 40 fell silent", n, w.Silent())
			}
			w.expect("c0", "True AgentConnected")
			w.join(0, 1) // 8 of 40 is 20 %: no longer too many
			if w.Silent() != 0 {
				t.Errorf("still %d held", w.Silent())
			}
			pass(34 * time.Second) // in which the others may come back too
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes while the fleet comes back", n)
			}
			pass(2 * time.Second)
			w.expect("c0", "True AgentConnected")
			w.expect("c1", "Unknown StreamLost")
			if !slices.Equal(w.told, []string{"true", "false"}) {
				t.Errorf("told %v", w.told)
			}
		})
	})
}

func TestFewSilentAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.run(func() {
			w.join(0, 3)
			w.lose(0, 3) // all, but three are not a fleet
			pass(36 * time.Second)
			for i := range 3 {
				w.expect(fmt.Sprintf("c%d", i), "Unknown StreamLost")
			}
		})
	})
}

func TestSlowLossesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20)
		w.run(func() {
			w.join(0, 20)
			for i := range 10 { // half of the fleet, one every half minute
				w.lose(i, i+1)
				pass(30 * time.Second)
			}
			pass(10 * time.Second)
			for i := range 9 {
				w.expect(fmt.Sprintf("c%d", i), "Unknown StreamLost")
			}
		})
	})
}

// A certificate that is renewed in time is not written about, however often; one that is
// not is, once, and so is that it was made good.
func TestCertificatesAreWrittenAboutWhenTheyAreOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.join(0, 1)
			pass(settle)
			before := w.writes.Load()
			ends := time.Now().Add(24 * time.Hour)
			for range 10 {
				w.Certificate("u0", ends, 1, false)
				pass(12 * time.Hour)
				ends = ends.Add(12 * time.Hour)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes of renewals", n)
			}
			if got, generation, ok := w.CertificateOf("u0"); !ok || generation != 1 || !got.Equal(ends.Add(-12*time.Hour).Truncate(time.Second)) {
				t.Errorf("known: %s, %d, %t", got, generation, ok)
			}
			expiring := func() *metav1.Condition {
				pass(settle)
				c, _ := w.Get("c0")
				return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring)
			}
			w.Certificate("u0", ends, 1, true)
			if c := expiring(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "NotRenewed" || !strings.Contains(c.Message, ends.UTC().Format(time.RFC3339)) {
				t.Errorf("overdue: %+v", c)
			}
			w.Certificate("u0", ends, 1, true)
			w.Certificate("u0", ends.Add(time.Hour), 1, false)
			if c := expiring(); c != nil {
				t.Errorf("renewed: %+v", c)
			}
			if n := w.writes.Load() - before; n != 2 {
				t.Errorf("%d writes", n)
			}
		})
	})
}

func TestAcceptanceAndUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, func(c *v1alpha1.Cluster) { c.Spec.Accepted = false })
		w.run(func() {
			c, _ := w.Get("c0")
			accepted := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterAccepted)
			if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.Message != "on the hub run: atoll accept c0" {
				t.Errorf("Accepted is %+v", accepted)
			}
			c = c.DeepCopy()
			c.Spec.Accepted = true
			if err := w.client.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			w.see(c)
			w.join(0, 1)
			w.Unclaimed("u0", []string{"b1", "b2"})
			synctest.Wait()
			c, _ = w.Get("c0")
			if u := meta.FindStatusCondition(c.Status.Conditions, ConditionUnclaimed); u == nil || u.Status != metav1.ConditionTrue {
				t.Errorf("Unclaimed is %+v", u)
			}
			w.lose(0, 1)
			w.join(0, 1)
			w.Unclaimed("u0", nil)
			pass(settle)
			c, _ = w.Get("c0")
			if u := meta.FindStatusCondition(c.Status.Conditions, ConditionUnclaimed); u != nil {
				t.Errorf("Unclaimed stays: %+v", u)
			}
		})
	})
}

func TestAPIsAreStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.run(func() {
			apis := []string{"/v1/Pod", "apps/v1/Deployment"}
			hash := session.APIsHash(apis)
			if known, err := w.APIsKnown(t.Context(), hash); err != nil || known {
				t.Errorf("known %t, %v", known, err)
			}
			for i := range 3 {
				inv := healthy()
				inv.Apis, inv.ApisHash = slices.Clone(apis), hash
				w.StreamUp(fmt.Sprintf("u%d", i), "TLS")
				w.Observe(fmt.Sprintf("u%d", i), inv)
			}
			synctest.Wait()
			var sets enginev1.APISetList
			if err := w.client.List(t.Context(), &sets); err != nil || len(sets.Items) != 1 || !slices.Equal(sets.Items[0].APIs, apis) {
				t.Errorf("stored %v, %v", sets.Items, err)
			}
			if known, err := w.APIsKnown(t.Context(), hash); err != nil || !known {
				t.Errorf("known %t, %v", known, err)
			}
			lie := healthy()
			lie.Apis, lie.ApisHash = apis[:1], "not-its-hash"
			w.Observe("u0", lie)
			pass(settle)
			if err := w.client.List(t.Context(), &sets); err != nil || len(sets.Items) != 1 {
				t.Errorf("a list under a wrong hash was stored: %v, %v", sets.Items, err)
			}
		})
	})
}

// What is read of a Cluster that is deleted at the same time leaves nothing behind: who
// does not exist must not count in the fleet, nor as silent in it.
func TestNothingIsLeftOfAClusterThatGoesWhileItIsRead(t *testing.T) {
	joined := func(c *v1alpha1.Cluster) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
	}
	for what, read := range map[string]func(*world) error{
		"noted": func(w *world) error { w.note("c0"); return nil },
		"reconciled": func(w *world) error {
			_, err := w.reconcile(w.t.Context(), "c0")
			return err
		},
		"told of": func(w *world) error {
			w.drop("c0")
			w.StreamDown("u0", time.Now())
			return nil
		},
		"told of by another hub": func(w *world) error {
			w.Elsewhere("u0", true, time.Now())
			w.drop("c0")
			w.Elsewhere("u0", true, time.Now())
			w.Elsewhere("u0", false, time.Now())
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 1, joined)
			defer w.queue.ShutDown()
			w.note("c0")
			gone := make(chan struct{})
			w.meanwhile = func() {
				w.remove("c0") // no write can succeed any more, and be seen after the deletion
				free := w.Reconciler.mu.TryLock()
				if free {
					w.Reconciler.mu.Unlock()
				}
				go func() {
					w.drop("c0")
					close(gone)
				}()
				if free { // else it waits for the reader
					<-gone
				}
			}
			if err := read(w); err != nil {
				t.Fatal(err)
			}
			<-gone
			if len(w.fleet) > 0 || len(w.members) > 0 || len(w.uids) > 0 {
				t.Errorf("left are %d in the fleet, %d members and %d names", len(w.fleet), len(w.members), len(w.uids))
			}
		})
	}
}
