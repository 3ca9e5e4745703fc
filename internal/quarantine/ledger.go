package quarantine

import (
	"time"

	"atoll.dev/atoll/internal/pace"
)

// The tokens of both rates are milliseconds of CPU time. Ten milliseconds bring one: a tenth of a
// core.
var (
	// budget is what the renderings of one Bundle may cost: a minute at once, and a tenth of a
	// core from then on.
	budget = pace.Rate{Interval: 10 * time.Millisecond, Burst: 60_000}
	// trialBudget is what the renderings of a Revision may cost after its quarantine before the
	// next one: 5 seconds at once, and a tenth of a core from then on.
	trialBudget = pace.Rate{Interval: 10 * time.Millisecond, Burst: 5_000}
)

const (
	// freeTime is the CPU time that a rendering may take without cost.
	freeTime = 250 * time.Millisecond
	// panicCost is the least cost of a rendering that panics.
	panicCost = 500 * time.Millisecond
	// maxCost bounds the cost of one rendering. Without the CPU time of threads the cost is wall time: a process
	// that was stopped for a while must not set aside what was rendered then.
	maxCost = 10 * time.Second
	// minDuration is the first quarantine. Each further one is twice as long, up to maxDuration.
	minDuration = time.Minute
	maxDuration = 30 * time.Minute
	// probation is how long a quarantine is still shown after its end, while renderings are tried.
	probation = time.Minute
	// memory is how long a quarantine that ended counts for the duration of the next one.
	memory = 30 * time.Minute
	// maxRevisions bounds the quarantines of one Bundle.
	maxRevisions = 64
	// minSweep is the least number of accounts at which idle accounts are dropped.
	minSweep = 1024
)

// RenderWork is what one rendering did.
type RenderWork struct {
	// CPUTime is the CPU time that it took.
	CPUTime time.Duration
	// HasPanicked is true when the rendering of the row panicked. An object whose rendering
	// panics has an error in its row, and the row has a result.
	HasPanicked bool
}

// Cost returns what the work costs: the CPU time above freeTime, and at least panicCost where the
// row panicked.
func (w RenderWork) Cost() time.Duration {
	cost := max(w.CPUTime-freeTime, 0)
	if w.HasPanicked {
		cost = max(cost, panicCost)
	}
	return min(cost, maxCost)
}

// Quarantine sets one Revision of a Bundle aside.
type Quarantine struct {
	Revision string
	// Since is when the Revision was set aside, by the first of the quarantines that followed one
	// another while one was shown. Until is when it is rendered again.
	Since, Until time.Time
	// Cost is what the Bundle's renderings have cost since its account was empty.
	Cost time.Duration
}

// IsOver reports whether the Revision may be rendered again.
func (q Quarantine) IsOver(now time.Time) bool { return !now.Before(q.Until) }

// ShownUntil returns when the quarantine is no longer shown, unless another one follows.
func (q Quarantine) ShownUntil() time.Time { return q.Until.Add(probation) }

// RenderCostLedger has the accounts of Bundles. Make it with NewRenderCostLedger.
type RenderCostLedger struct {
	accounts map[string]*bundleAccount // by the Bundle's UID
	sweepAt  int
}

// bundleAccount is what the renderings of one Bundle have cost.
type bundleAccount struct {
	bucket pace.Bucket
	cost   time.Duration
	// level is the number of quarantines that count for the duration of the next one.
	level    int
	setAside map[string]*quarantineEntry // by Revision
}

// quarantineEntry is a quarantine, and the budget of its Revision's renderings after it.
type quarantineEntry struct {
	Quarantine
	trial pace.Bucket
}

// NewRenderCostLedger returns a RenderCostLedger without accounts.
func NewRenderCostLedger() RenderCostLedger {
	return RenderCostLedger{accounts: map[string]*bundleAccount{}, sweepAt: minSweep}
}

