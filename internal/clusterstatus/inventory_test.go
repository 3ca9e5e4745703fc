package clusterstatus

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
	pb "atoll.dev/atoll/internal/session/sessionpb"
)

// world is a Reconciler over a store in memory that the table follows at once.
type world struct {
	*ClusterStatusReconciler
	t        *testing.T
	client   client.Client
	writes   atomic.Int64
	silences []string

	mu     sync.Mutex
	byName map[string]*v1alpha1.Cluster
	fns    []func(string)
	// betweenReads happens once, between the next reading of the table and its use.
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
				w.putCluster(obj.(*v1alpha1.Cluster).DeepCopy())
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
		w.putCluster(c)
	}
	w.ClusterStatusReconciler = New(Options{
		Clusters: w, Client: w.client, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnSilence: func(on bool, m string) { w.silences = append(w.silences, fmt.Sprint(on)) },
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

func (w *world) GetByUID(uid string) (*v1alpha1.Cluster, bool) {
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

func (w *world) putCluster(c *v1alpha1.Cluster) {
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

// dropCluster a Cluster that was removed from the table.
func (w *world) dropCluster(name string) {
	w.mu.Lock()
	delete(w.byName, name)
	w.mu.Unlock()
	for _, fn := range w.fns {
		fn(name)
	}
}

// joinClusters brings up the streams of the first n clusters, with inventory.
func (w *world) joinClusters(from, to int) {
	for i := from; i < to; i++ {
		uid := fmt.Sprintf("u%d", i)
		w.StreamUp(uid, "TLS")
		w.RecordInventory(uid, healthyInventory())
	}
	synctest.Wait()
}

func (w *world) loseClusters(from, to int) {
	for i := from; i < to; i++ {
		w.StreamDown(fmt.Sprintf("u%d", i), time.Now())
	}
	synctest.Wait()
}

// advanceClock time and let all settle.
func advanceClock(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) readyReason(name string) string {
	c, _ := w.Get(name)
	cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterReady)
	if cond == nil {
		return "none"
	}
	return string(cond.Status) + " " + cond.Reason
}

func (w *world) expectReady(name, want string) {
	w.t.Helper()
	if got := w.readyReason(name); got != want {
		w.t.Errorf("Ready of %s is %q, want %q", name, got, want)
	}
}

func healthyInventory() *pb.Inventory {
	return &pb.Inventory{
		KubernetesVersion: "v1.36.3", AgentVersion: "test", NodesTotal: 3, NodesReady: 3, MemberReady: true,
		Allocatable: map[string]string{"cpu": "12", "memory": "24Gi"}, Requested: map[string]string{"cpu": "1500m"},
	}
}

func TestReadyFollowsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			w.expectReady("c0", "none") // it is about to connect
			advanceClock(settle)
			w.expectReady("c0", "Unknown NeverConnected")
			w.StreamUp("u0", "TLS")
			synctest.Wait()
			w.expectReady("c0", "Unknown NeverConnected") // nothing is known of the member yet
			w.RecordInventory("u0", healthyInventory())
			synctest.Wait()
			w.expectReady("c0", "True AgentConnected")
			c, _ := w.Get("c0")
			if c.Status.Nodes.Summary != "3/3" || c.Status.Resources.Allocatable.Cpu().Value() != 12 {
				t.Errorf("status is %+v", c.Status)
			}
			w.loseClusters(0, 1)
			advanceClock(34 * time.Second)
			w.expectReady("c0", "True AgentConnected")
			advanceClock(2 * time.Second)
			w.expectReady("c0", "Unknown StreamLost")
			w.StreamUp("u0", "TLS")
			synctest.Wait()
			w.expectReady("c0", "Unknown StreamLost") // until the member is known to answer
			w.RecordInventory("u0", healthyInventory())
			synctest.Wait()
			w.expectReady("c0", "True AgentConnected")
		})
	})
}

func TestJoinIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		w.run(func() {
			advanceClock(time.Second)
			for i := range 100 {
				w.StreamUp(fmt.Sprintf("u%d", i), "TLS")
			}
			advanceClock(time.Second)
			for i := range 100 {
				w.RecordInventory(fmt.Sprintf("u%d", i), healthyInventory())
				w.RecordUnclaimed(fmt.Sprintf("u%d", i), nil)
			}
			advanceClock(time.Hour)
			if n := w.writes.Load(); n != 100 {
				t.Errorf("%d writes of 100 clusters that joined", n)
			}
			w.expectReady("c99", "True AgentConnected")
		})
	})
}

func TestNoPeriodicWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.run(func() {
			w.joinClusters(0, 3)
			before := w.writes.Load()
			advanceClock(24 * time.Hour)
			for range 10 { // streams that break and come back cost nothing
				w.loseClusters(0, 1)
				advanceClock(5 * time.Second)
				w.joinClusters(0, 1)
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
			w.joinClusters(0, 1)
			advanceClock(time.Minute)
			before := w.writes.Load()
			for i := range 20 {
				inv := healthyInventory()
				inv.NodesReady = int32(i % 3)
				w.RecordInventory("u0", inv)
				advanceClock(500 * time.Millisecond)
			}
			advanceClock(10 * time.Second)
			if n := w.writes.Load() - before; n > 4 {
				t.Errorf("%d writes for 20 changes within 10 s", n)
			}
			c, _ := w.Get("c0")
			if c.Status.Nodes.Ready != 19%3 {
				t.Errorf("the last inventory did not arrive: %+v", c.Status.Nodes)
			}
			broken := healthyInventory()
			broken.MemberReady, broken.MemberMessage = false, "connection refused"
			w.RecordInventory("u0", broken)
			synctest.Wait()
			w.expectReady("c0", "False MemberNotReady") // at once
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
			advanceClock(34 * time.Second)
			w.expectReady("c0", "True AgentConnected")
			w.joinClusters(1, 2)
			advanceClock(2 * time.Second)
			w.expectReady("c0", "Unknown StreamLost")
			w.expectReady("c1", "True AgentConnected")
		})
	})
}

func TestMassSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 40)
		w.run(func() {
			w.joinClusters(0, 40)
			advanceClock(time.Minute)
			before := w.writes.Load()
			w.loseClusters(0, 9) // 22.5 %
			advanceClock(time.Hour)
			if n := w.writes.Load() - before; n != 0 || w.CountHeldSilences() != 9 {
				t.Errorf("%d writes and %d held when 9 of 40 fell silent", n, w.CountHeldSilences())
			}
			w.expectReady("c0", "True AgentConnected")
			w.joinClusters(0, 1) // 8 of 40 is 20 %: no longer too many
			if w.CountHeldSilences() != 0 {
				t.Errorf("still %d held", w.CountHeldSilences())
			}
			advanceClock(34 * time.Second) // in which the others may come back too
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes while the fleet comes back", n)
			}
			advanceClock(2 * time.Second)
			w.expectReady("c0", "True AgentConnected")
			w.expectReady("c1", "Unknown StreamLost")
			if !slices.Equal(w.silences, []string{"true", "false"}) {
				t.Errorf("reported %v", w.silences)
			}
		})
	})
}

func TestFewSilentAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.run(func() {
			w.joinClusters(0, 3)
			w.loseClusters(0, 3) // all, but three are not a fleet
			advanceClock(36 * time.Second)
			for i := range 3 {
				w.expectReady(fmt.Sprintf("c%d", i), "Unknown StreamLost")
			}
		})
	})
}

func TestSlowLossesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20)
		w.run(func() {
			w.joinClusters(0, 20)
			for i := range 10 { // half of the fleet, one every half minute
				w.loseClusters(i, i+1)
				advanceClock(30 * time.Second)
			}
			advanceClock(10 * time.Second)
			for i := range 9 {
				w.expectReady(fmt.Sprintf("c%d", i), "Unknown StreamLost")
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
			w.joinClusters(0, 1)
			advanceClock(settle)
			before := w.writes.Load()
			ends := time.Now().Add(24 * time.Hour)
			for range 10 {
				w.RecordCertificate("u0", ends, 1, false)
				advanceClock(12 * time.Hour)
				ends = ends.Add(12 * time.Hour)
			}
			if n := w.writes.Load() - before; n != 0 {
				t.Errorf("%d writes of renewals", n)
			}
			if got, generation, ok := w.CertificateOf("u0"); !ok || generation != 1 || !got.Equal(ends.Add(-12*time.Hour).Truncate(time.Second)) {
				t.Errorf("known: %s, %d, %t", got, generation, ok)
			}
			expiring := func() *metav1.Condition {
				advanceClock(settle)
				c, _ := w.Get("c0")
				return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring)
			}
			w.RecordCertificate("u0", ends, 1, true)
			if c := expiring(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "NotRenewed" || !strings.Contains(c.Message, ends.UTC().Format(time.RFC3339)) {
				t.Errorf("overdue: %+v", c)
			}
			w.RecordCertificate("u0", ends, 1, true)
			w.RecordCertificate("u0", ends.Add(time.Hour), 1, false)
			if c := expiring(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "NoRenewalOverdue" {
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
			w.putCluster(c)
			w.joinClusters(0, 1)
			w.RecordUnclaimed("u0", []string{"b1", "b2"})
			synctest.Wait()
			c, _ = w.Get("c0")
			if u := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterUnclaimed); u == nil || u.Status != metav1.ConditionTrue {
				t.Errorf("Unclaimed is %+v", u)
			}
			w.loseClusters(0, 1)
			w.joinClusters(0, 1)
			w.RecordUnclaimed("u0", nil)
			advanceClock(settle)
			c, _ = w.Get("c0")
			if u := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterUnclaimed); u == nil || u.Status != metav1.ConditionFalse || u.Message != "" {
				t.Errorf("Unclaimed stays: %+v", u)
			}
		})
	})
}

// A Cluster that is read and deleted at the same time leaves nothing behind: it must not count in
// the fleet, nor as silent in it.
func TestNothingIsLeftOfAClusterThatGoesWhileItIsRead(t *testing.T) {
	joined := func(c *v1alpha1.Cluster) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue, Reason: "AgentConnected"})
	}
	for what, read := range map[string]func(*world) error{
		"noted": func(w *world) error { w.recordAndEnqueueCluster("c0"); return nil },
		"reconciled": func(w *world) error {
			_, err := w.reconcileCluster(w.t.Context(), "c0")
			return err
		},
		"reported": func(w *world) error {
			w.dropCluster("c0")
			w.StreamDown("u0", time.Now())
			return nil
		},
		"reported by another hub": func(w *world) error {
			w.SetRemoteStream("u0", true, time.Now())
			w.dropCluster("c0")
			w.SetRemoteStream("u0", true, time.Now())
			w.SetRemoteStream("u0", false, time.Now())
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 1, joined)
			defer w.loop.Close()
			w.recordAndEnqueueCluster("c0")
			gone := make(chan struct{})
			w.meanwhile = func() {
				w.remove("c0") // no write can succeed any more, and be seen after the deletion
				free := w.ClusterStatusReconciler.mu.TryLock()
				if free {
					w.ClusterStatusReconciler.mu.Unlock()
				}
				go func() {
					w.dropCluster("c0")
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
