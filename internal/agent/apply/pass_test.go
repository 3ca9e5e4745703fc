package apply

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// switchedLease is held as a switch says.
type switchedLease struct {
	heldLease
	held func() bool
}

func (l switchedLease) IsHeld() bool { return l.held() }

// Run makes the member what the manifests say, while the lease is held, and ends with its context.
func TestRunAppliesWhatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, held := newMemoryMember(t), atomic.Bool{}
		e := newStubEngine(t, api, []ownership.Record{shopNamespace})
		e.o.Lease = switchedLease{heldLease(func() bool { return true }), held.Load}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { e.Run(ctx); close(done) }()
		synctest.Wait()
		if got := e.takeCalls(); !slices.Equal(got, []string{"watch Namespace"}) {
			t.Errorf("at the start the calls are %q", got)
		}
		if err := e.UpsertManifest(ctx, newManifest("b1", 1, confItem("x")), store.Position{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(heldRetry / 2)
		synctest.Wait()
		api.expectWrites(t)
		held.Store(true)
		time.Sleep(heldRetry)
		synctest.Wait()
		api.expectWrites(t, "APPLY conf "+atoll.FieldManager)
		want := []string{"put b1", "store ConfigMap/conf", "watch ConfigMap", "store ConfigMap/conf"} // the intent, then the object
		if got := e.takeCalls(); !slices.Equal(got, want) {
			t.Errorf("the calls are %q, want %q", got, want)
		}
		if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowReady {
			t.Errorf("the status is %+v", s)
		}
		if len(e.tasks) > 0 || len(e.listDirty()) > 0 {
			t.Errorf("left are %v", e.tasks)
		}
		cancel()
		<-done
	})
}

// listDirty lists the shards that are not stored.
func (e *stubEngine) listDirty() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.DirtyShards()
}

// Records that the member refuses are stored again every two seconds, also without other work.
func TestRunStoresRefusedRecordsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace})
		e.refuses = errors.New("refused")
		e.book.MarkDirty(ownership.ShardOf(confKey))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { e.Run(ctx); close(done) }()
		time.Sleep(2*storeRetry + storeRetry/2)
		e.callsMu.Lock()
		e.refuses = nil
		e.callsMu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		stores := slices.DeleteFunc(e.takeCalls(), func(s string) bool { return s != "store" })
		if len(stores) != 4 || len(e.listDirty()) > 0 {
			t.Errorf("it stored %d times, want at 0, 2, 4 and 6 seconds", len(stores))
		}
		cancel()
		<-done
	})
}

// An engine without its lease looks at it every second, and does nothing.
func TestRunWithoutALeaseDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		api := newMemoryMember(t)
		e := newStubEngine(t, api, []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")))
		e.o.Lease = switchedLease{heldLease(func() bool { return true }), func() bool { looks++; return false }}
		e.holdTask(confKey).due = true
		e.book.MarkDirty("s")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { e.Run(ctx); close(done) }()
		time.Sleep(10*heldRetry + heldRetry/2)
		cancel()
		<-done
		api.expectWrites(t)
		if looks != 11 || slices.ContainsFunc(e.takeCalls(), func(s string) bool { return strings.HasPrefix(s, "store") }) {
			t.Errorf("it looked %d times", looks)
		}
	})
}

