package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
)

// countedWarnings counts the warnings that are logged.
type countedWarnings struct {
	slog.Handler
	warnings int
}

func (x *countedWarnings) Enabled(context.Context, slog.Level) bool { return true }
func (x *countedWarnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		x.warnings++
	}
	return nil
}

// replaceClient puts another client in the place of the hub's, for what the tables write and read.
func (h *hub) replaceClient(funcs interceptor.Funcs, objects ...client.Object) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, meta.RESTScopeNamespace)
	h.state.Client = fake.NewClientBuilder().WithScheme(state.NewScheme()).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
}

// A template waits for a decision when it is the deleted one, lives, and no person decided to keep it. A kind that the hub does
// not serve has no templates. Without an answer nothing is settled.
func TestWhichTemplatesWaitForADecision(t *testing.T) {
	away := errors.New("the store is away")
	going := configMap("a", nil)
	going.Finalizers, going.DeletionTimestamp = []string{"x.dev/f"}, &metav1.Time{Time: since}
	for what, tc := range map[string]struct {
		there client.Object
		kind  string
		fails error
		want  bool
	}{
		"it is here":                   {configMap("a", nil), "ConfigMap", nil, true},
		"it waits already":             {configMap("a", map[string]string{atoll.AnnotationRecalled: "deleted, says oslo"}), "ConfigMap", nil, true},
		"a person keeps it":            {configMap("a", map[string]string{atoll.AnnotationRecalled: "kept"}), "ConfigMap", nil, false},
		"it is being deleted":          {going, "ConfigMap", nil, false},
		"it is gone":                   {configMap("b", nil), "ConfigMap", nil, false},
		"of a kind that is not served": {configMap("a", nil), "Widget", nil, false},
		"the store does not answer":    {configMap("a", nil), "ConfigMap", away, false},
	} {
		h := newHub(t)
		h.replaceClient(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if tc.fails != nil {
				return tc.fails
			}
			return c.Get(ctx, key, o, opts...)
		}}, tc.there)
		key := configMapKey("a")
		key.Kind = tc.kind
		got, err := h.needsRecallDecision(t.Context(), restore.DeletedTemplate{Key: key, UID: "u-a"})
		if got != tc.want || !errors.Is(err, tc.fails) || err != nil && err.Error() != "look for template /ConfigMap/shop/a: the store is away" {
			t.Errorf("%s: %t, %v; want %t", what, got, err, tc.want)
		}
		found, err := h.findForgotten(t.Context(), "tokyo", restore.MemberMemory{Deleted: []restore.DeletedTemplate{{Key: key, UID: "u-a"}}})
		if (len(found.templates) == 1) != tc.want || !errors.Is(err, tc.fails) {
			t.Errorf("%s: found %+v, %v", what, found, err)
		}
	}
}

// A namespace's own row is not held. A row whose content cannot be read settles nothing.
func TestWhichRemovedRowsAreForgotten(t *testing.T) {
	h := newHub(t)
	h.setState(t, h.holdWith(restore.AcceptedMembers))
	h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
	space := enginev1.BundleRef{UID: "ns", Namespace: "shop"}
	spec := h.tokyoRow(t)
	if err := h.state.Rows.WriteSpecs(t.Context(), space, nil, map[string]*atoll.RowSpec{"tokyo": &spec}); err != nil {
		t.Fatal(err)
	}
	if !space.IsNamespaceRef() || !h.state.Rows.HasRow("ns", "tokyo") {
		t.Fatal("the namespace has no row")
	}
	memory := restore.MemberMemory{Rows: map[string]restore.RemovedRow{"ns": {Generation: 9}, "b-web": {Generation: 9}, "b-gone": {Generation: 9}}}
	found, err := h.findForgotten(t.Context(), "tokyo", memory)
	if err != nil || len(found.rows) != 1 || found.rows["b-web"].Generation != 9 || len(found.templates) > 0 {
		t.Errorf("found %+v, %v", found, err)
	}
	lost := h.tokyoRow(t)
	lost.Revision = "lost"
	row, _ := h.state.Rows.Get("b-web", "tokyo")
	if err := h.state.Rows.WriteSpecs(t.Context(), row.Bundle, []state.Row{row}, map[string]*atoll.RowSpec{"tokyo": &lost}); err != nil {
		t.Fatal(err)
	}
	if _, err = h.findForgotten(t.Context(), "tokyo", memory); err == nil || !strings.HasPrefix(err.Error(), "read what bundle shop/web had in cluster tokyo: ") {
		t.Errorf("without its content: %v", err)
	}
}

