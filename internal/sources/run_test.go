package sources

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// A running Reconciler checks a Repository at once, after its interval, and when a spec changes. Each check serves
// several changes.
func TestRunChecksInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, branch)
		h.setCommit("c1", "a=1")
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := h.r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		expect := func(when string, checks int) {
			t.Helper()
			synctest.Wait()
			if got := h.countRequests(); got != checks {
				t.Errorf("%s: %d checks, want %d", when, got, checks)
			}
		}
		expect("at once", 1)
		if got := h.listConditions(); got != good {
			t.Error(got)
		}
		time.Sleep(v1alpha1.DefaultRepositoryInterval * 8 / 10)
		expect("within the interval", 1)
		time.Sleep(v1alpha1.DefaultRepositoryInterval / 4)
		expect("after the interval", 2)
		for range 10 {
			h.r.sourceChanged(sourceKey)
		}
		time.Sleep(2 * maxChangeDebounce)
		synctest.Wait()
		if n := h.countRequests(); n < 3 || n > 4 {
			t.Errorf("ten changes at once cost %d checks", n-2)
		}
		stop()
		done.Wait()
	})
}

// A hub that takes over checks at once what a git server requested of the one before. An old request waits for the interval.
func TestAStartChecksRecentRequests(t *testing.T) {
	for age, want := range map[time.Duration]int{recentRequest / 2: 1, 2 * recentRequest: 0} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub(t, branch)
			h.setCommit("c1", "a=1")
			h.runCheck()
			h.refreshTables()
			var repo v1alpha1.Repository
			if err := h.r.Client.Get(t.Context(), repoKey, &repo); err != nil {
				t.Fatal(err)
			}
			at := metav1.NewMicroTime(time.Now().Add(-age))
			repo.Status.WebhookTime = &at
			if err := h.r.Client.Status().Update(t.Context(), &repo); err != nil {
				t.Fatal(err)
			}
			h.refreshTables()
			before := h.countRequests()
			h.r.healthy.AcceptKeys()
			h.r.enqueueAll()
			ctx, stop := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { h.r.healthy.Run(ctx, nil) })
			synctest.Wait()
			if got := h.countRequests() - before; got != want {
				t.Errorf("a request %s before the start: %d checks at once, want %d", age, got, want)
			}
			stop()
			done.Wait()
		})
	}
}

// Content that is not applied is tried again after waits that double up to the interval.
func TestTriesDoubleTheirWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, branch)
		h.refuse["a"] = errRefused
		h.setCommit("c1", "a=1")
		ctx, stop := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() {
			if err := h.r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		// 30 s, 1 min, 2 min, 4 min, and 5 min from then on, each shorter by up to a tenth.
		time.Sleep(30*time.Second + time.Minute + 2*time.Minute + 4*time.Minute + 5*time.Minute + time.Second)
		synctest.Wait()
		if n := h.countRequests(); n != 6 {
			t.Errorf("%d checks within 12 minutes, want 6", n)
		}
		stop()
		done.Wait()
	})
}

// A Repository that answers late is checked by the workers of those that fail, and one namespace has a part of all workers.
func TestSlowRepositoriesDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, branch)
		h.setCommit("c1", "a=1")
		for took, slow := range map[time.Duration]bool{slowCheck - time.Second: false, slowCheck: true} {
			h.took = took
			h.runCheck()
			if got := h.r.laneOf(repoKey) == h.r.failing; got != slow {
				t.Errorf("after a check of %s: slow %v", took, got)
			}
		}
		h.took = 0
		h.runCheck()
		if h.r.laneOf(repoKey) != h.r.healthy {
			t.Error("a Repository that is fast again stays with the slow ones")
		}
	})
	h := newHub(t, branch)
	key := func(namespace string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
	}
	for i := range namespaceChecks {
		if !h.r.beginCheck(key("shop", i)) {
			t.Errorf("check %d does not begin", i)
		}
	}
	if h.r.beginCheck(key("shop", namespaceChecks)) || !h.r.beginCheck(key("blog", 0)) {
		t.Error("one namespace has all workers, or another has none")
	}
	h.r.endCheck(key("shop", 0))
	if !h.r.beginCheck(key("shop", namespaceChecks)) {
		t.Error("the worker of a check that ended is not free")
	}
}

// One check starts a bounded number of children. The next checks read what is left.
func TestAChecksFetchesAreBounded(t *testing.T) {
	h := newHub(t, branch)
	h.postpones = true
	for i := range maxFetches + 1 {
		s := h.readStoredSource()
		s.Name, s.UID, s.ResourceVersion = fmt.Sprint("s", i), types.UID(fmt.Sprint(i)), ""
		if err := h.r.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		h.tables.Sources.Put(s)
	}
	h.commit = fetch.Content{Commit: "c1", Result: render.Result{Failure: &fetch.Failure{Reason: atoll.ReasonContentTooLarge, Message: "large"}}}
	settled := func() (n int) {
		for _, s := range h.tables.Sources.InNamespace("shop") {
			if isSettled(s) {
				n++
			}
		}
		return n
	}
	h.runCheck()
	if n := settled(); n != maxFetches || len(h.requests) != maxFetches {
		t.Errorf("%d Sources are read by %d fetches, want %d", n, len(h.requests), maxFetches)
	}
	if repo, _ := h.tables.Repositories.Get(repoKey); len(repo.Status.Refs) != 0 {
		t.Errorf("the commit counts as considered: %+v", repo.Status.Refs)
	}
}
