package decommission

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/state"
)

// tables over a store in memory.
type tables struct {
	client.Client
	mu       sync.Mutex
	reported []string
	rows     []state.Row
	lost     map[string]bool            // Revisions that are not there
	items    map[string][]atoll.ItemKey // by Revision; else a Deployment
	reads    int                        // of Revisions
	broken   map[string]bool            // that cannot be read just now
	online   bool
	holds    string // why the hub does
	look     []func(string)
	held     []func()
	moved    []func(string, []string)
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

func (m *tables) IsOnline(string) bool       { return m.online }
func (m *tables) Subscribe(fn func(string))  { m.look = append(m.look, fn) }
func (m *tables) HoldReason() (string, bool) { return m.holds, m.holds != "" }

type memRows struct{ *tables }

func (m memRows) ListOfCluster(string) []state.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rows
}
func (m memRows) Subscribe(fn func(string, []string)) { m.moved = append(m.moved, fn) }

type memHub struct{ *tables }

func (m memHub) Subscribe(fn func()) { m.held = append(m.held, fn) }

type memRevisions struct{ *tables }

var deployment = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}

func (m memRevisions) GetContent(_ context.Context, name string) (*atoll.Content, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if m.lost[name] {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "revisions"}, name)
	}
	if m.broken[name] {
		return nil, errors.New("part p of it is damaged")
	}
	keys, has := m.items[name]
	if !has {
		keys = []atoll.ItemKey{deployment}
	}
	c := &atoll.Content{}
	for _, k := range keys {
		c.Items = append(c.Items, atoll.Item{Key: k})
	}
	return c, nil
}

func newTables(t *testing.T, removal *v1alpha1.ClusterRemoval, rows ...state.Row) (*tables, *RemovalReconciler) {
	t.Helper()
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "tokyo", UID: "u"},
		Spec:       v1alpha1.ClusterSpec{Accepted: true, Removal: removal},
		Status:     v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterJoined, Status: metav1.ConditionTrue, Reason: "AgentConnected"}}},
	}
	m := &tables{rows: rows, online: true}
	m.Client = ctrlfake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(c).WithObjects(c).Build()
	r := New(Config{Clusters: m, Rows: memRows{m}, Revisions: memRevisions{m}, Hub: memHub{m}, Client: m.Client, Serving: m.Client,
		NotifyAdmin: func(c *v1alpha1.Cluster, reason atoll.Reason, message string) {
			m.reported = append(m.reported, c.Name+" "+string(reason)+": "+message)
		}})
	return m, r
}

func (m *tables) notifyChanged() {
	for _, fn := range m.look {
		fn("tokyo")
	}
}

func (m *tables) getCluster(t *testing.T) *v1alpha1.Cluster {
	t.Helper()
	c, ok := m.Get("tokyo")
	if !ok {
		t.Fatal("the Cluster is gone")
	}
	return c
}

func TestProgressIsSaidAndTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan}, newRow("web", atoll.RowRemoving, "", nil), newRow("api", atoll.RowRemoving, "", nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		c := m.getCluster(t)
		if s := c.Status.Removal; s == nil || s.Bundles != 2 || s.Gone != 0 {
			t.Fatalf("at first: %+v", s)
		}
		version := c.ResourceVersion
		m.notifyChanged()
		time.Sleep(time.Minute)
		if got := m.getCluster(t).ResourceVersion; got != version {
			t.Errorf("what is no news was written")
		}

		m.mu.Lock()
		m.rows = m.rows[:1]
		m.mu.Unlock()
		m.notifyChanged() // the table of Clusters, since its status was written
		for _, fn := range m.moved {
			fn("b-api", []string{"tokyo", "oslo"})
		}
		time.Sleep(2 * gather)
		synctest.Wait()
		c = m.getCluster(t)
		if cond := removalCondition(c); cond == nil || !strings.HasPrefix(cond.Message, "1 of 2 bundles are gone") || c.Status.Removal.Gone != 1 {
			t.Fatalf("then: %+v, %+v", cond, c.Status.Removal)
		}

		c.Spec.Removal = nil
		if err := m.Update(ctx, c); err != nil {
			t.Fatal(err)
		}
		m.notifyChanged()
		synctest.Wait()
		if c = m.getCluster(t); removalCondition(c) != nil || c.Status.Removal != nil || !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined) {
			t.Errorf("a removal that was taken back is still reported: %+v", c.Status)
		}
		cancel()
		synctest.Wait()
	})
}