// A template gets the mark with its UID once, and an object that is gone needs none. A failure is said.
func TestATemplateIsMarked(t *testing.T) {
	away := errors.New("the store is away")
	for what, tc := range map[string]struct {
		there  client.Object
		fails  error
		kind   string
		marked bool
		want   string // the beginning of the error
	}{
		"it is here":         {configMap("a", nil), nil, "ConfigMap", true, ""},
		"it is gone":         {configMap("b", nil), nil, "ConfigMap", false, ""},
		"the store is away":  {configMap("a", nil), away, "ConfigMap", false, "mark template /ConfigMap/shop/a as deleted before the restore: the store is away"},
		"a kind that is not": {configMap("a", nil), nil, "Widget", false, "mark template /Widget/shop/a: "},
	} {
		h := newHub(t)
		body := ""
		h.replaceClient(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			raw, err := p.Data(o)
			if body = string(raw); err != nil || tc.fails != nil {
				return errors.Join(err, tc.fails)
			}
			return c.Patch(ctx, o, p, opts...)
		}}, tc.there)
		key := configMapKey("a")
		key.Kind = tc.kind
		err := h.markTemplateRecalled(t.Context(), "tokyo", restore.DeletedTemplate{Key: key, UID: "u-a", RemovedAt: since.Unix()})
		if (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
		if want := `{"metadata":{"annotations":{"` + atoll.AnnotationRecalled + `":"deleted 2026-01-02T03:00:00Z, says tokyo"},"uid":"u-a"}}`; tc.kind == "ConfigMap" && body != want {
			t.Errorf("%s: the patch is %s, want %s", what, body, want)
		}
	}
}

// A row that is gone, or of a Bundle that is, goes anyway. A held row begins above the floor of generations.
func TestWhichRowsAreHeld(t *testing.T) {
	h := newHub(t)
	h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
	h.setState(t, func(s *enginev1.HubState) { s.GenerationFloor = 30 })
	removed := restore.RemovedRow{Generation: 9, RemovedAt: since.Unix()}
	if err := h.holdRow(t.Context(), "oslo", "b-web", removed); err != nil || h.tokyoRow(t).Recall != nil {
		t.Errorf("a row that is gone: %v", err)
	}
	if err := h.holdForgotten(t.Context(), "tokyo", forgottenRemovals{rows: map[string]restore.RemovedRow{"b-web": removed}}); err != nil {
		t.Fatal(err)
	}
	b, _ := h.state.Bundles.Get("b-web")
	if row := h.tokyoRow(t); row.Generation != 31 || row.Phase != atoll.RowRemoving || row.Recall == nil || *row.Recall != (atoll.RememberedRemoval{RemovedAt: since.Unix(), Placement: atoll.HashPlacement(b.Spec.Placement)}) {
		t.Errorf("the row is %+v, held %+v", row, row.Recall)
	}
	other := newHub(t)
	other.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
	row, _ := other.state.Rows.Get("b-web", "tokyo")
	ref := row.Bundle
	ref.UID = "b-unknown"
	if err := other.state.Rows.WriteSpecs(t.Context(), ref, nil, map[string]*atoll.RowSpec{"tokyo": &row.Spec}); err != nil {
		t.Fatal(err)
	}
	if err := other.holdRow(t.Context(), "tokyo", "b-unknown", removed); err != nil {
		t.Error(err)
	}
	if row, _ := other.state.Rows.Get("b-unknown", "tokyo"); row.Spec.Recall != nil || row.Spec.Generation != 4 {
		t.Errorf("the row of a Bundle that is gone: %+v", row.Spec)
	}
}

// A memory that waits for the hub's own table is tried again after 50 ms, and everything else after 2 s. Every hundredth try
// is said.
func TestHowOftenAMemoryIsTriedAgain(t *testing.T) {
	for what, tc := range map[string]struct {
		refuse   error
		tries    int
		within   time.Duration
		warnings int
	}{
		"the table is behind":           {nil, 21, time.Second, 0},
		"the table stays behind":        {nil, 100, 99 * tableRetryDelay, 0},
		"for a hundred tries":           {nil, 101, 100 * tableRetryDelay, 1},
		"for two hundred":               {nil, 201, 200 * tableRetryDelay, 2},
		"others write at the same time": {fmt.Errorf("row: %w", state.ErrRowsMoved), 21, time.Second, 0},
		"the store is away":             {errors.New("the store is away"), 3, 5 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t)
			log, tries := &countedWarnings{Handler: slog.DiscardHandler}, 0
			h.log = slog.New(log)
			h.replaceClient(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				tries++
				return tc.refuse
			}}, configMap("a", nil))
			h.start(t)
			settled := 0
			h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u-tokyo", Tombstones: []*pb.RememberedTombstone{deletedTombstone(t, "a", since)}, Settled: func() { settled++ }})
			time.Sleep(tc.within)
			synctest.Wait()
			if tries != tc.tries || settled != 0 || log.warnings != tc.warnings {
				t.Errorf("%s: %d tries with %d warnings in %v, settled %d times; want %d tries with %d warnings", what, tries, log.warnings, tc.within, settled, tc.tries, tc.warnings)
			}
		})
	}
}

