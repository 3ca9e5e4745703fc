package binder

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// takeAllEvents takes the events that wait, in their order.
func takeAllEvents(q *eventQueue) (out []tableEvent) {
	for e, ok := q.takeNext(); ok; e, ok = q.takeNext() {
		out = append(out, e)
	}
	return out
}

// Changes go before rechecks. A change that waits is not queued twice, and comes again once it was taken.
func TestChangesGoBeforeRechecks(t *testing.T) {
	q := newEventQueue()
	shop, blog, old := tableEvent{namespace: "shop"}, tableEvent{namespace: "blog"}, tableEvent{bundleUID: "old"}
	q.putRechecks(old, shop)
	q.put(shop)
	q.put(blog)
	q.put(shop)
	if got, want := takeAllEvents(q), []tableEvent{shop, blog, old, shop}; !slices.Equal(got, want) {
		t.Errorf("the order is %+v, want %+v", got, want)
	}
	q.put(shop)
	if got := takeAllEvents(q); !slices.Equal(got, []tableEvent{shop}) {
		t.Errorf("a later change is %+v", got)
	}
}

// A reset drops what waits, and later events come. After the end of Run none come.
func TestAClosedQueueTakesNoEvents(t *testing.T) {
	q := newEventQueue()
	shop, old := tableEvent{namespace: "shop"}, tableEvent{bundleUID: "old"}
	q.put(shop)
	q.putRechecks(old)
	q.reset()
	if got := takeAllEvents(q); got != nil {
		t.Errorf("after a reset %+v waits", got)
	}
	q.put(shop)
	q.putRechecks(old)
	if got, want := takeAllEvents(q), []tableEvent{shop, old}; !slices.Equal(got, want) {
		t.Errorf("after a reset %+v comes, want %+v", got, want)
	}
	q.put(shop)
	q.close()
	q.put(shop)
	q.putRechecks(old)
	if got := takeAllEvents(q); got != nil {
		t.Errorf("a closed queue has %+v", got)
	}
}

// The reader wakes for a change and for a recheck, and ends with its context although events wait.
func TestTheReaderOfEventsWakesAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventQueue()
		ctx, cancel := context.WithCancel(t.Context())
		var got []tableEvent
		ended := false
		go func() {
			for e, ok := q.waitForNext(ctx); ok; e, ok = q.waitForNext(ctx) {
				got = append(got, e)
			}
			ended = true
		}()
		synctest.Wait()
		var want []tableEvent
		for _, put := range []func(tableEvent){q.put, func(e tableEvent) { q.putRechecks(e) }} {
			e := tableEvent{namespace: "shop"}
			put(e)
			synctest.Wait()
			if want = append(want, e); !slices.Equal(got, want) {
				t.Fatalf("the reader has %+v, want %+v", got, want)
			}
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("the reader waits although its context has ended")
		}
		q.put(tableEvent{namespace: "late"})
		if e, ok := q.waitForNext(ctx); ok {
			t.Errorf("after the end of its context the reader gets %+v", e)
		}
	})
}
