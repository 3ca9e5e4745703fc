package leave

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// tables over a store in memory.
type tables struct {
	client.Client
	mu     sync.Mutex
	rows   []state.Row
	online bool
	look   []func(string)
	moved  []func(string, []string)
}

func (m *tables) Get(name string) (*v1alpha1.Cluster, bool) {
	var c v1alpha1.Cluster
	err := m.Client.Get(context.Background(), client.ObjectKey{Name: name}, &c)
	return &c, err == nil
}

func (m *tables) List() []*v1alpha1.Cluster {
	c, ok := m.Get("tokyo")
	if !ok {
		return nil
	}
	return []*v1alpha1.Cluster{c}
}

func (m *tables) Online(string) bool        { return m.online }
func (m *tables) Subscribe(fn func(string)) { m.look = append(m.look, fn) }
func (m *tables) Holding() (string, bool)   { return "", false }

type memRows struct{ *tables }

func (m memRows) OfCluster(string) []state.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows
}
func (m memRows) Subscribe(fn func(string, []string)) { m.moved = append(m.moved, fn) }

type memHub struct{ *tables }

func (memHub) Subscribe(func()) {}

type memRevisions struct{}

func (memRevisions) Content(context.Context, string) (*atoll.Content, error) {
	return &atoll.Content{Items: []atoll.Item{{Key: atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}}}}, nil
}

func newTables(t *testing.T, removal *v1alpha1.ClusterRemoval, rows ...state.Row) (*tables, *Reconciler) {
	t.Helper()
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "tokyo", UID: "u"},
		Spec:       v1alpha1.ClusterSpec{Accepted: true, Removal: removal},
		Status:     v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue, Reason: "AgentConnected"}}},
	}
	m := &tables{rows: rows, online: true}
	m.Client = ctrlfake.NewClientBuilder().WithScheme(state.Scheme()).WithStatusSubresource(c).WithObjects(c).Build()
	r := New(Config{Clusters: m, Rows: memRows{m}, Revisions: memRevisions{}, Hub: memHub{m}, Client: m.Client, Serving: m.Client})
	return m, r
}

func (m *tables) changed() {
	for _, fn := range m.look {
		fn("tokyo")
	}
}

func (m *tables) cluster(t *testing.T) *v1alpha1.Cluster {
	t.Helper()
	c, ok := m.Get("tokyo")
	if !ok {
		t.Fatal("the Cluster is gone")
	}
	return c
}

func TestProgressIsSaidAndTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, row("web", atoll.RowRemoving, "", nil), row("api", atoll.RowRemoving, "", nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		c := m.cluster(t)
		if s := c.Status.Removal; s == nil || s.Bundles != 2 || s.Gone != 0 {
			t.Fatalf("at first: %+v", s)
		}
		version := c.ResourceVersion
		m.changed()
		time.Sleep(time.Minute)
		if got := m.cluster(t).ResourceVersion; got != version {
			t.Errorf("what is no news was written")
		}

		m.mu.Lock()
		m.rows = m.rows[:1]
		m.mu.Unlock()
		m.changed() // the table of Clusters, since its status was written
		for _, fn := range m.moved {
			fn("b-api", []string{"tokyo", "oslo"})
		}
		time.Sleep(2 * gather)
		synctest.Wait()
		c = m.cluster(t)
		if cond := said(c); cond == nil || !strings.HasPrefix(cond.Message, "1 of 2 bundles are gone") || c.Status.Removal.Gone != 1 {
			t.Fatalf("then: %+v, %+v", cond, c.Status.Removal)
		}

		c.Spec.Removal = nil
		if err := m.Update(ctx, c); err != nil {
			t.Fatal(err)
		}
		m.changed()
		synctest.Wait()
		if c = m.cluster(t); said(c) != nil || c.Status.Removal != nil || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined) {
			t.Errorf("a removal that was taken back is still told: %+v", c.Status)
		}
		cancel()
		synctest.Wait()
	})
}

func TestAForcedRemovalWritesDownWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan, Force: true},
			row("web", atoll.RowActive, "", &atoll.RowStatus{State: atoll.RowReady}),
			row("never", atoll.RowActive, "", nil),
			row("gone", atoll.RowRemoving, "", &atoll.RowStatus{State: atoll.RowRemoved}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		if _, there := m.Get("tokyo"); there {
			t.Fatal("the Cluster is still there")
		}
		var record corev1.ConfigMap
		if err := m.Client.Get(ctx, client.ObjectKey{Namespace: atoll.SystemNamespace, Name: atoll.RemovedRecord("tokyo")}, &record); err != nil {
			t.Fatal(err)
		}
		if got, want := record.Data["behind"], "Deployment.apps shop/web (bundle shop/web)\n"; got != want {
			t.Errorf("written down is %q, want %q", got, want)
		}
		cancel()
		synctest.Wait()
	})
}

func TestWhoHasLeftIsForgottenAsItWasLookedAt(t *testing.T) {
	m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	old := m.cluster(t)
	back := m.cluster(t)
	back.Spec.Removal = nil
	if err := m.Update(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := r.Left(t.Context(), back, nil); err == nil {
		t.Error("a cluster that stays was forgotten")
	}
	if err := r.Left(t.Context(), old, nil); !apierrors.IsConflict(err) {
		t.Errorf("a removal that was taken back meanwhile: %v", err)
	}
	back.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}
	if err := m.Update(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := r.Left(t.Context(), back, []string{strings.Repeat("x", 10_000)}); err != nil {
		t.Fatal(err)
	}
	if _, there := m.Get("tokyo"); there {
		t.Error("it was not forgotten")
	}
	var record corev1.ConfigMap
	if err := m.Client.Get(t.Context(), client.ObjectKey{Namespace: atoll.SystemNamespace, Name: atoll.RemovedRecord("tokyo")}, &record); err != nil || len(record.Data["behind"]) > 400 {
		t.Errorf("what an agent says is written whole: %d bytes, %v", len(record.Data["behind"]), err)
	}
}
