package link

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pause"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
	"atoll.dev/atoll/internal/wakeup"
)

const (
	// saveEvery is how often what was reported is stored in the member. Losing it
	// costs reports that are made again, nothing else.
	saveEvery = time.Minute
	// rememberFor is how long tombstones and removed Bundles are remembered.
	rememberFor = 30 * 24 * time.Hour
	// rememberMost bounds the tombstones that are remembered.
	rememberMost = 5000
)

// reportLoop reports statuses that changed.
func (l *HubLink) reportLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		if !l.gatherChanges(ctx) {
			return
		}
		l.mu.Lock()
		dirty := l.dirty
		l.dirty = map[string]time.Time{}
		l.mu.Unlock()
		for bundle, changed := range dirty {
			if !l.reportNumbered(ctx, bundle, changed) {
				return
			}
		}
	}
}

// gatherChanges waits for Gather, and reports Bundles that become Ready at once: no further change is to join such a
// report. It returns false when ctx ends.
func (l *HubLink) gatherChanges(ctx context.Context) bool {
	timer := time.NewTimer(Gather)
	defer timer.Stop()
	for {
		for bundle, changed := range l.takeNewlyReady() {
			if !l.reportNumbered(ctx, bundle, changed) {
				return false
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-l.changed:
		}
	}
}

// takeNewlyReady takes the Bundles out of dirty that this process reported in another state, and that are Ready. It looks at
// those that changed since the last call.
func (l *HubLink) takeNewlyReady() map[string]time.Time {
	l.mu.Lock()
	unchecked := l.unchecked
	l.unchecked = map[string]atoll.RowStatus{}
	l.mu.Unlock()
	ready := map[string]time.Time{}
	for bundle, prev := range unchecked {
		if s, held := l.holdings.StatusOf(bundle, &prev, time.Now()); !held || s.State != atoll.RowReady {
			continue
		}
		l.mu.Lock()
		if changed, ok := l.dirty[bundle]; ok {
			ready[bundle] = changed
			delete(l.dirty, bundle)
		}
		l.mu.Unlock()
	}
	return ready
}

// reportNumbered reports the status of a Bundle, and marks it as changed again when the member stores no number. It returns
// false when ctx ends.
func (l *HubLink) reportNumbered(ctx context.Context, bundle string, changed time.Time) bool {
	err := l.reportBundle(ctx, bundle, changed)
	if err == nil {
		return true
	}
	l.o.Log.Warn("a status cannot be numbered, since the member does not store; trying on", "bundle", bundle, "err", err)
	l.mu.Lock()
	l.dirty[bundle] = changed
	l.mu.Unlock()
	if !pause.WaitFor(ctx, time.Second) {
		return false
	}
	wakeup.WakeReader(l.changed)
	return true
}

// reportBundle reports the Bundle's status, which changed at a time, if it differs from the last one.
func (l *HubLink) reportBundle(ctx context.Context, bundle string, changed time.Time) error {
	l.mu.Lock()
	var prev *atoll.RowStatus
	if last, ok := l.memory.Last[bundle]; ok {
		prev = &last
	}
	l.mu.Unlock()
	now := time.Now()
	actual, held := l.holdings.StatusOf(bundle, prev, now)
	l.mu.Lock()
	s, known := l.statusWithDeclined(bundle, actual, held)
	told := l.reportedBundles[bundle]
	l.mu.Unlock()
	if !known {
		return nil
	}
	if prev != nil && told && session.StatusHash(*prev) == session.StatusHash(s) {
		return nil
	}
	seq, err := l.o.Store.NextSequence(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone, was := l.memory.Gone[bundle]; was && s.Generation <= gone.Generation {
		return nil // dropped since it was read; no later call would drop it again
	}
	l.timings.endTimingIfApplied(bundle, s)
	out := l.core.ReportStatus(bundle, s, seq)
	s.Seq = l.core.LastSeq(bundle)
	if held {
		l.storeTombstones(bundle, prev, actual, now)
		l.memory.Last[bundle] = s
		l.reportedBundles[bundle] = true
	}
	l.applyOutput(out, l.out)
	if out.StateChanged {
		l.rhythm.hastenForStateChange(now)
	}
	wakeup.WakeReader(l.saving)
	l.o.Metrics.reports.Inc()
	l.o.Metrics.reportDelay.Observe(now.Sub(changed).Seconds())
	l.logStatus(bundle, prev, &s)
	return nil
}

// statusWithDeclined returns the status of a Bundle with the order that was declined, if there is one; false where
// there is nothing to report. The caller holds mu.
func (l *HubLink) statusWithDeclined(bundle string, actual atoll.RowStatus, held bool) (s atoll.RowStatus, known bool) {
	d, declined := l.declined[bundle]
	if declined && d.generation > actual.Generation {
		return d.statusOfDeclined(actual), true
	}
	return actual, held || declined
}

// logStatus logs a status with another state or reason than the one before.
func (l *HubLink) logStatus(bundle string, prev, s *atoll.RowStatus) {
	if prev == nil || prev.State != s.State || prev.Reason != s.Reason {
		l.o.Log.Info("status", "bundle", bundle, "state", s.State, "reason", s.Reason, "message", s.Message, "ready", s.Ready, "total", s.Total)
	}
}

// storeTombstones stores the tombstones that are carried out, also those that do not fit in the
// status and that the status before did not have. The caller holds mu.
func (l *HubLink) storeTombstones(bundle string, prev *atoll.RowStatus, s atoll.RowStatus, now time.Time) {
	for _, t := range l.holdings.CarriedOut(bundle) {
		if prev == nil || !slices.Contains(prev.DoneTombstones, ownership.TombstoneID(t)) && !(prev.AllTombstonesDone && prev.Content == s.Content) {
			t.ReleasedFinalizers = nil // which have no bound, and do nothing more
			l.keepTombstone(store.Tombstone{Bundle: bundle, Generation: s.Generation, Tombstone: &t, At: now.Unix()})
		}
	}
	if s.State == atoll.RowRemoved && (prev == nil || prev.State != atoll.RowRemoved) {
		l.keepTombstone(store.Tombstone{Bundle: bundle, Generation: s.Generation, At: now.Unix()})
	}
}

// keepTombstone keeps a removal instead of what was remembered of it before. The caller holds mu.
func (l *HubLink) keepTombstone(t store.Tombstone) {
	at := slices.IndexFunc(l.memory.Tombstones, func(o store.Tombstone) bool {
		return o.Bundle == t.Bundle && (o.Tombstone == nil) == (t.Tombstone == nil) && (t.Tombstone == nil || o.Tombstone.ID() == t.Tombstone.ID())
	})
	switch {
	case at >= 0 && l.memory.Tombstones[at].Generation >= t.Generation:
		return
	case at >= 0:
		l.memory.Tombstones = slices.Delete(l.memory.Tombstones, at, at+1)
	}
	l.memory.Tombstones = append(l.memory.Tombstones, t)
	if n := len(l.memory.Tombstones) - rememberMost; n > 0 {
		l.memory.Tombstones = slices.Delete(l.memory.Tombstones, 0, n)
	}
}

// rememberedTombstoneFrames answers Recall with all removals that still hold. Objects that were created again
// since are not removals. The caller holds mu.
func (l *HubLink) rememberedTombstoneFrames() (frames []*pb.FromAgent) {
	standing := slices.DeleteFunc(slices.Clone(l.memory.Tombstones), func(t store.Tombstone) bool {
		return l.holdings.IsWantedAgain(t.Bundle, t.Tombstone)
	})
	chunks := slices.Collect(slices.Chunk(standing, 500))
	if len(chunks) == 0 {
		chunks = [][]store.Tombstone{nil}
	}
	for i, chunk := range chunks {
		answer := &pb.Remembered{Complete: i == len(chunks)-1}
		for _, t := range chunk {
			one := &pb.RememberedTombstone{Bundle: t.Bundle, Generation: t.Generation, At: t.At}
			if t.Tombstone != nil {
				if body, err := json.Marshal(t.Tombstone); err == nil {
					one.Tombstone = body
				}
			}
			answer.Tombstones = append(answer.Tombstones, one)
		}
		frames = append(frames, &pb.FromAgent{Frame: &pb.FromAgent_Remembered{Remembered: answer}})
	}
	return frames
}

// dropStoredRemovals drops Bundles whose removal the hub has stored, and keeps their generations.
// The member's store drops them later, many at a time.
func (l *HubLink) dropStoredRemovals(bundles map[string]int64) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for bundle, generation := range bundles {
		l.memory.Gone[bundle] = store.Gone{Generation: generation, At: now.Unix()}
		delete(l.memory.Last, bundle)
		delete(l.reportedBundles, bundle)
		l.dropping = append(l.dropping, bundle)
	}
	l.core.ForgetRemovals(l.dropOldRemovals(now))
	wakeup.WakeReader(l.drops)
}

// dropRemovedLoop drops forgotten Bundles from the member's store until ctx ends.
func (l *HubLink) dropRemovedLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.drops:
			l.dropRemovedBundles(ctx)
		}
	}
}

