package controller

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/delivery"
	"atoll.dev/atoll/internal/restore"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/state/statetest"
)

// fakeAgents is the gateway's sessions, with the reasons of their ends.
type fakeAgents struct {
	mu      sync.Mutex
	resets  []string
	highest int64
}

func (a *fakeAgents) ResetSessions(reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.resets = append(a.resets, reason)
}
func (a *fakeAgents) HighestReportedGeneration() int64 { return a.highest }

func (a *fakeAgents) takeResets() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.resets = nil }()
	return a.resets
}

// hub is a restored hub: a Controller over a State and an API server in memory.
type hub struct {
	*RestoreController
	agents *fakeAgents
	leads  bool

	mu     sync.Mutex
	refuse error // of updates and patches
}

var since = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func newHub(t *testing.T, objects ...client.Object) *hub {
	t.Helper()
	h := &hub{agents: &fakeAgents{highest: 70}, leads: true}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithRESTMapper(mapper).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if err := h.currentRefusal(); err != nil {
					return err
				}
				return c.Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := h.currentRefusal(); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, opts...)
			},
		}).Build()
	st := statetest.NewTables(t, c)
	h.RestoreController = New(st, c, func() bool { return h.leads }, slog.New(slog.DiscardHandler))
	h.SetAgents(h.agents)
	return h
}

func (h *hub) currentRefusal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuse
}

func (h *hub) setRefusal(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = err
}

// setState stores a HubState in the API server and in the table.
func (h *hub) setState(t *testing.T, change func(*enginev1.HubState)) {
	t.Helper()
	now, err := updateHubState(t.Context(), h.state.Client, func(old enginev1.HubState) enginev1.HubState {
		change(&old)
		return old
	})
	if err != nil {
		t.Fatal(err)
	}
	h.state.Hub.Put(now)
}

func (h *hub) holdWith(accepted string) func(*enginev1.HubState) {
	return func(s *enginev1.HubState) {
		s.Rewound = &enginev1.Rewound{Since: metav1.NewTime(since), Reason: "set back", Accepted: accepted}
	}
}

// addRow adds the Bundle shop/web with a row in Tokyo, whose content is the ConfigMaps.
func (h *hub) addRow(t *testing.T, spec atoll.RowSpec, configMaps ...string) {
	t.Helper()
	b := &v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "b-web"}}
	h.state.Bundles.Put(b)
	content := &atoll.Content{}
	for _, name := range configMaps {
		content.Items = append(content.Items, atoll.Item{Key: configMapKey(name), UID: "u-" + name})
	}
	ref := enginev1.BundleRef{UID: "b-web", Namespace: "shop", Name: "web"}
	revision, err := h.state.Revisions.CreateRevision(t.Context(), ref, content)
	if err != nil {
		t.Fatal(err)
	}
	spec.UID, spec.Revision = "u-tokyo", revision
	if err := h.state.Rows.WriteSpecs(t.Context(), ref, nil, map[string]*atoll.RowSpec{"tokyo": &spec}); err != nil {
		t.Fatal(err)
	}
}

func (h *hub) tokyoRow(t *testing.T) atoll.RowSpec {
	t.Helper()
	row, ok := h.state.Rows.Get("b-web", "tokyo")
	if !ok {
		t.Fatal("the row is gone")
	}
	return row.Spec
}

func configMapKey(name string) atoll.ItemKey {
	return atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}
}

func configMap(name string, annotations map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), Annotations: annotations}}
}

// start runs both loops until the test's end.
func (h *hub) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })       // it returns nil
	running.Go(func() { _ = h.RunRecall(ctx) }) // it returns nil
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
}

func deletedTombstone(t *testing.T, name string, at time.Time) *pb.RememberedTombstone {
	t.Helper()
	text, err := json.Marshal(atoll.Tombstone{Key: configMapKey(name), UID: "u-" + name, Cause: atoll.CauseDeleted})
	if err != nil {
		t.Fatal(err)
	}
	return &pb.RememberedTombstone{Bundle: "b-web", Tombstone: text, At: at.Unix()}
}

func removedRow(generation int64, at time.Time) *pb.RememberedTombstone {
	return &pb.RememberedTombstone{Bundle: "b-web", Generation: generation, At: at.Unix()}
}

// A hub that finds out that it was set back writes that down, keeps what it said first, and ends
// all sessions.
func TestARewindHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.start(t)
		h.OnRewind("an agent was ahead")
		synctest.Wait()
		if reason, holding := h.state.Hub.HoldReason(); !holding || reason != "an agent was ahead" {
			t.Errorf("it holds: %t, %q", holding, reason)
		}
		if got := h.agents.takeResets(); len(got) != 1 || !strings.Contains(got[0], "holds") {
			t.Errorf("sessions end with %q", got)
		}
		var stored enginev1.HubState
		if err := h.state.Client.Get(t.Context(), client.ObjectKey{Name: state.HubStateName}, &stored); err != nil || stored.Rewound == nil {
			t.Errorf("it is not written down: %+v, %v", stored, err)
		}
		h.OnRewind("another one")
		synctest.Wait()
		if reason, _ := h.state.Hub.HoldReason(); reason != "an agent was ahead" {
			t.Errorf("later it says %q", reason)
		}
	})
}

