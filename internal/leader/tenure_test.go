package leader

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestATenureLapsesForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn := newTenure(12 * time.Second)
		if tn.IsLeading() {
			t.Fatal("leads before it was elected")
		}
		time.Sleep(time.Hour) // a follower may wait for as long as it takes
		tn.extendFrom(time.Now())
		time.Sleep(12 * time.Second)
		if !tn.IsLeading() {
			t.Fatal("does not lead within its time")
		}
		time.Sleep(time.Millisecond)
		if tn.IsLeading() {
			t.Fatal("leads past its time")
		}
		select {
		case <-tn.done:
		default:
			t.Fatal("the change was not reported")
		}
		tn.extendFrom(time.Now())
		if tn.IsLeading() {
			t.Fatal("a lapsed tenure began again: another hub may have led in between")
		}
	})
}

// slowLock answers only after a while, as if the process was stopped in between.
type slowLock struct {
	resourcelock.Interface
	delay   time.Duration
	updates []string // holders
}

func (l *slowLock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.updates = append(l.updates, r.HolderIdentity)
	time.Sleep(l.delay)
	return nil
}

func TestALateAnswerIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tn, lock := newTenure(12*time.Second), &slowLock{delay: time.Second}
		l := &tenureLease{Interface: lock, tenure: tn}
		me := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
		if err := l.Update(t.Context(), me); err != nil || !tn.IsLeading() {
			t.Fatalf("elected, and leads=%t: %v", tn.IsLeading(), err)
		}
		lock.delay = 30 * time.Second
		if err := l.Update(t.Context(), me); err != nil {
			t.Fatal(err)
		}
		if tn.IsLeading() {
			t.Fatal("an answer that came after 30 s counts as a lease of now")
		}
		n := len(lock.updates)
		for _, r := range []resourcelock.LeaderElectionRecord{me, {}} {
			if err := l.Update(t.Context(), r); !errors.Is(err, ErrNotLeading) {
				t.Fatalf("held by %q: %v", r.HolderIdentity, err)
			}
		}
		if len(lock.updates) != n {
			t.Fatal("what may be another hub's lease by now was renewed or released")
		}
	})
}

func TestReleaseEndsTheTenureFirst(t *testing.T) {
	tn := newTenure(time.Minute)
	tn.extendFrom(time.Now())
	released := false
	l := &tenureLease{tenure: tn, Interface: lockFunc(func() {
		if released = true; tn.IsLeading() {
			t.Error("it still leads while it gives the lease up")
		}
	})}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil || !released {
		t.Fatal("not released", err)
	}
}

// heldBy is a lease of that holder.
type heldBy struct {
	lockFunc
	holder string
}

func (h heldBy) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &resourcelock.LeaderElectionRecord{HolderIdentity: h.holder}, nil, nil
}

// A leader that sees another holder of its lease stops at once. One that has not been elected waits on.
func TestALeaseOfAnotherHubEndsTheTenure(t *testing.T) {
	for _, c := range []struct {
		holder         string
		elected, leads bool
	}{{"me", true, true}, {"", true, true}, {"other", true, false}, {"other", false, true}} {
		tn := newTenure(time.Minute)
		if c.elected {
			tn.extendFrom(time.Now())
		}
		l := &tenureLease{tenure: tn, Interface: heldBy{func() {}, c.holder}}
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tn.extendFrom(time.Now()); tn.IsLeading() != c.leads {
			t.Errorf("held by %q, elected %t: leads=%t", c.holder, c.elected, tn.IsLeading())
		}
	}
}

type lockFunc func()

func (f lockFunc) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, errors.New("not used")
}
func (f lockFunc) Create(context.Context, resourcelock.LeaderElectionRecord) error { f(); return nil }
func (f lockFunc) Update(context.Context, resourcelock.LeaderElectionRecord) error { f(); return nil }
func (f lockFunc) RecordEvent(string)                                              {}
func (f lockFunc) Identity() string                                                { return "me" }
func (f lockFunc) Describe() string                                                { return "a lock" }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWritesEndWithTheTenure(t *testing.T) {
	tn := newTenure(time.Minute)
	passed := 0
	f := writeFence{roundTripper(func(*http.Request) (*http.Response, error) { passed++; return &http.Response{}, nil }), func(*http.Request) error { return errorUnless(tn.IsLeading(), ErrNotLeading) }}
	try := func(method string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://hub/", io.NopCloser(strings.NewReader("{}")))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.RoundTrip(r)
		return err
	}
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for _, method := range writes {
		if err := try(method); !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s before the election: %v", method, err)
		}
	}
	tn.extendFrom(time.Now())
	for _, method := range writes {
		if err := try(method); err != nil {
			t.Errorf("%s while leading: %v", method, err)
		}
	}
	tn.endTenure()
	for _, method := range writes {
		if err := try(method); !errors.Is(err, ErrNotLeading) {
			t.Errorf("%s after the end: %v", method, err)
		}
	}
	if err := try(http.MethodGet); err != nil || passed != len(writes)+1 {
		t.Errorf("reads pass always; %d passed: %v", passed, err)
	}
}
