package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
)

// fleetOf two clusters that have rows in the namespace shop: b hangs, and what a says to a
// request is written by answer, until the connection is closed.
func fleetOf(t *testing.T, answer func(net.Conn, *http.Request)) *Fleet {
	t.Helper()
	var clusters measuring
	for _, name := range []string{"a", "b"} {
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
		c.Name, c.UID = name, types.UID("uid-"+name)
		clusters = append(clusters, c)
	}
	dial := func(_ context.Context, uid string) (net.Conn, error) {
		hub, there := net.Pipe()
		go func() {
			defer there.Close()
			in := bufio.NewReader(there)
			if r, err := http.ReadRequest(in); err == nil && uid == "uid-a" {
				answer(there, r)
			}
			_, _ = io.Copy(io.Discard, in) // until the hub hangs up
		}()
		return hub, nil
	}
	return New(Options{
		Tables: func() (Tables, bool) { return Tables{clusters, clusters, clusters}, true },
		Own:    func(user.Info) bool { return false },
		Reach:  memberproxy.New(memberproxy.Options{Dial: dial, Log: slog.New(slog.DiscardHandler)}),
	})
}

// TestAStreamBeginsInTimeOrNotAtAll: one that has begun may be quiet for as long as it likes.
func TestAStreamBeginsInTimeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleetOf(t, func(c net.Conn, _ *http.Request) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			time.Sleep(time.Hour)
			io.WriteString(c, "4\r\nlate\r\n0\r\n\r\n")
		})
		ctx, _ := whoAsks(t, "jane", "shop")
		members, err := f.membersFor("shop", fleetview.FleetSelection{})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := f.openMemberStream(ctx, members[0], "/api/v1/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		if said, err := io.ReadAll(answer.Body); err != nil || string(said) != "late" {
			t.Errorf("of one that begins in time is read %q, %v", said, err)
		}
		_ = answer.Body.Close()
		began := time.Now()
		_, err = f.openMemberStream(ctx, members[1], "/api/v1/pods", nil)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "cluster b did not answer within") || time.Since(began) != answerTimeout {
			t.Errorf("one that does not begin is left after %s: %v", time.Since(began), err)
		}
		if len(f.shares.usedShares) > 0 {
			t.Errorf("taken are still %v", f.shares.usedShares)
		}
		time.Sleep(time.Hour) // what idles is closed
	})
}

// onePod is a store that has one Pod, in the only way in which a watch reads it.
type onePod struct {
	storage.Interface
	pod *api.Pod
}

func (s onePod) Get(_ context.Context, _ string, _ storage.GetOptions, into runtime.Object) error {
	s.pod.DeepCopyInto(into.(*api.Pod))
	return nil
}

// TestOneMemberHoldsUpNoWatch: the request for a Pod's status runs outside of the watch, which
// reports other members in between, and then the answer.
func TestOneMemberHoldsUpNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleetOf(t, func(net.Conn, *http.Request) {})
		ctx, _ := whoAsks(t, "jane", "shop")
		solo := &api.Pod{Status: api.PodStatus{Phase: api.PodPending}}
		solo.Namespace, solo.Name = "shop", "solo"
		store := &genericregistry.Store{
			NewFunc: func() runtime.Object { return &api.Pod{} }, DefaultQualifiedResource: schema.GroupResource{Resource: "pods"},
			KeyFunc: func(context.Context, string) (string, error) { return "/solo", nil },
			Storage: genericregistry.DryRunnableStorage{Storage: onePod{pod: solo}},
		}
		w := &watchMerger{
			o: &objectStorage{Store: store, fleet: f, kind: kinds["pods"]}, namespace: "shop", matches: func(runtime.Object) bool { return true },
			trace: f.history.StartTrace("pods", "1", fleetview.Versions{}, time.Now()), in: make(chan sourceEvent), queue: f.newEventQueue(ctx), first: func() {},
			placed: map[string]map[string]bool{}, standings: podStatuses{}, begun: map[string]bool{}, unheard: map[string]map[string]bool{}, held: map[string]string{},
		}
		w.ctx, w.cancel = context.WithCancel(ctx)
		running := func(in string) sourceEvent {
			there := solo.DeepCopy()
			there.Status.Phase, there.Status.Message = api.PodRunning, in
			return sourceEvent{from: in, event: watch.Added, template: true, object: there}
		}
		began := time.Now()
		go w.run(fleetview.Versions{})
		tells := func(want string) {
			t.Helper()
			if pod := (<-w.ResultChan()).Object.(*api.Pod); string(pod.Status.Phase)+pod.Status.Message != want || time.Since(began) > 0 {
				t.Errorf("after %s it is sent as %s %s, wanted %s", time.Since(began), pod.Status.Phase, pod.Status.Message, want)
			}
		}
		w.enqueueSourceEvent(sourceEvent{event: watch.Added, object: solo.DeepCopy()})
		tells("Pending")
		w.enqueueSourceEvent(running("b"))
		tells("Runningb")

		// A member's answer is older than its events, and changes only objects without an event.
		answered := running("a").object.(*api.Pod).Status
		old := solo.Status
		w.enqueueSourceEvent(sourceEvent{event: watch.Modified, object: solo.DeepCopy(), standing: podStatusByCluster{"a": &answered, "b": &old}})
		tells("Runninga")
		w.enqueueSourceEvent(sourceEvent{event: watch.Modified, object: solo.DeepCopy(), standing: podStatusByCluster{"b": &old}})
		gone := running("a")
		gone.event = watch.Deleted
		w.enqueueSourceEvent(gone)
		tells("Runningb")
		w.cancel()
		for range w.ResultChan() {
			t.Error("it is sent once more")
		}
	})
}

// TestAWatchWithoutRoomForAMemberEnds: a client would not notice that this member's objects are
// left out.
func TestAWatchWithoutRoomForAMemberEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleetOf(t, func(c net.Conn, _ *http.Request) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmany")
		})
		f.budget = newMemoryBudget(firstRead)
		ctx, _ := whoAsks(t, "jane", "shop")
		members, err := f.membersFor("shop", fleetview.FleetSelection{})
		if err != nil {
			t.Fatal(err)
		}
		w := &watchMerger{o: &objectStorage{fleet: f, kind: kinds["pods"]}, namespace: "shop", in: make(chan sourceEvent)}
		w.ctx, w.cancel = context.WithCancel(ctx)
		go w.followMember(members[0], "")
		select {
		case in := <-w.in:
			if !apierrors.IsTooManyRequests(in.failed) || !strings.Contains(in.failed.Error(), "cluster a: its answer is left out") {
				t.Errorf("the watch gets %v", in.failed)
			}
		case <-time.After(time.Hour):
			t.Error("the watch goes on without what the cluster has")
		}
		w.cancel()
		time.Sleep(time.Hour) // what idles is closed
	})
}
