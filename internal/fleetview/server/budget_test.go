package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
)

// newFleet is a fleet whose members all answer the same, under names from 0 on.
func newFleet(t *testing.T, most int64, answer http.HandlerFunc) (f *Fleet, at func(int) *member) {
	t.Helper()
	agent := httptest.NewServer(answer)
	t.Cleanup(agent.Close)
	f = New(Options{Reach: memberproxy.New(memberproxy.Options{Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", agent.Listener.Addr().String())
	}})})
	f.budget = newMemoryBudget(most)
	return f, func(i int) *member {
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
		c.Name, c.UID = fmt.Sprint("c", i), types.UID(fmt.Sprint("uid", i))
		return &member{Cluster: c, in: []string{"shop"}, Member: fleetview.Member{Cluster: c.Name, Template: func(atoll.ItemKey) (metav1.Object, bool) { return nil, false }}}
	}
}

// bigList of pods is a megabyte.
func bigList(t *testing.T) []byte {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range 1000 {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), Annotations: map[string]string{"says": strings.Repeat("x", 1000)}}})
	}
	message, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return packMessage(t, "PodList", message)
}

// TestAnswersTogetherHaveABound: however many members answer with the largest size, the hub holds
// no more than its budget at a time. The rest is missing, with the reason. Other requests are
// answered in between, and nothing is left afterwards.
func TestAnswersTogetherHaveABound(t *testing.T) {
	const most, asked = 48 << 20, 100
	list := bigList(t)
	var seen atomic.Int64
	var f *Fleet
	f, at := newFleet(t, most, func(w http.ResponseWriter, _ *http.Request) {
		f.budget.mu.Lock()
		seen.Store(max(seen.Load(), f.budget.all))
		f.budget.mu.Unlock()
		_, _ = w.Write(list)
	})
	jane, _ := whoAsks(t, "jane", "")
	jane, over := context.WithCancel(jane)
	lists, _ := f.withMemoryReservation(jane)
	var all sync.WaitGroup
	var mu sync.Mutex
	pods := 0
	var refused []error
	for i := range asked {
		all.Go(func() {
			objects, _, err := f.list(lists, at(i), kinds["pods"], "", fleetview.FleetSelection{}, shownAsIs)
			mu.Lock()
			defer mu.Unlock()
			if pods += len(objects); err != nil {
				refused = append(refused, err)
			}
		})
	}
	all.Wait()
	f.budget.mu.Lock()
	held := f.budget.all
	f.budget.mu.Unlock()
	if held > most/2 || seen.Load() > most {
		t.Errorf("%d bytes are held, and %d were; one user may have half of %d", held, seen.Load(), most)
	}
	if pods == 0 || len(refused) == 0 || int64(pods)*1000 > held {
		t.Errorf("%d pods of more than 1,000 bytes, of which %d bytes are counted; %d of %d members are refused", pods, held, len(refused), asked)
	}
	for _, err := range refused {
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "cluster c") || !strings.Contains(err.Error(), "answer is left out") {
			t.Fatalf("a member that is missing says %q", err)
		}
	}
	joe, _ := whoAsks(t, "joe", "")
	joe, left := context.WithCancel(joe)
	if objects, _, err := f.list(joe, at(0), kinds["pods"], "", fleetview.FleetSelection{}, shownAsIs); err != nil || len(objects) != 1000 {
		t.Errorf("another user in between: %d objects, %v", len(objects), err)
	}
	over()
	left()
	for _, user := range []string{"jane", "joe"} { // what ends a request may take a moment to run
		who, _ := whoAsks(t, user, "")
		if _, _, err := f.list(who, at(1), kinds["pods"], "", fleetview.FleetSelection{}, shownAsIs); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestAnAnswerIsHeldAsItIs: what counts is the room that it has at last, and no buffer before that.
func TestAnAnswerIsHeldAsItIs(t *testing.T) {
	for _, size := range []int{0, 1, firstRead - 1, firstRead, 100_000} {
		h := &memoryReservation{of: newMemoryBudget(1 << 20), user: "jane"}
		got, err := h.readAll(t.Context(), strings.NewReader(strings.Repeat("x", size)))
		if err != nil || len(got) != size || h.n != int64(cap(got)) || h.of.all != h.n {
			t.Errorf("of %d bytes %d are read, %v; %d of %d count", size, len(got), err, h.n, cap(got))
		}
	}
}

// TestWhoFollowsHoldsNothing: of what was asked to find a pod nothing counts any more while its
// log is followed.
func TestWhoFollowsHoldsNothing(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", Annotations: map[string]string{"says": strings.Repeat("x", 50_000)}}}
	message, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	f, at := newFleet(t, 512<<10, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packMessage(t, "Pod", message)) })
	for i := range 50 {
		jane, _ := whoAsks(t, "jane", "shop") // whose request goes on
		if err := f.checkMemberHas(jane, at(0), kinds["pods"], "shop", "web-0"); err != nil {
			t.Fatalf("after %d that are followed: %v", i, err)
		}
	}
}

