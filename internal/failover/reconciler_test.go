package failover

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// hub is the tables and the store of a hub. Each write of the store is in the tables at once.
type hub struct {
	t      *testing.T
	client client.Client

	mu       sync.Mutex
	changed  func(name string)
	edited   func(name string)
	writes   int
	events   []string
	settings *v1alpha1.ClusterFailover
	// written runs after each write of a Cluster; nil: nothing.
	written func()
}

func newHub(t *testing.T, clusters int, failover *v1alpha1.ClusterFailover) *hub {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	h := &hub{t: t, settings: failover}
	objects := []client.Object{&v1alpha1.HubSettings{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.HubSettingsName}, Spec: v1alpha1.HubSettingsSpec{Failover: failover}}}
	for i := range clusters {
		objects = append(objects, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}, Spec: v1alpha1.ClusterSpec{Accepted: true}, Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{
			{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue}, {Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()},
		}}})
	}
	h.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.HubSettings{}, &v1alpha1.Cluster{}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			h.mu.Lock()
			h.writes++
			h.mu.Unlock()
			if h.changed(obj.GetName()); h.written != nil {
				h.written()
			}
			return nil
		}}).Build()
	return h
}

func (h *hub) Get(name string) (*v1alpha1.Cluster, bool) {
	c := &v1alpha1.Cluster{}
	return c, h.client.Get(context.Background(), client.ObjectKey{Name: name}, c) == nil
}

func (h *hub) List() (out []*v1alpha1.Cluster) {
	var l v1alpha1.ClusterList
	if err := h.client.List(context.Background(), &l); err != nil {
		h.t.Error(err)
	}
	for i := range l.Items {
		out = append(out, &l.Items[i])
	}
	return out
}

func (h *hub) Subscribe(fn func(name string)) { h.changed = fn }

// hubSettings are the HubSettings of a hub.
type hubSettings struct{ *hub }

func (s hubSettings) Failover() *v1alpha1.ClusterFailover {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

func (s hubSettings) Subscribe(fn func(name string)) { s.edited = fn }

// setReady reports a cluster as ready or not.
func (h *hub) setReady(name string, status metav1.ConditionStatus) {
	c, _ := h.Get(name)
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ClusterReady, Status: status, Reason: "Test"})
	if err := h.client.Status().Update(context.Background(), c); err != nil {
		h.t.Error(err)
	}
	h.changed(name)
}

// stateFailover edits the HubSettings.
func (h *hub) stateFailover(s *v1alpha1.ClusterFailover) {
	var obj v1alpha1.HubSettings
	if err := h.client.Get(context.Background(), client.ObjectKey{Name: v1alpha1.HubSettingsName}, &obj); err != nil {
		h.t.Error(err)
	}
	obj.Spec.Failover = s
	if err := h.client.Update(context.Background(), &obj); err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	h.settings = s
	h.mu.Unlock()
	h.edited(v1alpha1.HubSettingsName)
}

// listTainted lists the clusters with a taint of the hub.
func (h *hub) listTainted() string {
	var names []string
	for _, c := range h.List() {
		for _, taint := range c.Spec.Taints {
			names = append(names, c.Name+"="+strings.TrimPrefix(taint.Key, "atoll.dev/"))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// pauseStatus returns the status of the condition FailoverPaused; empty: there is none.
func (h *hub) pauseStatus() metav1.ConditionStatus {
	var obj v1alpha1.HubSettings
	if err := h.client.Get(context.Background(), client.ObjectKey{Name: v1alpha1.HubSettingsName}, &obj); err != nil {
		h.t.Error(err)
	}
	if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.HubFailoverPaused); c != nil {
		return c.Status
	}
	return ""
}

// runReconciler runs a reconciler while the test goes on, in a bubble of virtual time.
func (h *hub) runReconciler(t *testing.T, test func(metrics *prometheus.Registry)) {
	ctx, cancel := context.WithCancel(t.Context())
	metrics := prometheus.NewRegistry()
	r := New(Config{
		Clusters: h, Settings: hubSettings{h}, Client: h.client, Metrics: metrics, Log: slog.New(slog.DiscardHandler),
		NotifyAdmin: func(c *v1alpha1.Cluster, reason atoll.Reason, _ string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, c.Name+" "+string(reason))
		},
	})
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	test(metrics)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	time.Sleep(time.Minute) // queues end their goroutines a moment later
}

func failoverAfter(d time.Duration) *v1alpha1.ClusterFailover {
	return &v1alpha1.ClusterFailover{After: metav1.Duration{Duration: d}}
}

func passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestALostClusterGetsATaintAndLosesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, 3, failoverAfter(5*time.Minute))
		h.runReconciler(t, func(metrics *prometheus.Registry) {
			passTime(time.Hour)
			h.setReady("c0", metav1.ConditionUnknown)
			h.setReady("c1", metav1.ConditionFalse)
			if passTime(5*time.Minute - time.Second); h.listTainted() != "" || h.writes != 0 {
				t.Errorf("early: %q, %d writes", h.listTainted(), h.writes)
			}
			// Two of three are lost, which is too many.
			if passTime(time.Hour); h.listTainted() != "" || h.pauseStatus() != metav1.ConditionTrue {
				t.Errorf("too many lost: %q, paused %s", h.listTainted(), h.pauseStatus())
			}
			if n, err := testutil.GatherAndCount(metrics, "atoll_failover_clusters"); n != 3 || err != nil {
				t.Errorf("%d series, %v", n, err)
			}
			h.setReady("c1", metav1.ConditionTrue)
			if passTime(time.Second); h.listTainted() != "c0=unreachable" || h.pauseStatus() != metav1.ConditionFalse || h.writes != 1 {
				t.Errorf("one lost: %q, paused %s, %d writes", h.listTainted(), h.pauseStatus(), h.writes)
			}
			h.setReady("c0", metav1.ConditionTrue)
			if passTime(59 * time.Second); h.listTainted() != "c0=unreachable" {
				t.Errorf("just back: %q", h.listTainted())
			}
			if passTime(2 * time.Second); h.listTainted() != "" || h.writes != 2 {
				t.Errorf("back: %q, %d writes", h.listTainted(), h.writes)
			}
			if want := []string{"c0 ClusterTainted", "c0 TaintRemoved"}; !slices.Equal(h.events, want) {
				t.Errorf("events %q, want %q", h.events, want)
			}
		})
	})
}

