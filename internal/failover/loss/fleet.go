// Package loss decides when the hub taints clusters that are lost, and when it removes the taints.
//
// Contract: values in, values out, without clock, client and lock. A Fleet has one caller at a time. A change of a cluster
// costs the same in each fleet.
package loss

import (
	"maps"
	"slices"
	"time"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/pace"
)

// Rates at which the hub taints clusters, so that a mistake is seen before it has moved much. Kubernetes evicts a node of
// a zone every ten seconds.
var (
	fleetRate = pace.Rate{Interval: time.Second, Burst: 1}
	zoneRate  = pace.Rate{Interval: 10 * time.Second, Burst: 1}
)

// fewLosses is the number of lost clusters of a zone, or of those with streams, up to which their share does not count.
const fewLosses = 2

// Loss is the way in which a cluster is lost.
type Loss int8

// The losses.
const (
	notLost Loss = iota
	unreachable
	notReady
)

// lossTaints are the keys of the taints, by loss.
var lossTaints = map[Loss]string{unreachable: v1alpha1.TaintUnreachable, notReady: v1alpha1.TaintNotReady}

// Member is what counts of a cluster.
type Member struct {
	zone  string
	loss  Loss
	since time.Time // of the loss, or of being ready
	// taint is the loss that the hub's taint of the Cluster states; notLost: it has none.
	taint Loss
	// checksIn: the cluster holds no stream, so that its silence is noticed late.
	checksIn bool
}

// Terms are the settings, with their defaults.
type Terms struct {
	after, recoverAfter time.Duration
	// MaxLostPercent is the share of lost clusters above which no further one is tainted.
	MaxLostPercent int
}

// TermsOf returns the Terms of settings, which are not nil.
func TermsOf(s *v1alpha1.ClusterFailover) Terms {
	t := Terms{s.After.Duration, v1alpha1.DefaultRecoverAfter, int(s.MaxLostPercent)}
	if s.RecoverAfter != nil {
		t.recoverAfter = s.RecoverAfter.Duration
	}
	if t.MaxLostPercent == 0 {
		t.MaxLostPercent = v1alpha1.DefaultMaxLostPercent
	}
	return t
}

// census counts clusters, and limits how fast the hub taints them.
type census struct {
	members, lost int
	bucket        pace.Bucket
}

// isDisrupted reports whether more than the share is lost.
func (c *census) isDisrupted(maxLostPercent int) bool { return c.lost*100 > maxLostPercent*c.members }

// Fleet is all clusters that have joined. It is a value without clock and lock. Make it with NewFleet.
type Fleet struct {
	census
	// streams counts the clusters that hold streams. Those that check in seem ready for two of their intervals while the
	// hub is cut off.
	streams census
	byName  map[string]Member
	zones   map[string]*census
	// paused are the clusters that are due while too many are lost, by zone.
	paused map[string]map[string]bool
	// tainted counts the clusters with a taint of the hub.
	tainted int
	// notBefore: until then clusters may be silent because the hub was down.
	notBefore time.Time
}

// NewFleet returns an empty Fleet, of which no cluster is tainted before a time.
func NewFleet(notBefore time.Time) *Fleet {
	return &Fleet{
		notBefore: notBefore, census: census{bucket: fleetRate.NewBucket()},
		byName: map[string]Member{}, zones: map[string]*census{}, paused: map[string]map[string]bool{},
	}
}

// SetMember replaces a cluster. A loss or a return that the hub saw itself counts from now, by its own clock.
func (f *Fleet) SetMember(name string, m Member, now time.Time) {
	if was, known := f.byName[name]; known {
		f.addToCounts(was, -1)
		f.dropPause(name, was.zone)
		if m.since = was.since; (was.loss == notLost) != (m.loss == notLost) {
			m.since = now
		}
	}
	f.byName[name] = m
	f.addToCounts(m, 1)
}

// RemoveMember drops a cluster.
func (f *Fleet) RemoveMember(name string) {
	if was, known := f.byName[name]; known {
		f.addToCounts(was, -1)
		delete(f.byName, name)
		f.dropPause(name, was.zone)
	}
}

