package place

import (
	"context"
	"math"
	"time"

	"k8s.io/client-go/util/workqueue"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/schedule"
)

const (
	// gatherScores is how long news of what a cluster scores are gathered: rows that come
	// and go, and reports of what is free.
	gatherScores = 5 * time.Second
	// paceScores is how much time lies between two Bundles that are looked at since they
	// may move to what scores better: nobody waits for that, and each that moves changes
	// the scores for the next.
	paceScores = 50 * time.Millisecond
)

// movables are the Bundles that may move when scores change, those together that see the
// same scores: a cluster's news is held against what any of them would move for, and only
// where that is reached against each.
type movables struct {
	kinds map[movableKind]*movableGroup
	of    map[string]movableKind // by Bundle UID
	// looked at already, but not yet: by Bundle UID.
	coming map[string]bool
	// next is when the next one may be looked at.
	next time.Time
}

// movableKind is all that scores of clusters depend on, but for where the Bundle is.
type movableKind struct {
	filter            *schedule.Filter
	namespace, source string
}

type movableGroup struct {
	standings map[string]*standing // by Bundle UID
	// worst that any of them was chosen with; stale: to be worked out again.
	worst int64
	stale bool
	// rises of clusters since the standings were noted, which number counts.
	rises  rises
	number int64
}

// standing of a Bundle, as it was noted when so many had been.
type standing struct {
	schedule.Standing
	number int64
}

// rises are what clusters came to score, each with the number of standings that had been
// noted: those that a later one was as high as are left out, so that scores fall and numbers
// grow.
type rises []rise

type rise struct{ score, number int64 }

// mostRises are kept; of more the oldest two count as one, which may only let somebody look
// in vain.
const mostRises = 32

func (l rises) with(r rise) rises {
	for len(l) > 0 && l[len(l)-1].score <= r.score {
		l = l[:len(l)-1]
	}
	if l = append(l, r); len(l) > mostRises {
		l[1].score = l[0].score
		l = l[1:]
	}
	return l
}

// since a number, the highest.
func (l rises) since(number int64) int64 {
	for _, r := range l {
		if r.number >= number {
			return r.score
		}
	}
	return math.MinInt64
}

func newMovables() movables {
	return movables{kinds: map[movableKind]*movableGroup{}, of: map[string]movableKind{}, coming: map[string]bool{}}
}

func (m *movables) forget(uid string) {
	if kind, ok := m.of[uid]; ok {
		delete(m.of, uid)
		g := m.kinds[kind]
		delete(g.standings, uid)
		if g.stale = true; len(g.standings) == 0 {
			delete(m.kinds, kind)
		}
	}
	delete(m.coming, uid)
}

func (m *movables) note(uid string, kind movableKind, s *schedule.Standing) {
	if m.of[uid] != kind {
		m.forget(uid)
	}
	delete(m.coming, uid)
	g := m.kinds[kind]
	if g == nil {
		g = &movableGroup{standings: map[string]*standing{}}
		m.kinds[kind] = g
	}
	g.number++
	m.of[uid], g.standings[uid], g.stale = kind, &standing{*s, g.number}, true
}

// now is how a Bundle stands, with what clusters have come to score since.
func (g *movableGroup) now(uid string) schedule.Standing {
	s := g.standings[uid]
	out := s.Standing
	out.Other = max(out.Other, g.rises.since(s.number))
	return out
}

// bar is how a cluster that none of them has must score at least to matter to any.
func (g *movableGroup) bar() *schedule.Standing {
	if g.stale {
		g.worst, g.stale = math.MaxInt64/2, false
		for _, s := range g.standings {
			g.worst = min(g.worst, s.Worst)
		}
	}
	return &schedule.Standing{Worst: g.worst, Other: math.MinInt64}
}

// stands notes how scores stood when the Bundle was decided. The caller holds the lock.
func (x *index) stands(e *entry, w written) {
	if w.standing == nil {
		x.movable.forget(e.uid)
		return
	}
	x.movable.note(e.uid, movableKind{e.filter, w.bundle.Ref.Namespace, w.bundle.Spec.Source.Kind}, w.standing)
}