// Keys are taken once they are due and not worked on. The rest tells how long to wait.
func TestKeysThatAreDueAreTaken(t *testing.T) {
	at := func(d time.Duration) time.Time { return testNow.Add(d) }
	for name, c := range map[string]struct {
		task  task
		taken bool
		wait  time.Duration
		left  bool // a task
		due   bool
	}{
		"due with a flag":      {task{due: true, check: true}, true, time.Hour, true, false},
		"due by its verb":      {task{due: true}, true, time.Hour, true, false},
		"due now":              {task{due: true, at: testNow, check: true}, true, time.Hour, true, false},
		"due later":            {task{due: true, at: at(3 * time.Second), check: true}, false, 3 * time.Second, true, true},
		"due much later":       {task{due: true, at: at(3 * time.Hour), check: true}, false, time.Hour, true, true},
		"not due":              {task{check: true}, false, time.Hour, true, false},
		"due and worked on":    {task{due: true, busy: true, check: true}, false, time.Hour, true, true},
		"due without any work": {task{due: true}, false, time.Hour, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			item := confItem("x")
			if name == "due by its verb" {
				item = confItem("y")
			}
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{wantedRecord(confItem("x"))}, newManifest("b1", 1, item))
			e.tasks[confKey] = &c.task
			for range 2 {
				keys, wait := e.takeDueKeys(testNow)
				if (len(keys) == 1) != c.taken || wait != c.wait || c.task.due != c.due || (e.tasks[confKey] != nil) != c.left {
					t.Errorf("taken are %v, wait %s, the task is %+v", keys, wait, c.task)
				}
				if c.taken && !c.task.busy {
					t.Error("a taken key is not busy")
				}
				if c.taken {
					break
				}
			}
			if got := testutil.ToFloat64(e.o.Metrics.queueDepth); c.left && got != 1 {
				t.Errorf("the queue counts %v", got)
			}
		})
	}
}

// A key is idle without a flag, a failure and work.
func TestAKeyWithoutWorkIsIdle(t *testing.T) {
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
	for name, c := range map[string]struct {
		task task
		want bool
	}{
		"nothing": {task{}, true}, "check": {task{check: true}, false}, "judge": {task{judge: true}, false}, "correct": {task{correct: true}, false},
		"weigh": {task{weigh: true}, false}, "a failure": {task{failure: &Failure{}}, false},
	} {
		if got := e.isIdle(confKey, &c.task); got != c.want {
			t.Errorf("%s: idle is %t", name, got)
		}
	}
}

// A task goes when nothing is to be remembered of it. With the last record of a kind, its watch ends.
func TestATaskThatTellsNothingGoes(t *testing.T) {
	sameKind, sameGroup := wantedRecord(confItem("x")), wantedRecord(confItem("x"))
	sameKind.Key.Name, sameGroup.Key.Name, sameGroup.Key.Kind = "other", "other", "Secret"
	foreignKind := sameKind
	foreignKind.Key.Group = "gadgets.io"
	for name, c := range map[string]struct {
		records []ownership.Record
		task    task
		left    bool
		views   int
		calls   []string
	}{
		"the last of its kind":      {nil, task{}, false, 0, []string{"stop ConfigMap"}},
		"another of its kind":       {[]ownership.Record{sameKind}, task{}, false, 0, nil},
		"another of its group":      {[]ownership.Record{sameGroup}, task{}, false, 0, []string{"stop ConfigMap"}},
		"another group's kind":      {[]ownership.Record{foreignKind}, task{}, false, 0, []string{"stop ConfigMap"}},
		"it is recorded":            {[]ownership.Record{wantedRecord(confItem("x"))}, task{}, false, 1, nil},
		"it is due":                 {nil, task{due: true}, true, 0, []string{"stop ConfigMap"}},
		"it is worked on":           {nil, task{busy: true}, true, 0, []string{"stop ConfigMap"}},
		"it failed":                 {nil, task{failure: &Failure{}}, true, 0, []string{"stop ConfigMap"}},
		"it was corrected recently": {nil, task{corrections: correctionHistory{at: []time.Time{testNow}}}, true, 0, []string{"stop ConfigMap"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), c.records)
			e.tasks[confKey], e.views[confKey], e.forbidden[confKey] = &c.task, view{}, "denied"
			e.dropTaskIfIdle(confKey, &c.task)
			if left := e.tasks[confKey] != nil; left != c.left || len(e.views) != c.views || len(e.forbidden) != c.views || !slices.Equal(e.takeCalls(), c.calls) {
				t.Errorf("left: %t, views %v, forbidden %v", left, e.views, e.forbidden)
			}
		})
	}
}