// Charge adds the work of one rendering to the Bundle's account, and returns the quarantine that
// begins with it.
func (l *RenderCostLedger) Charge(now time.Time, bundle, revision string, w RenderWork) (begun Quarantine, begins bool) {
	cost := w.Cost()
	if cost == 0 {
		return Quarantine{}, false
	}
	a := l.accounts[bundle]
	if a == nil || a.isIdle(now) {
		a = l.replaceAccount(now, bundle)
	}
	return a.chargeCost(now, revision, cost)
}

// Find returns the quarantine of a Revision, as long as it is shown.
func (l *RenderCostLedger) Find(now time.Time, bundle, revision string) (Quarantine, bool) {
	a := l.accounts[bundle]
	if a == nil {
		return Quarantine{}, false
	}
	e := a.setAside[revision]
	if e == nil || !now.Before(e.ShownUntil()) {
		return Quarantine{}, false
	}
	return e.Quarantine, true
}

// CountSetAside returns the number of Bundles that have a Revision in quarantine now.
func (l *RenderCostLedger) CountSetAside(now time.Time) (n int) {
	for _, a := range l.accounts {
		for _, e := range a.setAside {
			if !e.IsOver(now) {
				n++
				break
			}
		}
	}
	return n
}

// replaceAccount replaces the Bundle's account by an empty one. It drops idle accounts when there
// are many.
func (l *RenderCostLedger) replaceAccount(now time.Time, bundle string) *bundleAccount {
	if len(l.accounts) >= l.sweepAt {
		for uid, a := range l.accounts {
			if a.isIdle(now) {
				delete(l.accounts, uid)
			}
		}
		l.sweepAt = max(2*len(l.accounts), minSweep)
	}
	a := &bundleAccount{bucket: budget.NewBucket(), setAside: map[string]*quarantineEntry{}}
	l.accounts[bundle] = a
	return a
}

// isIdle reports whether nothing of the account counts any more.
func (a *bundleAccount) isIdle(now time.Time) bool {
	for _, e := range a.setAside {
		if now.Before(e.Until.Add(memory)) {
			return false
		}
	}
	return a.bucket.IsFull(now)
}

// chargeCost takes the cost of a rendering out of the budget and, after a quarantine, out of the trial.
func (a *bundleAccount) chargeCost(now time.Time, revision string, cost time.Duration) (Quarantine, bool) {
	a.bucket.TakeTokens(now, int(cost.Milliseconds()))
	a.cost += cost
	isSpent := !a.bucket.HasToken(now)
	if e := a.setAside[revision]; e != nil {
		if !e.IsOver(now) {
			return Quarantine{}, false // the rendering began before the quarantine
		}
		e.trial.TakeTokens(now, int(cost.Milliseconds()))
		isSpent = isSpent || !e.trial.HasToken(now)
	}
	if !isSpent {
		return Quarantine{}, false
	}
	return a.setAsideFrom(now, revision), true
}

// setAsideFrom sets the Revision aside from now on, for twice as long as the last one.
func (a *bundleAccount) setAsideFrom(now time.Time, revision string) Quarantine {
	since := now
	if e := a.setAside[revision]; e == nil {
		a.dropEarliestQuarantine()
	} else if now.Before(e.ShownUntil()) {
		since = e.Since
	}
	duration := maxDuration
	if a.level < 5 { // 1, 2, 4, 8, 16 minutes
		duration = minDuration << a.level
	}
	a.level++
	q := Quarantine{Revision: revision, Since: since, Until: now.Add(duration), Cost: a.cost}
	a.setAside[revision] = &quarantineEntry{q, trialBudget.NewBucket()}
	return q
}

// dropEarliestQuarantine drops the quarantine that ends first, where there are too many.
func (a *bundleAccount) dropEarliestQuarantine() {
	if len(a.setAside) < maxRevisions {
		return
	}
	var first *quarantineEntry
	for _, e := range a.setAside {
		if first == nil || e.Until.Before(first.Until) {
			first = e
		}
	}
	delete(a.setAside, first.Revision)
}
