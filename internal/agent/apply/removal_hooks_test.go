package apply

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// withRemovalHooks is a manifest of a ConfigMap with hooks before and after its removal.
func withRemovalHooks(generation int64) atoll.Manifest {
	m := newManifest("b1", generation, hookOf("pre", "PreDelete", ""), confItem("x"), hookOf("post", "PostDelete", "HookSucceeded"))
	m.HookRun = contentOne
	return m
}

// removalManifest is the order that b1 goes, with an order about its hooks.
func removalManifest(generation int64, order string) atoll.Manifest {
	return atoll.Manifest{Bundle: "b1", Generation: generation, Content: "gone", Remove: true, Removal: v1alpha1.RemoveDelete, RemovalHooks: order}
}

// labelledNamespace is the record of the namespace that the agent made, with the labels that it is to have.
func labelledNamespace() ownership.Record {
	r := shopNamespace
	r.Applied = metaHash(atoll.NamespaceMeta{})
	return r
}

// newRemovalEngine returns an engine that holds a Bundle with hooks of its removal.
func newRemovalEngine(t *testing.T) (*stubEngine, *memoryMember) {
	t.Helper()
	api := newMemoryMember(t, liveConf("x"))
	e := newStubEngine(t, api, []ownership.Record{labelledNamespace(), wantedRecord(confItem("x"))}, withRemovalHooks(1))
	e.ObjectSeen(seenConf())
	return e, api
}

// restartEngine returns an engine with what this one has stored.
func (e *stubEngine) restartEngine() *stubEngine {
	e.callsMu.Lock()
	stored := store.StoredContents{Bundles: e.bundles[len(e.bundles)-1:]}
	e.callsMu.Unlock()
	e.mu.Lock()
	for _, key := range e.book.RecordedKeys() {
		r, _ := e.book.Record(key)
		stored.Records = append(stored.Records, r)
	}
	e.mu.Unlock()
	return &stubEngine{New(e.o, stored), e.recordedCalls}
}

// expectSomeWrites compares the writes since the last call, in any order.
func (m *memoryMember) expectSomeWrites(t *testing.T, want ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.writes)
	if slices.Sort(want); !slices.Equal(m.writes, want) {
		t.Errorf("the writes are %q, want %q", m.writes, want)
	}
	m.writes = nil
}

const (
	confStays  = "conf Progressing Removing it is removed after the hook Job shop/pre succeeds in PreDelete"
	postLater  = "post Progressing Removing the hook runs in PostDelete, after what comes before"
	preRuns    = "pre Progressing WaitsForHook the removal waits until the hook succeeds in PreDelete"
	hookRemedy = "; annotate the Bundle with atoll.dev/removal-hooks: Retry or Skip"
)

// An ordinary apply makes no hook of a removal. A removal runs the hooks around the deletion of the others, reports for what it
// waits, and leaves nothing.
func TestARemovalRunsItsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		defer startRun(t, e)()
		e.upsertAndWait(t, withRemovalHooks(2))
		api.expectWrites(t)
		e.expectStatus(t, atoll.RowReady, "post Healthy HookNotRun it is a hook (PostDelete), and does not run for this content", "pre Healthy HookNotRun it is a hook (PreDelete), and does not run for this content")

		e.upsertAndWait(t, removalManifest(3, ""))
		api.expectWrites(t, applyPre)
		e.expectStatus(t, atoll.RowProgressing, confStays, postLater, preRuns)
		e.upsertAndWait(t, removalManifest(4, "")) // the same removal again
		api.expectWrites(t)
		e.seeJob(t, "pre", "2", atoll.Healthy, true, "")
		api.expectWrites(t, "DELETE conf", applyPost)
		e.expectStatus(t, atoll.RowProgressing, "post Progressing WaitsForHook the removal waits until the hook succeeds in PostDelete",
			"pre Progressing Removing the hook has run, and its object is removed at the end of the removal")
		e.seeJob(t, "post", "2", atoll.Healthy, true, "")
		api.expectSomeWrites(t, "DELETE post", "DELETE pre")
		e.expectStatus(t, atoll.RowRemoved)
		if last := e.bundles[len(e.bundles)-1].Holding; last.HasRemovalHooks() || !last.Manifest.Remove || last.Manifest.Generation != 4 {
			t.Errorf("the agent stores %+v", last.Manifest)
		}
		if err := e.ForgetRemovedBundle(t.Context(), "b1", testNow); err != nil || len(e.removals) > 0 {
			t.Errorf("%v are left (%v)", e.removals, err)
		}
	})
}