// rowAtRevision returns a row of the Bundle at the Revision.
func rowAtRevision(name, revision string, phase atoll.RowPhase) state.Row {
	r := newRow(name, phase, "", nil)
	r.Spec.Revision = revision
	return r
}

// A cluster is not cleaned before its loss is confirmed, once for each plan. An edit of an object
// makes no other plan; an added item does, Bundles that leave by themselves, and another removal.
// A confirmed removal goes on while its content shrinks.
func TestACleanRemovalAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
		of := rowAtRevision
		web, api := of("web", "r1", atoll.RowActive), of("api", "conf", atoll.RowActive)
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, web, api, of("gone", "lost", atoll.RowRemoving))
		m.items = map[string][]atoll.ItemKey{"conf": {conf}, "r3": {deployment, {Kind: "ConfigMap", Namespace: "shop", Name: "more"}}}
		m.lost = map[string]bool{"lost": true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		looks := func(rows ...state.Row) (plan string) {
			t.Helper()
			m.mu.Lock()
			m.rows = rows
			m.mu.Unlock()
			m.notifyChanged()
			time.Sleep(time.Minute)
			synctest.Wait()
			return m.getCluster(t).Status.Removal.Plan
		}
		writes := func(edit func(c *v1alpha1.Cluster)) {
			t.Helper()
			c := m.getCluster(t)
			edit(c)
			if err := m.Update(ctx, c); err != nil {
				t.Fatal(err)
			}
			m.notifyChanged()
			synctest.Wait()
		}
		synctest.Wait()
		c := m.getCluster(t)
		plan := c.Status.Removal.Plan
		if cond := removalCondition(c); plan == "" || cond.Reason != string(atoll.ReasonWaitsForConfirmation) || !strings.Contains(cond.Message, "atoll confirm cluster/tokyo --plan "+plan) {
			t.Fatalf("plan %q, %+v", plan, cond)
		}
		if len(m.reported) != 1 || !strings.HasPrefix(m.reported[0], "tokyo RemovalHeld: nothing is removed yet: what Atoll applied of 2 bundles") {
			t.Errorf("reported: %q", m.reported)
		}
		if again := looks(of("web", "r2", atoll.RowActive), api); again != plan || len(m.reported) != 1 {
			t.Errorf("after an edit of an object: plan %q after %q, reported %q", again, plan, m.reported)
		}
		more := looks(of("web", "r3", atoll.RowActive), api)
		if more == plan || more == "" || len(m.reported) != 2 {
			t.Errorf("with an item on top: plan %q after %q, reported %q", more, plan, m.reported)
		}
		// A hub whose tables lag has let in what was confirmed before that.
		writes(func(c *v1alpha1.Cluster) { c.Spec.Removal.Confirm = plan })
		if c := m.getCluster(t); c.Status.Removal.Plan != more || c.Status.Removal.Confirmed != "" || !c.IsRemovalHeld() || !strings.Contains(removalCondition(c).Message, "what was confirmed is another plan") {
			t.Errorf("another plan was carried out: %+v, %+v", c.Status.Removal, removalCondition(c))
		}
		m.lost["r4"] = true
		if is := looks(of("web", "r4", atoll.RowActive), api); is != "" || !m.getCluster(t).IsRemovalHeld() || !strings.Contains(removalCondition(m.getCluster(t)).Message, "what would be is not known") {
			t.Errorf("where a Revision is not known: plan %q, %+v", is, removalCondition(m.getCluster(t)))
		}
		less := looks(web, of("api", "conf", atoll.RowRemoving))
		if less == plan || less == "" {
			t.Errorf("where a Bundle leaves by itself: plan %q after %q", less, plan)
		}
		writes(func(c *v1alpha1.Cluster) {
			c.Annotations = map[string]string{atoll.AnnotationRemovalRequested: "later"}
		})
		anew := m.getCluster(t).Status.Removal.Plan
		if anew == less || anew == "" {
			t.Errorf("of another removal: plan %q after %q", anew, less)
		}
		writes(func(c *v1alpha1.Cluster) { c.Spec.Removal.Confirm = anew })
		if c := m.getCluster(t); c.Status.Removal.Plan != "" || c.IsRemovalHeld() || removalCondition(c).Reason == string(atoll.ReasonWaitsForConfirmation) {
			t.Errorf("it still asks: %+v, %+v", c.Status.Removal, removalCondition(c))
		}
		if is := looks(of("web", "r1", atoll.RowRemoving)); is != "" || m.getCluster(t).IsRemovalHeld() {
			t.Errorf("on its way, it asks again: plan %q", is)
		}
		cancel()
		synctest.Wait()
	})
}

