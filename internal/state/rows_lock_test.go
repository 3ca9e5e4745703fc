package state

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
)

// sliceOfVersion of a slice in which one row, of a number that ends in 007, has a status of its
// own.
func sliceOfVersion(s enginev1.TargetSlice, n int) *enginev1.TargetSlice {
	s.ResourceVersion = fmt.Sprint(2_000_000 + n)
	s.Status.Rows = strings.Replace(s.Status.Rows, "q1007 ", fmt.Sprintf("q%d ", 2000+n), 1)
	return &s
}

// TestReadersDoNotWaitForWhoFills: what a slice means is worked out beside the table.
func TestReadersDoNotWaitForWhoFills(t *testing.T) {
	rows := newRows(nil)
	rows.put(healthySlice(1, 0, 200))
	p := rows.pages[rows.ListOfBundle(rows.BundlesWithRows()[0])[0].Slice]
	p.fillLock.Lock()
	defer p.fillLock.Unlock()
	for _, r := range rows.ListOfBundle(p.bundle.UID) {
		if _, ok := rows.Get(p.bundle.UID, r.Cluster); !ok || len(rows.ListOfCluster(r.Spec.UID)) != 1 {
			t.Fatalf("%s cannot be read", r.Cluster)
		}
	}
}

// TestManyFillAtOnce: the newest version stands, in any order of events, and an object that is
// dropped and created again is there.
func TestManyFillAtOnce(t *testing.T) {
	const versions, pages = 60, 3
	rows := newRows(nil)
	var all sync.WaitGroup
	for page := range pages {
		first := healthySlice(1, page*1000, 200)
		for n := range versions {
			all.Go(func() {
				rows.put(sliceOfVersion(*first, n))
				rows.ListOfBundle(first.Spec.Bundle.UID)
				if n%20 == 0 && page == 0 {
					rows.removeObject(first)
				}
			})
		}
	}
	all.Wait()
	for page := range pages {
		rows.put(sliceOfVersion(*healthySlice(1, page*1000, 200), versions))
	}
	uid := healthySlice(1, 0, 200).Spec.Bundle.UID
	got := rows.ListOfBundle(uid)
	if len(got) != pages*200 {
		t.Fatalf("%d rows", len(got))
	}
	newest := 0
	for _, r := range got {
		one, ok := rows.Get(uid, r.Cluster)
		if !ok || one.Status.Seq != r.Status.Seq || one.StatusHash == "" || len(rows.ListOfCluster(r.Spec.UID)) != 1 {
			t.Fatalf("%+v and %+v", r, one)
		}
		if r.Status.Seq == 2000+versions {
			newest++
		}
	}
	if newest != pages {
		t.Errorf("%d of %d slices are as they were written last", newest, pages)
	}
}

// BenchmarkReadBesidePuts is a read of a row while slices are put all the time; wait is
// for the lock.
func BenchmarkReadBesidePuts(b *testing.B) {
	rows := newRows(nil)
	first := healthySlice(1, 0, 200)
	rows.put(first)
	uid := first.Spec.Bundle.UID
	name := rows.ListOfBundle(uid)[3].Cluster
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				rows.put(sliceOfVersion(*first, n))
			}
		}
	}()
	wait := time.Duration(0)
	for b.Loop() {
		begin := time.Now()
		rows.mu.RLock()
		wait += time.Since(begin)
		rows.mu.RUnlock()
		rows.Get(uid, name)
	}
	b.ReportMetric(float64(wait.Nanoseconds())/float64(b.N), "wait-ns/op")
	close(stop)
	<-done
}
