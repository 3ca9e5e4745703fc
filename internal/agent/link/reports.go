package link

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"atoll.dev/atoll/internal/agent/claims"
	"atoll.dev/atoll/internal/agent/pause"
	"atoll.dev/atoll/internal/agent/store"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/session"
	pb "atoll.dev/atoll/internal/session/sessionpb"
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
func (l *Link) reportLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		if !pause.For(ctx, Gather) {
			return
		}
		l.mu.Lock()
		dirty := l.dirty
		l.dirty = map[string]bool{}
		l.mu.Unlock()
		for bundle := range dirty {
			if err := l.report(ctx, bundle); err != nil {
				l.o.Log.Warn("a status cannot be numbered, since the member does not store; trying on", "bundle", bundle, "err", err)
				l.mu.Lock()
				l.dirty[bundle] = true
				l.mu.Unlock()
				if !pause.For(ctx, time.Second) {
					return
				}
				signal(l.changed)
			}
		}
	}
}

// report the Bundle's status, if it says something new.
func (l *Link) report(ctx context.Context, bundle string) error {
	l.mu.Lock()
	var prev *atoll.RowStatus
	if last, ok := l.memory.Last[bundle]; ok {
		prev = &last
	}
	l.mu.Unlock()
	now := time.Now()
	s, held := l.engine.Status(bundle, prev, now)
	if !held {
		return nil
	}
	l.mu.Lock()
	told := l.told[bundle]
	l.mu.Unlock()
	if prev != nil && told && session.StatusHash(*prev) == session.StatusHash(s) {
		return nil
	}
	seq, err := l.o.Store.Seq(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone, was := l.memory.Gone[bundle]; was && s.Generation <= gone.Generation {
		return nil // forgotten since it was looked at; nobody would forget it again
	}
	out := l.core.Report(bundle, s, seq)
	s.Seq = l.core.Seq(bundle)
	l.remember(bundle, prev, s, now)
	l.memory.Last[bundle] = s
	l.told[bundle] = true
	l.take(out, l.out)
	if out.Turned {
		l.rhythm.turn(now)
	}
	signal(l.saving)
	l.o.Metrics.reports.Inc()
	if prev == nil || prev.State != s.State || prev.Reason != s.Reason {
		l.o.Log.Info("status", "bundle", bundle, "state", s.State, "reason", s.Reason, "message", s.Message, "ready", s.Ready, "total", s.Total)
	}
	return nil
}

// remember the tombstones that are carried out, also those for which the status has
// no room, and that the status before did not tell. The caller holds mu.
func (l *Link) remember(bundle string, prev *atoll.RowStatus, s atoll.RowStatus, now time.Time) {
	for _, t := range l.engine.CarriedOut(bundle) {
		if prev == nil || !slices.Contains(prev.Gone, claims.TombstoneID(t)) && !(prev.AllGone && prev.Content == s.Content) {
			l.keep(store.Tombstone{Bundle: bundle, Generation: s.Generation, Tombstone: &t, At: now.Unix()})
		}
	}
	if s.State == atoll.RowRemoved && (prev == nil || prev.State != atoll.RowRemoved) {
		l.keep(store.Tombstone{Bundle: bundle, Generation: s.Generation, At: now.Unix()})
	}
}

// keep a removal instead of what was remembered of it before. The caller holds mu.
func (l *Link) keep(t store.Tombstone) {
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

// remembered answers Recall with all removals that still hold: what came back since
// is not gone. The caller holds mu.
func (l *Link) remembered() (frames []*pb.FromAgent) {
	standing := slices.DeleteFunc(slices.Clone(l.memory.Tombstones), func(t store.Tombstone) bool {
		return l.engine.Holds(t.Bundle, t.Tombstone)
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

// forget Bundles whose removal the hub has stored.
func (l *Link) forget(ctx context.Context, bundles map[string]int64) {
	now := time.Now()
	l.mu.Lock()
	for bundle, generation := range bundles {
		l.memory.Gone[bundle] = store.Gone{Generation: generation, At: now.Unix()}
		delete(l.memory.Last, bundle)
		delete(l.told, bundle)
	}
	l.mu.Unlock()
	if err := l.save(ctx); err != nil {
		l.o.Log.Warn("removed bundles stay in the member's store until the next start", "err", err)
		return
	}
	for bundle := range bundles {
		if err := l.engine.Forget(ctx, bundle, now); err != nil {
			l.o.Log.Warn("a removed bundle stays in the member's store until the next start", "bundle", bundle, "err", err)
		}
	}
}

// forgetOld drops what is remembered for too long. The caller holds mu.
func (l *Link) forgetOld(now time.Time) {
	before := now.Add(-rememberFor).Unix()
	for bundle, gone := range l.memory.Gone {
		if gone.At < before {
			delete(l.memory.Gone, bundle)
		}
	}
	l.memory.Tombstones = slices.DeleteFunc(l.memory.Tombstones, func(t store.Tombstone) bool { return t.At < before })
}

// saveLoop stores what was reported now and then, and at the end.
func (l *Link) saveLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
		case <-l.saving:
			pause.For(ctx, saveEvery)
		}
		if ctx.Err() != nil {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			if err := l.save(end); err != nil {
				l.o.Log.Info("the last reports are not stored; they will be made again", "err", err)
			}
			return
		}
		if err := l.save(ctx); err != nil && ctx.Err() == nil {
			l.o.Log.Warn("what was reported is not stored yet", "err", err)
			signal(l.saving)
		}
	}
}

func (l *Link) save(ctx context.Context) error {
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
