package delivery

import "time"

// Upkeep
//
// State changes and progress, which clusters cause by themselves, are written at the rate
// pace.SliceWrites, and each Bundle at pace.BundleSliceWrites. Bundles that are due while
// the budget is spent wait in a queue, in the order of arrival. Their write includes all
// that is pending of them. Therefore, while health flaps everywhere, every slice is written
// in turn, and later the more there are. Writes for a milestone cost no budget, so that a rollout of any size never delays
// the report of a failure.

// admitWrite reports whether a Bundle with due reports may be written now, and charges the
// budget. Otherwise the Bundle joins the queue. The caller holds the lock.
func (t *reportWriter) admitWrite(bundle string, p *bundleReports, now time.Time) bool {
	switch {
	case p.hasDueMilestone(now):
	case len(t.upkeepQueue) > 0 || t.upkeepBudget.WaitTime(now) > 0:
		p.inQueue = true
		if t.upkeepQueue = append(t.upkeepQueue, bundle); len(t.upkeepQueue) == 1 {
			t.startQueuedWriteTimer(now)
		}
		return false
	default:
		t.chargeUpkeep(p, now)
	}
	return true
}

// chargeUpkeep charges a write of what is pending. The caller holds the lock.
func (t *reportWriter) chargeUpkeep(p *bundleReports, now time.Time) {
	t.upkeepBudget.TakeTokens(now, p.countPendingTargetSlices())
	p.upkeepBudget.TakeTokens(now, 1)
	p.nextUpkeep = now.Add(p.upkeepBudget.WaitTime(now))
}

// startQueuedWriteTimer schedules the queue for when the budget is positive. The caller holds the
// lock.
func (t *reportWriter) startQueuedWriteTimer(now time.Time) {
	time.AfterFunc(max(t.upkeepBudget.WaitTime(now), time.Millisecond), t.writeQueuedBundles)
}

// writeQueuedBundles writes Bundles of the queue as far as the budget reaches.
func (t *reportWriter) writeQueuedBundles() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return
	}
	now := time.Now()
	for len(t.upkeepQueue) > 0 && t.upkeepBudget.WaitTime(now) == 0 {
		bundle := t.upkeepQueue[0]
		t.upkeepQueue = t.upkeepQueue[1:]
		p := t.bundles[bundle]
		if p.inQueue = false; p.writing {
			continue // the end of that write schedules the rest
		}
		if now.Before(p.notBefore) || !p.hasDueReport(now) { // it was written for a milestone
			t.scheduleRemaining(bundle, p)
			continue
		}
		t.chargeUpkeep(p, now)
		batch := p.takeAllPendingReports()
		go t.runContainingPanics(bundle, func() { t.writeBatch(bundle, p, batch) })
	}
	if len(t.upkeepQueue) > 0 {
		t.startQueuedWriteTimer(now)
	}
}

// dueTime returns when a report must be written. known is false for one that waits in the
// queue.
func (p *bundleReports) dueTime(r pendingReport) (due time.Time, known bool) {
	switch {
	case r.weight == weightMilestone:
		return r.dueAt, true
	case r.dueAt.Before(p.nextUpkeep):
		return p.nextUpkeep, !p.inQueue
	}
	return r.dueAt, !p.inQueue
}

// hasDueReport reports whether a report has waited as long as it may. The caller holds the
// lock.
func (p *bundleReports) hasDueReport(now time.Time) bool {
	for _, r := range p.rows {
		if due, known := p.dueTime(r); known && !due.After(now) {
			return true
		}
	}
	return false
}

// hasDueMilestone reports whether a milestone is due. The caller holds the lock.
func (p *bundleReports) hasDueMilestone(now time.Time) bool {
	for _, r := range p.rows {
		if r.weight == weightMilestone && !r.dueAt.After(now) {
			return true
		}
	}
	return false
}

// countPendingTargetSlices returns how many slices hold what is pending.
func (p *bundleReports) countPendingTargetSlices() int {
	names := map[string]struct{}{}
	for _, r := range p.rows {
		names[r.slice] = struct{}{}
	}
	return len(names)
}