// A restart at any point of a removal runs no hook twice, and goes on.
func TestARestartRunsNoHookOfARemovalTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		stop := startRun(t, e)
		again := func() {
			t.Helper()
			stop()
			e = e.restartEngine()
			stop = startRun(t, e)
		}
		e.upsertAndWait(t, removalManifest(3, ""))
		api.expectWrites(t, applyPre)
		again()
		api.expectWrites(t)
		e.expectStatus(t, atoll.RowProgressing, confStays, postLater, preRuns)
		e.seeJob(t, "pre", "2", atoll.Healthy, true, "")
		api.expectWrites(t, "DELETE conf", applyPost)
		again()
		api.expectWrites(t)
		e.seeJob(t, "post", "2", atoll.Degraded, true, "1 pod failed")
		again()
		api.expectWrites(t)
		if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowFailed || s.Reason != atoll.ReasonHookFailed {
			t.Errorf("the row is %s with %s", s.State, s.Reason)
		}
		e.upsertAndWait(t, removalManifest(4, "Retry"))
		api.expectWrites(t, "DELETE post", applyPost)
		again()
		api.expectWrites(t)
		e.seeJob(t, "post", "3", atoll.Healthy, true, "")
		api.expectSomeWrites(t, "DELETE post", "DELETE pre")
		again()
		api.expectWrites(t)
		e.expectStatus(t, atoll.RowRemoved)
		stop()
	})
}

// An agent that died after it stored the end of the hooks removes their objects, and runs none again.
func TestARestartAfterTheHooksOfARemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		stop := startRun(t, e)
		e.upsertAndWait(t, removalManifest(3, ""))
		e.seeJob(t, "pre", "2", atoll.Healthy, true, "")
		stop()
		api.expectWrites(t, applyPre, "DELETE conf", applyPost)
		e.seeJob(t, "post", "2", atoll.Healthy, true, "")
		if err := e.endRemovalHooks(t.Context(), "b1"); err != nil {
			t.Fatal(err)
		}
		e = e.restartEngine()
		defer startRun(t, e)()
		api.expectSomeWrites(t, "DELETE post", "DELETE pre")
		e.expectStatus(t, atoll.RowRemoved)
	})
}

// A hook that fails stops the removal until a person orders otherwise, and the row has the reason and the way out.
func TestAFailedHookStopsTheRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		defer startRun(t, e)()
		e.upsertAndWait(t, removalManifest(3, ""))
		api.expectWrites(t, applyPre)
		e.seeJob(t, "pre", "2", atoll.Degraded, true, "2 pods failed\n"+strings.Repeat("x", 300))
		api.expectWrites(t)
		s, _ := e.StatusOf("b1", nil, testNow)
		i := slices.IndexFunc(s.Items, func(it atoll.ItemStatus) bool { return it.Key.Name == "pre" })
		if s.State != atoll.RowFailed || s.Reason != atoll.ReasonHookFailed || i < 0 || !s.Items[i].Error || !strings.HasSuffix(s.Items[i].Message, hookRemedy) ||
			!strings.HasPrefix(s.Items[i].Message, "the hook failed in PreDelete, and the removal waits: 2 pods failed x") {
			t.Fatalf("the row is %+v", s)
		}
		if why := e.removalBlocker(); !strings.HasPrefix(why, "Job shop/pre: the hook failed in PreDelete") {
			t.Errorf("what blocks is %q", why)
		}
		e.upsertAndWait(t, removalManifest(4, "Retry"))
		api.expectWrites(t, "DELETE pre", applyPre)
		e.expectStatus(t, atoll.RowProgressing, confStays, postLater, preRuns)
		if why := e.removalBlocker(); why != "Job shop/pre: the removal waits until the hook succeeds in PreDelete" {
			t.Errorf("what blocks is %q", why)
		}
		e.seeJob(t, "pre", "3", atoll.Degraded, true, "")
		e.upsertAndWait(t, removalManifest(5, "Skip"))
		api.expectSomeWrites(t, "DELETE pre", "DELETE conf")
		e.expectStatus(t, atoll.RowRemoved)
	})
}

// A removal that comes to orphan ends its hooks, and leaves what is there.
func TestAnOrphaningRemovalEndsItsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		defer startRun(t, e)()
		e.upsertAndWait(t, removalManifest(3, ""))
		m := removalManifest(4, "")
		m.Removal = v1alpha1.RemoveOrphan
		e.upsertAndWait(t, m)
		api.expectSomeWrites(t, applyPre, "MERGE conf "+atoll.FieldManager, "MERGE pre "+atoll.FieldManager)
		e.expectStatus(t, atoll.RowRemoved)
	})
}