// dropRemovedBundles drops the Bundles that were forgotten since the last call from the member's store, after their
// generations are stored. All generations are one value of the store, which is written once for all.
func (l *HubLink) dropRemovedBundles(ctx context.Context) {
	l.mu.Lock()
	bundles := l.dropping
	l.dropping = nil
	l.mu.Unlock()
	if err := l.saveReports(ctx); err != nil {
		l.o.Log.Warn("removed bundles stay in the member's store until the next start", "err", err)
		return
	}
	for _, bundle := range bundles {
		if err := l.applier.ForgetRemovedBundle(ctx, bundle, time.Now()); err != nil {
			l.o.Log.Warn("a removed bundle stays in the member's store until the next start", "bundle", bundle, "err", err)
		}
	}
	wakeup.WakeReader(l.manifests) // for orders that fit now
}

// dropOldRemovals drops what is remembered for too long, and the oldest removals over ownership.MaxRemoved. It returns the
// Bundles of dropped removals. The caller holds mu.
func (l *HubLink) dropOldRemovals(now time.Time) (forgotten []string) {
	before := now.Add(-rememberFor).Unix()
	l.memory.Tombstones = slices.DeleteFunc(l.memory.Tombstones, func(t store.Tombstone) bool { return t.At < before })
	if len(l.memory.Gone) > ownership.MaxRemoved {
		times := make([]int64, 0, len(l.memory.Gone))
		for _, gone := range l.memory.Gone {
			times = append(times, gone.At)
		}
		before = max(before, ownership.RemovedBundlesCutoff(times))
	}
	for bundle, gone := range l.memory.Gone {
		if gone.At < before {
			delete(l.memory.Gone, bundle)
			forgotten = append(forgotten, bundle)
		}
	}
	return forgotten
}

// saveReportsLoop stores what was reported now and then, and at the end.
func (l *HubLink) saveReportsLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
		case <-l.saving:
			pause.WaitFor(ctx, saveEvery)
		}
		if ctx.Err() != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			if err := l.saveReports(end); err != nil {
				l.o.Log.Info("the last reports are not stored; they will be made again", "err", err)
			}
			return
		}
		if err := l.saveReports(ctx); err != nil && ctx.Err() == nil {
			l.o.Log.Warn("what was reported is not stored yet", "err", err)
			wakeup.WakeReader(l.saving)
		}
	}
}

func (l *HubLink) saveReports(ctx context.Context) error {
	l.mu.Lock()
	copied, err := json.Marshal(l.memory)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	var memory store.Reports
	if err := json.Unmarshal(copied, &memory); err != nil {
		return err
	}
	return l.o.Store.PutReports(ctx, memory)
}
