package delivery

import (
	"slices"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
)

// When a report is written
//
// A milestone is written after flushAfter, and at once if it completes a small Bundle: the first Ready of a generation, a row that is removed,
// a tombstone that is carried out. Users wait for each milestone, and each comes once per
// order.
//
// A state change is written at once, too: the row becomes Degraded, Failed or not Ready
// any more, or an item cannot be applied. A row may change stateChangeBurst times and then
// once per quiet interval. A row that flaps therefore costs a few writes a minute.
//
// Everything else is progress: acknowledgements, counts, texts. It is written together
// with any other write of its Bundle, or by itself after a moment, and then less and less
// often. The pause after the last write is a fifth of the time for which the row has been
// moving. It is at least a second and at most the quiet interval. A rollout of seconds is
// shown every second; one that hangs for hours costs at most four writes a minute.
//
// Writes of one Bundle keep a small gap, which grows with its rows.
//
// State changes and progress are upkeep, which has a bound (upkeep_budget.go). A milestone
// waits for no upkeep, and takes along what waits.
//
// Reports of agents that check in are spread over their interval, and each slice would be
// written for each of its rows. Therefore such a report waits for others of its Bundle,
// longer where there are more. A slice is written about twenty times per interval at most.
// The agent stays connected until its report is acknowledged.

const (
	// stateChangeBurst is how many state changes of a row may be written quickly. It refills
	// by one per quiet interval.
	stateChangeBurst = 3
	// progressFraction is the part of the time since a row began to move after which its
	// progress is written again.
	progressFraction = 5
	// gapPerRow is added to the gap between two writes per row of the Bundle, up to
	// maxWriteGap.
	gapPerRow   = time.Millisecond
	maxWriteGap = 5 * time.Second
	// gatherRows of a Bundle, of agents that check in, gather for a gatherFraction of the
	// interval between two writes, fewer rows for a shorter time. None gathers longer than
	// maxGatherDelay, for which an agent stays connected.
	gatherRows     = 200
	gatherFraction = 20
	maxGatherDelay = 45 * time.Second
)

// writePacing is the two times that writes are paced by.
type writePacing struct {
	flushAfter, quietInterval time.Duration
}

// bundleWriteInterval is the gap between two writes of a Bundle with so many rows.
func (p writePacing) bundleWriteInterval(rows int) time.Duration {
	return min(3*p.flushAfter+time.Duration(rows)*gapPerRow, maxWriteGap)
}

// reportBatchDelay is the pause between two writes of reports of so many agents that check in
// once per interval.
func reportBatchDelay(rows int, every time.Duration) time.Duration {
	return min(every/gatherFraction*time.Duration(min(rows, gatherRows))/gatherRows, maxGatherDelay)
}

// progressDelay is how long progress waits for another write.
func (p writePacing) progressDelay() time.Duration { return 5 * p.flushAfter }

// changeUrgency is how urgent a change is.
type changeUrgency int

const (
	weightProgress changeUrgency = iota
	weightStateChange
	weightMilestone
)

// rowWriteBudget is the budget of writes of one row.
type rowWriteBudget struct {
	generation   int64       // of the last report
	movingSince  time.Time   // start of the generation, or the last state change
	lastWrite    time.Time   // of the last write
	readyWritten bool        // Ready was written at this generation
	stateChanges pace.Bucket // that may be written at once
	reportedAt   time.Time   // time of the last report
}

// rowBudget returns the budget of the row that a report is about. A new generation renews
// it. The caller holds the lock.
func (p *bundleReports) rowBudget(s atoll.RowStatus, now time.Time, quiet time.Duration) *rowWriteBudget {
	r := p.rowBudgets[s.UID]
	if r == nil {
		r = &rowWriteBudget{}
		p.rowBudgets[s.UID] = r
	}
	if r.generation != s.Generation || r.reportedAt.IsZero() {
		r.generation, r.movingSince, r.readyWritten = s.Generation, now, false
		r.stateChanges = pace.Rate{Interval: quiet, Burst: stateChangeBurst}.NewBucket()
	}
	r.reportedAt = now
	return r
}

// assessReportUrgency returns how urgent a report is, and when it is to be written. stored is the present
// status of the row. The caller holds the lock.
func (p *bundleReports) assessReportUrgency(r pendingReport, stored *atoll.RowStatus, now time.Time, pacing writePacing) (w changeUrgency, due time.Time) {
	b := p.rowBudget(r.status, now, pacing.quietInterval)
	// The row may have been Ready before this hub had it.
	b.readyWritten = b.readyWritten || stored != nil && stored.Generation == r.status.Generation && stored.State == atoll.RowReady
	w = b.classifyChangeUrgency(stored, r.status)
	due = now.Add(b.maxWait(w, now, pacing))
	if gathered := p.lastWrite.Add(reportBatchDelay(len(p.rowBudgets), r.checkInInterval)); gathered.After(due) {
		due = gathered
	}
	return w, due
}

// maxWait returns how long a report of that weight may wait.
func (r *rowWriteBudget) maxWait(w changeUrgency, now time.Time, p writePacing) time.Duration {
	switch {
	case w == weightMilestone, w == weightStateChange && r.stateChanges.HasToken(now):
		return p.flushAfter
	case w == weightStateChange:
		return max(p.flushAfter, r.lastWrite.Add(p.quietInterval).Sub(now))
	}
	spacing := min(max(now.Sub(r.movingSince)/progressFraction, 10*p.flushAfter), p.quietInterval)
	return max(p.progressDelay(), r.lastWrite.Add(spacing).Sub(now))
}

// classifyChangeUrgency returns how urgent the changes of a report are. stored is the present status
// of the row.
func (r *rowWriteBudget) classifyChangeUrgency(stored *atoll.RowStatus, s atoll.RowStatus) changeUrgency {
	old := atoll.RowStatus{Generation: s.Generation, State: atoll.RowProgressing}
	if stored != nil {
		old = *stored
	}
	if old.Generation != s.Generation || old.Content != s.Content { // another order: all of it is to be done
		old.State, old.AllTombstonesDone = atoll.RowProgressing, false
	}
	news := old.State != s.State
	switch {
	case s.State == atoll.RowRemoved && news, news && s.State == atoll.RowReady && !r.readyWritten:
		return weightMilestone
	case s.AllTombstonesDone && !old.AllTombstonesDone,
		slices.ContainsFunc(s.DoneTombstones, func(id string) bool { return !slices.Contains(old.DoneTombstones, id) }):
		return weightMilestone
	case news, !slices.Equal(failedItems(old), failedItems(s)):
		return weightStateChange
	}
	return weightProgress
}

// failedItems lists the items that cannot be applied, with reasons.
func failedItems(s atoll.RowStatus) (out []string) {
	for _, it := range s.Items {
		if it.Error {
			out = append(out, it.Key.String()+" "+string(it.Reason))
		}
	}
	return out
}

// recordWrite counts a write. The caller holds the lock.
func (p *bundleReports) recordWrite(w pendingReport, now time.Time) {
	r := p.rowBudgets[w.status.UID]
	r.lastWrite = now
	if r.generation != w.status.Generation {
		return // another order has come
	}
	r.readyWritten = r.readyWritten || w.status.State == atoll.RowReady
	if w.weight == weightStateChange {
		if r.stateChanges.TakeUpToOneToken(r.reportedAt); r.stateChanges.HasToken(r.reportedAt) {
			r.movingSince = now
		}
	}
}
