package placer

import (
	"math"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

const (
	// scoreDebounce is how long changes of a cluster's score are collected: rows that come and
	// go, and reports of free capacity.
	scoreDebounce = 5 * time.Second
	// scoreMoveInterval is the time between two Bundles that scores may move. Such moves are not
	// urgent, and each move changes the scores for the next.
	scoreMoveInterval = 50 * time.Millisecond
)

// movableBundles holds the Bundles that may move when scores change, in groups that see the same
// scores. A change is compared with the lowest bar of a group first, and with each Bundle only
// above it.
type movableBundles struct {
	groups       map[movableKind]*movableGroup
	kindOfBundle map[string]movableKind // by Bundle UID
	// queued holds the Bundles that wait for their turn, by UID.
	queued map[string]bool
	// nextAt is the time of the next turn.
	nextAt time.Time
}

// movableKind is what the scores of clusters depend on, apart from the Bundle's clusters.
type movableKind struct {
	filter            *schedule.CompiledPlacement
	namespace, source string
}

type movableGroup struct {
	standings map[string]*numberedStanding // by Bundle UID
	// worstScore is the lowest score of a chosen cluster in the group; isStale means that it
	// must be computed again.
	worstScore int64
	isStale    bool
	// rises holds how clusters' scores rose after standings were recorded; standingCount counts
	// the standings.
	rises         scoreRises
	standingCount int64
}

// numberedStanding is the standing of a Bundle, with the standingCount of its group at that
// time.
type numberedStanding struct {
	schedule.ScoreThresholds
	number int64
}

// scoreRises holds scores that clusters reached, each with the standingCount of its time. An
// entry that a later one equals or exceeds is dropped, so that scores fall and numbers grow.
type scoreRises []scoreRise

type scoreRise struct{ score, number int64 }

// maxRises bounds scoreRises. Beyond it the two oldest count as one, which can only cause a
// needless check.
const maxRises = 32

func (l scoreRises) withRise(r scoreRise) scoreRises {
	for len(l) > 0 && l[len(l)-1].score <= r.score {
		l = l[:len(l)-1]
	}
	if l = append(l, r); len(l) > maxRises {
		l[1].score = l[0].score
		l = l[1:]
	}
	return l
}

// highestScoreSinceStanding returns the highest score since a number of standings.
func (l scoreRises) highestScoreSinceStanding(number int64) int64 {
	for _, r := range l {
		if r.number >= number {
			return r.score
		}
	}
	return math.MinInt64
}

func newMovableBundles() movableBundles {
	return movableBundles{groups: map[movableKind]*movableGroup{}, kindOfBundle: map[string]movableKind{}, queued: map[string]bool{}}
}

func (m *movableBundles) removeBundle(uid string) {
	if kind, ok := m.kindOfBundle[uid]; ok {
		delete(m.kindOfBundle, uid)
		g := m.groups[kind]
		delete(g.standings, uid)
		if g.isStale = true; len(g.standings) == 0 {
			delete(m.groups, kind)
		}
	}
	delete(m.queued, uid)
}

func (m *movableBundles) setScoreThresholds(uid string, kind movableKind, s *schedule.ScoreThresholds) {
	if m.kindOfBundle[uid] != kind {
		m.removeBundle(uid)
	}
	delete(m.queued, uid)
	g := m.groups[kind]
	if g == nil {
		g = &movableGroup{standings: map[string]*numberedStanding{}}
		m.groups[kind] = g
	}
	g.standingCount++
	m.kindOfBundle[uid], g.standings[uid], g.isStale = kind, &numberedStanding{*s, g.standingCount}, true
}

// currentThresholds returns a Bundle's standing, with the scores that clusters reached since.
func (g *movableGroup) currentThresholds(uid string) schedule.ScoreThresholds {
	s := g.standings[uid]
	out := s.ScoreThresholds
	out.HighestOther = max(out.HighestOther, g.rises.highestScoreSinceStanding(s.number))
	return out
}

// lowestThresholds returns the lowest score with which a new cluster matters to some Bundle of the
// group.
func (g *movableGroup) lowestThresholds() *schedule.ScoreThresholds {
	if g.isStale {
		g.worstScore, g.isStale = math.MaxInt64/2, false
		for _, s := range g.standings {
			g.worstScore = min(g.worstScore, s.LowestChosen)
		}
	}
	return &schedule.ScoreThresholds{LowestChosen: g.worstScore, HighestOther: math.MinInt64}
}

// recordScoreThresholds records the scores of a Bundle's decision. The caller holds the lock.
func (x *bundleIndex) recordScoreThresholds(e *bundleEntry, w stepResult) {
	if w.standing == nil {
		x.movable.removeBundle(e.uid)
		return
	}
	x.movable.setScoreThresholds(e.uid, movableKind{e.filter, w.bundle.Ref.Namespace, w.bundle.Spec.Source.Kind}, w.standing)
}

// hasMovable reports whether any Bundle may move.
func (x *bundleIndex) hasMovable() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.movable.kindOfBundle) > 0
}