// Members that report within a second share one write of the summary. It is written while the hub holds, before a
// decision, and begins again at the next restore.
func TestTheSummaryOfMembersIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, configMap("a", nil), configMap("b", nil))
		var updates atomic.Int32
		h.state.Hub.Subscribe(func() { updates.Add(1) })
		h.setState(t, h.holdWith(""))
		h.start(t)
		updates.Store(0)
		report := func(cluster, name string) {
			h.OnRemembered(delivery.Remembered{Cluster: cluster, UID: "u-" + cluster, Tombstones: []*pb.RememberedTombstone{deletedTombstone(t, name, since)}})
		}
		report("tokyo", "a")
		time.Sleep(summaryDelay / 2)
		report("oslo", "b")
		time.Sleep(summaryDelay/2 - 1)
		synctest.Wait()
		if h.state.Hub.Get().Rewound.Told != nil {
			t.Error("it is written before a second")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if told := h.state.Hub.Get().Rewound.Told; told == nil || told.Clusters != 2 || told.Templates != 2 || updates.Load() != 1 {
			t.Errorf("after %d writes the summary is %+v", updates.Load(), told)
		}
		time.Sleep(time.Minute)
		h.setState(t, func(s *enginev1.HubState) { s.Rewound.Accepted = restore.AcceptedMembers })
		h.OnRemembered(delivery.Remembered{Cluster: "lima", UID: "u-lima", Settled: func() {}})
		time.Sleep(time.Minute)
		h.setState(t, h.holdWith(""))
		report("rome", "a")
		time.Sleep(2 * summaryDelay)
		synctest.Wait()
		if told := h.state.Hub.Get().Rewound.Told; told == nil || told.Clusters != 1 || told.Templates != 1 {
			t.Errorf("of the next restore the summary is %+v", told)
		}
	})
}

