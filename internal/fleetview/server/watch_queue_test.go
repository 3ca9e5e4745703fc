package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/memberproxy"
)

// writeEvents writes events about a large pod to a member's watch.
func writeEvents(w io.Writer, n, size int) {
	encoder := clientscheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion)
	frames := streaming.NewEncoder(protobuf.StreamSerializer.Framer.NewFrameWriter(w), clientscheme.Codecs.EncoderForVersion(protobuf.StreamSerializer.Serializer, corev1.SchemeGroupVersion))
	events := restwatch.NewEncoder(frames, encoder)
	for i := range n {
		_ = events.Encode(&watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("web-", i), ResourceVersion: fmt.Sprint(i + 1), Annotations: map[string]string{"says": strings.Repeat("x", size)},
		}}})
	}
}

func (b *memoryBudget) heldBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

// TestASlowWatchHoldsLittle: a hostile member sends large events to a watch whose client reads none.
// The member waits at its share of the watch. With many such members the watch ends with 410, and its
// memory is free.
func TestASlowWatchHoldsLittle(t *testing.T) {
	const size = 3 << 20
	var stream bytes.Buffer
	writeEvents(&stream, 12, size)
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{Reach: noReach()})
		ctx, _ := whoAsks(t, "jane", "shop")
		ctx, over := context.WithCancel(ctx)
		q := f.newEventQueue(ctx)
		follow := func() {
			r := &eventReader{ctx: q.client, body: bytes.NewReader(stream.Bytes()), queue: q}
			for {
				event, obj, release, err := r.readEvent()
				if err != nil || !q.queueEvent(q.client, queuedEvent{watch.Event{Type: event, Object: obj}, release}) {
					return
				}
			}
		}
		go follow()
		synctest.Wait()
		if held := f.budget.heldBytes(); held == 0 || held > memberMost {
			t.Errorf("%d bytes are held for one member, at most %d may be", held, memberMost)
		}
		for range 9 {
			go follow()
		}
		synctest.Wait()
		if held := f.budget.heldBytes(); held != 0 {
			t.Errorf("%d bytes are held for a watch that is over", held)
		}
		var last watch.Event
		for e := range q.out {
			last = e
		}
		status, ok := last.Object.(*metav1.Status)
		if !ok || last.Type != watch.Error || status.Code != http.StatusGone || status.Details.Causes[0].Type != metav1.CauseType(atoll.ReasonMemoryFull) {
			t.Errorf("the watch ends with %v", last)
		}
		over()
		synctest.Wait()
	})
}

// TestAQuickWatchGetsAll: events beyond the share of a watch reach a client that takes them.
func TestAQuickWatchGetsAll(t *testing.T) {
	const events = 40
	var stream bytes.Buffer
	writeEvents(&stream, events, 3<<20)
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{Reach: noReach()})
		ctx, _ := whoAsks(t, "jane", "shop")
		q := f.newEventQueue(ctx)
		go func() {
			defer close(q.in)
			r := &eventReader{ctx: q.client, body: &stream, queue: q}
			for range events {
				event, obj, release, err := r.readEvent()
				if err != nil {
					t.Error(err)
					return
				}
				q.queueEvent(q.client, queuedEvent{watch.Event{Type: event, Object: obj}, release})
			}
		}()
		n := 0
		for e := range q.out {
			if e.Type == watch.Added {
				n++
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if held := f.budget.heldBytes(); n != events || held != 0 {
			t.Errorf("%d events of %d, and %d bytes are held", n, events, held)
		}
	})
}

// TestFramesHaveABound: a length is checked before its bytes are read.
func TestFramesHaveABound(t *testing.T) {
	f := New(Options{Reach: noReach()})
	ctx, _ := whoAsks(t, "jane", "shop")
	q := f.newEventQueue(ctx)
	defer q.stop()
	for _, n := range []uint32{0, frameMost + 1, 1 << 31} {
		r := &eventReader{ctx: q.client, body: bytes.NewReader(binary.BigEndian.AppendUint32(nil, n)), queue: q}
		if _, _, _, err := r.readEvent(); err != errFrame {
			t.Errorf("a frame of %d bytes: %v", n, err)
		}
	}
	if held := f.budget.heldBytes(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestAnswersToWritesAreCounted: a member answers a deletion with as much as it likes.
func TestAnswersToWritesAreCounted(t *testing.T) {
	list := bigList(t)
	f, at := newFleet(t, 1<<20, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(list) })
	jane, _ := whoAsks(t, "jane", "shop")
	_, err := f.requestAsUser(jane, at(0), userRequest{method: http.MethodDelete, path: "/api/v1/namespaces/shop/pods/web-1"})
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "cluster c0: ") {
		t.Errorf("the answer is %v", err)
	}
}

// TestMemoryOfPlansIsOfTheSameBudget: what a user holds by lists leaves less for its plans, and other
// users keep theirs.
func TestMemoryOfPlansIsOfTheSameBudget(t *testing.T) {
	f := New(Options{Reach: noReach()})
	release, err := f.ReserveMemory("jane", "the plan", heldMost/2)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ReserveMemory("jane", "the plan", 1)
	if s := apierrors.APIStatus(nil); !apierrors.IsTooManyRequests(err) || !asStatus(err, &s) || s.Status().Details.RetryAfterSeconds == 0 || s.Status().Details.Causes[0].Type != metav1.CauseType(atoll.ReasonMemoryFull) {
		t.Errorf("one byte more: %v", err)
	}
	other, err := f.ReserveMemory("joe", "the plan", heldMost/4)
	if err != nil {
		t.Errorf("another user: %v", err)
	}
	other()
	release()
	release()
	if held := f.budget.heldBytes(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

func asStatus(err error, into *apierrors.APIStatus) bool {
	s, ok := err.(apierrors.APIStatus)
	*into = s
	return ok
}

// noReach leads to no member.
func noReach() *memberproxy.ProxyHandler {
	return memberproxy.New(memberproxy.Options{Log: slog.New(slog.DiscardHandler)})
}