// A failed record keeps the sessions: they are held already.
func TestARewindThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.setState(t, func(*enginev1.HubState) {})
		h.setRefusal(errors.New("no space"))
		h.start(t)
		h.OnRewind("an agent was ahead")
		synctest.Wait()
		if got := h.agents.takeResets(); len(got) > 0 {
			t.Errorf("sessions end with %q", got)
		}
	})
}

// After the decision, generations start above those of all agents, and sessions start again. Only
// the leader writes that.
func TestADecisionResumes(t *testing.T) {
	for name, c := range map[string]struct {
		leads       bool
		floor, want int64
	}{
		"the leader":             {true, 3, 70},
		"the leader, once above": {true, 90, 90},
		"another hub":            {false, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t)
				h.leads = c.leads
				h.setState(t, h.holdWith(""))
				h.start(t)
				h.agents.takeResets()
				h.setState(t, func(s *enginev1.HubState) {
					s.GenerationFloor = c.floor
					h.holdWith(restore.AcceptedHub)(s)
				})
				synctest.Wait()
				if got := h.state.Hub.GenerationFloor(); got != c.want {
					t.Errorf("generations start above %d, want %d", got, c.want)
				}
				if got := h.agents.takeResets(); len(got) != 1 || !strings.Contains(got[0], "goes on") {
					t.Errorf("sessions end with %q", got)
				}
			})
		})
	}
}

// A hub that does not lead ends its sessions when another hub finds the rewind.
func TestAFollowerHoldsToo(t *testing.T) {
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t)
			h.leads = leads
			h.start(t)
			h.setState(t, h.holdWith(""))
			synctest.Wait()
			if got := h.agents.takeResets(); (len(got) == 1) == leads {
				t.Errorf("where it leads (%t), sessions end with %q", leads, got)
			}
		})
	}
}

// A row rises above what its cluster holds, and no further.
func TestRowsAreRaised(t *testing.T) {
	for name, c := range map[string]struct{ row, agent, want int64 }{
		"behind":      {4, 9, 10},
		"as far":      {9, 9, 10},
		"above it":    {10, 9, 10},
		"well beyond": {20, 9, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t)
				h.addRow(t, atoll.RowSpec{Generation: c.row, Phase: atoll.RowActive}, "a")
				h.start(t)
				h.OnRowAhead("b-web", "tokyo", c.agent)
				h.OnRowAhead("b-gone", "tokyo", c.agent)
				synctest.Wait()
				if got := h.tokyoRow(t); got.Generation != c.want || got.Phase != atoll.RowActive {
					t.Errorf("its row is %+v, want generation %d", got, c.want)
				}
			})
		})
	}
}

func TestARaiseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.addRow(t, atoll.RowSpec{Generation: 1, Phase: atoll.RowActive}, "a")
		h.setRefusal(errors.New("no space"))
		h.start(t)
		h.OnRowAhead("b-web", "tokyo", 5)
		time.Sleep(time.Second)
		h.setRefusal(nil)
		time.Sleep(recallRetryDelay)
		synctest.Wait()
		if got := h.tokyoRow(t).Generation; got != 6 {
			t.Errorf("its generation is %d", got)
		}
	})
}

// While the hub holds, the members' memory is summed up and nothing is held.
func TestMemoryIsSummedUpWhileTheHubHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, configMap("a", nil))
		h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "b")
		h.setState(t, h.holdWith(""))
		h.start(t)
		h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u-tokyo", Tombstones: []*pb.RememberedTombstone{
			deletedTombstone(t, "a", since), deletedTombstone(t, "gone", since), removedRow(5, since),
		}})
		h.OnRemembered(delivery.Remembered{Cluster: "oslo", UID: "u-oslo", Tombstones: []*pb.RememberedTombstone{deletedTombstone(t, "a", since)}})
		time.Sleep(2 * summaryDelay)
		synctest.Wait()
		got := h.state.Hub.Get().Rewound.Told
		if got == nil || got.Clusters != 2 || got.Templates != 1 || got.Rows != 1 ||
			!slices.Equal(got.Examples, []string{"Bundle shop/web left cluster tokyo", "ConfigMap shop/a was deleted"}) {
			t.Errorf("the summary is %+v", got)
		}
		if row := h.tokyoRow(t); row.Recall != nil || row.Generation != 4 {
			t.Errorf("its row is %+v", row)
		}
		if h.IsRecalling() {
			t.Error("members are asked before a decision")
		}
	})
}