// Rows of a cluster that waits for the confirmation report for as long as that takes. Their
// content is not read again for it.
func TestWhatRowsReportIsNoOtherPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}, newRow("web", atoll.RowActive, "", nil), newRow("api", atoll.RowActive, "", nil))
		ctx, cancel := context.WithCancel(t.Context())
		go r.Run(ctx)
		synctest.Wait()
		plan, reads := m.getCluster(t).Status.Removal.Plan, m.reads
		for i := range 10 {
			m.mu.Lock()
			m.rows = []state.Row{newRow("api", atoll.RowActive, "", &atoll.RowStatus{Seq: int64(i)}), newRow("web", atoll.RowActive, "", nil)}
			m.mu.Unlock()
			for _, fn := range m.moved {
				fn("api", []string{"tokyo"})
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if m.reads != reads || reads == 0 || plan == "" || m.getCluster(t).Status.Removal.Plan != plan {
			t.Errorf("%d more Revisions were read after %d; the plan is %q, was %q", m.reads-reads, reads, m.getCluster(t).Status.Removal.Plan, plan)
		}
		cancel()
		synctest.Wait()
	})
}

// An item that override rules exclude from the cluster is no part of the loss.
func TestThePlanIsOfWhatIsThere(t *testing.T) {
	m, _ := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean})
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	m.items = map[string][]atoll.ItemKey{"r": {deployment, conf}}
	plan := func(notHere ...string) string {
		t.Helper()
		web := newRow("web", atoll.RowActive, "", nil)
		web.Spec.Absent = notHere
		plan, err := HashCleanPlan(t.Context(), memRevisions{m}, m.getCluster(t), []state.Row{web})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	both, one := plan(), plan(conf.String())
	if both == one || one != atoll.HashCleanPlan("u", "", []atoll.ItemKey{deployment}) {
		t.Errorf("with an object that is not there the plan is %s, without it %s", both, one)
	}
}

// A cluster may have had more than one object of the store holds.
func TestWhatIsWrittenDownIsBounded(t *testing.T) {
	line := strings.Repeat("x", 299)
	got := joinLinesBounded(slices.Repeat([]string{line}, 2000))
	kept := recordMost / (len(line) + 1)
	if want := fmt.Sprintf("\nand %d more\n", 2000-kept); !strings.HasSuffix(got, want) || strings.Count(got, line) != kept {
		t.Errorf("%d bytes, %d lines, the end is %q, want %q", len(got), strings.Count(got, line), got[len(got)-40:], want)
	}
}

func TestAForcedRemovalWritesDownWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan, Force: true},
			newRow("web", atoll.RowActive, "", &atoll.RowStatus{State: atoll.RowReady}),
			newRow("never", atoll.RowActive, "", nil),
			newRow("gone", atoll.RowRemoving, "", &atoll.RowStatus{State: atoll.RowRemoved}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		if _, there := m.Get("tokyo"); there {
			t.Fatal("the Cluster is still there")
		}
		var record corev1.ConfigMap
		if err := m.Client.Get(ctx, client.ObjectKey{Namespace: atoll.SystemNamespace, Name: atoll.RemovedRecordName("tokyo")}, &record); err != nil {
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
	old := m.getCluster(t)
	back := m.getCluster(t)
	back.Spec.Removal = nil
	if err := m.Update(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := r.ForgetDepartedCluster(t.Context(), back, nil); err == nil {
		t.Error("a cluster that stays was forgotten")
	}
	if err := r.ForgetDepartedCluster(t.Context(), old, nil); !apierrors.IsConflict(err) {
		t.Errorf("a removal that was taken back in between: %v", err)
	}
	back.Spec.Removal = &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterClean}
	if err := m.Update(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := r.ForgetDepartedCluster(t.Context(), back, []string{strings.Repeat("x", 10_000)}); err != nil {
		t.Fatal(err)
	}
	if _, there := m.Get("tokyo"); there {
		t.Error("it was not forgotten")
	}
	var record corev1.ConfigMap
	if err := m.Client.Get(t.Context(), client.ObjectKey{Namespace: atoll.SystemNamespace, Name: atoll.RemovedRecordName("tokyo")}, &record); err != nil || len(record.Data["behind"]) > 400 {
		t.Errorf("what an agent says is written whole: %d bytes, %v", len(record.Data["behind"]), err)
	}
}

// The Cluster can be read after any time that an agent reports: an unreadable one would keep the
// hub from reading all of them.
func TestNoTimeOfAnAgentSpoilsItsCluster(t *testing.T) {
	for _, since := range []int64{math.MinInt64, math.MinInt64 / 1000, -1 << 40, 0, 253402300800, 1 << 40, math.MaxInt64} {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan})
		if err := r.RecordDepartureBlocker(t.Context(), m.getCluster(t), "a finalizer", time.Unix(since, 0)); err != nil {
			t.Fatal(err)
		}
		var c v1alpha1.Cluster
		if err := m.Client.Get(t.Context(), client.ObjectKey{Name: "tokyo"}, &c); err != nil {
			t.Errorf("%d: %v", since, err)
			continue
		}
		if at := c.Status.Removal.AgentWaitsSince; at != nil && at.After(time.Now()) {
			t.Errorf("%d: it waits since %s", since, at)
		}
	}
}

// The agent's blocker is in the condition, and goes with the wait.
func TestWhatTheAgentWaitsForIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newTables(t, &v1alpha1.ClusterRemoval{Mode: v1alpha1.ClusterOrphan})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		synctest.Wait()
		old := m.getCluster(t)
		if removalCondition(old).Reason != string(atoll.ReasonAgentLeaves) {
			t.Fatalf("at first: %+v", removalCondition(old))
		}
		since := time.Date(1999, 12, 31, 3, 4, 5, 0, time.UTC)
		waits := func(why string) {
			t.Helper()
			if err := r.RecordDepartureBlocker(ctx, m.getCluster(t), why, since); err != nil {
				t.Fatal(err)
			}
			m.notifyChanged()
			synctest.Wait()
		}
		waits("Namespace shop: a finalizer")
		c := m.getCluster(t)
		if got := removalCondition(c); got.Reason != string(atoll.ReasonWaitsForMember) || !strings.Contains(got.Message, "since 1999-12-31T03:04:05Z: Namespace shop: a finalizer; that is for the member's administrator") {
			t.Errorf("while it waits: %+v", got)
		}
		began := since
		since = time.Now()
		waits("Namespace shop: a finalizer") // as the next session tells it
		if again := m.getCluster(t); again.ResourceVersion != c.ResourceVersion || !again.Status.Removal.AgentWaitsSince.Time.Equal(began) {
			t.Errorf("reported again: %+v", again.Status.Removal)
		}
		if err := r.RecordDepartureBlocker(ctx, old, "something else", since); !apierrors.IsConflict(err) {
			t.Errorf("over a newer Cluster: %v", err)
		}
		waits("")
		if c := m.getCluster(t); removalCondition(c).Reason != string(atoll.ReasonAgentLeaves) || c.Status.Removal.AgentWaitsFor != "" || c.Status.Removal.AgentWaitsSince != nil {
			t.Errorf("afterwards: %+v, %+v", removalCondition(c), c.Status.Removal)
		}
		cancel()
		synctest.Wait()
	})
}
