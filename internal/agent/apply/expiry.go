package apply

import (
	"time"

	"atoll.dev/atoll/internal/agent/observe"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// An object with ttlSecondsAfterFinished is deleted that long after it has run to completion. Its record keeps since when
// it is finished, so that a restart delays nothing. An object that would be made again is not deleted.

// recordFinish records since when the object of a view is finished, where its item states that it is deleted after a time.
// A view that other rules judged changes nothing. The caller holds mu.
func (e *MemberApplier) recordFinish(v observe.View, left bool) {
	r, known := e.book.Record(v.Key)
	rules := e.rulesOf(r.Owner, v.Key)
	if !known || left || rules == nil || v.CompletionUnknown || v.RulesID != rules.ID() {
		return
	}
	item := e.book.ItemToApply(r.Owner, v.Key)
	if _, expires := item.ExpiresAfter(); !expires {
		return
	}
	var at int64
	if v.Finished {
		at = time.Now().Unix()
	}
	e.book.RecordFinish(v.Key, v.UID, at)
	e.armExpiry(v.Key)
}

// expiryOf returns when the object of an item is to be deleted, because it is finished; false: it is not. The caller
// holds mu.
func (e *MemberApplier) expiryOf(r *ownership.Record, item *atoll.RenderedItem) (at time.Time, expires bool) {
	after, states := item.ExpiresAfter()
	if !states || e.forbidden[r.Key] != "" || !r.MayExpire(item) {
		return time.Time{}, false
	}
	return time.Unix(r.FinishedAt, 0).Add(after), true
}

// isExpired reports whether the plan's object is to be deleted now, because it is finished. The caller holds mu.
func (e *MemberApplier) isExpired(p *pendingWork) bool {
	if p.Verb != ownership.Nothing || p.Observed != nil || p.Hook != nil || p.held {
		return false
	}
	at, expires := e.expiryOf(&p.Record, p.Item)
	return expires && !at.After(time.Now())
}

// armExpiry makes the key due when its object is to be deleted, unless it is due before. The caller holds mu.
func (e *MemberApplier) armExpiry(key atoll.ItemKey) {
	if len(e.rules) == 0 {
		return
	}
	r, _ := e.book.Record(key)
	at, expires := e.expiryOf(&r, e.book.ItemToApply(r.Owner, key))
	if !expires || !at.After(time.Now()) && e.pendingWorkFor(key).Verb != ownership.Expire {
		return
	}
	if t := e.ensureTask(key); !t.due && !t.busy {
		t.due, t.at = true, at
	}
}