// A summary that comes after the decision changes nothing in the store.
func TestASummaryAfterTheDecisionIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.setState(t, h.holdWith(restore.AcceptedHub))
		if err := h.writeSummary(t.Context(), recallSummary{"tokyo": {}}); err != nil || h.state.Hub.Get().Rewound.Told != nil {
			t.Errorf("%+v, %v", h.state.Hub.Get().Rewound, err)
		}
		away := errors.New("the store is away")
		h.setRefusal(away)
		if err := h.writeSummary(t.Context(), recallSummary{}); !errors.Is(err, away) {
			t.Errorf("without the store: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.writeSummary(ctx, recallSummary{}); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A ClusterBundle has no namespace in the summary, and a Bundle that is not known has no name.
func TestTheSummaryNamesBundles(t *testing.T) {
	h := newHub(t)
	h.state.Bundles.Put(&v1alpha1.ClusterBundle{ObjectMeta: metav1.ObjectMeta{Name: "roles", UID: "b-roles"}})
	h.state.Bundles.Put(&v1alpha1.Bundle{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "b-web"}})
	got := recallSummary{"tokyo": {rows: map[string]restore.RemovedRow{"b-roles": {}, "b-web": {}, "b-gone": {}}}}.summarizeRecalls(h.state)
	want := []string{"Bundle roles left cluster tokyo", "Bundle shop/web left cluster tokyo"}
	if got.Rows != 3 || got.Clusters != 1 || !slices.Equal(got.Examples, want) {
		t.Errorf("%+v, want %v", got, want)
	}
}

// The newest memory of a member counts, also when an older one is tried again. An unreadable part is said.
func TestTheNewestMemoryCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		log := &countedWarnings{Handler: slog.DiscardHandler}
		h.log = slog.New(log)
		h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u", Tombstones: []*pb.RememberedTombstone{removedRow(5, since)}})
		old := h.recalls.takeAll()
		if len(old) != 1 || old[0].memory.Rows["b-web"].Generation != 5 || old[0].Tombstones != nil || log.warnings != 0 {
			t.Fatalf("%+v, %d warnings", old, log.warnings)
		}
		h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u", Tombstones: []*pb.RememberedTombstone{removedRow(8, since), {Tombstone: []byte("{")}}})
		<-h.recalls.wake
		h.recalls.requeueAfter(old[0], time.Second)
		if now := h.recalls.takeAll(); len(now) != 1 || now[0].memory.Rows["b-web"].Generation != 8 || now[0].tries != 0 || log.warnings != 1 {
			t.Errorf("%+v, %d warnings", now, log.warnings)
		}
		time.Sleep(time.Second - 1)
		if len(h.recalls.wake) > 0 {
			t.Error("it is tried before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		<-h.recalls.wake
		h.recalls.requeueAfter(old[0], time.Second)
		if now := h.recalls.takeAll(); len(now) != 1 || now[0].tries != 1 || len(h.recalls.takeAll()) > 0 {
			t.Errorf("alone it is %+v", now)
		}
	})
}

// A hub goes on although it cannot write from where generations start. A queue that is full drops what comes again.
func TestAHubGoesOnWithoutItsFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.setState(t, h.holdWith(restore.AcceptedHub))
		h.setRefusal(errors.New("no space"))
		h.resumeAfterRestore(t.Context())
		if got := h.agents.takeResets(); !slices.Equal(got, []string{"the hub goes on after a restore"}) || h.state.Hub.GenerationFloor() != 0 {
			t.Errorf("sessions end with %q, above %d", got, h.state.Hub.GenerationFloor())
		}
		log := &countedWarnings{Handler: slog.DiscardHandler}
		h.log = slog.New(log)
		for range cap(h.rowsAhead) {
			h.OnRowAhead("b-web", "tokyo", 5)
		}
		if log.warnings != 0 {
			t.Errorf("%d warnings before the queue is full", log.warnings)
		}
		h.OnRowAhead("b-web", "tokyo", 5)
		h.OnRewind("first")
		h.OnRewind("second")
		if got := <-h.rewindReasons; got != "first" || len(h.rewindReasons) > 0 || log.warnings != 1 {
			t.Errorf("the reason is %q, %d warnings", got, log.warnings)
		}
	})
}

// A row that others write at the same time is read again, and raised above what it is by then.
func TestARaiseMeetsAnotherWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.addRow(t, atoll.RowSpec{Generation: 1, Phase: atoll.RowActive}, "a")
		h.setRefusal(fmt.Errorf("row: %w", state.ErrRowsMoved))
		time.AfterFunc(500*time.Millisecond, func() { h.setRefusal(nil) })
		if err := h.raiseGeneration(t.Context(), rowAhead{"b-web", "tokyo", 5}); err != nil || h.tokyoRow(t).Generation != 6 {
			t.Errorf("generation %d, %v", h.tokyoRow(t).Generation, err)
		}
		away := errors.New("no space")
		h.setRefusal(away)
		if err := h.raiseGeneration(t.Context(), rowAhead{"b-web", "tokyo", 9}); !errors.Is(err, away) {
			t.Errorf("without space: %v", err)
		}
		if err := h.raiseGeneration(t.Context(), rowAhead{"b-web", "tokyo", 5}); err != nil {
			t.Errorf("a row that is above: %v", err)
		}
	})
}

// A removal that is held is said in the log, and a memory that holds nothing is not. A summary that is not written is said.
func TestHeldRemovalsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t)
		h.addRow(t, atoll.RowSpec{Generation: 4, Phase: atoll.RowActive}, "a")
		log := &countedWarnings{Handler: slog.DiscardHandler}
		h.log = slog.New(log)
		for i, rows := range []map[string]restore.RemovedRow{nil, {"b-web": {Generation: 9}}} {
			if err := h.holdForgotten(t.Context(), "tokyo", forgottenRemovals{rows: rows}); err != nil || log.warnings != i {
				t.Errorf("of %d rows: %d warnings, %v", i, log.warnings, err)
			}
		}
		h.setState(t, h.holdWith(""))
		h.start(t)
		log.warnings = 0
		for i, refuse := range []error{nil, errors.New("no space")} {
			h.setRefusal(refuse)
			h.OnRemembered(delivery.Remembered{Cluster: "tokyo", UID: "u-tokyo"})
			time.Sleep(2 * summaryDelay)
			synctest.Wait()
			if log.warnings != i {
				t.Errorf("the store answers %v: %d warnings", refuse, log.warnings)
			}
		}
	})
}