// Clusters that are silent when the hub starts have two minutes to come back, however long they are lost.
func TestAStartOfTheHubTaintsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, 3, failoverAfter(time.Minute))
		h.changed = func(string) {}
		h.setReady("c2", metav1.ConditionFalse)
		passTime(time.Hour)
		h.runReconciler(t, func(*prometheus.Registry) {
			if passTime(startGrace - time.Second); h.listTainted() != "" {
				t.Errorf("within the grace period: %q", h.listTainted())
			}
			if passTime(2 * time.Second); h.listTainted() != "c2=not-ready" {
				t.Errorf("after it: %q", h.listTainted())
			}
		})
	})
}

// Without a failover the hub tracks nothing, and removes the taints that it added before.
func TestTheSettingsTurnItOnAndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, 3, nil)
		h.runReconciler(t, func(*prometheus.Registry) {
			h.setReady("c0", metav1.ConditionUnknown)
			if passTime(time.Hour); h.listTainted() != "" || h.pauseStatus() != "" {
				t.Errorf("without a failover: %q, paused %q", h.listTainted(), h.pauseStatus())
			}
			h.stateFailover(failoverAfter(30 * time.Second))
			if passTime(time.Second); h.listTainted() != "c0=unreachable" || h.pauseStatus() != metav1.ConditionFalse {
				t.Errorf("with one: %q, paused %q", h.listTainted(), h.pauseStatus())
			}
			h.stateFailover(nil)
			if passTime(time.Second); h.listTainted() != "" || h.pauseStatus() != "" {
				t.Errorf("without one again: %q, paused %q", h.listTainted(), h.pauseStatus())
			}
		})
	})
}

// An edit of the settings neither ends a pause nor hurries: all clusters count before one is judged, and the rates go on.
func TestAnEditKeepsThePauseAndTheRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, 10, failoverAfter(time.Minute))
		h.runReconciler(t, func(*prometheus.Registry) {
			passTime(time.Hour)
			for i := 4; i < 10; i++ {
				h.setReady(fmt.Sprint("c", i), metav1.ConditionUnknown)
			}
			for i := range 5 {
				passTime(10 * time.Minute)
				h.stateFailover(failoverAfter(time.Minute + time.Duration(i)*time.Second))
				passTime(time.Second)
				if got := h.listTainted(); got != "" {
					t.Fatalf("tainted during the pause, after %d edits: %s", i+1, got)
				}
			}
			h.stateFailover(nil)
			passTime(time.Second)
			h.stateFailover(failoverAfter(time.Minute))
			if passTime(time.Second); h.listTainted() != "" {
				t.Fatalf("tainted during the pause, after the failover was stated again: %s", h.listTainted())
			}
			h.setReady("c9", metav1.ConditionTrue)
			if passTime(time.Second); len(strings.Fields(h.listTainted())) != 1 {
				t.Fatalf("tainted after the pause: %s", h.listTainted())
			}
			for i := range 5 {
				h.stateFailover(failoverAfter(time.Minute + time.Duration(i)*time.Second))
				passTime(time.Second)
			}
			if got := h.listTainted(); len(strings.Fields(got)) != 1 {
				t.Fatalf("tainted within 10 s: %s", got)
			}
		})
	})
}

// A taint is reported although the failover is unstated while it is written.
func TestTheSettingsGoWhileATaintIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, 3, failoverAfter(time.Minute))
		h.written = func() {
			h.written = nil
			h.stateFailover(nil)
		}
		h.runReconciler(t, func(*prometheus.Registry) {
			passTime(time.Hour)
			h.setReady("c0", metav1.ConditionUnknown)
			passTime(time.Hour)
			if got := fmt.Sprint(h.events, h.listTainted()); got != "[c0 ClusterTainted c0 TaintRemoved]" {
				t.Errorf("events and taints: %s", got)
			}
		})
	})
}

// A taint follows the loss: a cluster that connects again and is not ready has the taint that says so, since the same time.
func TestATaintFollowsTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, 3, failoverAfter(time.Minute))
		h.runReconciler(t, func(*prometheus.Registry) {
			passTime(time.Hour)
			h.setReady("c0", metav1.ConditionUnknown)
			passTime(2 * time.Minute)
			c, _ := h.Get("c0")
			since := c.Spec.Taints[0].TimeAdded
			for status, want := range map[metav1.ConditionStatus]string{metav1.ConditionFalse: "c0=not-ready", metav1.ConditionUnknown: "c0=unreachable"} {
				h.setReady("c0", status)
				passTime(20 * time.Second)
				if c, _ := h.Get("c0"); h.listTainted() != want || !c.Spec.Taints[0].TimeAdded.Equal(since) {
					t.Errorf("%s: %s since %s, want %s since %s", status, h.listTainted(), c.Spec.Taints[0].TimeAdded, want, since)
				}
			}
		})
	})
}