// A Bundle that comes back is applied, and its next removal runs the hooks again.
func TestABundleThatComesBackIsRemovedWithItsHooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		defer startRun(t, e)()
		e.upsertAndWait(t, removalManifest(3, ""))
		e.seeJob(t, "pre", "2", atoll.Degraded, true, "1 pod failed")
		api.expectWrites(t, applyPre)
		e.upsertAndWait(t, withRemovalHooks(4))
		api.expectWrites(t)
		if s, _ := e.StatusOf("b1", nil, testNow); s.State != atoll.RowReady {
			t.Errorf("the row is %+v", s)
		}
		e.upsertAndWait(t, removalManifest(5, ""))
		api.expectWrites(t, "DELETE pre", applyPre)
	})
}

// A hook that does not end within its deadline has failed. Its object is read first, because a report of its end may be late.
func TestTheDeadlineOfAHookOfARemoval(t *testing.T) {
	for name, c := range map[string]struct {
		status map[string]any
		writes []string
		text   string
	}{
		"it still runs": {nil, nil, "pre Degraded HookFailed the hook failed in PreDelete, and the removal waits: it did not end within 1h0m0s" + hookRemedy},
		"it has ended":  {map[string]any{"succeeded": 1, "conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}, []string{"DELETE conf", applyPost}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, api := newRemovalEngine(t)
			defer startRun(t, e)()
			e.upsertAndWait(t, removalManifest(3, ""))
			e.seeJob(t, "pre", "1", atoll.Progressing, false, "1 pod runs")
			api.expectWrites(t, applyPre)
			time.Sleep(removalHookDeadline - time.Second)
			synctest.Wait()
			api.expectWrites(t)
			e.expectStatus(t, atoll.RowProgressing, confStays, postLater, preRuns)
			api.mu.Lock()
			if pre := api.objects["/apis/batch/v1/namespaces/shop/jobs/pre"]; c.status != nil {
				pre["status"] = c.status
			}
			api.mu.Unlock()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			api.expectWrites(t, c.writes...)
			if c.text != "" {
				e.expectStatus(t, atoll.RowFailed, confStays, postLater, c.text)
			}
			if t.Failed() {
				t.Log(name)
			}
		})
	}
}

// The end of the hooks is stored before their objects go, and tried again while the store refuses.
func TestTheEndOfHooksIsStoredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, api := newRemovalEngine(t)
		defer startRun(t, e)()
		e.upsertAndWait(t, removalManifest(3, ""))
		e.seeJob(t, "pre", "2", atoll.Healthy, true, "")
		api.expectWrites(t, applyPre, "DELETE conf", applyPost)
		e.callsMu.Lock()
		e.refuses = errors.New("busy")
		e.callsMu.Unlock()
		e.seeJob(t, "post", "2", atoll.Progressing, false, "1 pod runs")
		e.seeJob(t, "post", "3", atoll.Healthy, true, "")
		api.expectWrites(t)
		e.callsMu.Lock()
		e.refuses = nil
		e.callsMu.Unlock()
		time.Sleep(2 * storeRetry)
		synctest.Wait()
		api.expectSomeWrites(t, "DELETE post", "DELETE pre")
		e.expectStatus(t, atoll.RowRemoved)
	})
}

// An object of which another Bundle is the owner is not run as a hook, and holds no removal.
func TestAHookThatAnotherBundleOwnsHoldsNoRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pre := hookOf("pre", "PreDelete", "")
		api := newMemoryMember(t, liveConf("x"))
		shared := ownership.Record{Key: pre.Key, Owner: "b2", Chosen: true, Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}, "b2": {State: ownership.Wanted, Template: "t"}}}
		other := newManifest("b2", 1, pre)
		other.HookRun = contentTwo
		e := newStubEngine(t, api, []ownership.Record{labelledNamespace(), wantedRecord(confItem("x")), shared}, withRemovalHooks(1), other)
		e.ObjectSeen(observe.View{Key: confKey, UID: "live", Label: "b1", Template: "t", Version: "1", Health: atoll.Healthy})
		defer startRun(t, e)()
		e.upsertAndWait(t, removalManifest(3, ""))
		api.expectWrites(t, "DELETE conf", applyPost)
	})
}