// anyMovable tells whether scores matter to anybody.
func (x *index) anyMovable() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.movable.of) > 0
}

// scored: what the cluster scores may have changed.
func (r *Reconciler) scored(cluster string) {
	r.mu.Lock()
	q := r.scores
	r.mu.Unlock()
	if q != nil && r.index.anyMovable() {
		q.AddAfter(cluster, gatherScores)
	}
}

func (r *Reconciler) workScores(_ context.Context, q workqueue.TypedDelayingInterface[string]) {
	for {
		name, shutdown := q.Get()
		if shutdown {
			return
		}
		if cs := r.index.clusters([]string{name}); len(cs) == 1 {
			r.rescore(&cs[0])
		}
		q.Done(name)
		r.awaitEnd(name)
	}
}

// candidate is a Bundle that may move because of a cluster.
type candidate struct {
	uid      string
	kind     movableKind
	standing schedule.Standing
}

// rescore looks at the Bundles that may move now that a cluster scores otherwise: those
// that it has, and those for which it is better than what they have.
func (r *Reconciler) rescore(c *schedule.Cluster) {
	load := r.podsOf(r.index.reservations())
	rated := func(k movableKind) *schedule.Input {
		return &schedule.Input{Load: load, Rated: r.rated(k.namespace, k.source)}
	}
	var better []movableKind
	for kind, bar := range r.index.bars() {
		if !kind.filter.Admits(c) {
			continue
		}
		moves, score := kind.filter.Weigh(c, nil, rated(kind), bar)
		if r.index.rose(kind, score); moves {
			better = append(better, kind)
		}
	}
	holds := map[string]*atoll.RowSpec{}
	for _, row := range r.Rows.OfCluster(c.UID) {
		holds[row.Bundle.UID] = &row.Spec
	}
	for _, m := range r.index.candidates(better, holds) {
		moves, score := m.kind.filter.Weigh(c, holds[m.uid], rated(m.kind), &m.standing)
		switch {
		case !moves && holds[m.uid] != nil:
			r.index.sank(m.uid, score)
		case moves:
			if after, yes := r.index.pace(m.uid, time.Now()); yes {
				r.index.touch(m.uid, c.Name)
				r.add(m.uid, priorityAll, after)
			}
		}
	}
}

// rose notes what a cluster came to score, for those that do not have it.
func (x *index) rose(kind movableKind, score int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if g := x.movable.kinds[kind]; g != nil {
		g.rises = g.rises.with(rise{score, g.number})
	}
}

// sank notes what a cluster came to score that the Bundle has.
func (x *index) sank(uid string, score int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.movable.kinds[x.movable.of[uid]]
	if g == nil || g.standings[uid] == nil || g.standings[uid].Worst <= score {
		return
	}
	g.standings[uid].Worst, g.worst = score, min(g.worst, score)
}

// bars of the kinds of Bundles that may move.
func (x *index) bars() map[movableKind]*schedule.Standing {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make(map[movableKind]*schedule.Standing, len(x.movable.kinds))
	for kind, g := range x.movable.kinds {
		out[kind] = g.bar()
	}
	return out
}

// candidates are the Bundles of these kinds, and those of any kind that hold the cluster.
func (x *index) candidates(kinds []movableKind, holds map[string]*atoll.RowSpec) (out []candidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for uid := range holds {
		if kind, ok := x.movable.of[uid]; ok {
			out = append(out, candidate{uid, kind, x.movable.kinds[kind].now(uid)})
		}
	}
	for _, kind := range kinds {
		if g := x.movable.kinds[kind]; g != nil {
			for uid := range g.standings {
				if holds[uid] == nil {
					out = append(out, candidate{uid, kind, g.now(uid)})
				}
			}
		}
	}
	return out
}

// pace says after how long a Bundle is looked at because of scores; no: it is coming.
func (x *index) pace(uid string, now time.Time) (after time.Duration, yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := &x.movable
	if m.coming[uid] {
		return 0, false
	}
	m.coming[uid] = true
	if m.next.Before(now) {
		m.next = now
	}
	after = m.next.Sub(now)
	m.next = m.next.Add(paceScores)
	return after, true
}
