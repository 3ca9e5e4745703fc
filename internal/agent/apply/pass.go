package apply

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"atoll.dev/atoll/internal/agent/crash"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

const (
	// maxParallel is how many objects are worked on at the same time.
	maxParallel = 8
	// tierGrace is how long a pass waits for a tier; what takes longer goes on
	// beside the next tiers.
	tierGrace = 3 * time.Second
	// heldRetry is how soon Run looks again whether it may work.
	heldRetry = time.Second
	// storeRetry is how long Run waits after the member refused to store intents.
	storeRetry = 2 * time.Second
)

// Run makes the member what it should be, until ctx ends.
func (e *MemberApplier) Run(ctx context.Context) {
	e.watchAll()
	var running sync.WaitGroup
	defer running.Wait()
	defer crash.RecoverContained(ctx) // before what runs is waited for: it is to end
	for ctx.Err() == nil {
		var keys []atoll.ItemKey
		next, held := heldRetry, e.o.Lease.IsHeld()
		if held {
			stored := e.endFinishedRemovalHooks(ctx)
			if keys, next = e.takeDueKeys(time.Now()); !stored {
				next = min(next, storeRetry)
			}
		}
		switch {
		case len(keys) > 0:
			e.runPass(ctx, keys, &running)
			continue
		case !held:
		case e.hasUnsavedShards():
			if e.storeChangedRecords(ctx) == nil {
				continue
			}
			next = storeRetry
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// takeDueKeys returns the keys that are due, marked busy, or how long to wait.
func (e *MemberApplier) takeDueKeys(now time.Time) (keys []atoll.ItemKey, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.o.Metrics.queueDepth.Set(float64(len(e.tasks)))
	for _, key := range e.book.TakeUnblocked() {
		e.markDue(key)
	}
	wait = e.readOverdueHooks(now)
	for key, t := range e.tasks {
		switch {
		case !t.due || t.busy:
		case t.at.After(now):
			wait = min(wait, t.at.Sub(now))
		case e.isIdle(key, t):
			t.due = false
			if e.armExpiry(key); t.due {
				wait = min(wait, t.at.Sub(now))
			}
			e.dropTaskIfIdle(key, t)
		default:
			t.due, t.busy = false, true
			keys = append(keys, key)
		}
	}
	return keys, wait
}

// isIdle reports whether the key needs no work. The caller holds mu.
func (e *MemberApplier) isIdle(key atoll.ItemKey, t *task) bool {
	if t.check || t.judge || t.correct || t.weigh || t.failure != nil {
		return false
	}
	return !e.pendingWorkFor(key).hasAction()
}

// dropTaskIfIdle removes a task that holds no information. The caller holds mu.
func (e *MemberApplier) dropTaskIfIdle(key atoll.ItemKey, t *task) {
	if !t.due && !t.busy && t.failure == nil && len(t.corrections.at) == 0 {
		delete(e.tasks, key)
	}
	if _, known := e.book.Record(key); known {
		return
	}
	delete(e.views, key)
	delete(e.forbidden, key)
	if !e.book.HasKind(key.Group, key.Kind) {
		e.o.Watch.Stop(key.Group, key.Kind)
	}
}

// planTiers sorts the keys into the tiers of their applies and deletions. intends: an apply among
// them has an intent that must be stored first. While the policy holds changes, nothing is intended.
func (e *MemberApplier) planTiers(keys []atoll.ItemKey, isHeld bool) (up, down [][]atoll.ItemKey, intends bool) {
	up, down = make([][]atoll.ItemKey, tiers), make([][]atoll.ItemKey, tiers)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range keys {
		p := e.pendingWorkFor(key)
		if p.isDeletion() {
			down[tiers-1-applyTier(key)] = append(down[tiers-1-applyTier(key)], key)
			continue
		}
		up[applyTier(key)] = append(up[applyTier(key)], key)
		if !isHeld && (p.Verb == ownership.Apply || p.Verb == ownership.Replace) {
			intends = intends || p.Record.Label != p.Owner || p.Verb == ownership.Replace
			e.intendNamespace(key.Namespace)
			e.ensureTask(key).intended = p.Record.UID == ""
			if p.Hook != nil && p.Verb == ownership.Apply {
				e.book.BeginHook(key)
				intends = true
			}
		}
	}
	return up, down, intends
}

// runPass works on the keys, tier by tier: applies upwards, then deletions downwards.
func (e *MemberApplier) runPass(ctx context.Context, keys []atoll.ItemKey, running *sync.WaitGroup) {
	why, _ := e.o.Policy().HoldAt(time.Now())
	isHeld := why != ""
	up, down, intends := e.planTiers(keys, isHeld)
	if intends {
		if err := e.storeChangedRecords(ctx); err != nil {
			e.requeueKeys(keys, failureFromError(err, atoll.ItemKey{}))
			return
		}
	}
	if !isHeld {
		for _, ns := range e.missingNamespaces(keys) {
			e.recordNamespaceFailure(ctx, ns, e.ensureNamespace(ctx, ns))
		}
	}
	for _, tier := range append(up, down...) {
		e.runTier(ctx, tier, running)
	}
	if err := e.storeChangedRecords(ctx); err != nil && ctx.Err() == nil {
		e.o.Log.Warn("inventory is not stored yet", "err", err)
	}
}

// recordNamespaceFailure keeps a failure to make a namespace for its next try.
func (e *MemberApplier) recordNamespaceFailure(ctx context.Context, ns string, failure *Failure) {
	if failure == nil {
		return
	}
	key := atoll.NamespaceKey(ns)
	e.mu.Lock()
	t := e.ensureTask(key)
	old := t.failure
	t.failure = failure
	if !t.due {
		t.failures++
		t.due, t.at = true, time.Now().Add(failure.retryDelay(t.failures))
	}
	e.mu.Unlock()
	e.logFailureChange(ctx, key, old, failure)
}

func (e *MemberApplier) runTier(ctx context.Context, keys []atoll.ItemKey, running *sync.WaitGroup) {
	var tier sync.WaitGroup
	for _, key := range keys {
		e.slots <- struct{}{}
		tier.Add(1)
		running.Go(func() {
			defer tier.Done()
			defer func() { <-e.slots }()
			defer crash.RecoverContained(ctx)
			failure := e.workOnKey(ctx, key)
			e.finishWork(ctx, key, failure)
		})
	}
	if len(keys) == 0 {
		return
	}
	done := make(chan struct{})
	go func() { defer crash.RecoverContained(ctx); tier.Wait(); close(done) }()
	timer := time.NewTimer(tierGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// finishWork records the outcome of the work on a key.
func (e *MemberApplier) finishWork(ctx context.Context, key atoll.ItemKey, failure *Failure) {
	e.mu.Lock()
	t := e.ensureTask(key)
	t.busy, t.intended = false, false
	if ctx.Err() != nil {
		e.mu.Unlock()
		return
	}
	old := t.failure
	t.failure = failure
	if failure == nil {
		t.failures = 0
	} else {
		t.failures++
		if !t.due {
			t.due, t.at = true, time.Now().Add(failure.retryDelay(t.failures))
		}
	}
	told := append(e.concernedBundles(key), e.book.TakeChangedBundles()...)
	if isHPA(key) {
		e.markDueAfterHPAChange(key)
	}
	e.armExpiry(key)
	e.dropTaskIfIdle(key, t)
	e.openWaves(told...)
	e.mu.Unlock()
	e.logFailureChange(ctx, key, old, failure)
	e.reportChanged(told)
	e.wakeRun()
}

// concernedBundles returns the Bundles whose status includes the object now. The Book keeps the
// Bundles whose claims ended since. The caller holds mu.
func (e *MemberApplier) concernedBundles(key atoll.ItemKey) (out []string) {
	if key.IsNamespace() {
		for _, uid := range e.book.BundleUIDs() {
			if slices.Contains(e.book.HoldingOf(uid).Manifest.DeletedNamespaces, key.Name) {
				out = append(out, uid)
			}
		}
		out = append(out, e.book.BundlesWithNamespace(key.Name)...)
		for _, inside := range e.book.KeysInNamespace(key.Name) {
			out = append(out, e.book.BundlesWithClaimOrTombstone(inside)...)
		}
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return append(out, e.book.BundlesWithClaimOrTombstone(key)...)
}

// logFailureChange logs an item's failure when it is new or different.
func (e *MemberApplier) logFailureChange(ctx context.Context, key atoll.ItemKey, old, now *Failure) {
	switch {
	case now != nil && (old == nil || old.Reason != now.Reason):
		e.o.Metrics.countFailure(now)
		level := slog.LevelWarn
		if now.Waits {
			level = slog.LevelInfo
		}
		e.o.Log.Log(ctx, level, "object is not as it should be", "object", key, "reason", now.Reason, "message", now.Message)
	case now == nil && old != nil:
		e.o.Log.Info("object is as it should be again", "object", key, "was", old.Reason)
	}
}

// requeueKeys puts keys back that a pass could not begin with.
func (e *MemberApplier) requeueKeys(keys []atoll.ItemKey, failure *Failure) {
	e.mu.Lock()
	touched := map[string]bool{}
	for _, key := range keys {
		t := e.ensureTask(key)
		t.busy, t.intended, t.failure = false, false, failure
		t.failures++
		t.due, t.at = true, time.Now().Add(failure.retryDelay(t.failures))
		r, _ := e.book.Record(key)
		for uid := range r.Claims {
			touched[uid] = true
		}
	}
	e.mu.Unlock()
	e.o.Log.Warn("intent cannot be stored in the member", "objects", len(keys), "reason", failure.Reason, "message", failure.Message)
	for uid := range touched {
		e.o.Changed(uid)
	}
}

func (e *MemberApplier) hasUnsavedShards() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.book.DirtyShards()) > 0
}

// storeChangedRecords stores the records that changed.
func (e *MemberApplier) storeChangedRecords(ctx context.Context) error {
	e.flushing.Lock()
	defer e.flushing.Unlock()
	e.mu.Lock()
	dirty := map[string][]ownership.Record{}
	for _, shard := range e.book.DirtyShards() {
		dirty[shard] = e.book.RecordsInShard(shard)
		e.book.MarkClean(shard)
	}
	e.mu.Unlock()
	var failed error
	for shard, records := range dirty {
		if err := e.o.Store.PutRecords(ctx, shard, records); err != nil {
			failed = err
			e.mu.Lock()
			e.book.MarkDirty(shard)
			e.mu.Unlock()
		}
	}
	return failed
}