// Applies go up the tiers and deletions down. An apply of new content has an intent that is stored first.
func TestAPassIsPlannedInTiers(t *testing.T) {
	leaving := leavingRecord(webItem("2"))
	replaced := wantedRecord(confItem("x"))
	replaced.Template = "t0"
	for name, c := range map[string]struct {
		record   ownership.Record
		item     []atoll.RenderedItem
		up, down int // the tier, from 1
		intends  bool
		intended bool
		space    bool
	}{
		"it is made":               {unmadeRecord(confItem("x")), []atoll.RenderedItem{confItem("x")}, 4, 0, true, true, true},
		"it is changed":            {wantedRecord(confItem("y")), []atoll.RenderedItem{confItem("x")}, 4, 0, false, false, true},
		"it is replaced":           {replaced, []atoll.RenderedItem{confItem("x")}, 4, 0, true, false, true},
		"it is as it should be":    {wantedRecord(confItem("x")), []atoll.RenderedItem{confItem("x")}, 4, 0, false, false, false},
		"it is deleted":            {leavingRecord(confItem("x")), nil, 0, 4, false, false, false},
		"it is deleted, a web one": {leaving, nil, 0, 3, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newStubEngine(t, newMemoryMember(t), []ownership.Record{c.record}, newManifest("b1", 1, c.item...))
			e.book.RestoreRecord(c.record)
			e.holdTask(c.record.Key)
			for range 2 {
				up, down, intends := e.planTiers([]atoll.ItemKey{c.record.Key}, false)
				if intends != c.intends || len(up) != tiers || len(down) != tiers {
					t.Errorf("an intent is to be stored: %t", intends)
				}
				for i := range tiers {
					if (len(up[i]) == 1) != (i+1 == c.up) || (len(down[i]) == 1) != (i+1 == c.down) {
						t.Errorf("tier %d: up %v, down %v", i+1, up[i], down[i])
					}
				}
			}
			if _, space := e.book.Record(shopNamespace.Key); space != c.space || e.holdTask(c.record.Key).intended != c.intended {
				t.Errorf("its namespace is intended: %t, the task is %+v", space, e.holdTask(c.record.Key))
			}
		})
	}
}

// One intent among the keys of a pass is enough to store, whatever comes after it.
func TestOneIntentOfAPassIsStored(t *testing.T) {
	changed := wantedRecord(webItem("1"))
	made := unmadeRecord(confItem("x"))
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, changed, made}, newManifest("b1", 1, webItem("2"), confItem("x")))
	for _, keys := range [][]atoll.ItemKey{{made.Key, changed.Key}, {changed.Key, made.Key}} {
		if _, _, intends := e.planTiers(keys, true); intends {
			t.Errorf("with %v an intent is stored while changes are held", keys)
		}
		if _, _, intends := e.planTiers(keys, false); !intends {
			t.Errorf("with %v no intent is stored", keys)
		}
	}
}

// Nothing is made while its intent cannot be stored: the keys are tried again, with the reason in the report.
func TestNothingIsMadeWithoutItsIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t)
		e := newStubEngine(t, api, []ownership.Record{shopNamespace}, newManifest("b1", 1, confItem("x")), newManifest("b2", 1, confItem("x")))
		e.refuses = errors.New("no room")
		e.holdTask(confKey).busy = true
		var running sync.WaitGroup
		for n := 1; n <= 2; n++ {
			e.runPass(t.Context(), []atoll.ItemKey{confKey}, &running)
			running.Wait()
			api.expectWrites(t)
			task := e.holdTask(confKey)
			expectFailure(t, task.failure, &Failure{Reason: atoll.ReasonApplyFailed, Message: "no room"})
			most := time.Duration(n) * time.Second
			if wait := time.Until(task.at); !task.due || task.busy || task.intended || task.failures != n || wait > most || wait < most*3/4 {
				t.Errorf("the task is %+v, in %s", task, wait)
			}
			if got := e.takeChanged(); !slices.Equal(got, []string{"b1", "b2"}) {
				t.Errorf("reported are %q", got)
			}
		}
	})
}