func shownAsIs(obj runtime.Object, _ metav1.Object) (runtime.Object, error) { return obj, nil }

// TestHalfOfWhatOthersLeave: the next user always finds a part, and a waiting request is served
// when others return theirs, but not by its user's own return.
func TestHalfOfWhatOthersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBudget(1024)
		who := func(name string) *memoryReservation { return &memoryReservation{of: b, user: name} }
		jane, joe, lila := who("jane"), who("joe"), who("lila")
		for _, c := range []struct {
			h *memoryReservation
			n int64
		}{{jane, 512}, {joe, 256}, {lila, 128}} {
			if err := c.h.reserveBytes(t.Context(), c.n); err != nil {
				t.Errorf("%s does not get %d: %v", c.h.user, c.n, err)
			}
			began := time.Now()
			if err := c.h.reserveBytes(t.Context(), 1); err != errFull || time.Since(began) != heldPatience {
				t.Errorf("%s gets one more than half: %v after %s", c.h.user, err, time.Since(began))
			}
		}
		began := time.Now()
		if err := jane.reserveBytes(t.Context(), 1); err != errFull || time.Since(began) > 0 {
			t.Errorf("one that has waited in vain waits again: %v after %s", err, time.Since(began))
		}
		began = time.Now()
		if err := who("moe").reserveBytes(t.Context(), 513); err != errFull || time.Since(began) > 0 {
			t.Errorf("more than there ever is: %v after %s", err, time.Since(began))
		}
		waits := make(chan error)
		go func() { waits <- who("moe").reserveBytes(t.Context(), 200) }()
		synctest.Wait()
		jane.releaseAll()
		if err := <-waits; err != nil || time.Since(began) > 0 {
			t.Errorf("a waiting request is not served by a return: %v after %s", err, time.Since(began))
		}
		joe.releaseAll()
		joe.releaseAll()
		lila.releaseBytes(28)
		lila.releaseAll()
		lila.releaseBytes(100) // of what it has not any more
		if err := lila.reserveBytes(t.Context(), 1); err == nil {
			t.Error("a request that is over takes some")
		}
		if b.all != 200 || len(b.held) != 1 {
			t.Errorf("held at last: %d, %v", b.all, b.held)
		}
	})
}

// TestAWatchThatCannotHaveAllItsClusters: a missing cluster of a watch would be invisible. The
// watch is refused where its user has as many requests there as allowed, and ends when that
// happens later. A member's temporary refusal is retried.
func TestAWatchThatCannotHaveAllItsClusters(t *testing.T) {
	var asked atomic.Int64
	f, at := newFleet(t, heldMost, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"TooManyRequests","code":429}`))
	})
	f.o.Own = func(user.Info) bool { return false }
	f.o.Tables = func() (Tables, bool) {
		of := measuring{at(0).Cluster, at(1).Cluster}
		return Tables{of, of, of}, true
	}
	o := &objectStorage{fleet: f, kind: kinds["pods"]}
	jane, _ := whoAsks(t, "jane", "shop")
	ctx, cancel := context.WithCancel(jane)
	w := &watchMerger{o: o, ctx: ctx, in: make(chan sourceEvent), namespace: "shop", placed: map[string]map[string]bool{}}
	var following sync.WaitGroup
	following.Go(func() { w.followMember(at(1), "5") })
	for asked.Load() < 2 {
		select {
		case in := <-w.in:
			t.Fatalf("a member that is busy ends a watch: %v", in.failed)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for range f.o.Reach.MaxRequestsPerUser() {
		if _, err := f.shares.acquireSlot(jane, "c1"); err != nil && !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}
	}
	if in := <-w.in; !apierrors.IsTooManyRequests(in.failed) || !strings.Contains(in.failed.Error(), "cluster c1: you have as many") {
		t.Errorf("a watch that is to lack a cluster gets %v", in.failed)
	}
	cancel()
	following.Wait()
	if _, err := o.Watch(jane, nil); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "cluster c1: you have as many") {
		t.Errorf("one that would lack it from the first: %v", err)
	}
	if n := f.shares.usedShares[userAtCluster{"jane", "c0"}]; n != 0 {
		t.Errorf("what was refused has %d places", n)
	}
}
