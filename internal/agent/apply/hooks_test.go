package apply

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
)

// hookOf returns an item of a Job that is a hook.
func hookOf(name, events, policies string) atoll.RenderedItem {
	h, _ := atoll.ParseHook(events, policies)
	return atoll.RenderedItem{
		Key: atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: name}, APIVersion: "batch/v1", UID: "t", Hash: "h" + name, Hook: h, Hooked: true, Error: atoll.UnknownHook,
		Object: []byte(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"` + name + `","namespace":"shop"},"spec":{}}`),
	}
}

// withHooks is a manifest of a ConfigMap with hooks before, after, and for a failure.
func withHooks(generation int64, run, value string) atoll.Manifest {
	m := newManifest("b1", generation, hookOf("pre", "PreSync", ""), confItem(value), hookOf("post", "PostSync", "HookSucceeded"), hookOf("alarm", "SyncFail", "HookFailed,HookSucceeded"))
	m.HookRun = run
	return m
}

// seeJob reports a Job as the watch would.
func (e *stubEngine) seeJob(t *testing.T, name, version string, health atoll.Health, finished bool, text string) {
	t.Helper()
	r := e.recordOf(hookOf(name, "", "").Key)
	if r.Hook == nil {
		e.expectStatus(t, "")
		t.Fatalf("%s does not run", name)
	}
	e.ObjectSeen(observe.View{Key: r.Key, UID: r.UID, Label: "b1", Template: "t", Version: version, Health: health, Finished: finished, Message: text, Owned: r.Owned, HookRun: r.Hook.Label()})
	synctest.Wait()
}

// expectStatus compares, for each item of b1 that has something to report, its name with its health, its reason and its message.
func (e *stubEngine) expectStatus(t *testing.T, state atoll.RowState, want ...string) {
	t.Helper()
	s, _ := e.StatusOf("b1", nil, testNow)
	var got []string
	for _, it := range s.Items {
		if it.Reason != "" || it.Message != "" {
			got = append(got, strings.Join(strings.Fields(it.Key.Name+" "+string(it.Health)+" "+string(it.Reason)+" "+it.Message), " "))
		}
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w || s.State != state {
		t.Errorf("the row is %s:\n%s\nwant %s:\n%s", s.State, g, state, w)
	}
}

const (
	applyPre    = "APPLY pre " + atoll.FieldManager
	applyPost   = "APPLY post " + atoll.FieldManager
	applyAlarm  = "APPLY alarm " + atoll.FieldManager
	alarmIdle   = "alarm Healthy HookNotRun it is a hook (SyncFail), and does not run for this content"
	confAfter   = "conf Progressing WaitsForHook it waits until the hook Job shop/pre succeeds in PreSync"
	postAfter   = "post Progressing WaitsForHook it waits until the hook Job shop/pre succeeds in PreSync"
	runsAgain   = "each change of the Bundle's content runs its hooks again"
	contentOne  = "11111111111111111111111111111111"
	contentTwo  = "22222222222222222222222222222222"
	contentNext = "33333333333333333333333333333333"
)

// Hooks run in their phases, once for a content, and are deleted by their policies. An object that waits names the hook.
func TestHooksRunInTheirPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t)
		e := newStubEngine(t, api, []ownership.Record{shopNamespace})
		defer startRun(t, e)()
		e.upsertAndWait(t, withHooks(1, contentOne, "x"))
		api.expectWrites(t, applyPre)
		e.seeJob(t, "pre", "2", atoll.Progressing, false, "1 pod runs")
		e.expectStatus(t, atoll.RowProgressing, confAfter, alarmIdle, postAfter, "pre Progressing 1 pod runs")
		e.seeJob(t, "pre", "3", atoll.Healthy, true, "")
		api.expectWrites(t, applyConf, applyPost)
		e.seeJob(t, "post", "2", atoll.Healthy, true, "")
		api.expectWrites(t, "DELETE post", "APPLY shop "+atoll.FieldManager) // the namespace is labelled again
		e.expectStatus(t, atoll.RowReady, alarmIdle)

		// The same content again runs nothing. Another one runs all, after the object of the first run is deleted.
		e.upsertAndWait(t, withHooks(2, contentOne, "x"))
		api.expectWrites(t)
		e.upsertAndWait(t, withHooks(3, contentTwo, "x"))
		api.expectWrites(t, "DELETE pre", applyPre)
		e.expectStatus(t, atoll.RowProgressing, alarmIdle, postAfter, "pre Progressing Running 0 pods active, 0 succeeded, 0 failed")

		// A failure holds what follows, and runs the hooks for it.
		e.upsertAndWait(t, withHooks(4, contentNext, "y"))
		e.expectStatus(t, atoll.RowProgressing, confAfter, alarmIdle, postAfter, "pre Progressing WaitsForHook it still runs for the former content, and runs for this one when that ends")
		api.expectWrites(t)
		e.seeJob(t, "pre", "2", atoll.Healthy, true, "")
		api.expectWrites(t, "DELETE pre", applyPre)
		e.seeJob(t, "pre", "2", atoll.Degraded, true, "2 pods failed")
		api.expectWrites(t, applyAlarm)
		e.seeJob(t, "alarm", "2", atoll.Healthy, true, "")
		api.expectWrites(t, "DELETE alarm")
		e.expectStatus(t, atoll.RowDegraded,
			"conf Progressing HookFailed it waits, because the hook Job shop/pre failed in PreSync; "+runsAgain,
			"post Progressing HookFailed it waits, because the hook Job shop/pre failed in PreSync; "+runsAgain,
			"pre Degraded HookFailed the hook failed in PreSync, and what follows waits: 2 pods failed; "+runsAgain)
	})
}

// A restart runs no hook twice: neither one that runs, nor one that has ended and is deleted.
func TestARestartRunsNoHookTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t, liveConf("x"), "apiVersion: batch/v1\nkind: Job\nmetadata: {name: post, namespace: shop}")
		pre, post := hookOf("pre", "PreSync", "HookSucceeded"), hookOf("post", "PostSync", "")
		ended := ownership.Record{
			Key: pre.Key, Owner: "b1", Chosen: true, Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			Hook: &ownership.HookRun{Content: contentOne, Template: "t", Phase: atoll.PhasePreSync, UID: "gone", Outcome: ownership.HookSucceeded},
		}
		runs := wantedRecord(post)
		runs.Hook = &ownership.HookRun{Content: contentOne, Template: "t", Phase: atoll.PhasePostSync, UID: "live"}
		conf := wantedRecord(confItem("x"))
		m := newManifest("b1", 1, pre, confItem("x"), post)
		m.HookRun = contentOne
		e := newStubEngine(t, api, []ownership.Record{shopNamespace, ended, runs, conf}, m)
		defer startRun(t, e)()
		for _, it := range m.Items {
			e.nextPass(it.Key)
		}
		e.wakeRun()
		e.ObjectSeen(seenConf())
		synctest.Wait()
		api.expectWrites(t)
		e.seeJob(t, "post", "2", atoll.Healthy, true, "")
		api.expectWrites(t)
		e.expectStatus(t, atoll.RowReady)
	})
}

// An interrupted run, of which nothing but its beginning is stored, goes on with the object that it made.
func TestAnInterruptedHookGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pre := hookOf("pre", "PreSync", "")
		api := newMemoryMember(t, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: pre, namespace: shop, labels: {"+atoll.LabelBundleUID+": b1, "+ownership.LabelTemplateUID+": t, "+
			ownership.LabelHookRun+": "+contentOne+".PreSync}, managedFields: [{manager: "+atoll.FieldManager+", operation: Apply, apiVersion: batch/v1, fieldsType: FieldsV1, fieldsV1: {}}]}")
		begun := ownership.Record{
			Key: pre.Key, Owner: "b1", Chosen: true, Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			Hook: &ownership.HookRun{Content: contentOne, Template: "t", Phase: atoll.PhasePreSync},
		}
		m := newManifest("b1", 1, pre, confItem("x"))
		m.HookRun = contentOne
		e := newStubEngine(t, api, []ownership.Record{shopNamespace, begun}, m)
		e.nextPass(pre.Key)
		defer startRun(t, e)()
		api.expectWrites(t)
		if r := e.recordOf(pre.Key); r.UID == "" || r.Hook.UID != r.UID {
			t.Errorf("the record is %+v", r)
		}
		e.seeJob(t, "pre", "9", atoll.Healthy, true, "")
		api.expectWrites(t, applyConf)
	})
}

// A run ends by completion, or by health where the kind does not run to completion.
func TestHowAHookEnds(t *testing.T) {
	claim := atoll.ItemKey{Kind: "PersistentVolumeClaim"}
	for name, c := range map[string]struct {
		view      observe.View
		completes bool
		want      ownership.HookOutcome
	}{
		"runs":              {observe.View{Health: atoll.Healthy}, true, ""},
		"completed":         {observe.View{Health: atoll.Healthy, Finished: true}, true, ownership.HookSucceeded},
		"failed":            {observe.View{Health: atoll.Degraded, Finished: true}, true, ownership.HookFailed},
		"not judged":        {observe.View{Health: atoll.Unknown, Finished: true}, true, ""},
		"fails for now":     {observe.View{Health: atoll.Degraded}, true, ""},
		"exists":            {observe.View{Health: atoll.Healthy}, false, ownership.HookSucceeded},
		"unhealthy":         {observe.View{Health: atoll.Degraded}, false, ""},
		"progresses":        {observe.View{Health: atoll.Progressing, Reason: atoll.ReasonPending}, false, ""},
		"unbound claim":     {observe.View{Key: claim, Health: atoll.Progressing, Reason: atoll.ReasonPending}, false, ownership.HookSucceeded},
		"is deleted":        {observe.View{Health: atoll.Healthy, Deleting: true}, false, ""},
		"ended and deleted": {observe.View{Health: atoll.Healthy, Deleting: true, Finished: true}, true, ownership.HookSucceeded},
	} {
		if got := judgeHook(c.view, c.completes); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// hookJob is the live object of hookOf("pre", ...) as an apply for contentOne made it.
const hookJob = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: pre, namespace: shop, labels: {" + atoll.LabelBundleUID + ": b1, " + ownership.LabelTemplateUID + ": t, " +
	ownership.LabelHookRun + ": " + contentOne + ".PreSync}, managedFields: [{manager: " + atoll.FieldManager + ", operation: Apply, apiVersion: batch/v1, fieldsType: FieldsV1, fieldsV1: {}}]}"

// An interrupted run whose object has ended before it is recognized ends: the watch reports the object once, before that.
func TestAnInterruptedHookThatHasEndedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pre := hookOf("pre", "PreSync", "")
		api := newMemoryMember(t, hookJob+"\nstatus: {succeeded: 1, conditions: [{type: Complete, status: 'True'}]}")
		begun := ownership.Record{
			Key: pre.Key, Owner: "b1", Chosen: true, Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}},
			Hook: &ownership.HookRun{Content: contentOne, Template: "t", Phase: atoll.PhasePreSync},
		}
		m := newManifest("b1", 1, pre, confItem("x"))
		m.HookRun = contentOne
		e := newStubEngine(t, api, []ownership.Record{shopNamespace, begun}, m)
		e.ObjectSeen(observe.View{Key: pre.Key, UID: "live", Label: "b1", Template: "t", Version: "1", Health: atoll.Healthy, Finished: true, HookRun: contentOne + ".PreSync"})
		e.nextPass(pre.Key)
		defer startRun(t, e)()
		api.expectWrites(t, applyConf)
	})
}

// A hook that ends before the reply to its apply is handled ends.
func TestAHookThatEndsBeforeItsReplyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pre := hookOf("pre", "PreSync", "")
		e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace})
		m := newManifest("b1", 1, pre, confItem("x"))
		m.HookRun = contentOne
		if err := e.UpsertManifest(t.Context(), m, store.Position{}); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		e.book.BeginHook(pre.Key)
		e.ensureTask(pre.Key).busy = true
		e.mu.Unlock()
		v := observe.View{Key: pre.Key, UID: "u", Label: "b1", Template: "t", Version: "5", Health: atoll.Healthy, Finished: true, HookRun: contentOne + ".PreSync"}
		e.ObjectSeen(v)
		e.mu.Lock()
		e.book.RecordApplied(pre.Key, ownership.Fact{UID: "u", Template: "t", Hash: pre.Hash, Label: "b1", HookRun: v.HookRun})
		v.Version, v.Finished, v.Health = "4", false, atoll.Progressing
		e.recordAppliedView(v)
		e.mu.Unlock()
		if r := e.recordOf(pre.Key); r.Hook.Outcome != ownership.HookSucceeded {
			t.Errorf("the run is %+v", r.Hook)
		}
	})
}

// A view of an object from before its run ends no run.
func TestAnOldViewEndsNoHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := confItem("x")
		hook.Hook, _ = atoll.ParseHook("PreSync", "HookFailed")
		hook.Hooked, hook.Error = true, atoll.UnknownHook
		runs := wantedRecord(hook)
		runs.Hook = &ownership.HookRun{Content: contentTwo, Template: "t", Phase: atoll.PhasePreSync, UID: "live"}
		m := newManifest("b1", 1, hook)
		m.HookRun = contentTwo
		e := newStubEngine(t, newMemoryMember(t, liveConf("x")), []ownership.Record{shopNamespace, runs}, m)
		v := seenConf()
		v.HookRun = contentOne + ".PreSync"
		e.ObjectSeen(v)
		if r := e.recordOf(hook.Key); r.Hook.Outcome != "" {
			t.Errorf("the run is %+v", r.Hook)
		}
		v.HookRun = contentTwo + ".PreSync"
		e.ObjectSeen(v)
		if r := e.recordOf(hook.Key); r.Hook.Outcome != ownership.HookSucceeded {
			t.Errorf("the run is %+v", r.Hook)
		}
	})
}

// A Bundle waits for a hook that another Bundle runs until it has run there, also where the object is deleted since.
func TestAHookOfAnotherBundle(t *testing.T) {
	const applyWeb = "APPLY web " + atoll.FieldManager
	for name, c := range map[string]struct {
		events  string
		outcome ownership.HookOutcome // before the other Bundle comes; empty: it does not run
		reason  atoll.Reason
		writes  []string
	}{
		"succeeded":    {"PreSync", ownership.HookSucceeded, "", []string{applyWeb}},
		"failed":       {"PreSync", ownership.HookFailed, atoll.ReasonHookFailed, nil},
		"never runs":   {"Skip", "", "", []string{applyWeb}},
		"has not run":  {"PreSync", "", atoll.ReasonWaitsForHook, nil},
		"another turn": {"SyncFail", "", "", []string{applyWeb}},
	} {
		synctest.Test(t, func(t *testing.T) {
			hook := hookOf("pre", c.events, "HookSucceeded,HookFailed")
			web := webItem("1")
			web.Hooked, web.Error = true, atoll.UnknownHook
			m1, m2 := newManifest("b1", 1, hook), newManifest("b2", 1, hook, web)
			m1.HookRun, m2.HookRun = contentOne, contentTwo
			r := ownership.Record{Key: hook.Key, Owner: "b1", Chosen: true, Claims: map[string]ownership.Claim{"b1": {State: ownership.Wanted, Template: "t"}}}
			if c.outcome != "" {
				r.Hook = &ownership.HookRun{Content: contentOne, Template: "t", Phase: atoll.PhasePreSync, UID: "gone", Outcome: c.outcome}
			}
			api := newMemoryMember(t)
			e := newStubEngine(t, api, []ownership.Record{shopNamespace, r}, m1)
			if err := e.UpsertManifest(t.Context(), m2, store.Position{}); err != nil {
				t.Fatal(err)
			}
			e.holdTask(hook.Key).at = time.Now().Add(time.Hour) // the owner does not come to it
			defer startRun(t, e)()
			api.expectWrites(t, c.writes...)
			s, _ := e.StatusOf("b2", nil, testNow)
			if i := slices.IndexFunc(s.Items, func(it atoll.ItemStatus) bool { return it.Key == hook.Key }); c.reason == "" && i >= 0 || c.reason != "" && (i < 0 || s.Items[i].Reason != c.reason) {
				t.Errorf("%s: %+v", name, s.Items)
			}
		})
	}
}

// A hook of which the member's administrator denies the object reports nothing that rules read of it before.
func TestADeniedHookReportsNoFeedback(t *testing.T) {
	hook := hookOf("pre", "PreSync", "")
	runs := wantedRecord(hook)
	runs.Hook = &ownership.HookRun{Content: contentOne, Template: "t", Phase: atoll.PhasePreSync, UID: "live"}
	m := newManifest("b1", 1, hook)
	m.HookRun = contentOne
	e := newStubEngine(t, newMemoryMember(t), []ownership.Record{shopNamespace, runs}, m)
	e.ObjectSeen(observe.View{Key: hook.Key, UID: "live", Label: "b1", Template: "t", Version: "1", Health: atoll.Progressing, Feedback: []atoll.FeedbackValue{{Name: "a"}}})
	e.mu.Lock()
	defer e.mu.Unlock()
	if out := e.itemStatus("b1", &m.Items[0], nil); len(out.Feedback) == 0 {
		t.Fatal("it has no feedback to drop")
	}
	e.forbidden[hook.Key] = "denied"
	if out := e.itemStatus("b1", &m.Items[0], nil); len(out.Feedback) != 0 {
		t.Errorf("it reports %v", out.Feedback)
	}
}