// A pass makes the missing namespaces first, and keeps their failures for the next try.
func TestAPassMakesMissingNamespacesFirst(t *testing.T) {
	for name, refused := range map[string]refusals{"made": nil, "refused": {"PATCH shop": memberBusy()}} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t)
			delete(api.objects, "/api/v1/namespaces/shop")
			e := newStubEngine(t, refuseSome(api, refused), nil, newManifest("b1", 1, confItem("x")))
			var running sync.WaitGroup
			e.runPass(t.Context(), []atoll.ItemKey{confKey}, &running)
			running.Wait()
			space := e.holdTask(shopNamespace.Key)
			if refused == nil {
				api.expectWrites(t, "APPLY shop "+atoll.FieldManager, "APPLY conf "+atoll.FieldManager)
				expectFailure(t, space.failure, nil)
				return
			}
			expectFailure(t, space.failure, busyFailure)
			if !space.due || space.failures != 1 {
				t.Errorf("the namespace is tried again: %+v", space)
			}
		})
	}
}

// A failure to make a namespace is tried again later, and no earlier try is put off.
func TestTheFailureOfANamespaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newStubEngine(t, newMemoryMember(t), nil)
		f := &Failure{Reason: atoll.ReasonForbidden}
		e.recordNamespaceFailure(t.Context(), "shop", nil)
		if len(e.tasks) > 0 {
			t.Error("without a failure there is a task")
		}
		for n := 1; n <= 2; n++ {
			e.recordNamespaceFailure(t.Context(), "shop", f)
			task, most := e.holdTask(shopNamespace.Key), time.Duration(n)*time.Second
			if wait := time.Until(task.at); task.failure != f || task.failures != n || !task.due || wait > most || wait < most*3/4 {
				t.Errorf("the task is %+v, in %s", task, wait)
			}
			task.due = false
		}
		task := e.holdTask(shopNamespace.Key)
		task.due, task.at = true, time.Now()
		e.recordNamespaceFailure(t.Context(), "shop", f)
		if task.failures != 2 || !task.at.Equal(time.Now()) {
			t.Errorf("a due key is %+v", task)
		}
		if got := testutil.ToFloat64(e.o.Metrics.failures.WithLabelValues(string(atoll.ReasonForbidden))); got != 1 {
			t.Errorf("%v failures are counted", got)
		}
	})
}

// A tier that takes longer than the grace goes on beside the next one.
func TestASlowTierHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		member := newMemoryMember(t, liveConf("y"))
		slow := make(chan struct{})
		e := newStubEngine(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/conf") {
				<-slow
			}
			member.ServeHTTP(w, r)
		}), []ownership.Record{shopNamespace, wantedRecord(confItem("y"))}, newManifest("b1", 1, confItem("x")))
		var running sync.WaitGroup
		began := time.Now()
		e.runTier(t.Context(), nil, &running)
		if took := time.Since(began); took != 0 {
			t.Errorf("an empty tier takes %s", took)
		}
		e.runTier(t.Context(), []atoll.ItemKey{confKey}, &running)
		if took := time.Since(began); took != tierGrace || len(e.slots) != 1 {
			t.Errorf("a slow tier takes %s, %d slots are taken", took, len(e.slots))
		}
		close(slow)
		running.Wait()
		if len(e.slots) != 0 || e.recordOf(confKey).Applied != "hx" {
			t.Errorf("after it %d slots are taken", len(e.slots))
		}
	})
}