// settleMemory is what a member's memory leads to after the decision for the members.
func settleMemory(t *testing.T, h *hub, tombstones ...*pb.RememberedTombstone) (settled int) {
	t.Helper()
	h.setState(t, h.holdWith(restore.AcceptedMembers))
	h.start(t)
	h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u-tokyo", Tombstones: tombstones, Settled: func() { settled++ }})
	time.Sleep(time.Second)
	synctest.Wait()
	return settled
}

// A removal that the store forgot is held in the row, and nothing is removed for it.
func TestForgottenRemovalsAreHeld(t *testing.T) {
	before, after := since.Add(-time.Hour), since.Add(time.Hour)
	for name, c := range map[string]struct {
		row     atoll.RowSpec
		removed *pb.RememberedTombstone
		held    bool
	}{
		"of a later generation":     {atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, removedRow(5, before), true},
		"later than the row":        {atoll.RowSpec{Generation: 4, Phase: atoll.RowActive, Since: before.Add(-time.Hour).Unix()}, removedRow(4, before), true},
		"before the row came":       {atoll.RowSpec{Generation: 4, Phase: atoll.RowActive, Since: before.Add(time.Minute).Unix()}, removedRow(4, before), false},
		"it came after the restore": {atoll.RowSpec{Generation: 4, Phase: atoll.RowActive, Since: after.Unix()}, removedRow(5, before), false},
		"it goes anyway":            {atoll.RowSpec{Generation: 4, Phase: atoll.RowRemoving}, removedRow(5, before), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t)
				h.addRow(t, c.row, "a")
				if settled := settleMemory(t, h, c.removed); settled != 1 {
					t.Fatalf("settled %d times", settled)
				}
				row := h.tokyoRow(t)
				if (row.Recall != nil) != c.held {
					t.Fatalf("its row is %+v", row)
				}
				if c.held && (row.Phase != atoll.RowRemoving || row.Generation <= c.removed.GetGeneration() || row.Recall.RemovedAt != before.Unix() || row.Recall.Placement == "") {
					t.Errorf("its row is %+v, recall %+v", row, row.Recall)
				}
				if !h.IsRecalling() {
					t.Error("members are not asked")
				}
			})
		})
	}
}

// A member that has forgotten nothing is settled without a write.
func TestAMemberWithoutMemoryIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
		if settled := settleMemory(t, h); settled != 1 || h.tokyoRow(t).Generation != 4 {
			t.Errorf("settled %d times, with the row %+v", settled, h.tokyoRow(t))
		}
	})
}

// A template is marked when the very object is here and no person decided to keep it. Nothing is
// ordered of the member before the hub's table shows the mark.
func TestDeletedTemplatesAreMarked(t *testing.T) {
	other := configMap("a", nil)
	other.UID = "another"
	for name, c := range map[string]struct {
		there *corev1.ConfigMap
		mark  bool
	}{
		"it is here":          {configMap("a", nil), true},
		"it is not here":      {configMap("b", nil), false},
		"another of the name": {other, false},
		"a person keeps it":   {configMap("a", map[string]string{atoll.AnnotationRecalled: "Kept"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t, c.there)
				settled := settleMemory(t, h, deletedTombstone(t, "a", since))
				var is corev1.ConfigMap
				if err := h.state.Client.Get(t.Context(), client.ObjectKeyFromObject(c.there), &is); err != nil {
					t.Fatal(err)
				}
				note := is.Annotations[atoll.AnnotationRecalled]
				if marked := strings.HasPrefix(note, atoll.RecalledDeleted); marked != c.mark || marked && !strings.HasSuffix(note, "2026-01-02T03:00:00Z, says tokyo") {
					t.Errorf("it is marked %q", note)
				}
				if want := map[bool]int{true: 0, false: 1}[c.mark]; settled != want {
					t.Errorf("settled %d times, want %d", settled, want)
				}
			})
		})
	}
}

// A row whose items are all held one by one is not held as well.
func TestACoveredRowIsNotHeldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, configMap("a", nil))
		h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
		found, err := h.findForgotten(t.Context(), "tokyo", restore.MemberMemory{
			Deleted: []restore.DeletedTemplate{{Key: configMapKey("a"), UID: "u-a"}}, Rows: map[string]restore.RemovedRow{"b-web": {Generation: 9}},
		})
		if err != nil || len(found.templates) != 1 || len(found.rows) != 0 {
			t.Errorf("%+v, %v", found, err)
		}
	})
}

// A failed write is tried again; the newest memory of a member counts.
func TestRecallIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
		h.setRefusal(errors.New("no space"))
		if settled := settleMemory(t, h, removedRow(5, since)); settled != 0 {
			t.Fatal("settled without a write")
		}
		newer := 0
		h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u-tokyo", Tombstones: []*pb.RememberedTombstone{removedRow(8, since)}, Settled: func() { newer++ }})
		h.setRefusal(nil)
		time.Sleep(2 * recallRetryDelay)
		synctest.Wait()
		if newer != 1 || h.tokyoRow(t).Generation != 9 {
			t.Errorf("settled %d times, with the row %+v", newer, h.tokyoRow(t))
		}
	})
}