// scoresChanged rescores a cluster after scoreDebounce.
func (r *PlacementReconciler) scoresChanged(cluster string) {
	if r.index.hasMovable() {
		r.scoreLoop.EnqueueAfter(cluster, scoreDebounce)
	}
}

// moveCandidate is a Bundle that a cluster's score may move.
type moveCandidate struct {
	uid      string
	kind     movableKind
	standing schedule.ScoreThresholds
}

// rescoreCluster reconciles the Bundles that a cluster's new score may move: those on the
// cluster, and those for which it is better than their clusters.
func (r *PlacementReconciler) rescoreCluster(c *schedule.Cluster) {
	reserved := r.index.copyReservations()
	rated := func(k movableKind) *schedule.Input {
		return &schedule.Input{Facts: &fleetFacts{r: r, reserved: reserved, scope: schedule.PlacementScope{Namespace: k.namespace, Source: k.source}}}
	}
	var better []movableKind
	for kind, bar := range r.index.lowestThresholdsByKind() {
		if !kind.filter.AdmitsCluster(c) {
			continue
		}
		moves, score := kind.filter.ScoreForMove(c, nil, rated(kind), bar)
		if r.index.recordScoreRise(kind, score); moves {
			better = append(better, kind)
		}
	}
	holds := map[string]*atoll.RowSpec{}
	for _, row := range r.Rows.ListOfCluster(c.UID) {
		holds[row.Bundle.UID] = &row.Spec
	}
	for _, m := range r.index.moveCandidates(better, holds) {
		moves, score := m.kind.filter.ScoreForMove(c, holds[m.uid], rated(m.kind), &m.standing)
		switch {
		case !moves && holds[m.uid] != nil:
			r.index.recordScoreFall(m.uid, score)
		case moves:
			if after, yes := r.index.reserveMoveTimeOnce(m.uid, time.Now()); yes {
				r.index.touchCluster(m.uid, c.Name)
				r.bundleLoop.EnqueueRecheck(m.uid, after)
			}
		}
	}
}

// recordScoreRise records a cluster's score for the Bundles that are not on it.
func (x *bundleIndex) recordScoreRise(kind movableKind, score int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if g := x.movable.groups[kind]; g != nil {
		g.rises = g.rises.withRise(scoreRise{score, g.standingCount})
	}
}

// recordScoreFall records the score of a cluster that the Bundle is on.
func (x *bundleIndex) recordScoreFall(uid string, score int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.movable.groups[x.movable.kindOfBundle[uid]]
	if g == nil || g.standings[uid] == nil || g.standings[uid].LowestChosen <= score {
		return
	}
	g.standings[uid].LowestChosen, g.worstScore = score, min(g.worstScore, score)
}

// lowestThresholdsByKind returns the lowest bar of each group.
func (x *bundleIndex) lowestThresholdsByKind() map[movableKind]*schedule.ScoreThresholds {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[movableKind]*schedule.ScoreThresholds, len(x.movable.groups))
	for kind, g := range x.movable.groups {
		out[kind] = g.lowestThresholds()
	}
	return out
}

// moveCandidates lists the Bundles of these kinds, and the Bundles on the cluster.
func (x *bundleIndex) moveCandidates(kinds []movableKind, holds map[string]*atoll.RowSpec) (out []moveCandidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uid := range holds {
		if kind, ok := x.movable.kindOfBundle[uid]; ok {
			out = append(out, moveCandidate{uid, kind, x.movable.groups[kind].currentThresholds(uid)})
		}
	}
	for _, kind := range kinds {
		if g := x.movable.groups[kind]; g != nil {
			for uid := range g.standings {
				if holds[uid] == nil {
					out = append(out, moveCandidate{uid, kind, g.currentThresholds(uid)})
				}
			}
		}
	}
	return out
}

// reserveMoveTimeOnce returns how long a Bundle waits for its turn; false when it waits already.
func (x *bundleIndex) reserveMoveTimeOnce(uid string, now time.Time) (after time.Duration, yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := &x.movable
	if m.queued[uid] {
		return 0, false
	}
	m.queued[uid] = true
	if m.nextAt.Before(now) {
		m.nextAt = now
	}
	after = m.nextAt.Sub(now)
	m.nextAt = m.nextAt.Add(scoreMoveInterval)
	return after, true
}