// The outcome of work is kept, reported and leads to the next try. An ending agent keeps nothing.
func TestTheOutcomeOfWorkIsKept(t *testing.T) {
	f := &Failure{Reason: atoll.ReasonInvalid, Message: "wrong"}
	for name, c := range map[string]struct {
		before  task
		failure *Failure
		ends    bool
		want    task
		waits   time.Duration
		changed []string
	}{
		"it is done":             {task{busy: true, intended: true, failures: 3, failure: f, due: true}, nil, false, task{due: true}, 0, []string{"b1"}},
		"it fails":               {task{busy: true, intended: true}, f, false, task{failures: 1, failure: f, due: true}, time.Second, []string{"b1"}},
		"it fails again":         {task{busy: true, failures: 1, failure: f}, f, false, task{failures: 2, failure: f, due: true}, 2 * time.Second, []string{"b1"}},
		"it fails, and more due": {task{busy: true, due: true}, f, false, task{failures: 1, failure: f, due: true}, 0, []string{"b1"}},
		"the agent ends":         {task{busy: true, intended: true, failures: 1, failure: f}, nil, true, task{failures: 1, failure: f}, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newStubEngine(t, newMemoryMember(t), []ownership.Record{wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.ends {
					cancel()
				}
				got := c.before
				e.tasks[confKey] = &got
				e.finishWork(ctx, confKey, c.failure)
				wait := time.Duration(0)
				if !got.at.IsZero() {
					wait = time.Until(got.at)
				}
				if got.busy || got.intended || got.due != c.want.due || got.failures != c.want.failures || got.failure != c.want.failure || wait > c.waits || wait < c.waits*3/4 {
					t.Errorf("the task is %+v, in %s", got, wait)
				}
				if changed := e.takeChanged(); !slices.Equal(changed, c.changed) || e.isAwake() == c.ends {
					t.Errorf("reported are %q", changed)
				}
				e.takePendingWork(confKey) // it holds no lock
			})
		})
	}
}

// The Bundles of an object claim it or have a tombstone of it; those of a namespace also what is in it, or have it.
func TestTheBundlesOfAnObject(t *testing.T) {
	deletes, has := newManifest("b2", 1), newManifest("b3", 1)
	deletes.DeletedNamespaces, has.Namespaces = []string{"shop"}, map[string]atoll.NamespaceMeta{"shop": {}}
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, wantedRecord(confItem("x"))},
		newManifest("b1", 1, confItem("x")), deletes, has, withTombstones(newManifest("b4", 1), tombstoneOf(confItem("x"))), newManifest("b5", 1))
	for key, want := range map[atoll.ItemKey][]string{
		confKey: {"b1", "b4"}, shopNamespace.Key: {"b1", "b2", "b3", "b4"}, atoll.NamespaceKey("blog"): nil, webItem("1").Key: nil,
	} {
		got := e.concernedBundles(key)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("of %s they are %q, want %q", key, got, want)
		}
	}
}

// A failure is logged and counted when its reason is new, and its end is logged.
func TestAChangedFailureIsLogged(t *testing.T) {
	wrong, waits := &Failure{Reason: atoll.ReasonInvalid}, &Failure{Reason: atoll.ReasonTerminating, Waits: true}
	for name, c := range map[string]struct {
		old, now *Failure
		level    string
		counted  float64
	}{
		"new":             {nil, wrong, "WARN", 1},
		"another":         {waits, wrong, "WARN", 1},
		"the same":        {wrong, &Failure{Reason: atoll.ReasonInvalid, Message: "other"}, "", 0},
		"waits":           {nil, waits, "INFO", 0},
		"over":            {wrong, nil, "INFO", 0},
		"nothing changes": {nil, nil, "", 0},
	} {
		e := newStubEngine(t, newMemoryMember(t), nil)
		var log bytes.Buffer
		e.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		e.logFailureChange(t.Context(), confKey, c.old, c.now)
		if got := testutil.ToFloat64(e.o.Metrics.failures.WithLabelValues(string(atoll.ReasonInvalid))); got != c.counted {
			t.Errorf("%s: %v are counted", name, got)
		}
		if got := log.String(); (got == "") != (c.level == "") || !strings.Contains(got, c.level) {
			t.Errorf("%s: logged is %q", name, got)
		}
	}
}
