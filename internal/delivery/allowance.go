package delivery

import (
	"sync"
	"time"

	"atoll.dev/atoll/internal/pace"
)

// Allowances
//
// Each cluster has an allowance for what it can make the hub write or look up by itself: reported
// statuses, milestones included, rows that are raised above its generations, and lookups of its APIs.
// A cluster with R rows has allowanceBurst + R*allowancePerRow at once, and then one a second and one
// for each row every allowanceRowInterval. Each written report is charged. While the allowance is
// spent, reports wait, and a later report of the row replaces the one that waits: the last state is
// written, and nothing is lost. Other clusters do not wait: a write for one of them takes along what
// waits.

const (
	allowanceBurst       = 50
	allowancePerRow      = 8
	allowanceRowInterval = 15 * time.Second
)

// clusterAllowances has the allowances of the clusters, by UID. They outlive sessions, so that a new session brings no new
// allowance. They are safe for concurrent use.
type clusterAllowances struct {
	countRows func(uid string) int

	mu    sync.Mutex
	byUID map[string]*pace.Bucket
}

func newClusterAllowances(countRows func(uid string) int) *clusterAllowances {
	return &clusterAllowances{countRows: countRows, byUID: map[string]*pace.Bucket{}}
}

// clusterWriteRate returns the rate of the allowance of a cluster with so many rows.
func clusterWriteRate(rows int) pace.Rate {
	interval := time.Duration(float64(time.Second) / (1 + float64(rows)/allowanceRowInterval.Seconds()))
	return pace.Rate{Interval: interval, Burst: allowanceBurst + rows*allowancePerRow}
}

// waitTime returns how long until the cluster may cause a write.
func (a *clusterAllowances) waitTime(uid string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.byUID[uid]
	if b == nil {
		return 0
	}
	return b.WaitTime(now)
}

// reserveTurn charges the cluster for a write or a lookup, and returns how long until its turn.
func (a *clusterAllowances) reserveTurn(uid string, now time.Time) time.Duration {
	rate := clusterWriteRate(a.countRows(uid))
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.byUID[uid]
	if b == nil {
		a.dropUnusedClusters(now)
		full := rate.NewBucket()
		b = &full
		a.byUID[uid] = b
	}
	b.SetRate(now, rate)
	wait := b.WaitTime(now)
	b.TakeTokens(now, 1)
	return wait
}

// dropUnusedClusters drops some of the clusters that have used nothing of late: more than come, so that
// the map stays as small as the number of clusters that report. The caller holds the lock.
func (a *clusterAllowances) dropUnusedClusters(now time.Time) {
	looked := 0
	for uid, b := range a.byUID {
		if b.IsFull(now) {
			delete(a.byUID, uid)
		}
		if looked++; looked == 4 {
			return
		}
	}
}
