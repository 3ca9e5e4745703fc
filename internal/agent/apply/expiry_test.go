package apply

import (
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// expiringConf is confItem, finished as soon as it exists, with a time after which it is deleted.
func expiringConf(value string, seconds int32) atoll.RenderedItem {
	it := confItem(value)
	it.Assessment, it.Error = &atoll.Assessment{Completion: "true", TTLSecondsAfterFinished: &seconds}, atoll.UnknownAssessment
	return it
}

// expectFinished compares the state of b1, and of its object after that was deleted.
func (e *stubEngine) expectFinished(t *testing.T) {
	t.Helper()
	s, _ := e.StatusOf("b1", nil, testNow)
	if s.State != atoll.RowReady || len(s.Items) != 1 || !s.Items[0].Completed || s.Items[0].Health != atoll.Healthy || s.Items[0].Message == "" {
		t.Errorf("the status is %+v", s)
	}
	if r := e.recordOf(confKey); r.UID != "" || r.FinishedAt != 0 || r.Ran != "t" {
		t.Errorf("the record is %+v", r)
	}
}

// A finished object is deleted after its ttlSecondsAfterFinished, and not made again before its content changes.
func TestFinishedObjectsAreDeletedAfterTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newMemoryMember(t)
		e := newStubEngine(t, api, []ownership.Record{shopNamespace})
		defer startRun(t, e)()
		e.upsertAndWait(t, newManifest("b1", 1, expiringConf("x", 60)))
		api.expectWrites(t, applyConf)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		api.expectWrites(t)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		api.expectWrites(t, "DELETE conf", "APPLY shop "+atoll.FieldManager) // the namespace is labelled again
		e.expectFinished(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		api.expectWrites(t)

		e.upsertAndWait(t, newManifest("b1", 2, expiringConf("y", 0)))
		api.expectWrites(t, applyConf, "DELETE conf")
		e.expectFinished(t)

		// Without the time it stays, and a time that comes later counts from when the object is judged by it.
		again := expiringConf("z", 0)
		again.Assessment = &atoll.Assessment{Completion: "true"}
		e.upsertAndWait(t, newManifest("b1", 3, again))
		api.expectWrites(t, applyConf)
		time.Sleep(time.Hour)
		synctest.Wait()
		api.expectWrites(t)
		e.upsertAndWait(t, newManifest("b1", 4, expiringConf("z", 10)))
		api.expectWrites(t)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		api.expectWrites(t, "DELETE conf")
	})
}

// The time goes on while the agent is restarted. An object that is denied by now stays.
func TestTheTimeAfterFinishOutlivesTheAgent(t *testing.T) {
	for name, denied := range map[string]bool{"permitted": false, "denied": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				item := expiringConf("x", 60)
				r := wantedRecord(item)
				r.Ran, r.RanHash, r.FinishedAt = "t", item.Hash, time.Now().Unix()-50
				api := newMemoryMember(t, liveConf("x"))
				e := newStubEngine(t, api, []ownership.Record{shopNamespace, r}, newManifest("b1", 1, item))
				if denied {
					e.limitAgent(t, noConfigMaps)
					e.holdTask(confKey).weigh = true
				}
				defer startRun(t, e)()
				e.nextPass(confKey)
				e.wakeRun()
				synctest.Wait()
				api.expectWrites(t)
				time.Sleep(11 * time.Second)
				synctest.Wait()
				if denied {
					api.expectWrites(t)
					return
				}
				api.expectWrites(t, "DELETE conf", "APPLY shop "+atoll.FieldManager) // the namespace is labelled again
			})
		})
	}
}

// An object that is observed, or not finished any more, is not deleted, and no pass waits for it.
func TestOnlyFinishedObjectsOfTheirBundleExpire(t *testing.T) {
	item := expiringConf("x", 0)
	observed := item
	observed.Observe = atoll.ObserveHealth
	for name, c := range map[string]struct {
		item atoll.RenderedItem
		edit func(*ownership.Record)
		want ownership.Verb
	}{
		"finished":     {item, func(*ownership.Record) {}, ownership.Expire},
		"not finished": {item, func(r *ownership.Record) { r.FinishedAt = 0 }, ownership.Nothing},
		"adopted":      {item, func(r *ownership.Record) { r.Adopted = true }, ownership.Nothing},
		"observed":     {observed, func(*ownership.Record) {}, observeItem},
	} {
		r := wantedRecord(c.item)
		r.Ran, r.RanHash, r.FinishedAt = "t", item.Hash, 1
		c.edit(&r)
		e := newStubEngine(t, newMemoryMember(t, liveConf("x")), []ownership.Record{shopNamespace, r}, newManifest("b1", 1, c.item))
		e.mu.Lock()
		got := e.pendingWorkFor(confKey).Verb
		e.armExpiry(confKey)
		isDue := e.tasks[confKey] != nil && e.tasks[confKey].due
		e.mu.Unlock()
		if got != c.want || isDue != (c.want == ownership.Expire) {
			t.Errorf("%s: %s, want %s; due %t", name, got, c.want, isDue)
		}
	}
}