// addToCounts adds a cluster to the counts, or takes it away.
func (f *Fleet) addToCounts(m Member, n int) {
	z := f.zones[m.zone]
	if z == nil {
		z = &census{bucket: zoneRate.NewBucket()}
		f.zones[m.zone] = z
	}
	z.addMember(m, n)
	f.addMember(m, n)
	if !m.checksIn {
		f.streams.addMember(m, n)
	}
	if m.taint != notLost {
		f.tainted += n
	}
	if z.members == 0 {
		delete(f.zones, m.zone)
	}
}

// addMember counts a cluster, or takes it away.
func (c *census) addMember(m Member, n int) {
	if c.members += n; m.loss != notLost {
		c.lost += n
	}
}

// dueTime returns when a lost cluster is to be tainted.
func (m Member) dueTime(t Terms) time.Time { return m.since.Add(t.after) }

// Action is what is due for a cluster.
type Action int

// The actions.
const (
	Nothing Action = iota
	AddTaint
	RemoveTaint
)

// JudgeCluster returns what is due for a cluster, or the time at which it is due; zero: never, while nothing changes. A cluster
// that is due while too many are lost is paused. A taint that states another loss is replaced by AddTaint.
func (f *Fleet) JudgeCluster(name string, t Terms, now time.Time) (Action, time.Time) {
	m := f.byName[name]
	switch {
	case m.loss == m.taint:
		return Nothing, time.Time{}
	case m.loss == notLost:
		return dueAt(RemoveTaint, m.since.Add(t.recoverAfter), now)
	}
	if what, at := dueAt(AddTaint, latestTime(m.dueTime(t), f.notBefore), now); what == Nothing {
		return Nothing, at
	}
	if f.isPausedFor(m.zone, t) {
		if f.paused[m.zone] == nil {
			f.paused[m.zone] = map[string]bool{}
		}
		f.paused[m.zone][name] = true
		return Nothing, time.Time{}
	}
	zone := f.zones[m.zone]
	wait := max(f.bucket.WaitTime(now), zone.bucket.WaitTime(now))
	if wait > 0 {
		return Nothing, now.Add(wait)
	}
	f.bucket.TakeTokens(now, 1)
	zone.bucket.TakeTokens(now, 1)
	return AddTaint, time.Time{}
}

func latestTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// dueAt returns an action that is due from a time on, or that time.
func dueAt(what Action, at, now time.Time) (Action, time.Time) {
	if now.Before(at) {
		return Nothing, at
	}
	return what, time.Time{}
}

// isPausedFor reports whether so many clusters are lost that no further one of the zone is tainted. A zone that is lost
// as a whole does not pause: its Bundles have to go elsewhere.
func (f *Fleet) isPausedFor(zone string, t Terms) bool {
	z := f.zones[zone]
	return f.isCutOff(t) || z.lost > fewLosses && z.lost < z.members && z.isDisrupted(t.MaxLostPercent)
}

// isCutOff reports whether so many clusters are lost, of all or of those with streams, that the hub may be cut off itself.
func (f *Fleet) isCutOff(t Terms) bool {
	return f.isDisrupted(t.MaxLostPercent) || f.streams.lost > fewLosses && f.streams.isDisrupted(t.MaxLostPercent)
}

// dropPause takes a cluster out of those that are paused.
func (f *Fleet) dropPause(name, zone string) {
	if delete(f.paused[zone], name); len(f.paused[zone]) == 0 {
		delete(f.paused, zone)
	}
}

// Counts are numbers of clusters: those that are lost, those with a taint of the hub, and those that would have one if
// fewer were lost.
type Counts struct{ Lost, Tainted, Paused int }

// CountClusters counts the clusters by what became of them.
func (f *Fleet) CountClusters() Counts {
	c := Counts{Lost: f.lost, Tainted: f.tainted}
	for _, names := range f.paused {
		c.Paused += len(names)
	}
	return c
}

// TakeResumable returns the clusters that are paused no longer, once. It costs nothing while too much of the fleet is lost.
func (f *Fleet) TakeResumable(t Terms) (names []string) {
	if f.isCutOff(t) {
		return nil
	}
	for zone, paused := range f.paused {
		if !f.isPausedFor(zone, t) {
			names = slices.AppendSeq(names, maps.Keys(paused))
			delete(f.paused, zone)
		}
	}
	return names
}
